// Bundles a program and makes a component of it, twice, so that what the clock leaves can be told
// from the rest. Its one argument is the file that says what to build, as JSON:
// {tools, packages, root, entry, source, outputs, world, wit, runtime}, and {adapter, engine} for another
// engine: a module with its `plugins` and its `componentize`, and the folder of its packages.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
const tool = createRequire(pathToFileURL(join(task.tools, "package.json")));
const here = dirname(fileURLToPath(import.meta.url));
const esbuild = tool("esbuild");
const adapter = task.adapter ? await import(pathToFileURL(task.adapter)) : { plugins: [], ...tool("componentize-qjs") };

const NODE = ["assert", "assert/strict", "buffer", "crypto", "events", "fs", "fs/promises", "os", "path", "path/posix", "perf_hooks", "process", "readline", "timers", "timers/promises", "url", "util"];

// Where one can be had without all the others.
const FOUND = {
  buffer: '"./bytes.js")',
  events: '"./events.js").default',
  fs: '"./files.js").default',
  "fs/promises": '"./files.js").promises',
  path: '"./path.js").default',
  process: '"./process.js").process',
  url: '"./url.js")',
};

// The modules of node are ours; the source of the skill is the program.
const modules = {
  name: "skillbelt",
  setup(build) {
    const filter = new RegExp(`^(?:node:)?(?:${NODE.join("|")})$`);
    build.onResolve({ filter }, ({ path }) => ({ path: path.replace(/^node:/, ""), namespace: "node" }));
    build.onResolve({ filter: /^node:/ }, ({ path }) => ({ errors: [{ text: `${path} is not there in a WASM component` }] }));
    build.onLoad({ filter: /.*/, namespace: "node" }, ({ path }) => ({
      contents: `module.exports = require(${FOUND[path] ?? `"./builtins.js").builtins[${JSON.stringify(path)}]`};`,
      resolveDir: here,
    }));
    build.onResolve({ filter: /^skill:main$/ }, () => ({ path: task.source, namespace: "file" }));
    if (task.source) {
      build.onLoad({ filter: /.*/, namespace: "file" }, ({ path }) => (path === task.source ? mainSource(path) : undefined));
    }
  },
};

async function mainSource(path) {
  const { awaited } = await import("./trailing.js");
  const text = readFileSync(path, "utf8");
  const loader = /\.[mc]?ts$/.test(path) ? "ts" : path.endsWith("x") ? "tsx" : "js";
  // One that is no ES module has no top to wait at.
  const waiting = /\b(?:module\.exports|exports\.\w|require\.main)/.test(text) ? text : awaited(text);
  try {
    // Only where that can be said: a script may be one that can not wait at its top.
    if (waiting !== text) await esbuild.transform(waiting, { loader, format: "esm" });
    return { contents: waiting, loader };
  } catch {
    return { contents: text, loader };
  }
}

const bundled = await esbuild.build({
  entryPoints: [task.entry],
  bundle: true,
  write: false,
  format: "esm",
  platform: "neutral",
  mainFields: ["module", "main"],
  conditions: ["import", "require"],
  external: ["wasi:*", "skillbelt:*"],
  nodePaths: [task.packages, task.tools].filter(Boolean).map((folder) => join(folder, "node_modules")),
  absWorkingDir: task.root,
  minify: !task.source,
  keepNames: true,
  charset: "utf8",
  legalComments: "none",
  tsconfigRaw: "{}",
  logLevel: "silent",
  plugins: [...adapter.plugins, modules],
}).catch((error) => {
  const hint = (text) => (/^Could not resolve "[^./]/.test(text) ? `${text}; declare it under "dependencies" in the package.json of the skill` : text);
  const said = (error.errors ?? []).map(({ text, location }) => (location ? `${location.file}:${location.line}: ${hint(text)}` : hint(text)));
  console.error(said.join("\n") || String(error));
  process.exit(1);
});
const text = bundled.outputFiles[0].text;

for (const output of task.outputs) {
  const made = await adapter.componentize({ witPath: task.wit, world: task.world, jsSource: text, runtime: task.runtime }, task);
  writeFileSync(output, made.component);
}
