"""YAML as it stands: a fast reader for the shapes most files have, libyaml for all the others.

The fast reader answers only where its answer is provably what YAML says; it takes a fifth of the
time, and most processes never import yaml because of it. Nothing here ever builds a Python object
from a tag, and nothing recurses before the depth of the text is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skillbelt.values import Limits

_Node = Any  # yaml's nodes: telling them apart by `id` spares an import on every call

_HYPHENED = {"name", "description", "license", "compatibility", "version", "when-to-use"} | {
    "argument-hint",
    "model",
    "effort",
    "context",
    "agent",
    "shell",
}
# Text by specification: what the author typed is the value, whatever YAML would make of it.
TEXT_KEYS: Final = frozenset(_HYPHENED | {key.replace("-", "_") for key in _HYPHENED})
_CUTS_MATTER = ("name", "description")
_REPORTED = 8  # more of the same kind say nothing new


if TYPE_CHECKING:
    Lazy = re.compile
else:

    class Lazy:
        """A pattern that is compiled when it is first used.

        To compile them all takes as long as the interpreter needs to start, and a process that
        finds a fresh index needs none of them.
        """

        def __init__(self, pattern, flags=0):
            self.source = pattern, flags

        def __getattr__(self, name):
            method = getattr(re.compile(*self.source), name)
            setattr(self, name, method)
            return method


class Problem(NamedTuple):
    """Something odd in a block; `line` counts from 1 inside the block."""

    code: str
    line: int
    message: str
    remedy: str


class Loaded(NamedTuple):
    """A mapping that YAML could read."""

    fields: dict[str, object]
    problems: tuple[Problem, ...] = ()


class Broken(NamedTuple):
    """Why there is no mapping. A `guard` means hostile: nothing more may be tried on the text."""

    problem: Problem
    guard: bool = False


# --- the fast reader -----------------------------------------------------------------------------

_KEY = "([A-Za-z_][A-Za-z0-9_-]{0,99})"
# What may start a plain scalar. Said by what may not, for a class that names all the letters of
# Unicode takes milliseconds to compile.
_LETTER = r"[^\x00-@\[-`{-\x7f]"
_FIRST = r"[^\x00-#%-')-.:=-@\[\]`{-\x7f]"
# A colon before a blank and a hash after one end a plain scalar; elsewhere they are text.
_LINE = rf"{_FIRST}[^:#\n]*+(?:(?::(?![ \n])|(?<! )#)[^:#\n]*+)*+"
_LINES = rf"{_FIRST}[^:#\n]*+(?:(?::(?![ \n])|(?<! )#|\n+ )[^:#\n]*+)*+"
_SINGLE = r"'[^'\n]*+(?:(?:''|\n(?=[ \n]))[^'\n]*+)*+'"
# Escapes as dumpers write them; an escaped line end joins the lines.
_ESCAPED = r'\\(?:[ntr"\\ ]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U0001[0-9a-fA-F]{4}|\n +(?=[^ \n]))'
_DOUBLE = rf'"[^"\\\n]*+(?:(?:{_ESCAPED}|\n(?=[ \n]))[^"\\\n]*+)*+"'
_FLOW = r"\[[^][{}\n]*\]|\{[^][{}\n]*\}"
_ENTRY = Lazy(
    rf"{_KEY}:(?: +(?:({_LINES})|({_SINGLE}|{_DOUBLE}) *|({_FLOW}) *)\n+"
    r"| +([>|]-?) *\n((?: +[^\n]*\n|\n)+)"
    r"| *\n+((?:(?: *- | +)[^\n]*\n+)++)| *\n+)|((?s:.+))"
)
_WORDS_LIST = Lazy(rf"( *)- {_LETTER}[^:#\n]*\n(?:\1- {_LETTER}[^:#\n]*\n)*")
_ONE_LINE = rf"({_LINE})|('[^'\n]*'|\"[^\"\\\n]*\") *|({_FLOW}) *"
_MEMBER = Lazy(rf"( +){_KEY}:(?: +(?:{_ONE_LINE})\n| *\n((?:\1(?:- | +)[^\n]*\n)*+))|((?s:.+))")
_LIST_ITEM = Lazy(rf"( *)- +(?:{_ONE_LINE})\n|((?s:.+))")
_LIST_BLOCK = Lazy(r"( *)- ([^\n]*\n(?:\1  [^\n]*\n)*+)|((?s:.+))")
_FLOW_ITEM = Lazy(rf" *(?:({_LETTER}[^][,:#?{{}}]*)|('[^'\n]*'|\"[^\"\\\n]*\") *)(?:,(?=.)|$)|(.+)")
_FLOW_PAIR = Lazy(r' *"([^"\\]{0,99})": +("[^"\\]*") *(?:,(?=.)|$)|(.+)')
_BELOW = Lazy(rf" +({_LINES})\n+")
_CONSTANTS: dict[str, object] = {
    **{form: True for word in ("yes", "true", "on") for form in (word, word.title(), word.upper())},
    **{
        form: False
        for word in ("no", "false", "off")
        for form in (word, word.title(), word.upper())
    },
    **dict.fromkeys(("null", "Null", "NULL")),
}
_WORDS = frozenset(_CONSTANTS)
_INTEGER = Lazy(r"(?:0|[1-9][0-9]{0,15})\Z")
_FLOAT = Lazy(r"[0-9]{1,15}\.[0-9]{1,15}\Z")
# No number goes on like these; a date stays text.
_DIGIT_TEXT = Lazy(
    r"[0-9][A-Za-z0-9.]*(?: +[A-Za-z(]|(?:\.[0-9]+){2}\Z)|[0-9]{4}-[0-9]{2}-[0-9]{2}\Z"
    r"|[0-9][0-9.]*[acdf-wyzACDF-WYZ(]"
)
_FOLD = Lazy(r" *\n((?: *\n)*) *")
_FOLD_OR_ESCAPE = Lazy(rf" *\n((?: *\n)*) *|(?={_ESCAPED})\\(\n +|u.{{4}}|U.{{8}}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


_ASCII = bytes([10, *range(32, 127)])
_DEPTH = 5
_LONG_RUN = " " * 64


class _Unsure(Exception):
    """The text is outside the subset."""


def fast(text: str) -> dict[str, object] | None:
    """What YAML makes of the block, or None when the fast reader can not tell.

    `text` has LF line ends and ends with one.
    """
    # What can not be printed holds every character YAML refuses, folds or treats as a line end.
    if text.encode().translate(None, _ASCII) and not text.replace("\n", "").isprintable():
        return None
    fields: dict[str, object] = {}
    entries = _ENTRY.findall(text)
    try:
        for key, plain, quoted, flow, style, block, nested, rest in entries:
            if plain:
                if "\n" in plain:
                    plain = _fold(plain.rstrip(" \n"))
                fields[key] = _plain(plain, key in TEXT_KEYS)
            elif quoted:
                fields[key] = _quoted(quoted)
            elif rest:
                return None
            elif style:
                fields[key] = _block(style, block)
            else:
                fields[key] = _collection(key, flow, nested)
    except _Unsure:
        return None
    return fields if len(fields) == len(entries) else None


def _collection(key: str, flow: str, nested: str) -> object:
    if flow:
        items = _flow(flow)
        return flow if key in ("argument-hint", "argument_hint") else items
    text = key in TEXT_KEYS
    if not nested:
        return "" if text else None
    below = _BELOW.fullmatch(nested) if text else None
    if below is None:
        return _nested(nested.rstrip("\n") + "\n")
    return _plain(_fold(below[1].rstrip(" \n")), verbatim=True)


def _plain(text: str, verbatim: bool = False) -> object:
    text = text.rstrip(" ")
    if verbatim:
        return "" if text in ("null", "Null", "NULL") else text
    if len(text) < 6 and text in _CONSTANTS:
        return _CONSTANTS[text]
    return _number(text) if text[0] in "0123456789" else text


def _number(text: str) -> object:
    if _DIGIT_TEXT.match(text):
        return text
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    raise _Unsure


def _quoted(text: str) -> str:
    value = text[1:-1]
    if text[0] == "'":
        value = value.replace("''", "'")
    elif "\\" in value:
        _no_long_run(value)
        return _FOLD_OR_ESCAPE.sub(_unescape, text[1:])[:-1]
    return _fold(value) if "\n" in value else value


def _fold(text: str) -> str:
    """One line end is a space, each further one a line end; blanks around them go."""
    if " \n" not in text and "\n   " not in text and "\n\n\n" not in text:
        folded = text.replace("\n\n  ", "\0").replace("\n  ", " ")
        if "\n" not in folded:
            return folded.replace("\0", "\n")
    _no_long_run(text)
    return _FOLD.sub(lambda match: "\n" * match[1].count("\n") or " ", text)


def _no_long_run(text: str) -> None:
    # The fold pattern takes time in the square of a run of blanks.
    if _LONG_RUN in text:
        raise _Unsure


def _unescape(match: re.Match[str]) -> str:
    code = match[2]
    if code is None:
        return "\n" * match[1].count("\n") or " "
    if code[0] in "uU":
        return chr(int(code[1:], 16))
    return "" if code[0] == "\n" else _ESCAPES.get(code, code)


def _block(style: str, block: str) -> str:
    indent = block[: len(block) - len(block.lstrip(" "))]
    content = block[len(indent) :].rstrip("\n")
    if not indent or content[:1] in ("", "\n") or content[-1] == " " or _outdented(content, indent):
        raise _Unsure
    lines = content.replace("\n" + indent, "\n")
    value = lines if style[0] == "|" else _fold_block(lines)
    return value if style[-1] == "-" else value + "\n"


def _outdented(content: str, indent: str) -> bool:
    """Whether a line neither is empty nor starts with the indentation."""
    return content.count("\n") != content.count("\n" + indent) + content.count("\n\n")


def _fold_block(lines: str) -> str:
    if "\n " in lines or "\n\n\n" in lines:
        raise _Unsure
    return lines.replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n")


def _nested(block: str, depth: int = 0) -> object:
    words = _WORDS_LIST.fullmatch(block)
    if words:
        indent = words[1]
        items = block[len(indent) + 2 : -1].split(f"\n{indent}- ")
        if " \n" in block:
            items = [item.rstrip(" ") for item in items]
        if _WORDS.isdisjoint(items):
            return items
    return _items(block, depth) if block.lstrip(" ").startswith("- ") else _members(block, depth)


def _items(block: str, depth: int) -> list[object]:
    found = _LIST_ITEM.findall(block)
    if any(rest or indent != found[0][0] for indent, *_, rest in found):
        return _records(block, depth)
    return [_value(plain, quoted, flow) for _, plain, quoted, flow, _ in found]


def _records(block: str, depth: int) -> list[object]:
    """A list of mappings, each of whose lines stands two columns in from its dash."""
    found = _LIST_BLOCK.findall(block)
    if depth > _DEPTH or any(rest or indent != found[0][0] for indent, _, rest in found):
        raise _Unsure
    return [_members(f"{indent}  {lines}", depth + 1) for indent, lines, _ in found]


def _members(block: str, depth: int) -> dict[str, object]:
    found = _MEMBER.findall(block)
    if depth > _DEPTH or any(rest or indent != found[0][0] for indent, *_, rest in found):
        raise _Unsure
    members = {
        key: _nested(nested, depth + 1) if nested else _value(plain, quoted, flow)
        for _, key, plain, quoted, flow, nested, _ in found
    }
    if len(members) != len(found):
        raise _Unsure
    return members


def _value(plain: str, quoted: str, flow: str) -> object:
    if plain:
        return _plain(plain)
    if quoted:
        return quoted[1:-1]
    return _flow(flow) if flow else None


def _flow(text: str) -> object:
    inner = text[1:-1].strip(" ")
    if not inner:
        return [] if text[0] == "[" else {}
    if text[0] == "{":
        return _pairs(inner)
    found = _FLOW_ITEM.findall(inner)
    if any(rest for _, _, rest in found):
        raise _Unsure
    return [_plain(plain) if plain else quoted[1:-1] for plain, quoted, _ in found]


def _pairs(inner: str) -> dict[str, object]:
    found = _FLOW_PAIR.findall(inner)
    pairs: dict[str, object] = {key: quoted[1:-1] for key, quoted, _ in found}
    if len(pairs) != len(found) or any(rest for _, _, rest in found):
        raise _Unsure
    return pairs


# --- the full reader -----------------------------------------------------------------------------

_CORE = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_HARMLESS = {_CORE + tag for tag in _SCALARS | {"seq", "map", "set", "omap", "pairs"}}
_LARGEST = 2**63  # beyond it not every JSON reader keeps the digits
_EXPANSION = 16  # how many times its own size a block may grow through aliases


class _Guarded(Exception):
    """A bound was hit; holds the code and what is wrong."""


def load(text: str, limits: Limits) -> Loaded | Broken:
    """The mapping in the block, or why there is none. Never raises."""
    fields = fast(text)
    return full(text, limits) if fields is None else Loaded(fields)


def full(text: str, limits: Limits) -> Loaded | Broken:
    """As `load`, by libyaml alone."""
    import yaml

    try:
        _guard(text, limits)
        node = yaml.compose(text, Loader=_loader())
        if node is None:
            return Loaded({})
        if not isinstance(node, yaml.MappingNode):
            return Broken(Problem("yaml-syntax", 1, "the block is not a list of keys", ""))
        return _Reader(text, limits).document(node)
    except _Guarded as error:
        code, message, remedy = error.args
        return Broken(Problem(code, 1, message, remedy), guard=True)
    except yaml.YAMLError as error:
        return Broken(_syntax(error))
    except (RecursionError, ValueError, OverflowError) as error:
        return Broken(Problem("yaml-syntax", 1, f"{type(error).__name__}: {error}", ""))


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _syntax(error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return Problem("yaml-syntax", mark.line + 1 if mark else 1, str(said), "")


def _guard(text: str, limits: Limits) -> None:
    """Raises _Guarded for what must not be composed.

    Composing recurses in C, so the depth is read off the event stream first, which does not. A
    block collection needs a column of its own, so only these texts can nest that deep.
    """
    steep = re.search(rf"(?m)^[ \t?:-]{{{max(limits.max_yaml_depth // 2, 1)}}}", text)
    flows = text.count("[") + text.count("{")
    if not steep and flows <= limits.max_yaml_depth // 2 and not ("*" in text and "&" in text):
        return
    import yaml

    depth = aliases = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        _bounded(depth, aliases, limits)


def _bounded(depth: int, aliases: int, limits: Limits) -> None:
    if depth > limits.max_yaml_depth:
        raise _Guarded(
            "yaml-depth",
            f"the frontmatter nests deeper than {limits.max_yaml_depth} levels",
            "flatten it, or raise max_yaml_depth",
        )
    if aliases > limits.max_yaml_aliases:
        _bomb(f"the frontmatter uses more than {limits.max_yaml_aliases} YAML aliases")


def _bomb(message: str) -> None:
    raise _Guarded("yaml-aliases", message, "write the values out instead of using `*` aliases")


class _Reader:
    """Builds JSON values from nodes, and counts what aliases make of them."""

    def __init__(self, text: str, limits: Limits) -> None:
        from yaml.constructor import SafeConstructor

        self.text = text
        self.limits = limits
        self.numbers = SafeConstructor()
        self.problems: list[Problem] = []
        self.doubled: set[str] = set()
        self.left = _EXPANSION * max(len(text), 256)

    def document(self, node: _Node) -> Loaded:
        """The top level, where fields that are text by specification keep their source."""
        fields: dict[str, object] = {}
        for key, value in self.pairs(node, 1):
            name = self.key(key, 1)
            if name in fields:
                self.duplicate(name, key)
            fields[name] = self.field(name, value)
        return Loaded(fields, self.distinct())

    def distinct(self) -> tuple[Problem, ...]:
        """The problems, each kind of them a few times at most."""
        kept: list[Problem] = []
        for problem in self.problems:
            if sum(problem.code == other.code for other in kept) < _REPORTED:
                kept.append(problem)
        return tuple(kept)

    def field(self, name: str, node: _Node) -> object:
        if name not in TEXT_KEYS:
            return self.value(node, 2)
        if node.id == "scalar":
            self.tagged(node)
            if name in _CUTS_MATTER and not node.style:
                self.cut(name, node)
            return "" if node.tag == _CORE + "null" else self.text_of(node)
        if name in ("argument-hint", "argument_hint") and node.flow_style:
            return self.text[node.start_mark.index : node.end_mark.index]
        return self.value(node, 2)

    def cut(self, name: str, node: _Node) -> None:
        """Reports a plain value that YAML ended at a hash."""
        rest = self.text[node.end_mark.index :].partition("\n")[0]
        if node.value and re.match(r"[ \t]+#", rest):
            message = f"YAML drops {rest.strip()[:40]!r} from {name} as a comment"
            line = node.end_mark.line + 1
            self.problems.append(Problem("comment-cut", line, message, "put the value in quotes"))

    def value(self, node: _Node, depth: int) -> object:
        """The node as JSON."""
        self.spend(1, depth)
        self.tagged(node)
        if node.id == "scalar":
            return self.scalar(node)
        if node.id == "sequence":
            return [self.value(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def spend(self, amount: int, depth: int) -> None:
        self.left -= amount
        if self.left < 0 or depth > 2 * self.limits.max_yaml_depth:
            _bomb("the YAML aliases in the frontmatter expand without bound")

    def mapping(self, node: _Node, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in self.pairs(node, depth):
            name = self.key(key, depth)
            if name in result:
                self.duplicate(name, key)
            result[name] = self.value(value, depth + 1)
        return result

    def pairs(self, node: _Node, depth: int) -> Iterable[tuple[_Node, _Node]]:
        """The pairs of a mapping: merged ones first where the mapping does not say otherwise."""
        own = [pair for pair in node.value if pair[0].tag != _CORE + "merge"]
        if len(own) == len(node.value):
            return own
        merged: dict[object, tuple[_Node, _Node]] = {}
        for key, value in node.value:
            if key.tag == _CORE + "merge":
                for pair in self.merged(value, depth + 1):
                    merged.setdefault(self.key(pair[0], depth), pair)
        taken = {self.key(key, depth) for key, _ in own}
        return [*(pair for name, pair in merged.items() if name not in taken), *own]

    def merged(self, node: _Node, depth: int) -> Iterable[tuple[_Node, _Node]]:
        self.spend(1 + len(node.value), depth)
        if node.id == "mapping":
            return self.pairs(node, depth)
        if node.id == "sequence":
            return [pair for item in node.value for pair in self.merged(item, depth + 1)]
        raise ValueError("`<<` takes a mapping or a list of mappings")

    def key(self, node: _Node, depth: int) -> str:
        """A key as it is written; keys that are collections become JSON text."""
        if node.id == "scalar":
            return self.text_of(node)
        import json

        return json.dumps(self.value(node, depth + 1), ensure_ascii=False)

    def duplicate(self, name: str, node: _Node) -> None:
        if name in self.doubled:
            return
        self.doubled.add(name)
        line = node.start_mark.line + 1
        message = f"the key {name[:60]!r} stands twice; the last one counts"
        self.problems.append(Problem("duplicate-key", line, message, "remove one of them"))

    def tagged(self, node: _Node) -> None:
        """Reports a tag that nothing is built from."""
        if node.tag not in _HARMLESS and node.tag != "!":
            line = node.start_mark.line + 1
            message = f"the tag {node.tag[:60]!r} is ignored; the plain value is used"
            self.problems.append(Problem("yaml-tag", line, message, "remove the tag"))

    def text_of(self, node: _Node) -> str:
        value: str = node.value
        self.spend(len(value), 0)
        # Only the pure-Python scanner lets an escaped surrogate through; no encoder takes one.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()

    def scalar(self, node: _Node) -> object:
        text = self.text_of(node)
        kind = node.tag.removeprefix(_CORE)
        if kind == "null":
            return None
        if kind == "bool":
            return _CONSTANTS.get(text.lower(), text)
        return self.number(node, kind, text) if kind in ("int", "float") else text

    def number(self, node: _Node, kind: str, text: str) -> object:
        """The number, or its text where JSON has no such number."""
        convert = getattr(self.numbers, f"construct_yaml_{kind}")
        try:
            number: int | float = convert(node)
        except (ValueError, OverflowError, IndexError, RecursionError):
            return text
        finite = number == number and abs(number) != float("inf")
        return number if finite and (kind == "float" or abs(number) < _LARGEST) else text
