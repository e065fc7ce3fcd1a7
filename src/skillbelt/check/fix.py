"""Fix a SKILL.md without changing its meaning.

Each step edits as few lines as possible. After each the file is parsed again: if the name, the
description, any other field or the body differs, the step is undone and reported.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from difflib import unified_diff

from skillbelt.check.check import MAX_NAME_CHARS
from skillbelt.check.rules import finding
from skillbelt.errors import PathEscape
from skillbelt.files.contain import READ_FILE, create_beneath, open_beneath, open_dir, read_handle
from skillbelt.format import yaml as strict
from skillbelt.format import yaml_repair
from skillbelt.format.fields import KNOWN, closest_field, correct_spelling, to_frontmatter
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES, parse, split
from skillbelt.format.yaml_fast import TEXT_KEYS, AsWritten
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE, Diagnostic, Frontmatter

_MARKS = re.compile(rb"\A(?:\xef\xbb\xbf)++")
_UNMARKED = "removed the byte-order mark"
_ROUNDS = 8
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[\w-]*\Z")
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class Draft(NamedTuple):
    """A file in three parts. `block` has LF ends and is the only part that steps edit.

    `shaped` says what was done to bring it into that form, if anything; `moved` is the text from
    before the block, which now begins the body.
    """

    before: str
    block: str
    after: str
    eol: str
    shaped: str = ""
    moved: str = ""

    def data(self) -> bytes:
        """Return the bytes of the file."""
        return (self.before + self.block.replace("\n", self.eol) + self.after).encode()


class Meaning(NamedTuple):
    """The fields and the body of a file, independent of how they are written."""

    fields: Frontmatter
    body: bytes


class FixedBytes(NamedTuple):
    """The new bytes, the steps done, and the steps dropped because they changed the meaning."""

    data: bytes
    done: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class KeyLines(NamedTuple):
    """One top-level key with its lines; the key is "" for lines before the first key."""

    key: str
    lines: list[str]

    def text(self) -> str:
        """Return the lines without comments and document marks."""
        kept = [line for line in self.lines if not line.startswith(("#", "---", "..."))]
        return "\n".join(kept).rstrip() + "\n"

    def comments(self) -> list[str]:
        """Return the lines that are not part of the value: comments, and blank lines at the end."""
        size = len(self.lines)
        while size > 1 and not self.lines[size - 1].strip():
            size -= 1
        return [line for line in self.lines[:size] if line.startswith("#")] + self.lines[size:]


Step = Callable[[str, str], str]


# --- bytes to bytes ------------------------------------------------------------------------------


def fix_bytes(data: bytes, *, folder: str, unsafe: bool = False) -> FixedBytes:
    """Apply every fix that keeps the meaning; a second call changes nothing.

    With `unsafe`, also apply those that may change it: the intended spelling of a field or a name
    is a guess.
    """
    kept = _fix_safely(data, folder)
    if not unsafe:
        return kept
    guessed = _guess(kept.data, folder)
    if not guessed.done:
        return kept
    again = _fix_safely(guessed.data, folder)
    done = dict.fromkeys((*kept.done, *guessed.done, *again.done))
    return FixedBytes(again.data, tuple(done), again.dropped)


def _guess(data: bytes, folder: str) -> FixedBytes:
    """Apply the fixes that may change the meaning of a field, never that of the body."""
    draft, body = _draft(data), _meaning(data, folder).body
    if draft is None or draft.shaped:
        return FixedBytes(data)
    done: list[str] = []
    for title, step in UNSAFE_STEPS:
        wanted = draft._replace(block=step(draft.block, folder))
        readable = isinstance(strict.load(wanted.block), strict.LoadedYaml)
        same = readable and _meaning(wanted.data(), folder).body == body
        if wanted.block != draft.block and same:
            done.append(title)
            draft = wanted
    return FixedBytes(draft.data(), tuple(done))


def _fix_safely(data: bytes, folder: str) -> FixedBytes:
    done: dict[str, None] = {}
    dropped: tuple[str, ...] = ()
    unmarked = _without_marks(data)
    if unmarked != data:
        if _meaning(unmarked, folder) != _meaning(data, folder):
            return FixedBytes(data, (), (_UNMARKED,))
        done[_UNMARKED] = None
    plain = unmarked
    # One step can make another possible, so all are repeated until none has an effect.
    for _ in range(_ROUNDS):
        once = _fix_once(plain, folder)
        done |= dict.fromkeys(once.done)
        plain, dropped = once.data, once.dropped
        if not once.done:
            break
    return FixedBytes(plain, tuple(done), dropped)


def _without_marks(data: bytes) -> bytes:
    return _MARKS.sub(b"", data, count=1)


def _fix_once(data: bytes, folder: str) -> FixedBytes:
    draft = _draft(data)
    if draft is None:
        return FixedBytes(data)
    meaning = _meaning(data, folder)
    if draft.shaped and not _keeps_meaning(meaning, draft, folder):
        return FixedBytes(data, (), (draft.shaped,))
    done = [draft.shaped] if draft.shaped else []
    dropped: list[str] = []
    for title, step in STEPS:
        wanted = draft._replace(block=step(draft.block, folder))
        if wanted.block != draft.block:
            same = _keeps_meaning(meaning, wanted, folder)
            (done if same else dropped).append(title)
            draft = wanted if same else draft
    return FixedBytes(draft.data(), tuple(done), tuple(dropped))


def _meaning(data: bytes, folder: str) -> Meaning:
    parsed = parse(data, path="", folder=folder)
    fields: dict[str, object] = {}
    for key, value in parsed.fields.items():
        known = correct_spelling(key, parsed.fields)
        fields[key if not known or known in fields else known] = value
    fields["name"] = fields.get("name") or folder
    return Meaning(to_frontmatter(fields), _without_marks(data[parsed.body_offset :]))


def _keeps_meaning(meaning: Meaning, draft: Draft, folder: str) -> bool:
    """Whether the draft has the same meaning, with `moved` in front of the body."""
    expected = meaning._replace(body=draft.moved.encode() + meaning.body)
    return _meaning(draft.data(), folder) == expected


# --- the shape of the file -----------------------------------------------------------------------


def _draft(data: bytes) -> Draft | None:
    """Split the file into its parts; None when it has no block that can be edited."""
    if parse(data, path="", folder="").state not in ("strict", "repaired"):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    found = split(data)
    if found is None:
        return _draft_misplaced(text)
    before, block = data[: found.start].decode(), data[found.start : found.end].decode()
    eol = _eol(before + block)
    if not eol:
        return None
    draft = Draft(before, block.replace("\r\n", "\n"), data[found.end :].decode(), eol)
    return _close_block(draft)


def _eol(text: str) -> str:
    """Return the line ending; "" when there are several, so that writing one would change some."""
    crlf = text.count("\r\n")
    return "\n" if not crlf else "\r\n" if crlf == text.count("\n") else ""


def _close_block(draft: Draft) -> Draft:
    """Move the closing line to where the keys end, if a later `---` was mistaken for it."""
    if isinstance(strict.load(draft.block), strict.LoadedYaml):
        return draft
    ended = yaml_repair.inner_end(draft.block)
    if not ended:
        return draft
    rest = draft.block[ended[1] :].replace("\n", draft.eol)
    return draft._replace(
        block=draft.block[: ended[0]],
        after=f"---{draft.eol}{rest}{draft.after}",
        shaped="closed the frontmatter with a separate line",
    )


def _draft_misplaced(text: str) -> Draft | None:
    """Return the draft of a file without `---` at the top, or with a malformed closing line."""
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
    """Return the text before a block, without its opening line, its code fence and blank lines."""
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


def remove_controls(block: str, folder: str) -> str:
    """Remove the characters that YAML refuses."""
    return yaml_repair.without_controls(block)


def quote_values(block: str, folder: str) -> str:
    """Quote the values that keep the block from being YAML."""
    if isinstance(strict.load(block), strict.LoadedYaml):
        return block
    lines: list[str] = []
    for entry in _entries(block):
        lines += entry.lines if _is_valid_yaml(entry) else _rewrite(entry)
    wanted = _join(lines)
    return wanted if isinstance(strict.load(wanted), strict.LoadedYaml) else block


def _is_valid_yaml(entry: KeyLines) -> bool:
    if not entry.key:
        return not any(line.strip() and not line.startswith("#") for line in entry.lines)
    if any(line.startswith(("---", "...")) for line in entry.lines):
        return False
    alone = strict.load(_join(entry.lines))
    return isinstance(alone, strict.LoadedYaml) and len(alone.fields) == 1


def _rewrite(entry: KeyLines) -> list[str]:
    """Return the entry as YAML of what the repair pass read; unchanged if that is ambiguous."""
    fields = yaml_repair.read(entry.text()).fields
    if entry.key not in fields or len(fields) != 1 or _is_guess(entry, fields[entry.key]):
        return entry.lines
    written = _format_pair(entry.key, fields[entry.key])
    return [*written.rstrip("\n").split("\n"), *entry.comments()] if written else entry.lines


def _is_guess(entry: KeyLines, value: object) -> bool:
    """Whether a broken list or mapping was read as text: quotes would make that permanent."""
    if entry.key in TEXT_KEYS or not isinstance(value, str):
        return False
    return value[:1] in ("[", "{") or "\n" in entry.text().strip()


def spell_keys(block: str, folder: str) -> str:
    """Correct the names of known fields."""
    return _rename_keys(block, correct_spelling)


def guess_keys(block: str, folder: str) -> str:
    """Rename each field that looks like a known one to the known name."""
    return _rename_keys(
        block, lambda key, present: "" if key in KNOWN else closest_field(key, present)
    )


def guess_name(block: str, folder: str) -> str:
    """Write the folder's name as the name, if it is valid and the present one differs."""
    loaded = strict.load(block)
    if not isinstance(loaded, strict.LoadedYaml) or loaded.fields.get("name") in (None, "", folder):
        return block
    if not _PLAIN_NAME.match(folder) or len(folder) > MAX_NAME_CHARS:
        return block
    return _replace_value(block, "name", folder)


def _rename_keys(block: str, meant: Callable[[str, Container[str]], str]) -> str:
    entries = list(_entries(block))
    present = {entry.key for entry in entries}
    lines: list[str] = []
    for key, own in entries:
        known = meant(key, present) if key else ""
        match = yaml_repair.KEY_LINE.match(own[0]) if known else None
        if match:
            present.add(known)
            own = [own[0][: match.start(2)] + known + own[0][match.end(2) :], *own[1:]]
        lines += own
    return _join(lines)


def join_tools(block: str, folder: str) -> str:
    """Write the allowed tools as one string, if no tool contains a blank."""
    loaded = strict.load(block)
    if not isinstance(loaded, strict.LoadedYaml):
        return block
    tools = to_frontmatter(loaded.fields).allowed_tools
    value = " ".join(tools)
    wrong = isinstance(loaded.fields.get("allowed-tools"), list) or _has_commas(loaded.fields)
    if not wrong or not tools or len(value.split()) != len(tools):
        return block
    return _replace_value(block, "allowed-tools", value)


def _has_commas(fields: dict[str, object]) -> bool:
    value = fields.get("allowed-tools")
    return isinstance(value, str) and "," in re.sub(r"\([^()]*\)", "", value)


def add_name(block: str, folder: str) -> str:
    """Add the folder's name as the name, if there is none and it is a valid one."""
    loaded = strict.load(block)
    if not isinstance(loaded, strict.LoadedYaml) or loaded.fields.get("name"):
        return block
    if not _PLAIN_NAME.match(folder) or len(folder) > MAX_NAME_CHARS:
        return block
    if "name" in loaded.fields:
        return _replace_value(block, "name", folder)
    return _format_pair("name", folder) + block


STEPS: tuple[tuple[str, Step], ...] = (
    ("removed control characters", remove_controls),
    ("corrected the names of fields", spell_keys),
    ("put values in quotes", quote_values),
    ("wrote allowed-tools as one string", join_tools),
    ("added the name", add_name),
)

UNSAFE_STEPS: tuple[tuple[str, Step], ...] = (
    ("guessed the names of fields", guess_keys),
    ("wrote the folder's name as the name", guess_name),
)


# --- lines of a block ----------------------------------------------------------------------------


def _entries(block: str) -> Iterator[KeyLines]:
    """Yield the lines of the block by the key they belong to."""
    entry = KeyLines("", [])
    for line in block.removesuffix("\n").split("\n"):
        match = yaml_repair.KEY_LINE.match(line)
        if match:
            if entry.lines:
                yield entry
            entry = KeyLines(match[2], [])
        entry.lines.append(line)
    yield entry


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _replace_value(block: str, key: str, value: str) -> str:
    """Replace the key's value by a text; no change where a comment would be lost."""
    written = _format_pair(key, value)
    lines: list[str] = []
    for entry in _entries(block):
        if entry.key == key and written and "#" not in entry.text():
            lines += [*written.rstrip("\n").split("\n"), *entry.comments()]
        else:
            lines += entry.lines
    return _join(lines)


def _format_pair(key: str, value: object) -> str:
    """Return the key and value in the plainest YAML that reads back the same; "" if none does."""
    for form in _forms(key, value):
        if strict.load(form) == strict.LoadedYaml({key: value}):
            return form
    return ""


def _forms(key: str, value: object) -> Iterator[str]:
    if not isinstance(value, str):
        yield _dump(key, value)
        return
    if "\n" in value:
        lines = [f"  {line}" if line else "" for line in value.removesuffix("\n").split("\n")]
        style = "|" if value.endswith("\n") else "|-"
        yield _join([f"{key}: {style}", *lines])
    else:
        yield f"{key}: {value}\n"
        if not set(value) & set('\\"'):
            yield f'{key}: "{value}"\n'
        single = value.replace("'", "''")
        yield f"{key}: '{single}'\n"
    yield _dump(key, value)


def _dump(key: str, value: object) -> str:
    dump = strict.library().safe_dump
    if isinstance(value, dict):
        value = {
            name: str(one) if isinstance(one, AsWritten) else one for name, one in value.items()
        }
    dumped: str = dump({key: value}, allow_unicode=True, sort_keys=False, width=2**20)
    return dumped


# --- files on disk --------------------------------------------------------------------------------


class Fixed(NamedTuple):
    """The result for one file on disk. `path` is its path now, `was` its path before."""

    path: str
    was: str
    before: bytes
    after: bytes
    done: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def fix_file(path: str, *, dry_run: bool = False, fence: str = "", unsafe: bool = False) -> Fixed:
    """Fix one SKILL.md in place, and correct its name. Never raises.

    The file is replaced atomically, in a folder that was opened inside the fence, if there is one.
    A link, anything but a regular file, and a file that changes meanwhile are left alone.
    """
    path = os.path.abspath(path)
    try:
        folder = open_dir(os.path.dirname(path), fence)
    except (OSError, PathEscape):
        return Fixed(path, path, b"", b"")
    try:
        return _fix(folder, path, dry_run=dry_run, unsafe=unsafe)
    finally:
        os.close(folder)


def _fix(folder: int, path: str, *, dry_run: bool, unsafe: bool) -> Fixed:
    name = os.path.basename(path)
    try:
        data = _read(folder, name, MAX_CHECKED_BYTES + 1)
    except PathEscape:
        refusal = _say_dropped(path, "not fixed: the file is a link; fix the file it leads to")
        return Fixed(path=path, was=path, before=b"", after=b"", done=(), diagnostics=(refusal,))
    except OSError:
        return Fixed(path, path, b"", b"")
    if len(data) > MAX_CHECKED_BYTES:
        data = data[:MAX_CHECKED_BYTES]
        refusal = _say_dropped(path, f"not fixed: the file has more than {len(data):,} bytes")
        return Fixed(path=path, was=path, before=data, after=data, done=(), diagnostics=(refusal,))
    name = os.path.basename(os.path.dirname(path))
    result = fix_bytes(data, folder=name, unsafe=unsafe)
    dropped = [
        _say_dropped(path, f"not done, as it would change the meaning: {step}")
        for step in result.dropped
    ]
    fixed = Fixed(
        path=path,
        was=path,
        before=data,
        after=result.data,
        done=result.done,
        diagnostics=tuple(dropped),
    )
    fixed = _correct_name(folder, fixed)
    return fixed if dry_run else _write(folder, fixed)


def _read(folder: int, name: str, most: int) -> bytes:
    """Read the start of a regular file; PathEscape for a link, OSError for anything else."""
    handle = open_beneath(folder, name, READ_FILE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return read_handle(handle, most)


def _say_dropped(path: str, reason: str) -> Diagnostic:
    return finding("fix-dropped", path, None, reason)


def _correct_name(folder: int, fixed: Fixed) -> Fixed:
    """Set the right name if the present one differs only in case and the right one is free."""
    above, name = os.path.split(fixed.path)
    if name == SKILL_FILE or name.lower() != SKILL_FILE.lower():
        return fixed
    if not _is_free(folder, name):
        dropped = _say_dropped(fixed.path, f"not renamed: there is a {SKILL_FILE} beside it")
        return fixed._replace(diagnostics=(*fixed.diagnostics, dropped))
    right = os.path.join(above, SKILL_FILE)
    return fixed._replace(path=right, done=(*fixed.done, f"renamed {name} to {SKILL_FILE}"))


def _is_free(folder: int, name: str) -> bool:
    """Whether the right name is free, or is this file on a disk that ignores case."""
    try:
        there = os.stat(SKILL_FILE, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return os.path.samestat(there, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _write(folder: int, fixed: Fixed) -> Fixed:
    name, right = os.path.basename(fixed.was), os.path.basename(fixed.path)
    try:
        if fixed.after != fixed.before:
            _replace(folder, name, fixed.before, fixed.after)
        if right != name:
            os.rename(name, right, src_dir_fd=folder, dst_dir_fd=folder)
    except (OSError, PathEscape) as error:
        diagnostics = (*fixed.diagnostics, _say_dropped(fixed.was, f"not fixed: {error}"))
        return Fixed(
            path=fixed.was,
            was=fixed.was,
            before=fixed.before,
            after=fixed.before,
            done=(),
            diagnostics=diagnostics,
        )
    return fixed


def _replace(folder: int, name: str, before: bytes, after: bytes) -> None:
    """Replace the file atomically by one with the new bytes and the same mode and owner."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    part = f".skillbelt-{os.urandom(8).hex()}"
    try:
        with open(create_beneath(folder, part), "wb") as file:
            file.write(after)
            file.flush()
            with suppress(OSError):
                os.fchown(file.fileno(), info.st_uid, info.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(info.st_mode))
            os.fsync(file.fileno())
        if _read(folder, name, len(before) + 1) != before:
            raise OSError(errno.EBUSY, "the file was changed meanwhile")
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def diff(fixed: Fixed, root: str) -> Iterator[str]:
    """Yield the change as the lines of a unified diff, with paths relative to the root."""
    old, new = (os.path.relpath(path, root) for path in (fixed.was, fixed.path))
    before, after = (_lines(data) for data in (fixed.before, fixed.after))
    changed = list(unified_diff(before, after, f"a/{old}", f"b/{new}", n=2, lineterm=""))
    if old != new:
        yield from (f"rename from {old}", f"rename to {new}")
    yield from changed


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n")
