"""An MCP server for skills, over standard input and output or over HTTP.

Needs the `mcp` extra; only `skillbelt serve` and hosts that embed the server import it.
"""
