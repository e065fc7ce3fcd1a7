"""A pytest suite that your own artifact store must pass: see docs/how-to/files.md."""

import hashlib
import io
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, cast

from skillbelt.artifacts.protocol import (
    MAX_NAME_BYTES,
    Artifact,
    ArtifactStore,
    parse_reference,
    read,
    reference,
)
from skillbelt.errors import ArtifactError
from skillbelt.store.protocol import SessionKey

KEY = SessionKey("app", "ada", "chat")
SAME_USER = SessionKey("app", "ada", "other")
SAME_APP = SessionKey("app", "bob", "chat")
OTHER_APP = SessionKey("else", "ada", "chat")
ALL = (KEY, SAME_USER, SAME_APP, OTHER_APP)
# Names that stores are known to fold, cut, refuse or take for a path.
NAMES = (
    "a", "A", "a ", " a", "a b", "é", "e\u0301", "日本", "😀", "\u202e", "a/b", "a//b", "a/../b",
    "../a", "/etc/passwd", ".", "..", "a@b.txt", "a@0", "a@", "@a", "%2e", "a\\b", "C:", "a:b",
    "*?", "'\"", "$HOME", "-rf", "0", "0.json", "con", "user", "User:a", "x" * MAX_NAME_BYTES,
)  # fmt: skip
REFUSED = ("", " ", "user:", "user: ", "\0", "a\nb", "\x7f", "\x85", "\u2028", "\ud800")
KEYS = ("", " ", "/", "..", "\0", "é", "\ud800", "x" * 10_000)
BYTES = (b"", b"\0", b"text\r\n", bytes(range(256)), b"\x89PNG\r\n\x1a\n\0\xff")
BIG = 9 * 2**20 + 1
THREADS = 4


class ArtifactStoreConformance:
    """Every promise of `ArtifactStore`.

    Provide an `artifacts` fixture: an empty store for each test.
    """

    def test_a_new_store_is_empty(self, artifacts: ArtifactStore) -> None:
        """Asking for a missing artifact creates nothing."""
        assert artifacts.versions(KEY, "a") == []
        assert artifacts.delete(KEY, "a") is False
        _refused(lambda: artifacts.find(KEY, "a"))
        _refused(lambda: artifacts.open(KEY, "a"))
        assert artifacts.latest(KEY) == []

    def test_bytes_come_back_exactly(self, artifacts: ArtifactStore) -> None:
        """Empty, binary, or with any line ends."""
        for data in BYTES:
            artifacts.save(KEY, "a", data)
            assert read(artifacts, KEY, "a")[1] == data

    def test_a_version_is_described(self, artifacts: ArtifactStore) -> None:
        """The record has the saved values and the current time."""
        before = time.time()
        saved = artifacts.save(KEY, "a/b.txt", b"text", "text/plain")
        assert before <= saved.time <= time.time()
        sha256 = hashlib.sha256(b"text").hexdigest()
        assert saved == Artifact(
            name="a/b.txt", version=0, size=4, sha256=sha256, mime="text/plain", time=saved.time
        )
        assert artifacts.find(KEY, "a/b.txt") == saved

    def test_versions_count_from_0(self, artifacts: ArtifactStore) -> None:
        """Each name has its own count; saving the same bytes again counts too."""
        data = [b"one", b"two", b"one"]
        saved = [artifacts.save(KEY, "a", one) for one in data]
        assert artifacts.save(KEY, "b", b"one").version == 0
        assert [one.version for one in saved] == [0, 1, 2]
        assert artifacts.versions(KEY, "a") == saved
        assert [artifacts.find(KEY, "a", version) for version in range(3)] == saved
        assert [read(artifacts, KEY, "a", version)[1] for version in range(3)] == data

    def test_without_a_version_the_newest_is_meant(self, artifacts: ArtifactStore) -> None:
        """Numbers are compared as numbers: 10 comes after 9."""
        for number in range(12):
            saved = artifacts.save(KEY, "a", b"%d" % number)
            assert artifacts.find(KEY, "a") == saved
            assert artifacts.latest(KEY) == [saved]
        assert read(artifacts, KEY, "a") == (saved, b"11")
        assert [one.version for one in artifacts.versions(KEY, "a")] == list(range(12))

    def test_what_is_not_there_is_an_error(self, artifacts: ArtifactStore) -> None:
        """A missing version is an error as well as a missing name."""
        artifacts.save(KEY, "a", b"x")
        for version in (1, 10, -1, 2**63, 2**70):
            _refused(lambda version=version: artifacts.find(KEY, "a", version))  # type: ignore[misc]
            _refused(lambda version=version: artifacts.open(KEY, "a", version))  # type: ignore[misc]
        _refused(lambda: artifacts.find(KEY, "A"))

    def test_any_name_is_kept_as_it_is(self, artifacts: ArtifactStore) -> None:
        """A name is not folded, cut, normalised, or taken for a path."""
        for name in NAMES:
            artifacts.save(KEY, name, name.encode())
        assert [one.name for one in artifacts.latest(KEY)] == sorted(NAMES)
        for name in NAMES:
            found, data = read(artifacts, KEY, name)
            assert (found.name, found.version, data) == (name, 0, name.encode())
            assert artifacts.delete(KEY, name)

    def test_names_that_can_not_be_shown_are_refused(self, artifacts: ArtifactStore) -> None:
        """Every method refuses them, without storing anything."""
        for name in (*REFUSED, "x" * (MAX_NAME_BYTES + 1), "é" * MAX_NAME_BYTES):
            for call in (artifacts.find, artifacts.open, artifacts.versions, artifacts.delete):
                _refused(lambda call=call, name=name: call(KEY, name))  # type: ignore[misc]
            _refused(lambda name=name: artifacts.save(KEY, name, b"x"))  # type: ignore[misc]
        assert artifacts.latest(KEY) == []

    def test_a_mime_type_is_one_short_line(self, artifacts: ArtifactStore) -> None:
        """Anything else is refused, without storing anything."""
        for mime in ("text/plain\r\nX: y", "\0", "x" * 256):
            _refused(lambda mime=mime: artifacts.save(KEY, "a", b"x", mime))  # type: ignore[misc]
        assert artifacts.latest(KEY) == []

    def test_each_session_has_its_own(self, artifacts: ArtifactStore) -> None:
        """No two keys share a name, however similar they are."""
        for key in ALL:
            artifacts.save(key, "a", "|".join(key).encode())
        for key in ALL:
            assert [one.version for one in artifacts.versions(key, "a")] == [0]
            assert read(artifacts, key, "a")[1] == "|".join(key).encode()

    def test_user_names_are_shared_by_the_users_sessions(self, artifacts: ArtifactStore) -> None:
        """They are shared in one app only, and have one count."""
        artifacts.save(KEY, "user:a", b"1")
        second = artifacts.save(SAME_USER, "user:a", b"2")
        own = artifacts.save(KEY, "a", b"own")
        assert second.version == 1
        assert artifacts.latest(KEY) == [own, second]
        assert artifacts.latest(SAME_USER) == [second]
        assert artifacts.latest(SAME_APP) == artifacts.latest(OTHER_APP) == []
        assert artifacts.delete(SAME_USER, "user:a") is True
        assert artifacts.latest(KEY) == [own]

    def test_any_key_will_do(self, artifacts: ArtifactStore) -> None:
        """Its parts are not concatenated."""
        keys = [SessionKey(text, text, text) for text in KEYS]
        for mark in ("", "/", ":", "\0"):
            keys += [SessionKey("a", f"b{mark}c", "d"), SessionKey(f"a{mark}b", "c", "d")]
        for number, key in enumerate(keys):
            artifacts.save(key, "a", b"%d" % number)
        for number, key in enumerate(keys):
            assert read(artifacts, key, "a")[1] == b"%d" % number

    def test_a_file_is_saved_from_where_it_stands(self, artifacts: ArtifactStore) -> None:
        """The file is left open."""
        file = io.BytesIO(b"head and rest")
        file.seek(5)
        assert artifacts.save(KEY, "a", file).size == 8
        assert read(artifacts, KEY, "a")[1] == b"and rest"
        assert not file.closed

    def test_a_large_file_is_read_in_pieces(self, artifacts: ArtifactStore) -> None:
        """Never as a whole when saving; any number of bytes when reading."""
        source = _Large(BIG)
        saved = artifacts.save(KEY, "a", cast(BinaryIO, source))
        assert (saved.size, source.largest <= 2**23) == (BIG, True)
        with artifacts.open(KEY, "a") as file:
            assert file.read(3) == b"aaa"
            assert len(file.read(2**20)) == 2**20
            assert len(file.read()) == BIG - 2**20 - 3
            assert file.read() == b""
        assert read(artifacts, KEY, "a")[0] == saved

    def test_a_file_that_fails_leaves_nothing(self, artifacts: ArtifactStore) -> None:
        """Bytes read before the failure are not kept."""
        artifacts.save(KEY, "a", b"whole")
        _refused(lambda: artifacts.save(KEY, "a", cast(BinaryIO, _Large(BIG, fails=True))))
        assert [one.size for one in artifacts.versions(KEY, "a")] == [5]
        assert read(artifacts, KEY, "a")[1] == b"whole"

    def test_an_open_file_outlives_a_new_version(self, artifacts: ArtifactStore) -> None:
        """The open file keeps its content."""
        artifacts.save(KEY, "a", b"old")
        with artifacts.open(KEY, "a") as file:
            artifacts.save(KEY, "a", b"new")
            assert file.read() == b"old"

    def test_delete_takes_every_version(self, artifacts: ArtifactStore) -> None:
        """It deletes that name only, and not the bytes that another name shares."""
        for name in ("a", "a", "b"):
            artifacts.save(KEY, name, b"same")
        artifacts.save(SAME_USER, "a", b"same")
        assert artifacts.delete(KEY, "a") is True
        assert artifacts.versions(KEY, "a") == []
        _refused(lambda: artifacts.open(KEY, "a", 0))
        assert [one.name for one in artifacts.latest(KEY)] == ["b"]
        assert read(artifacts, KEY, "b")[1] == read(artifacts, SAME_USER, "a")[1] == b"same"
        assert artifacts.delete(KEY, "a") is False

    def test_a_number_is_never_given_again(self, artifacts: ArtifactStore) -> None:
        """A reference never comes to mean other bytes."""
        for expected in (0, 1):
            assert artifacts.save(KEY, "a", b"old").version == expected
        artifacts.delete(KEY, "a")
        artifacts.delete(KEY, "a")
        assert artifacts.save(KEY, "a", b"new").version == 2
        assert artifacts.latest(KEY) == artifacts.versions(KEY, "a") == [artifacts.find(KEY, "a")]
        artifacts.delete(KEY, "a")
        assert artifacts.save(KEY, "a", b"old").version == 3
        _refused(lambda: artifacts.find(KEY, "a", 0))
        assert read(artifacts, KEY, "a")[1] == b"old"

    def test_a_reference_finds_what_was_saved(self, artifacts: ArtifactStore) -> None:
        """The reference works for every kind of name."""
        for name in (*NAMES, "user:a@1"):
            saved = artifacts.save(KEY, name, b"x")
            assert artifacts.find(KEY, *parse_reference(reference(name, 0))) == saved

    def test_threads_get_numbers_of_their_own(self, artifacts: ArtifactStore) -> None:
        """Numbers have no gaps, and each thread finds the version it saved."""

        def work(thread: int) -> None:
            for turn in range(8):
                data = b"same" if turn % 2 else b"%d %d" % (thread, turn)
                saved = artifacts.save(KEY, "a", data)
                assert read(artifacts, KEY, "a", saved.version) == (saved, data)

        together(work)
        numbers = [one.version for one in artifacts.versions(KEY, "a")]
        assert numbers == list(range(THREADS * 8))

    def test_a_version_is_whole_while_others_delete(self, artifacts: ArtifactStore) -> None:
        """A listed version can be read or is deleted; no number is used twice."""
        numbers: list[int] = []

        def work(thread: int) -> None:
            for turn in range(8):
                if thread == 0:
                    artifacts.delete(KEY, "a")
                elif thread == 1:
                    _maybe(lambda: read(artifacts, KEY, "a"))
                else:
                    data = b"same" if turn % 2 else b"%d %d" % (thread, turn)
                    numbers.append(artifacts.save(KEY, "a", data).version)

        together(work)
        assert len(set(numbers)) == len(numbers) == (THREADS - 2) * 8
        for found in artifacts.versions(KEY, "a"):
            assert read(artifacts, KEY, "a", found.version)[0] == found


class _Large:
    """A file that is never in memory as a whole."""

    def __init__(self, size: int, *, fails: bool = False) -> None:
        self._left, self._fails, self.largest = size, fails, 0

    def read(self, size: int = -1) -> bytes:
        self.largest = max(self.largest, self._left if size < 0 else size)
        count = min(self._left, self._left if size < 0 else size)
        self._left -= count
        if self._fails and self._left < 2**20:
            raise OSError("the source is gone")
        return b"a" * count


def _refused(call: Callable[[], object]) -> None:
    try:
        call()
    except ArtifactError:
        return
    raise AssertionError("no ArtifactError was raised")


def _maybe(call: Callable[[], object]) -> None:
    """Call it; accept an ArtifactError that does not report damage: the version was deleted."""
    try:
        call()
    except ArtifactError as error:
        assert "damaged" not in str(error), error


def together(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run the work in many threads; raise here what one of them raises."""
    failures: list[BaseException] = []

    def guarded(thread: int) -> None:
        try:
            work(thread)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
