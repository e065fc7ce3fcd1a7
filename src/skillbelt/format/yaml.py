"""Read YAML: with the fast reader if it can, with libyaml otherwise.

Never builds a Python object from a tag, and never recurses before the depth of the text is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from skillbelt.format import yaml_fast
from skillbelt.format.bounds import MAX_YAML_ALIASES, MAX_YAML_DEPTH
from skillbelt.format.yaml_fast import CONSTANTS, METADATA, TEXT_KEYS, AsWritten
from skillbelt.records import NamedTuple

_Node = Any  # yaml's node ids: comparing `id` avoids an import on every call
_CUTS_MATTER = ("name", "description")
_REPORTED = 8  # more of the same kind add nothing
_CORE = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp", "merge", "value"}
_HARMLESS = {_CORE + tag for tag in _SCALARS | {"seq", "map", "set", "omap", "pairs"}}
_LARGEST = 2**63  # larger numbers lose digits in some JSON readers
_CORE_WORDS: dict[str, object] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~")),
}
_EXPANSION = 16  # how many times its own size a block may grow through aliases


class Problem(NamedTuple):
    """Something odd in a block; `line` counts from 1 inside the block."""

    code: str
    line: int
    message: str
    remedy: str


class LoadedYaml(NamedTuple):
    """A mapping that was read from YAML."""

    fields: dict[str, object]
    problems: tuple[Problem, ...] = ()


class BrokenYaml(NamedTuple):
    """Why there is no mapping. `guard`: the text is hostile and must not be parsed further."""

    problem: Problem
    guard: bool = False


class _Guarded(Exception):
    """A bound was exceeded; holds the code, the message and the remedy."""


def load(text: str) -> LoadedYaml | BrokenYaml:
    """Return the mapping in the block, or why there is none. Never raises."""
    fields = yaml_fast.read(text)
    return full(text) if fields is None else LoadedYaml(fields)


def full(text: str) -> LoadedYaml | BrokenYaml:
    """Load with libyaml only."""
    yaml = library()
    try:
        _guard(text)
        node = yaml.compose(text, Loader=_loader())
        if node is None:
            return LoadedYaml({})
        if not isinstance(node, yaml.MappingNode):
            return BrokenYaml(Problem("yaml-syntax", 1, "the block is not a list of keys", ""))
        return _YamlReader(text).document(node)
    except _Guarded as error:
        code, message, remedy = error.args
        return BrokenYaml(Problem(code, 1, message, remedy), guard=True)
    except yaml.YAMLError as error:
        return BrokenYaml(_syntax(error))
    except (RecursionError, ValueError, OverflowError) as error:
        return BrokenYaml(Problem("yaml-syntax", 1, f"{type(error).__name__}: {error}", ""))


def verbatim(text: str, *, core: bool = True) -> dict[str, object] | None:
    """Return the mapping with every value as YAML types it; None where readers may disagree.

    Uses the core schema of YAML 1.2, in which `yes` is text; without `core`, YAML 1.1.
    """
    yaml = library()
    try:
        _guard(text)
        node = yaml.compose(text, Loader=_loader())
        if not isinstance(node, yaml.MappingNode):
            return None
        reader = (_Core if core else _YamlReader)(text)
        found = reader.mapping(node, 1)
        return None if reader.problems else found
    except (_Guarded, yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return None


def library() -> Any:
    """Return the `yaml` module."""
    import yaml  # cost: 20 ms, only where the fast reader gives up

    return yaml


def _loader() -> Any:
    return getattr(library(), "CSafeLoader", library().SafeLoader)


def _syntax(error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    message = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return Problem("yaml-syntax", mark.line + 1 if mark else 1, str(message), "")


def _guard(text: str) -> None:
    """Raise _Guarded for text that must not be composed.

    Composing recurses in C, so the depth is first taken from the event stream, which does not
    recurse. A block collection needs its own column, so only these texts can nest that deep.
    """
    steep = re.search(rf"(?m)^[ \t?:-]{{{max(MAX_YAML_DEPTH // 2, 1)}}}", text)
    flows = text.count("[") + text.count("{")
    if not steep and flows <= MAX_YAML_DEPTH // 2 and not ("*" in text and "&" in text):
        return
    yaml = library()
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        _check_bounds(depth, aliases)


def _check_bounds(depth: int, aliases: int) -> None:
    if depth > MAX_YAML_DEPTH:
        raise _Guarded(
            "yaml-depth",
            f"the frontmatter nests deeper than {MAX_YAML_DEPTH} levels",
            "flatten it",
        )
    if aliases > MAX_YAML_ALIASES:
        _alias_bomb(f"the frontmatter uses more than {MAX_YAML_ALIASES} YAML aliases")


def _alias_bomb(message: str) -> None:
    raise _Guarded("yaml-aliases", message, "write the values out instead of using `*` aliases")


class _YamlReader:
    """Builds JSON values from nodes, and counts how far aliases expand them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.numbers = library().constructor.SafeConstructor()
        self.problems: list[Problem] = []
        self.doubled: set[str] = set()
        self.left = _EXPANSION * max(len(text), 256)

    def document(self, node: _Node) -> LoadedYaml:
        """Read the top level, where fields that are text by specification keep their source."""
        fields: dict[str, object] = {}
        for key, value in self.pairs(node, 1):
            name = self.key(key, 1)
            if name in fields:
                self.duplicate(name, key)
            fields[name] = self.field(name, value)
        return LoadedYaml(fields, self.distinct())

    def distinct(self) -> tuple[Problem, ...]:
        """Return the problems, at most a few of each kind."""
        kept: list[Problem] = []
        for problem in self.problems:
            if sum(problem.code == other.code for other in kept) < _REPORTED:
                kept.append(problem)
        return tuple(kept)

    def field(self, name: str, node: _Node) -> object:
        if name == METADATA and node.id == "mapping":
            self.spend(1, 2)
            self.tagged(node)
            return self.mapping(node, 2, written=True)
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
        """Report a plain value that YAML ended at a hash."""
        rest = self.text[node.end_mark.index :].partition("\n")[0]
        if node.value and re.match(r"[ \t]+#", rest):
            message = f"YAML drops {rest.strip()[:40]!r} from {name} as a comment"
            line = node.end_mark.line + 1
            self.problems.append(Problem("comment-cut", line, message, "put the value in quotes"))

    def value(self, node: _Node, depth: int) -> object:
        """Return the node as JSON."""
        self.spend(1, depth)
        self.tagged(node)
        if node.id == "scalar":
            return self.scalar(node)
        if node.id == "sequence":
            return [self.value(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def spend(self, amount: int, depth: int) -> None:
        self.left -= amount
        if self.left < 0 or depth > 2 * MAX_YAML_DEPTH:
            _alias_bomb("the YAML aliases in the frontmatter expand without bound")

    def mapping(self, node: _Node, depth: int, *, written: bool = False) -> dict[str, object]:
        """Return a mapping; with `written` its scalars are text, as in the source."""
        result: dict[str, object] = {}
        for key, value in self.pairs(node, depth):
            name = self.key(key, depth)
            if name in result:
                self.duplicate(name, key)
            found = self.value(value, depth + 1)
            typed = isinstance(found, int | float)
            result[name] = AsWritten(self.text_of(value)) if written and typed else found
        return result

    def pairs(self, node: _Node, depth: int) -> Iterable[tuple[_Node, _Node]]:
        """Return the pairs of a mapping: merged ones first, unless the mapping overrides them."""
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
        """Return a key as it is written; keys that are collections become JSON text."""
        if node.id == "scalar":
            return self.text_of(node)
        return json.dumps(self.value(node, depth + 1), ensure_ascii=False)

    def duplicate(self, name: str, node: _Node) -> None:
        if name in self.doubled:
            return
        self.doubled.add(name)
        line = node.start_mark.line + 1
        message = f"the key {name[:60]!r} occurs twice; the last one counts"
        self.problems.append(Problem("duplicate-key", line, message, "remove one of them"))

    def tagged(self, node: _Node) -> None:
        """Report a tag that is ignored."""
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
            return CONSTANTS.get(text.lower(), text)
        return self.number(node, kind, text) if kind in ("int", "float") else text

    def number(self, node: _Node, kind: str, text: str) -> object:
        """Return the number, or its text where JSON has no such number."""
        convert = getattr(self.numbers, f"construct_yaml_{kind}")
        try:
            number: int | float = convert(node)
        except (ValueError, OverflowError, IndexError, RecursionError):
            return text
        finite = number == number and abs(number) != float("inf")
        return number if finite and (kind == "float" or abs(number) < _LARGEST) else text


class _Core(_YamlReader):
    """Values by the core schema of YAML 1.2."""

    def pairs(self, node: _Node, depth: int) -> Iterable[tuple[_Node, _Node]]:
        if any(key.tag == _CORE + "merge" for key, _ in node.value):
            self.problems.append(Problem("yaml-merge", 1, "`<<` is not in every YAML", ""))
        return super().pairs(node, depth)

    def scalar(self, node: _Node) -> object:
        text = self.text_of(node)
        if node.style or not text:
            return text if node.style else None
        if text in _CORE_WORDS:
            return _CORE_WORDS[text]
        if re.fullmatch(r"[-+]?[0-9]+", text) and len(text) < 16:
            return int(text)
        if re.fullmatch(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,2})?", text):
            return float(text)
        if re.fullmatch(r"0o[0-7]+|0x[0-9a-fA-F]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", text):
            self.problems.append(Problem("yaml-number", 1, "not in every YAML, or not in JSON", ""))
        return text
