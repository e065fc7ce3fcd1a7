"""Change one entry in the text of a settings file, and leave everything else as it is.

Comments, order and spelling stay, which no parser of these formats keeps. So the text is edited in
place, parsed again, and compared with the intended document; a text that cannot be edited that way
is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.format import yaml
from skillbelt.text import one_line, read_toml, toml_value
from skillbelt.untrusted_json import BadJson, read_json, read_jsonc

Format = Literal["json", "toml", "yaml"]
MAX_CLIENT_FILE_BYTES = 8 * 2**20
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*+")|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)'
    r'|(?P<mark>[{}\[\]:,])|(?P<word>[^\s{}\[\]:,"/]+)'
)
# What may follow a value on its line and belongs to it.
_REST_OF_LINE = re.compile(r"(?:[ \t]*,)?[ \t]*(?://[^\n]*|/\*[^\n]*?\*/)")
_TABLE = re.compile(r"^[ \t]*\[")
_TOML_VALUE = re.compile(
    r"(?P<head>[ \t]*[\w-]+[ \t]*=[ \t]*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\[[^\[\]#]*\])(?P<rest>[ \t]*(?:#.*)?)"
)
Entry = Mapping[str, object]


class CannotEdit(Exception):
    """The text is valid, but written in a way that cannot be edited in place."""


class Spot(NamedTuple):
    """The position of an entry: the keys above it, and its name."""

    keys: tuple[str, ...]
    name: str


def read_settings(text: str, format: Format, path: str) -> dict[str, Any]:
    """Parse the text; ConfigError with the line when it is not valid."""
    try:
        found = _READERS[format](text)
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error)) or "is nested too deeply"
        raise ConfigError(
            f"{path}: is not valid {format.upper()}: {reason}; fix it, it was left as it is"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: holds no table of settings; it was left as it is")
    return found


def _read_json(text: str) -> object:
    return read_jsonc(text.encode(), most=MAX_CLIENT_FILE_BYTES) if text.strip() else {}


def _read_yaml(text: str) -> object:
    found = yaml.full(text)
    if isinstance(found, yaml.BrokenYaml):
        raise ValueError(f"line {found.problem.line}: {found.problem.message}")
    return found.fields


_READERS: dict[str, Callable[[str], object]] = {
    "json": _read_json,
    "toml": read_toml,
    "yaml": _read_yaml,
}


def find_entry(document: Mapping[str, Any], spot: Spot) -> object:
    """Return the entry; None when there is none."""
    for key in (*spot.keys, spot.name):
        if not isinstance(document, Mapping) or key not in document:
            return None
        document = document[key]
    return document


def put_entry(text: str, format: Format, spot: Spot, entry: Entry) -> str:
    """Return the text with the entry: added, or with these values in place of others.

    Keys of the entry that are not given stay. CannotEdit if the text cannot be edited in place.
    """
    document = read_settings(text, format, "the file")
    before = find_entry(document, spot)
    if before is not None and not isinstance(before, Mapping):
        raise CannotEdit
    meant = _with_entry(document, spot, {**(before or {}), **entry})
    if meant == document:
        return text
    changed = _EDITORS[format](text, spot, entry, before)
    return _verify(text, changed, format, meant)


def drop_entry(text: str, format: Format, spot: Spot) -> str:
    """Return the text without the entry; CannotEdit as `put_entry`."""
    document = read_settings(text, format, "the file")
    if find_entry(document, spot) is None:
        return text
    meant = copy.deepcopy(document)
    table = meant
    for key in spot.keys:
        table = table[key]
    del table[spot.name]
    changed = _REMOVERS[format](text, spot)
    return _verify(text, changed, format, meant)


def _with_entry(document: dict[str, Any], spot: Spot, entry: Entry) -> dict[str, Any]:
    made = copy.deepcopy(document)
    table = made
    for key in spot.keys:
        if table.get(key) is None:
            table[key] = {}
        table = table[key]
        if not isinstance(table, dict):
            raise CannotEdit
    table[spot.name] = dict(entry)
    return made


def _verify(before: str, after: str, format: Format, meant: dict[str, Any]) -> str:
    """Return the text if it parses to the intended document; plain JSON stays plain JSON."""
    if "\r\n" in before:
        after = re.sub(r"(?<!\r)\n", "\r\n", after)
    try:
        found = read_settings(after, format, "the file")
        if format == "json" and before.strip():
            _same_dialect(before, after)
    except ConfigError as error:
        raise CannotEdit from error
    # A table of TOML is gone with its last entry; one of YAML is then empty.
    if _without_empty(found) != _without_empty(meant):
        raise CannotEdit
    return after


def _same_dialect(before: str, after: str) -> None:
    try:
        read_json(before)
    except BadJson:
        return
    try:
        read_json(after)
    except BadJson as error:
        raise CannotEdit from error


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without empty tables at its top level."""
    return {key: value for key, value in document.items() if value not in ({}, None)}


# JSON, with comments or without


class _JsonMember(NamedTuple):
    """A member of an object: the offsets of its key and value, and of the comma after it."""

    key: str
    start: int
    value: int
    end: int
    comma: int
    inner: _JsonObject | None


class _JsonObject:
    """An object or a list in the text; only the members of objects are recorded."""

    def __init__(self, start: int, is_object: bool) -> None:
        self.start, self.end, self.is_object = start, 0, is_object
        self.members: list[_JsonMember] = []
        self.key: tuple[str, int] | None = None

    def find(self, key: str) -> _JsonMember | None:
        """Return the member; CannotEdit when there are several of that name."""
        found = [one for one in self.members if one.key == key]
        if len(found) > 1:
            raise CannotEdit
        return found[0] if found else None

    def take(self, value: tuple[int, int], inner: _JsonObject | None = None) -> None:
        """Record a finished value, with the key before it."""
        if self.is_object and self.key is not None:
            self.members.append(_JsonMember(*self.key, *value, comma=0, inner=inner))
            self.key = None


def _scan_json(text: str) -> _JsonObject:
    """Find the members of every object in valid JSON."""
    top = _JsonObject(0, False)
    stack = [top]
    root = top
    for match in _TOKEN.finditer(text):
        here, token = stack[-1], match[0]
        if match["comment"]:
            continue
        if token in ("{", "["):
            stack.append(_JsonObject(match.start(), token == "{"))
            root = stack[1] if root is top else root
        elif token in ("}", "]"):
            stack.pop()
            here.end = match.end()
            stack[-1].take((here.start, here.end), here)
        elif token == ",":
            if here.members and here.is_object:
                here.members[-1] = here.members[-1]._replace(comma=match.end())
        elif token != ":":
            if here.is_object and here.key is None:
                here.key = (str(read_json(token)), match.start())
            else:
                here.take((match.start(), match.end()))
    if not root.is_object:
        raise CannotEdit
    return root


def _indent_at(text: str, place: int) -> str | None:
    """Return the white space before the offset if nothing else is on its line."""
    start = text.rfind("\n", 0, place) + 1
    before = text[start:place]
    return before if not before.strip() and start else None


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str, root: _JsonObject) -> str:
    """Return the indentation of one level."""
    first = _indent_at(text, root.members[0].start) if root.members else None
    return first or "  "


def _render_json(value: object, indent: str, unit: str) -> str:
    """Return the value as text: tables over several lines, everything else on one."""
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + unit
    lines = [
        f"{deeper}{json.dumps(key)}: {_render_json(one, deeper, unit)}"
        for key, one in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _end_of_line(text: str, place: int) -> int:
    """Return the end of a value's line: after a comma, and comments."""
    while (match := _REST_OF_LINE.match(text, place)) is not None:
        place = match.end()
    return place


def _insert_member(text: str, here: _JsonObject, key: str, value: object, unit: str) -> str:
    if not here.members:
        return _insert_first(text, here, key, value, unit)
    last = here.members[-1]
    indent = _indent_at(text, here.members[0].start)
    if indent is None:
        written = f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        at = last.comma or last.end
        return f"{text[:at]}{'' if last.comma else ','}{written}{text[at:]}"
    at = _end_of_line(text, last.comma or last.end)
    written = f"\n{indent}{json.dumps(key)}: {_render_json(value, indent, unit)}"
    if last.comma:
        return f"{text[:at]}{written},{text[at:]}"
    return f"{text[: last.end]},{text[last.end : at]}{written}{text[at:]}"


def _insert_first(text: str, here: _JsonObject, key: str, value: object, unit: str) -> str:
    base = _line_indent(text, here.start)
    written = f"\n{base}{unit}{json.dumps(key)}: {_render_json(value, base + unit, unit)}"
    if not text[here.start + 1 : here.end - 1].strip():
        return f"{text[: here.start + 1]}{written}\n{base}{text[here.end - 1 :]}"
    at = _end_of_line(text, here.start + 1)
    end = "" if "\n" in text[at : here.end] else f"\n{base}"
    return f"{text[:at]}{written}{end}{text[at:]}"


def _put_json(text: str, spot: Spot, entry: Entry, before: object) -> str:
    if not text.strip():
        value: object = dict(entry)
        for key in (spot.name, *reversed(spot.keys)):
            value = {key: value}
        return _render_json(value, "", "  ") + "\n"
    if isinstance(before, Mapping):
        return _change_json(text, spot, entry, before)
    root = here = _scan_json(text)
    unit = _unit(text, root)
    names = [*spot.keys, spot.name]
    value = dict(entry)
    for number, key in enumerate(names):
        member = here.find(key)
        if member is None:
            for above in reversed(names[number + 1 :]):
                value = {above: value}
            return _insert_member(text, here, key, value, unit)
        if member.inner is None or not member.inner.is_object:
            raise CannotEdit
        here = member.inner
    raise CannotEdit


def _change_json(text: str, spot: Spot, entry: Entry, before: Mapping[str, object]) -> str:
    for key, value in entry.items():
        if key in before and before[key] == value:
            continue
        root = here = _scan_json(text)
        for name in (*spot.keys, spot.name):
            member = here.find(name)
            if member is None or member.inner is None:
                raise CannotEdit
            here = member.inner
        old = here.find(key)
        if old is None:
            text = _insert_member(text, here, key, value, _unit(text, root))
        else:
            text = text[: old.value] + json.dumps(value, ensure_ascii=False) + text[old.end :]
    return text


def _drop_json(text: str, spot: Spot) -> str:
    here = _scan_json(text)
    for key in spot.keys:
        member = here.find(key)
        if member is None or member.inner is None:
            raise CannotEdit
        here = member.inner
    gone = here.find(spot.name)
    if gone is None:
        raise CannotEdit
    number = here.members.index(gone)
    text = _cut_out(text, gone.start, gone.comma or gone.end)
    if not gone.comma and number:
        comma = here.members[number - 1].comma
        text = text[: comma - 1] + text[comma:]
    return text


def _cut_out(text: str, start: int, end: int) -> str:
    """Return the text without that part, and without lines that become empty."""
    indent = _indent_at(text, start)
    if indent is not None:
        rest = re.compile(r"[ \t]*\r?\n").match(text, end)
        if rest is not None:
            return text[: start - len(indent)] + text[rest.end() :]
    return text[:start].rstrip(" \t") + text[end:]


# TOML


def _put_toml(text: str, spot: Spot, entry: Entry, before: object) -> str:
    if isinstance(before, Mapping):
        return _change_toml(text, spot, entry, before)
    apart = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    lines = [f"[{'.'.join((*spot.keys, spot.name))}]"]
    lines += [f"{key} = {toml_value(value)}" for key, value in entry.items()]
    return text + apart + "\n".join(lines) + "\n"


def _find_table(lines: Sequence[str], spot: Spot) -> tuple[int, int]:
    """Return the lines of a table: from its header to the line after its last key."""
    names = r"\s*\.\s*".join(rf"[\"']?{re.escape(key)}[\"']?" for key in (*spot.keys, spot.name))
    head = re.compile(rf"[ \t]*\[\s*{names}\s*\][ \t]*(?:#.*)?\r?\n?")
    starts = [number for number, line in enumerate(lines) if head.fullmatch(line)]
    if len(starts) != 1:
        raise CannotEdit
    start = end = starts[0]
    for number in range(start + 1, len(lines)):
        if _TABLE.match(lines[number]):
            break
        # Comments at the end may belong to the table that follows.
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            end = number
    return start, end + 1


def _change_toml(text: str, spot: Spot, entry: Entry, before: Mapping[str, object]) -> str:
    for key, value in entry.items():
        if key in before and before[key] == value:
            continue
        lines = text.splitlines(keepends=True)
        start, end = _find_table(lines, spot)
        written = f"{key} = {toml_value(value)}"
        if key not in before:
            lines.insert(start + 1, f"{written}\n")
            text = "".join(lines)
            continue
        places = [n for n in range(start, end) if re.match(rf"[ \t]*{key}[ \t]*=", lines[n])]
        if len(places) != 1:
            raise CannotEdit
        text = _replace_value(lines, places[0], end, written, (spot, key, value))
    return text


def _replace_value(
    lines: list[str], start: int, end: int, written: str, meant: tuple[Spot, str, object]
) -> str:
    """Replace the lines of a value: as many as make the text parse as intended."""
    spot, key, value = meant
    plain = _TOML_VALUE.fullmatch(lines[start].rstrip("\r\n"))
    written += plain["rest"] if plain else ""
    for last in range(start + 1, end + 1):
        made = "".join([*lines[:start], f"{written}\n", *lines[last:]])
        try:
            found = find_entry(read_toml(made), spot)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, Mapping) and found.get(key) == value:
            return made
    raise CannotEdit


def _drop_toml(text: str, spot: Spot) -> str:
    names = r"\s*\.\s*".join(rf"[\"']?{re.escape(key)}[\"']?" for key in (*spot.keys, spot.name))
    below = re.compile(rf"[ \t]*\[\s*{names}\s*[.\]]")
    lines = text.splitlines(keepends=True)
    while any(map(below.match, lines)):
        number = next(n for n, line in enumerate(lines) if below.match(line))
        end = number + 1
        for later in range(number + 1, len(lines)):
            if _TABLE.match(lines[later]):
                break
            if lines[later].strip() and not lines[later].lstrip().startswith("#"):
                end = later + 1
        del lines[number:end]
        # The empty lines before and after it are as many as before one table.
        while number < len(lines) and not lines[number].strip() and _is_blank(lines, number - 1):
            del lines[number]
        if number == len(lines) and number and not lines[-1].strip():
            del lines[-1]
    return "".join(lines)


def _is_blank(lines: Sequence[str], number: int) -> bool:
    return number < 0 or not lines[number].strip()


# YAML


def _compose(text: str) -> Any:
    """Return the nodes of a text that was parsed before, and is within its limits."""
    library = yaml.library()
    return library.compose(text, Loader=library.SafeLoader)


def _yaml_pair(node: Any, key: str) -> tuple[Any, Any] | None:
    if node is None:
        return None
    if node.id != "mapping":
        raise CannotEdit
    found = [pair for pair in node.value if pair[0].id == "scalar" and pair[0].value == key]
    if len(found) > 1:
        raise CannotEdit
    return found[0] if found else None


def _yaml_end(node: Any) -> int:
    """Return where the text of a node ends.

    The end mark of a block is after the blank lines below it.
    """
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if node.id == "mapping" else last
    found: int = node.end_mark.index
    return found


def _yaml_lines(entry: Entry, name: str, indent: str) -> str:
    lines = [f"{indent}{name}:\n"]
    lines += [
        f"{indent}  {key}: {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in entry.items()
    ]
    return "".join(lines)


def _after_line(text: str, place: int) -> tuple[str, str]:
    """Return the text up to the end of a line, and the rest."""
    end = text.find("\n", place)
    if end < 0:
        return f"{text}\n", ""
    return text[: end + 1], text[end + 1 :]


def _put_yaml(text: str, spot: Spot, entry: Entry, before: object) -> str:
    if isinstance(before, Mapping):
        return _change_yaml(text, spot, entry, before)
    [top] = spot.keys
    pair = _yaml_pair(_compose(text), top)
    if pair is None:
        apart = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{apart}{top}:\n{_yaml_lines(entry, spot.name, '  ')}"
    key, value = pair
    if value.id == "mapping" and value.value and not value.flow_style:
        first = value.value[0][0].start_mark
        if first.line == key.start_mark.line:
            raise CannotEdit
        head, rest = _after_line(text, key.end_mark.index)
        return head + _yaml_lines(entry, spot.name, " " * first.column) + rest
    if value.value not in ([], "", "~", "null"):
        raise CannotEdit
    text = text[: value.start_mark.index].rstrip(" ") + text[value.end_mark.index :]
    head, rest = _after_line(text, key.end_mark.index)
    return head + _yaml_lines(entry, spot.name, "  ") + rest


def _change_yaml(text: str, spot: Spot, entry: Entry, before: Mapping[str, object]) -> str:
    for key, value in entry.items():
        if key in before and before[key] == value:
            continue
        node = _compose(text)
        for name in (*spot.keys, spot.name):
            pair = _yaml_pair(node, name)
            if pair is None or pair[1].id != "mapping" or pair[1].flow_style:
                raise CannotEdit
            above, node = pair
        written = json.dumps(value, ensure_ascii=False)
        old = _yaml_pair(node, key)
        if old is None:
            head, rest = _after_line(text, above.end_mark.index)
            text = f"{head}{' ' * node.value[0][0].start_mark.column}{key}: {written}\n{rest}"
        else:
            text = f"{text[: old[0].end_mark.index]}: {written}{text[_yaml_end(old[1]) :]}"
    return text


def _drop_yaml(text: str, spot: Spot) -> str:
    [top] = spot.keys
    above = _yaml_pair(_compose(text), top)
    pair = _yaml_pair(above[1], spot.name) if above else None
    if above is None or pair is None or above[1].flow_style:
        raise CannotEdit
    start = text.rfind("\n", 0, pair[0].start_mark.index) + 1
    _, rest = _after_line(text, _yaml_end(pair[1]))
    head = text[:start]
    if len(above[1].value) == 1:
        at = above[0].end_mark.index + 1
        head = f"{head[:at]} {{}}{head[at:]}"
    return head + rest


_EDITORS: dict[str, Callable[[str, Spot, Entry, object], str]] = {
    "json": _put_json,
    "toml": _put_toml,
    "yaml": _put_yaml,
}
_REMOVERS: dict[str, Callable[[str, Spot], str]] = {
    "json": _drop_json,
    "toml": _drop_toml,
    "yaml": _drop_yaml,
}
