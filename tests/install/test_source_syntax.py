"""Sources as they are typed: the syntaxes of `skills` 1.7.4, ours, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.install.source_syntax import parse_source, parse_typed

# One line for each source: what was typed in /work, and what `parseSource` of skills 1.7.4 made.
RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent / "skills_sources.jsonl").read_text().splitlines()
]
# Where ours differs, and why.
DIFFERENT: dict[str, dict[str, str]] = {
    # The name of a skill after a ref counts for every repository, not for the short form alone.
    "https://github.com/o/r.git#v1@sk": {"skillFilter": "sk"},
    # A file is fetched as one; `skills` looks for a list of skills first, then does the same.
    "https://example.com/x.zip": {"type": "download"},
    "https://example.com/SKILL.md": {"type": "download"},
    # `skills` would pass the fragment to git as a part of the path.
    "file:///srv/r.git#v1": {"url": "file:///srv/r.git", "ref": "v1"},
    # No repository has one name only.
    "https://gitlab.com/onlyone": {"type": "well-known"},
    # `skills` doubles the ending, and there is no such repository.
    "owner/repo.git": {"url": "https://github.com/owner/repo.git"},
}
REFUSED_BY_US = ("owner/repo%20x",)


def as_recorded(text: str) -> dict[str, str]:
    found = parse_source(text, folder="/work")
    values = {
        "type": found.kind,
        "url": found.url,
        "ref": found.ref,
        "subpath": found.subpath,
        "skillFilter": found.skill,
    }
    return {key: value for key, value in values.items() if value}


def test_the_sources_of_skills_mean_the_same_here() -> None:
    for text, wanted in RECORDED:
        if "error" in wanted or text in REFUSED_BY_US:
            with pytest.raises(SourceFailure):
                parse_source(text, folder="/work")
            continue
        wanted.pop("localPath", None)
        assert as_recorded(text) == {**wanted, **DIFFERENT.get(text, {})}, text


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("owner/repo/skills/a", "owner/repo"),
        ("https://github.com/o/r/tree/main/x", "o/r"),
        ("https://gitlab.com/g/s/r", "https://gitlab.com/g/s/r.git"),
        ("git@host.example:g/r.git", "git@host.example:g/r.git"),
        ("https://www.example.com/docs", "example.com"),
        ("clawhub:deep-research@1.2.0", "deep-research"),
        ("oci://registry.example/skills/a:1", "oci://registry.example/skills/a:1"),
        ("mcp+https://mcp.example/mcp#work", "mcp+https://mcp.example/mcp"),
        ("./pack.skill", "/work/pack.skill"),
    ],
)
def test_the_lock_gets_a_source_without_secrets(text: str, source: str) -> None:
    assert parse_source(text, folder="/work").source == source


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("oci://registry.example:5000/a/b@sha256:" + "0" * 64, {"kind": "oci"}),
        ("oci-layout:./out#v1", {"kind": "oci", "url": "oci-layout:/work/out", "ref": "v1"}),
        ("clawhub:owner/deep", {"kind": "clawhub", "source": "owner/deep"}),
        ("clawhub:deep@1.0.0", {"kind": "clawhub", "ref": "1.0.0"}),
        ("pdf@team", {"kind": "marketplace", "url": "team", "subpath": "pdf"}),
        ("mcp+stdio://label", {"kind": "mcp"}),
        ("./a.tar.gz", {"kind": "download", "url": "/work/a.tar.gz"}),
        ("file:///srv/a.skill", {"kind": "download", "url": "/srv/a.skill"}),
        ("ssh://git@github.com/o/r.git", {"kind": "git", "url": "ssh://git@github.com/o/r.git"}),
        ("https://evil.example/github.com/o/r", {"kind": "well-known"}),
    ],
)
def test_sources_that_skills_does_not_have(text: str, wanted: dict[str, Any]) -> None:
    found = parse_source(text, folder="/work")._asdict()
    assert {key: found[key] for key in wanted} == wanted


def test_the_users_github_server_is_where_short_names_are() -> None:
    found = parse_source("owner/repo@a", github_host="git.corp.example")
    assert (found.kind, found.url, found.skill) == (
        "git",
        "https://git.corp.example/owner/repo.git",
        "a",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ext::sh -c touch% /tmp/x",
        "mcp+stdio://label?touch /tmp/x",
        "MCP+stdio://label?touch%20/tmp/x",
        "mcp+stdio://../label",
        "mcp+https://token@mcp.example/mcp#work",
        "ext::sh",
        "fd::17",
        "https::https://example.com/r.git",
        "--upload-pack=touch x",
        "-oProxyCommand=x",
        "git@-oProxyCommand=x:o/r.git",
        "-oProxyCommand=x:o/r",
        "ssh://-oProxyCommand=x/o/r.git",
        "owner/repo#--upload-pack=x",
        "owner/repo#a..b",
        "owner/repo#a b",
        "owner/..",
        "owner/repo/a/../../b",
        "owner/repo/%2e%2e/b",
        "owner/repo/a\\b",
        "a\nb/c",
        "a\x1b[2J/c",
        "https://user:secret@example.com/r.git",
        "https://ghp_token@example.com/r.git",
        "https://token@example.com/x.zip",
        "https://exa mple.com/r",
        "https:///r",
        "https://example.com:99999/r",
        "ftp://example.com/r.git",
        "data://x",
        "file://other.example/srv/r.git",
        "file:///srv/../etc",
        "file:///srv/%2e%2e/etc",
        "clawhub:../x",
        "clawhub:a@-x",
        "oci://host/../x",
        "oci://host",
        "just-a-word",
    ],
)
def test_hostile_and_wrong_sources_are_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(SourceFailure) as caught:
        parse_source(text, folder="/work")
    assert caught.value.code == "source-syntax"
    assert caught.value.remedy
    assert "secret" not in str(caught.value)
    assert "ghp_token" not in str(caught.value)


PIECES = st.sampled_from(
    ["owner", "/", "repo", "@", "#", ":", "::", "..", ".", "-", "~", "https://", "file://",
     "ssh://", "ext::", "git@", "github.com", "gitlab.com", "/-/tree/", "/tree/", "/_git/",
     "?path=", "clawhub:", "oci://", "mcp+https://", "%2e", "%00", ".git", ".zip", "é", " ", "\\",
     "\x00", "[", "]"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=40))
def test_any_text_is_a_safe_reference_or_a_refusal(text: str) -> None:
    try:
        found = parse_source(text, folder="/work")
    except SourceFailure:
        return
    assert not found.url.startswith("-")
    assert "::" not in found.url or found.kind in ("local", "download", "mcp", "well-known", "git")
    assert ".." not in found.subpath.split("/")
    assert not found.ref.startswith("-")
    if found.kind in ("github", "gitlab"):
        assert found.url.startswith(("https://", "http://"))
    if found.kind == "git":
        assert found.url.startswith(
            ("http://", "https://", "ssh://", "git+ssh://", "git://", "file:///")
        ) or (":" in found.url and "::" not in found.url.partition("[")[0])


def test_gh_host_says_where_short_names_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_HOST", " Git.corp.example:8443 ")
    assert parse_typed("owner/repo").url == "https://git.corp.example:8443/owner/repo.git"
    # A lock says `github` for the public one alone.
    assert parse_source("github:owner/repo").url == "https://github.com/owner/repo.git"
    monkeypatch.setenv("GH_HOST", "https://git.corp.example")
    with pytest.raises(SourceFailure, match=r"GH_HOST: .* is not the name of a host"):
        parse_typed("owner/repo")
