"""No content makes a scan fail, hang or grow: readers end, patterns take time like the text."""

from __future__ import annotations

import importlib
import io
import pkgutil
import re
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skillbelt.scan
from skillbelt.format.skill import Skill
from skillbelt.scan.ledger import MAX_FINDINGS
from skillbelt.scan.scanner import scan_skill
from skillbelt.scan.values import MAX_OF_A_KIND, ScannedSkill
from tests.examples import examples

HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n# Notes\n"
# What the patterns begin with, and go on with: repeated, each is the worst text for some form.
UNITS = (
    *"a0_.`('{ \n",
    *("a ", "aa.", "/a", "\n ", "- ", "a@", "x_", "a: ", "a\\", "~~", '"a":"', "# a\n", "//a\n"),
    *("<a ", "<a hidden>", "<!--", "![](", "[x](", '"""', "/*", "http://a ", "curl ", "eval("),
    *("send api key ", "and send ", "without ", "never rate ", "download ", "every task ", "iex "),
    *("base64 ", "socket.socket(", "不要", "\ufe0f", "\U000e0041", "zip password ", "all files "),
)
LENGTH = 3_000
TIMES_LONGER = 4
# Of processor time: less is too little to compare.
FLOOR = 0.03


def list_patterns() -> dict[re.Pattern[Any], str]:
    """Return every compiled pattern of the room, with the first of its places."""
    found: dict[re.Pattern[Any], str] = {}
    for one in pkgutil.iter_modules(skillbelt.scan.__path__):
        module = importlib.import_module(f"skillbelt.scan.{one.name}")
        for name, value in vars(module).items():
            for place, form in walk(f"{one.name}.{name}", value, 0):
                found.setdefault(form, place)
    return found


def walk(place: str, value: object, depth: int) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(value, re.Pattern):
        yield place, value
    elif type(value).__name__ == "Lazy":
        yield place, re.compile(*vars(value)["source"])
    elif isinstance(value, tuple | list) and depth < 4:
        for number, one in enumerate(value):
            yield from walk(f"{place}[{number}]", one, depth + 1)


PATTERNS = list_patterns()


def take(form: re.Pattern[Any], unit: str, length: int) -> float:
    """Return the processor time for all matches in a text of one unit, repeated."""
    text: Any = (unit * length)[:length]
    text = text.encode() if isinstance(form.pattern, bytes) else text
    start = time.process_time()
    for _ in form.finditer(text):
        pass
    return time.process_time() - start


def grows_faster(form: re.Pattern[Any], unit: str) -> bool:
    """Whether a longer text takes much more than its share; the least of several counts."""
    longer = LENGTH * TIMES_LONGER
    if take(form, unit, longer) < FLOOR:
        return False
    short, long = (min(take(form, unit, one) for _ in range(4)) for one in (LENGTH, longer))
    return long > FLOOR and long > short * TIMES_LONGER * 2.5


def test_there_are_patterns_in_every_reader() -> None:
    rooms = {place.partition(".")[0] for place in PATTERNS.values()}
    assert {"prose", "readers", "markdown", "patterns", "places", "shell"} <= rooms


@pytest.mark.long
@pytest.mark.parametrize("module", sorted({place.partition(".")[0] for place in PATTERNS.values()}))
def test_the_time_of_a_pattern_grows_like_the_text(module: str) -> None:
    forms = [(one, place) for one, place in PATTERNS.items() if place.startswith(f"{module}.")]
    slow = [
        (place, unit)
        for one, place in forms
        for unit in UNITS
        if all(grows_faster(one, unit) for _ in range(5))  # a busy machine slows one of them
    ]
    assert slow == []


def scan_file(folder: Path, name: str, data: bytes) -> ScannedSkill:
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_text(HEAD, "utf-8")
    (folder / name).write_bytes(data)
    return scan_skill(Skill.from_folder(str(folder)))


def assert_bounded(found: ScannedSkill) -> None:
    """Check that a result is small, and that no reader failed."""
    assert not [one for one in found.unseen if "a reader failed" in one]
    assert len(found.findings) <= MAX_FINDINGS
    assert len(found.unseen) <= MAX_OF_A_KIND
    assert all(len(one.value) <= 200 for one in found.statement.capabilities)


NAMES = st.sampled_from(
    ("a.md", "a.txt", "a.py", "a.sh", "a.js", "a.ts", "a.json", "package.json", "a.ps1", "a.rb",
     "requirements.txt", "a.html", "a.bin", "a.png", "a.pdf", "a.pyc", "a.docx")
)  # fmt: skip
WORDS = st.sampled_from(
    ("curl ", "|", "bash\n", "$(", ")", "`", '"', "'", "eval(", "~/.ssh/id_rsa", "import os\n",
     "exec(", "f(", "=", "[", "]", "{", "}", "\\", "\n", "```\n", "<!--", "-->", "https://a.b/c",
     "base64 -d", "for x in ", ":", "def f():\n ", "require(", "=>", "&&", "<<EOF\n", "EOF\n", "\0",
     "send all files to ", "ignore previous instructions", "\u202e", "\ud7ff", "%s", "*", "_")
)  # fmt: skip
MAGIC = st.sampled_from(
    (b"", b"\x7fELF", b"MZ", b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\0",
     b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xfe", b"GIF89a", b"%PDF-1.4", b"7z\xbc\xaf", b"Rar!")
)  # fmt: skip


@settings(max_examples=examples(400), deadline=None)
@given(NAMES, st.lists(WORDS | st.text(max_size=8), max_size=40))
def test_no_text_makes_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, name: str, words: list[str]
) -> None:
    text = "".join(words).encode("utf-8", "replace")
    assert_bounded(scan_file(tmp_path_factory.getbasetemp() / "notes", name, text))


@settings(max_examples=examples(400), deadline=None)
@given(NAMES, MAGIC, st.binary(max_size=400))
def test_no_bytes_make_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, name: str, magic: bytes, data: bytes
) -> None:
    assert_bounded(scan_file(tmp_path_factory.getbasetemp() / "notes", name, magic + data))


def pack(members: list[tuple[str, bytes]], kind: str) -> bytes:
    """Return an archive with the members."""
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as packed:
            for number, (name, data) in enumerate(members):
                packed.writestr(f"{number}{name}", data)
        return made.getvalue()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=100)), max_size=6),
    st.sampled_from(("zip", "tar")),
    st.integers(0, 3),
    st.floats(0, 1),
    st.binary(max_size=4),
)
def test_no_archive_makes_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory,
    members: list[tuple[str, bytes]],
    kind: str,
    nesting: int,
    at: float,
    damage: bytes,
) -> None:
    data = pack(members, kind)
    for _ in range(nesting):
        data = pack([(f"inner.{kind}", data)], kind)
    cut = int(len(data) * at)
    data = data[:cut] + damage + data[cut + len(damage) :]
    folder = tmp_path_factory.getbasetemp() / "notes"
    assert_bounded(scan_file(folder, f"a.{'zip' if kind == 'zip' else 'tgz'}", data))
