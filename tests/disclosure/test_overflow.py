from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Page
from skillbelt.disclosure.overflow import Storage, read_piece
from skillbelt.errors import FileUnreadable, PathEscape
from tests.examples import examples


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "state" / "texts")


def test_a_text_is_kept_under_its_hash(storage: Storage) -> None:
    ref = storage.keep("whole\n")
    assert os.path.isabs(ref)
    assert os.path.basename(ref) == hashlib.sha256(b"whole\n").hexdigest() + ".txt"
    assert Path(ref).read_text("utf-8") == "whole\n"


def test_file_and_folder_are_private(storage: Storage) -> None:
    ref = storage.keep("a")
    assert stat.S_IMODE(os.stat(ref).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(storage.folder).st_mode) == 0o700


def test_a_text_is_written_once(storage: Storage) -> None:
    inode = os.stat(storage.keep("a")).st_ino
    assert os.stat(storage.keep("a")).st_ino == inode
    assert len(os.listdir(storage.folder)) == 1


def test_a_link_put_in_its_place_is_replaced_not_followed(storage: Storage, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("z")
    ref = storage.keep("a")
    os.unlink(ref)
    os.symlink(other, ref)
    assert storage.keep("a") == ref
    assert not os.path.islink(ref)
    assert other.read_text() == "z"


def test_many_at_once_leave_one_whole_file(storage: Storage) -> None:
    text = "line\n" * 10_000
    threads = [threading.Thread(target=storage.keep, args=(text,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (name,) = os.listdir(storage.folder)
    assert (Path(storage.folder) / name).read_text() == text


def test_a_text_is_read_in_pages(storage: Storage) -> None:
    ref = storage.keep("".join(f"{n}\n" for n in range(1, 11)))
    page = storage.read(ref, 3, 2)
    assert page == ("3\n4\n", 3, 5, 10)
    assert storage.read(ref, page.next_line).text == "5\n6\n7\n8\n9\n10\n"
    assert storage.read(ref, 9, 2).next_line == 0
    assert storage.read(ref, 11) == ("", 11, 0, 10)


def test_a_page_ends_at_the_bound_and_says_where_to_go_on(storage: Storage) -> None:
    ref = storage.keep("aaaa\nbbbb\ncccc\n")
    assert storage.read(ref, chars=12) == ("aaaa\nbbbb\n", 1, 3, 3)


def test_a_line_too_long_for_any_page_is_passed(storage: Storage) -> None:
    ref = storage.keep("a" * 50 + "\nb\n")
    page = storage.read(ref, chars=10)
    assert page == ("a" * 10, 1, 2, 2)
    assert storage.read(ref, page.next_line, chars=10).text == "b\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(st.text(alphabet="ab日\n\ud800", max_size=200).filter(bool), st.integers(10, 40))
def test_following_the_pages_gives_every_line(storage: Storage, text: str, chars: int) -> None:
    text = "\n".join(row[: chars - 1] for row in text.split("\n"))
    ref = storage.keep(text)
    seen: dict[int, str] = {}
    line = 1
    while line:
        page = storage.read(ref, line, chars=chars)
        seen |= enumerate(page.text.split("\n"), page.start_line)
        assert page.next_line == 0 or page.next_line > line
        line = page.next_line
    assert "\n".join(seen[n] for n in sorted(seen)).rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("ref", ["/etc/passwd", "a.txt", "", "../x", "\0", "{folder}/../x.txt"])
def test_only_stored_texts_are_read(storage: Storage, ref: str) -> None:
    storage.keep("a")
    with pytest.raises(PathEscape):
        storage.read(ref.format(folder=storage.folder))


def test_a_link_among_the_texts_is_not_followed(storage: Storage, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("z")
    storage.keep("a")
    ref = os.path.join(storage.folder, f"{hashlib.sha256(b'z').hexdigest()}.txt")
    os.symlink(secret, ref)
    with pytest.raises(PathEscape):
        storage.read(ref)


def test_a_text_that_is_gone_or_changed_is_refused(storage: Storage) -> None:
    ref = storage.keep("a")
    Path(ref).write_text("b")
    with pytest.raises(FileUnreadable, match="was changed"):
        storage.read(ref)
    os.unlink(ref)
    with pytest.raises(FileUnreadable, match="not stored any more"):
        storage.read(ref)


def test_old_texts_expire_and_kept_ones_are_renewed(storage: Storage) -> None:
    old, renewed = storage.keep("old"), storage.keep("renewed")
    part = os.path.join(storage.folder, f".{os.path.basename(old)}.00ff")
    foreign = os.path.join(storage.folder, "notes")
    for path in (part, foreign):
        Path(path).touch()
    for path in (old, renewed, part, foreign):
        os.utime(path, (1_000, 1_000))
    storage.keep("renewed")
    assert storage.expire(2_000) == 2
    assert sorted(os.listdir(storage.folder)) == sorted([os.path.basename(renewed), "notes"])


def test_nothing_kept_yet_expires_to_nothing(storage: Storage) -> None:
    assert storage.expire(1e12) == 0
    assert not os.path.exists(storage.folder)


def test_a_failed_write_leaves_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space"):
        storage.keep("a")
    assert os.listdir(storage.folder) == []


def test_a_page_says_what_comes_next(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "s"))
    assert storage.read(storage.keep("a\nb\nc\n"), 1, 2) == Page("a\nb\n", 1, 3, 3)


@given(
    st.lists(st.text(alphabet="ab日\n", max_size=30), max_size=8),
    st.integers(1, 12),
    st.integers(1, 3),
)
def test_following_the_pieces_gives_the_text(chunks: list[str], chars: int, lines: int) -> None:
    text, given, line, char = "".join(chunks), "", 1, 1
    while line:
        piece = read_piece(chunks, line, lines, chars, start_char=char)
        assert len(piece.text) <= chars
        given += piece.text
        line, char = piece.next_line, piece.next_char
    assert given == text


def test_a_piece_is_read_without_the_rest_of_the_text() -> None:
    def chunks() -> Iterator[str]:
        yield "a\nb\nc\n"
        raise AssertionError

    assert read_piece(chunks(), 1, 2, count=False) == ("a\nb\n", 1, 3, 1, 0)
