"""Read short expressions of Python about an answer as checks. Nothing of them is run."""

from __future__ import annotations

import ast

from skillbelt.evals.cases import EvalCheck

_MAX_CHARS = 1_000
_SIZES: dict[type[ast.cmpop], tuple[str, int]] = {
    ast.Gt: ("min", 1),
    ast.GtE: ("min", 0),
    ast.Lt: ("max", -1),
    ast.LtE: ("max", 0),
}
_UNITS = {"output": "length", "output.split()": "words", "tool_calls": "tool-calls"}


def read_expression(text: str) -> tuple[EvalCheck, ...] | None:
    """Return the checks that mean the same as the expression, all of which must pass.

    None for one about more than the length of `output`, the texts in it and the number of
    `tool_calls`.
    """
    if len(text) > _MAX_CHARS:
        return None
    try:
        return _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read(node: ast.expr) -> tuple[EvalCheck, ...] | None:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [_read(one) for one in values]
            known = [one for one in parts if one is not None]
            return sum(known, ()) if len(known) == len(parts) else None
        case ast.BoolOp(op=ast.Or(), values=values):
            return _read_choice(values)
        case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn() as op]):
            found = _read_member(node)
            return found and (found._replace(negated=isinstance(op, ast.NotIn)),)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len"), args=[what], keywords=[]),
            ops=[op],
            comparators=[ast.Constant(value=int() as bound)],
        ) if type(op) in _SIZES and not isinstance(bound, bool):
            return _read_size(what, type(op), bound)
    return None


def _read_size(what: ast.expr, op: type[ast.cmpop], bound: int) -> tuple[EvalCheck, ...] | None:
    side, more = _SIZES[op]
    shown = ast.unparse(what)
    unit = _UNITS.get(shown)
    return (EvalCheck(f"{side}-{unit}", bound + more),) if unit and bound + more >= 0 else None


def _read_member(node: ast.expr) -> EvalCheck | None:
    """Read whether the answer contains a text, which is compared as it is or in any case."""
    match node:
        case ast.Compare(
            left=ast.Constant(value=str() as text),
            ops=[ast.In() | ast.NotIn()],
            comparators=[where],
        ) if text:
            shown = ast.unparse(where)
            if shown == "output.lower()" and text == text.lower():
                return EvalCheck("icontains", (text,))
            if shown == "output":
                return EvalCheck("contains", (text,))
    return None


def _read_choice(values: list[ast.expr]) -> tuple[EvalCheck, ...] | None:
    found = [
        _read_member(one)
        for one in values
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.In)
    ]
    known = [one for one in found if one is not None]
    if len(known) < len(values):
        return None
    texts = tuple(text for one in known for text in _texts(one))
    if all(one.kind == "contains" for one in known):
        return (EvalCheck("contains-any", texts),)
    exact = [text for one in known if one.kind == "contains" for text in _texts(one)]
    if any(one.lower() != one.upper() for one in exact):
        return None  # some of them in any case, others not
    return (EvalCheck("icontains-any", texts),)


def _texts(check: EvalCheck) -> tuple[str, ...]:
    return check.value if isinstance(check.value, tuple) else ()
