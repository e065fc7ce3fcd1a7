"""Skills for other programs: an MCP server, over standard input and output or over HTTP.

Everything here needs the `mcp` extra; only `skillbelt serve` and hosts that embed it load it.
"""
