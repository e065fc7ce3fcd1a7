"""Pack skills: the same files give the same bytes, on every machine and at any time.

Names are sorted by bytes, times are fixed, and nothing is compressed: another version of zlib would
write other bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from skillbelt.check.check import check_file
from skillbelt.discovery.sources.bounds import Refusal
from skillbelt.discovery.sources.skill_index import SCHEMA
from skillbelt.errors import ConfigError, PathEscape, SourceError
from skillbelt.files.contain import READ_FILE, open_beneath, open_folder
from skillbelt.format.skill import Skill
from skillbelt.install.hashes import FolderHashes, hash_folder
from skillbelt.install.source_tree import PortableNames
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE

PackFormat = Literal["skill", "plugin", "well-known", "oci-layout"]
FORMATS: tuple[PackFormat, ...] = get_args(PackFormat)
PLUGIN_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
ARTIFACT_TYPE = "application/vnd.agent.skill.v1+json"
LAYER_TYPE = "application/vnd.agent.skill.content.v1.tar+gzip"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_WELL_KNOWN = ".well-known/agent-skills"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_STORED_BLOCK = 65_535


class SkillToPack(NamedTuple):
    """A skill that can be packed: its descriptor, its files and their bytes."""

    skill: Skill
    hashes: FolderHashes
    files: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.skill.name

    @property
    def executable(self) -> frozenset[str]:
        """The paths of files with the executable bit."""
        every = (file.path for file in self.hashes.files if file.executable)
        return frozenset(os.fsencode(path).decode() for path in every)


def read_skill_to_pack(folder: str) -> SkillToPack:
    """Read a skill with all its files; ConfigError for one that others could not install."""
    path = os.path.join(folder, SKILL_FILE)
    errors = [one for one in check_file(path).diagnostics if one.severity == "error"]
    if errors:
        raise ConfigError(f"{path}: {errors[0].message}; `skillbelt check {folder}` shows all")
    try:
        hashes = hash_folder(folder)
    except SourceError as error:
        raise ConfigError(f"{folder} cannot be packed: {error}") from error
    links = [file.path for file in hashes.files if file.kind == "link"]
    if links:
        raise ConfigError(
            f"{folder}: {links[0]!r} is a link, which no package holds; copy the file"
        )
    names = PortableNames()
    try:
        for file in hashes.files:
            names.add(file.path)
    except (PathEscape, Refusal) as error:
        raise ConfigError(f"{folder}: {error}; rename it") from error
    handle = open_folder(folder)
    try:
        files = {
            _check_portable(file.path, folder): _read(handle, file.path) for file in hashes.files
        }
    finally:
        os.close(handle)
    if hash_folder(folder).content_digest != hashes.content_digest:
        raise ConfigError(f"{folder} changed while it was read; run the command again")
    return SkillToPack(Skill.from_folder(folder), hashes, dict(_sort_by_bytes(files)))


def _check_portable(path: str, folder: str) -> str:
    """Return the name as it is on every machine; ConfigError for one that is not UTF-8."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{folder}: {path!r} is not UTF-8; rename the file") from error


def _read(handle: int, path: str) -> bytes:
    with os.fdopen(open_beneath(handle, path, READ_FILE), "rb") as file:
        return file.read()


def _sort_by_bytes(files: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    return sorted(files.items(), key=lambda item: item[0].encode())


def pack_skills(skills: Sequence[SkillToPack], form: PackFormat) -> dict[str, bytes]:
    """Return the files of the package, by their paths below the output folder."""
    names = [one.name for one in skills]
    if len(set(names)) != len(names):
        raise ConfigError("two of the skills have the same name")
    if form == "skill":
        return {f"{one.name}.skill": _zip_in_folder(one) for one in skills}
    if form == "plugin":
        return _make_plugin(skills)
    if form == "well-known":
        return _make_site(skills)
    return _make_oci_layout(skills)


def _zip_in_folder(one: SkillToPack) -> bytes:
    files = {f"{one.name}/{path}": data for path, data in one.files.items()}
    return zip_files(files, executable={f"{one.name}/{path}" for path in one.executable})


def zip_files(files: Mapping[str, bytes], *, executable: Iterable[str] = ()) -> bytes:
    """Return a zip archive whose bytes depend on names, contents and executable bits alone."""
    runnable = set(executable)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, data in _sort_by_bytes(files):
            info = zipfile.ZipInfo(path, _ZIP_TIME)
            info.create_system = 3
            mode = 0o100755 if path in runnable else 0o100644
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def tar_files(files: Mapping[str, bytes], *, executable: Iterable[str] = ()) -> bytes:
    """Return a tar archive whose bytes depend on names, contents and executable bits alone."""
    runnable = set(executable)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in _sort_by_bytes(files):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o755 if path in runnable else 0o644
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def gzip_stored(data: bytes) -> bytes:
    """Return a gzip stream of stored blocks, which is the same with every zlib."""
    blocks = [data[at : at + _STORED_BLOCK] for at in range(0, len(data), _STORED_BLOCK)] or [b""]
    body = b"".join(
        struct.pack("<BHH", number == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )
    tail = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + tail


def _encode_json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _hash_bytes(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _make_plugin(skills: Sequence[SkillToPack]) -> dict[str, bytes]:
    """Return an Agent Plugin of the skills, which Claude Code reads too."""
    first = skills[0]
    front = first.skill.frontmatter
    about = {
        "name": first.name,
        **({"version": version} if (version := _read_version(first.skill)) else {}),
        "description": first.skill.description,
        **({"license": front.license} if front.license and len(front.license) <= 64 else {}),
    }
    files = {
        "plugin.json": _encode_json({"$schema": PLUGIN_SCHEMA, **about}),
        ".claude-plugin/plugin.json": _encode_json(about),
    }
    runnable = set()
    for one in skills:
        files |= {f"skills/{one.name}/{path}": data for path, data in one.files.items()}
        runnable |= {f"skills/{one.name}/{path}" for path in one.executable}
    return {f"{first.name}.plugin.zip": zip_files(files, executable=runnable)}


def _read_version(skill: Skill) -> str:
    front = skill.frontmatter
    found = front.version or front.metadata.get("version")
    return str(found) if isinstance(found, str | int | float) else ""


def _make_site(skills: Sequence[SkillToPack]) -> dict[str, bytes]:
    """Return the folder that a site serves: a list, and one file for each skill."""
    files: dict[str, bytes] = {}
    listed = []
    for one in sorted(skills, key=lambda one: one.name):
        alone = list(one.files) == [SKILL_FILE]
        kind, path = (
            ("skill-md", f"{one.name}/{SKILL_FILE}") if alone else ("archive", f"{one.name}.zip")
        )
        data = one.files[SKILL_FILE] if alone else zip_files(one.files, executable=one.executable)
        files[f"{_WELL_KNOWN}/{path}"] = data
        listed.append(
            {
                "name": one.name,
                "type": kind,
                "description": one.skill.description,
                "url": path,
                "digest": _hash_bytes(data),
            }
        )
    index = _encode_json({"$schema": SCHEMA, "skills": listed})
    return {f"{_WELL_KNOWN}/index.json": index, **files}


def _make_oci_layout(skills: Sequence[SkillToPack]) -> dict[str, bytes]:
    """Return an OCI layout with one manifest for each skill, named by the skill."""
    blobs: dict[str, bytes] = {}

    def put(data: bytes, kind: str) -> dict[str, Any]:
        blobs[f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"] = data
        return {"mediaType": kind, "digest": _hash_bytes(data), "size": len(data)}

    manifests = []
    for one in sorted(skills, key=lambda one: one.name):
        version = _read_version(one.skill)
        notes = {
            "org.agent.skill.name": one.name,
            "org.agent.skill.description": one.skill.description,
            **({"org.agent.skill.version": version} if version else {}),
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": put(b"{}", _EMPTY_TYPE),
            "layers": [
                put(gzip_stored(tar_files(one.files, executable=one.executable)), LAYER_TYPE)
            ],
            "annotations": notes,
        }
        named = {
            "org.opencontainers.image.ref.name": version or one.name
            if len(skills) == 1
            else one.name
        }
        manifests.append({**put(_encode_json(manifest), _MANIFEST_TYPE), "annotations": named})
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": manifests}
    return {
        "oci-layout": _encode_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _encode_json(index),
        **dict(sorted(blobs.items())),
    }
