"""Frameworks that are not installed: nothing else needs them, and the error names the extra."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FRAMEWORKS = ("pydantic_ai", "langchain", "langchain_core", "langgraph", "agents", "google")
WITHOUT = f"""
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FRAMEWORKS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    """The program, where no framework is installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "extra", "what"),
    [
        ("pydantic_ai", "agent", "Pydantic AI"),
        ("langchain", "langchain", "LangChain"),
        ("openai_agents", "openai-agents", "the OpenAI Agents SDK"),
        ("google_adk", "google-adk", "Google ADK"),
    ],
)
def test_what_to_install_is_told(module: str, extra: str, what: str) -> None:
    done = python(f"""
from skillbelt import ConfigError, MissingExtra
try:
    import skillbelt.integrations.{module}
except ConfigError as error:
    assert isinstance(error, MissingExtra)
    print(error.extra, error.exit_code, error, sep="\\n")
""")
    told = f"using skills in {what} needs the {extra!r} extra: pip install 'skillbelt[{extra}]'"
    assert (done.stdout.splitlines(), done.stderr) == ([extra, "2", told], "")


def test_the_rest_needs_none_of_them() -> None:
    done = python("import skillbelt.integrations.functions, skillbelt.integrations.common")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_of_a_framework_is_there_before_it_is_asked_for() -> None:
    code = f"""
import sys
import skillbelt, skillbelt.integrations
from skillbelt import Runtime
from skillbelt.integrations.functions import skill_functions
print([name for name in {FRAMEWORKS} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True
    )
    # Some distributions of `google` put its namespace there at start.
    assert done.stdout.strip() in ("[]", "['google']")
