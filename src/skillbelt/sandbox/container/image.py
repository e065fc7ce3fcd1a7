"""The image of containers: one named by the user, or this system itself.

The image for this system is almost empty: links, a few small files and mount points. The programs
come from the system's own folders, mounted read-only, so that they are the same as in the native
sandbox, and nothing has to be copied or updated.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.engine import ContainerEngine, engine_errors
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.configuration import shown_files
from skillbelt.sandbox.linux.identity import current_identity, interpreter
from skillbelt.sandbox.protocol import Mount
from skillbelt.untrusted_json import read_json

REPOSITORY = "localhost/skillbelt-system"
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var", "var/tmp")
_SHOWN = 200


class ContainerImage(NamedTuple):
    """An existing image, its Python interpreter, and its declared volumes."""

    id: str
    python: str
    volumes: tuple[str, ...] = ()
    system: bool = False


def find_image(
    engine: ContainerEngine, name: str, progress: Callable[[str], None]
) -> ContainerImage:
    """Return the image of that name, or the one for this system; nothing is ever pulled."""
    return _named_image(engine, name) if name else _system_image(engine, progress)


def _named_image(engine: ContainerEngine, name: str) -> ContainerImage:
    with engine_errors(f"cannot inspect the image {name[:_SHOWN]!r}"):
        found = engine.inspect_image(name)
    if found is None:
        raise SandboxUnavailable(
            f"the engine has no image {name[:_SHOWN]!r} (container_image), and images are not "
            "pulled automatically: pull or build it, or leave container_image empty to use this "
            "system"
        )
    volumes = (found.get("Config") or {}).get("Volumes") or {}
    return ContainerImage(str(found["Id"]), "python3", tuple(volumes))


def _system_image(engine: ContainerEngine, progress: Callable[[str], None]) -> ContainerImage:
    python = interpreter()
    if python is None:
        raise SandboxUnavailable("there is no Python here that can be run in a container")
    data = system_archive()
    tag = hashlib.sha256(data).hexdigest()[:16]
    with engine_errors("cannot create the image for this system"):
        known = engine.inspect_image(f"{REPOSITORY}:{tag}")
        if known is not None:
            found = str(known["Id"])
        else:
            progress("creating a container image from this system")
            said = engine.client.import_image_from_data(data, repository=REPOSITORY, tag=tag)
            found = str(read_json(said.strip().splitlines()[-1])["status"])
            engine.client.tag(found, REPOSITORY, tag, force=True)
    return ContainerImage(found, python.path, system=True)


def system_mounts(network: bool) -> tuple[Mount, ...]:
    """Return the folders of this system to mount, with those of the Python interpreter."""
    python = interpreter()
    shown = [
        Mount(source, target) for kind, source, target in _system_entries(network) if "bind" in kind
    ]
    return (*shown, *(Mount(folder, folder) for folder in (python.folders if python else ())))


def _system_entries(network: bool) -> Iterator[tuple[str, str, str]]:
    """Yield bubblewrap's options for the system: option, source, target."""
    words = bubblewrap.system_arguments(network)
    return zip(words[::3], words[1::3], words[2::3], strict=True)


def system_archive() -> bytes:
    """Return the image for this system as a tar archive, reproducibly."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in _FOLDERS:
            # Some runtimes give a mount the mode of the folder it covers.
            mode = 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(_entry(folder, tarfile.DIRTYPE, mode))
        for kind, source, target in _system_entries(network=False):
            if kind == "--symlink":
                archive.addfile(_entry(target, tarfile.SYMTYPE, 0o777, source))
        for path, content in _files():
            entry = _entry(path, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    identity = current_identity()
    yield "/etc/passwd", bubblewrap.passwd(identity)
    yield "/etc/group", bubblewrap.group(identity)
    for path in shown_files():
        with open(path, "rb") as file:
            yield path, file.read()


def _entry(path: str, kind: bytes, mode: int, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode, entry.linkname = kind, mode, link
    return entry
