"""The input files of a run: artifacts, and files of the host, the workspace or a skill.

Each is copied to a private folder first. The permission request describes that copy, and that copy
is moved to its destination. Both ends are opened below a handle: a source cannot be swapped after
it was allowed, and a destination follows no link that an earlier run may have left.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO, Literal, NamedTuple, Protocol, Self, get_args

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import (
    FOLLOW_FILE,
    NEW_FILE,
    PATH_ONLY_FOLDER,
    READ_FILE,
    READ_FOLDER,
    below,
    check_relative,
    is_generated,
    open_beneath,
    open_folder,
)
from skillbelt.files.remove import open_anyhow, remove_tree
from skillbelt.files.sensitive import HEAD_BYTES, looks_secret, named
from skillbelt.files.tree_copy import TreeCopy, handles, swap
from skillbelt.permission.rules import digest
from skillbelt.running.workspace import (
    INPUTS,
    LINKS,
    NODE_MODULES,
    PRIVATE,
    SKILLS,
    VENV,
    WRITABLE,
    Pin,
    Workspace,
    checked_name,
    expanded,
    open_inside,
    own,
    placed,
    plain,
)
from skillbelt.values import Limits

# The bound on the input files of a run together; they are copied into the workspace.
MAX_INPUT_BYTES = 2**30

Mode = Literal["copy", "link"]
_SCHEMES = ("artifact", "host", "workspace", "skill")
_LIMITS = Limits()
_CHUNK = 2**20
_MOST_DIGITS = 18
_LISTED = 1000  # file names in a permission request


class Artifacts(Protocol):
    """The part of an artifact store that inputs need.

    Both raise ArtifactError for an unknown artifact.
    """

    def resolve(self, name: str, version: int | None) -> int:
        """Return the version; the latest one for None."""

    def open(self, name: str, version: int) -> BinaryIO:
        """Open that version for reading."""


class StagedInput(NamedTuple):
    """An input in the workspace; `mode` is how it was placed, not what was asked for."""

    source: str
    to: str
    mode: Mode
    size_bytes: int = 0
    version: int | None = None
    warning: str = ""


class HostInput(NamedTuple):
    """A file or folder of the host. `path` is resolved, `written` is the caller's spelling.

    A `free` one lies below a host root, so it needs no permission. `files` are the paths of all
    files in it, `secret` those that look like secrets.
    """

    path: str
    written: str
    free: bool
    files: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    sha256: str = ""


class _ParsedInput(NamedTuple):
    """One input, checked as text."""

    source: str
    scheme: str
    rest: str
    to: str
    mode: Mode
    pin: bool
    asked: str = ""


class _CopiedInput(NamedTuple):
    """An input, copied to the private folder as `name`; without a name it is a link, or failed.

    `fault` is why it could not be copied; it is raised only after the permission was given.
    """

    wanted: _ParsedInput
    staged: StagedInput
    name: str = ""
    folder: bool = False
    rows: tuple[tuple[str, str, str], ...] = ()
    host: HostInput | None = None
    link: str = ""
    fault: RunRefused | None = None

    @property
    def sha256(self) -> str:
        """Return a hash over the names and contents of the copied files; "" if there are none."""
        return digest({"rows": self.rows}) if self.name else ""

    @property
    def facts(self) -> dict[str, object]:
        """Return the facts for the permission request."""
        staged, wanted = self.staged, self.wanted
        listed = self.host.files if self.host else tuple(path for path, _, _ in self.rows if path)
        facts: dict[str, object] = {"from": staged.source, "to": wanted.asked, "mode": staged.mode}
        facts |= {
            "bytes": staged.size_bytes,
            "sha256": self.sha256,
            "files": list(listed[:_LISTED]),
        }
        if len(listed) > _LISTED:
            facts["more_files"] = len(listed) - _LISTED
        if staged.version is not None:
            facts["version"] = staged.version
        return facts


# Arguments


def skills_named(inputs: object) -> list[str]:
    """Return the names of the skills that inputs come from."""
    listed = inputs if isinstance(inputs, list | tuple) else ()
    sources = [str(one.get("from")) for one in listed if isinstance(one, Mapping)]
    return [name for name in map(skill_of, sources) if name is not None]


def skill_of(source: str) -> str | None:
    """Return the skill whose files a reference names, even by its staged copy; None for others."""
    scheme, _, path = source.partition("://")
    if scheme == "workspace":
        top, _, path = path.removeprefix("./").partition("/")
        scheme = "skill" if top == SKILLS else ""
    return path.partition("/")[0] if scheme == "skill" else None


def _read(item: object, run: str) -> _ParsedInput:
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
    kind: Mode = "link" if mode == "link" else "copy"
    # The folder of a run has another name each time; the request shows the caller's spelling.
    asked = to if to and to.startswith("$") else target
    return _ParsedInput(
        source=source, scheme=scheme, rest=rest, to=target, mode=kind, pin=bool(pin), asked=asked
    )


def _check_apart(wanted: Iterable[_ParsedInput]) -> None:
    """Raise RunRefused for two inputs that would overwrite each other."""
    taken: dict[str, str] = {}
    for one in wanted:
        other = taken.setdefault(one.to, one.source)
        if other != one.source:
            raise RunRefused(
                f"two inputs go to {one.to[:200]!r}: {other[:200]!r} and {one.source[:200]!r}; "
                "give one of them another `to` (FROM=TO at the command line)"
            )


def _basename(scheme: str, rest: str) -> str:
    if scheme == "artifact":
        rest = artifact_reference(rest)[0].rpartition(":")[2]
    return posixpath.basename(rest.rstrip("/"))


def artifact_reference(text: str) -> tuple[str, int | None]:
    """Split `name@3` into name and version; a suffix that is not a number belongs to the name."""
    name, mark, version = text.rpartition("@")
    if not mark or not (version.isascii() and version.isdigit()) or len(version) > _MOST_DIGITS:
        name, version = text, ""
    if not name:
        raise RunRefused(f"input {f'artifact://{text}'[:200]!r} names no artifact")
    return name, int(version) if version else None


def destination(to: str, basename: str, run: str = "") -> str:
    """Return the destination relative to the workspace; RunRefused where runs may not write.

    `inputs/` means `work/inputs/`; a path that ends in `/` is a folder to put the input in.
    """
    path = expanded(to, run).lstrip("/") if to.startswith("$") else to
    path = path.removeprefix("./")
    path = f"work/{path}" if path.partition("/")[0] == "inputs" else path
    if not path or path.endswith("/"):
        path = f"{path or f'{INPUTS}/'}{basename}"
    try:
        checked = plain(check_relative(path))
    except PathEscape as escape:
        raise RunRefused(f"an input cannot be put at {(to or path)[:200]!r}: {escape}") from escape
    if checked.partition("/")[0] not in WRITABLE or checked in (*WRITABLE, INPUTS, run):
        raise RunRefused(
            f"an input cannot be put at {to[:200]!r}: `to` names a file below "
            f"{', '.join(WRITABLE)}, such as {INPUTS}/{basename or 'name'}"
        )
    if not own(checked, run):
        raise RunRefused(
            f"an input cannot be put at {to[:200]!r}: that is the folder of another call; the one "
            f"of this call is $RUN_DIR, such as $RUN_DIR/{basename or 'name'}"
        )
    return checked


# Copying and placing


class Inputs:
    """The inputs of one call, in the private folder; a run sees none of them before `place`."""

    def __init__(
        self,
        workspace: Workspace,
        inputs: Sequence[Mapping[str, object]],
        *,
        artifacts: Artifacts | None = None,
        host_roots: Sequence[str] = (),
        stage_skill: Callable[[str], str] | None = None,
        run: str = "",
        remaps: bool = True,
        limits: Limits = _LIMITS,
    ) -> None:
        """Copy the inputs; an invalid one raises RunRefused, and no copy is left."""
        wanted = [_read(item, run) for item in inputs]
        _check_apart(wanted)
        self.workspace, self.artifacts = workspace, artifacts
        self.host_roots = tuple(os.path.normpath(root) for root in host_roots)
        self.stage_skill, self.run, self.remaps = stage_skill, run, remaps
        self.bytes, self.entries = MAX_INPUT_BYTES, limits.max_workspace_files
        self._handle = -1
        self._taken: list[_CopiedInput] = []
        self._names: list[str] = []
        try:
            for each in wanted:
                self._taken.append(self._copy_input(each))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copies that were not placed."""
        for name in self._names:
            remove_tree(os.path.join(self.workspace.path, PRIVATE, name))
        self._names.clear()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @property
    def places(self) -> list[str]:
        """Return the destination of each, as paths of the workspace."""
        return [one.staged.to for one in self._taken]

    @property
    def host_paths(self) -> list[str]:
        """Return the files and folders of the host among them."""
        return [one.host.path for one in self._taken if one.host is not None]

    @property
    def facts(self) -> list[dict[str, object]]:
        """Return the facts of each for the permission request."""
        return [one.facts for one in self._taken]

    @property
    def exact(self) -> bool:
        """Whether the facts cover all content: the target of a link may change later."""
        return all(one.name for one in self._taken)

    def place(self, permit_host: Callable[[HostInput], None] | None = None) -> list[StagedInput]:
        """Move each to its destination, once everything from the host is permitted."""
        for one in self._taken:
            if one.host is not None and permit_host is not None:
                permit_host(one.host)
            elif one.host is not None and not one.host.free:
                raise RunRefused(
                    f"input 'host://{one.host.written[:200]}' is not below a folder that is allowed"
                )
            if one.fault is not None:
                raise one.fault
        for one in self._taken:
            with _name_input_in_errors(one.wanted):
                self._place_input(one)
        return [one.staged for one in self._taken]

    def _copy_input(self, wanted: _ParsedInput) -> _CopiedInput:
        """Copy one input to the private folder."""
        with _name_input_in_errors(wanted):
            if wanted.scheme == "artifact":
                return self._artifact(wanted)
            if wanted.scheme == "host":
                return self._host(wanted)
            return self._inner(wanted)

    def _artifact(self, wanted: _ParsedInput) -> _CopiedInput:
        if self.artifacts is None:
            raise RunRefused(f"input {wanted.source[:200]!r}: there is no artifact store")
        name, version = artifact_reference(wanted.rest)
        found = self._version(self.artifacts, wanted, name, version)
        with closing(self.artifacts.open(name, found)) as stream:
            copy = self._copy(wanted)
            aside = self._write(lambda target: copy.stream(lambda: stream.read(_CHUNK), target))
        warning = "an artifact is always copied" if wanted.mode == "link" else ""
        return self._done(wanted, copy, aside, version=found, warning=warning)

    def _version(
        self, artifacts: Artifacts, wanted: _ParsedInput, name: str, version: int | None
    ) -> int:
        """Return the version to copy: the first one at this destination, if it is pinned."""
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

    def _host(self, wanted: _ParsedInput) -> _CopiedInput:
        if not wanted.rest.startswith("/") or "\0" in wanted.rest:
            raise RunRefused(f"input {wanted.source[:200]!r}: host:// takes an absolute path")
        path = os.path.normpath("/" + wanted.rest.lstrip("/"))
        real = os.path.realpath(path)
        with handles() as keep:
            inside = self._open_free(path, real)
            if inside is None:
                return self._copy_unpermitted(wanted, path, real)
            return self._copy_host(wanted, keep(inside), HostInput(real, path, True))

    def _copy_unpermitted(self, wanted: _ParsedInput, path: str, real: str) -> _CopiedInput:
        """Copy a source that needs permission.

        Until it is given, not even its existence is revealed.
        """
        host = HostInput(real, path, False)
        try:
            with _name_input_in_errors(wanted), handles() as keep:
                return self._copy_host(wanted, keep(open_exactly(real)), host)
        except RunRefused as fault:
            staged = StagedInput(wanted.source, wanted.to, "copy")
            return _CopiedInput(wanted, staged, host=host, fault=fault)

    def _copy_host(self, wanted: _ParsedInput, source: int, host: HostInput) -> _CopiedInput:
        if is_generated(source):
            raise RunRefused(
                f"input {wanted.source[:200]!r}: it is not on a disk, the kernel generates it"
            )
        copy = self._copy(wanted, root=host.written)
        folder = stat.S_ISDIR(os.fstat(source).st_mode)
        aside = self._write_source(source, copy)
        warning = "a file of the host is always copied" if wanted.mode == "link" else ""
        taken = self._done(wanted, copy, aside, folder=folder, warning=warning)
        names = [path for path, kind, _ in taken.rows if kind != "folder"]
        secret = [name for name in names if self._looks_secret(aside, host, name)]
        return taken._replace(
            host=host._replace(
                files=tuple(named(host.path, name) for name in names),
                secret=tuple(named(host.path, name) for name in secret),
                sha256=taken.sha256,
            )
        )

    def _looks_secret(self, aside: str, host: HostInput, name: str) -> bool:
        """Whether the copy looks like a secret, by one of its names or by its first bytes."""
        copied = named(os.path.join(self.workspace.path, PRIVATE, aside), name)
        head = b""
        if not os.path.islink(copied):
            with open(copied, "rb") as file:
                head = file.read(HEAD_BYTES)
        return any(looks_secret(named(root, name), head) for root in self._names_of(host))

    def _names_of(self, host: HostInput) -> tuple[str, str]:
        """Return its paths below its host root: the name of the root says nothing about secrets."""
        roots = [os.path.realpath(root) for root in self.host_roots]
        path = host.path
        for root in roots if host.free else ():
            if rest := below(path, root):
                path = "" if rest == "." else rest
                break
        return path or "folder", os.path.basename(host.written) if host.free else host.written

    def _open_free(self, path: str, real: str) -> int | None:
        """Open a source that needs no permission; None for anything else."""
        for root in self.host_roots:
            real_root = os.path.realpath(root)
            for name in (below(path, root), below(path, real_root), below(real, real_root)):
                if name:
                    try:
                        return _open_below(real_root, name)
                    except PathEscape:
                        continue  # a link leads out of the root, so it needs permission
        return None

    def _inner(self, wanted: _ParsedInput) -> _CopiedInput:
        """Copy or link a file of the workspace or of a staged skill."""
        path = self._inner_path(wanted)
        place = self._locate(path, wanted)
        with handles() as keep:
            source = keep(self._open_inner(place))
            copy = self._copy(wanted, runner=(self.workspace.owner or (os.geteuid(),))[0])
            # A run does not see the folders of other calls, so a link there would be broken.
            hidden = not own(path, self.run)
            if wanted.mode == "copy" or hidden:
                whole = path.count("/") == 1 and path.startswith(f"{SKILLS}/")
                folder = stat.S_ISDIR(os.fstat(source).st_mode)
                aside = self._write_source(
                    source, copy, (*LINKS, VENV, NODE_MODULES) if whole else ()
                )
                warning = "a file of another call is always copied" if wanted.mode == "link" else ""
                return self._done(wanted, copy, aside, folder=folder, warning=warning)
        link = (path if self.remaps else place) if path != wanted.to else ""
        return self._done(wanted, copy, "", mode="link")._replace(link=link)

    def _inner_path(self, wanted: _ParsedInput) -> str:
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

    def _locate(self, path: str, wanted: _ParsedInput) -> str:
        """Return the path on disk; RunRefused for a skill that is not staged and may not be.

        A run sees only the skills that are staged for it, and a link needs its target.
        """
        top, _, rest = path.partition("/")
        name = rest.partition("/")[0]
        if top != SKILLS or not name:
            return path
        staged = self.workspace.metadata().staged.get(name)
        may_stage = wanted.scheme == "skill" or (staged is not None and wanted.mode == "link")
        if may_stage and self.stage_skill is not None:
            return placed(path, {name: self.stage_skill(name)})
        if staged is None:
            raise RunRefused(f"skill {name!r} is not staged in this session")
        return placed(path, {name: f"{staged.copy}/{name}"})

    def _open_inner(self, path: str) -> int:
        for earlier in reversed(self._taken):
            rest = below(path, earlier.wanted.to)
            if rest and earlier.name:
                return open_beneath(
                    self._private(), f"{earlier.name}/{rest}".removesuffix("/."), FOLLOW_FILE
                )
        return open_inside(self.workspace.handle, path, FOLLOW_FILE)

    def _copy(self, wanted: _ParsedInput, *, root: str = "", runner: int | None = None) -> TreeCopy:
        what = f"input {wanted.source[:200]!r}"
        give = self.workspace.give
        return TreeCopy(what, self.bytes, self.entries, root=root, runner=runner, give=give)

    def _done(
        self,
        wanted: _ParsedInput,
        copy: TreeCopy,
        aside: str,
        *,
        version: int | None = None,
        warning: str = "",
        mode: Mode = "copy",
        folder: bool = False,
    ) -> _CopiedInput:
        self.bytes -= copy.bytes
        self.entries -= copy.entries
        staged = StagedInput(
            source=wanted.source,
            to=wanted.to,
            mode=mode,
            size_bytes=copy.bytes,
            version=version,
            warning=warning,
        )
        return _CopiedInput(
            wanted=wanted, staged=staged, name=aside, folder=folder, rows=copy.rows()
        )

    def _write_source(self, source: int, copy: TreeCopy, omitted: Sequence[str] = ()) -> str:
        """Copy a file or a folder to the private folder; return its name there."""
        if not stat.S_ISDIR(os.fstat(source).st_mode):
            return self._write(lambda target: copy.file(source, target))
        name = self._new_name()
        os.mkdir(name, 0o700, dir_fd=self._private())
        with handles() as keep:
            target = keep(os.open(name, READ_FOLDER, dir_fd=self._private()))
            copy.fill(source, target, omitted=omitted)
            copy.finish(target)
        return name

    def _write(self, write: Callable[[int], None]) -> str:
        """Write a file to the private folder; return its name there."""
        name = self._new_name()
        with handles() as keep:
            write(keep(os.open(name, NEW_FILE, 0o600, dir_fd=self._private())))
        return name

    def _place_input(self, taken: _CopiedInput) -> None:
        """Move one to its destination; an existing file is replaced, never written to."""
        last = posixpath.basename(taken.wanted.to)
        if taken.link:
            self._link(taken.link, taken.wanted)
        elif taken.name:
            with handles() as keep:
                parent = keep(self._parent(taken.wanted))
                if taken.folder:
                    self._replace_folder(self._private(), taken.name, parent, last)
                else:
                    os.rename(taken.name, last, src_dir_fd=self._private(), dst_dir_fd=parent)

    def _link(self, path: str, wanted: _ParsedInput) -> None:
        name, private = self._new_name(), self._private()
        with handles() as keep:
            to = posixpath.relpath(path, posixpath.dirname(wanted.to))
            os.symlink(to, name, dir_fd=private)
            if self.workspace.owner is not None:
                os.chown(name, *self.workspace.owner, dir_fd=private, follow_symlinks=False)
            parent = keep(self._parent(wanted))
            last = posixpath.basename(wanted.to)
            os.rename(name, last, src_dir_fd=private, dst_dir_fd=parent)

    def _parent(self, wanted: _ParsedInput) -> int:
        return self.workspace.make_folders(posixpath.dirname(wanted.to))

    def _replace_folder(self, private: int, name: str, parent: int, last: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            # A read-only folder cannot be moved.
            os.close(open_anyhow(parent, last))
        swap(private, name, parent, last)

    def _new_name(self) -> str:
        """Return a new name in the private folder; `close` removes what is left there."""
        self._names.append(f"in-{os.urandom(8).hex()}")
        return self._names[-1]

    def _private(self) -> int:
        if self._handle < 0:
            self._handle = os.open(PRIVATE, READ_FOLDER, dir_fd=self.workspace.handle)
        return self._handle


@contextmanager
def _name_input_in_errors(wanted: _ParsedInput) -> Iterator[None]:
    """Turn an error about an input into a RunRefused that names it."""
    try:
        yield
    except PathEscape as escape:
        raise RunRefused(f"input {wanted.source[:200]!r}: {escape}") from escape
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunRefused(f"input {wanted.source[:200]!r}: {reason}") from error


# Files of the host


def _open_below(root: str, name: str) -> int:
    folder = open_folder(root)
    try:
        return open_beneath(folder, name, FOLLOW_FILE)
    finally:
        os.close(folder)


def open_exactly(path: str) -> int:
    """Open an absolute path without following any link; PathEscape or OSError."""
    *folders, last = os.path.normpath(path).strip("/").split("/")
    here = open_folder("/")
    try:
        for folder in folders:
            deeper = open_beneath(here, folder, PATH_ONLY_FOLDER)
            os.close(here)
            here = deeper
        return open_beneath(here, last or ".", READ_FILE)
    finally:
        os.close(here)
