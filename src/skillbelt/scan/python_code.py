"""Read Python: which values go where, inside one file.

The source is parsed and never run. Every expression is followed as far as its text, its origin
(`Traced.labels`) or the name of the function it stands for are known: constants are put together,
decoded, and looked up by name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from posixpath import dirname, join
from typing import TYPE_CHECKING

from skillbelt.format.python_source import MAX_SOURCE_BYTES, parse_python
from skillbelt.late import Late
from skillbelt.scan.calls import TracedCall, judge_call
from skillbelt.scan.ledger import HOLE, OPAQUE, SPELLED, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.made_texts import (
    find_visibility,
    judge_made_text,
    may_put_together,
    says_nothing,
)
from skillbelt.scan.package_names import judge_package
from skillbelt.text import Lazy

if TYPE_CHECKING:
    import textwrap

    from skillbelt.scan import evaluator
else:
    textwrap = Late("textwrap")  # cost: 1 ms, only for code that is indented
    evaluator = Late("skillbelt.scan.evaluator")  # cost: 15 ms, only for code that decodes

_MAX_DEPTH = 60
_MAX_ROUNDS = 12
_MAX_TEXT = 64 * 2**10
_PROMPT = Lazy(r"(?m)^(?:>>> |\.\.\. |In \[\d+\]: )")
# What makes a text of numbers.
_SPELLING = frozenset(
    ("chr", "bytes", "bytearray", "decode", "join", "tobytes", "decrypt", "decompress")
)
_MIN_OPAQUE = 40
_STRING_METHODS = frozenset(
    (
        "strip",
        "lstrip",
        "rstrip",
        "lower",
        "upper",
        "encode",
        "decode",
        "title",
        "casefold",
        "swapcase",
    )
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def read_python(text: str, line: int, ledger: Ledger) -> bool:
    """Note what a source does; return whether it could be parsed."""
    plain = text[:MAX_SOURCE_BYTES].replace("\r\n", "\n")
    tree = _parse(plain)
    if tree is None:
        return False
    source = plain
    made = _evaluate(tree, plain, ledger) if may_put_together(plain) else None
    reader = PythonReader(ledger, line, source)
    if made is not None:
        reader.known, reader.varied = made.known, made.varied
        reader.source = source = "\n".join((plain, *made.imported))
    try:
        reader.declare(tree.body)
        reader.run(tree.body, 0)
    except RecursionError:
        ledger.miss("Python that is nested too deep")
    for one in made.texts() if made is not None else ():
        judge_made_text(one.text, source, line + one.line - 1, ledger, spelled=one.spelled)
    return True


def _evaluate(tree: ast.Module, source: str, ledger: Ledger) -> evaluator.Evaluation:
    """Return what a source makes of its constants, within the steps that are left."""
    machine = ledger.evaluator
    if not isinstance(machine, evaluator.Evaluator):
        machine = ledger.evaluator = evaluator.Evaluator(lambda path: ledger.read_sibling(path))
    return machine.evaluate(tree, source)


def _parse(text: str) -> ast.Module | None:
    forms: tuple[Callable[[str], str], ...] = (
        lambda one: one,
        lambda one: textwrap.dedent(one),
        lambda one: _PROMPT.sub("", one),
        # A part of a function, or one with an ellipsis for what is left out.
        lambda one: "async def _():\n" + textwrap.indent(textwrap.dedent(one), " "),
    )
    tried: set[str] = set()
    for form in forms:
        source = form(text)
        if source in tried:
            continue
        tried.add(source)
        try:
            return parse_python(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


# Names that no honest source puts together from parts.
_POWER_NAMES = frozenset(
    ("eval", "exec", "system", "popen", "subprocess", "__import__", "__builtins__", "getattr",
     "os.system", "child_process", "execSync", "b64decode", "check_output", "Popen", "urlopen")
)  # fmt: skip


class PythonReader:
    """Follows the values of one source."""

    def __init__(self, ledger: Ledger, line: int, source: str) -> None:
        self.ledger, self.first, self.source = ledger, line, source
        # The texts of expressions, as far as an evaluation made them.
        self.known: Mapping[ast.AST, str] = {}
        self.varied: Set[ast.AST] = frozenset()
        self._marks: dict[str, frozenset[str]] = {}
        self.names: dict[str, Traced] = {}
        # The attributes of all objects by their names; they outlive a function.
        self.fields: dict[str, Traced] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.returns: dict[str, Traced] = {}
        self.classes: set[str] = set()
        self._open: list[str] = []
        self._returned: list[Traced] = []

    def line(self, node: ast.AST) -> int:
        """Return the line of a node, as the ledger counts them."""
        return self.first + int(getattr(node, "lineno", 1)) - 1

    # --- statements ------------------------------------------------------------------------------

    def declare(self, body: Sequence[ast.stmt]) -> None:
        """Note the functions of a source, so that a call finds one that stands below it."""
        for node in body:
            if isinstance(node, _FUNCTIONS):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
                self._declare_fields(node)
                self.declare(node.body)

    def _declare_fields(self, node: ast.ClassDef) -> None:
        for one in node.body:
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant):
                for target in one.targets:
                    if isinstance(target, ast.Name):
                        self.fields[target.id] = self.value(one.value, 1)

    def run(self, body: Iterable[ast.stmt], depth: int) -> None:
        """Follow statements in their order."""
        for node in body:
            self._statement(node, depth)

    def _statement(self, node: ast.stmt, depth: int) -> None:
        self.ledger.spend()
        if isinstance(node, ast.Expr):
            self.value(node.value, depth + 1)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, depth)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            self._assign_one(node, depth)
        elif isinstance(node, _FUNCTIONS):
            self._function(node, depth)
        elif isinstance(node, ast.Return):
            self._returned += [self.value(node.value, depth)] if node.value else []
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._loop(node, depth)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, depth)
        else:
            self._parts(node, depth)

    def _loop(self, node: ast.For | ast.AsyncFor, depth: int) -> None:
        """Follow a loop: over a short list that is known, once for each of its items."""
        source = self.value(node.iter, depth)
        known = source.items or ()
        if not 1 < len(known) <= _MAX_ROUNDS or not all(one.text for one in known):
            known = (self._element(source),)
        for one in known:
            self._assign(node.target, one._replace(labels=one.labels | source.labels))
            self.run(node.body, depth + 1)
        self.run(node.orelse, depth + 1)

    def _parts(self, node: ast.stmt, depth: int) -> None:
        if isinstance(node, ast.While):
            self._judge_loop(node)
        for child in _children(node):
            if isinstance(child, ast.stmt):
                self._statement(child, depth + 1)
            elif isinstance(child, ast.expr):
                self.value(child, depth + 1)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self.run(child.body, depth + 1)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        base = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
        for alias in node.names:
            whole = f"{base}{alias.name}"
            local = alias.asname or (alias.name if base else alias.name.partition(".")[0])
            self.names[local] = Traced(name=whole if alias.asname or base else local)
        module = base or node.names[0].name
        if isinstance(node, ast.ImportFrom) and node.level:
            return
        judge_import(module.partition(".")[0], self.line(node), self.ledger)

    def _assign_one(self, node: ast.AnnAssign | ast.AugAssign, depth: int) -> None:
        value = self.value(node.value, depth) if node.value is not None else UNKNOWN
        if isinstance(node, ast.AugAssign):
            before = self.value(node.target, depth)
            made = _add(before, value)
            value = self._as_made(made._replace(text=None), node) if node in self.known else made
            value = made if value.text is None else value
        self._assign(node.target, value)

    def _assign(self, target: ast.expr, value: Traced) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            self.fields[target.attr] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items or ()
            for number, one in enumerate(target.elts):
                part = items[number] if number < len(items) else Traced(labels=value.labels)
                self._assign(one, part)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if key is not None:
                self.names[f"{target.value.id}[{key!r}]"] = value
            old = self.names.get(target.value.id, UNKNOWN)
            self.names[target.value.id] = Traced(labels=old.labels | value.labels, name=old.name)

    def _element(self, value: Traced) -> Traced:
        if value.items and len(value.items) == 1:
            return value.items[0]
        return Traced(labels=value.labels | merge(value.items or ()))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, depth: int) -> None:
        """Follow a function with unknown arguments."""
        if node.name not in self.returns and depth < _MAX_DEPTH:
            self._call_function(node, (), {}, depth)
        made = UNKNOWN
        for one in reversed(node.decorator_list):
            made = self._decorate(one, made, depth)

    def _decorate(self, node: ast.expr, made: Traced, depth: int) -> Traced:
        """Return what a decorator makes of a function, or of what another one made of it."""
        if isinstance(node, ast.Lambda):
            return self.value(node.body, depth + 1)
        target = self.value(node, depth + 1)
        if isinstance(node, ast.Call) or not target.name or not made.labels:
            return made
        call = TracedCall(
            name=target.name,
            owner=UNKNOWN,
            positional=(made,),
            line=self.line(node),
            labels=target.labels,
        )
        done = judge_call(call, self.ledger)
        return done if done.labels else made

    def _call_function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        positional: Sequence[Traced],
        named: dict[str, Traced],
        depth: int,
    ) -> Traced:
        """Follow a function with these arguments; return what it returns."""
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        if names and names[0] in ("self", "cls"):
            names = names[1:]
        saved, outer = self.names, self._returned
        self.names, self._returned = dict(saved), []
        self._open.append(node.name)
        for name in (*names, *(one.arg for one in node.args.kwonlyargs)):
            self.names[name] = UNKNOWN
        self.names.update(zip(names, positional, strict=False))
        self.names.update({key: one for key, one in named.items() if key in self.names})
        self.run(node.body, depth + 1)
        made = self._returned
        for one in node.body:
            if isinstance(one, ast.Global | ast.Nonlocal):
                saved.update((name, self.names[name]) for name in one.names if name in self.names)
        self.names, self._returned = saved, outer
        self._open.pop()
        alone = made[0] if len(made) == 1 else Traced(labels=merge(made))
        self.returns[node.name] = alone
        return alone

    def _with(self, node: ast.With | ast.AsyncWith, depth: int) -> None:
        for item in node.items:
            value = self.value(item.context_expr, depth)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, value)
        self.run(node.body, depth + 1)

    def _judge_loop(self, node: ast.While) -> None:
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if forever and not _can_end(node) and _starts_processes(node):
            self.ledger.find("endless-work", self.line(node), "while True: os.fork()")

    # --- expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr, depth: int) -> Traced:
        """Return what is known of an expression."""
        self.ledger.spend()
        if depth > _MAX_DEPTH:
            self.ledger.miss("Python that is nested too deep")
            return UNKNOWN
        if isinstance(node, ast.Name):  # a third of all expressions
            found = self.names.get(node.id)
            return found if found is not None else _name_alone(node.id)
        method = _EXPRESSIONS.get(type(node))
        if method is not None:
            made: Traced = method(self, node, depth + 1)
            if node in self.known:
                made = self._as_made(made, node)
            if made.text in _POWER_NAMES and isinstance(node, _COMPOSED):
                self._judge_name(made.text or "", node)
            return made
        parts = [
            self.value(child, depth + 1) for child in _children(node) if isinstance(child, ast.expr)
        ]
        labels = merge(parts)
        return Traced(labels=labels) if labels else UNKNOWN

    def _as_made(self, value: Traced, node: ast.AST) -> Traced:
        """Return a value with the text that the evaluation made of it."""
        text = self.known[node]
        if not text or HOLE in text or text == value.text:
            return value
        if node in self.varied and HOLE not in (value.text or HOLE):
            return value  # one of several, of which the reader knows which
        mark = self._marks.get(text)
        if mark is None:
            hidden = find_visibility(text, self.source) == "hidden"
            mark = self._marks[text] = frozenset(("decoded",)) if hidden else frozenset()
        return Traced(text=text, labels=value.labels | mark)

    def _judge_name(self, name: str, node: ast.expr) -> None:
        """Note the name of a function with power that is put together or decoded."""
        whole = any(
            isinstance(one, ast.Constant) and one.value == name for one in ast.walk(node)
        ) and not isinstance(node, ast.Call)
        if not whole:
            self.ledger.find("reflective-call", self.line(node), f"{name!r} is put together")

    def _constant(self, node: ast.Constant, depth: int) -> Traced:
        value = node.value
        if isinstance(value, str):
            if "://" in value:
                self.ledger.names_url(value, self.line(node))
            return Traced(text=value[:_MAX_TEXT], labels=_label_text(value))
        if isinstance(value, bytes):
            text = value[:_MAX_TEXT].decode("latin-1")
            return Traced(text=text, labels=_label_text(text))
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**12:
            return Traced(text=str(value))
        return UNKNOWN

    def _attribute(self, node: ast.Attribute, depth: int) -> Traced:
        return self._member(self.value(node.value, depth), node)

    def _member(self, base: Traced, node: ast.Attribute) -> Traced:
        """Return what is known of an attribute of a value."""
        if base.name in ("self", "cls") or base.name in self.classes:
            kept = self.fields.get(node.attr)
            if kept is not None:
                return kept
        name = f"{base.name}.{node.attr}" if base.name else f"?.{node.attr}"
        if name in ("os.environ", "process.env"):
            return Traced(name=name, labels=frozenset(("environment",)))
        return Traced(text=base.text, labels=base.labels, name=name)

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Traced:
        items = tuple(self.value(one, depth) for one in node.elts[:500])
        return Traced(labels=merge(items) | _label_numbers(node.elts), items=items)

    def _dict(self, node: ast.Dict, depth: int) -> Traced:
        values = [self.value(one, depth) for one in node.values]
        for key in node.keys:
            if key is not None:
                values.append(self.value(key, depth)._replace(text=None))
        labels = merge(values)
        self.ledger.judge_collection(labels, self.line(node))
        return Traced(labels=labels)

    def _joined(self, node: ast.JoinedStr, depth: int) -> Traced:
        made = Traced(text="")
        for one in node.values:
            inner = one.value if isinstance(one, ast.FormattedValue) else one
            part = self.value(inner, depth)
            made = _add(made, part if part.text is not None else part._replace(text=HOLE))
        self.ledger.names_url(made.known, self.line(node))
        return made

    def _binary(self, node: ast.BinOp, depth: int) -> Traced:
        left, right = self.value(node.left, depth), self.value(node.right, depth)
        if isinstance(node.op, ast.Add):
            return _add(left, right)
        if isinstance(node.op, ast.Mult) and left.text is not None and _number(node.right) == 1:
            return left
        if isinstance(node.op, ast.Div) and left.text is not None:
            return Traced(
                text=f"{left.known.rstrip('/')}/{right.text or HOLE}",
                labels=left.labels | right.labels,
            )
        if isinstance(node.op, ast.Mod) and left.text is not None:
            parts = right.items if right.items is not None else (right,)
            return Traced(text=_percent(left.text, parts), labels=left.labels | right.labels)
        return Traced(labels=left.labels | right.labels)

    def _subscript(self, node: ast.Subscript, depth: int) -> Traced:
        base = self.value(node.value, depth)
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
            kept = self.names.get(f"{node.value.id}[{node.slice.value!r}]")
            if kept is not None:
                return kept
        if isinstance(node.slice, ast.Slice):
            return self._slice(base, node.slice, depth)
        key = self.value(node.slice, depth)
        if base.name == "os.environ" or ("environment" in base.labels and key.text):
            return Traced(labels=self.ledger.reads_variable(key.known, self.line(node)))
        if base.name.endswith(("()", ".__dict__")) or base.name in ("__builtins__", "sys.modules"):
            return self._reflected(base.name, key, node)
        if base.items is not None and key.text is not None and key.text.isdecimal():
            at = int(key.text)
            if at < len(base.items):
                return base.items[at]
        return Traced(labels=base.labels | key.labels)

    def _slice(self, base: Traced, part: ast.Slice, depth: int) -> Traced:
        bounds: list[int | None] = []
        for one in (part.lower, part.upper, part.step):
            bounds.append(_number(one))
            if one is not None and bounds[-1] is None:
                return Traced(text=base.text, labels=base.labels)
        if bounds[2] == 0 or base.text is None:
            return Traced(labels=base.labels)
        strided = bounds[2] not in (None, 1)
        mark = frozenset(("decoded",)) if strided else frozenset[str]()
        return Traced(text=base.text[slice(*bounds)], labels=base.labels | mark)

    def _reflected(self, base: str, key: Traced, node: ast.expr) -> Traced:
        """Return what a name means that is looked up by its text."""
        if not key.text or HOLE in key.text:
            return UNKNOWN
        parent = base.removesuffix(".__dict__")
        plain = ("globals()", "locals()", "vars()", "__builtins__", "sys.modules", "builtins")
        name = key.text if parent in plain else f"{parent}.{key.text}"
        return Traced(name=name, labels=frozenset((f"reflected:{self.line(node)}",)))

    def _lambda(self, node: ast.Lambda, depth: int) -> Traced:
        return self.value(node.body, depth)

    def _comprehension(self, node: ast.expr, depth: int) -> Traced:
        source = UNKNOWN
        for one in getattr(node, "generators", ()):
            source = self.value(one.iter, depth)
            self._assign(one.target, self._element(source))
            for test in one.ifs:
                self._judge_filter(test, depth)
        if isinstance(node, ast.DictComp):
            parts = [self.value(node.key, depth), self.value(node.value, depth)]
            return Traced(labels=merge(parts))
        element = self.value(node.elt, depth)  # type: ignore[attr-defined]
        return Traced(labels=element.labels)

    def _judge_filter(self, test: ast.expr, depth: int) -> None:
        value = self.value(test, depth)
        words = " ".join(
            one.value for one in ast.walk(test)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )  # fmt: skip
        hunted = re.search(r"(?i)key|token|secret|pass|cred", words)
        if "environment" in value.labels and hunted:
            self.ledger.find("environment-read", self.line(test), words)

    def _await(self, node: ast.Await, depth: int) -> Traced:
        return self.value(node.value, depth)

    def _conditional(self, node: ast.IfExp, depth: int) -> Traced:
        parts = [self.value(one, depth) for one in (node.test, node.body, node.orelse)]
        known = parts[1] if parts[1].text is not None or parts[1].name else parts[2]
        return known._replace(labels=merge(parts[1:]))

    def _named(self, node: ast.NamedExpr, depth: int) -> Traced:
        value = self.value(node.value, depth)
        self._assign(node.target, value)
        return value

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, node: ast.Call, depth: int) -> Traced:
        owner = UNKNOWN
        if isinstance(node.func, ast.Attribute):  # once: calls may be a long chain
            owner = self.value(node.func.value, depth + 1)
            function = self._member(owner, node.func)
        else:
            function = self.value(node.func, depth)
        positional = [self.value(_unstar(one), depth) for one in node.args]
        named = {one.arg or "**": self.value(one.value, depth) for one in node.keywords}
        made = self._fold(function.name, owner, positional, node)
        if made is None:
            made = self._judge(function, owner, positional, named, node, depth)
        if OPAQUE in made.labels and function.name.rpartition(".")[2] in _SPELLING:
            made = made._replace(labels=made.labels | {SPELLED})
        return made

    def _judge(
        self,
        function: Traced,
        owner: Traced,
        positional: Sequence[Traced],
        named: dict[str, Traced],
        node: ast.Call,
        depth: int,
    ) -> Traced:
        """Follow a function of the source, or note what another one does."""
        local = function.name.rpartition(".")[2]
        if local in self.functions and function.name.count(".") < 2:
            return self._local(local, positional, named, depth)
        call = TracedCall(
            name=function.name,
            owner=owner,
            positional=tuple(positional),
            named=named,
            line=self.line(node),
            labels=function.labels,
        )
        return judge_call(call, self.ledger)

    def _local(
        self, name: str, positional: Sequence[Traced], named: dict[str, Traced], depth: int
    ) -> Traced:
        if name in self._open or len(self._open) > 8 or depth > _MAX_DEPTH - 10:
            return Traced(labels=merge((*positional, *named.values())))
        interesting = any(one.labels or one.text for one in (*positional, *named.values()))
        if not interesting and name in self.returns:
            return self.returns[name]
        return self._call_function(self.functions[name], positional, named, depth)

    def _fold(
        self, name: str, owner: Traced, args: Sequence[Traced], node: ast.Call
    ) -> Traced | None:
        """Return the value of a call that is known before a run; None for any other."""
        method = name.rpartition(".")[2]
        first = args[0] if args else UNKNOWN
        if name in ("getattr", "builtins.getattr") and len(args) > 1 and first.name:
            return self._reflected(first.name, args[1], node)
        if name in ("__import__", "importlib.import_module", "builtins.__import__") and args:
            mark = frozenset((f"reflected:{self.line(node)}",))
            return Traced(name=first.known, labels=mark if name == "__import__" else frozenset())
        if name in ("globals", "locals", "vars"):
            return Traced(name=f"{name}()" if not first.name else f"{first.name}.__dict__")
        if method == "get" and "environment" in owner.labels and first.text:
            return Traced(labels=self.ledger.reads_variable(first.text, self.line(node)))
        if owner.text is not None:
            return _fold_text(method, owner, args) or _fold_call(name, args)
        return _fold_call(name, args)


_MAX_KEPT_NAME = 100


def _name_alone(name: str) -> Traced:
    """Return the value of a name of which nothing else is known."""
    return _keep_name(name) if len(name) < _MAX_KEPT_NAME else Traced(name=name)


@lru_cache(maxsize=4096)
def _keep_name(name: str) -> Traced:
    return Traced(name=name)


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes below a node, as `ast.iter_child_nodes` does in twice the time."""
    found: list[ast.AST] = []
    for name in node._fields:
        one = getattr(node, name, None)
        if isinstance(one, list):
            found += [child for child in one if isinstance(child, ast.AST)]
        elif isinstance(one, ast.AST):
            found.append(one)
    return found


def _fold_call(name: str, args: Sequence[Traced]) -> Traced | None:
    """Return the value of a function that is known before a run."""
    if name in ("operator.add", "operator.concat") and len(args) == 2:
        return _add(args[0], args[1])
    if name in ("str", "bytes", "bytearray", "list", "tuple", "reversed", "sorted", "map"):
        return _convert(name, args)
    return None


def _fold_text(method: str, owner: Traced, args: Sequence[Traced]) -> Traced | None:
    """Return what a method makes of a text that is known."""
    text = owner.known
    if method == "join" and args:
        return _join(text, args[0])
    if method in _STRING_METHODS and not _hides_text(method, args):
        return _string_method(method, owner)
    if method == "replace" and len(args) >= 2:
        changed = text.replace(args[0].known, args[1].known) if args[0].text else text
        return Traced(text=changed[:_MAX_TEXT], labels=owner.labels)
    if method == "format":
        return Traced(text=_format(text, args), labels=owner.labels | merge(args))
    return None


_NUMBERS_ALONE = Lazy(r"[\d,;:.\s-]*|[0-9a-fA-F]*")


def _label_numbers(items: Sequence[ast.expr]) -> frozenset[str]:
    """Return the label of a long list of numbers, which say nothing to a reader."""
    many = len(items) >= _MIN_OPAQUE and all(
        isinstance(one, ast.Constant) and type(one.value) is int for one in items
    )
    return frozenset((OPAQUE,)) if many else frozenset()


def _label_text(text: str) -> frozenset[str]:
    """Return the label of a long literal that says nothing to a reader."""
    if len(text) < 2 * _MIN_OPAQUE:
        return frozenset()
    said = " " in text[:1_000] or not (says_nothing(text) or _NUMBERS_ALONE.fullmatch(text))
    return frozenset() if said else frozenset((OPAQUE,))


def _number(node: ast.expr | None) -> int | None:
    minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(inner, ast.Constant) and isinstance(inner.value, int):
        return -inner.value if minus else inner.value
    return None


def _unstar(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _hides_text(method: str, args: Sequence[Traced]) -> bool:
    """Whether `decode` or `encode` uses a codec that hides a text."""
    return (
        method in ("encode", "decode")
        and bool(args)
        and args[0].known in ("hex", "rot13", "rot_13", "base64", "zlib")
    )


def _string_method(method: str, owner: Traced) -> Traced:
    if method in ("encode", "decode"):
        return owner._replace(name="")
    made: str = getattr(owner.known, method)()
    return Traced(text=made, labels=owner.labels)


def _convert(name: str, args: Sequence[Traced]) -> Traced | None:
    if not args:
        return Traced(text="") if name in ("str", "bytes") else None
    if name == "map":
        if len(args) > 1 and args[0].name == "str" and args[1].items is not None:
            return args[1]
        return Traced(labels=merge(args))
    first = args[0]
    return first._replace(name="")


def _join(separator: str, parts: Traced) -> Traced:
    if parts.items is not None:
        text = separator.join(one.text if one.text is not None else HOLE for one in parts.items)
        return Traced(text=text[:_MAX_TEXT], labels=parts.labels)
    if parts.text is not None and separator == "":
        return Traced(text=parts.text, labels=parts.labels)
    return Traced(labels=parts.labels)


def _add(left: Traced, right: Traced) -> Traced:
    if left.items is not None and right.items is not None:
        both = (*left.items, *right.items)[:1_000]
        return Traced(items=both, labels=left.labels | right.labels)
    if left.text is None and right.text is None:
        return Traced(labels=left.labels | right.labels)
    a, b = (HOLE if one.text is None else one.text for one in (left, right))
    return Traced(text=f"{a}{b}"[:_MAX_TEXT], labels=left.labels | right.labels)


def _percent(form: str, parts: Sequence[Traced]) -> str:
    values = iter(parts)

    def put(_: re.Match[str]) -> str:
        one = next(values, UNKNOWN)
        return one.text if one.text is not None else HOLE

    return re.sub(r"%[-\d.]*[srdixc]", put, form)[:_MAX_TEXT]


def _format(form: str, parts: Sequence[Traced]) -> str:
    values = iter(parts)

    def put(match: re.Match[str]) -> str:
        at = match[1]
        one = parts[int(at)] if at and int(at) < len(parts) else next(values, UNKNOWN)
        return one.text if one.text is not None else HOLE

    return re.sub(r"\{(\d{0,2})[^{}]*\}", put, form)[:_MAX_TEXT]


def _can_end(node: ast.While) -> bool:
    return any(isinstance(one, ast.Break | ast.Return | ast.Raise) for one in ast.walk(node))


def _starts_processes(node: ast.While) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(getattr(one, "attr", "") == "fork" for one in calls) or any(
        isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "append"
        for one in ast.walk(node)
    )


_COMPOSED = (ast.BinOp, ast.JoinedStr, ast.Call)
_EXPRESSIONS: dict[type[ast.expr], Callable[..., Traced]] = {
    ast.Constant: PythonReader._constant,
    ast.Attribute: PythonReader._attribute,
    ast.List: PythonReader._sequence,
    ast.Tuple: PythonReader._sequence,
    ast.Set: PythonReader._sequence,
    ast.Dict: PythonReader._dict,
    ast.JoinedStr: PythonReader._joined,
    ast.BinOp: PythonReader._binary,
    ast.Subscript: PythonReader._subscript,
    ast.Call: PythonReader._call,
    ast.Lambda: PythonReader._lambda,
    ast.ListComp: PythonReader._comprehension,
    ast.SetComp: PythonReader._comprehension,
    ast.GeneratorExp: PythonReader._comprehension,
    ast.DictComp: PythonReader._comprehension,
    ast.Await: PythonReader._await,
    ast.IfExp: PythonReader._conditional,
    ast.NamedExpr: PythonReader._named,
}


def judge_import(module: str, line: int, ledger: Ledger) -> None:
    """Note a module that is imported, unless Python or the skill has it."""
    if module in ("pynput", "pyxhook", "pyHook"):
        ledger.find("surveillance", line, f"import {module}", "ask")
    if module and module not in sys.stdlib_module_names and not _is_own(module, ledger):
        judge_package("pip", module, line, ledger)


def _is_own(module: str, ledger: Ledger) -> bool:
    """Whether the skill has the module, beside the text that is read or in a folder above it."""
    folder = ledger.path
    while folder:
        folder = dirname(folder)
        if join(folder, module) in ledger.own_modules:
            return True
    return False
