"""Check a value against a JSON Schema: the keywords that describe a value.

A keyword that is not known here raises UnknownKeyword: a schema that is only partly understood
would pass what it must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from skillbelt.evals.patterns import BadPattern, search_pattern
from skillbelt.text import shorten

_MAX_DEPTH = 64
_MAX_STEPS = 200_000
_MAX_FAULTS = 20
_MAX_PATTERN_SECONDS = 30.0  # for all patterns of one check; each one runs in a process
# Keywords that describe and check nothing.
_NOTES = frozenset(
    ("$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default",
     "examples", "format", "deprecated", "readOnly", "writeOnly", "contentMediaType",
     "contentEncoding", "$anchor")
)  # fmt: skip


class UnknownKeyword(Exception):
    """The schema uses something that is not supported; the text names it."""


def find_faults(value: object, schema: object) -> list[str]:
    """Return what is wrong with the value, each with its place; nothing if it fits.

    UnknownKeyword for a schema that cannot be decided.
    """
    found: list[str] = []
    for fault in _Checker(schema).check(value, schema, "$", 0):
        found.append(fault)
        if len(found) >= _MAX_FAULTS:
            break
    return found


class _Checker:
    def __init__(self, root: object) -> None:
        self._root, self._steps, self._pattern_seconds = root, 0, 0.0
        self._texts: dict[int, str] = {}
        self._choices: dict[int, frozenset[str]] = {}

    def spend(self, steps: int) -> None:
        """Count the work; UnknownKeyword when it exceeds the limit. A schema is untrusted."""
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise UnknownKeyword("the schema or the value is too large to check")

    def canonical(self, value: object) -> str:
        """Return a text that equal values share. A list or an object is written once."""
        if not isinstance(value, list | dict):
            return _canonical(value)
        if id(value) not in self._texts:
            self._texts[id(value)] = _canonical(value)
        return self._texts[id(value)]

    def is_choice(self, value: object, choices: list[object]) -> bool:
        """Whether the value is one of the choices."""
        if id(choices) not in self._choices:
            self._choices[id(choices)] = frozenset(map(_canonical, choices))
        return self.canonical(value) in self._choices[id(choices)]

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found; UnknownKeyword if that takes too long."""
        if self._pattern_seconds > _MAX_PATTERN_SECONDS:
            raise UnknownKeyword("the patterns take too long")
        began = time.monotonic()
        try:
            return search_pattern(pattern, text)
        except BadPattern as error:
            raise UnknownKeyword(str(error)) from None
        finally:
            self._pattern_seconds += time.monotonic() - began

    def check(self, value: object, schema: object, at: str, depth: int) -> Iterator[str]:
        self.spend(1)
        if depth > _MAX_DEPTH:
            raise UnknownKeyword("the schema is too deep, or refers to itself")
        if isinstance(schema, bool):
            if not schema:
                yield f"{at}: nothing is allowed here"
            return
        if not isinstance(schema, Mapping):
            raise UnknownKeyword("a schema is an object, or true or false")
        unknown = [key for key in schema if key not in _NOTES and key not in _KEYWORDS]
        if unknown:
            raise UnknownKeyword(f"the keyword {unknown[0]!r} is not supported")
        for key, check in _KEYWORDS.items():
            if key in schema:
                yield from check(self, value, schema, at, depth)

    def resolve(self, reference: object) -> object:
        """Return the part of the schema that a local reference names."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnknownKeyword(f"only references into the same schema are read: {reference!r}")
        found = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise UnknownKeyword(f"there is nothing at {reference!r}")
            found = found[name]
        return found

    def fits(self, value: object, schema: object, at: str, depth: int) -> bool:
        return next(self.check(value, schema, at, depth + 1), None) is None


_Check = Callable[[_Checker, Any, Mapping[str, Any], str, int], Iterator[str]]
_TYPES: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        "object": lambda value: isinstance(value, dict),
        "array": lambda value: isinstance(value, list),
        "string": lambda value: isinstance(value, str),
        "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        "integer": lambda value: (
            not isinstance(value, bool)
            and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
        ),
        "boolean": lambda value: isinstance(value, bool),
        "null": lambda value: value is None,
    }
)


def _type(
    _: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    wanted = schema["type"]
    listed = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(one, str) and one in _TYPES for one in listed):
        raise UnknownKeyword(f"unknown type {wanted!r}")
    if not any(_TYPES[one](value) for one in listed):
        yield f"{at}: is not of type {' or '.join(listed)}"


def equal(one: object, other: object) -> bool:
    """Return whether two JSON values are the same; true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return (_is_number(one) and _is_number(other) and one == other) or (
        type(one) is type(other) and one == other
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _canonical(value: object) -> str:
    """Return a text that equal values share."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{_canonical(value[key])}' for key in sorted(value))}}}"
    return repr(value)


def _enum(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    if not isinstance(schema["enum"], list):
        raise UnknownKeyword("enum takes a list")
    if not me.is_choice(value, schema["enum"]):
        yield f"{at}: is not one of the {len(schema['enum'])} allowed values"


def _const(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    if me.canonical(value) != me.canonical(schema["const"]):
        yield f"{at}: is not the one value that is allowed"


def _bound(
    key: str, size: Callable[[Any], float | None], fits: Callable[[float, float], bool]
) -> _Check:
    def check(
        _: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
    ) -> Iterator[str]:
        limit, found = schema[key], size(value)
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise UnknownKeyword(f"{key} takes a number")
        if found is not None and not fits(found, limit):
            yield f"{at}: {_figure(found)} does not keep to {key} {_figure(limit)}"

    return check


def _figure(number: float) -> str:
    """Return a number as text; a whole one may be too large for a float."""
    return shorten(str(number), 40) if isinstance(number, int) else f"{number:g}"


def _of(kind: type[str] | type[list[Any]] | type[dict[str, Any]]) -> Callable[[Any], float | None]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _plain_number(value: Any) -> float | None:
    return value if _TYPES["number"](value) else None


def _pattern(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    if isinstance(value, str) and not me.matches(str(schema["pattern"]), value):
        yield f"{at}: does not match the pattern"


def _required(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    if not isinstance(schema["required"], list):
        raise UnknownKeyword("required takes a list")
    me.spend(len(schema["required"]))
    if not all(isinstance(one, str) for one in schema["required"]):
        raise UnknownKeyword("required takes a list of texts")
    if isinstance(value, dict):
        yield from (f"{at}: {key!r} is missing" for key in schema["required"] if key not in value)


def _properties(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    known = schema["properties"]
    if not isinstance(known, Mapping):
        raise UnknownKeyword("properties takes an object")
    if isinstance(value, dict):
        me.spend(len(known))
        for key, inner in known.items():
            if key in value:
                yield from me.check(value[key], inner, f"{at}.{key}", depth + 1)


def _additional(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    known = schema.get("properties")
    for key in value:
        if not isinstance(known, Mapping) or key not in known:
            yield from me.check(
                value[key], schema["additionalProperties"], f"{at}.{key}", depth + 1
            )


def _items(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from me.check(one, schema["items"], f"{at}[{number}]", depth + 1)


def _unique(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, _depth: int
) -> Iterator[str]:
    wanted = schema["uniqueItems"] is True and isinstance(value, list)
    if wanted:
        me.spend(len(value))
    if wanted and len(set(map(me.canonical, value))) < len(value):
        yield f"{at}: has the same item twice"


def _choices(schema: Mapping[str, Any], key: str) -> list[object]:
    if not isinstance(schema[key], list):
        raise UnknownKeyword(f"{key} takes a list")
    return list(schema[key])


def _all_of(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    for one in _choices(schema, "allOf"):
        yield from me.check(value, one, at, depth + 1)


def _any_of(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    if not any(me.fits(value, one, at, depth) for one in _choices(schema, "anyOf")):
        yield f"{at}: fits none of the choices"


def _one_of(
    me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    count = sum(me.fits(value, one, at, depth) for one in _choices(schema, "oneOf"))
    if count != 1:
        yield f"{at}: fits {count} of the choices, not one"


def _not(me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
    if me.fits(value, schema["not"], at, depth):
        yield f"{at}: matches what `not` forbids"


def _ref(me: _Checker, value: Any, schema: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
    yield from me.check(value, me.resolve(schema["$ref"]), at, depth + 1)


_KEYWORDS: Mapping[str, _Check] = MappingProxyType(
    {
        "$ref": _ref,
        "type": _type,
        "enum": _enum,
        "const": _const,
        "required": _required,
        "properties": _properties,
        "additionalProperties": _additional,
        "items": _items,
        "uniqueItems": _unique,
        "pattern": _pattern,
        "minLength": _bound("minLength", _of(str), lambda found, least: found >= least),
        "maxLength": _bound("maxLength", _of(str), lambda found, most: found <= most),
        "minItems": _bound("minItems", _of(list), lambda found, least: found >= least),
        "maxItems": _bound("maxItems", _of(list), lambda found, most: found <= most),
        "minProperties": _bound("minProperties", _of(dict), lambda found, least: found >= least),
        "maxProperties": _bound("maxProperties", _of(dict), lambda found, most: found <= most),
        "minimum": _bound("minimum", _plain_number, lambda found, least: found >= least),
        "maximum": _bound("maximum", _plain_number, lambda found, most: found <= most),
        "exclusiveMinimum": _bound(
            "exclusiveMinimum", _plain_number, lambda found, least: found > least
        ),
        "exclusiveMaximum": _bound(
            "exclusiveMaximum", _plain_number, lambda found, most: found < most
        ),
        "allOf": _all_of,
        "anyOf": _any_of,
        "oneOf": _one_of,
        "not": _not,
    }
)
