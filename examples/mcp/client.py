"""Starts the MCP server for the skills of this folder and uses it, as a client does."""

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(command=sys.executable, args=["-m", "skillbelt", "serve", "mcp"])


async def main() -> None:
    async with Client(SERVER) as client:
        tools = await client.list_tools()
        print("tools:", ", ".join(tool.name for tool in tools.tools))
        prompts = await client.list_prompts()
        print("prompts:", ", ".join(prompt.name for prompt in prompts.prompts))
        loaded = await client.call_tool("skill_load", {"skill": "log-triage"})
        [content] = loaded.content
        print("loaded:", getattr(content, "text", "").splitlines()[0])


if __name__ == "__main__":
    asyncio.run(main())
