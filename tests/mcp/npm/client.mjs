// Uses a server as a host would, and prints what it found: node client.mjs ERA URL TOKEN, or
// node client.mjs ERA -- COMMAND...
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { SkillsClient } from "@modelcontextprotocol/client/ext/skills";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [era, where, ...rest] = process.argv.slice(2);
const transport =
  where === "--"
    ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env })
    : new StreamableHTTPClientTransport(new URL(where), {
        requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } },
      });

const asked = [];
const client = new Client(
  { name: "other", version: "1" },
  { capabilities: { elicitation: {} }, versionNegotiation: { mode: era } },
);
client.setRequestHandler("elicitation/create", async (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: { answer: "once" } };
});
await client.connect(transport);

const skills = new SkillsClient(client);
const supported = skills.supported;
const listed = supported ? await skills.list() : { skills: [] };
const files = {};
for (const skill of listed.skills) {
  for (const { uri } of skill.resources) {
    files[uri] = (await skills.read(skill, uri)).verified;
  }
}
const folder = skills.directoryRead ? await skills.readDirectory("skill://pdf") : { resources: [] };
const got = await skills.get("skill://pdf/SKILL.md").catch((error) => ({ error: error.message }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
const loaded = await client.callTool({ name: "skill_load", arguments: { skill: "pdf" } });
const progress = [];
const ran = await client.callTool(
  {
    name: "skill_run",
    arguments: { skill: "pdf", command: "echo one; sleep 0.3; echo two; sleep 0.3" },
  },
  { onprogress: ({ message }) => progress.push(message) },
);
const wrong = await client.callTool({ name: "skill_load", arguments: { skill: "nothing" } });
const outside = await client
  .readResource({ uri: "skill://pdf/../../../etc/passwd" })
  .then(() => "read", (error) => error.code);
await client.close();

console.log(
  JSON.stringify({
    supported,
    names: listed.skills.map((skill) => skill.frontmatter.name),
    files,
    folder: folder.resources.map((resource) => resource.name),
    got: got.skill?.uri ?? got.error,
    tools,
    prompts,
    loaded: loaded.content[0].text,
    ran: ran.structuredContent,
    progress,
    asked,
    wrong: wrong.isError,
    outside,
  }),
);
