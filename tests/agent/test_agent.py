"""The package as a whole: its names, and that importing them is cheap."""

from __future__ import annotations

import subprocess
import sys

import skillbelt.agent


def test_every_name_is_there_and_sorted() -> None:
    names = skillbelt.agent.__all__
    assert names == sorted(names)
    assert all(getattr(skillbelt.agent, name) for name in names)


def test_no_provider_is_imported_before_a_model_is_asked() -> None:
    code = (
        "import sys, skillbelt.agent, skillbelt.agent.offline\n"
        "print([n for n in ('pydantic_ai', 'openai', 'anthropic', 'google.genai', 'mcp') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
