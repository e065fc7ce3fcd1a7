"""The container engine: find it, check its features, and create hardened containers."""

from __future__ import annotations

import os
import resource
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

from skillbelt.errors import MissingExtra, SandboxUnavailable
from skillbelt.late import made_once
from skillbelt.sandbox.container.seccomp import profile
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Mount
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

LABEL = "skillbelt"
TEMPORARY_FOLDERS = ("/tmp", "/dev/shm")  # unless the job mounts something there
_SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock")
_SCHEMES = ("unix://", "http+unix://")
_TIMEOUT_SECONDS = 60
_MIN_MEMORY_BYTES = 6 * 2**20  # the minimum that engines accept
_MAX_OPEN_FILES = 2**16
_MAX_USER_PROCESSES = 2**15  # some engines may not set more
_ANSWER_BYTES = 2**16
# Covered by an empty read-only tmpfs: engines mount something there that is writable or reveals
# facts about the host.
_COVERED = ("/run", "/var/tmp", "/sys", "/sys/fs/cgroup")
_ABANDONED_SECONDS = 600
_SHOWN = 400
# Raised by parsing a response that is not an engine's.
_MALFORMED = (OSError, ValueError, KeyError, TypeError, AttributeError)


class ContainerShape(NamedTuple):
    """The properties of a container; runs with the same shape can reuse one."""

    mounts: tuple[Mount, ...]
    network: bool
    memory_bytes: int
    processes: int
    temporary_bytes: int


class StartedContainer(NamedTuple):
    """A started container, and the socket to its first process."""

    id: str
    pid: int
    end: socket.socket


class ContainerEngine:
    """One engine, used through its socket. Every failure is SandboxUnavailable."""

    def __init__(self, setting: str, environ: Mapping[str, str], runtime: str = "") -> None:
        self.url, self.runtime = engine_url(setting, environ), runtime
        self._path = self.url.partition("://")[2]

    @made_once
    def client(self) -> Any:  # its stubs are mostly untyped
        """Return the client, after the engine responded once."""
        try:
            docker = _docker()
        except ImportError as error:
            raise SandboxUnavailable(
                str(MissingExtra("container", "the container sandbox"))
            ) from error
        check_socket(self._path)
        with engine_errors(f"the container engine at {self.url} does not answer"):
            return docker.APIClient(base_url=self.url, version="auto", timeout=_TIMEOUT_SECONDS)

    @cached_property
    def podman(self) -> bool:
        """Whether it is Podman behind the same interface."""
        with engine_errors("cannot read the engine's version"):
            parts = self.client.version().get("Components") or []
        return any("podman" in str(part.get("Name")).lower() for part in parts)

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Return the engine's information about itself."""
        with engine_errors("cannot read the engine's information"):
            return dict(self.client.info())

    @property
    def rootless(self) -> bool:
        """Whether it runs without root, in a user namespace."""
        options = self.info.get("SecurityOptions") or ()
        return bool(self.info.get("Rootless")) or any("rootless" in str(one) for one in options)

    def check(self) -> None:
        """Raise SandboxUnavailable when commands cannot be run with this engine."""
        if str(self.info.get("OSType", "linux")).lower() != "linux":
            raise SandboxUnavailable(f"the engine at {self.url} does not run Linux containers")
        if self.rootless and not self.podman:
            raise SandboxUnavailable(
                "rootless Docker runs commands as another user, who cannot write to workspaces; "
                "use Podman, or Docker's system service"
            )
        if self.runtime:
            self._check_runtime()

    def _check_runtime(self) -> None:
        known = sorted(self.info.get("Runtimes") or {})
        if self.podman:
            # Podman does not let a container choose.
            known = [str(self.info.get("DefaultRuntime"))]
        if self.runtime not in known:
            how = "set it in containers.conf of its service" if self.podman else "add it there"
            raise SandboxUnavailable(
                f"the engine does not run containers with {self.runtime!r} (container_runtime), "
                f"but with: {', '.join(known) or 'nothing'}; {how}"
            )

    def make(
        self, image: str, shape: ContainerShape, command: list[str], hidden: list[str]
    ) -> StartedContainer:
        """Create and start a container; on failure it is removed."""
        with (
            engine_errors("cannot create a container"),
            self._seccomp(shape.network) as filter_text,
        ):
            config = self._config(image, shape, command, hidden, filter_text)
            made = self.client.create_container_from_config(config)["Id"]
        end = None
        try:
            with engine_errors("cannot start a container"):
                end = self._attach(made)
                self.client.start(made)
                return StartedContainer(made, self._check_made(made), end)
        except BaseException:
            if end is not None:
                end.close()
            self.remove(made)
            raise

    def _config(
        self,
        image: str,
        shape: ContainerShape,
        command: list[str],
        hidden: list[str],
        filter_text: str,
    ) -> dict[str, Any]:
        user = current_identity()
        return {
            "Image": image,
            "Entrypoint": command[:1],
            "Cmd": command[1:],
            "User": f"{user.uid}:{user.gid}",
            "Hostname": "sandbox",
            "WorkingDir": "/",
            "Env": [],
            "Labels": {LABEL: str(os.getpid())},
            "NetworkDisabled": True,  # keeps the host's resolv.conf out
            "Healthcheck": {"Test": ["NONE"]},
            **dict.fromkeys(("OpenStdin", "StdinOnce", "AttachStdin"), True),
            **dict.fromkeys(("AttachStdout", "AttachStderr"), True),
            "HostConfig": self._host_config(shape, hidden, filter_text),
        }

    def _host_config(
        self, shape: ContainerShape, hidden: list[str], filter_text: str
    ) -> dict[str, Any]:
        memory = max(shape.memory_bytes, _MIN_MEMORY_BYTES)
        room = f"rw,nosuid,nodev,exec,mode=1777,size={shape.temporary_bytes}"
        covered = "ro,nosuid,nodev,noexec,mode=555,size=4k"
        places = {
            **dict.fromkeys((*hidden, *_COVERED), covered),
            **dict.fromkeys(TEMPORARY_FOLDERS, room),
        }
        taken = {os.path.normpath(mount.target) for mount in shape.mounts}
        config = {
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={filter_text}"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "IpcMode": "private",
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": shape.processes + 1,  # the first process is one of them
            "Ulimits": list(_ulimits()),
            "LogConfig": {"Type": "none", "Config": {}},
            "Tmpfs": {path: options for path, options in places.items() if path not in taken},
            "Mounts": [_bind(mount) for mount in shape.mounts],
        }
        if self.runtime and not self.podman:
            config["Runtime"] = self.runtime
        if self.rootless:
            config["UsernsMode"] = "keep-id"
        return config

    @contextmanager
    def _seccomp(self, network: bool) -> Iterator[str]:
        """Yield the seccomp profile as the engine expects it: as text, or for Podman as a file."""
        text = profile(network)
        if not self.podman:
            yield text
            return
        with tempfile.NamedTemporaryFile("w", prefix="skillbelt-", suffix=".json") as file:
            file.write(text)
            file.flush()
            yield file.name

    def _attach(self, made: str) -> socket.socket:
        """Attach to the streams before the container starts, so that no output is missed."""
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(_TIMEOUT_SECONDS)
            end.connect(self._path)
            version = self.client.api_version
            end.sendall(
                f"POST /v{version}/containers/{made}/attach?stream=1&stdin=1&stdout=1&stderr=1 "
                "HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            _check_answer(end, _read_head(end))
        except BaseException:
            end.close()
            raise
        return end

    def _check_made(self, made: str) -> int:
        """Return the pid of its first process; refuse an engine that ignored our settings."""
        found = self.client.inspect_container(made)
        runtime = found["HostConfig"].get("Runtime")
        if self.runtime and not self.podman and runtime != self.runtime:
            raise SandboxUnavailable(f"the engine ignores container_runtime and uses {runtime!r}")
        if found["HostConfig"].get("NetworkMode") != "none":
            raise SandboxUnavailable("the engine gave the container a network")
        return int(found["State"]["Pid"])

    def inspect_image(self, name: str) -> dict[str, Any] | None:
        """Return the engine's description of an image; None when it has none of that name."""
        try:
            return dict(self.client.inspect_image(name))
        except _docker().errors.ImageNotFound:
            return None

    def kill(self, made: str) -> None:
        """Kill everything in the container."""
        with suppress(Exception):  # it may be gone already
            self.client.kill(made)

    def remove(self, made: str) -> None:
        """Remove the container."""
        with suppress(Exception):  # it may be gone or being removed already
            self.client.remove_container(made, force=True, v=True)

    def sweep(self, now: float) -> None:
        """Remove containers that a killed runtime created and never started."""
        with engine_errors("cannot list containers"):
            found = self.client.containers(
                all=True, filters={"label": LABEL, "status": ["created", "exited"]}
            )
            old = [one["Id"] for one in found if now - float(one["Created"]) > _ABANDONED_SECONDS]
        for each in old:
            self.remove(each)

    def close(self) -> None:
        """Close the connections to the engine."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]


def engine_url(setting: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the engine's socket: the setting, DOCKER_HOST, or the first found."""
    given = setting or environ.get("DOCKER_HOST", "")
    if given.startswith("/"):
        return f"unix://{given}"
    if given:
        if not given.startswith(_SCHEMES):
            raise SandboxUnavailable(
                f"{shorten(one_line(given), 100)} is not a socket of this machine, and a remote "
                "engine cannot mount its folders; set container_engine to unix:///PATH"
            )
        return "unix://" + given.partition("://")[2]
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    own = (f"{runtime}/podman/podman.sock",) if runtime else ()
    for path in (_SOCKETS[0], *own, *_SOCKETS[1:]):
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                return f"unix://{path}"
    raise SandboxUnavailable(
        "no container engine was found: install and start Docker, or Podman with `systemctl start "
        "podman.socket`, or set container_engine to unix:///PATH of its socket"
    )


def check_socket(path: str) -> None:
    """Raise SandboxUnavailable, with the remedy, when the socket does not respond."""
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
    except PermissionError as error:
        raise SandboxUnavailable(
            f"{path} is closed to uid {os.getuid()}: join the group that may use it (which "
            "gives you root on this machine), or use your own Podman with `systemctl --user start "
            "podman.socket`"
        ) from error
    except OSError as error:
        raise SandboxUnavailable(
            f"no answer at {path}: {error.strerror or error}; start the container engine, or "
            "set container_engine to unix:///PATH of its socket"
        ) from error


def _docker() -> Any:
    import docker.errors  # extra: container

    return docker


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn any failure of the engine or its connection into SandboxUnavailable."""
    errors = _docker().errors
    try:
        yield
    except (errors.DockerException, errors.requests.RequestException, *_MALFORMED) as error:
        text = shorten(one_line(str(getattr(error, "explanation", None) or error)), _SHOWN)
        raise SandboxUnavailable(f"{what}: {text}") from error


def _ulimits() -> Iterator[dict[str, Any]]:
    """Yield the rlimits of the container; each command gets lower ones."""
    yield {"Name": "core", "Soft": 0, "Hard": 0}
    for name, kind, most in (
        ("nofile", resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        ("nproc", resource.RLIMIT_NPROC, _MAX_USER_PROCESSES),
    ):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        yield {"Name": name, "Soft": value, "Hard": value}


def _bind(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": not mount.writable,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _read_head(end: socket.socket) -> bytes:
    """Read the response head; after it the connection is a plain stream."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _ANSWER_BYTES:
        data = end.recv(1)  # do not read beyond the head
        if not data:
            break
        head += data
    return head


def _check_answer(end: socket.socket, head: bytes) -> None:
    words = head.split(None, 2)
    if len(words) < 2 or words[1] not in (b"101", b"200"):
        body = end.recv(_ANSWER_BYTES).decode("utf-8", "replace")
        with suppress(ValueError, KeyError, TypeError):
            body = read_json(body)["message"]
        raise OSError(body or head.decode("utf-8", "replace").partition("\r\n")[0])
