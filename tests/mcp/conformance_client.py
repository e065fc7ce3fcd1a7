"""A host as the conformance tool starts it, with the address of its server as the last argument.

Lists the skills, and loads one with a document if the scenario is about what a load must check.
"""

from __future__ import annotations

import os
import sys
import tempfile

from skillbelt import Runtime, SkillbeltError


def main(url: str, scenario: str) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        Runtime(
            home,
            urls=[f"mcp+{url}#mock"],
            cache_dir=os.path.join(home, "cache"),
            state_dir=os.path.join(home, "state"),
        ) as belt,
    ):
        found = [skill.name for skill in belt.discover_skills()]
        print(found, [str(problem) for problem in belt.catalog.diagnostics])
        if "verify" in scenario:
            try:
                belt.load("mock.pdf-processing")
                belt.load_resource("mock.pdf-processing", "references/FORMS.md")
            except SkillbeltError as error:
                print(error)


if __name__ == "__main__":
    main(sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"])
