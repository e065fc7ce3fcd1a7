"""Results of pure functions of Python for known values, within bounds, for the evaluator.

Only what is listed here is ever called, and with values of the built-in types alone. Each function
checks the size of what it would make before it makes it.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import codecs
import collections
import functools
import hashlib
import html
import itertools
import lzma
import math
import operator
import random
import re
import string
import struct
import textwrap
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from skillbelt.scan.addresses import HOLE
from skillbelt.untrusted_json import read_json

# Characters, bytes or items of one value.
MAX_SIZE = 64 * 2**10
_MAX_BITS = 64 * 2**10
_MAX_POWER_BITS = 1024
_MAX_DEPTH = 40
_MAX_SEARCHED = 4_000
# Memory of a decompressor.
_MAX_MEMORY = 16 * 2**20


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


class TooLarge(Exception):
    """A value, or the work for it, is larger than the evaluator takes."""


class NotPlain(Exception):
    """A value is not of a type that is printed here."""


class Unknown:
    """The type of a value that is not known."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()

SCALARS = frozenset((int, float, bool, str, bytes, bytearray, type(None)))
TEXTS = frozenset((str, bytes, bytearray))
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
CONTAINERS = frozenset((*_SEQUENCES, dict, collections.defaultdict, collections.Counter))
PLAIN = SCALARS | CONTAINERS
_MAPPINGS = frozenset((dict, collections.defaultdict, collections.Counter))


def bounded(size: int) -> None:
    """Raise TooLarge for a value of more characters, bytes or items than is allowed."""
    if size > MAX_SIZE:
        raise TooLarge


def is_flat(value: Any) -> bool:
    """Whether a value is none of the types that hold others, or holds none of those."""
    kind = type(value)
    if kind not in CONTAINERS:
        return True
    if kind in _MAPPINGS and not SCALARS.issuperset(map(type, value.values())):
        return False
    return SCALARS.issuperset(map(type, value))


def weigh(value: object) -> int:
    """Return how many values a value holds, those in it included; TooLarge beyond the bound.

    Comparing, hashing and printing visit a shared part each time that it occurs.
    """
    if is_flat(value):
        return len(value) if type(value) in CONTAINERS else 1  # type: ignore[arg-type]
    left = [(value, 0)]
    total = 0
    while left:
        one, depth = left.pop()
        total += 1
        if type(one) in CONTAINERS:
            bounded(total + len(one))  # type: ignore[arg-type]
            if depth > _MAX_DEPTH:
                raise TooLarge
            parts = [*one, *one.values()] if isinstance(one, dict) else one
            left += [(part, depth + 1) for part in parts]  # type: ignore[attr-defined]
    return total


def holds_unknown(value: object) -> bool:
    """Whether a value, or an item of it, is not known."""
    if value is UNKNOWN:
        return True
    kind = type(value)
    if kind in (list, tuple, set):
        return any(one is UNKNOWN for one in value)  # type: ignore[attr-defined]
    return kind is dict and any(one is UNKNOWN for one in value.values())  # type: ignore[attr-defined]


def collect(values: Iterable[Any]) -> list[Any]:
    """Return the items of an iterable as a list; TooLarge beyond the bound."""
    if isinstance(values, range) or type(values) in PLAIN:
        bounded(len(values))  # type: ignore[arg-type]
        return list(values)
    made = list(itertools.islice(iter(values), MAX_SIZE + 1))
    bounded(len(made))
    return made


# --- operators -----------------------------------------------------------------------------------


def add(left: Any, right: Any) -> Any:
    """Return the sum of two values."""
    if type(left) not in (int, float, bool):
        bounded(_size(left) + _size(right))
    return left + right


def multiply(left: Any, right: Any) -> Any:
    """Return the product of two values."""
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    elif isinstance(right, int) and not isinstance(left, float):
        bounded(_size(left) * max(right, 0))
    elif isinstance(left, int) and not isinstance(right, float):
        bounded(_size(right) * max(left, 0))
    return left * right


def power(left: Any, right: Any, modulus: Any = None) -> Any:
    """Return a power."""
    if modulus is not None:
        if max(abs(left), abs(right), abs(modulus)).bit_length() > _MAX_POWER_BITS:
            raise TooLarge
        return pow(left, right, modulus)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 1))
    return left**right


def shift_left(left: Any, right: Any) -> Any:
    """Return a number shifted to the left."""
    _check_bits(left.bit_length() + max(right, 0))
    return left << right


def remainder(left: Any, right: Any) -> Any:
    """Return the rest of a division, or a text with its values put in."""
    if type(left) in TEXTS:
        return _put_percent(left, right)
    return left % right


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise TooLarge


def _size(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 1


_PERCENT = re.compile(rb"%(?:\(\w{1,40}\))?[-+ #0]{0,4}\d{0,3}(?:\.\d{0,3})?[a-zA-Z%]")


def _put_percent(form: Any, values: Any) -> Any:
    data = form.encode("utf-8", "surrogatepass") if isinstance(form, str) else bytes(form)
    bounded(len(data))
    if b"%" in _PERCENT.sub(b"", data):
        raise TooLarge  # a width that another value gives
    count = data.count(b"%")
    sizes = weigh_text(values)
    bounded(len(data) + count * 1_000 + (sizes if b"%(" not in data else count * sizes))
    return form % values


def weigh_text(value: Any) -> int:
    """Return about how many characters the value has when it is printed."""
    if type(value) in TEXTS:
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if type(value) not in CONTAINERS:
        if type(value) in SCALARS:
            return 40
        raise NotPlain
    bounded(weigh(value))
    total = 0
    left = [value]
    while left:
        one = left.pop()
        if type(one) in CONTAINERS:
            left += [*one, *one.values()] if isinstance(one, dict) else one
            total += 2 * len(one)
        else:
            total += weigh_text(one)
        bounded(total)
    return total


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": add, "Sub": operator.sub, "Mult": multiply, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": remainder, "Pow": power, "LShift": shift_left,
    "RShift": operator.rshift, "BitOr": operator.or_, "BitXor": operator.xor,
    "BitAnd": operator.and_,
}  # fmt: skip


def operate(name: str, left: Any, right: Any) -> Any:
    """Return what a binary operator of this name makes of two known values."""
    if type(left) not in PLAIN or type(right) not in PLAIN:
        return UNKNOWN
    if name == "Mod" and type(left) in TEXTS and holds_unknown(right):
        return UNKNOWN
    if type(left) in CONTAINERS and name in ("BitOr", "BitXor", "BitAnd", "Sub"):
        bounded(weigh(left) + weigh(right))
    return _BINARY[name](left, right)


def _compare_with(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        bounded(weigh(left) + weigh(right))
        return function(left, right)

    return run


def _is_in(left: Any, right: Any) -> Any:
    bounded(weigh(left))
    if type(right) in CONTAINERS:
        bounded(weigh(right))
    elif isinstance(right, range):
        if type(left) is not int:  # else each number is looked at
            return UNKNOWN
    elif type(right) not in TEXTS:
        return UNKNOWN
    return left in right


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": _compare_with(operator.eq), "NotEq": _compare_with(operator.ne),
    "Lt": _compare_with(operator.lt), "LtE": _compare_with(operator.le),
    "Gt": _compare_with(operator.gt), "GtE": _compare_with(operator.ge),
    "Is": operator.is_, "IsNot": operator.is_not,
}  # fmt: skip


def compare(name: str, left: Any, right: Any) -> Any:
    """Return what a comparison of this name says of two known values."""
    if name in ("In", "NotIn"):
        found = _is_in(left, right)
        return found if found is UNKNOWN or name == "In" else not found
    if name not in ("Is", "IsNot") and not {type(left), type(right)} <= PLAIN:
        return UNKNOWN
    return _COMPARISONS[name](left, right)


# --- texts ---------------------------------------------------------------------------------------

_SPEC = re.compile(
    r"(?:[^{}]?[<>=^])?[-+ ]?#?0?\d{0,3}[,_]?(?:\.\d{1,3})?[bcdeEfFgGnosxX%]?\Z", re.S
)


def format_value(value: Any, spec: str) -> str:
    """Return a value as `format` prints it."""
    if value is UNKNOWN or (type(value) not in SCALARS and spec):
        return HOLE
    if not _SPEC.match(spec):
        raise TooLarge
    return format(value, spec) if spec else to_text(value)


def to_text(value: Any) -> str:
    """Return a value as `str` prints it."""
    return str(value) if type(value) is str else _print(str, value)


def _repr(value: Any) -> str:
    return _print(repr, value)


def _print(function: Callable[[Any], str], value: Any) -> str:
    try:
        bounded(weigh_text(value))
    except NotPlain:
        return HOLE
    return function(value)


_FIELD = re.compile(r"(\w*)((?:\[[^\[\]]{1,40}\])*)\Z")
_KEY = re.compile(r"\[([^\[\]]{1,40})\]")


def put_in(form: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return a text with values put between its braces, a hole for unknown ones."""
    made: list[str] = []
    size = count = 0
    for text, field, spec, how in string.Formatter().parse(form):
        made.append(text)
        if field is not None:
            match = _FIELD.match(field)
            if match is None:
                raise TooLarge
            name = match[1] or str(count)
            count += not match[1]
            value = args[int(name)] if name.isdecimal() else named[name]
            for key in _KEY.findall(match[2]):
                value = value[int(key) if key.isdecimal() else key]
            spec = put_in(spec, args, named) if spec and "{" in spec else spec
            value = _repr(value) if how == "r" and value is not UNKNOWN else value
            made.append(HOLE if holds_unknown(value) else format_value(value, spec or ""))
        size += sum(map(len, made[-2:]))
        bounded(size)
    return "".join(made)


def join(separator: Any, parts: list[Any]) -> Any:
    """Return parts with a separator between them, a hole for unknown ones."""
    if isinstance(separator, str):
        parts = [HOLE if one is UNKNOWN else one for one in parts]
    elif UNKNOWN in parts:
        return UNKNOWN
    bounded(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _replace(text: Any, old: Any, new: Any, count: int = -1) -> Any:
    bounded(len(text) + text.count(old) * max(len(new) - len(old), 0))
    return text.replace(old, new, count)


def _pad(name: str) -> Callable[..., Any]:
    def run(text: Any, width: int, *fill: Any) -> Any:
        bounded(max(width, 0))
        return getattr(text, name)(width, *fill)

    return run


def _expand_tabs(text: Any, size: int = 8) -> Any:
    bounded(len(text) + text.count("\t" if isinstance(text, str) else b"\t") * max(size, 0))
    return text.expandtabs(size)


def _translate(text: Any, table: Any, *rest: Any) -> Any:
    if isinstance(table, dict):
        longest = max((len(one) for one in table.values() if isinstance(one, str)), default=1)
        bounded(len(text) * max(longest, 1))
        if not {type(one) for one in table.values()} <= {int, str, type(None)}:
            return UNKNOWN
    return text.translate(table, *rest)


_CODECS = frozenset(
    _split("""utf8 ascii latin1 latin iso88591 utf16 utf16le utf16be utf32 utf32le utf32be utf7
    cp437 cp1252 cp037 cp500 cp1140 unicodeescape rawunicodeescape utf8sig cp1251 koi8r""")
)
_OPEN_CODECS = {
    "hex": binascii.unhexlify, "hexcodec": binascii.unhexlify,
    "base64": binascii.a2b_base64, "base64codec": binascii.a2b_base64,
}  # fmt: skip


def _plain_codec(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def decode(data: Any, encoding: str = "utf-8", errors: str = "strict") -> Any:
    """Return decoded bytes, or a text that a codec such as rot13 turns."""
    codec = _plain_codec(encoding)
    if codec in ("rot13", "rot"):
        return codecs.encode(data, "rot13")
    if codec in _OPEN_CODECS:
        return _OPEN_CODECS[codec](data)
    if codec in ("zlib", "zip", "zlibcodec"):
        return inflate(data)
    if codec in ("bz2", "bz2codec"):
        return _unpack_bz2(data)
    if codec not in _CODECS or errors not in ("strict", "ignore", "replace"):
        return UNKNOWN
    return codecs.decode(data, encoding, errors)


def encode(text: Any, encoding: str = "utf-8", errors: str = "strict") -> Any:
    """Return an encoded text."""
    codec = _plain_codec(encoding)
    if codec in ("rot13", "rot"):
        return codecs.encode(text, "rot13")
    if codec in ("hex", "hexcodec"):
        return binascii.hexlify(text)
    if codec in ("base64", "base64codec"):
        return binascii.b2a_base64(text)
    if codec not in _CODECS or errors not in (
        "strict", "ignore", "replace", "backslashreplace", "surrogatepass", "xmlcharrefreplace",
    ):  # fmt: skip
        return UNKNOWN
    return codecs.encode(text, encoding, errors)


# --- packed data ---------------------------------------------------------------------------------


def inflate(data: Any, wbits: int = 47, *_: Any) -> bytes:
    """Return data unpacked by zlib; with gzip headers or without."""
    made = zlib.decompressobj(wbits if wbits < 0 else 47).decompress(data, MAX_SIZE + 1)
    bounded(len(made))
    return made


def _unpack_bz2(data: Any) -> bytes:
    made = bz2.BZ2Decompressor().decompress(data, MAX_SIZE + 1)
    bounded(len(made))
    return made


def _unpack_lzma(data: Any, *_: Any, **__: Any) -> bytes:
    made = lzma.LZMADecompressor(memlimit=_MAX_MEMORY).decompress(data, MAX_SIZE + 1)
    bounded(len(made))
    return made


def _unpack(form: Any, data: Any) -> Any:
    bounded(struct.calcsize(form))
    return struct.unpack(form, data)


def _iter_unpack(form: Any, data: Any) -> Any:
    bounded(struct.calcsize(form))
    return list(struct.iter_unpack(form, data))


def _pack(form: Any, *values: Any) -> bytes:
    bounded(struct.calcsize(form))
    return struct.pack(form, *values)


def _ascii85(data: Any, **named: Any) -> bytes:
    bounded(len(data) * 4)  # one `z` stands for four bytes
    return base64.a85decode(data, **named)


def _base64(data: Any, *_: Any, **__: Any) -> bytes:
    return base64.b64decode(data)


# --- built-in functions --------------------------------------------------------------------------


def _bytes(*args: Any, **named: Any) -> Any:
    return _to_bytes(bytes, args, named)


def _bytearray(*args: Any, **named: Any) -> Any:
    return _to_bytes(bytearray, args, named)


def _to_bytes(kind: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if not args:
        return kind()
    first = args[0]
    if isinstance(first, int):
        bounded(first)
        return kind(first)
    if isinstance(first, str):
        made = encode(first, *args[1:], **named)
        return made if made is UNKNOWN else kind(made)
    if type(first) in TEXTS:
        return kind(first)
    items = collect(first)
    return UNKNOWN if UNKNOWN in items else kind(items)


def _str(*args: Any, **named: Any) -> Any:
    if len(args) + len(named) > 1:
        return decode(*args, **named)
    if args and type(args[0]) not in PLAIN:
        return UNKNOWN
    return to_text(args[0]) if args else ""


def _int(value: Any = 0, base: Any = None) -> Any:
    if type(value) not in SCALARS:
        return UNKNOWN
    if type(value) in TEXTS:
        bounded(len(value))
    return int(value) if base is None else int(value, base)


def _dict(*args: Any, **named: Any) -> Any:
    if not args:
        return dict(**named)
    first = args[0]
    if isinstance(first, dict):
        return {**first, **named}
    pairs = [tuple(collect(one)) for one in collect(first)]
    weigh(pairs)
    return {**dict(pairs), **named}


def _set_of(kind: Any) -> Callable[..., Any]:
    def run(values: Any = ()) -> Any:
        items = collect(values)
        weigh(items)
        return kind(items)

    return run


def _sum(values: Any, start: Any = 0) -> Any:
    items = collect(values)
    if UNKNOWN in items or not all(type(one) in (int, float, bool) for one in items):
        total = start
        for one in items:
            total = operate("Add", total, one)
        return total
    return sum(items, start)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, key: Any = None, **named: Any) -> Any:
        items = collect(args[0]) if len(args) == 1 else list(args)
        if UNKNOWN in items:
            return UNKNOWN
        weigh(items)
        return function(items, key=key, **named)

    return run


def _sorted(values: Any, *, key: Any = None, reverse: Any = False) -> Any:
    items = collect(values)
    if UNKNOWN in items or reverse is UNKNOWN:
        return UNKNOWN
    weigh(items)
    return sorted(items, key=key, reverse=bool(reverse))


def _reversed(values: Any) -> Any:
    return reversed(values if isinstance(values, str | bytes) else collect(values))


def _len(value: Any) -> Any:
    if type(value) in PLAIN or isinstance(value, range):
        return len(value)
    return UNKNOWN


def _truth_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(values: Any) -> Any:
        items = collect(values)
        return UNKNOWN if UNKNOWN in items else function(items)

    return run


def _divmod(left: Any, right: Any) -> Any:
    return divmod(left, right)


def _round(value: Any, digits: Any = None) -> Any:
    if digits is not None and abs(digits) > 20:
        raise TooLarge
    return round(value, digits)


def _sample(owner: Any, values: Any, k: int) -> Any:
    bounded(k)
    return owner.sample(collect(values), k)


_TYPES: dict[str, Any] = {
    "int": int, "str": str, "bytes": bytes, "bytearray": bytearray, "list": list, "dict": dict,
    "tuple": tuple, "set": set, "frozenset": frozenset, "float": float, "bool": bool,
}  # fmt: skip


def type_named(name: str) -> Any:
    """Return the built-in type of a name; None if it is none."""
    return _TYPES.get(name)


# --- modules -------------------------------------------------------------------------------------


def is_quick(pattern: Any) -> bool:
    """Whether a pattern has nothing to try again and again: one repeat, or few choices."""
    if type(pattern) not in (str, bytes) or len(pattern) > 200:
        return False
    plain = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    plain = plain.replace("(?", "(").replace("+?", "+").replace("*?", "*")
    repeats = count_repeats(plain)
    return repeats + plain.count("|") <= (1 if repeats else 3)


def count_repeats(pattern: str) -> int:
    """Return how many parts of a pattern may be repeated or left out."""
    return sum(pattern.count(sign) for sign in "*+?{")


def _searched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `re` that only takes patterns that cannot run long."""

    def run(pattern: Any, *args: Any, **named: Any) -> Any:
        text = args[1] if function is re.sub else args[0]
        if not is_quick(pattern):
            return UNKNOWN
        bounded(len(text) * MAX_SIZE // _MAX_SEARCHED)
        if function is re.sub:
            bounded((len(text) + 1) * max(len(args[0]), 1) if isinstance(args[0], str) else 0)
        return function(pattern, *args, **named)

    return run


def _sub(pattern: Any, new: Any, text: Any, *args: Any, **named: Any) -> Any:
    return _searched(re.sub)(pattern, new, text, *args, **named)


def _findall(pattern: Any, text: Any) -> Any:
    return _searched(re.findall)(pattern, text)


def _split_by(pattern: Any, text: Any) -> Any:
    return _searched(re.split)(pattern, text)


def _from_bytes(data: Any, byteorder: str = "big", *, signed: bool = False) -> int:
    items = data if type(data) in TEXTS else bytes(collect(data))
    _check_bits(len(items) * 8)
    return int.from_bytes(items, byteorder, signed=signed)  # type: ignore[arg-type]


def _to_bytes_of(number: int, length: int = 1, byteorder: str = "big", **named: Any) -> bytes:
    bounded(length)
    return number.to_bytes(length, byteorder, **named)  # type: ignore[arg-type]


def _reduce(function: Any, values: Any, *start: Any) -> Any:
    return functools.reduce(function, collect(values), *start)


def _load_json(text: Any) -> Any:
    bounded(len(text))
    return read_json(text)


def _cycle(values: Any) -> Iterator[Any]:
    return itertools.cycle(collect(values))


def _chain(*values: Any) -> Iterator[Any]:
    return itertools.chain(*values)


def _product(*values: Any, repeat: int = 1) -> Iterator[Any]:
    bounded(len(values) * repeat)
    return itertools.product(*map(collect, values), repeat=repeat)


def _pooled(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(values: Any, *args: Any) -> Any:
        pool = collect(values)
        bounded(len(pool) * 16)
        return function(pool, *args)

    return run


def _accumulate(values: Any, function: Any = add, **named: Any) -> Iterator[Any]:
    return itertools.accumulate(values, function, **named)


def _zip_longest(*values: Any, fillvalue: Any = None) -> Iterator[Any]:
    return itertools.zip_longest(*values, fillvalue=fillvalue)


def _group(values: Any, key: Any = None) -> Any:
    return [(name, list(items)) for name, items in itertools.groupby(collect(values), key)]


def _batched(values: Any, size: int) -> Any:
    items = collect(values)
    return [tuple(items[at : at + size]) for at in range(0, len(items), max(size, 1))]


def _item_getter(*keys: Any) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        found = tuple(value[key] for key in keys)
        return found[0] if len(found) == 1 else found

    return run


def _counter(values: Any = ()) -> Any:
    items = collect(values)
    weigh(items)
    return collections.Counter(items)


def _deque(values: Any = (), maxlen: Any = None) -> Any:
    return collections.deque(collect(values), maxlen)


def _hash_with(name: str) -> Callable[..., Any]:
    def run(data: Any = b"", **_: Any) -> Any:
        return hashlib.new(name, data, usedforsecurity=False)

    return run


def _random(*seed: Any) -> Any:
    if not seed or type(seed[0]) not in (int, str, bytes):
        return UNKNOWN
    return random.Random(seed[0])


def _choices(owner: Any, values: Any, weights: Any = None, *, k: int = 1) -> Any:
    bounded(k)
    return owner.choices(collect(values), weights, k=k)


def _random_bits(owner: Any, bits: int) -> int:
    _check_bits(bits)
    return int(owner.getrandbits(bits))


def _random_bytes(owner: Any, size: int) -> Any:
    bounded(size)
    return owner.randbytes(size)


def _dedent(text: str) -> str:
    bounded(len(text))
    return textwrap.dedent(text)


def _wrap(text: str, width: int = 70) -> list[str]:
    if len(text) > _MAX_SEARCHED:
        raise TooLarge
    return textwrap.wrap(text, width)


def _indent(text: str, prefix: str) -> str:
    bounded(len(text) + (text.count("\n") + 1) * len(prefix))
    return textwrap.indent(text, prefix)


def _first_bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(value: Any, *args: Any, **named: Any) -> Any:
        if type(value) not in SCALARS:
            return UNKNOWN
        bounded(_size(value))
        return function(value, *args, **named)

    return run


def _operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda left, right: operate(name, left, right)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": _len, "chr": chr, "ord": _first_bounded(ord), "bytes": _bytes, "bytearray": _bytearray,
    "int": _int, "str": _str, "float": _first_bounded(float), "bool": bool, "hex": hex, "bin": bin,
    "oct": oct, "abs": abs, "round": _round, "repr": _repr, "ascii": lambda one: ascii(_repr(one)),
    "list": lambda values=(): collect(values), "tuple": lambda values=(): tuple(collect(values)),
    "dict": _dict, "set": _set_of(set), "frozenset": _set_of(frozenset), "sum": _sum,
    "max": _extreme(max), "min": _extreme(min), "sorted": _sorted, "reversed": _reversed,
    "range": range, "pow": power, "divmod": _divmod, "any": _truth_of(any), "all": _truth_of(all),
    "enumerate": enumerate, "zip": lambda *values, strict=False: zip(*values, strict=strict),
    "slice": slice, "memoryview": _bytes, "format": lambda one, spec="": format_value(one, spec),
    "next": next, "iter": lambda values: iter(values),
    "map": map, "filter": filter,
    "bytes.fromhex": lambda text: bytes.fromhex(text), "bytearray.fromhex": bytearray.fromhex,
    "bytes.maketrans": bytes.maketrans, "str.maketrans": str.maketrans,
    "int.from_bytes": _from_bytes,
    "dict.fromkeys": lambda keys, one=None: dict.fromkeys(collect(keys), one),
    "base64.b64decode": _base64, "base64.standard_b64decode": _base64,
    "base64.urlsafe_b64decode": base64.urlsafe_b64decode, "base64.decodebytes": base64.decodebytes,
    "base64.b32decode": base64.b32decode, "base64.b32hexdecode": base64.b32hexdecode,
    "base64.b16decode": base64.b16decode, "base64.b85decode": base64.b85decode,
    "base64.a85decode": _ascii85, "base64.b64encode": base64.b64encode,
    "base64.b85encode": base64.b85encode, "base64.b32encode": base64.b32encode,
    "base64.b16encode": base64.b16encode, "base64.a85encode": base64.a85encode,
    "binascii.unhexlify": binascii.unhexlify, "binascii.a2b_hex": binascii.unhexlify,
    "binascii.hexlify": binascii.hexlify, "binascii.b2a_hex": binascii.hexlify,
    "binascii.a2b_base64": binascii.a2b_base64, "binascii.a2b_uu": binascii.a2b_uu,
    "binascii.b2a_base64": binascii.b2a_base64, "binascii.a2b_qp": binascii.a2b_qp,
    "quopri.decodestring": binascii.a2b_qp,
    "binascii.crc32": binascii.crc32, "zlib.crc32": zlib.crc32, "zlib.adler32": zlib.adler32,
    "zlib.decompress": inflate, "gzip.decompress": inflate, "bz2.decompress": _unpack_bz2,
    "lzma.decompress": _unpack_lzma, "zlib.compress": zlib.compress,
    "codecs.decode": decode, "codecs.encode": encode,
    "struct.unpack": _unpack, "struct.iter_unpack": _iter_unpack, "struct.pack": _pack,
    "struct.calcsize": struct.calcsize,
    "functools.reduce": _reduce, "json.loads": _load_json,
    "urllib.parse.unquote": _first_bounded(urllib.parse.unquote),
    "urllib.parse.unquote_plus": _first_bounded(urllib.parse.unquote_plus),
    "urllib.parse.unquote_to_bytes": _first_bounded(urllib.parse.unquote_to_bytes),
    "urllib.parse.quote": _first_bounded(urllib.parse.quote),
    "html.unescape": _first_bounded(html.unescape), "html.escape": _first_bounded(html.escape),
    "textwrap.dedent": _dedent, "textwrap.wrap": _wrap, "textwrap.indent": _indent,
    "textwrap.fill": lambda text, width=70: "\n".join(_wrap(text, width)),
    "re.sub": _sub, "re.findall": _findall, "re.split": _split_by,
    "itertools.chain": _chain,
    "itertools.chain.from_iterable": lambda values: _chain(*collect(values)),
    "itertools.cycle": _cycle, "itertools.count": itertools.count,
    "itertools.repeat": itertools.repeat,
    "itertools.islice": itertools.islice, "itertools.zip_longest": _zip_longest,
    "itertools.accumulate": _accumulate, "itertools.product": _product,
    "itertools.permutations": _pooled(itertools.permutations),
    "itertools.combinations": _pooled(itertools.combinations),
    "itertools.starmap": itertools.starmap, "itertools.takewhile": itertools.takewhile,
    "itertools.dropwhile": itertools.dropwhile, "itertools.compress": itertools.compress,
    "itertools.filterfalse": itertools.filterfalse, "itertools.groupby": _group,
    "itertools.pairwise": itertools.pairwise, "itertools.batched": _batched,
    "operator.xor": _operator("BitXor"), "operator.add": _operator("Add"),
    "operator.concat": _operator("Add"), "operator.sub": _operator("Sub"),
    "operator.mul": _operator("Mult"), "operator.mod": _operator("Mod"),
    "operator.and_": _operator("BitAnd"), "operator.or_": _operator("BitOr"),
    "operator.floordiv": _operator("FloorDiv"), "operator.lshift": _operator("LShift"),
    "operator.rshift": _operator("RShift"), "operator.pow": _operator("Pow"),
    "operator.itemgetter": _item_getter, "operator.getitem": lambda one, key: one[key],
    "math.gcd": math.gcd, "math.ceil": math.ceil, "math.floor": math.floor,
    "math.sqrt": math.sqrt, "math.isqrt": _first_bounded(math.isqrt), "math.log2": math.log2,
    "collections.Counter": _counter, "collections.deque": _deque,
    "collections.OrderedDict": _dict, "random.Random": _random,
    **{f"hashlib.{name}": _hash_with(name)
       for name in ("md5", "sha1", "sha256", "sha512", "sha224", "sha384")},
}  # fmt: skip
CONSTANTS: dict[str, Any] = {
    "__name__": "__main__", "__debug__": True,
    **{f"string.{name}": getattr(string, name) for name in (
        "ascii_letters", "ascii_lowercase", "ascii_uppercase", "digits", "hexdigits",
        "octdigits", "punctuation", "printable", "whitespace",
    )},
    "math.pi": math.pi, "math.e": math.e, "os.sep": "/", "os.linesep": "\n",
}  # fmt: skip
MODULES = frozenset(one.rpartition(".")[0] for one in (*FUNCTIONS, *CONSTANTS) if "." in one) - {
    "str",
    "bytes",
    "int",
    "dict",
    "bytearray",
    "itertools.chain",
} | {"urllib", "sys", "builtins"}

# Functions that take values that are not known, alone or as items.
TOLERANT = frozenset(
    _split("""len list tuple dict zip enumerate reversed map filter iter next bool itertools.chain
    itertools.cycle itertools.islice itertools.zip_longest itertools.chain.from_iterable sum max min
    sorted any all bytes bytearray itertools.repeat itertools.pairwise itertools.starmap
    collections.deque""")
)

_ALIKE = "index count find rfind rindex split rsplit splitlines strip lstrip rstrip startswith " \
    "endswith lower upper title swapcase capitalize partition rpartition removeprefix " \
    "removesuffix isalpha isdigit isalnum isspace isupper islower isascii istitle"  # fmt: skip
_BYTES = {
    **{name: name for name in _ALIKE.split()}, "hex": "hex", "decode": decode, "join": join,
    "replace": _replace, "translate": _translate, "ljust": _pad("ljust"), "rjust": _pad("rjust"),
    "center": _pad("center"), "zfill": _pad("zfill"), "expandtabs": _expand_tabs,
}  # fmt: skip
_SET = "add discard remove pop clear copy union intersection difference update issubset issuperset"
METHODS: dict[Any, dict[str, Any]] = {
    str: {
        **{name: one for name, one in _BYTES.items() if name not in ("hex", "decode")},
        **{name: name for name in ("casefold", "isdecimal", "isnumeric", "isprintable")},
        "encode": encode, "format": put_in,
    },
    bytes: _BYTES,
    bytearray: {**_BYTES, **{name: name for name in
                ("append", "extend", "insert", "pop", "remove", "reverse", "clear", "copy")}},
    list: {name: name for name in
        _split("append extend insert pop remove reverse clear copy index count sort")},
    tuple: {name: name for name in ("index", "count")},
    dict: {name: name for name in
        _split("get keys values items pop setdefault update copy clear popitem")},
    set: {name: name for name in _SET.split()},
    frozenset: {name: name for name in ("union", "intersection", "difference", "copy")},
    int: {"bit_length": "bit_length", "to_bytes": _to_bytes_of, "bit_count": "bit_count"},
    bool: {}, float: {"is_integer": "is_integer"},
    collections.Counter: {name: name for name in _split("get keys values items most_common")},
    collections.defaultdict: {name: name for name in
        _split("get keys values items pop setdefault copy")},
    collections.deque: {name: name for name in
        _split("append appendleft pop popleft rotate extend extendleft clear reverse copy")},
    random.Random: {
        **{name: name for name in _split("random randint randrange shuffle choice uniform")},
        "sample": _sample, "choices": _choices, "getrandbits": _random_bits,
        "randbytes": _random_bytes,
    },
    type(hashlib.new("md5", usedforsecurity=False)): {name: name for name in
        ("digest", "hexdigest", "update", "copy")},
}  # fmt: skip
# Functions that compare values with each other, hash or print them.
WEIGHING = frozenset(
    _split("""sorted max min set frozenset dict collections.Counter dict.fromkeys str repr ascii
    format sum collections.OrderedDict any all itertools.groupby""")
)
# Methods that take time in proportion to both texts, multiplied.
SLOW = frozenset(("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"))
# Methods after which the owner has more items.
GROWING = frozenset(
    ("append", "extend", "insert", "update", "setdefault", "add", "appendleft", "extendleft")
)
ADDING_ONE = frozenset(("append", "add", "insert", "setdefault", "appendleft"))
# Methods that compare items with each other, or hash them.
COMPARING = frozenset(
    ("index", "count", "remove", "sort", "add", "discard", "union", "intersection", "difference",
     "update", "get", "setdefault", "pop")
)  # fmt: skip
