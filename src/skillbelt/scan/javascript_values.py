"""Work out what JavaScript puts together from constants: a bounded evaluator of pure values.

Nothing of a script has an effect here: what is not known is UNKNOWN, and spreads. Both branches of
a condition that is not known are followed. `find_made_texts` returns the texts by their place.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_STEPS = 150_000
MAX_TEXT = 64 * 2**10
MAX_ITEMS = 20_000
_MAX_DEPTH = 60
_MAX_CALLS = 10
_MAX_ROUNDS = 20_000
_MAX_IDLE = 500
# Signs or items that a method goes through for one step.
_SIGNS_OF_A_STEP = 20
# Signs of a text that is made for one step: a script may keep all of them.
_SIGNS_OF_A_TEXT = 400
# Items of lists in lists that are made into one text.
_MAX_NESTED, _MAX_LEVELS = 2_000, 8
# Scripts without one of these put nothing together but by `+`.
_SIGNS = Lazy(
    r"fromCharCode|fromCodePoint|charCodeAt|codePointAt|\batob\b|Buffer\.|unescape\(|decodeURI"
    r"|TextDecoder|\.reverse\(|parseInt\(|Uint8Array|\.join\(|\.replace(?:All)?\(|\.slice\("
    r"|\.split\(|\.at\(|\.charAt\(|\.substr|\.padStart\(|String\.raw|\.map\(|\.reduce\("
    r"|JSON\.parse\(|\+=|\.pop\(|\.shift\(|['\"`]\s{0,9}\+|\+\s{0,9}['\"`]|\.concat\(|\bfor\s{0,9}\(|\\x[0-9a-fA-F]{2}"
)


class _Unknown:
    """The value of what is not known."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()
UNDEFINED = None


class _Bytes(list[Any]):
    """A list of bytes: a Buffer or an array of numbers below 256."""


class _Regex(NamedTuple):
    """A pattern that is simple enough to be searched in linear time, and its flags."""

    form: re.Pattern[str]
    flags: str


class _Builtin(NamedTuple):
    """A global function or object, by its dotted name."""

    name: str


class _Method(NamedTuple):
    """A method of a known value."""

    owner: Any
    name: str


class _Function:
    """A function of the script, with the names around it."""

    def __init__(self, node: _Tree, scope: _Scope) -> None:
        self.node, self.scope = node, scope


class _Scope:
    """Names and their values, in the scopes around each other."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.names: dict[str, Any] = {}
        self.outer = outer

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the names among which one is."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names
            scope = scope.outer
        return None


class _Tree:
    """A node with what was read of it: a node of the parser is slow to ask again."""

    __slots__ = ("_fields", "_kids", "_text", "end", "node", "start", "type")

    def __init__(self, node: Node) -> None:
        self.node, self.type = node, node.type
        self.start, self.end = node.start_byte, node.end_byte
        self._kids: list[_Tree] | None = None
        self._fields: dict[str, _Tree | None] = {}
        self._text: str | None = None

    @property
    def kids(self) -> list[_Tree]:
        if self._kids is None:
            self._kids = [_Tree(one) for one in self.node.named_children if one.type != "comment"]
        return self._kids

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = (self.node.text or b"").decode("utf-8", "replace")
        return self._text

    def field(self, name: str) -> _Tree | None:
        """Return the child in a field; the same one each time."""
        if name not in self._fields:
            found = self.node.child_by_field_name(name)
            self._fields[name] = None if found is None else _Tree(found)
        return self._fields[name]


class _Stop(Exception):
    """The script needs more steps than it may take."""


class _Leave(Exception):
    """A jump out of a loop or a function."""

    def __init__(self, kind: str, value: Any = UNDEFINED) -> None:
        super().__init__(kind)
        self.kind, self.value = kind, value


class HandedText(NamedTuple):
    """A text that a script puts together and hands to a call: its first byte, and the call."""

    text: str
    start: int
    called: str


class MadeTexts(NamedTuple):
    """The texts of expressions by their first and last byte, and those that calls get."""

    by_place: dict[tuple[int, int], str]
    handed: list[HandedText]
    steps: int


def may_make_texts(source: str) -> bool:
    """Whether a script may put texts together."""
    return _SIGNS.search(source) is not None


def find_made_texts(root: Node, most: int = MAX_STEPS) -> MadeTexts:
    """Return the texts that a script puts together, in at most so many steps. Raises nothing."""
    reader = _Evaluator(min(most, MAX_STEPS))
    scope = _Scope()
    try:
        reader.run_all(_Tree(root).kids, scope, 0)
        reader.run_uncalled()
    except (_Stop, _Leave, RecursionError, MemoryError):
        pass
    return MadeTexts(reader.made, reader.handed, reader.steps)


class _Evaluator:
    """Runs through a script once, and through each function that nothing calls."""

    def __init__(self, most: int) -> None:
        self.steps, self._most = 0, most
        # How many texts and items of lists were made: a long loop that makes none is left.
        self._progress = 0
        self.made: dict[tuple[int, int], str] = {}
        self.handed: list[HandedText] = []
        self._calls = 0
        self._functions: dict[int, _Function] = {}
        self._called: set[int] = set()

    def run_uncalled(self) -> None:
        """Follow functions with unknown arguments that no call reached."""
        while waiting := [one for key, one in self._functions.items() if key not in self._called]:
            for one in waiting:
                self._call_own(one, [], 0)

    # --- statements ------------------------------------------------------------------------------

    def run_all(self, nodes: Sequence[_Tree], scope: _Scope, depth: int) -> None:
        """Run statements in their order; functions are known before."""
        for node in nodes:
            if node.type in ("function_declaration", "generator_function_declaration"):
                self._declare_function(node, scope)
        for node in nodes:
            self.run(node, scope, depth)

    def _declare_function(self, node: _Tree, scope: _Scope) -> None:
        name = node.field("name")
        made = self._make_function(node, scope)
        if name is not None:
            scope.names[name.text] = made

    def _make_function(self, node: _Tree, scope: _Scope) -> _Function:
        made = _Function(node, scope)
        self._functions.setdefault(node.start, made)
        return made

    def run(self, node: _Tree, scope: _Scope, depth: int) -> None:
        """Run one statement."""
        self._step(depth)
        method = _STATEMENTS.get(node.type)
        if method is not None:
            method(self, node, scope, depth + 1)
        elif node.type not in ("function_declaration", "generator_function_declaration"):
            if (
                node.type.endswith(("statement", "block", "clause", "body"))
                or node.type in _HOLDERS
            ):
                for child in node.kids:
                    self.run(child, scope, depth + 1)
            elif not node.type.startswith(("import", "type", "interface")):
                self.value(node, scope, depth + 1)

    def _step(self, depth: int) -> None:
        self.steps += 1
        if self.steps > self._most or depth > _MAX_DEPTH:
            raise _Stop

    def _block(self, node: _Tree, scope: _Scope, depth: int) -> None:
        self.run_all(node.kids, _Scope(scope), depth)

    def _declare(self, node: _Tree, scope: _Scope, depth: int) -> None:
        for one in node.kids:
            name, value = one.field("name"), one.field("value")
            if name is not None:
                made = self.value(value, scope, depth) if value is not None else UNDEFINED
                self._bind(name, made, scope, depth)

    def _bind(
        self, target: _Tree, value: Any, scope: _Scope, depth: int, *, new: bool = True
    ) -> None:
        """Give a name, or the names of a pattern, their values."""
        kind = target.type
        if kind in ("identifier", "shorthand_property_identifier_pattern"):
            names = scope.names if new else scope.find(target.text)
            (scope.names if names is None else names)[target.text] = value
        elif kind == "array_pattern":
            self._bind_items(target, value, scope, depth, new=new)
        elif kind == "object_pattern":
            for one in target.kids:
                self._bind_property(one, value, scope, depth, new=new)
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            self._bind_default(target, value, scope, depth, new=new)
        elif kind in ("required_parameter", "optional_parameter"):
            inner = target.field("pattern")
            if inner is not None:
                self._bind(inner, value, scope, depth, new=new)
        elif kind in ("member_expression", "subscript_expression"):
            self._set_part(target, value, scope, depth)

    def _bind_default(
        self, target: _Tree, value: Any, scope: _Scope, depth: int, *, new: bool
    ) -> None:
        left, right = target.field("left"), target.field("right")
        if left is not None and right is not None:
            known = value is not UNKNOWN and value is not UNDEFINED
            made = value if known else self.value(right, scope, depth)
            self._bind(left, made, scope, depth, new=new)

    def _bind_items(
        self, target: _Tree, value: Any, scope: _Scope, depth: int, *, new: bool
    ) -> None:
        items = value if isinstance(value, list | str) else []
        for at, one in enumerate(target.kids):
            if one.type == "rest_pattern":
                self._bind(one.kids[0], list(items[at:]), scope, depth, new=new)
            else:
                part = items[at] if at < len(items) else UNKNOWN
                self._bind(one, part, scope, depth, new=new)

    def _bind_property(
        self, node: _Tree, value: Any, scope: _Scope, depth: int, *, new: bool
    ) -> None:
        key, inner = node.field("key"), node.field("value")
        target = inner if inner is not None else node
        if node.type == "object_assignment_pattern" and node.field("left") is not None:
            key = node.field("left")
        name = (key if key is not None else node).text
        part = value.get(name, UNDEFINED) if isinstance(value, dict) else UNKNOWN
        self._bind(target, part, scope, depth, new=new)

    def _set_part(self, target: _Tree, value: Any, scope: _Scope, depth: int) -> None:
        owner = target.field("object")
        base = self.value(owner, scope, depth) if owner is not None else UNKNOWN
        key = self._key(target, scope, depth)
        if isinstance(base, dict) and isinstance(key, str | int):
            if len(base) < MAX_ITEMS:
                base[str(key)] = value
        elif isinstance(base, list) and isinstance(key, int) and 0 <= key <= len(base) + 1000:
            if len(base) + 1000 < MAX_ITEMS or key < len(base):
                base += [UNDEFINED] * (key + 1 - len(base))
                base[key] = value
                self._progress += 1
        elif isinstance(base, list) and key == "length" and value == 0:
            base.clear()

    def _key(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        if node.type == "subscript_expression":
            index = node.field("index")
            key = self.value(index, scope, depth) if index is not None else UNKNOWN
            return int(key) if isinstance(key, str) and key.isdecimal() and len(key) < 8 else key
        name = node.field("property")
        return name.text if name is not None else UNKNOWN

    def _if(self, node: _Tree, scope: _Scope, depth: int) -> None:
        condition = node.field("condition")
        known = self.value(condition, scope, depth) if condition is not None else UNKNOWN
        for name, wanted in (("consequence", True), ("alternative", False)):
            part = node.field(name)
            if part is not None and (known is UNKNOWN or _is_true(known) == wanted):
                self._run_maybe(part, scope, depth, known=known is not UNKNOWN)

    def _run_maybe(self, node: _Tree, scope: _Scope, depth: int, *, known: bool) -> None:
        """Run a part; what leaves it counts only if it is sure that it runs."""
        try:
            self.run(node, scope, depth)
        except _Leave:
            if known:
                raise

    def _for(self, node: _Tree, scope: _Scope, depth: int) -> None:
        inner = _Scope(scope)
        start, condition = node.field("initializer"), node.field("condition")
        if start is not None:
            self.run(start, inner, depth)
        self._repeat(condition, node.field("increment"), node.field("body"), inner, depth)

    def _while(self, node: _Tree, scope: _Scope, depth: int) -> None:
        self._repeat(node.field("condition"), None, node.field("body"), scope, depth)

    def _do(self, node: _Tree, scope: _Scope, depth: int) -> None:
        body = node.field("body")
        if body is None or not self._round(body, scope, depth):
            return
        self._while(node, scope, depth)

    def _repeat(
        self,
        condition: _Tree | None,
        update: _Tree | None,
        body: _Tree | None,
        scope: _Scope,
        depth: int,
    ) -> None:
        before = self._progress
        for number in range(_MAX_ROUNDS):
            known = UNKNOWN
            if number > _MAX_IDLE and self._progress == before:
                return
            if condition is not None and condition.type != "empty_statement":
                known = self._condition(condition, scope, depth)
            if known is not UNKNOWN and not _is_true(known):
                return
            if body is None or not self._round(body, scope, depth):
                return
            if update is not None:
                self.value(update, scope, depth)
            if known is UNKNOWN:
                return

    def _condition(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        if node.type == "expression_statement":
            return self.value(node.kids[0], scope, depth) if node.kids else UNKNOWN
        return self.value(node, scope, depth)

    def _round(self, body: _Tree, scope: _Scope, depth: int) -> bool:
        """Run the body of a loop once; return whether it goes on."""
        try:
            self.run(body, scope, depth)
        except _Leave as jump:
            if jump.kind == "return":
                raise
            return jump.kind == "continue"
        return True

    def _for_in(self, node: _Tree, scope: _Scope, depth: int) -> None:
        left, right, body = node.field("left"), node.field("right"), node.field("body")
        if left is None or right is None or body is None:
            return
        source = self.value(right, scope, depth)
        operator = node.node.child_by_field_name("operator")
        items: Sequence[Any] = [UNKNOWN]
        if operator is not None and operator.type == "in":
            if isinstance(source, dict):
                items = list(source)
            elif isinstance(source, list | str):
                items = [str(at) for at in range(len(source))]
        elif isinstance(source, list | str):
            items = list(source)
        for one in items[:_MAX_ROUNDS]:
            inner = _Scope(scope)
            self._bind(left, one, inner, depth, new=node.field("kind") is not None or True)
            if not self._round(body, inner, depth):
                return

    def _return(self, node: _Tree, scope: _Scope, depth: int) -> None:
        value = self.value(node.kids[0], scope, depth) if node.kids else UNDEFINED
        raise _Leave("return", value)

    def _break(self, node: _Tree, scope: _Scope, depth: int) -> None:
        raise _Leave("break")

    def _continue(self, node: _Tree, scope: _Scope, depth: int) -> None:
        raise _Leave("continue")

    def _throw(self, node: _Tree, scope: _Scope, depth: int) -> None:
        for one in node.kids:
            self.value(one, scope, depth)

    def _switch(self, node: _Tree, scope: _Scope, depth: int) -> None:
        subject, body = node.field("value"), node.field("body")
        value = self.value(subject, scope, depth) if subject is not None else UNKNOWN
        reached = False
        for case in body.kids if body is not None else ():
            wanted = case.field("value")
            known = self.value(wanted, scope, depth) if wanted is not None else value
            reached = reached or value is UNKNOWN or known is UNKNOWN or _same(value, known)
            for one in case.kids if reached else ():
                if wanted is not None and one.start == wanted.start:
                    continue
                try:
                    self.run(one, scope, depth)
                except _Leave as jump:
                    if jump.kind != "break":
                        raise
                    if value is not UNKNOWN:
                        return

    def _class(self, node: _Tree, scope: _Scope, depth: int) -> None:
        body = node.field("body")
        for one in body.kids if body is not None else ():
            if one.type == "method_definition":
                self._make_function(one, scope)
            elif (value := one.field("value")) is not None:
                self.value(value, scope, depth)

    # --- expressions -----------------------------------------------------------------------------

    def value(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        """Return the value of an expression."""
        self._step(depth)
        method = _EXPRESSIONS.get(node.type)
        if method is None:
            for one in node.kids:
                self.run(one, scope, depth + 1)
            return UNKNOWN
        made = method(self, node, scope, depth + 1)
        if isinstance(made, str) and node.type not in _PLAIN and len(made) > 2:
            if len(made) > MAX_TEXT:
                return UNKNOWN
            self.made[node.start, node.end] = made
            self._progress += 1
            self.steps += len(made) // _SIGNS_OF_A_TEXT
        elif isinstance(made, float) and made.is_integer() and abs(made) < 2**53:
            return int(made)
        return made

    def _string(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        return unescape_text(node.text[1:-1])

    def _template(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        parts: list[str] = []
        unknown = False
        for one in node.kids:
            if one.type == "template_substitution":
                value = self.value(one.kids[0], scope, depth) if one.kids else ""
                text = to_text(value)
                unknown = unknown or text is None
                parts.append(text or "")
            else:
                parts.append(unescape_text(one.text))
        return UNKNOWN if unknown else "".join(parts)

    def _number(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        return to_number(node.text.replace("_", "").removesuffix("n"))

    def _identifier(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        names = scope.find(node.text)
        if names is not None:
            return names[node.text]
        return _Builtin(node.text) if node.text in _GLOBALS else UNKNOWN

    def _array(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        return self._list(node.kids, scope, depth)

    def _list(self, nodes: Sequence[_Tree], scope: _Scope, depth: int) -> list[Any]:
        items: list[Any] = []
        for one in nodes:
            if one.type == "spread_element":
                inner = self.value(one.kids[0], scope, depth) if one.kids else UNKNOWN
                self.steps += len(inner) // _SIGNS_OF_A_STEP if isinstance(inner, list | str) else 0
                items += list(inner) if isinstance(inner, list | str) else [UNKNOWN]
            else:
                items.append(self.value(one, scope, depth))
            if len(items) > MAX_ITEMS:
                raise _Stop
        return items

    def _object(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        made: dict[str, Any] = {}
        for one in node.kids:
            key, value = one.field("key"), one.field("value")
            if one.type == "spread_element":
                inner = self.value(one.kids[0], scope, depth) if one.kids else UNKNOWN
                made |= inner if isinstance(inner, dict) else {}
            elif one.type == "shorthand_property_identifier":
                made[one.text] = self._identifier(one, scope, depth)
            elif one.type == "method_definition":
                name = one.field("name")
                made[name.text if name is not None else ""] = self._make_function(one, scope)
            elif key is not None and value is not None:
                name_of = self._key_of(key, scope, depth)
                made[name_of] = self.value(value, scope, depth)
        return made

    def _key_of(self, key: _Tree, scope: _Scope, depth: int) -> str:
        if key.type == "computed_property_name":
            return to_text(self.value(key.kids[0], scope, depth)) or ""
        return unescape_text(key.text[1:-1]) if key.type == "string" else key.text

    def _function(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        return self._make_function(node, scope)

    def _first(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        return self.value(node.kids[0], scope, depth) if node.kids else UNKNOWN

    def _sequence(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        made: Any = UNKNOWN
        for one in node.kids:
            made = self.value(one, scope, depth)
        return made

    def _ternary(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        parts = [node.field(one) for one in ("condition", "consequence", "alternative")]
        known, yes, no = (
            self.value(one, scope, depth) if one is not None and at == 0 else one
            for at, one in enumerate(parts)
        )
        if known is UNKNOWN:
            values = [self.value(one, scope, depth) for one in (yes, no) if one is not None]
            return values[0] if len(values) == 2 and _same(*values) else UNKNOWN
        chosen = yes if _is_true(known) else no
        return self.value(chosen, scope, depth) if chosen is not None else UNKNOWN

    def _regex(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        pattern, flags = node.field("pattern"), node.field("flags")
        return make_regex(
            pattern.text if pattern is not None else "", flags.text if flags is not None else ""
        )

    def _unary(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        inner = node.field("argument")
        value = self.value(inner, scope, depth) if inner is not None else UNKNOWN
        operator = node.node.child_by_field_name("operator")
        sign = operator.type if operator is not None else ""
        if value is UNKNOWN or isinstance(value, _Function | _Builtin):
            return UNKNOWN
        if sign == "!":
            return not _is_true(value)
        if sign == "void":
            return UNDEFINED
        if sign == "typeof":
            return "string" if isinstance(value, str) else UNKNOWN
        number = to_number(value)
        if not isinstance(number, int | float):
            return UNKNOWN
        if sign == "~":
            return _to_int32(~_to_int32(number))
        return -number if sign == "-" else number

    def _binary(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        left, right = node.field("left"), node.field("right")
        operator = node.node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return UNKNOWN
        a = self.value(left, scope, depth)
        sign = operator.type
        if sign in ("||", "&&", "??") and a is not UNKNOWN:
            stays = _is_true(a) == (sign == "||") if sign != "??" else a is not UNDEFINED
            return a if stays else self.value(right, scope, depth)
        b = self.value(right, scope, depth)
        return combine(a, sign, b)

    def _assign(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        left, right = node.field("left"), node.field("right")
        if left is None or right is None:
            return UNKNOWN
        value = self.value(right, scope, depth)
        self._bind(left, value, scope, depth, new=False)
        return value

    def _assign_more(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        left, right = node.field("left"), node.field("right")
        operator = node.node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return UNKNOWN
        before = self.value(left, scope, depth)
        value = combine(before, operator.type.removesuffix("="), self.value(right, scope, depth))
        self._bind(left, value, scope, depth, new=False)
        return value

    def _update(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        inner = node.field("argument")
        if inner is None:
            return UNKNOWN
        before = self.value(inner, scope, depth)
        value = combine(before, "-" if "--" in node.text else "+", 1)
        value = value if isinstance(before, int | float) else UNKNOWN
        self._bind(inner, value, scope, depth, new=False)
        return value if node.text.startswith(("++", "--")) else before

    def _member(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        owner = node.field("object")
        base = self.value(owner, scope, depth) if owner is not None else UNKNOWN
        key = self._key(node, scope, depth)
        return self._get(base, key)

    def _get(self, base: Any, key: Any) -> Any:
        if key is UNKNOWN or base is UNKNOWN or base is UNDEFINED:
            return UNKNOWN
        if isinstance(base, _Builtin):
            if base.name in ("globalThis", "window", "global", "self"):
                return _Builtin(str(key)) if key in _GLOBALS else UNKNOWN
            return _Builtin(f"{base.name}.{key}")
        if isinstance(base, dict):
            return base.get(str(key), _Method(base, str(key)))
        if isinstance(base, list | str):
            if isinstance(key, int):
                return base[key] if 0 <= key < len(base) else UNDEFINED
            return len(base) if key == "length" else _Method(base, str(key))
        return _Method(base, str(key))

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, node: _Tree, scope: _Scope, depth: int) -> Any:
        function = node.field("function") or node.field("constructor")
        given = node.field("arguments")
        if function is None:
            return UNKNOWN
        target = self.value(function, scope, depth)
        if given is not None and given.type == "template_string":
            inner = self._template(given, scope, depth)
            raw = isinstance(target, _Builtin) and target.name == "String.raw"
            return given.text[1:-1] if raw and "${" not in given.text else inner if raw else UNKNOWN
        nodes = given.kids if given is not None else []
        arguments = self._list(nodes, scope, depth)
        for one, known in zip(nodes, arguments, strict=False):
            if one.type == "identifier" and isinstance(known, str) and len(known) > 2:
                self.made[one.start, one.end] = known
        return self._apply(target, arguments, node, function, depth)

    def _apply(
        self, target: Any, arguments: list[Any], node: _Tree, function: _Tree, depth: int
    ) -> Any:
        if isinstance(target, _Function):
            return self._call_own(target, arguments, depth)
        if isinstance(target, _Method):
            if target.name in ("call", "apply", "bind"):
                return self._apply_by_name(target, arguments, node, function, depth)
            made = self._call_method(target, arguments, depth)
            if made is not _NOT_PURE:
                return made
        elif isinstance(target, _Builtin):
            made = self._call_builtin(target.name, arguments, depth)
            if made is not _NOT_PURE:
                return made
        self._hand(arguments, node, function)
        for one in arguments:
            if isinstance(one, _Function):
                self._call_own(one, [], depth)
        return UNKNOWN

    def _apply_by_name(
        self, target: _Method, arguments: list[Any], node: _Tree, function: _Tree, depth: int
    ) -> Any:
        if target.name == "bind":
            return target.owner
        rest = arguments[1:]
        if target.name == "apply":
            rest = list(rest[0]) if rest and isinstance(rest[0], list | str) else [UNKNOWN]
        return self._apply(target.owner, rest, node, function, depth)

    def _hand(self, arguments: list[Any], node: _Tree, function: _Tree) -> None:
        """Remember the texts that a call gets whose effect is not known."""
        for one in arguments:
            for text in one[:100] if isinstance(one, list) else (one,):
                if isinstance(text, str) and len(text) > 7 and len(self.handed) < 500:
                    self.handed.append(HandedText(text, node.start, function.text[:40]))

    def _call_own(self, target: _Function, arguments: list[Any], depth: int) -> Any:
        node = target.node
        if arguments and node.start in self._called and all(one is UNKNOWN for one in arguments):
            return UNKNOWN  # it was followed before, and would call itself again and again
        self._called.add(node.start)
        if self._calls >= _MAX_CALLS:
            return UNKNOWN
        scope = _Scope(target.scope)
        self._calls += 1
        try:
            self._bind_arguments(node, arguments, scope, depth)
            body = node.field("body")
            if body is None:
                return UNKNOWN
            if body.type != "statement_block":
                return self.value(body, scope, depth + 1)
            self.run(body, scope, depth + 1)
        except _Leave as jump:
            return jump.value if jump.kind == "return" else UNKNOWN
        finally:
            self._calls -= 1
        return UNDEFINED

    def _bind_arguments(self, node: _Tree, arguments: list[Any], scope: _Scope, depth: int) -> None:
        alone, every = node.field("parameter"), node.field("parameters")
        names = [alone] if alone is not None else every.kids if every is not None else []
        for at, one in enumerate(names):
            if one.type == "rest_pattern" and one.kids:
                self._bind(one.kids[0], arguments[at:], scope, depth)
            else:
                self._bind(one, arguments[at] if at < len(arguments) else UNKNOWN, scope, depth)
        scope.names.setdefault("arguments", arguments or UNKNOWN)

    def call_back(self, target: Any, arguments: list[Any], depth: int) -> Any:
        """Return what a function that was given to a method makes of an item."""
        if isinstance(target, _Function):
            return self._call_own(target, arguments, depth + 1)
        if isinstance(target, _Builtin):
            made = self._call_builtin(target.name, arguments[:1], depth)
            return UNKNOWN if made is _NOT_PURE else made
        return UNKNOWN

    def _call_method(self, target: _Method, arguments: list[Any], depth: int) -> Any:
        owner, name = target.owner, target.name
        if isinstance(owner, str | list):
            self.steps += len(owner) // _SIGNS_OF_A_STEP
        if isinstance(owner, str):
            if name in ("replace", "replaceAll"):
                return self._replace(owner, arguments, name == "replaceAll", depth)
            method = _OF_TEXTS.get(name)
        elif isinstance(owner, list):
            if name in _WITH_CALLBACK:
                return self._each(owner, name, arguments, depth)
            method = _OF_LISTS.get(name)
            self._progress += name == "push"
        elif isinstance(owner, int | float) and not isinstance(owner, bool):
            method = _OF_NUMBERS.get(name)
        elif isinstance(owner, dict) and name == "get" and arguments:
            return owner.get(to_text(arguments[0]) or "", UNKNOWN)
        elif isinstance(owner, dict) and name == "decode" and arguments:
            return _try(_decode_bytes, arguments[0], "utf8")
        else:
            method = None
        if method is None:
            return _NOT_PURE
        made = _try(method, owner, *arguments)
        self.steps += len(made) // _SIGNS_OF_A_STEP if isinstance(made, list) else 0
        return made

    def _replace(self, owner: str, arguments: list[Any], everywhere: bool, depth: int) -> Any:
        if len(arguments) < 2:
            return UNKNOWN
        old, new = arguments[:2]

        room = [2 * MAX_TEXT]

        def turn(match: re.Match[str]) -> str:
            if isinstance(new, str):
                text = _DOLLAR.sub(lambda one: _group(match, one[1]), new) if "$" in new else new
            else:
                made = to_text(self.call_back(new, [match[0], *match.groups()], depth))
                if made is None:
                    raise ValueError
                text = made
            room[0] -= len(text)
            if room[0] < 0:
                raise ValueError
            return text

        if isinstance(old, str):
            old = _make_plain(old, everywhere)
        if not isinstance(old, _Regex):
            return UNKNOWN
        try:
            return old.form.sub(turn, owner, 0 if "g" in old.flags else 1)[: MAX_TEXT + 1]
        except (ValueError, IndexError):
            return UNKNOWN

    def _each(self, owner: list[Any], name: str, arguments: list[Any], depth: int) -> Any:
        back = arguments[0] if arguments else UNKNOWN
        if not arguments and name != "sort":
            return UNKNOWN
        if name == "sort":
            return self._sort(owner, back, depth)
        if name.startswith("reduce"):
            return self._reduce(owner, name, arguments, depth)
        made = [self.call_back(back, [one, at, owner], depth) for at, one in enumerate(list(owner))]
        if name == "map":
            return made
        if name == "flatMap":
            return _try(_flat, made)
        if any(one is UNKNOWN for one in made) or name == "forEach":
            return UNKNOWN
        kept = [one for one, keep in zip(owner, made, strict=True) if _is_true(keep)]
        if name == "filter":
            return kept
        return (kept[0] if kept else UNDEFINED) if name == "find" else UNKNOWN

    def _reduce(self, owner: list[Any], name: str, arguments: list[Any], depth: int) -> Any:
        items = list(enumerate(owner))
        items = items[::-1] if name == "reduceRight" else items
        if len(arguments) < 2 and not items:
            return UNKNOWN
        total = arguments[1] if len(arguments) > 1 else items.pop(0)[1]
        for at, one in items:
            total = self.call_back(arguments[0], [total, one, at, owner], depth)
            if isinstance(total, str) and len(total) > MAX_TEXT:
                return UNKNOWN
        return total

    def _sort(self, owner: list[Any], back: Any, depth: int) -> Any:
        if (
            any(not isinstance(one, str | int | float | list) for one in owner)
            or len(owner) > 2_000
        ):
            return UNKNOWN
        if isinstance(back, _Function):

            def compare(a: Any, b: Any) -> int:
                found = self.call_back(back, [a, b], depth)
                return int(found) if isinstance(found, int | float) else 0

            owner.sort(key=cmp_to_key(compare))
        else:
            owner.sort(key=lambda one: to_text(one) or "")
        return owner

    def _call_builtin(self, name: str, arguments: list[Any], depth: int) -> Any:
        if name == "Array.from" and len(arguments) > 1:
            items = _list_from(arguments[0])
            if not isinstance(items, list):
                return UNKNOWN
            return [self.call_back(arguments[1], [one, at], depth) for at, one in enumerate(items)]
        method = _BUILTINS.get(name)
        if method is None:
            return _NOT_PURE
        made = _try(method, *arguments)
        self.steps += len(made) // _SIGNS_OF_A_STEP if isinstance(made, list) else 0
        return made


_NOT_PURE = _Unknown()


def _try(method: Callable[..., Any], *values: Any) -> Any:
    """Return what a pure function makes of known values; UNKNOWN of any others."""
    if any(one is UNKNOWN for one in values):
        return UNKNOWN
    try:
        made = method(*values)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, OverflowError,
            binascii.Error, re.error, RecursionError):  # fmt: skip
        return UNKNOWN
    if isinstance(made, str | list) and len(made) > MAX_TEXT:
        return UNKNOWN
    return made


# --- values --------------------------------------------------------------------------------------

_ESCAPE = Lazy(r"\\(?:x([0-9a-fA-F]{2})|u\{?([0-9a-fA-F]{1,6})\}?|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "\n": ""}


def unescape_text(text: str) -> str:
    """Return what is written in a string."""
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(min(int(match[1] or match[2], 16), 0x10FFFF))
    if match[3]:
        return chr(int(match[3], 8))
    return _CONTROLS.get(match[4], match[4])


def to_text(value: Any) -> str | None:
    """Return a value as JavaScript makes a text of it; None if it is not known."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 2**64 else None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, _Bytes):
        made = _try(_decode_bytes, value, "utf8")
        return made if isinstance(made, str) else None
    if isinstance(value, list):
        return _list_to_text(value)
    if value is UNDEFINED:
        return "undefined"
    return "[object Object]" if isinstance(value, dict) else None


def _list_to_text(items: list[Any]) -> str | None:
    """Return a list as a text; None for lists in lists of many items: a list may hold itself."""
    flat = items
    for _ in range(_MAX_LEVELS):
        if not any(isinstance(one, list) for one in flat):
            break
        if sum(len(one) if isinstance(one, list) else 1 for one in flat) > _MAX_NESTED:
            return None
        # An empty list is an empty text.
        flat = [x for one in flat for x in ((one or [""]) if isinstance(one, list) else [one])]
    else:
        return None
    parts = ["" if one is UNDEFINED else to_text(one) for one in flat]
    return None if None in parts else ",".join(one or "" for one in parts)


def to_number(value: Any) -> Any:
    """Return a value as a number; UNKNOWN if it is none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        text = value.strip()[:40]
        try:
            if re.fullmatch(r"0[xXbBoO][0-9a-fA-F]+", text):
                return int(text, 0)
            if re.fullmatch(r"-?\d+", text):
                return int(text)
            return float(text) if text else 0
        except ValueError:
            return UNKNOWN
    return UNKNOWN


def _to_int32(value: float) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    number = int(value) & 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def _is_true(value: Any) -> bool:
    return isinstance(value, list | dict | _Function | _Builtin | _Regex) or bool(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list | dict) or isinstance(b, list | dict):
        return a is b
    return bool(a == b)


def combine(a: Any, sign: str, b: Any) -> Any:
    """Return what an operator makes of two values."""
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    if sign == "+":
        return _add(a, b)
    if sign in ("===", "==", "!==", "!="):
        if isinstance(a, _Function | _Builtin | _Method) or isinstance(b, _Function | _Builtin):
            return UNKNOWN
        return _same(a, b) == (sign[0] == "=")
    if sign in _ORDERS and isinstance(a, str) and isinstance(b, str):
        return _ORDERS[sign](a, b)
    x, y, operator = to_number(a), to_number(b), _OPERATORS.get(sign)
    if not isinstance(x, int | float) or not isinstance(y, int | float) or operator is None:
        return UNKNOWN
    try:
        made = operator(x, y)
    except (ZeroDivisionError, OverflowError, ValueError):
        return UNKNOWN
    return made if isinstance(made, bool) or abs(made) < 2**64 else UNKNOWN


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a + b if abs(a) < 2**60 and abs(b) < 2**60 else UNKNOWN
    first, second = to_text(a), to_text(b)
    if first is None or second is None or len(first) + len(second) > MAX_TEXT:
        return UNKNOWN
    return first + second


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b),
    ">": lambda a, b: bool(a > b),
    "<=": lambda a, b: bool(a <= b),
    ">=": lambda a, b: bool(a >= b),
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **_ORDERS,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b,
    "%": lambda a, b: math.fmod(a, b) if isinstance(a, float) else int(math.fmod(a, b)),
    "**": lambda a, b: a**b if abs(a) < 2**16 and 0 <= b < 64 else math.inf,
    "^": lambda a, b: _to_int32(_to_int32(a) ^ _to_int32(b)),
    "|": lambda a, b: _to_int32(_to_int32(a) | _to_int32(b)),
    "&": lambda a, b: _to_int32(_to_int32(a) & _to_int32(b)),
    "<<": lambda a, b: _to_int32(_to_int32(a) << (int(b) & 31)),
    ">>": lambda a, b: _to_int32(a) >> (int(b) & 31),
    ">>>": lambda a, b: (_to_int32(a) & 0xFFFFFFFF) >> (int(b) & 31),
}
# One atom, repeated at most at the end: searches take linear time.
_SIMPLE_FORM = Lazy(
    r"(?:\\[dwsDWSnrt]|\\x[0-9a-fA-F]{2}|\\[^\w\s]|\[\^?(?:\\.|[^\]\\\[]){1,60}\]|[^\\\[\](){}*+?|^$.]|\.){1,40}"
    r"(?:\+|\*|\{\d{1,2}(?:,\d{0,2})?\})?|\((?:\\[dws]|\[\^?(?:\\.|[^\]\\\[]){1,60}\]|\.){1,9}(?:\+|\{\d{1,2}\})?\)"
)
_DOLLAR = Lazy(r"\$(\d|&)")


def make_regex(pattern: str, flags: str) -> Any:
    """Return a pattern that is simple enough; UNKNOWN for any other."""
    if len(pattern) > 200 or not _SIMPLE_FORM.fullmatch(pattern):
        return UNKNOWN
    try:
        form = _compile(pattern, flags)
    except (re.error, OverflowError, RecursionError):
        return UNKNOWN
    return UNKNOWN if form.match("") else _Regex(form, flags)


def _compile(pattern: str, flags: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE if "i" in flags else 0)


def _make_plain(text: str, everywhere: bool) -> _Regex:
    return _Regex(re.compile(re.escape(text)), "g" if everywhere else "")


def _group(match: re.Match[str], name: str) -> str:
    return match[0] if name == "&" else match[int(name)] or ""


# --- functions of texts, lists and numbers -------------------------------------------------------


def _split(text: str, mark: Any = UNDEFINED, most: Any = MAX_ITEMS) -> list[str]:
    if mark is UNDEFINED:
        return [text]
    if isinstance(mark, _Regex):
        parts = mark.form.split(text)
        return [one for one in parts if one is not None][: int(most)]
    return (text.split(mark) if mark else list(text))[: int(most)]


def _slice(value: Any, start: Any = 0, end: Any = UNDEFINED) -> Any:
    last = len(value) if end is UNDEFINED else int(end)
    made = value[_bound(int(start), len(value)) : _bound(last, len(value))]
    return _Bytes(made) if isinstance(value, _Bytes) else made


def _bound(at: int, size: int) -> int:
    return max(at + size, 0) if at < 0 else min(at, size)


def _substring(text: str, start: Any, end: Any = UNDEFINED) -> str:
    a = min(max(int(start), 0), len(text))
    b = len(text) if end is UNDEFINED else min(max(int(end), 0), len(text))
    return text[min(a, b) : max(a, b)]


def _substr(text: str, start: Any, count: Any = MAX_TEXT) -> str:
    at = _bound(int(start), len(text))
    return text[at : at + int(count)]


def _code_at(text: str, at: Any = 0) -> Any:
    return ord(text[int(at)]) if 0 <= int(at) < len(text) else UNKNOWN


def _at(value: Any, at: Any = 0) -> Any:
    return value[int(at)] if -len(value) <= int(at) < len(value) else UNDEFINED


def _pad(text: str, size: Any, fill: Any = " ", *, end: bool = False) -> str:
    missing = max(min(int(size), MAX_TEXT) - len(text), 0)
    added: str = (str(fill) * (missing // max(len(fill), 1) + 1))[:missing]
    return text + added if end else added + text


def _match(text: str, form: Any) -> Any:
    if not isinstance(form, _Regex):
        return UNKNOWN
    if "g" in form.flags:
        return [one[0] for one in form.form.finditer(text)] or UNDEFINED
    found = form.form.search(text)
    return [found[0], *found.groups()] if found else UNDEFINED


def _repeat(text: str, count: Any) -> Any:
    return text * int(count) if 0 <= len(text) * int(count) <= MAX_TEXT else UNKNOWN


def _texts(*values: Any) -> str:
    made = [to_text(one) for one in values]
    if None in made:
        raise ValueError
    return "".join(one or "" for one in made)


_OF_TEXTS: dict[str, Callable[..., Any]] = {
    "split": _split,
    "slice": _slice,
    "substring": _substring,
    "substr": _substr,
    "charAt": lambda text, at=0: text[int(at)] if 0 <= int(at) < len(text) else "",
    "at": _at,
    "charCodeAt": _code_at,
    "codePointAt": _code_at,
    "concat": _texts,
    "repeat": _repeat,
    "padStart": _pad,
    "padEnd": lambda text, size, fill=" ": _pad(text, size, fill, end=True),
    "trim": lambda text: text.strip(),
    "trimStart": lambda text: text.lstrip(),
    "trimEnd": lambda text: text.rstrip(),
    "toLowerCase": lambda text: text.lower(),
    "toUpperCase": lambda text: text.upper(),
    "toString": lambda text, *_: text,
    "valueOf": lambda text: text,
    "normalize": lambda text, *_: text,
    "indexOf": lambda text, part, start=0: text.find(part, int(start)),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "includes": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "match": _match,
    "matchAll": lambda text, form: [[one[0], *one.groups()] for one in form.form.finditer(text)],
}


def _join(items: list[Any], mark: Any = ",") -> Any:
    parts = [("" if one is UNDEFINED else to_text(one)) for one in items]
    if None in parts or sum(len(one or "") + len(mark) for one in parts) > MAX_TEXT + len(mark):
        return UNKNOWN
    return str(mark).join(one or "" for one in parts)


def _reverse(items: list[Any]) -> list[Any]:
    items.reverse()
    return items


def _index_of(items: list[Any], one: Any) -> int:
    return next((at for at, other in enumerate(items) if _same(other, one)), -1)


def _push(items: list[Any], *more: Any) -> int:
    if len(items) + len(more) > MAX_ITEMS:
        raise ValueError
    items.extend(more)
    return len(items)


def _unshift(items: list[Any], *more: Any) -> int:
    if len(items) + len(more) > MAX_ITEMS:
        raise ValueError
    items[:0] = more
    return len(items)


def _splice(items: list[Any], start: Any, count: Any = MAX_ITEMS, *more: Any) -> list[Any]:
    at = _bound(int(start), len(items))
    gone = items[at : at + int(count)]
    items[at : at + int(count)] = more
    return gone


def _concat(items: list[Any], *more: Any) -> list[Any]:
    made = list(items)
    if sum(len(one) if isinstance(one, list) else 1 for one in more) > MAX_ITEMS:
        raise ValueError
    for one in more:
        made += one if isinstance(one, list) else [one]
    return made[: MAX_ITEMS + 1]


def _flat(items: list[Any], depth: Any = 1) -> list[Any]:
    made = list(items)
    for _ in range(min(int(depth), 5)):
        if sum(len(one) if isinstance(one, list) else 1 for one in made) > MAX_ITEMS:
            raise ValueError
        made = [x for one in made for x in (one if isinstance(one, list) else [one])]
    return made


def _of_bytes(items: list[Any], codec: Any = UNDEFINED, *_: Any) -> Any:
    if not isinstance(items, _Bytes):
        return to_text(items) or UNKNOWN
    return _decode_bytes(items, codec or "utf8")


def _decode_bytes(items: Any, codec: str) -> str:
    data = bytes(int(one) & 255 for one in items)
    if codec in ("base64", "base64url"):
        return base64.b64encode(data).decode()
    if codec == "hex":
        return data.hex()
    if codec in ("utf16le", "ucs2", "utf-16le"):
        return data.decode("utf-16-le", "replace")
    return data.decode("latin-1" if codec in ("binary", "latin1", "ascii") else "utf-8", "replace")


_OF_LISTS: dict[str, Callable[..., Any]] = {
    "join": _join,
    "reverse": _reverse,
    "toReversed": lambda items: items[::-1],
    "slice": _slice,
    "subarray": _slice,
    "concat": _concat,
    "push": _push,
    "unshift": _unshift,
    "pop": lambda items: items.pop() if items else UNDEFINED,
    "shift": lambda items: items.pop(0) if items else UNDEFINED,
    "splice": _splice,
    "at": _at,
    "flat": _flat,
    "fill": lambda items, value: [value] * len(items),
    "indexOf": lambda items, one: _index_of(items, one),
    "includes": lambda items, one: _index_of(items, one) >= 0,
    "toString": _of_bytes,
    "entries": lambda items: [[at, one] for at, one in enumerate(items)],
    "keys": lambda items: list(range(len(items))),
    "values": lambda items: items,
    "set": lambda items, more, at=0: items.__setitem__(slice(int(at), int(at) + len(more)), more),
}
_WITH_CALLBACK = frozenset(
    ("map", "forEach", "filter", "reduce", "reduceRight", "flatMap", "find", "sort", "some",
     "every")
)  # fmt: skip
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _in_base(number: float, base: Any = 10) -> str:
    value, made = int(number), ""
    if int(base) == 10 or not 2 <= int(base) <= 36:
        return to_text(number) or ""
    sign, value = ("-", -value) if value < 0 else ("", value)
    while value:
        value, rest = divmod(value, int(base))
        made = f"{_DIGITS[rest]}{made}"
    return f"{sign}{made or '0'}"


_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "toString": _in_base,
    "toFixed": lambda number, digits=0: f"{number:.{min(int(digits), 20)}f}",
    "valueOf": lambda number: number,
}


def _from_codes(*codes: Any) -> str:
    return "".join(chr(int(to_number(one)) & 0x1FFFFF) for one in codes)


def _parse_int(text: Any, base: Any = 10) -> Any:
    plain = (to_text(text) or "").strip().lower()[:40]
    base = int(base) or 10
    if plain.startswith("0x") and base in (10, 16):
        plain, base = plain[2:], 16
    sign, plain = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    known = frozenset(_DIGITS[: min(base, 36)])
    size = next((at for at, one in enumerate(plain) if one not in known), len(plain))
    return int(sign + plain[:size], base) if size else UNKNOWN


def _unbase64(text: str) -> bytes:
    plain = re.sub(r"[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


def _buffer(value: Any, codec: Any = "utf8", *_: Any) -> Any:
    if isinstance(value, list):
        return _Bytes(int(one) & 255 for one in value)
    if not isinstance(value, str):
        return UNKNOWN
    if codec in ("base64", "base64url"):
        return _Bytes(_unbase64(value))
    if codec == "hex":
        return _Bytes(bytes.fromhex(value))
    if codec in ("latin1", "binary", "ascii"):
        return _Bytes(value.encode("latin-1", "replace"))
    return _Bytes(value.encode("utf-8", "replace"))


def _new_bytes(value: Any = 0, *_: Any) -> Any:
    if isinstance(value, int):
        return _Bytes([0] * value) if 0 <= value <= MAX_ITEMS else UNKNOWN
    return _Bytes(int(to_number(one)) for one in value)


def _list_from(value: Any, *_: Any) -> Any:
    if isinstance(value, list | str):
        return list(value)
    size = value.get("length") if isinstance(value, dict) else UNKNOWN
    return [UNDEFINED] * size if isinstance(size, int) and 0 <= size <= MAX_ITEMS else UNKNOWN


def _new_list(*values: Any) -> Any:
    if len(values) == 1 and isinstance(values[0], int):
        return [UNDEFINED] * values[0] if 0 <= values[0] <= MAX_ITEMS else UNKNOWN
    return list(values)


def _unescape_percent(text: str) -> str:
    plain = re.sub(r"%u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    return unquote(plain, "latin-1")


def _parse_json(text: str, *_: Any) -> Any:
    if len(text) > MAX_TEXT or text.count("[") + text.count("{") > 2_000:
        return UNKNOWN
    return read_json(text)


def _need_number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError
    return value


def _dump_json(value: Any, *_: Any) -> Any:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if any(isinstance(one, list | dict) for one in parts):  # it may hold itself
        return UNKNOWN
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "String.fromCharCode": _from_codes,
    "String.fromCodePoint": _from_codes,
    "String": lambda value="": to_text(value),
    "Number": lambda value=0: to_number(value),
    "parseInt": _parse_int,
    "Number.parseInt": _parse_int,
    "parseFloat": lambda value: to_number(value),
    "BigInt": lambda value: to_number(value),
    "Boolean": _is_true,
    "atob": lambda text: _unbase64(text).decode("latin-1"),
    "btoa": lambda text: base64.b64encode(text.encode("latin-1")).decode(),
    "decodeURIComponent": lambda text: unquote(text),
    "decodeURI": lambda text: unquote(text),
    "encodeURIComponent": lambda text: quote(text, safe="!'()*-._~"),
    "unescape": _unescape_percent,
    "escape": lambda text: quote(text, safe="@*_+-./", encoding="latin-1"),
    "Buffer.from": _buffer,
    "Buffer": _buffer,
    "Buffer.alloc": _new_bytes,
    "Buffer.concat": lambda items, *_: _Bytes(_flat(items)),
    "Uint8Array": _new_bytes,
    "Uint8Array.from": _new_bytes,
    "Uint8Array.of": lambda *items: _Bytes(items),
    "Uint16Array": _new_bytes,
    "Array": _new_list,
    "Array.of": lambda *items: list(items),
    "Array.from": _list_from,
    "Array.isArray": lambda value: isinstance(value, list),
    "TextDecoder": lambda *_: {},
    "TextEncoder": lambda *_: {},
    "Map": lambda pairs=(): {to_text(one[0]) or "": one[1] for one in pairs},
    "Set": lambda items=(): list(dict.fromkeys(items)),
    "Object.entries": lambda value: [[key, one] for key, one in value.items()],
    "Object.keys": lambda value: list(value),
    "Object.values": lambda value: list(value.values()),
    "Object.fromEntries": lambda pairs: {to_text(one[0]) or "": one[1] for one in pairs},
    "Object.assign": lambda *values: {key: x for one in values for key, x in one.items()},
    "Object.freeze": lambda value: value,
    "JSON.parse": _parse_json,
    "JSON.stringify": _dump_json,
    "Math.floor": lambda value: math.floor(value),
    "Math.ceil": lambda value: math.ceil(value),
    "Math.round": lambda value: math.floor(value + 0.5),
    "Math.trunc": lambda value: math.trunc(value),
    "Math.abs": lambda value: abs(value),
    "Math.min": lambda *values: min(map(_need_number, values)),
    "Math.max": lambda *values: max(map(_need_number, values)),
    "Math.pow": lambda a, b: combine(a, "**", b),
    "Math.sqrt": lambda value: math.sqrt(value),
    "RegExp": lambda pattern, flags="": make_regex(pattern, flags),
}
_GLOBALS = frozenset(
    (*(name.partition(".")[0] for name in _BUILTINS), "Math", "JSON", "Object", "globalThis",
     "window", "global", "self")
)  # fmt: skip
# Parts of a tree that hold statements.
_HOLDERS = frozenset(
    ("program", "else_clause", "export_statement", "switch_default", "switch_case")
)
_PLAIN = frozenset(("string", "identifier", "parenthesized_expression", "number", "regex"))
_Run = Callable[[_Evaluator, _Tree, _Scope, int], None]
_STATEMENTS: dict[str, _Run] = {
    "statement_block": _Evaluator._block,
    "lexical_declaration": _Evaluator._declare,
    "variable_declaration": _Evaluator._declare,
    "if_statement": _Evaluator._if,
    "for_statement": _Evaluator._for,
    "for_in_statement": _Evaluator._for_in,
    "while_statement": _Evaluator._while,
    "do_statement": _Evaluator._do,
    "return_statement": _Evaluator._return,
    "break_statement": _Evaluator._break,
    "continue_statement": _Evaluator._continue,
    "throw_statement": _Evaluator._throw,
    "switch_statement": _Evaluator._switch,
    "class_declaration": _Evaluator._class,
    "class": _Evaluator._class,
}
_Value = Callable[[_Evaluator, _Tree, _Scope, int], Any]
_EXPRESSIONS: dict[str, _Value] = {
    "string": _Evaluator._string,
    "template_string": _Evaluator._template,
    "number": _Evaluator._number,
    "true": lambda *_: True,
    "false": lambda *_: False,
    "null": lambda *_: UNDEFINED,
    "undefined": lambda *_: UNDEFINED,
    "identifier": _Evaluator._identifier,
    "shorthand_property_identifier": _Evaluator._identifier,
    "array": _Evaluator._array,
    "object": _Evaluator._object,
    "parenthesized_expression": _Evaluator._first,
    "await_expression": _Evaluator._first,
    "as_expression": _Evaluator._first,
    "satisfies_expression": _Evaluator._first,
    "non_null_expression": _Evaluator._first,
    "expression_statement": _Evaluator._first,
    "sequence_expression": _Evaluator._sequence,
    "ternary_expression": _Evaluator._ternary,
    "regex": _Evaluator._regex,
    "unary_expression": _Evaluator._unary,
    "binary_expression": _Evaluator._binary,
    "assignment_expression": _Evaluator._assign,
    "augmented_assignment_expression": _Evaluator._assign_more,
    "update_expression": _Evaluator._update,
    "member_expression": _Evaluator._member,
    "subscript_expression": _Evaluator._member,
    "call_expression": _Evaluator._call,
    "new_expression": _Evaluator._call,
    **dict.fromkeys(
        ("arrow_function", "function_expression", "generator_function", "function"),
        _Evaluator._function,
    ),
}
