"""The engine is found, or what to do is said; and it is checked that it did what was asked."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container import engine as container_engine
from skillbelt.sandbox.container.engine import (
    LABEL,
    ContainerEngine,
    ContainerShape,
    check_socket,
    engine_url,
)
from skillbelt.sandbox.container.image import find_image
from skillbelt.sandbox.container.sandbox import ContainerSandbox, _faults
from skillbelt.sandbox.inside.container import NAMESPACES, about_me
from skillbelt.sandbox.protocol import run
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.engines import OTHER_RUNTIME, url_of
from tests.sandbox.engines import any_engine as any_engine
from tests.sandbox.engines import engine as engine
from tests.sandbox.engines import place as place
from tests.sandbox.engines import shared as shared
from tests.sandbox.ordinary import USER


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without an engine, and a folder for their sockets."""
    known = tuple(str(tmp_path / name) for name in ("docker.sock", "podman.sock"))
    monkeypatch.setattr(container_engine, "_SOCKETS", known)
    return tmp_path


def listening(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))
    return f"unix://{path}"


def test_the_setting_stands_before_all_else() -> None:
    environ = {"DOCKER_HOST": "unix:///b"}
    assert engine_url("unix:///a", environ) == "unix:///a"
    assert engine_url("/a", environ) == "unix:///a"
    assert engine_url("http+unix:///a", environ) == "unix:///a"
    assert engine_url("", environ) == "unix:///b"


def test_sockets_are_looked_for_in_their_order(sockets: Path) -> None:
    own = sockets / "run"
    (own / "podman").mkdir(parents=True)
    environ = {"XDG_RUNTIME_DIR": str(own)}
    last = listening(sockets / "podman.sock")
    assert engine_url("", environ) == last
    users = listening(own / "podman" / "podman.sock")
    assert engine_url("", environ) == users
    first = listening(sockets / "docker.sock")
    assert engine_url("", environ) == first


def test_without_an_engine_the_remedy_is_said(sockets: Path) -> None:
    (sockets / "docker.sock").write_text("no socket")
    with pytest.raises(SandboxUnavailable, match="no container engine was found: install and"):
        engine_url("", {})


@pytest.mark.parametrize("url", ["tcp://10.0.0.1:2375", "ssh://host", "https://host", "nonsense"])
def test_an_engine_elsewhere_is_refused(url: str) -> None:
    """It cannot show folders of this machine."""
    for given in (Settings(container_engine=url), Settings()):
        environ = {} if given.container_engine else {"DOCKER_HOST": url}
        with pytest.raises(SandboxUnavailable, match="is not a socket of this machine"):
            engine_url(given.container_engine, environ)
    assert "set container_engine to" in str(
        ContainerSandbox(Settings(container_engine=url)).unavailable()
    )


def test_nobody_at_the_socket_is_told(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    for _ in range(2):
        with pytest.raises(SandboxUnavailable, match=f"no answer at {path}"):
            check_socket(str(path))
        if not path.exists():
            listening(path)


def test_a_socket_of_others_is_told() -> None:
    """With what it means to be let in."""
    folder = Path(tempfile.mkdtemp(prefix="skillbelt-"))
    folder.chmod(0o755)
    code = f"""
import os
from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.engine import check_socket
if os.getuid() == 0:
    os.setuid({USER})
try:
    check_socket("{folder}/engine.sock")
except SandboxUnavailable as error:
    print(error)
"""
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(f"{folder}/engine.sock")
        (folder / "engine.sock").chmod(0)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    shutil.rmtree(folder)
    assert b"is closed to uid" in done.stdout
    assert b"gives you root on this machine" in done.stdout


class Liar:
    """A server at a socket that is not an engine."""

    def __init__(self, path: str, answer: bytes) -> None:
        self._socket, self._answer = socket.socket(socket.AF_UNIX), answer
        self._socket.bind(path)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self._socket.accept()
            except OSError:
                return
            with end:
                end.settimeout(1)
                try:
                    if end.recv(2**16):
                        end.sendall(self._answer)
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    length = str(len(body)).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s" % (
        status, length, body,
    )  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no HTTP at all\r\n\r\n",
        http(b""),
        http(b"[]"),
        http(b"{}"),
        http(b'{"ApiVersion": 1}'),
        http(b'{"ApiVersion": "1.41"}'),
        http(b'{"ApiVersion": "1.41", "Components": [1], "OSType": 3}'),
        http(b'{"message": "go away"}', b"500 No"),
    ],
)
def test_what_is_no_engine_is_told(tmp_path: Path, answer: bytes) -> None:
    """In one sentence, and nothing else is raised."""
    liar = Liar(str(tmp_path / "engine.sock"), answer)
    try:
        url = f"unix://{tmp_path}/engine.sock"
        assert ContainerSandbox(Settings(container_engine=url)).unavailable()
    finally:
        liar.close()


def test_without_the_library_the_extra_is_named(
    any_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    sandbox = ContainerSandbox(Settings(container_engine=any_engine, container_image="new"))
    assert "pip install 'skillbelt[container]'" in str(sandbox.unavailable())


def test_importing_the_sandbox_imports_no_library() -> None:
    """Listing skills does not pay for it."""
    code = (
        "import sys; from skillbelt.sandbox.container import sandbox as container\n"
        "print([name for name in ('docker', 'requests', 'urllib3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


# The runtime


def test_a_runtime_that_the_engine_does_not_have_is_told(engine: str) -> None:
    sandbox = ContainerSandbox(Settings(container_engine=engine, container_runtime="nonesuch"))
    reason = str(sandbox.unavailable())
    sandbox.close()
    assert "does not run containers with 'nonesuch' (container_runtime)" in reason


def test_a_runtime_that_is_named_is_used(
    tmp_path_factory: pytest.TempPathFactory, place: Place
) -> None:
    url = url_of("docker", tmp_path_factory)
    sandbox = ContainerSandbox(Settings(container_engine=url, container_runtime=OTHER_RUNTIME))
    running = sandbox.start(place.job("cat", stdin=None))
    maker = ContainerEngine(url, {})
    [found] = [
        one["Id"]
        for one in maker.client.containers(filters={"label": f"{LABEL}={os.getpid()}"})
        if maker.client.inspect_container(one["Id"])["HostConfig"]["Runtime"] == OTHER_RUNTIME
    ]
    assert found
    running.kill()
    running.wait()
    maker.close()
    sandbox.close()


# What is checked of every container


def test_whoever_is_not_held_back_is_seen() -> None:
    """This very process, for one: an engine that did nothing would be found out."""
    faults = set(_faults(about_me([]), ()))
    assert {"NoNewPrivs", "Seccomp"} <= faults
    assert {f"namespace {name}" for name in NAMESPACES} <= faults
    if os.getuid() == 0:
        assert {"Uid", "Gid", "CapEff"} <= faults


def test_a_container_that_is_killed_from_outside_is_an_outcome(engine: str, place: Place) -> None:
    """And the next run has another."""
    sandbox = ContainerSandbox(Settings(container_engine=engine))
    running = sandbox.start(place.shell("echo before; sleep 1000"), None)
    maker = ContainerEngine(engine, {})
    for one in maker.client.containers(filters={"label": f"{LABEL}={os.getpid()}"}):
        maker.kill(one["Id"])
    outcome = running.wait(150)
    assert outcome is not None
    assert (outcome.exit_code, outcome.timed_out, outcome.cancelled) == (137, False, False)
    assert run(sandbox, place.job("true")).exit_code == 0
    maker.close()
    sandbox.close()


def test_what_was_never_started_is_cleared_away(engine: str, place: Place) -> None:
    """A runtime can be killed between the two; what is younger may be just about to start."""
    maker = ContainerEngine(engine, {})
    image = find_image(maker, "", lambda text: None)
    shape = ContainerShape(
        mounts=(), network=False, memory_bytes=2**28, processes=16, temporary_bytes=2**20
    )
    with maker._seccomp(False) as filter_text:
        config = maker._config(image.id, shape, ["true"], [], filter_text)
        made = maker.client.create_container_from_config(config)["Id"]

    def there() -> bool:
        wanted = {"label": LABEL}
        return made in [one["Id"] for one in maker.client.containers(all=True, filters=wanted)]

    maker.sweep(time.time())
    assert there()
    maker.sweep(time.time() + 3600)
    assert not there()
    maker.close()
