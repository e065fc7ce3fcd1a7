"""The capabilities of a run: what the skill declares and the host grants."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.format.allowed_tools import KINDS, tool_name
from skillbelt.permission.grants import Grants, capabilities_of, hosts_by_tool, named_hosts
from skillbelt.values import Capabilities

ALL = Grants(
    read=("/data",), write=("/results",), hosts=("example.com", "*.example.org"), processes=True
)


@pytest.mark.parametrize("tool", ["Read", "Grep", "Glob", "LS"])
def test_tools_that_look_open_the_roots_to_read(tool: str) -> None:
    assert capabilities_of([tool], ALL) == Capabilities(read=("/data",))


@pytest.mark.parametrize("tool", ["Write", "Edit"])
def test_tools_that_write_open_the_roots_to_write(tool: str) -> None:
    assert capabilities_of([tool], ALL) == Capabilities(write=("/results",))


@pytest.mark.parametrize("tool", ["WebSearch", "Fetch", "WebFetch"])
def test_a_bare_tool_of_the_network_opens_the_granted_hosts(tool: str) -> None:
    assert capabilities_of([tool], ALL) == Capabilities(hosts=("example.com", "*.example.org"))
    assert capabilities_of([tool], Grants()) == Capabilities()


@pytest.mark.parametrize("tool", ["Bash", "Terminal", "Bash(git add *)", "bash"])
def test_tools_that_run_allow_child_processes(tool: str) -> None:
    assert capabilities_of([tool], ALL) == Capabilities(processes=True)
    assert capabilities_of([tool], ALL._replace(processes=False)) == Capabilities()


@pytest.mark.parametrize(
    ("tool", "hosts"),
    [
        ("WebFetch(domain:example.com)", ("example.com",)),
        ("WebFetch(domain:a.example.org)", ("a.example.org",)),
        ("WebFetch(domain:*.example.org)", ("*.example.org",)),
        ("WebFetch(domain:*)", ("example.com", "*.example.org")),
        ("Fetch(https://example.com/*)", ("example.com",)),
        ("WebFetch(domain:evil.net)", ()),
        ("WebFetch(domain:evilexample.com)", ()),
        ("WebFetch(domain:example.com:22)", ()),
        ("WebFetch(domain:user@example.com)", ()),
        ("WebFetch(domain:exa mple)", ()),
        ("WebSearch(how to)", ()),
    ],
)
def test_a_named_host_is_opened_when_it_is_granted(tool: str, hosts: tuple[str, ...]) -> None:
    assert capabilities_of([tool], ALL).hosts == hosts


def test_a_skill_can_not_widen_what_the_host_grants() -> None:
    """Attack 67."""
    declared = ["Read(/**)", "Write(/etc/**)", "WebFetch(domain:169.254.169.254)", "Bash", "Root"]
    grants = Grants(read=("/data",), hosts=("example.com",), processes=False)
    assert capabilities_of(declared, grants) == Capabilities(read=("/data",))


def test_a_path_narrows_the_root_it_lies_in(tmp_path: Path) -> None:
    grants = Grants(read=(str(tmp_path),))
    (tmp_path / "reports").mkdir()
    wanted = f"Read({tmp_path}/reports/**/*.csv)"
    assert capabilities_of([wanted], grants).read == (str(tmp_path / "reports"),)


def test_a_link_in_a_root_opens_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to("/etc")
    grants = Grants(read=(str(tmp_path / "root"),))
    assert capabilities_of([f"Read({tmp_path}/root/out/**)"], grants).read == ()


@pytest.mark.parametrize("pattern", ["/\0", "/\ud800", "/data/../etc"])
def test_a_path_that_is_none_opens_nothing(pattern: str) -> None:
    assert capabilities_of([f"Read({pattern})"], ALL).read == ()


@pytest.mark.parametrize("pattern", ["out/**", "./notes.md", "~/x", "**"])
def test_a_relative_path_is_one_of_the_workspace(pattern: str) -> None:
    assert capabilities_of([f"Write({pattern})"], ALL).write == ()


def test_no_tools_open_nothing() -> None:
    assert capabilities_of([], ALL) == Capabilities()


def test_a_wrong_grant_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"hosts: '\*' is not a host that can be granted"):
        capabilities_of(["WebFetch"], Grants(hosts=("*",)))


TOOLS = st.builds(
    lambda name, pattern: f"{name}({pattern})" if pattern else name,
    st.sampled_from([*KINDS, "Other"]),
    st.one_of(
        st.just(""), st.text(max_size=20), st.sampled_from(["/data/a", "domain:example.com"])
    ),
)


@given(st.lists(TOOLS, min_size=1, max_size=6))
def test_whatever_is_declared_stays_within_the_grants(tools: list[str]) -> None:
    got = capabilities_of(tools, ALL)
    assert all(path == "/data" or path.startswith("/data/") for path in got.read)
    assert all(path == "/results" or path.startswith("/results/") for path in got.write)
    assert all(host.endswith(("example.com", "example.org")) for host in got.hosts)
    assert not any(host.endswith(("evilexample.com", "evilexample.org")) for host in got.hosts)
    assert capabilities_of(tools, Grants(processes=False)) == Capabilities()


@pytest.mark.parametrize(
    ("tool", "name"),
    [("Bash(git add *)", "Bash"), ("Read", "Read"), (" read ", "Read"), ("mcp__x", "mcp__x"),
     ("", ""), ("(x)", "")],
)  # fmt: skip
def test_the_name_of_a_tool(tool: str, name: str) -> None:
    assert tool_name(tool) == name


def test_the_hosts_that_tools_name() -> None:
    tools = [
        "WebFetch(domain:example.com)", "Fetch(https://a.example.org/x)", "WebFetch", "WebFetch(*)",
        "Bash(curl example.net)", "WebFetch(domain:example.com)", "WebSearch(how to)",
        "fetch(*.example.com:8443)",
    ]  # fmt: skip
    assert named_hosts(tools) == ("example.com", "a.example.org", "*.example.com:8443")
    assert named_hosts(["Read", "Bash"]) == ()


def test_a_tool_that_names_no_host_opens_those_of_the_user() -> None:
    tools = ["Fetch", "WebFetch(domain:example.com)", "WebFetch(domain:*)"]
    listed = ("api.example.org", "Example.com")
    assert named_hosts(tools, listed) == ("api.example.org", "example.com")


def test_a_tool_that_opens_nothing_says_why() -> None:
    found = hosts_by_tool(["WebSearch", "WebFetch(domain:a b)", "Read"])
    assert [(one.tool, one.fault.partition(";")[0]) for one in found] == [
        ("WebSearch", "it names no host, and the setting fetch_hosts lists none"),
        ("WebFetch(domain:a b)", "'a b' names no host: not a host name"),
    ]
