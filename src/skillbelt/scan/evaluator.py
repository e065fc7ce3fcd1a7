"""Work out what pure Python makes of its constants. No code of a skill is run by Python.

The syntax tree is turned into functions of this module, which know the values of `python_values`
and nothing else: no attribute of a value is reached but a listed method, no function is called but
a listed one. What is not known spreads. All of it ends after a number of steps.
"""

from __future__ import annotations

import ast
import collections
import itertools
import random
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from skillbelt.format.python_source import parse_python
from skillbelt.records import NamedTuple
from skillbelt.scan import python_values as values
from skillbelt.scan.ledger import HOLE
from skillbelt.scan.made_texts import MIN_MADE, find_means, may_put_together
from skillbelt.scan.python_values import (
    CONTAINERS,
    MAX_SIZE,
    PLAIN,
    TEXTS,
    UNKNOWN,
    TooLarge,
    bounded,
    collect,
    holds_unknown,
    is_flat,
    is_quick,
    weigh,
)

# Parts of expressions that are worked out for one skill.
MAX_STEPS = 100_000
# Characters of texts that were made, for one skill.
MAX_CHARS = 256 * 2**10
_MIN_STEPS = 100
_MAX_DEPTH = 150
_MAX_CALLS = 120
# Of a source of which no part puts a text together by itself.
_MAX_SPREAD = 10_000
_MAX_NESTED = 4
_MAX_MADE = 1_000
_MAX_OF_A_PLACE = 4
_MAX_SHORT = 40  # characters of one printed piece that continues the one before

Make = Callable[["Scope"], Any]
# A statement returns None, or how it leaves the block.
Do = Callable[["Scope"], Any]
_BREAK, _CONTINUE, _RETURN = "break", "continue", "return"


class OutOfSteps(Exception):
    """The evaluation takes more steps than it may."""


class MadeText(NamedTuple):
    """A text that the evaluation made, the line, and whether it was joined sign by sign."""

    text: str
    line: int
    spelled: bool


class Scope:
    """The names of a module, a function or a class."""

    __slots__ = ("held", "names", "outer", "returned")

    def __init__(self, outer: Scope | None, names: dict[str, Any] | None = None) -> None:
        self.names: dict[str, Any] = {} if names is None else names
        self.outer = outer
        # The scope of a name that is declared as global or nonlocal.
        self.held: dict[str, Scope] = {}
        self.returned: Any = None

    def find(self, name: str) -> Any:
        """Return the value of a name, None where it has none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def has(self, name: str) -> bool:
        """Whether the name has a value here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False

    def assign(self, name: str, value: Any) -> None:
        """Give a name its value."""
        if self.held and name in self.held:
            self.held[name].names[name] = value
        else:
            self.names[name] = value


class _Function:
    """A function of the source: its parameters, body and the scope around it."""

    __slots__ = (
        "blind", "body", "cost", "defaults", "is_called", "is_relevant", "kind", "name", "node",
        "scope",
    )  # fmt: skip

    def __init__(self, node: Any, scope: Scope, defaults: dict[str, Any]) -> None:
        self.node, self.scope, self.defaults = node, scope, defaults
        self.name = getattr(node, "name", "lambda")
        self.body: Any = None
        self.cost = 0
        self.is_called = False
        # Whether something in it, or that it uses, may put a text together.
        self.is_relevant = True
        self.kind = ""
        # What a call returned of whose arguments none is known.
        self.blind: Any = None


class _Class:
    __slots__ = ("bases", "name", "names")

    def __init__(self, name: str, names: dict[str, Any], bases: list[Any]) -> None:
        self.name, self.names, self.bases = name, names, bases

    def find(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        for one in self.bases:
            found = one.find(name) if type(one) is _Class else None
            if found is not None:
                return found
        return None


class _Instance:
    __slots__ = ("fields", "kind")

    def __init__(self, kind: _Class) -> None:
        self.kind = kind
        self.fields: dict[str, Any] = {}


class _Builtin:
    """A function or type that Python has, by its dotted name."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Any] | None) -> None:
        self.name, self.function = name, function


class _Method:
    """A method of a value, or of an instance."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Any, name: Any) -> None:
        self.owner, self.name = owner, name


class _Module:
    __slots__ = ("name", "scope", "text")

    def __init__(self, name: str, scope: Scope | None = None, text: str = "") -> None:
        self.name, self.scope, self.text = name, scope, text


class _Buffer:
    """A text that is written piece by piece, as `io.StringIO` has it."""

    __slots__ = ("at", "data")

    def __init__(self, data: Any) -> None:
        self.data, self.at = data, 0


class _Items:
    """An iterator that takes a step for each item; built-in iterators take none.

    Of a type that is made here, so that a long chain of them is freed without recursion.
    """

    __slots__ = ("items", "run")

    def __init__(self, run: Evaluation, items: Iterator[Any]) -> None:
        self.run, self.items = run, items

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        one = next(self.items)
        self.run.spend(1 + (len(one) // 256 if type(one) in TEXTS else 0))
        return one


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_CALLABLE = (_Function, _Builtin, _Method, _Class, _Instance)
_DUNDERS = {
    "Add": "__add__", "BitXor": "__xor__", "Mod": "__mod__", "Mult": "__mul__", "Sub": "__sub__",
    "RShift": "__rshift__", "LShift": "__lshift__", "BitOr": "__or__", "BitAnd": "__and__",
}  # fmt: skip
_SPECIAL = frozenset(
    _split("""print getattr isinstance type globals locals vars eval exec compile __import__ input
    setattr hasattr callable id hash open super staticmethod classmethod property ast.literal_eval
    functools.partial collections.defaultdict io.StringIO io.BytesIO importlib.import_module
    sys.stdout.write sys.stderr.write random.seed random.shuffle random.random random.randint
    random.randrange random.choice random.sample random.choices random.getrandbits
    random.randbytes functools.lru_cache functools.cache dataclasses.dataclass""")
)
_HEAVY = ("zlib.", "bz2.", "lzma.", "gzip.", "hashlib.", "math.", "textwrap.")


class Evaluator:
    """Evaluates the sources of one skill, with one number of steps for all of them."""

    def __init__(
        self, read_sibling: Callable[[str], str] = lambda path: "", steps: int = MAX_STEPS
    ) -> None:
        # The steps that are left, and those that the part being evaluated may not use.
        self.left, self.floor = steps, 0
        # The characters of texts that may still be read.
        self.chars_left = MAX_CHARS
        self.read_sibling = read_sibling
        self.modules: dict[str, _Module] = {}

    def evaluate(self, tree: ast.Module, source: str) -> Evaluation:
        """Return what a module makes of its constants, as far as the steps go."""
        found = Evaluation(self, source)
        found.run(tree)
        return found


class Evaluation:
    """One run through one source."""

    def __init__(self, machine: Evaluator, source: str) -> None:
        self.machine = machine
        self.source, self.has_yields = source, "yield" in source
        # The sources of the skill's own modules that were imported.
        self.imported: set[str] = set()
        self.is_cut = False
        # The last text of each expression, for the reader of the same tree.
        self.known: dict[ast.AST, str] = {}
        # Those that had another text before.
        self.varied: set[ast.AST] = set()
        self._made: dict[ast.AST, list[Any]] = {}
        self._spelled: set[ast.AST] = set()
        self._last_join: Any = None
        self._printed: list[tuple[str, int, int]] = []
        self._functions: list[_Function] = []
        self._instances: dict[_Class, _Instance] = {}
        self._calls = self._depth = self._count = self._nested = self._hot = 0
        # Functions that put no text together, as far as their words say.
        self._passed_over: frozenset[ast.AST] = frozenset()
        self._is_foreign = False
        self._random: random.Random | None = None
        self.module = Scope(None)
        self._line = 1

    # --- what was made ---------------------------------------------------------------------------

    def texts(self) -> list[MadeText]:
        """Return the texts that were made, the longest first, none that is a part of another."""
        found = [*self._output(), *self._left_over()]
        for node, made in self._made.items():
            line, spelled = int(getattr(node, "lineno", 1)), node in self._spelled
            found += [MadeText(_as_text(one), line, spelled) for one in made]
        chosen = {one.text: one for one in reversed(found) if len(one.text) >= MIN_MADE}
        kept: list[MadeText] = []
        seen = ""
        for one in sorted(chosen.values(), key=lambda one: -len(one.text)):
            if len(one.text) > self.machine.chars_left:
                self.is_cut = True
            elif one.text not in seen:
                self.machine.chars_left -= len(one.text)
                kept.append(one)
                seen += f"\0{one.text}"
        return kept

    def _output(self) -> Iterator[MadeText]:
        """Yield what is printed piece by piece."""
        run: list[tuple[str, int]] = []
        for text, line, parts in (*self._printed, ("", 0, 0)):
            if line and len(text) <= _MAX_SHORT:
                run.append((text, line))
                continue
            if run:
                yield MadeText("".join(one for one, _ in run), run[0][1], len(run) > MIN_MADE)
            if parts > 1:
                yield MadeText(text, line, parts > MIN_MADE)
            run = []

    def _left_over(self) -> Iterator[MadeText]:
        """Yield the texts that lists of codes or of pieces spell at the end."""
        for one in self.module.names.values():
            if type(one) is list and len(one) >= 3 and len(one) <= 10_000:
                if all(type(item) is int and 9 <= item < 0x3000 for item in one):
                    yield MadeText("".join(map(chr, one)), 1, True)
                elif all(type(item) is str for item in one):
                    short = sum(map(len, one)) <= 3 * len(one)
                    yield MadeText(("" if short else " ").join(one), 1, short)

    def _keep(self, node: ast.AST, value: Any) -> None:
        """Remember a text that an expression made."""
        if self._is_foreign:
            return
        if len(value) < MAX_SIZE:
            text = value if type(value) is str else _as_text(value)
            if self.known.setdefault(node, text) != text:
                self.known[node] = text
                self.varied.add(node)
        if len(value) < MIN_MADE:
            return
        made = self._made.get(node)
        if made is None:
            if len(self._made) < _MAX_MADE:
                self._made[node] = [value]
        elif type(made[-1]) is type(value) and (
            value.startswith(made[-1]) or value.endswith(made[-1])
        ):
            made[-1] = value
        elif len(made) < _MAX_OF_A_PLACE:
            made.append(value)
        else:
            made[-1] = value

    def spend(self, steps: int) -> None:
        """Count the work; raise OutOfSteps when there was too much."""
        self.machine.left -= steps
        if self.machine.left < self.machine.floor:
            raise OutOfSteps

    def charged(self, items: Iterable[Any]) -> Iterator[Any]:
        """Return an iterator that takes a step for each item."""
        return _Items(self, iter(items))

    def _weigh(self, value: Any) -> None:
        """Count the work of comparing, hashing or printing a value."""
        if type(value) in CONTAINERS:
            flat = is_flat(value)
            self.spend((len(value) if flat else weigh(value)) // (32 if flat else 8))

    # --- running ---------------------------------------------------------------------------------

    def run(self, tree: ast.Module) -> None:
        """Evaluate a module, and then the functions that it does not call itself."""
        try:
            self._passed_over, body = _split_module(tree, self.source)
            self._run_module(body, self.module)
            for one in self._functions:  # the list grows
                if one.is_relevant and not one.is_called:
                    self._bound_part(partial(self._call_blindly, one))
        except OutOfSteps:
            self.is_cut = True

    def _run_module(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for node in body:
            is_relevant = node not in self._passed_over
            self._hot += is_relevant
            self._bound_part(partial(self._run_one, node, scope))
            self._hot -= is_relevant

    def _run_one(self, node: ast.stmt, scope: Scope) -> Any:
        return self._block([node])(scope)

    def _bound_part(self, run: Callable[[], Any]) -> None:
        """Run a part with half of the steps that are left, so that it leaves some to others."""
        machine = self.machine
        before = machine.floor
        machine.floor = before + (machine.left - before) // 2
        try:
            self._guard(run)
        except OutOfSteps:
            self.is_cut = True
            if machine.left - before < _MIN_STEPS:
                raise
        finally:
            machine.floor = before

    def _guard(self, run: Callable[[], Any]) -> Any:
        """Run a part; what goes wrong in it ends the part alone."""
        depth, calls, hot = self._depth, self._calls, self._hot
        try:
            return run()
        except OutOfSteps:
            raise
        except TooLarge:
            self.is_cut = True
        except Exception:  # what the source raises, or would raise
            pass
        finally:
            self._depth, self._calls, self._hot = depth, calls, hot
        return UNKNOWN

    def _call_blindly(self, function: _Function) -> None:
        args = function.node.args
        names = [one.arg for one in (*args.posonlyargs, *args.args)]
        given: list[Any] = []
        for name in names:
            if name in function.defaults and name not in ("self", "cls"):
                break
            given.append(UNKNOWN)
        if names[:1] == ["self"] and function.kind == "":
            owner = next(
                (kind for kind in self._instances if kind.find(function.name) is function), None
            )
            given[:1] = [self._instances[owner]] if owner is not None else [UNKNOWN]
        result = self._call_function(function, given, {})
        if type(result) is _Items:
            collections.deque(itertools.islice(result, 1_000), maxlen=0)

    def _maybe(self, run: Do, scope: Scope) -> dict[str, Any]:
        """Run what may not run; return the names it changed, with the scope as it was before."""
        before = dict(scope.names)
        self.spend(1 + len(before) // 16)
        self._guard(lambda: run(scope))
        changed = {
            name: one
            for name, one in scope.names.items()
            if name not in before or before[name] is not one
        }
        scope.names.clear()
        scope.names.update(before)
        return changed

    def _either(self, runs: Sequence[Do], scope: Scope) -> None:
        """Run parts of which one runs; of several values of a name, keep the last that is known."""
        kept: dict[str, Any] = {}
        for run in runs:
            for name, one in self._maybe(run, scope).items():
                if one is not UNKNOWN or name not in kept:
                    kept[name] = one
        scope.names.update(kept)

    # --- statements ------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> Do:
        made: list[tuple[int, Do]] = []
        for node in body:
            before, self._count = self._count, 1
            method = _STATEMENTS.get(type(node))
            do = method(self, node) if method is not None else None
            cost = self._count
            self._count = before
            self.spend(cost)
            if do is not None:
                made.append((cost, do))
        machine = self.machine

        def run(scope: Scope) -> Any:
            for cost, do in made:
                machine.left -= cost
                if machine.left < machine.floor:
                    raise OutOfSteps
                signal = do(scope)
                if signal is not None:
                    return signal
            return None

        return run

    def _expression_statement(self, node: ast.Expr) -> Do:
        if isinstance(node.value, ast.Constant):
            return lambda scope: None
        make = self._expr(node.value)

        def run(scope: Scope) -> Any:
            make(scope)

        return run

    def _assign(self, node: ast.Assign) -> Do:
        make = self._expr(node.value)
        targets = [self._target(one) for one in node.targets]
        if len(targets) == 1:
            store = targets[0]
            return lambda scope: store(scope, make(scope))

        def run(scope: Scope) -> Any:
            value = make(scope)
            for store in targets:
                store(scope, value)

        return run

    def _assign_typed(self, node: ast.AnnAssign) -> Do | None:
        if node.value is None:
            if isinstance(node.target, ast.Name):
                field = node.target.id

                def declare(scope: Scope) -> Any:
                    scope.names.setdefault("__fields__", []).append(field)

                return declare
            return None
        make, store = self._expr(node.value), self._target(node.target)
        name = node.target.id if isinstance(node.target, ast.Name) else ""

        def run(scope: Scope) -> Any:
            store(scope, make(scope))
            if name and scope.outer is not None:
                scope.names.setdefault("__fields__", []).append(name)

        return run

    def _assign_more(self, node: ast.AugAssign) -> Do:
        load, make = self._expr(_as_loaded(node.target)), self._expr(node.value)
        store, name = self._target(node.target), type(node.op).__name__

        def run(scope: Scope) -> Any:
            before, more = load(scope), make(scope)
            if type(before) is list and name == "Add" and more is not UNKNOWN:
                items = self._items(more)
                bounded(len(before) + len(items))
                before.extend(items)
                made = before
            else:
                made = self._operate(name, before, more)
            if type(made) in TEXTS:
                if type(more) is str and len(more) <= 3:
                    self._spelled.add(node)
                self._keep(node, made)
            store(scope, made)

        return run

    def _target(self, node: ast.expr) -> Callable[[Scope, Any], Any]:
        self._count += 1
        if isinstance(node, ast.Name):
            name = node.id
            return lambda scope, value: scope.assign(name, value)
        if isinstance(node, ast.Tuple | ast.List):
            return self._unpack(node)
        if isinstance(node, ast.Starred):
            return self._target(node.value)
        if isinstance(node, ast.Attribute):
            owner, field = self._expr(node.value), node.attr

            def set_field(scope: Scope, value: Any) -> None:
                one = owner(scope)
                if type(one) is _Instance:
                    one.fields[field] = value
                elif type(one) is _Class:
                    one.names[field] = value

            return set_field
        if isinstance(node, ast.Subscript):
            base, key = self._expr(node.value), self._expr(node.slice)
            return lambda scope, value: self._set_item(base(scope), key(scope), value)
        return lambda scope, value: None

    def _set_item(self, base: Any, key: Any, value: Any) -> None:
        kind = type(base)
        if key is UNKNOWN or kind not in (list, dict, bytearray, collections.defaultdict,
                                          collections.Counter, collections.deque):  # fmt: skip
            if kind is _Instance:
                self._call_dunder(base, "__setitem__", [key, value])
            return
        if type(key) is slice:
            items = self._items(value)
            bounded(len(base) + len(items))
            base[key] = items
            return
        self._weigh(key)
        if value is UNKNOWN and kind is bytearray:
            return
        base[key] = value
        bounded(len(base))

    def _unpack(self, node: ast.Tuple | ast.List) -> Callable[[Scope, Any], Any]:
        stores = [self._target(one) for one in node.elts]
        starred = [at for at, one in enumerate(node.elts) if isinstance(one, ast.Starred)]

        def run(scope: Scope, value: Any) -> None:
            if value is UNKNOWN:
                parts = [UNKNOWN] * len(stores)
            else:
                parts = self._items(value)
                if starred:
                    at = starred[0]
                    rest = len(parts) - (len(stores) - 1)
                    parts = [*parts[:at], parts[at : at + rest], *parts[at + rest :]]
            for store, part in zip(stores, parts, strict=True):
                store(scope, part)

        return run

    def _delete(self, node: ast.Delete) -> Do | None:
        found = [one for one in node.targets if isinstance(one, ast.Subscript)]
        pairs = [(self._expr(one.value), self._expr(one.slice)) for one in found]

        def run(scope: Scope) -> Any:
            for base, key in pairs:
                one, at = base(scope), key(scope)
                if type(one) in (list, dict, bytearray, collections.deque) and at is not UNKNOWN:
                    del one[at]

        return run

    def _if(self, node: ast.If) -> Do:
        test, body, other = self._expr(node.test), self._block(node.body), self._block(node.orelse)

        def run(scope: Scope) -> Any:
            chosen = self._truth(test(scope))
            if chosen is UNKNOWN:
                self._either((body, other), scope)
                return None
            return body(scope) if chosen else other(scope)

        return run

    def _truth(self, value: Any) -> Any:
        kind = type(value)
        if kind is bool:
            return value
        if kind in PLAIN or kind is range:
            return bool(value)
        if kind is _Instance:
            return UNKNOWN
        return UNKNOWN if value is UNKNOWN else True

    def _while(self, node: ast.While) -> Do:
        test, body, other = self._expr(node.test), self._block(node.body), self._block(node.orelse)

        def run(scope: Scope) -> Any:
            while True:
                self.spend(1)
                chosen = self._truth(test(scope))
                if chosen is UNKNOWN:
                    self._either((body,), scope)
                    return None
                if not chosen:
                    return other(scope)
                signal = body(scope)
                if signal is _BREAK:
                    return None
                if signal is _RETURN:
                    return signal

        return run

    def _for(self, node: ast.For | ast.AsyncFor) -> Do:
        source, store = self._expr(node.iter), self._target(node.target)
        body, other = self._block(node.body), self._block(node.orelse)

        def run(scope: Scope) -> Any:
            items = self._iterate(source(scope))
            if items is None:
                store(scope, UNKNOWN)
                self._either((body,), scope)
                return None
            for one in items:
                self.spend(1)
                store(scope, one)
                signal = body(scope)
                if signal is _BREAK:
                    return None
                if signal is _RETURN:
                    return signal
            return other(scope)

        return run

    def _try(self, node: ast.Try) -> Do:
        body, other = self._block(node.body), self._block(node.orelse)
        last = self._block(node.finalbody)
        handlers = [self._handler(one) for one in node.handlers]

        def run(scope: Scope) -> Any:
            depth, calls = self._depth, self._calls
            try:
                signal = body(scope)
            except (OutOfSteps, TooLarge):
                raise
            except Exception:
                self._depth, self._calls = depth, calls
                if len(handlers) == 1:
                    signal = handlers[0](scope)
                else:
                    self._either(handlers, scope)
                    signal = None
            else:
                for one in handlers:
                    self._maybe(one, scope)
                signal = signal or other(scope)
            return last(scope) or signal

        return run

    def _handler(self, node: ast.ExceptHandler) -> Do:
        name, body = node.name, self._block(node.body)

        def run(scope: Scope) -> Any:
            if name:
                scope.assign(name, UNKNOWN)
            return body(scope)

        return run

    def _with(self, node: ast.With | ast.AsyncWith) -> Do:
        opened = [
            (self._expr(one.context_expr), self._target(one.optional_vars))
            if one.optional_vars is not None
            else (self._expr(one.context_expr), None)
            for one in node.items
        ]
        body = self._block(node.body)

        def run(scope: Scope) -> Any:
            for make, store in opened:
                value = make(scope)
                if store is not None:
                    store(scope, value)
            return body(scope)

        return run

    def _match(self, node: ast.Match) -> Do:
        subject = self._expr(node.subject)
        cases = [(one.pattern, self._block(one.body)) for one in node.cases]

        def run(scope: Scope) -> Any:
            value = subject(scope)
            for pattern, body in cases:
                if value is not UNKNOWN and isinstance(pattern, ast.MatchValue):
                    wanted = self._expr(pattern.value)(scope)
                    if values.compare("Eq", value, wanted) is True:
                        return body(scope)
            self._either([body for _, body in cases], scope)
            return None

        return run

    def _return(self, node: ast.Return) -> Do:
        make = self._expr(node.value) if node.value is not None else lambda scope: None

        def run(scope: Scope) -> Any:
            scope.returned = make(scope)
            return _RETURN

        return run

    def _raise(self, node: ast.Raise) -> Do:
        make = self._expr(node.exc) if node.exc is not None else None

        def run(scope: Scope) -> Any:
            if make is not None:
                make(scope)
            raise ValueError

        return run

    def _assert(self, node: ast.Assert) -> Do:
        make = self._expr(node.test)

        def run(scope: Scope) -> Any:
            make(scope)

        return run

    def _outside(self, node: ast.Global | ast.Nonlocal) -> Do:
        names, is_global = node.names, isinstance(node, ast.Global)

        def run(scope: Scope) -> Any:
            for name in names:
                found = scope.outer
                while found is not None and found.outer is not None:
                    if not is_global and name in found.names:
                        break
                    found = found.outer
                scope.held[name] = found or scope

        return run

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Do:
        default = self._defaults(node.args)
        decorators = [self._expr(one) for one in node.decorator_list]

        def run(scope: Scope) -> Any:
            made: Any = _Function(node, scope, default(scope))
            made.is_relevant = node not in self._passed_over
            if not self._is_foreign:
                self._functions.append(made)
            for one in reversed(decorators):
                decorator = one(scope)
                if type(decorator) is _Function:
                    made = self._call(decorator, [made], {})
                elif type(decorator) is _Builtin and type(made) is _Function:
                    made.kind = decorator.name
            scope.assign(node.name, made)

        return run

    def _defaults(self, args: ast.arguments) -> Callable[[Scope], dict[str, Any]]:
        names = [one.arg for one in (*args.posonlyargs, *args.args)]
        pairs = list(zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True))
        pairs += [
            (one.arg, value)
            for one, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            if value is not None
        ]
        made = [(name, self._expr(value)) for name, value in pairs]
        return lambda scope: {name: make(scope) for name, make in made}

    def _define_class(self, node: ast.ClassDef) -> Do:
        body = node.body
        bases = [self._expr(one) for one in node.bases]

        def run(scope: Scope) -> Any:
            inner = Scope(scope)
            for one in body:
                self._guard(partial(self._run_one, one, inner))
            made = _Class(node.name, inner.names, [one(scope) for one in bases])
            for function in inner.names.values():
                if type(function) is _Function:
                    function.scope = scope
            scope.assign(node.name, made)
            if not self._is_foreign:
                self._guard(lambda: self._instantiate_blindly(made))

        return run

    def _instantiate_blindly(self, kind: _Class) -> None:
        """Keep an instance for methods that nothing calls; its fields may not be known."""
        one = self._instances[kind] = _Instance(kind)
        start = kind.find("__init__")
        if type(start) is _Function:
            names = [arg.arg for arg in start.node.args.args][1:]
            given = [UNKNOWN for name in names if name not in start.defaults]
            before = start.is_called
            self._call_function(start, [one, *given], {})
            start.is_called = before

    def _import(self, node: ast.Import) -> Do:
        def run(scope: Scope) -> Any:
            for one in node.names:
                whole = self._load_module(one.name)
                first = one.name.partition(".")[0]
                scope.assign(one.asname or first, whole if one.asname else self._load_module(first))

        return run

    def _import_from(self, node: ast.ImportFrom) -> Do:
        def run(scope: Scope) -> Any:
            name = node.module or ""
            module = self._load_module(name)
            for one in node.names:
                if one.name == "*" and type(module) is _Module:
                    if module.scope is not None:
                        scope.names.update(module.scope.names)
                    for whole in values.FUNCTIONS:
                        if whole.startswith(f"{name}."):
                            scope.assign(
                                whole[len(name) + 1 :], _Builtin(whole, values.FUNCTIONS[whole])
                            )
                else:
                    scope.assign(one.asname or one.name, self._attribute(module, one.name))

        return run

    def _load_module(self, name: str) -> Any:
        if name in values.MODULES or name in ("ast", "io", "functools", "importlib", "dataclasses"):
            return _Module(name)
        known = self.machine.modules.get(name)
        if known is not None:
            self.imported.add(known.text)
            return known
        if name.partition(".")[0] in sys.stdlib_module_names:
            return _Module(name)
        text = self.machine.read_sibling(f"{name.replace('.', '/')}.py") if name else ""
        if self._nested >= _MAX_NESTED or not may_put_together(text):
            return _Module(name)
        self.imported.add(text)
        made = self.machine.modules[name] = _Module(name, Scope(None), text)
        foreign, self._is_foreign = self._is_foreign, True
        self._nested += 1
        try:
            tree = parse_python(text)
            self._run_module(tree.body, made.scope or self.module)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        finally:
            self._is_foreign = foreign
            self._nested -= 1
        return made

    # --- expressions -----------------------------------------------------------------------------

    def _expr(self, node: ast.expr) -> Make:
        self._count += 1
        method = _EXPRESSIONS.get(type(node))
        if method is None or self._depth > _MAX_DEPTH:
            return lambda scope: UNKNOWN
        self._depth += 1
        try:
            made: Make = method(self, node)
        finally:
            self._depth -= 1
        return made

    def _constant(self, node: ast.Constant) -> Make:
        value: Any = node.value
        if type(value) not in values.SCALARS or (
            isinstance(value, int) and value.bit_length() > 2**16
        ):
            return lambda scope: UNKNOWN
        if type(value) in (str, bytes) and len(value) > MAX_SIZE:
            value = value[:MAX_SIZE]
        return lambda scope: value

    def _name(self, node: ast.Name) -> Make:
        name = node.id
        builtin: Any = UNKNOWN
        if name in values.FUNCTIONS or name in _SPECIAL:
            builtin = _Builtin(name, values.FUNCTIONS.get(name))
        elif name in values.CONSTANTS:
            builtin = values.CONSTANTS[name]
        elif name in ("staticmethod", "classmethod", "property", "object", "float", "type"):
            builtin = _Builtin(name, None)

        def run(scope: Scope) -> Any:
            found: Scope | None = scope
            while found is not None:
                if name in found.names:
                    return found.names[name]
                found = found.outer
            return builtin

        return run

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Make:
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        bounded(len(node.elts))
        if all(isinstance(one, ast.Constant) for one in node.elts):
            self._count += len(node.elts) // 8
            plain = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            return lambda scope: kind(plain)
        parts = [(isinstance(one, ast.Starred), self._expr(_unstar(one))) for one in node.elts]

        def run(scope: Scope) -> Any:
            made: list[Any] = []
            for starred, make in parts:
                one = make(scope)
                if starred and one is UNKNOWN:
                    return UNKNOWN
                made += self._items(one) if starred else (one,)
            bounded(len(made))
            if kind is set:
                self._weigh(made)
            return made if kind is list else kind(made)

        return run

    def _dict(self, node: ast.Dict) -> Make:
        pairs = [
            (self._expr(key) if key is not None else None, self._expr(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ]

        def run(scope: Scope) -> Any:
            made: dict[Any, Any] = {}
            for key, value in pairs:
                one = value(scope)
                if key is None:
                    if type(one) is not dict:
                        return UNKNOWN
                    made.update(one)
                    continue
                at = key(scope)
                if at is not UNKNOWN:
                    self._weigh(at)
                    made[at] = one
            return made

        return run

    def _joined(self, node: ast.JoinedStr) -> Make:
        parts: list[Any] = []
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                spec = self._expr(one.format_spec) if one.format_spec is not None else None
                parts.append((self._expr(one.value), spec, one.conversion))
            elif isinstance(one, ast.Constant):
                parts.append(str(one.value))

        def run(scope: Scope) -> Any:
            made = []
            for part in parts:
                if type(part) is str:
                    made.append(part)
                    continue
                value, form = part[0](scope), part[1](scope) if part[1] is not None else ""
                self._weigh(value)
                if holds_unknown(value) or HOLE in form or type(value) not in PLAIN:
                    made.append(self._text_of(value))
                elif part[2] in (97, 114):
                    made.append(values.FUNCTIONS["repr"](value))
                else:
                    made.append(values.format_value(value, form))
            text = "".join(made)
            bounded(len(text))
            self._keep(node, text)
            return text

        return run

    def _text_of(self, value: Any) -> str:
        if type(value) is _Instance:
            made = self._call_dunder(value, "__str__", [])
            return made if type(made) is str else HOLE
        return HOLE

    def _binary(self, node: ast.BinOp) -> Make:
        chain: list[tuple[str, Make, ast.BinOp]] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):  # a long sum is a deep tree
            self._count += 1
            chain.append((type(left.op).__name__, self._expr(left.right), left))
            left = left.left
        first = self._expr(left)
        chain.reverse()
        operate, keep = self._operate, self._keep

        def run(scope: Scope) -> Any:
            value = first(scope)
            for name, make, _ in chain:
                value = operate(name, value, make(scope))
            if type(value) in TEXTS:
                keep(node, value)
            return value

        return run

    def _operate(self, name: str, left: Any, right: Any) -> Any:
        kind, other = type(left), type(right)
        if kind is int and other is int and name == "BitXor":
            return left ^ right
        if left is UNKNOWN or right is UNKNOWN:
            if name == "Add" and str in (kind, other):
                return (HOLE if left is UNKNOWN else left) + (HOLE if right is UNKNOWN else right)
            return UNKNOWN
        if kind is _Instance and name in _DUNDERS:
            return self._call_dunder(left, _DUNDERS[name], [right])
        if name == "Mod" and kind in TEXTS:
            self._weigh(right)
        made = values.operate(name, left, right)
        self._charge(made, left, right)
        return made

    def _charge(self, made: Any, left: Any, right: Any) -> None:
        """Count the work for what an operator made."""
        kind = type(made)
        if kind in TEXTS:
            self.spend(len(made) // 256)
        elif kind in CONTAINERS:
            self.spend(len(made) // 32)
        elif kind is int and made.bit_length() > 64:
            self.spend(made.bit_length() // 64 + _bits(left) * _bits(right) // 2**22)

    def _unary(self, node: ast.UnaryOp) -> Make:
        make, kind = self._expr(node.operand), type(node.op)

        def run(scope: Scope) -> Any:
            value = make(scope)
            if kind is ast.Not:
                truth = self._truth(value)
                return UNKNOWN if truth is UNKNOWN else not truth
            if type(value) not in (int, float, bool):
                return UNKNOWN
            return -value if kind is ast.USub else ~value if kind is ast.Invert else +value

        return run

    def _logic(self, node: ast.BoolOp) -> Make:
        parts = [self._expr(one) for one in node.values]
        is_or = isinstance(node.op, ast.Or)

        def run(scope: Scope) -> Any:
            value: Any = None
            unsure = False
            for make in parts:
                value = make(scope)
                truth = self._truth(value)
                if truth is UNKNOWN:
                    unsure = True
                elif truth is is_or:
                    return value
            return UNKNOWN if unsure else value

        return run

    def _compare(self, node: ast.Compare) -> Make:
        first = self._expr(node.left)
        rest = [
            (type(op).__name__, self._expr(one))
            for op, one in zip(node.ops, node.comparators, strict=True)
        ]

        def run(scope: Scope) -> Any:
            left = first(scope)
            for name, make in rest:
                right = make(scope)
                if left is UNKNOWN or right is UNKNOWN:
                    return UNKNOWN
                if (type(left) is str and HOLE in left) or (type(right) is str and HOLE in right):
                    return UNKNOWN
                found: Any
                if type(left) is int and type(right) is int and name in _QUICK:
                    found = _QUICK[name](left, right)
                else:
                    self._weigh(left)
                    self._weigh(right)
                    found = values.compare(name, left, right)
                    if type(right) in TEXTS:
                        self.spend(len(right) // 32)
                if found is UNKNOWN or not found:
                    return found
                left = right
            return True

        return run

    def _choose(self, node: ast.IfExp) -> Make:
        test, body, other = self._expr(node.test), self._expr(node.body), self._expr(node.orelse)

        def run(scope: Scope) -> Any:
            chosen = self._truth(test(scope))
            if chosen is UNKNOWN:
                one, two = body(scope), other(scope)
                return two if one is UNKNOWN or two not in (UNKNOWN, None, "") else one
            return body(scope) if chosen else other(scope)

        return run

    def _named(self, node: ast.NamedExpr) -> Make:
        make, name = self._expr(node.value), node.target.id

        def run(scope: Scope) -> Any:
            value = make(scope)
            scope.assign(name, value)
            return value

        return run

    def _await(self, node: ast.Await) -> Make:
        return self._expr(node.value)

    def _lambda(self, node: ast.Lambda) -> Make:
        default = self._defaults(node.args)
        return lambda scope: _Function(node, scope, default(scope))

    def _slice(self, node: ast.Slice) -> Make:
        parts = [
            self._expr(one) if one is not None else None
            for one in (node.lower, node.upper, node.step)
        ]

        def run(scope: Scope) -> Any:
            made = [make(scope) if make is not None else None for make in parts]
            return UNKNOWN if UNKNOWN in made else slice(*made)

        return run

    def _subscript(self, node: ast.Subscript) -> Make:
        base, key = self._expr(node.value), self._expr(node.slice)
        is_slice = isinstance(node.slice, ast.Slice)

        def run(scope: Scope) -> Any:
            one, at = base(scope), key(scope)
            if one is UNKNOWN or at is UNKNOWN:
                return UNKNOWN
            kind = type(one)
            if kind not in PLAIN and kind is not range:
                if kind is _Instance:
                    return self._call_dunder(one, "__getitem__", [at])
                return UNKNOWN
            if type(at) not in (int, str, bytes, bool):
                self._weigh(at)
            made = one[at]
            if is_slice:
                self.spend(len(made) // 32)
                if kind in TEXTS:
                    self._keep(node, made)
            return made

        return run

    def _member(self, node: ast.Attribute) -> Make:
        base, name = self._expr(node.value), node.attr
        return lambda scope: self._attribute(base(scope), name)

    def _attribute(self, owner: Any, name: str) -> Any:
        """Return a listed method or field of a value; nothing else of it is reached."""
        kind = type(owner)
        find = _MEMBERS.get(kind)
        if find is not None:
            return find(self, owner, name)
        if kind is _Buffer or name in values.METHODS.get(kind, {}):
            return _Method(owner, name)
        return UNKNOWN

    def _member_of_module(self, owner: _Module, name: str) -> Any:
        if owner.scope is not None:
            return owner.scope.names.get(name, UNKNOWN)
        whole = f"{owner.name}.{name}" if owner.name != "builtins" else name
        if whole in values.CONSTANTS:
            return values.CONSTANTS[whole]
        if whole in values.FUNCTIONS or whole in _SPECIAL:
            return _Builtin(whole, values.FUNCTIONS.get(whole))
        return _Module(whole)

    def _member_of_instance(self, owner: _Instance, name: str) -> Any:
        if name in owner.fields:
            return owner.fields[name]
        if name == "__class__":
            return owner.kind
        found = owner.kind.find(name)
        if type(found) is not _Function:
            return UNKNOWN if found is None else found
        if found.kind == "property":
            return self._call_function(found, [owner], {})
        if found.kind == "staticmethod":
            return found
        return _Method(owner.kind if found.kind == "classmethod" else owner, found)

    def _member_of_class(self, owner: _Class, name: str) -> Any:
        found = owner.find(name)
        if type(found) is _Function and found.kind == "classmethod":
            return _Method(owner, found)
        return UNKNOWN if found is None else found

    def _member_of_builtin(self, owner: _Builtin, name: str) -> Any:
        whole = f"{owner.name}.{name}"
        if whole in values.FUNCTIONS:
            return _Builtin(whole, values.FUNCTIONS[whole])
        methods = values.METHODS.get(values.type_named(owner.name), {})
        return _Method(UNKNOWN, name) if name in methods else UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Make:
        before, self._count = self._count, 0
        if isinstance(node, ast.DictComp):
            keys: Make | None = self._expr(node.key)
            element = self._expr(node.value)
        else:
            keys, element = None, self._expr(node.elt)
        parts = self._generators(node.generators)
        cost = self._count
        self._count = before + cost
        is_set = isinstance(node, ast.SetComp)

        def run(scope: Scope) -> Any:
            inner = Scope(scope)
            found = self._walk(parts, 0, inner, cost)
            if keys is not None:
                made: dict[Any, Any] = {}
                for ok in found:
                    key = keys(inner)
                    if not ok or key is UNKNOWN:
                        return UNKNOWN
                    self._weigh(key)
                    made[key] = element(inner)
                    bounded(len(made))
                return made
            items: list[Any] = []
            for ok in found:
                if not ok:
                    element(inner)
                    return UNKNOWN
                items.append(element(inner))
                bounded(len(items))
            if is_set:
                self._weigh(items)
                return set(items)
            return items

        return run

    def _generator(self, node: ast.GeneratorExp) -> Make:
        before, self._count = self._count, 0
        element, parts = self._expr(node.elt), self._generators(node.generators)
        cost = self._count
        self._count = before + cost

        def produce(scope: Scope, first: Any) -> Iterator[Any]:
            inner = Scope(scope)
            for ok in self._walk(parts, 0, inner, cost, first):
                yield element(inner) if ok else UNKNOWN

        def run(scope: Scope) -> Any:
            first = self._iterate(parts[0][0](scope))
            return UNKNOWN if first is None else self.charged(produce(scope, first))

        return run

    def _generators(self, nodes: Sequence[ast.comprehension]) -> list[Any]:
        return [
            (self._expr(one.iter), self._target(one.target), [self._expr(test) for test in one.ifs])
            for one in nodes
        ]

    def _walk(
        self, parts: list[Any], at: int, scope: Scope, cost: int, first: Any = None
    ) -> Iterator[bool]:
        """Assign the targets of a comprehension in turn; yield False for a source not known."""
        source, store, tests = parts[at]
        items = first if first is not None else self._iterate(source(scope))
        if items is None:
            store(scope, UNKNOWN)
            yield False
            return
        for one in items:
            self.spend(cost)
            store(scope, one)
            if not all(self._truth(test(scope)) for test in tests):
                continue
            if at + 1 < len(parts):
                yield from self._walk(parts, at + 1, scope, cost)
            else:
                yield True

    def _iterate(self, value: Any) -> Iterator[Any] | None:
        """Return the items of a value one by one; None if they are not known."""
        kind = type(value)
        if kind in CONTAINERS and kind is not list:  # which may change meanwhile
            return iter(list(value))
        if kind in PLAIN or kind is range:
            found: Iterator[Any] = iter(value)
            return found
        if kind is _Instance:
            made = self._call_dunder(value, "__iter__", [])
            if made is value:
                return self._drain(value)
            return None if made is UNKNOWN else self._iterate(made)
        return value if isinstance(value, _Items) else None

    def _drain(self, one: _Instance) -> Iterator[Any]:
        while True:
            self.spend(1)
            try:
                item = self._call_dunder(one, "__next__", [])
            except (OutOfSteps, TooLarge):
                raise
            except Exception:
                return
            if item is UNKNOWN:
                return
            yield item

    def _items(self, value: Any) -> list[Any]:
        found = self._iterate(value)
        if found is None:
            raise ValueError
        made = collect(found)
        self.spend(len(made) // 16)
        return made

    # --- calls -----------------------------------------------------------------------------------

    def _called(self, node: ast.Call) -> Make:
        function = self._expr(node.func)
        args = [(isinstance(one, ast.Starred), self._expr(_unstar(one))) for one in node.args]
        named = [(one.arg, self._expr(one.value)) for one in node.keywords]
        is_simple = not any(starred for starred, _ in args)
        line = node.lineno

        def run(scope: Scope) -> Any:
            target = function(scope)
            given = [make(scope) for _, make in args] if is_simple else self._give(args, scope)
            options = self._give_named(named, scope) if named else {}
            self._line = line
            if type(target) is _Builtin and target.name in _SPECIAL:
                made = self._call_special(target.name, given, options, scope)
            else:
                made = self._call(target, given, options)
            if type(made) in TEXTS:
                self._keep(node, made)
                if made is self._last_join:
                    self._spelled.add(node)
            return made

        return run

    def _give(self, args: list[tuple[bool, Make]], scope: Scope) -> list[Any]:
        given: list[Any] = []
        for starred, make in args:
            one = make(scope)
            if starred and one is not UNKNOWN:
                given += self._items(one)
            else:
                given.append(one)
        return given

    def _give_named(self, named: list[tuple[str | None, Make]], scope: Scope) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, make in named:
            one = make(scope)
            if name is not None:
                options[name] = one
            elif type(one) is dict:
                options.update(one)
        return options

    def _call(self, target: Any, args: list[Any], named: dict[str, Any]) -> Any:
        kind = type(target)
        if kind is _Function:
            return self._call_function(target, args, named)
        if kind is _Builtin:
            return self._call_builtin(target, args, named)
        if kind is _Method:
            if type(target.name) is _Function:
                return self._call_function(target.name, [target.owner, *args], named)
            if target.owner is UNKNOWN:  # `str.upper` and the like
                return self._call_method(args[0], target.name, args[1:], named)
            return self._call_method(target.owner, target.name, args, named)
        if kind is _Class:
            return self._instantiate(target, args, named)
        if kind is _Instance:
            return self._call_dunder(target, "__call__", args)
        return UNKNOWN

    def _call_function(self, function: _Function, args: list[Any], named: dict[str, Any]) -> Any:
        given = (*args, *named.values())
        if not function.is_relevant and (UNKNOWN in given or not (given or self._hot)):
            return UNKNOWN
        if function.body is None:
            self._compile(function)
        self.spend(function.cost)
        if self._calls >= _MAX_CALLS:
            raise TooLarge
        function.is_called = True
        is_blind = UNKNOWN in given and all(
            one is UNKNOWN or type(one) is _Instance for one in given
        )
        if is_blind and function.blind is not None:
            return function.blind[0]
        scope = Scope(function.scope)
        self._bind(function, args, named, scope)
        if isinstance(function.body, _Generator):
            return self.charged(function.body.start(scope))
        self._calls += 1
        self._hot += function.is_relevant
        try:
            found = function.body(scope)
        finally:
            self._calls -= 1
            self._hot -= function.is_relevant
        made = found if isinstance(function.node, ast.Lambda) else scope.returned
        if is_blind:
            function.blind = (made,)
        return made

    def _compile(self, function: _Function) -> None:
        node = function.node
        before, self._count = self._count, 1
        depth, self._depth = self._depth, 0
        if isinstance(node, ast.Lambda):
            function.body = self._expr(node.body)
        elif self.has_yields and _yields(node):
            function.body = _Generator(self, node)
        else:
            function.body = self._block(node.body)
        function.cost = self._count
        self._count, self._depth = before, depth

    def _bind(
        self, function: _Function, args: list[Any], named: dict[str, Any], scope: Scope
    ) -> None:
        wanted = function.node.args
        names = [one.arg for one in (*wanted.posonlyargs, *wanted.args)]
        put = scope.names
        put.update(function.defaults)
        put.update(zip(names, args, strict=False))
        for name in names[len(args) :]:
            put.setdefault(name, UNKNOWN)
        extra = {}
        only = {one.arg for one in wanted.kwonlyargs}
        for name, one in named.items():
            if name in only or name in names:
                put[name] = one
            else:
                extra[name] = one
        for name in only:
            put.setdefault(name, UNKNOWN)
        if wanted.vararg is not None:
            put[wanted.vararg.arg] = tuple(args[len(names) :])
        if wanted.kwarg is not None:
            put[wanted.kwarg.arg] = extra

    def _instantiate(self, kind: _Class, args: list[Any], named: dict[str, Any]) -> Any:
        one = _Instance(kind)
        start = kind.find("__init__")
        if type(start) is _Function:
            self._call_function(start, [one, *args], named)
        else:
            fields = kind.names.get("__fields__", [])
            one.fields.update({f: kind.names[f] for f in fields if f in kind.names})
            one.fields.update(zip(fields, args, strict=False))
            one.fields.update(named)
        return one

    def _call_dunder(self, owner: _Instance, name: str, args: list[Any]) -> Any:
        found = owner.kind.find(name)
        if type(found) is not _Function:
            return UNKNOWN
        return self._call_function(found, [owner, *args], {})

    def _as_native(self, value: Any) -> Any:
        """Return a function of the source as one that a built-in function can call."""
        if isinstance(value, _CALLABLE):
            return lambda *args: self._call(value, list(args), {})
        return value

    def _call_builtin(self, target: _Builtin, args: list[Any], named: dict[str, Any]) -> Any:
        name, function = target.name, target.function
        if function is None or UNKNOWN in args or UNKNOWN in named.values():
            return UNKNOWN
        if name not in values.TOLERANT and any(map(holds_unknown, args)):
            return UNKNOWN
        if name == "str" and args and type(args[0]) is _Instance:
            return self._text_of(args[0])
        self._charge_builtin(name, args)
        given = [self._as_argument(one) for one in args]
        if UNKNOWN in given:
            return UNKNOWN
        options = {key: self._as_callable(one) if isinstance(one, _CALLABLE) else one
                   for key, one in named.items()}  # fmt: skip
        made = function(*given, **options)
        kind = type(made)
        if kind in CONTAINERS or kind in TEXTS:
            bounded(len(made))
            self.spend(len(made) // 32)
        elif hasattr(made, "__next__"):
            return made if kind is _Items else self.charged(made)
        elif callable(made):
            return _Builtin(name, lambda *one: made(*one))
        return made

    def _charge_builtin(self, name: str, args: list[Any]) -> None:
        """Count the work of a function that Python has, before it is called."""
        size = sum(map(_size, args))
        self.spend(1 + size // 32 + (2_000 if name.startswith(_HEAVY) else 0))
        if name in values.WEIGHING:
            for one in args:
                self._weigh(one)
        elif name.startswith("re."):
            self.spend(size * size // 500 if is_quick(args[0]) else size)
        elif name == "pow" and len(args) > 2:
            self.spend(sum(map(_bits, args)) // 4)

    def _as_argument(self, value: Any) -> Any:
        """Return an argument for a function that Python has; what is not known if it cannot be."""
        if isinstance(value, _CALLABLE):
            return self._as_callable(value)
        if type(value) in PLAIN or type(value) is slice:
            return value
        items = self._iterate(value)
        if items is None:
            return UNKNOWN
        return items if type(items) is _Items else self.charged(items)

    def _as_callable(self, value: Any) -> Any:
        if type(value) is _Instance and value.kind.find("__call__") is None:
            return self.charged(self._iterate(value) or ())
        return self._as_native(value)

    def _call_method(self, owner: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        kind = type(owner)
        if kind is _Buffer:
            return self._call_buffer(owner, name, args)
        method = values.METHODS.get(kind, {}).get(name)
        if method is None:
            return UNKNOWN
        if kind in TEXTS and name == "join":
            return self._join(owner, args[0])
        if kind is str and name == "format":
            return values.put_in(owner, tuple(args), named)
        if kind in TEXTS and (any(map(holds_unknown, args)) or UNKNOWN in named.values()):
            return UNKNOWN
        given = [self._as_method_argument(one) for one in args]
        if UNKNOWN in given and name in ("index", "get", "sort"):
            return UNKNOWN
        self._charge_method(owner, name, given)
        options = {key: self._as_native(one) for key, one in named.items()}
        if type(method) is str:
            made = getattr(owner, method)(*given, **options)
        else:
            made = method(owner, *given, **options)
        if type(made) in TEXTS or type(made) in CONTAINERS:
            bounded(len(made))
            self.spend(len(made) // 32)
        elif kind in CONTAINERS and name in ("keys", "values", "items"):
            return list(made)
        return made

    def _as_method_argument(self, value: Any) -> Any:
        if isinstance(value, _CALLABLE):
            return self._as_native(value)
        return value if type(value) in PLAIN or value is UNKNOWN else self._items(value)

    def _charge_method(self, owner: Any, name: str, given: list[Any]) -> None:
        """Count the work of a method before it is called, and check what it would make."""
        size, more = _size(owner), sum(map(_size, given))
        if name in values.GROWING and type(owner) in CONTAINERS | {bytearray}:
            bounded(size + (1 if name in values.ADDING_ONE else more))
        if name in values.COMPARING and type(owner) in CONTAINERS:
            whole = (owner, *given) if name in ("index", "count", "remove", "sort") else given
            for one in whole:
                self._weigh(one)
        self.spend(1 + size // (2_048 if name in ("append", "get", "pop") else 64))
        self.spend(more // 32 + (size * more // 1_000 if name in values.SLOW else 0))

    def _join(self, separator: Any, parts: Any) -> Any:
        items = self._iterate(parts)
        if items is None:
            return UNKNOWN
        found = collect(items)
        self.spend(len(found) // 16)
        made = values.join(separator, found)
        if type(made) is str and len(found) >= MIN_MADE and len(made) <= 3 * len(found):
            self._last_join = made
        return made

    def _call_buffer(self, owner: _Buffer, name: str, args: list[Any]) -> Any:
        if name == "write":
            owner.data = self._operate("Add", owner.data, args[0])
            return None
        if name in ("getvalue", "getbuffer"):
            return owner.data
        if name == "read":
            rest = owner.data[owner.at :]
            if args and type(args[0]) is int:
                rest = rest[: args[0]]
            owner.at += len(rest)
            return rest
        if name in ("readlines", "readline"):
            lines = owner.data.splitlines(keepends=True)
            return lines if name == "readlines" else lines[0]
        return UNKNOWN

    def _call_special(self, name: str, args: list[Any], named: dict[str, Any], scope: Scope) -> Any:
        """Call what looks at the program itself, prints, or has a state."""
        if name == "print":
            return self._print(args, named)
        if name in ("sys.stdout.write", "sys.stderr.write"):
            return self._print(args, {"end": ""})
        if name.startswith("random."):
            return self._call_random(name.partition(".")[2], args, named)
        if name in ("globals", "locals", "vars") and not args:
            return dict((self.module if name == "globals" else scope).names)
        if name in ("eval", "exec", "ast.literal_eval") and args:
            alone = Scope(None) if name == "ast.literal_eval" else scope
            return self._run_text(name, args[0], alone)
        if name == "functools.partial" and args:
            first, *rest = args
            return _Builtin("partial", lambda *more: self._call(first, [*rest, *more], named))
        run = _ABOUT_VALUES.get(name)
        return run(self, *args) if run is not None and args else self._make_buffer(name)

    def _make_buffer(self, name: str) -> Any:
        empty: Any = "" if name == "io.StringIO" else b""
        return _Buffer(empty) if name in ("io.StringIO", "io.BytesIO") else UNKNOWN

    def _get_attribute(self, owner: Any, name: Any, *_: Any) -> Any:
        return self._attribute(owner, name) if type(name) is str else UNKNOWN

    def _set_attribute(self, owner: Any, name: Any, value: Any) -> None:
        if type(owner) is _Instance and type(name) is str:
            owner.fields[name] = value

    def _import_named(self, name: Any, *_: Any) -> Any:
        return self._load_module(name) if type(name) is str else UNKNOWN

    def _take_first(self, value: Any, *_: Any) -> Any:
        return value

    def _type_of(self, value: Any) -> Any:
        if type(value) is _Instance:
            return value.kind
        name = type(value).__name__
        return _Builtin(name, values.FUNCTIONS.get(name)) if type(value) in PLAIN else UNKNOWN

    def _default_dict(self, factory: Any) -> Any:
        kind = values.type_named(factory.name) if type(factory) is _Builtin else None
        return collections.defaultdict(kind) if kind in (int, str, list, dict, set) else UNKNOWN

    def _fill_buffer(self, value: Any) -> Any:
        return _Buffer(value) if type(value) in TEXTS else UNKNOWN

    def _print(self, args: list[Any], named: dict[str, Any]) -> None:
        if "file" in named and named["file"] is not UNKNOWN and type(named["file"]) is _Buffer:
            named["file"].data += str(args[0]) if args and type(args[0]) in TEXTS else ""
            return
        shown = []
        for one in args:
            if type(one) in PLAIN and not holds_unknown(one):
                self._weigh(one)
                shown.append(values.to_text(one))
            else:
                shown.append(self._text_of(one))
        separator, end = named.get("sep", " "), named.get("end", "\n")
        text = (separator if type(separator) is str else " ").join(shown)
        text += end if type(end) is str else "\n"
        bounded(len(text))
        if len(self._printed) < 20_000 and not self._is_foreign:
            self._printed.append((text, self._line, len(shown)))

    def _call_random(self, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        if name == "seed":
            made = values.FUNCTIONS["random.Random"](*args)
            self._random = made if made is not UNKNOWN else None
            return None
        if self._random is None:
            return UNKNOWN
        return self._call_method(self._random, name, args, named)

    def _is_instance(self, value: Any, kinds: Any) -> Any:
        if type(value) not in PLAIN:
            return UNKNOWN
        listed = kinds if type(kinds) is tuple else (kinds,)
        types = [values.type_named(one.name) if type(one) is _Builtin else None for one in listed]
        if any(one is not None and isinstance(value, one) for one in types):
            return True
        return UNKNOWN if None in types else False

    def _run_text(self, name: str, text: Any, scope: Scope) -> Any:
        """Evaluate a text as a part of the source."""
        if type(text) not in TEXTS or self._nested >= _MAX_NESTED:
            return UNKNOWN
        self.spend(50 + len(text) // 4)
        source = text if type(text) is str else bytes(text).decode("utf-8", "replace")
        foreign, self._is_foreign = self._is_foreign, True
        self._nested += 1
        try:
            tree = parse_python(source.strip())
            if name == "exec":
                self._run_module(tree.body, scope)
                return None
            alone = tree.body[0] if len(tree.body) == 1 else None
            return self._expr(alone.value)(scope) if isinstance(alone, ast.Expr) else UNKNOWN
        except (SyntaxError, MemoryError):
            return UNKNOWN
        finally:
            self._is_foreign = foreign
            self._nested -= 1

    def _yield_outside(self, node: ast.expr) -> Make:
        return lambda scope: UNKNOWN


class _Generator:
    """A function that yields, as far as its yields are statements."""

    def __init__(self, evaluation: Evaluation, node: Any) -> None:
        self.evaluation = evaluation
        self.body = self._plan(node.body)

    def start(self, scope: Scope) -> Any:
        """Return what the function yields."""
        return self._run(self.body, scope)

    def _plan(self, body: Sequence[ast.stmt]) -> list[tuple[str, Any, Any]]:
        run = self.evaluation
        made: list[tuple[str, Any, Any]] = []
        for node in body:
            value = getattr(node, "value", None)
            if isinstance(value, ast.Yield):
                store = run._target(node.targets[0]) if isinstance(node, ast.Assign) else None
                make = run._expr(value.value) if value.value is not None else lambda scope: None
                made.append(("yield", make, store))
            elif isinstance(value, ast.YieldFrom):
                made.append(("from", run._expr(value.value), None))
            elif isinstance(node, ast.If) and _yields(node):
                chosen = (self._plan(node.body), self._plan(node.orelse))
                made.append(("if", run._expr(node.test), chosen))
            elif isinstance(node, ast.While) and _yields(node):
                made.append(("while", run._expr(node.test), (None, self._plan(node.body))))
            elif isinstance(node, ast.For) and _yields(node):
                parts = (run._target(node.target), self._plan(node.body))
                made.append(("for", run._expr(node.iter), parts))
            elif isinstance(node, ast.With | ast.Try) and _yields(node):
                made += self._plan(node.body)
            else:
                made.append(("do", run._block([node]), None))
        return made

    def _run(self, body: list[tuple[str, Any, Any]], scope: Scope) -> Any:
        """Yield values; return how the block is left."""
        run = self.evaluation
        for kind, make, rest in body:
            run.spend(2)
            signal: Any = None
            if kind == "do":
                signal = make(scope)
            elif kind == "yield":
                yield make(scope)
                if rest is not None:
                    rest(scope, UNKNOWN)
            elif kind == "from":
                yield from run._iterate(make(scope)) or ()
            elif kind == "if":
                chosen = run._truth(make(scope))
                if chosen is not UNKNOWN:
                    signal = yield from self._run(rest[0] if chosen else rest[1], scope)
            else:
                rounds = self._rounds(kind, make, rest, scope)
                signal = yield from self._loop(rounds, rest[1], scope)
            if signal is not None:
                return signal
        return None

    def _rounds(self, kind: str, make: Make, rest: Any, scope: Scope) -> Iterator[None]:
        """Yield once for each round of a loop."""
        run = self.evaluation
        if kind == "while":
            while run._truth(make(scope)) is True:
                run.spend(1)
                yield
        else:
            for one in run._iterate(make(scope)) or ():
                run.spend(1)
                rest[0](scope, one)
                yield

    def _loop(self, rounds: Iterator[None], body: Any, scope: Scope) -> Any:
        for _ in rounds:
            signal = yield from self._run(body, scope)
            if signal is _BREAK:
                return None
            if signal is _RETURN:
                return signal
        return None


_NAME = re.compile(r"[A-Za-z_]\w*")


def _split_module(tree: ast.Module, source: str) -> tuple[frozenset[ast.AST], list[ast.stmt]]:
    """Return the functions that put no text together, and the statements that are evaluated.

    The first neither have the means nor name something that does. The second do, or give names
    that those use. Honest programs are mostly neither, and to evaluate them takes long.
    """
    lines = source.split("\n")
    ends = list(itertools.accumulate(len(one) + 1 for one in lines))
    hot_lines = {bisect_right(ends, at) + 1 for at in find_means(source)}
    parts: list[tuple[ast.stmt, set[str], set[str]]] = []
    for node in tree.body:
        for one in node.body if isinstance(node, ast.ClassDef) else (node,):
            text = "\n".join(lines[one.lineno - 1 : one.end_lineno])
            names = _given_names(one)
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            parts.append((one, names, set(_NAME.findall(text))))
    chosen = {
        node for node, _, _ in parts
        if any(node.lineno <= line <= (node.end_lineno or 0) for line in hot_lines)
    }  # fmt: skip
    if not chosen and len(source) < _MAX_SPREAD:  # the parts are spread over the statements
        return frozenset(), tree.body
    hot = {name for node, names, _ in parts for name in names if node in chosen}
    while more := [one for one in parts if one[0] not in chosen and not hot.isdisjoint(one[2])]:
        for part, names, _ in more:
            chosen.add(part)
            hot |= names
    needed = {name for node, _, words in parts for name in words if node in chosen}
    kept = set(chosen)
    while more := [one for one in parts if one[0] not in kept and not needed.isdisjoint(one[1])]:
        for part, _, words in more:
            kept.add(part)
            needed |= words
    always = [
        one for one in tree.body if one in kept or not isinstance(one, (*_VALUES, ast.Expr, ast.If))
    ]
    return frozenset(node for node, _, _ in parts if node not in chosen), always


_VALUES = (ast.Assign, ast.AnnAssign)


def _given_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    parts = (part for one in targets if one is not None for part in ast.walk(one))
    return {one.id for one in parts if isinstance(one, ast.Name)}


def _yields(node: ast.AST) -> bool:
    """Whether a function, or a part of one, yields; functions in it do not count."""
    left: list[ast.AST] = list(ast.iter_child_nodes(node))
    while left:
        one = left.pop()
        if isinstance(one, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(one)
    return False


def _as_text(value: Any) -> str:
    """Return a text, or what bytes spell; "" for bytes that spell nothing."""
    if type(value) is str:
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return ""


def _as_loaded(node: ast.expr) -> ast.expr:
    """Return a target as an expression with its value."""
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    return node


def _unstar(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _size(value: Any) -> int:
    return len(value) if type(value) in PLAIN and hasattr(value, "__len__") else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


_QUICK: dict[str, Callable[[int, int], bool]] = {
    "Lt": lambda one, other: one < other, "LtE": lambda one, other: one <= other,
    "Gt": lambda one, other: one > other, "GtE": lambda one, other: one >= other,
    "Eq": lambda one, other: one == other, "NotEq": lambda one, other: one != other,
}  # fmt: skip
_STATEMENTS: dict[type[ast.stmt], Callable[..., Do | None]] = {
    ast.Expr: Evaluation._expression_statement, ast.Assign: Evaluation._assign,
    ast.AnnAssign: Evaluation._assign_typed, ast.AugAssign: Evaluation._assign_more,
    ast.Delete: Evaluation._delete, ast.If: Evaluation._if, ast.While: Evaluation._while,
    ast.For: Evaluation._for, ast.AsyncFor: Evaluation._for, ast.Try: Evaluation._try,
    ast.With: Evaluation._with, ast.AsyncWith: Evaluation._with, ast.Match: Evaluation._match,
    ast.Return: Evaluation._return, ast.Raise: Evaluation._raise, ast.Assert: Evaluation._assert,
    ast.Global: Evaluation._outside, ast.Nonlocal: Evaluation._outside,
    ast.FunctionDef: Evaluation._define, ast.AsyncFunctionDef: Evaluation._define,
    ast.ClassDef: Evaluation._define_class, ast.Import: Evaluation._import,
    ast.ImportFrom: Evaluation._import_from,
    ast.Break: lambda self, node: lambda scope: _BREAK,
    ast.Continue: lambda self, node: lambda scope: _CONTINUE,
}  # fmt: skip
_EXPRESSIONS: dict[type[ast.expr], Callable[..., Make]] = {
    ast.Constant: Evaluation._constant, ast.Name: Evaluation._name, ast.List: Evaluation._list,
    ast.Tuple: Evaluation._list, ast.Set: Evaluation._list, ast.Dict: Evaluation._dict,
    ast.JoinedStr: Evaluation._joined, ast.BinOp: Evaluation._binary,
    ast.UnaryOp: Evaluation._unary, ast.BoolOp: Evaluation._logic,
    ast.Compare: Evaluation._compare, ast.IfExp: Evaluation._choose,
    ast.NamedExpr: Evaluation._named, ast.Await: Evaluation._await,
    ast.Lambda: Evaluation._lambda, ast.Slice: Evaluation._slice,
    ast.Subscript: Evaluation._subscript, ast.Attribute: Evaluation._member,
    ast.ListComp: Evaluation._comprehension, ast.SetComp: Evaluation._comprehension,
    ast.DictComp: Evaluation._comprehension, ast.GeneratorExp: Evaluation._generator,
    ast.Call: Evaluation._called,
}  # fmt: skip
_MEMBERS: dict[type, Callable[..., Any]] = {
    _Module: Evaluation._member_of_module, _Instance: Evaluation._member_of_instance,
    _Class: Evaluation._member_of_class, _Builtin: Evaluation._member_of_builtin,
}  # fmt: skip
_ABOUT_VALUES: dict[str, Callable[..., Any]] = {
    "getattr": Evaluation._get_attribute, "setattr": Evaluation._set_attribute,
    "__import__": Evaluation._import_named, "importlib.import_module": Evaluation._import_named,
    "compile": Evaluation._take_first, "functools.lru_cache": Evaluation._take_first,
    "functools.cache": Evaluation._take_first, "dataclasses.dataclass": Evaluation._take_first,
    "staticmethod": Evaluation._take_first, "classmethod": Evaluation._take_first,
    "isinstance": Evaluation._is_instance, "type": Evaluation._type_of,
    "collections.defaultdict": Evaluation._default_dict,
    "io.StringIO": Evaluation._fill_buffer, "io.BytesIO": Evaluation._fill_buffer,
}  # fmt: skip
