"""What can be mended in a SKILL.md without changing what it says.

Each step edits as few lines as it can. After each the file is read again: when name, description,
any other field or the body came out different, the step is undone and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from skillbelt.check.check import MAX_NAME_CHARS
from skillbelt.format import field_names, yaml_repair
from skillbelt.format import yaml as strict
from skillbelt.format.fields import to_frontmatter
from skillbelt.format.frontmatter import parse, split
from skillbelt.format.yaml_fast import TEXT_KEYS
from skillbelt.values import Frontmatter, Limits

_LIMITS = Limits()
_MARKS = re.compile(rb"\A(?:\xef\xbb\xbf)++")
_UNMARKED = "removed the byte-order mark"
_ROUNDS = 8
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[\w-]*\Z")
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class Draft(NamedTuple):
    """A file in three parts. `block` has LF ends and is the only part that steps edit.

    `shaped` says what was done to bring it into that form, if anything; `moved` is what stood
    before the block and now begins the body.
    """

    before: str
    block: str
    after: str
    eol: str
    shaped: str = ""
    moved: str = ""

    def data(self) -> bytes:
        """The file as it is written."""
        return (self.before + self.block.replace("\n", self.eol) + self.after).encode()


class Meaning(NamedTuple):
    """What a file says, however it is spelled."""

    fields: Frontmatter
    body: bytes


class Mended(NamedTuple):
    """The new bytes, what was done to them, and what was not because it changed the meaning."""

    data: bytes
    done: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Entry(NamedTuple):
    """One top-level key with its lines; a key of "" is what stands before the first."""

    key: str
    lines: list[str]

    def text(self) -> str:
        """The lines that YAML is to read: comments and document marks left out."""
        kept = [line for line in self.lines if not line.startswith(("#", "---", "..."))]
        return "\n".join(kept).rstrip() + "\n"

    def comments(self) -> list[str]:
        """What is no part of the value: comment lines, and blank lines at the end."""
        size = len(self.lines)
        while size > 1 and not self.lines[size - 1].strip():
            size -= 1
        return [line for line in self.lines[:size] if line.startswith("#")] + self.lines[size:]


Step = Callable[[str, str, Limits], str]


# --- bytes to bytes ------------------------------------------------------------------------------


def mend(data: bytes, *, folder: str, limits: Limits = _LIMITS) -> Mended:
    """The bytes with everything mended that can be; doing it again changes nothing."""
    done: dict[str, None] = {}
    dropped: tuple[str, ...] = ()
    unmarked = _without_marks(data)
    if unmarked != data:
        if _meaning(unmarked, folder, limits) != _meaning(data, folder, limits):
            return Mended(data, (), (_UNMARKED,))
        done[_UNMARKED] = None
    plain = unmarked
    # One step can open the way for another, so they are tried until none finds anything to do.
    for _ in range(_ROUNDS):
        once = _mend_once(plain, folder, limits)
        done |= dict.fromkeys(once.done)
        plain, dropped = once.data, once.dropped
        if not once.done:
            break
    return Mended(plain, tuple(done), dropped)


def _without_marks(data: bytes) -> bytes:
    return _MARKS.sub(b"", data, count=1)


def _mend_once(data: bytes, folder: str, limits: Limits) -> Mended:
    draft = _draft(data, limits)
    if draft is None:
        return Mended(data)
    said = _meaning(data, folder, limits)
    if draft.shaped and not _same(said, draft, folder, limits):
        return Mended(data, (), (draft.shaped,))
    done = [draft.shaped] if draft.shaped else []
    dropped: list[str] = []
    for title, step in STEPS:
        wanted = draft._replace(block=step(draft.block, folder, limits))
        if wanted.block != draft.block:
            same = _same(said, wanted, folder, limits)
            (done if same else dropped).append(title)
            draft = wanted if same else draft
    return Mended(draft.data(), tuple(done), tuple(dropped))


def _meaning(data: bytes, folder: str, limits: Limits) -> Meaning:
    parsed = parse(data, path="", folder=folder, limits=limits)
    fields: dict[str, object] = {}
    for key, value in parsed.fields.items():
        known = field_names.respelled(key, parsed.fields)
        fields[key if not known or known in fields else known] = value
    fields["name"] = fields.get("name") or folder
    return Meaning(to_frontmatter(fields), _without_marks(data[parsed.body_offset :]))


def _same(said: Meaning, draft: Draft, folder: str, limits: Limits) -> bool:
    """Whether the draft says what was said, with what was moved in front of the body."""
    expected = said._replace(body=draft.moved.encode() + said.body)
    return _meaning(draft.data(), folder, limits) == expected


# --- the shape of the file -----------------------------------------------------------------------


def _draft(data: bytes, limits: Limits) -> Draft | None:
    """The file in its parts; None when it has no block that can be edited."""
    if parse(data, path="", folder="", limits=limits).state not in ("strict", "repaired"):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    found = split(data)
    if found is None:
        return _misplaced(text)
    before, block = data[: found.start].decode(), data[found.start : found.end].decode()
    eol = _eol(before + block)
    if not eol:
        return None
    draft = Draft(before, block.replace("\r\n", "\n"), data[found.end :].decode(), eol)
    return _closed(draft, limits)


def _eol(text: str) -> str:
    """How all lines end; empty when they differ, so that none would be kept by writing one."""
    crlf = text.count("\r\n")
    return "\n" if not crlf else "\r\n" if crlf == text.count("\n") else ""


def _closed(draft: Draft, limits: Limits) -> Draft:
    """The draft with its closing line where the keys end, when a later `---` was taken for it."""
    if isinstance(strict.load(draft.block, limits), strict.Loaded):
        return draft
    ended = yaml_repair.inner_end(draft.block)
    if not ended:
        return draft
    rest = draft.block[ended[1] :].replace("\n", draft.eol)
    return draft._replace(
        block=draft.block[: ended[0]],
        after=f"---{draft.eol}{rest}{draft.after}",
        shaped="closed the frontmatter with a line of its own",
    )


def _misplaced(text: str) -> Draft | None:
    """The draft of a file that does not begin with `---`, or whose closing line is malformed."""
    found = yaml_repair.find(text)
    block = text[found.start : found.end] if found else ""
    eol = _eol(text[: found.body]) if found else ""
    if not found or not block.endswith("\n") or not eol:
        return None
    moved = _preface(text[: found.start], eol)
    after = f"---{eol}{moved}{text[found.body :]}"
    shaped = "put the frontmatter between two `---` lines at the top"
    return Draft(
        before=f"---{eol}",
        block=block.replace("\r\n", "\n"),
        after=after,
        eol=eol,
        shaped=shaped,
        moved=moved,
    )


def _preface(text: str, eol: str) -> str:
    """What stands before a block and is neither its opening line, nor its fence, nor blank."""
    opening = text.rstrip()
    rest = opening.rstrip("-")
    rest = rest if len(opening) - len(rest) > 2 else text
    last = rest.rstrip().rfind("\n") + 1
    if _FENCE.match(rest[last:].rstrip()):
        rest = rest[:last]
    if not rest.strip():
        return ""
    return rest if rest.endswith("\n") else rest + eol


# --- the steps -----------------------------------------------------------------------------------


def remove_controls(block: str, folder: str, limits: Limits) -> str:
    """The block without the characters that YAML refuses."""
    return yaml_repair.without_controls(block)


def quote_values(block: str, folder: str, limits: Limits) -> str:
    """The block as YAML, with quotes around the values that kept it from being that."""
    if isinstance(strict.load(block, limits), strict.Loaded):
        return block
    lines: list[str] = []
    for entry in _entries(block):
        lines += entry.lines if _readable(entry, limits) else _written(entry, limits)
    wanted = _joined(lines)
    return wanted if isinstance(strict.load(wanted, limits), strict.Loaded) else block


def _readable(entry: Entry, limits: Limits) -> bool:
    if not entry.key:
        return not any(line.strip() and not line.startswith("#") for line in entry.lines)
    if any(line.startswith(("---", "...")) for line in entry.lines):
        return False
    alone = strict.load(_joined(entry.lines), limits)
    return isinstance(alone, strict.Loaded) and len(alone.fields) == 1


def _written(entry: Entry, limits: Limits) -> list[str]:
    """The entry as the repair pass read it, in YAML; unchanged where that can not be told."""
    fields = yaml_repair.read(entry.text(), limits).fields
    if entry.key not in fields or len(fields) != 1 or _guessed(entry, fields[entry.key]):
        return entry.lines
    written = _pair(entry.key, fields[entry.key], limits)
    return [*written.rstrip("\n").split("\n"), *entry.comments()] if written else entry.lines


def _guessed(entry: Entry, value: object) -> bool:
    """Whether a broken list or mapping was read as text: quotes would make the fault lasting."""
    if entry.key in TEXT_KEYS or not isinstance(value, str):
        return False
    return value[:1] in ("[", "{") or "\n" in entry.text().strip()


def spell_keys(block: str, folder: str, limits: Limits) -> str:
    """The block with known fields under their known names."""
    entries = list(_entries(block))
    present = {entry.key for entry in entries}
    lines: list[str] = []
    for key, own in entries:
        known = field_names.respelled(key, present) if key else ""
        match = yaml_repair.KEY_LINE.match(own[0]) if known else None
        if match:
            present.add(known)
            own = [own[0][: match.start(2)] + known + own[0][match.end(2) :], *own[1:]]
        lines += own
    return _joined(lines)


def join_tools(block: str, folder: str, limits: Limits) -> str:
    """The block with its allowed tools in one string, where no tool holds a blank."""
    loaded = strict.load(block, limits)
    if not isinstance(loaded, strict.Loaded):
        return block
    tools = to_frontmatter(loaded.fields).allowed_tools
    value = " ".join(tools)
    wrong = isinstance(loaded.fields.get("allowed-tools"), list) or _has_commas(loaded.fields)
    if not wrong or not tools or len(value.split()) != len(tools):
        return block
    return _replaced(block, "allowed-tools", value, limits)


def _has_commas(fields: dict[str, object]) -> bool:
    value = fields.get("allowed-tools")
    return isinstance(value, str) and "," in re.sub(r"\([^()]*\)", "", value)


def add_name(block: str, folder: str, limits: Limits) -> str:
    """The block with the folder's name as the name, where there is none and it is a good one."""
    loaded = strict.load(block, limits)
    if not isinstance(loaded, strict.Loaded) or loaded.fields.get("name"):
        return block
    if not _PLAIN_NAME.match(folder) or len(folder) > MAX_NAME_CHARS:
        return block
    if "name" in loaded.fields:
        return _replaced(block, "name", folder, limits)
    return _pair("name", folder, limits) + block


STEPS: tuple[tuple[str, Step], ...] = (
    ("removed control characters", remove_controls),
    ("corrected the names of fields", spell_keys),
    ("put values in quotes", quote_values),
    ("wrote allowed-tools as one string", join_tools),
    ("added the name", add_name),
)


# --- lines of a block ----------------------------------------------------------------------------


def _entries(block: str) -> Iterator[Entry]:
    """The lines of the block, by the key they belong to."""
    entry = Entry("", [])
    for line in block.removesuffix("\n").split("\n"):
        match = yaml_repair.KEY_LINE.match(line)
        if match:
            if entry.lines:
                yield entry
            entry = Entry(match[2], [])
        entry.lines.append(line)
    yield entry


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _replaced(block: str, key: str, value: str, limits: Limits) -> str:
    """The block with that text as the key's value; unchanged where a comment would be lost."""
    written = _pair(key, value, limits)
    lines: list[str] = []
    for entry in _entries(block):
        if entry.key == key and written and "#" not in entry.text():
            lines += [*written.rstrip("\n").split("\n"), *entry.comments()]
        else:
            lines += entry.lines
    return _joined(lines)


def _pair(key: str, value: object, limits: Limits) -> str:
    """The key and its value in YAML, in the plainest form that reads back the same; or nothing."""
    for form in _forms(key, value):
        if strict.load(form, limits) == strict.Loaded({key: value}):
            return form
    return ""


def _forms(key: str, value: object) -> Iterator[str]:
    if not isinstance(value, str):
        yield _dumped(key, value)
        return
    if "\n" in value:
        lines = [f"  {line}" if line else "" for line in value.removesuffix("\n").split("\n")]
        style = "|" if value.endswith("\n") else "|-"
        yield _joined([f"{key}: {style}", *lines])
    else:
        yield f"{key}: {value}\n"
        if not set(value) & set('\\"'):
            yield f'{key}: "{value}"\n'
        single = value.replace("'", "''")
        yield f"{key}: '{single}'\n"
    yield _dumped(key, value)


def _dumped(key: str, value: object) -> str:
    import yaml

    width = 2**20
    dumped: str = yaml.safe_dump({key: value}, allow_unicode=True, sort_keys=False, width=width)
    return dumped
