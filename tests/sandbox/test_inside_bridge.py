"""The way from inside a sandbox to the proxy, alone and within a real sandbox."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.sandbox.inside.bridge import PROXY_VARIABLES
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.network.proxy import Egress
from skillbelt.sandbox.network.proxy import bridge as bridge_to
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.values import Capabilities
from tests.discovery.sources.server import Server, running
from tests.tree import NOBODY, Tree

PYTHON = "/usr/bin/python3"
INSIDE = "/run/net"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.pages["/"] = b"hello"
        yield server


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def proxy_for(server: Server, owner: int | None) -> Egress:
    def lookup(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    return Egress(
        [f"example.com:{port_of(server)}"],
        allow_private=["127.0.0.1"],
        resolver=lookup,
        owner=owner,
    )


@pytest.fixture
def egress(server: Server) -> Iterator[Egress]:
    with proxy_for(server, NOBODY if os.getuid() == 0 else None) as egress:
        yield egress


# --- alone ---------------------------------------------------------------------------------------


def bridged(
    argv: tuple[str, ...], path: str, interpreter: str = sys.executable, filtered: str = "-"
) -> list[str]:
    return [*bridge_to(path, interpreter), filtered, *argv]


def bridge(egress: Egress, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        bridged(argv, egress.socket_path),
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


def python(code: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-c", textwrap.dedent(code))


@pytest.mark.parametrize("code", [0, 7, 255])
def test_the_exit_code_is_the_commands(code: int, egress: Egress) -> None:
    assert bridge(egress, "sh", "-c", f"exit {code}").returncode == code


def test_a_command_that_is_missing_gives_127(egress: Egress) -> None:
    done = bridge(egress, "no-such-command")
    assert (done.returncode, done.stderr) == (127, "no-such-command: not found\n")


def test_a_command_that_can_not_be_run_gives_126(egress: Egress, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    assert bridge(egress, str(tmp_path / "text")).returncode == 126


def test_the_wrong_arguments_are_said_to_be_wrong() -> None:
    done = subprocess.run(bridged((), "x"), capture_output=True, check=False)
    assert done.returncode == 125
    assert b"usage" in done.stderr


def test_the_variables_point_at_the_port_and_exclude_nothing(egress: Egress) -> None:
    done = bridge(egress, "env", NO_PROXY="*", no_proxy="*", HTTP_PROXY="http://evil.net", A="b")
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {seen[name] for name in PROXY_VARIABLES} == {seen["HTTP_PROXY"]}
    assert seen["HTTP_PROXY"].startswith("http://127.0.0.1:")
    assert (seen["NO_PROXY"], seen["no_proxy"], seen["A"]) == ("", "", "b")


def test_a_request_goes_through_port_and_socket(egress: Egress, server: Server) -> None:
    code = f"""
    from urllib.request import urlopen
    print(urlopen("http://example.com:{port_of(server)}/", timeout=500).read().decode())
    """
    assert bridge(egress, *python(code)).stdout == "hello\n"


def test_many_requests_at_once_all_arrive(egress: Egress, server: Server) -> None:
    """More than may be open at a time."""
    server.pages["/big"] = b"x" * 500_000
    code = f"""
    from concurrent.futures import ThreadPoolExecutor
    from urllib.request import urlopen
    def get(_):
        return len(urlopen("http://example.com:{port_of(server)}/big", timeout=500).read())
    with ThreadPoolExecutor(90) as pool:
        print(set(pool.map(get, range(120))))
    """
    assert bridge(egress, *python(code)).stdout == "{500000}\n"


@pytest.mark.parametrize("field", ["SigIgn", "SigBlk"])
def test_the_command_has_the_signals_any_program_starts_with(field: str, egress: Egress) -> None:
    command = ("sh", "-c", f"grep {field} /proc/self/status")
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert bridge(egress, *command).stdout == plain.stdout


def test_a_signal_reaches_the_command_itself(egress: Egress) -> None:
    code = """
    import signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
    print("ready", flush=True)
    signal.pause()
    """
    with subprocess.Popen(
        bridged(python(code), egress.socket_path), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(150) == 42


def test_the_command_has_no_child_and_no_descriptor_of_the_bridge(egress: Egress) -> None:
    code = """
    import os
    print(sorted(map(int, os.listdir("/proc/self/fd")))[:3], len(os.listdir("/proc/self/fd")))
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child")
    """
    assert bridge(egress, *python(code)).stdout == "[0, 1, 2] 4\nno child\n"


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_command_gets_the_filter_it_is_given(egress: Egress) -> None:
    """Behind `setpriv`, which gives up what a filter could otherwise be used to gain."""
    code = """
    import os, socket
    try:
        os.fork()
        print("forked")
    except PermissionError:
        print("alone")
    """
    filtered = seccomp.program(processes=False, network=True).hex()
    command = bridged(python(code), egress.socket_path, filtered=filtered)
    done = subprocess.run(
        ["setpriv", "--no-new-privs", *command], capture_output=True, text=True, check=False
    )
    assert done.stdout == "alone\n", done.stderr


@pytest.mark.parametrize("filtered", ["xyz", "00" * 8])
def test_with_a_filter_that_is_none_the_command_is_not_run(filtered: str, egress: Egress) -> None:
    command = bridged(("echo", "ran"), egress.socket_path, filtered=filtered)
    done = subprocess.run(
        ["setpriv", "--no-new-privs", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("skillbelt: no way to the network: ")


def test_without_a_proxy_the_command_is_not_run(tmp_path: Path) -> None:
    """Attack 52: fail closed."""
    done = subprocess.run(
        bridged(("echo", "ran"), str(tmp_path / "none")),
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "skillbelt: no way to the network: No such file or directory\n"


def test_with_a_proxy_that_takes_no_port_the_command_is_not_run(tmp_path: Path) -> None:
    """Attack 52: fail closed."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        with subprocess.Popen(
            bridged(("echo", "ran"), str(tmp_path / "door")),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            door.accept()[0].close()
            output, said = process.communicate(timeout=500)
    assert (process.returncode, output) == (125, "")
    assert said.startswith("skillbelt: no way to the network: ")


# --- in a sandbox --------------------------------------------------------------------------------


def sandbox(egress: Egress, code: str, *, through: bool = True) -> list[str]:
    """A command that runs a program in a real sandbox without a network, by an ordinary user."""
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
    links = [
        option
        for name in ("bin", "lib", "lib64", "sbin")
        if os.path.islink(f"/{name}")
        for option in ("--symlink", f"usr/{name}", f"/{name}")
    ]
    argv = python(TRIES + code)
    return [
        *(drop if os.getuid() == 0 else []), "bwrap", "--unshare-all", "--unshare-user",
        "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv", "--setenv",
        "PATH", "/usr/bin:/bin", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev",
        "/dev", "--tmpfs", "/tmp", "--ro-bind", egress.folder, INSIDE, "--chdir", "/",
        *(bridged(argv, f"{INSIDE}/proxy.sock", PYTHON) if through else argv),
    ]  # fmt: skip


def sandboxed(egress: Egress, code: str, *, through: bool = True) -> list[str]:
    """The lines the program prints."""
    command = sandbox(egress, code, through=through)
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Talk:
    """A program in a sandbox that continues when the test says so."""

    def __init__(self, egress: Egress, code: str) -> None:
        self._process = subprocess.Popen(
            sandbox(egress, code), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().rstrip("\n")

    def go_on(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()


TRIES = """
import errno, socket
from urllib.error import HTTPError
from urllib.request import urlopen

def get(url):
    try:
        return urlopen(url, timeout=500).read().decode()
    except HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"

def direct(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, kind) as probe:
        probe.settimeout(10)
        try:
            probe.connect(address)
            probe.send(b"x")
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        return "connected"
"""


def test_a_sandbox_reaches_the_named_host_and_no_other(egress: Egress, server: Server) -> None:
    """Case 94. Attacks 44, 46 and 49."""
    port = port_of(server)
    code = f"""
print(get("http://example.com:{port}/"))
print(get("http://evil.net:{port}/"))
print(get("http://127.0.0.1:{port}/"))
print(get("http://169.254.169.254/latest"))
print(get("http://example.com:{port + 1}/"))
"""
    allowed, *refused = sandboxed(egress, code)
    assert allowed == "hello"
    assert [line.split(" is not among")[0] for line in refused] == [
        "403 skillbelt: evil.net",
        "403 skillbelt: 127.0.0.1",
        "403 skillbelt: 169.254.169.254",
        f"403 skillbelt: port {port + 1} of example.com",
    ]
    assert server.requests == ["/"]


@pytest.mark.parametrize("through", [True, False])
def test_a_sandbox_connects_nowhere_past_the_proxy(
    egress: Egress, server: Server, through: bool
) -> None:
    """Case 94. Attacks 44, 45 and 50: the namespace holds, not the variables."""
    code = f"""
print(direct(("127.0.0.1", {port_of(server)})))
print(direct(("192.0.2.1", 80)))
print(direct(("10.0.0.1", 80)))
print(direct(("169.254.169.254", 80)))
print(direct(("2001:db8::1", 80)))
print(direct(("192.0.2.1", 53), socket.SOCK_DGRAM))
try:
    print(socket.getaddrinfo("example.com", 80))
except OSError:
    print("no name")
"""
    tries = sandboxed(egress, code, through=through)
    unreachable = {"ENETUNREACH", "EADDRNOTAVAIL"}
    assert tries[0] == "ECONNREFUSED"
    assert set(tries[1:6]) <= unreachable
    assert tries[6] == "no name"
    assert server.requests == []


def test_what_listens_in_a_sandbox_is_not_reached_from_outside(egress: Egress) -> None:
    """Attack 51."""
    code = """
server = socket.create_server(("0.0.0.0", 0))
print(server.getsockname()[1], direct(server.getsockname()), flush=True)
input()
"""
    with Talk(egress, code) as talk:
        port, inside = talk.line().split()
        assert inside == "connected"
        assert not is_open(int(port))


def test_a_proxy_that_dies_leaves_a_sandbox_without_a_network(
    egress: Egress, server: Server
) -> None:
    """Attack 52."""
    code = f"""
def attempt():
    try:
        return get("http://example.com:{port_of(server)}/")
    except OSError:
        return "closed"

print(attempt(), flush=True)
input()
print(attempt(), flush=True)
"""
    with Talk(egress, code) as talk:
        assert talk.line() == "hello"
        egress.close()
        talk.go_on()
        assert talk.line() == "closed"


@pytest.mark.parametrize("processes", [True, False])
def test_our_own_sandbox_reaches_the_named_host_alone(
    server: Server, processes: bool, open_tree: Tree
) -> None:
    """Case 94. Without processes the command can start none, with a network or without."""
    port, identity = port_of(server), run_identity()
    code = f"""
print(get("http://example.com:{port}/"))
print(get("http://evil.net:{port}/")[:3], direct(("127.0.0.1", {port})))
try:
    os.waitpid(os.fork() or os._exit(0), 0)
    print("forked")
except PermissionError:
    print("alone")
"""
    with proxy_for(server, identity.uid if identity else None) as egress:
        job = Job(
            argv=python(f"import os{TRIES}{code}"),
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            mounts=(Mount(egress.folder, INSIDE),),
            workspace=str(open_tree.root),
            capabilities=Capabilities(hosts=("example.com",), processes=processes),
            bridge=bridge_to(f"{INSIDE}/proxy.sock"),
        )
        outcome = run(LinuxSandbox(), job)
    lines = outcome.stdout.data.decode().splitlines()
    assert lines[:2] == ["hello", "403 ECONNREFUSED"], outcome.stderr.data
    assert lines[2] == ("forked" if processes else "alone")
    assert outcome.exit_code == 0


def test_the_bridge_runs_under_the_python_of_the_system(egress: Egress) -> None:
    """It may be older than ours, and must start quickly."""
    command = bridged(("true",), egress.socket_path, PYTHON)
    ast.parse(command[4], feature_version=(3, 9))
    done = subprocess.run(
        [PYTHON, "-X", "importtime", *command[1:]],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "socket" in imported
    assert not imported & {"asyncio", "ctypes", "json", "subprocess", "threading", "skillbelt"}
