"""Every block of code in the documentation is run or checked; what is neither is listed here.

`test_docs.py` runs `python` and `console` blocks, and parses `sh` blocks. Titled blocks are files
that the page works with.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from skillbelt import load_settings
from skillbelt.console.people import read_access
from skillbelt.permission.rule_files import read_policy
from skillbelt.serving.tokens import read_tokens
from skillbelt.settings import DEFAULTS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
BLOCKS = [
    (page, match[1], match[3])
    for page in PAGES
    for match in FENCE.finditer(page.read_text("utf-8"))
    if not match[2]
]
CHECKED = {"python", "console", "sh", "toml", "json", "yaml", "sql"}
# What no test can run or check, by page: how many blocks, and why.
NOT_CHECKED = {
    "fleet.md": (2, "commands for several machines, as root"),
    "deploy/README.md": (2, "commands of engines; tests/fleet/test_deploy.py checks the files"),
    "packages.md": (1, "needs a package index; tests/running/packages has the same with one"),
    "write-skills.md": (2, "a tree of files, and a comment block that tests/running/trial reads"),
    "deepagents.md": (1, "needs deepagents; test_docs_migrating.py checks our side"),
}


def of_kind(kind: str) -> list[tuple[Path, str]]:
    return [(page, text) for page, language, text in BLOCKS if language == kind]


def name_of(page: Path) -> str:
    return page.name if page.name != "README.md" else str(page.relative_to(ROOT))


def test_every_block_is_of_a_kind_that_is_checked_or_listed_here() -> None:
    others = Counter(
        name_of(page)
        for page, language, _ in BLOCKS
        if language not in CHECKED and page.name != "commands.md"  # generated from the parsers
    )
    assert others == {page: number for page, (number, _) in NOT_CHECKED.items()}


@pytest.mark.parametrize(("page", "text"), of_kind("toml"), ids=lambda one: str(one)[-30:])
def test_settings_in_a_block_are_taken_without_a_complaint(
    page: Path, text: str, tmp_path: Path
) -> None:
    parsed = tomllib.loads(text)
    if "token" in parsed:
        digest = hashlib.sha256(b"a token that is long enough").hexdigest()
        second = hashlib.sha256(b"another that is long enough").hexdigest()
        path = tmp_path / "tokens.toml"
        filled = text.replace('sha256 = "..."', f'sha256 = "{digest}"', 1)
        path.write_text(filled.replace('sha256 = "..."', f'sha256 = "{second}"', 1))
        path.chmod(0o600)
        read_tokens(str(path))
    elif page.name == "console.md":  # a file of --access
        path = tmp_path / "access.toml"
        path.write_text(text)
        secret = tmp_path / "secret.txt"
        secret.write_text("what the provider gave")
        for one in (path, secret):
            one.chmod(0o600)
        assert read_access(str(path)).default_role == parsed["default_role"]
    elif "mcp_servers" in parsed:
        assert page.name == "mcp.md"  # of Codex; tests/mcp/test_stdio_docs.py starts it
    else:
        path = tmp_path / "skillbelt" / "config.toml"
        path.parent.mkdir()
        path.write_text(text, "utf-8")
        project = tmp_path / "project"
        project.mkdir()
        environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
        settings = load_settings(str(project), environ=environ)
        for name, value in parsed.items():
            if name in DEFAULTS and not isinstance(value, list):
                assert getattr(settings, name) == value
        assert not read_policy(settings, project_trusted=True).diagnostics


def test_json_and_yaml_in_a_block_can_be_read() -> None:
    assert [json.loads(text) for _, text in of_kind("json")]
    assert [yaml.safe_load(text) for _, text in of_kind("yaml")]


def test_sql_in_a_block_is_run_by_the_tests_of_postgresql() -> None:
    """Both read their page; a policy that restricts further is the reader's own."""
    readers = {
        "postgres.md": ROOT / "tests" / "store" / "test_postgres.py",
        "observe.md": ROOT / "tests" / "permission" / "test_postgres_audit.py",
    }
    assert {page.name for page, _ in of_kind("sql")} == readers.keys()
    for page, reader in readers.items():
        assert f"docs/how-to/{page}" in reader.read_text("utf-8")
    lines = [line for _, text in of_kind("sql") for line in text.splitlines() if line]
    kinds = Counter(line.split(" ON ")[0].split()[0] for line in lines)
    assert kinds.keys() == {"GRANT", "CREATE"} and kinds["CREATE"] == 2
