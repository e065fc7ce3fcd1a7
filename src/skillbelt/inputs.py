"""Files that a run is given: artifacts, files of the host, of the workspace, of a skill.

Both ends are opened below a handle: what a source names can not be swapped after it was allowed,
and a destination passes through no link that an earlier run may have left.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import BinaryIO, Literal, NamedTuple, Protocol, get_args

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.paths import check_relative, open_beneath, open_folder
from skillbelt.staging import TreeCopy, handles, swap
from skillbelt.trees import open_anyhow, remove_tree
from skillbelt.values import Limits
from skillbelt.workspace import (
    INPUTS,
    LINKS,
    PRIVATE,
    SKILLS,
    VENV,
    WRITABLE,
    Pin,
    Workspace,
    checked_name,
    expanded,
    placed,
    plain,
)

Mode = Literal["copy", "link"]
_SCHEMES = ("artifact", "host", "workspace", "skill")
_LIMITS = Limits()
_SKILL = "skill://"
_CHUNK = 2**20
_MOST_DIGITS = 18
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Artifacts(Protocol):
    """What inputs need of a store of artifacts. Both raise ArtifactError when it has none such."""

    def resolve(self, name: str, version: int | None) -> int:
        """The version that is meant; the latest one for None."""

    def open(self, name: str, version: int) -> BinaryIO:
        """The bytes of that version."""


class StagedInput(NamedTuple):
    """An input as it was put into the workspace; `mode` is what was done, not what was asked."""

    source: str
    to: str
    mode: Mode
    size_bytes: int = 0
    version: int | None = None
    warning: str = ""


class _Wanted(NamedTuple):
    """One input, checked as text."""

    source: str
    scheme: str
    rest: str
    to: str
    mode: Mode
    pin: bool


def stage_inputs(
    workspace: Workspace,
    inputs: Sequence[Mapping[str, object]],
    *,
    artifacts: Artifacts | None = None,
    host_roots: Sequence[str] = (),
    permit_host: Callable[[str], None] | None = None,
    stage_skill: Callable[[str], str] | None = None,
    run: str = "",
    remaps: bool = True,
    limits: Limits = _LIMITS,
) -> list[StagedInput]:
    """Put each input where it is wanted; RunRefused, before anything is done, for what is unclear.

    `permit_host` is called with the real path of what is not below `host_roots`, and raises to
    refuse it. `stage_skill` is called with the name of a skill whose files are wanted, and says
    where in the workspace its copy is. The run sees that in `skills/` if the sandbox `remaps`.
    """
    wanted = [_read(item, run) for item in inputs]
    job = _Inputs(workspace, artifacts, tuple(host_roots), permit_host, stage_skill, remaps, limits)
    return [job.stage(each) for each in wanted]


# Arguments


def skills_named(inputs: object) -> list[str]:
    """The skills whose files the inputs want, by name."""
    listed = inputs if isinstance(inputs, list | tuple) else ()
    sources = [str(one.get("from")) for one in listed if isinstance(one, Mapping)]
    wanted = [source.removeprefix(_SKILL) for source in sources if source.startswith(_SKILL)]
    return [source.partition("/")[0] for source in wanted]


def _read(item: object, run: str) -> _Wanted:
    if not isinstance(item, Mapping):
        raise RunRefused(f"an input is an object with `from`, not {str(item)[:200]!r}")
    source, to, mode, pin = (item.get(key) for key in ("from", "to", "mode", "pin"))
    if not isinstance(source, str) or not source:
        raise RunRefused("an input needs `from`: artifact://, host://, workspace:// or skill://")
    scheme, mark, rest = source.partition("://")
    if not mark or scheme not in _SCHEMES:
        raise RunRefused(f"unsupported input: {source[:200]}")
    if mode not in (None, "", *get_args(Mode)):
        raise RunRefused(f"input {source[:200]!r}: `mode` is copy or link, not {str(mode)[:80]!r}")
    if not isinstance(pin, bool | None):
        raise RunRefused(f"input {source[:200]!r}: `pin` is true or false, not {str(pin)[:80]!r}")
    if not isinstance(to, str | None):
        raise RunRefused(f"input {source[:200]!r}: `to` is a path, not {str(to)[:80]!r}")
    target = destination(to or "", _basename(scheme, rest), run)
    return _Wanted(source, scheme, rest, target, "link" if mode == "link" else "copy", bool(pin))


def _basename(scheme: str, rest: str) -> str:
    if scheme == "artifact":
        rest = artifact_reference(rest)[0].rpartition(":")[2]
    return posixpath.basename(rest.rstrip("/"))


def artifact_reference(text: str) -> tuple[str, int | None]:
    """`name@3` as its name and version; what is no number belongs to the name."""
    name, mark, version = text.rpartition("@")
    if not mark or not (version.isascii() and version.isdigit()) or len(version) > _MOST_DIGITS:
        name, version = text, ""
    if not name:
        raise RunRefused(f"input {f'artifact://{text}'[:200]!r} names no artifact")
    return name, int(version) if version else None


def destination(to: str, basename: str, run: str = "") -> str:
    """Where an input goes, relative to the workspace; RunRefused when runs may not write there.

    `inputs/` is `work/inputs/`, and what ends in `/` is a folder to put it in.
    """
    path = expanded(to, run).lstrip("/") if to.startswith("$") else to
    path = path.removeprefix("./")
    path = f"work/{path}" if path.partition("/")[0] == "inputs" else path
    if not path or path.endswith("/"):
        path = f"{path or f'{INPUTS}/'}{basename}"
    try:
        checked = plain(check_relative(path))
    except PathEscape as escape:
        raise RunRefused(f"an input can not be put at {(to or path)[:200]!r}: {escape}") from escape
    if checked.partition("/")[0] not in WRITABLE or checked in (*WRITABLE, INPUTS):
        raise RunRefused(
            f"an input can not be put at {to[:200]!r}: `to` names a file below "
            f"{', '.join(WRITABLE)}, such as {INPUTS}/{basename or 'name'}"
        )
    return checked


# Putting them there


class _Inputs:
    """The inputs of one call, and how much more they may be."""

    def __init__(
        self,
        workspace: Workspace,
        artifacts: Artifacts | None,
        host_roots: tuple[str, ...],
        permit_host: Callable[[str], None] | None,
        stage_skill: Callable[[str], str] | None,
        remaps: bool,
        limits: Limits,
    ) -> None:
        self.workspace, self.artifacts = workspace, artifacts
        self.host_roots, self.permit_host = host_roots, permit_host
        self.stage_skill, self.remaps = stage_skill, remaps
        self.bytes, self.entries = limits.max_input_bytes, limits.max_workspace_files

    def stage(self, wanted: _Wanted) -> StagedInput:
        """Put one input where it is wanted."""
        try:
            if wanted.scheme == "artifact":
                return self.artifact(wanted)
            if wanted.scheme == "host":
                return self.host(wanted)
            return self.inner(wanted)
        except PathEscape as escape:
            raise RunRefused(f"input {wanted.source[:200]!r}: {escape}") from escape
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunRefused(f"input {wanted.source[:200]!r}: {reason}") from error

    def artifact(self, wanted: _Wanted) -> StagedInput:
        if self.artifacts is None:
            raise RunRefused(f"input {wanted.source[:200]!r}: there is no store of artifacts")
        name, version = artifact_reference(wanted.rest)
        found = self.version(self.artifacts, wanted, name, version)
        with closing(self.artifacts.open(name, found)) as stream:
            copy = self.copy(wanted)
            self.put(wanted, lambda target: copy.stream(lambda: stream.read(_CHUNK), target))
        warning = "an artifact is always copied" if wanted.mode == "link" else ""
        return self.done(wanted, copy, found, warning)

    def version(self, artifacts: Artifacts, wanted: _Wanted, name: str, version: int | None) -> int:
        """The version to take: the one that was first put at this place, if it is pinned."""
        if version is not None:
            return artifacts.resolve(name, version)
        first = self.workspace.metadata().pins.get(wanted.to)
        if wanted.pin and first is not None and first.name == name:
            return first.version
        latest = artifacts.resolve(name, None)
        with self.workspace.locked() as metadata:
            first = metadata.pins.get(wanted.to)
            if first is None or first.name != name:
                first = metadata.pins[wanted.to] = Pin(name, latest)
        return first.version if wanted.pin else latest

    def host(self, wanted: _Wanted) -> StagedInput:
        if not wanted.rest.startswith("/") or "\0" in wanted.rest:
            raise RunRefused(f"input {wanted.source[:200]!r}: host:// takes an absolute path")
        path = os.path.normpath("/" + wanted.rest.lstrip("/"))
        with handles() as keep:
            source = keep(self.open_host(path))
            copy = self.copy(wanted, root=path)
            self.put_source(wanted, source, copy)
        warning = "a file of the host is always copied" if wanted.mode == "link" else ""
        return self.done(wanted, copy, warning=warning)

    def open_host(self, path: str) -> int:
        roots = [(root, os.path.realpath(root)) for root in self.host_roots]
        real = os.path.realpath(path)
        for root, real_root in roots:
            for name in (_below(path, root), _below(path, real_root), _below(real, real_root)):
                if name:
                    try:
                        return _open_below(real_root, name)
                    except PathEscape:
                        continue  # a link in it leads out: then it is asked for
        if self.permit_host is None:
            raise RunRefused(f"input 'host://{path[:200]}' is not below a folder that is allowed")
        self.permit_host(real)
        return open_exactly(real)

    def inner(self, wanted: _Wanted) -> StagedInput:
        """A file of the workspace or of a staged skill."""
        path = self.inner_path(wanted)
        place = self.placed(path, wanted.scheme == "skill")
        with handles() as keep:
            source = keep(self.open_inner(place))
            copy = self.copy(wanted, runner=(self.workspace.owner or (os.geteuid(),))[0])
            if wanted.mode == "copy":
                whole = path.count("/") == 1 and path.startswith(f"{SKILLS}/")
                self.put_source(wanted, source, copy, (*LINKS, VENV) if whole else ())
            elif path != wanted.to:
                self.link(path if self.remaps else place, wanted)
        return self.done(wanted, copy, mode=wanted.mode)

    def inner_path(self, wanted: _Wanted) -> str:
        rest = wanted.rest.rstrip("/")
        if wanted.scheme == "skill":
            checked_name(rest.partition("/")[0])
            rest = f"{SKILLS}/{rest}"
        elif rest.partition("/")[0] == "inputs":
            rest = f"work/{rest}"
        path = plain(check_relative(rest, "the workspace"))
        if path.partition("/")[0] not in (SKILLS, *WRITABLE):
            raise PathEscape(rest, "the workspace", f"is not below {SKILLS}, {', '.join(WRITABLE)}")
        return path

    def placed(self, path: str, may_stage: bool) -> str:
        """Where the path is on disk; RunRefused for a skill that is not staged and may not be."""
        top, _, rest = path.partition("/")
        name = rest.partition("/")[0]
        if top != SKILLS or not name:
            return path
        if may_stage and self.stage_skill is not None:
            return placed(path, {name: self.stage_skill(name)})
        staged = self.workspace.metadata().staged.get(name)
        if staged is None:
            raise RunRefused(f"skill {name!r} is not staged in this session")
        return placed(path, {name: f"{staged.copy}/{name}"})

    def open_inner(self, path: str) -> int:
        # Below the first folder, not the workspace: a link to its metadata leads out too.
        top, _, rest = path.partition("/")
        folder = os.open(top, _FOLDER, dir_fd=self.workspace.handle)
        try:
            return open_beneath(folder, rest or ".", _READ)
        finally:
            os.close(folder)

    def copy(self, wanted: _Wanted, *, root: str = "", runner: int | None = None) -> TreeCopy:
        what = f"input {wanted.source[:200]!r}"
        give = self.workspace.give
        return TreeCopy(what, self.bytes, self.entries, root=root, runner=runner, give=give)

    def done(
        self,
        wanted: _Wanted,
        copy: TreeCopy,
        version: int | None = None,
        warning: str = "",
        mode: Mode = "copy",
    ) -> StagedInput:
        self.bytes -= copy.bytes
        self.entries -= copy.entries
        return StagedInput(wanted.source, wanted.to, mode, copy.bytes, version, warning)

    def put_source(
        self, wanted: _Wanted, source: int, copy: TreeCopy, omitted: Sequence[str] = ()
    ) -> None:
        if not stat.S_ISDIR(os.fstat(source).st_mode):
            self.put(wanted, lambda target: copy.file(source, target))
            return
        with self.aside() as (private, name), handles() as keep:
            os.mkdir(name, 0o700, dir_fd=private)
            target = keep(os.open(name, _FOLDER, dir_fd=private))
            copy.fill(source, target, omitted=omitted)
            copy.finish(target)
            parent = keep(self.parent(wanted))
            self.replace_folder(private, name, parent, posixpath.basename(wanted.to))

    def put(self, wanted: _Wanted, write: Callable[[int], None]) -> None:
        """Write a file aside, then move it to its place: whatever lies there is not written to."""
        with self.aside() as (private, name), handles() as keep:
            write(keep(os.open(name, _NEW_FILE, 0o600, dir_fd=private)))
            parent = keep(self.parent(wanted))
            last = posixpath.basename(wanted.to)
            os.rename(name, last, src_dir_fd=private, dst_dir_fd=parent)

    def link(self, path: str, wanted: _Wanted) -> None:
        with self.aside() as (private, name), handles() as keep:
            to = posixpath.relpath(path, posixpath.dirname(wanted.to))
            os.symlink(to, name, dir_fd=private)
            if self.workspace.owner is not None:
                os.chown(name, *self.workspace.owner, dir_fd=private, follow_symlinks=False)
            parent = keep(self.parent(wanted))
            last = posixpath.basename(wanted.to)
            os.rename(name, last, src_dir_fd=private, dst_dir_fd=parent)

    def parent(self, wanted: _Wanted) -> int:
        return self.workspace.make_folders(posixpath.dirname(wanted.to))

    def replace_folder(self, private: int, name: str, parent: int, last: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            # A folder that may not be written can not be moved away.
            os.close(open_anyhow(parent, last))
        swap(private, name, parent, last)

    def aside(self) -> _Aside:
        return _Aside(self.workspace)


class _Aside:
    """A new name in the workspace's private folder; what is left by that name goes at the end."""

    def __init__(self, workspace: Workspace) -> None:
        self._path = os.path.join(workspace.path, PRIVATE)
        self._handle = os.open(PRIVATE, _FOLDER, dir_fd=workspace.handle)
        self._name = f"in-{os.urandom(8).hex()}"

    def __enter__(self) -> tuple[int, str]:
        return self._handle, self._name

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        remove_tree(os.path.join(self._path, self._name))


# Files of the host


def _below(path: str, root: str) -> str:
    """The path relative to the root; empty when it is not below."""
    root = os.path.normpath(root)
    if path == root:
        return "."
    start = os.path.join(root, "")
    return path[len(start) :] if path.startswith(start) else ""


def _open_below(root: str, name: str) -> int:
    folder = open_folder(root)
    try:
        return open_beneath(folder, name, _READ)
    finally:
        os.close(folder)


def open_exactly(path: str) -> int:
    """A handle of what lies at an absolute path, through no link at all; PathEscape or OSError."""
    *folders, last = os.path.normpath(path).strip("/").split("/")
    here = open_folder("/")
    try:
        for folder in folders:
            deeper = open_beneath(here, folder, _PASS)
            os.close(here)
            here = deeper
        return open_beneath(here, last or ".", _READ | os.O_NOFOLLOW)
    finally:
        os.close(here)
