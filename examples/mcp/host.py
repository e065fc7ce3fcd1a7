"""Takes skills from another MCP server: here from skillbelt itself, started for another folder."""

import shlex
import sys
import tempfile

from skillbelt import Runtime

command = shlex.join([sys.executable, "-m", "skillbelt", "serve", "mcp", "--project", "."])
with (
    tempfile.TemporaryDirectory() as elsewhere,
    Runtime(elsewhere, mcp_commands=[f"team={command}"]) as belt,
):
    for skill in belt.discover_skills():
        print(skill.name, "from", skill.origin)
    print(belt.load("team.log-triage").text.splitlines()[0])
