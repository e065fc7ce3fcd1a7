"""Package indexes on this machine: wheels and tarballs made here, and the pages that list them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.discovery.sources.server import Server

GREETING = "module.exports = () => 'hello'"


def wheel_bytes(
    name: str, files: Mapping[str, str], needs: Iterable[str] = (), version: str = "1.0"
) -> bytes:
    """A wheel with the files."""
    folder = name.replace("-", "_")
    info = f"{folder}-{version}.dist-info"
    wanted = "".join(f"Requires-Dist: {one}\n" for one in needs)
    inside = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*inside, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in {**inside, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # the same bytes at any time
    return packed.getvalue()


def wheel(folder: Path, name: str, files: Mapping[str, str], needs: Iterable[str] = ()) -> None:
    """A wheel in a folder."""
    file = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    (folder / file).write_bytes(wheel_bytes(name, files, needs))


def list_wheel(
    server: Server, name: str, files: Mapping[str, str], needs: Iterable[str] = ()
) -> str:
    """A wheel in an index of our own, below `/simple`; its hash."""
    return list_wheels(server, name, {"1.0": wheel_bytes(name, files, needs)})["1.0"]


def list_wheels(server: Server, name: str, versions: Mapping[str, bytes]) -> dict[str, str]:
    """Wheels of several versions in an index of our own; their hashes by version."""
    hashes, links = {}, []
    for version, data in versions.items():
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        hashes[version] = hashlib.sha256(data).hexdigest()
        server.pages[f"/files/{file}"] = data
        links.append(f'<a href="/files/{file}#sha256={hashes[version]}">{file}</a>')
    page = f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>"
    server.pages[f"/simple/{name}/"] = page.encode()
    return hashes


def source(folder: Path, name: str, setup: str = "", needs: Iterable[str] = ()) -> None:
    """A source distribution with its own build tool, which runs the code before anything else."""
    module = name.replace("-", "_")
    made = f"{module}-1.0-py3-none-any.whl"
    packed = wheel_bytes(name, {f"{module}.py": f"word = 'built {name}'\n"}, needs)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    tool = f"""{setup}
import pathlib
def build_wheel(folder, config_settings=None, metadata_directory=None):
    pathlib.Path(folder, {made!r}).write_bytes({packed!r})
    return {made!r}
"""
    project = "[build-system]\nrequires = []\nbuild-backend = 'tool'\nbackend-path = ['.']\n"
    files = {"pyproject.toml": project, "PKG-INFO": about, "tool.py": tool}
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def tarball(files: Mapping[str, str]) -> bytes:
    """A package for Node.js."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def integrity(data: bytes) -> str:
    """The hash of a tarball, as registries write it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"


def publish(
    server: Server,
    name: str,
    script: str = "exit 1",
    *,
    about: Mapping[str, object] | None = None,
    files: Mapping[str, str] | None = None,
    dist: Mapping[str, str | None] | None = None,
) -> str:
    """A package in a registry of our own, with a script that asks to be run; its hash."""
    told = {
        "name": name,
        "version": "1.3.0",
        "scripts": {"postinstall": script, "install": script, "prepare": script},
        **(about or {}),
    }
    data = tarball({"package.json": json.dumps(told), "index.js": GREETING, **(files or {})})
    place = {"tarball": f"{server.url}/{name}.tgz", "integrity": integrity(data),
             "shasum": hashlib.sha1(data).hexdigest(), **(dist or {})}  # fmt: skip
    kept = {key: value for key, value in place.items() if value is not None}
    listed = {"1.3.0": {**told, "hasInstallScript": True, "dist": kept}}
    server.pages[f"/{name}.tgz"] = data
    server.pages[f"/{name}"] = json.dumps(
        {"name": name, "dist-tags": {"latest": "1.3.0"}, "versions": listed}
    ).encode()
    return integrity(data)
