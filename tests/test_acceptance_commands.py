"""What the acceptance cases say about which commands run, and that none runs without a sandbox."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError, RunRefused, SandboxUnavailable
from skillbelt.sandbox import registry
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.none import NoSandbox
from tests import needs
from tests.benches import GUARDING, SKILL, Bench, need

# Which commands


def test_a_command_of_the_list_runs(bench: Bench) -> None:
    """Case 82."""
    bench.runtime = bench.open(allowed_commands=["echo"])
    assert bench.tool("echo a b").data["stdout"] == "a b\n"


def test_a_command_that_is_not_of_the_list_is_refused(bench: Bench) -> None:
    """Case 82."""
    bench.runtime = bench.open(allowed_commands=["echo"])
    assert "command 'ls' is not allowed by allowed_commands (echo)" in bench.tool("ls").error


@pytest.mark.parametrize(
    ("command", "character"),
    [
        ("echo a; ls", "';'"),
        ("echo a > out/f", "'>'"),
        ("echo a | cat", "'|'"),
        ("echo a & ls", "'&'"),
        ("echo $(ls)", "'$'"),
        ("echo `ls`", "'`'"),
        ("echo a\nls", "a newline"),
    ],
)
def test_a_shell_is_refused_and_the_character_named(
    bench: Bench, command: str, character: str
) -> None:
    """Case 82."""
    bench.runtime = bench.open(allowed_commands=["echo"])
    error = bench.tool(command).error
    assert f"shell syntax is not accepted under a command policy: {character};" in error
    bench.runtime = bench.open()
    assert bench.run("ls out").stdout == ""


def test_words_are_held_to_the_list_too(bench: Bench) -> None:
    """Case 82."""
    bench.runtime = bench.open(allowed_commands=["echo"])
    assert bench.run(["echo", "a;", "ls"]).stdout == "a; ls\n"
    with pytest.raises(RunRefused, match="'ls' is not allowed"):
        bench.run(["ls"])


@pytest.mark.parametrize("command", ["./evil/python3", "evil/python3", "work/python3"])
def test_a_program_that_only_has_the_name_is_refused(bench: Bench, command: str) -> None:
    """Case 83."""
    for place in ("evil", "bin"):
        file = bench.write(f"{place}/python3", "#!/bin/sh\necho evil\n")
        file.chmod(0o755)
    bench.run("cp bin/python3 work/")
    bench.runtime = bench.open(allowed_commands=["python3"])
    assert "is not allowed by allowed_commands" in bench.tool(command).error


def test_the_program_of_the_list_is_that_of_the_system(bench: Bench) -> None:
    """Case 83."""
    script = "printf '#!/bin/sh\\necho evil\\n' > .venv/bin/python3; chmod +x .venv/bin/python3"
    bench.run(f"mkdir .venv/bin; {script}")
    assert bench.run("PATH=$PWD/.venv/bin:$PATH python3 -c 'print(1)'").stdout == "evil\n"
    bench.runtime = bench.open(allowed_commands=["python3"])
    assert bench.run("python3 -c 'print(1)'").stdout == "1\n"


def test_deny_wins(bench: Bench) -> None:
    """Case 84."""
    bench.runtime = bench.open(allowed_commands=["ls", "echo"], denied_commands=["ls"])
    assert "command 'ls' is denied by denied_commands" in bench.tool("ls").error
    assert bench.tool("echo a").data["exit_code"] == 0


def test_a_list_in_code_counts_and_not_the_environment(bench: Bench) -> None:
    """Case 84."""
    bench.tree.setenv("TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS", "ls, cat")
    bench.runtime = bench.open(allowed_commands=["echo"])
    assert bench.tool("echo a").data["exit_code"] == 0
    assert "not allowed by allowed_commands (echo)" in bench.tool("ls").error


@pytest.mark.parametrize("list_of", ["ALLOWED", "DENIED"])
def test_without_a_list_in_code_the_environment_counts(bench: Bench, list_of: str) -> None:
    """Case 84."""
    bench.tree.setenv(f"TRPC_AGENT_SKILL_RUN_{list_of}_COMMANDS", "ls, cat")
    right, wrong = ("ls", "echo a") if list_of == "ALLOWED" else ("echo a", "ls")
    assert bench.tool(right).data["exit_code"] == 0
    assert f"by {list_of.lower()}_commands" in bench.tool(wrong).error


def test_a_project_can_not_set_the_lists(bench: Bench) -> None:
    """Case 84."""
    bench.tree.write("project/skillbelt.toml", 'allowed_commands = ["rm"]\n')
    with pytest.raises(ConfigError, match="cannot be set by a project"):
        bench.open()


# The environment


def variables(bench: Bench, command: str, given: dict[str, str]) -> dict[str, str]:
    result = bench.tool(command, env=given)
    assert not result.error
    lines = json.loads(result.text)["stdout"].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_the_path_of_a_model_does_not_count_under_a_policy(bench: Bench) -> None:
    """Case 85."""
    bench.runtime = bench.open(allowed_commands=["env"])
    found = variables(bench, "env", {"PATH": "/workspace/work", "MINE": "1"})
    assert "/workspace/work" not in found["PATH"].split(":")
    assert "/usr/bin" in found["PATH"].split(":")
    assert found["MINE"] == "1"


def test_without_a_policy_the_path_of_a_model_counts(bench: Bench) -> None:
    """Case 85."""
    found = variables(bench, "env", {"PATH": "/workspace/work:/usr/bin:/bin"})
    assert found["PATH"] == "/workspace/work:/usr/bin:/bin"


@pytest.mark.parametrize("settings", [{}, {"allowed_commands": ["env"]}])
def test_variables_that_make_programs_run_others_are_dropped(
    bench: Bench, settings: dict[str, list[str]]
) -> None:
    """Case 85."""
    bench.runtime = bench.open(**settings)
    dropped = {
        "LD_PRELOAD": "/workspace/work/x.so",
        "LD_LIBRARY_PATH": "/workspace/work",
        "BASH_ENV": "/workspace/work/x.sh",
        "BASH_FUNC_env%%": "() { echo evil; }",
        "BASH_FUNC_x": "() { echo evil; }",
        "PYTHONPATH": "/workspace/work",
    }
    found = variables(bench, "env", {**dropped, "MINE": "1"})
    assert dropped.keys().isdisjoint(found)
    assert found["MINE"] == "1"


def test_the_environment_of_the_host_stays_outside(bench: Bench) -> None:
    """Case 85."""
    bench.tree.setenv("A_SECRET_OF_THE_HOST", "s3cr3t")
    found = variables(bench, "env; cat /proc/1/environ /proc/self/environ", {})
    assert "s3cr3t" not in str(found)


# Without a sandbox


class Broken(LinuxSandbox):
    """The strongest sandbox, on a machine that does not have what it needs."""

    def unavailable(self) -> str:
        return "user namespaces are switched off"


@pytest.fixture
def broken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A machine where nothing holds a command back."""
    monkeypatch.setattr(registry, "auto_sandboxes", lambda *_: (Broken(),))
    monkeypatch.setattr(registry, "sandboxes", lambda *_: (Broken(), NoSandbox()))
    return bench


@pytest.mark.parametrize("wanted", ["auto", "bubblewrap"])
def test_without_a_sandbox_nothing_runs(broken: Bench, wanted: str) -> None:
    """Case 93."""
    broken.runtime = broken.open(sandbox=wanted)
    with pytest.raises(SandboxUnavailable, match="user namespaces are switched off"):
        broken.run("touch out/ran")
    assert list(broken.tree.root.glob("**/ran")) == []


def test_a_model_is_told_that_nothing_ran(broken: Bench) -> None:
    """Case 93."""
    result = broken.tool("touch out/ran")
    assert "user namespaces are switched off" in result.error
    assert list(broken.tree.root.glob("**/ran")) == []


def test_to_run_without_a_sandbox_is_a_choice_by_name(broken: Bench) -> None:
    """Case 93."""
    broken.runtime = broken.open(sandbox="none")
    result = broken.run("echo ran")
    assert (result.stdout, result.sandbox) == ("ran\n", "none")
    assert result.enforced["files"].startswith("not enforced")


def test_a_project_can_not_choose_the_sandbox(bench: Bench) -> None:
    """Case 93."""
    bench.tree.write("project/skillbelt.toml", 'sandbox = "none"\n')
    with pytest.raises(ConfigError, match="cannot be set by a project"):
        bench.open()


def test_a_sandbox_that_nobody_knows_is_a_wrong_setting(bench: Bench) -> None:
    bench.runtime = bench.open(sandbox="jail")
    with pytest.raises(ConfigError, match="no sandbox named 'jail'; there are: auto, bubblewrap"):
        bench.run("true")


# The network

CONNECT = """
import socket, sys
family, kind, *address = sys.argv[1:]
target = (address[0], int(address[1])) if len(address) > 1 else address[0].replace("@", "\\0")
try:
    with socket.socket(getattr(socket, family), getattr(socket, kind)) as one:
        one.settimeout(5)
        one.connect(target)
        one.send(b"hello")
except OSError as error:
    sys.exit(f"refused: {error}")
"""


@contextmanager
def listening(folder: Path) -> Iterator[dict[str, tuple[socket.socket, list[str]]]]:
    """A server of every kind on this machine, and what to call it by."""
    with ExitStack() as stack:

        def server(family: int, kind: int, address: object) -> socket.socket:
            made = stack.enter_context(socket.socket(family, kind))
            made.bind(address)  # type: ignore[arg-type]
            if kind == socket.SOCK_STREAM:
                made.listen()
            made.settimeout(0)
            return made

        tcp = server(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = server(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        tcp6 = server(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
        name = f"skillbelt-{folder.name}"
        abstract = server(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{name}")
        yield {
            "tcp": (tcp, ["AF_INET", "SOCK_STREAM", "127.0.0.1", str(tcp.getsockname()[1])]),
            "udp": (udp, ["AF_INET", "SOCK_DGRAM", "127.0.0.1", str(udp.getsockname()[1])]),
            "tcp6": (tcp6, ["AF_INET6", "SOCK_STREAM", "::1", str(tcp6.getsockname()[1])]),
            "abstract": (abstract, ["AF_UNIX", "SOCK_STREAM", f"@{name}"]),
        }


@pytest.mark.parametrize("sandbox", GUARDING)
@pytest.mark.parametrize("kind", ["tcp", "udp", "tcp6", "abstract"])
def test_there_is_no_network_unless_it_is_granted(bench: Bench, sandbox: str, kind: str) -> None:
    """Case 94."""
    need(sandbox)
    bench.write("scripts/connect.py", CONNECT)
    bench.runtime = bench.open(sandbox=sandbox)
    with listening(bench.tree.root) as servers:
        server, address = servers[kind]
        result = bench.run(["python3", "scripts/connect.py", *address])
        assert result.exit_code == 1
        assert result.stderr.startswith("refused:")
        with pytest.raises(BlockingIOError):
            server.recv(1) if kind == "udp" else server.accept()
    assert result.hosts == ()
    assert result.sandbox == sandbox


def test_the_same_attempt_works_where_nothing_is_held_back(bench: Bench) -> None:
    """Case 94."""
    bench.write("scripts/connect.py", CONNECT)
    bench.runtime = bench.open(sandbox="none")
    with listening(bench.tree.root) as servers:
        for _, address in servers.values():
            result = bench.run(["python3", "scripts/connect.py", *address])
            assert result.exit_code == 0, result.stderr


# As an ordinary user, and on a machine that really lacks something


@pytest.mark.parametrize("sandbox", GUARDING)
def test_an_ordinary_user_has_no_network_either(bench: Bench, sandbox: str) -> None:
    """Case 94."""
    need(sandbox)
    bench.write("scripts/connect.py", CONNECT)
    bench.tree.setenv("SKILLBELT_SANDBOX", sandbox)
    with listening(bench.tree.root) as servers:
        commands = [["python3", "scripts/connect.py", *address] for _, address in servers.values()]
        results = bench.as_user(
            f"json.dump([run(one).document() for one in {commands!r}], sys.stdout)"
        )
    assert [one["exit_code"] for one in results] == [1] * 4
    assert {one["sandbox"] for one in results} == {sandbox}


def test_where_namespaces_are_used_up_nothing_runs(bench: Bench) -> None:
    """Case 93."""
    if not shutil.which("unshare"):
        needs.not_run("needs unshare: apt install util-linux")
    limit = "/proc/sys/user/max_user_namespaces"
    code = (
        "import subprocess, sys; sys.exit(subprocess.run("
        f"['unshare', '-Ur', 'sh', '-c', 'echo 0 > {limit} && exec \"$@\"', 'sh', *sys.argv[1:]]"
        ").returncode)"
    )
    command = ["-m", "skillbelt", "run", SKILL, "--sandbox", "bubblewrap", "--yes"]
    done = bench.tree.python("-c", code, sys.executable, *command, "--", "touch", "out/ran")
    assert done.exit_code == 5, done.stderr
    assert "the sandbox 'bubblewrap' cannot be used" in done.stderr
    assert list(bench.tree.root.glob("**/ran")) == []
