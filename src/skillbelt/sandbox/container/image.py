"""What containers are made of: an image that was named, or this very system seen from inside.

The image for this system is almost empty: links, a few small files and places to mount on. The
programs come from the system's own folders, mounted read-only, so that they are the ones that the
native sandbox shows, down to the byte, and there is nothing to copy and nothing to keep up to date.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.engine import Engine, told
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.identity import current_identity, interpreter
from skillbelt.sandbox.protocol import Mount
from skillbelt.untrusted_json import read_json

REPOSITORY = "localhost/skillbelt-system"
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var", "var/tmp")
_SHOWN = 200


class Image(NamedTuple):
    """An image that is there, how Python is called in it, and what it would have written to."""

    id: str
    python: str
    volumes: tuple[str, ...] = ()
    system: bool = False


def find_image(engine: Engine, name: str, progress: Callable[[str], None]) -> Image:
    """The image of that name, or the one for this system; nothing is ever fetched."""
    return _given(engine, name) if name else _own(engine, progress)


def _given(engine: Engine, name: str) -> Image:
    from docker.errors import ImageNotFound

    with told(f"the image {name[:_SHOWN]!r} can not be looked at"):
        try:
            found = engine.client.inspect_image(name)
        except ImageNotFound as error:
            raise SandboxUnavailable(
                f"the engine has no image {name[:_SHOWN]!r} (container_image); nothing is fetched "
                "by itself: pull or build it, or leave container_image empty to use this system"
            ) from error
    volumes = (found.get("Config") or {}).get("Volumes") or {}
    return Image(str(found["Id"]), "python3", tuple(volumes))


def _own(engine: Engine, progress: Callable[[str], None]) -> Image:
    python = interpreter()
    if python is None:
        raise SandboxUnavailable("there is no Python here that can be run in a container")
    data = system_archive()
    tag = hashlib.sha256(data).hexdigest()[:16]
    with told("the image for this system can not be made"):
        found = _tagged(engine, tag)
        if found is None:
            progress("making an image for containers from this system")
            said = engine.client.import_image_from_data(data, repository=REPOSITORY, tag=tag)
            found = str(read_json(said.strip().splitlines()[-1])["status"])
            engine.client.tag(found, REPOSITORY, tag, force=True)
    return Image(found, python.path, system=True)


def _tagged(engine: Engine, tag: str) -> str | None:
    from docker.errors import ImageNotFound

    try:
        return str(engine.client.inspect_image(f"{REPOSITORY}:{tag}")["Id"])
    except ImageNotFound:
        return None


def system_mounts(network: bool) -> tuple[Mount, ...]:
    """The folders of this system that are there inside, and what the Python of commands needs."""
    python = interpreter()
    shown = [Mount(source, target) for kind, source, target in _shown(network) if "bind" in kind]
    return (*shown, *(Mount(folder, folder) for folder in (python.folders if python else ())))


def _shown(network: bool) -> Iterator[tuple[str, str, str]]:
    """What bubblewrap is told to show of the system: how, from where, at which place."""
    words = bubblewrap.system_arguments(network)
    return zip(words[::3], words[1::3], words[2::3], strict=True)


def system_archive() -> bytes:
    """The image for this system as a tar archive, the same whenever the system is."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in _FOLDERS:
            # Some runtimes give a mount the mode of the folder that it covers.
            mode = 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(_entry(folder, tarfile.DIRTYPE, mode))
        for kind, source, target in _shown(network=False):
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
    for path in bubblewrap.copied_files():
        with open(path, "rb") as file:
            yield path, file.read()


def _entry(path: str, kind: bytes, mode: int, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode, entry.linkname = kind, mode, link
    return entry
