"""Fetch one commit with git, and read its files out of the object store.

Git never writes a file of the source: no checkout, so no hook, filter, attribute, submodule or LFS
program of a repository can run. What git may do is fixed by its environment. Of the user's own
configuration only the ways to prove who they are count (credential helpers, ssh, proxies,
certificates): without them no private repository can be fetched. Aliases, rewritten addresses,
other protocols and all else would change what is fetched.
"""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Timer
from typing import IO
from urllib.parse import unquote, urlsplit

from skillbelt.discovery.sources.bounds import Deadline, Refusal
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.errors import PathEscape
from skillbelt.files.contain import (
    NEW_FILE_TO_READ,
    READ_FILE,
    open_beneath,
    open_folder,
    read_handle,
)
from skillbelt.install.source_tree import MAX_TREE_ITEMS, ItemKind, TreeItem
from skillbelt.records import NamedTuple
from skillbelt.settings import process_environment
from skillbelt.text import Lazy, one_line, shorten

GIT_TIMEOUT_SECONDS = 300.0
# The largest file that git may write: the pack of a source.
MAX_PACK_BYTES = 1024 * 2**20
# Stops an object that unpacks to more than fits in memory.
MAX_GIT_MEMORY_BYTES = 8 * 2**30
_MAX_LISTING_BYTES = 512 * 2**20
_MAX_KEPT_BYTES = 64 * 2**20
_CHUNK = 64 * 2**10
# Lines that say why; what a server writes may be one long line.
_TELLING = Lazy(r"(fatal|error|remote|ssh): ?|[^\s@]++@[^\s@]{1,255}: Permission denied")
_ERROR_CHARS = 400
_HASH = Lazy(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# An entry of a folder's object, by the digits of its ids.
_TREE_ENTRY = {
    digits: Lazy(rb"(?s)([^ \0]+) ([^\0]+)\0(.{%d})" % (digits // 2)) for digits in (40, 64)
}
_LISTED = Lazy(rb"(\d{6}) \w+ ([0-9a-f]+)\t([^\0]+)\0")
_MAX_REFS_BYTES = 64 * 2**20
# Up to this many objects are requested one by one from the running process.
_FEW = 64
_LIMITS = 'ulimit -f "$1" 2>/dev/null; ulimit -v "$2" 2>/dev/null; shift 2; exec "$@"'
_MODES: dict[bytes, tuple[ItemKind, bool]] = {
    b"100644": ("file", False),
    b"100664": ("file", False),
    b"100755": ("file", True),
    b"120000": ("link", False),
    b"160000": ("submodule", False),
    b"040000": ("folder", False),
}
_FOLDER = b"040000"
_SHA1_DIGITS = 40
_TIME_DIGITS = 16  # more than any time has
_SHA256_CONFIG = (
    "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
)
_FILES = frozenset((b"100644", b"100664", b"100755"))
_KEPT_VARIABLES = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_CAINFO")
# Settings of the user's git for authentication and network access.
_USER_KEYS = (
    r"^(credential\..*|core\.sshcommand|ssh\.variant"
    r"|http\.(.*\.)?(proxy|proxyauthmethod|sslcainfo|sslcapath|sslcert|sslkey|extraheader))$"
)
_FIXED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.bigFileThreshold", "16m"),
    ("core.packedGitWindowSize", "32m"),
    ("core.packedGitLimit", "256m"),
    ("core.attributesFile", os.devnull),
    ("core.excludesFile", os.devnull),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.unpackLimit", "1"),
    ("fetch.writeCommitGraph", "false"),
    ("fetch.fsckObjects", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("transfer.bundleURI", "false"),
    ("transfer.credentialsInUrl", "die"),
    ("http.followRedirects", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "60"),
    ("protocol.version", "2"),
    ("safe.bareRepository", "all"),
)


class GitFetch(NamedTuple):
    """A fetch target: an address, and a branch, a tag or a commit of it; "" for its default branch.

    `commit` must be the one that comes, if given. `resolved` pins the host to checked addresses.
    """

    url: str
    ref: str = ""
    commit: str = ""
    resolved: str = ""


def find_git() -> str:
    """Return the path of git; raise SourceFailure where it is not installed."""
    folders = os.get_exec_path(process_environment())
    paths = (os.path.join(folder, "git") for folder in folders if os.path.isabs(folder))
    path = next((one for one in paths if os.path.isfile(one) and os.access(one, os.X_OK)), "")
    if not path:
        raise SourceFailure(
            "git",
            "is not installed, and this source is a git repository",
            code="git-missing",
            remedy="install git, or give an archive or a folder",
        )
    return path


def scheme_of(url: str) -> str:
    """Return the protocol that git uses for an address."""
    scheme, mark, _ = url.partition("://")
    if not mark:
        return "ssh"
    return {"git+ssh": "ssh"}.get(scheme.lower(), scheme.lower())


class GitRepository:
    """Our bare repository in an empty folder, and git with a fixed environment."""

    def __init__(self, folder: str, fetch: GitFetch, deadline: Deadline) -> None:
        self._git, self._fetch, self._deadline = find_git(), fetch, deadline
        self._has_long_ids = False
        self._own = os.path.join(folder, "fetched.git")
        # The same objects without a promisor remote: git must not fetch missing ones
        # one by one while it reads.
        self._view = os.path.join(folder, "view.git")
        _make_bare(self._view)
        self._objects = os.path.join(self._own, "objects")
        self._environment = self._make_environment()

    def _make_environment(self) -> dict[str, str]:
        inherited = process_environment()
        environment = {
            name: value
            for name, value in inherited.items()
            if not name.startswith("GIT_") or name in _KEPT_VARIABLES
        }
        scheme = scheme_of(self._fetch.url)
        environment.pop("SSH_ASKPASS", None)
        environment |= {
            "GIT_ALLOW_PROTOCOL": scheme,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": self._own,
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            "SSH_ASKPASS_REQUIRE": "never",
        }
        keys = list(_FIXED)
        if scheme in ("http", "https", "ssh"):
            keys += self._read_user_keys(inherited)
        if scheme == "ssh" and not any(name.lower() == "core.sshcommand" for name, _ in keys):
            environment.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
        if self._fetch.resolved:
            keys.append(("http.curloptResolve", self._fetch.resolved))
        keys += [("remote.origin.url", self._fetch.url), ("remote.origin.promisor", "true")]
        keys.append(("remote.origin.partialclonefilter", "blob:none"))
        environment["GIT_CONFIG_COUNT"] = str(len(keys))
        for number, (name, value) in enumerate(keys):
            environment[f"GIT_CONFIG_KEY_{number}"] = name
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _read_user_keys(self, inherited: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the settings of the user's git for authentication and network access."""
        environment = {**inherited, "GIT_DIR": self._view, "LC_ALL": "C"}
        command = [self._git, "config", "--includes", "-z", "--get-regexp", _USER_KEYS]
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=10, check=False
        )
        found = [item.partition("\n") for item in os.fsdecode(done.stdout).split("\0") if item]
        return [(name, value) for name, _, value in found]

    def fetch_commit(self) -> str:
        """Fetch the commit without files; return its id. Raises SourceFailure.

        The branch of a repository on this disk is read in place. A commit that the caller
        names is fetched also then: git compares what it fetches with its ids.
        """
        fetch = self._fetch
        if not fetch.commit and (found := find_local(local_repository(fetch.url), fetch.ref)):
            self._objects, commit = found
            self._choose_hash(commit)
            return commit
        self._choose_hash(fetch.commit or fetch.ref)
        wanted = [fetch.commit] if fetch.commit else list(_list_candidates(fetch.ref))
        for number, name in enumerate(wanted):
            try:
                self._run_fetch("--depth=1", "--filter=blob:none", "origin", name)
                break
            except _NotById:
                if not self._fetch_branches(fetch.commit or fetch.ref):
                    raise _unknown_ref(fetch) from None
                return fetch.commit or fetch.ref
            except _OtherHash as error:
                if self._has_long_ids:  # a server can say so again and again
                    raise _make_failure(fetch.url, str(error)) from None
                self._use_sha256()
                return self.fetch_commit()
            except _MissingRef as error:
                if number + 1 == len(wanted):
                    raise _unknown_ref(fetch) from error
        with open(os.path.join(self._own, "FETCH_HEAD"), encoding="ascii") as file:
            first = file.read(64).split()
        if not first or not _HASH.fullmatch(first[0]):
            raise _make_failure(fetch.url, "git fetched no commit")
        return first[0]

    def _choose_hash(self, name: str) -> None:
        if _HASH.fullmatch(name) and len(name) > _SHA1_DIGITS:
            self._use_sha256()

    def _use_sha256(self) -> None:
        """Read and fetch objects with the longer ids that a repository may have."""
        self._has_long_ids = True
        for place in filter(os.path.isdir, (self._own, self._view)):
            _write_sha256_config(place)

    def _fetch_branches(self, commit: str) -> bool:
        """Fetch all branches with their history; return whether the commit is among it.

        A server that speaks the old protocol, as over ssh, gives no commit by its id.
        """
        if not _HASH.fullmatch(commit):
            return False
        self._fetch_more("--filter=blob:none", "origin", "+refs/heads/*:refs/heads/*")
        with self.read("cat-file", "--batch-check", stdin=(commit,)) as reader:
            return reader.line().split()[1:2] == [b"commit"]

    def fetch_objects(self, ids: Iterable[str]) -> None:
        """Fetch these objects; raises SourceFailure where the server does not give them."""
        if self._objects != os.path.join(self._own, "objects"):
            raise SourceFailure(
                self._fetch.url,
                "does not have all of its files: it is a partial clone, or damaged",
                code="git-failed",
                remedy="give the repository that it was cloned from",
            )
        noop = ("-c", "fetch.negotiationAlgorithm=noop")
        options = ("--filter=blob:none", "--no-write-fetch-head", "--stdin", "origin")
        self._fetch_more(*options, before=noop, stdin="".join(f"{one}\n" for one in ids))

    def _fetch_more(self, *words: str, before: Sequence[str] = (), stdin: str = "") -> None:
        """Fetch what should be there; SourceFailure, also if the server says that it is not."""
        try:
            self._run_fetch(*words, before=before, stdin=stdin)
        except _ServerAnswer as error:
            raise _make_failure(self._fetch.url, str(error)) from None

    def _run_fetch(self, *words: str, before: Sequence[str] = (), stdin: str = "") -> None:
        if not os.path.isdir(self._own):
            _make_bare(self._own)
            if self._has_long_ids:
                _write_sha256_config(self._own)
        command = [
            *_limit_command(),
            self._git,
            *before,
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            *words,
        ]
        with _open_scratch_file(self._own) as errors, _open_scratch_file(self._own) as given:
            given.write(stdin.encode("ascii"))
            given.seek(0)
            code = self._wait(command, given, errors)
            errors.seek(0)
            said = errors.read(_CHUNK).decode("utf-8", "replace")
        if code:
            raise _explain(self._fetch.url, said, code)

    def _wait(self, command: Sequence[str], given: IO[bytes], errors: IO[bytes]) -> int:
        process = subprocess.Popen(
            command,
            env=self._environment,
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            if not _ends_within(process, self._deadline.left()):
                raise self._deadline.expired()
            return process.wait()
        finally:
            _end(process)

    def read(self, *words: str, stdin: Iterable[str] | None = ()) -> _GitReader:
        """Start git to read objects; it fetches nothing. With `stdin` None, use `ask`."""
        environment = {
            **self._environment,
            "GIT_DIR": self._view,
            "GIT_OBJECT_DIRECTORY": self._objects,
            "GIT_CONFIG_COUNT": "0",
            "GIT_ALLOW_PROTOCOL": "none",
        }
        reader = _GitReader(self._fetch.url, self._deadline)
        reader.start([self._git, *words], environment, stdin)
        return reader


class _GitReader:
    """A git process whose output is read as it comes; closing it ends the process."""

    process: subprocess.Popen[bytes]
    _watch: Timer

    def __init__(self, url: str, deadline: Deadline) -> None:
        self._url, self._deadline = url, deadline

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], stdin: Iterable[str] | None
    ) -> None:
        """Start git with these lines as its input; with None, `ask` writes them."""
        with _open_scratch_file(environment["GIT_DIR"]) as given:
            given.write("".join(f"{line}\n" for line in stdin or ()).encode("ascii"))
            given.seek(0)
            self.process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.PIPE if stdin is None else given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        # A hostile repository can have a FIFO in place of an object: git would block forever.
        self._watch = Timer(self._deadline.left(), _kill, (self.process,))
        self._watch.daemon = True
        self._watch.start()
        with suppress(ProcessLookupError):  # it is done already
            _limit_memory(self.process.pid)

    def end(self) -> None:
        """End the process."""
        self._watch.cancel()
        self._watch.join()
        _end(self.process)

    def _explain_early_end(self) -> Exception:
        """Return the error for an early EOF: the deadline, or a failure of git."""
        self._deadline.check()
        return _make_failure(self._url, "git ended too early")

    def ask(self, name: str) -> None:
        """Request an object; do nothing if all names were given at the start."""
        if self.process.stdin is None:
            return
        try:
            self.process.stdin.write(f"{name}\n".encode("ascii"))
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._explain_early_end() from None

    def __enter__(self) -> _GitReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def whole(self, most: int) -> bytes | None:
        """Return the next object; empty if it is larger than `most`, None if it is missing."""
        assert self.process.stdout is not None
        words = self.line().split()
        if len(words) != 3:
            return None
        size = int(words[2])
        if size <= most:
            return self.take(size + 1)[:size]
        for _ in _take_chunks(self, size + 1):
            pass
        return b""

    def line(self) -> bytes:
        self._deadline.check()
        assert self.process.stdout is not None
        found = self.process.stdout.readline(4096)
        if not found:
            raise self._explain_early_end()
        return found

    def take(self, count: int) -> bytes:
        self._deadline.check()
        assert self.process.stdout is not None
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise self._explain_early_end()
        return data

    def rest(self, most: int) -> bytes:
        """Read to EOF; Refusal for more than `most` bytes."""
        assert self.process.stdout is not None
        parts, size = [], 0
        while chunk := self.process.stdout.read(_CHUNK * 16):
            self._deadline.check()
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise Refusal(f"the list of its files has more than {most} bytes")
        if self.process.wait() != 0:
            self._deadline.check()
            raise _make_failure(self._url, "git cannot read the commit")
        return b"".join(parts)


class GitTree:
    """The files of one commit.

    A folder is read when it is first looked into, or all of them at once after `list_all`. Contents
    are fetched when they are first needed, many at once.
    """

    def __init__(self, repository: GitRepository, commit: str, url: str) -> None:
        self._repository, self._url = repository, url
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._asked: _GitReader | None = None
        # The entries of each folder: name, mode and id.
        self._folders: dict[str, list[tuple[str, bytes, str]]] = {}
        self._entries: dict[str, dict[str, tuple[bytes, str]]] = {}
        self._is_listed, self._count = False, 0
        try:
            self.commit, self.tree, self.time = self._read_commit(commit)
        except BaseException:
            self.rest()
            raise

    def rest(self) -> None:
        """Stop the reading git process; the next read starts another."""
        if self._asked is not None:
            self._asked.end()
            self._asked = None

    def _open_reader(self) -> _GitReader:
        if self._asked is None:
            self._asked = self._repository.read("cat-file", "--batch", stdin=None)
        return self._asked

    def _read_commit(self, commit: str) -> tuple[str, str, int]:
        """Return the ids of the commit and of its tree, and its time; tags are peeled."""
        git = self._open_reader()
        git.ask(f"{commit}^{{commit}}")
        words = git.line().split()
        if len(words) != 3 or words[1] != b"commit":
            raise _make_failure(self._url, "the ref does not name a commit")
        text = git.take(int(words[2]) + 1)
        first, *others = text.partition(b"\n\n")[0].split(b"\n")
        key, _, tree = first.partition(b" ")
        if key != b"tree" or not _HASH.fullmatch(tree.decode("latin-1")):
            raise _make_failure(self._url, "the commit is damaged")
        lines = (one for one in others if one.startswith(b"committer "))
        when = next(lines, b"").rpartition(b"> ")[2].partition(b" ")[0]
        time = int(when) if when.isdigit() and len(when) < _TIME_DIGITS else 0
        return words[0].decode(), tree.decode(), time

    def list_all(self) -> None:
        """Read all folders at once, which is faster than one by one."""
        if self._is_listed:
            return
        with self._repository.read("ls-tree", "-r", "-t", "-z", "--full-tree", self.commit) as git:
            listing = git.rest(_MAX_LISTING_BYTES)
        if listing.count(b"\0") > MAX_TREE_ITEMS:
            raise Refusal(f"more than {MAX_TREE_ITEMS} files and folders")
        found = _LISTED.findall(listing)
        folders: dict[str, list[tuple[str, bytes, str]]] = {"": []}
        for mode, identifier, path in found:
            name = path.decode("utf-8", "surrogateescape")
            parent, _, last = name.rpartition("/")
            if not last or parent not in folders or name[0] == "/":
                parent, last = _split(name, folders)
            folders[parent].append((last, mode, identifier.decode()))
            if mode == _FOLDER:
                folders.setdefault(name, [])
        self._folders, self._entries, self._is_listed = folders, {}, True

    def _read_folder(self, folder: str) -> list[tuple[str, bytes, str]]:
        """Return what is in a folder, as git has it; nothing if there is no such folder."""
        found = self._folders.get(folder)
        if found is not None or self._is_listed:
            return found or []
        if folder:
            mode, identifier = self._find(folder)
        else:
            mode, identifier = _FOLDER, self.tree
        most = MAX_TREE_ITEMS - self._count + 1
        found = list(islice(self._read_tree(identifier), most)) if mode == _FOLDER else []
        self._count += len(found)
        if self._count > MAX_TREE_ITEMS:
            raise Refusal(f"more than {MAX_TREE_ITEMS} files and folders")
        self._folders[folder] = found
        return found

    def _read_tree(self, identifier: str) -> Iterator[tuple[str, bytes, str]]:
        git = self._open_reader()
        git.ask(identifier)
        words = git.line().split()
        if len(words) != 3 or words[1] != b"tree" or int(words[2]) > _MAX_LISTING_BYTES:
            raise _make_failure(self._url, "git cannot read the commit")
        size = int(words[2])
        data, form = git.take(size + 1), _TREE_ENTRY[len(identifier)]
        whole = 0
        for match in form.finditer(data, 0, size):
            mode, name, digits = match.groups()
            whole += len(match[0])
            yield name.decode("utf-8", "surrogateescape"), mode.rjust(6, b"0"), digits.hex()
        if whole != size:
            raise _make_failure(self._url, "a folder of the commit is damaged")

    def _find(self, path: str) -> tuple[bytes, str]:
        """Return the mode and the id of an entry; empty ones where there is none."""
        parent, _, name = path.rpartition("/")
        if parent not in self._entries:
            listed = self._read_folder(parent)
            self._entries[parent] = {one: (mode, identifier) for one, mode, identifier in listed}
        return self._entries[parent].get(name, (b"", ""))

    def tree_of(self, folder: str) -> str:
        """Return the id of a folder's tree."""
        return self._find(folder)[1] if folder else self.tree

    def items(self, folder: str) -> Sequence[TreeItem]:
        """Return what is in a folder, by name."""
        listed = sorted(self._read_folder(folder), key=lambda one: os.fsencode(one[0]))
        return [TreeItem(name, *_MODES.get(mode, ("special", False))) for name, mode, _ in listed]

    def is_file(self, path: str) -> bool:
        """Whether there is a plain file."""
        return self._find(path)[0] in _FILES

    def _find_id(self, path: str) -> str:
        identifier = self._find(path)[1]
        if not identifier:
            raise Refusal(f"{path!r} is not a file in the repository")
        return identifier

    def ready(self, path: str) -> bytes | None:
        """Return a file that was prepared; None for one that must be read."""
        return self._kept.get(self._find_id(path))

    def prepare(self, paths: Iterable[str]) -> None:
        """Read many small files at once and keep them."""
        ids = dict.fromkeys(self._find_id(path) for path in paths)
        wanted = [one for one in ids if one not in self._kept]
        missing = self._keep(wanted)
        if missing:
            self._fetch(missing)
            self._keep(missing)

    def _fetch(self, ids: Iterable[str]) -> None:
        self.rest()  # a running process does not see new packs
        self._repository.fetch_objects(ids)

    @contextmanager
    def _open_batch(self, ids: Sequence[str]) -> Iterator[_GitReader]:
        """Yield a git process to read these objects from, in this order."""
        if len(ids) > _FEW:
            with self._repository.read("cat-file", "--batch", "--buffer", stdin=ids) as git:
                yield git
            return
        try:
            yield self._open_reader()
        except BaseException:
            self.rest()  # its next output may belong to the object that was not read to the end
            raise

    def _keep(self, ids: Sequence[str]) -> list[str]:
        """Cache the objects that exist, up to a bound; return the missing ones."""
        missing: list[str] = []
        if not ids:
            return missing
        with self._open_batch(ids) as git:
            for one in ids:
                git.ask(one)
                data = git.whole(_MAX_KEPT_BYTES - self._kept_bytes)
                if data is None:
                    missing.append(one)
                elif data and self._kept_bytes + len(data) <= _MAX_KEPT_BYTES:
                    self._kept[one] = data
                    self._kept_bytes += len(data)
        return missing

    def contents(self, paths: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the bytes of each file, in any order."""
        left = []
        for path in paths:
            kept = self._kept.get(self._find_id(path))
            if kept is None:
                left.append(path)
            else:
                yield path, iter((kept,))
        yield from self._read_stream(left)

    def _read_stream(self, paths: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        missing = yield from self._stream_known(paths)
        if missing:
            self._fetch(dict.fromkeys(self._find_id(path) for path in missing))
            if still := (yield from self._stream_known(missing)):
                raise _make_failure(self._url, f"the server does not give {still[0]!r}")

    def _stream_known(
        self, paths: Sequence[str]
    ) -> Generator[tuple[str, Iterator[bytes]], None, list[str]]:
        """Yield the files that exist; return the paths of the missing ones."""
        missing: list[str] = []
        if not paths:
            return missing
        ids = [self._find_id(path) for path in paths]
        with self._open_batch(ids) as git:
            for path, one in zip(paths, ids, strict=True):
                git.ask(one)
                words = git.line().split()
                if len(words) == 2 and words[1] == b"missing":
                    missing.append(path)
                    continue
                if len(words) != 3 or words[1] != b"blob":
                    raise Refusal(f"{path!r} is not a file in the repository")
                chunks = _take_chunks(git, int(words[2]))
                yield path, chunks
                for _ in chunks:  # skip what the caller did not read
                    pass
                git.take(1)
        return missing


def _split(path: str, folders: Mapping[str, object]) -> tuple[str, str]:
    """Return the folder of an entry whose name holds a `/`, as only a hostile tree has it."""
    parent = path.rpartition("/")[0]
    while parent not in folders:
        parent = parent.rpartition("/")[0]
    return (parent, path[len(parent) + 1 :]) if parent else ("", path)


def _take_chunks(git: _GitReader, size: int) -> Iterator[bytes]:
    while size:
        data = git.take(min(size, _CHUNK))
        size -= len(data)
        yield data


def fetch_tree(fetch: GitFetch, folder: str, deadline: Deadline) -> GitTree:
    """Fetch one commit into the empty folder and return its files. Raises SourceFailure."""
    repository = GitRepository(folder, fetch, deadline)
    tree = GitTree(repository, repository.fetch_commit(), fetch.url)
    if fetch.commit and tree.commit != fetch.commit:
        raise _make_failure(
            fetch.url, f"the server gave the commit {tree.commit}, not {fetch.commit}"
        )
    return tree


def _list_candidates(ref: str) -> Iterator[str]:
    if not ref:
        yield "HEAD"
    elif _HASH.fullmatch(ref) or ref.startswith("refs/"):
        yield ref
    else:  # a branch before a tag, as `git clone --branch` has it
        yield f"refs/heads/{ref}"
        yield f"refs/tags/{ref}"


def _make_bare(folder: str) -> None:
    """Write an empty bare repository: what `git init` writes, without starting it."""
    for part in ("", "objects", "refs"):
        os.mkdir(os.path.join(folder, part), 0o700)
    with open(os.path.join(folder, "HEAD"), "xb") as file:
        file.write(b"ref: refs/heads/none\n")
    with open(os.path.join(folder, "config"), "xb") as file:
        file.write(b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n")


def _write_sha256_config(folder: str) -> None:
    with open(os.path.join(folder, "config"), "w", encoding="ascii") as file:
        file.write(_SHA256_CONFIG)


def _open_scratch_file(folder: str) -> IO[bytes]:
    """Open a file without a name, in our folder."""
    path = os.path.join(folder, f"scratch-{os.urandom(6).hex()}")
    handle = os.open(path, NEW_FILE_TO_READ, 0o600)
    os.unlink(path)
    return os.fdopen(handle, "w+b")


def _limit_command() -> tuple[str, ...]:
    blocks, kilobytes = MAX_PACK_BYTES // 512, MAX_GIT_MEMORY_BYTES // 1024
    return ("/bin/sh", "-c", _LIMITS, "sh", str(blocks), str(kilobytes))


def _limit_memory(process: int) -> None:
    """Limit the memory of a new process, where the system supports that."""
    if hasattr(resource, "prlimit"):
        most = (MAX_GIT_MEMORY_BYTES, MAX_GIT_MEMORY_BYTES)
        with suppress(ValueError, PermissionError):  # it has a lower one
            resource.prlimit(process, resource.RLIMIT_AS, most)


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ends in time. A pidfd wakes at once; `wait` polls every 50 ms."""
    if not hasattr(os, "pidfd_open"):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
    handle = os.pidfd_open(process.pid)
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything that it started."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _ServerAnswer(Exception):
    """An answer of a server after which another request may succeed."""


class _MissingRef(_ServerAnswer):
    """The server does not have this branch or tag."""


class _OtherHash(_ServerAnswer):
    """The repository has ids of SHA-256."""


class _NotById(_MissingRef):
    """The server refuses to serve a commit by its id."""


def _explain(url: str, said: str, code: int) -> Exception:
    """Turn the messages of git into an error."""
    text = _extract_reason(said)
    lowered = said.lower()
    if "couldn't find remote ref" in lowered or "could not find remote branch" in lowered:
        return _MissingRef(text)
    if "mismatched algorithms" in lowered and "server sha256" in lowered:
        return _OtherHash(text)
    if "unadvertised object" in lowered:
        return _NotById(text)
    if "not our ref" in lowered:
        return _MissingRef(text)
    if "host key verification failed" in lowered:
        remedy = "connect to it with ssh once, and compare the key that it shows"
        return SourceFailure(
            url, "ssh does not know its host key", code="git-denied", remedy=remedy
        )
    if re.search(r"returned error: 30[12378]", lowered):
        return RedirectedRepository(url)
    secret = ("authentication failed", "could not read username", "permission denied", "403")
    if any(word in lowered for word in secret):
        remedy = "check the address; for a private one set up a credential helper or use git@HOST:…"
        return SourceFailure(url, text, code="git-denied", remedy=remedy)
    if code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ) or "file too large" in lowered:
        reason = f"has more than {MAX_PACK_BYTES} bytes"
        return SourceFailure(
            url, reason, code="remote-too-large", remedy="give a smaller repository"
        )
    return _make_failure(url, text or f"git ended with {code}")


class RedirectedRepository(SourceFailure):
    """The server says that the repository is elsewhere."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "has moved", code="remote-redirect", remedy="use the new address")


def _extract_reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    chosen = [line for line in lines if _TELLING.match(line)] or lines
    plain = (line.removeprefix("fatal: ").removeprefix("error: ").rstrip(".") for line in chosen)
    return shorten(one_line("; ".join(dict.fromkeys(plain))), _ERROR_CHARS)


def _unknown_ref(fetch: GitFetch) -> SourceFailure:
    if fetch.commit or _HASH.fullmatch(fetch.ref):
        reason = f"has no commit {fetch.commit or fetch.ref}, or does not serve it"
        remedy = "its history may have been rewritten; ask its owner"
    else:
        what = f"no branch or tag {fetch.ref!r}" if fetch.ref else "no commit yet"
        reason, remedy = f"has {what}", "give a branch, a tag or all 40 digits of a commit"
    return SourceFailure(fetch.url, reason, code="git-ref", remedy=remedy)


def _make_failure(url: str, reason: str) -> SourceFailure:
    return SourceFailure(url, reason, code="git-failed", remedy="check the address and the network")


def find_local(folder: str, ref: str) -> tuple[str, str] | None:
    """Return the objects of a repository on this disk, and the id that a branch or a tag names.

    None where only git knows, and for a commit. The configuration of
    the repository is not read, and its objects are read through a repository of ours.
    """
    inside = os.path.join(folder, ".git")
    place = inside if os.path.isdir(inside) else folder
    objects = os.path.join(place, "objects")
    if not folder or _HASH.fullmatch(ref) or not os.path.isdir(objects):
        return None
    try:
        handle = open_folder(place)
    except OSError:
        return None
    try:
        for name in _list_candidates(ref):
            found = _read_ref(handle, name)
            if found:
                return objects, found
    except (OSError, PathEscape, UnicodeDecodeError):
        return None
    finally:
        os.close(handle)
    return None


def _read_ref(handle: int, name: str) -> str:
    """Resolve a ref of an open repository to an id; "" if only git can."""
    for _ in range(2):
        text = _read_text(handle, name, 4096)
        if text is None:
            packed = _read_text(handle, "packed-refs", _MAX_REFS_BYTES) or ""
            line = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", packed, re.MULTILINE)
            text = line[1] if line else ""
        if _HASH.fullmatch(text.strip()):
            return text.strip()
        if name != "HEAD" or not text.startswith("ref: refs/heads/"):
            return ""
        name = text.removeprefix("ref: ").strip()
    return ""


def _read_text(handle: int, name: str, most: int) -> str | None:
    try:
        return read_handle(open_beneath(handle, name, READ_FILE), most).decode("ascii")
    except FileNotFoundError:
        return None


def local_repository(url: str) -> str:
    """Return the folder of a file URL; "" for any other address."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else ""
