"""Read JavaScript and TypeScript: which values go where, inside one file.

Needs the extra `scan`. Without it the text is searched by patterns alone (`patterns.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillbelt.scan.addresses import host_in, is_installer, is_known, is_module_host
from skillbelt.scan.calls import TracedCall, judge_call
from skillbelt.scan.javascript_values import MAX_STEPS, MadeTexts, find_made_texts, may_make_texts
from skillbelt.scan.ledger import HOLE, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.made_texts import find_visibility, judge_made_text
from skillbelt.scan.package_names import judge_package
from skillbelt.scan.parsers import parse_or_none
from skillbelt.text import Lazy

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SCRIPT_BYTES = 512 * 2**10
_MAX_DEPTH = 120
_MAX_TEXT = 64 * 2**10
_ESCAPES = Lazy(r"\\(?:x([0-9a-fA-F]{2})|u\{?([0-9a-fA-F]{1,6})\}?|(.))", re.DOTALL)
# Strings without an operator between them are an error: the parser takes quadratic time, 0.3 s for
# this number in one line. Empty strings count.
_ADJACENT = Lazy(rb"[\"'`][ \t]{0,9}[\"'`]|\w[\"'`][ \t]{1,9}\w")
_MAX_ADJACENT = 4_000
# Steps of the evaluator, which are shorter, for one of a scan.
_STEPS_OF_A_STEP = 4
_NODE_MODULES = frozenset(
    ("fs", "path", "os", "child_process", "http", "https", "net", "tls", "dns", "crypto", "util",
     "zlib", "vm", "url", "stream", "events", "process", "buffer", "readline", "assert", "tty",
     "worker_threads", "perf_hooks", "querystring", "module", "string_decoder", "timers")
)  # fmt: skip
_POWER_NAMES = frozenset(("eval", "child_process", "execSync", "Function", "constructor", "spawn"))
# Methods of every array or text; the constructor of a method compiles code.
_FUNCTION_METHODS = frozenset(
    ("filter", "map", "find", "forEach", "at", "sort", "flat", "constructor", "toString", "slice")
)
_FUNCTIONS = frozenset(
    ("arrow_function", "function_expression", "function_declaration", "function",
     "method_definition", "generator_function_declaration")
)  # fmt: skip


def read_javascript(text: str, language: str, line: int, ledger: Ledger) -> bool:
    """Note what a script does; return whether there was a parser for it."""
    data = text.encode("utf-8", "replace")[:MAX_SCRIPT_BYTES]
    strings = max(len(_ADJACENT.findall(one)) for one in data.split(b"\n"))
    if strings > _MAX_ADJACENT:
        ledger.find("unseen-part", line, "a line with thousands of strings side by side")
        return False
    ledger.spend(strings)
    name = "typescript" if language == "typescript" else "javascript"
    root = parse_or_none(data, name, line, ledger)
    if root is None:
        return False
    reader = _Reader(ledger, line)
    if may_make_texts(text):
        made = find_made_texts(root, ledger.evaluation_steps)
        ledger.evaluation_steps -= made.steps
        ledger.spend(made.steps // _STEPS_OF_A_STEP)
        if made.steps >= MAX_STEPS or ledger.evaluation_steps <= 0:
            ledger.miss("texts that JavaScript puts together in very many steps")
        _judge_handed(made, text, data, line, ledger)
        reader.made = made.by_place
        reader.hidden = {
            one for one in set(made.by_place.values()) if find_visibility(one, text) == "hidden"
        }
    reader.value(root, 0)
    return True


def _judge_handed(made: MadeTexts, text: str, data: bytes, line: int, ledger: Ledger) -> None:
    """Judge the texts that the script puts together and hands to a call."""
    seen: set[str] = set()
    for one in made.handed:
        if one.text not in seen:
            seen.add(one.text)
            at = line + data.count(b"\n", 0, one.start)
            judge_made_text(one.text, text, at, ledger)


class _Reader:
    """Follows the values of one script."""

    def __init__(self, ledger: Ledger, line: int) -> None:
        self.ledger, self.first = ledger, line
        self.names: dict[str, Traced] = {}
        self.functions: dict[str, Node] = {}
        # The texts that are put together, by the place of their expression, and those among them
        # of which the source shows nothing.
        self.made: dict[tuple[int, int], str] = {}
        self.hidden: set[str] = set()
        self._open: list[str] = []
        self._returned: list[Traced] = []

    def line(self, node: Node) -> int:
        return self.first + node.start_point[0]

    def value(self, node: Node, depth: int) -> Traced:
        """Return what is known of a node, and note what it does."""
        self.ledger.spend()
        if depth > _MAX_DEPTH:
            self.ledger.miss("JavaScript that is nested too deep")
            return UNKNOWN
        method = _NODES.get(node.type)
        if method is not None:
            found = method(self, node, depth + 1)
            return self._add_made(found, node) if self.made else found
        parts = [self.value(child, depth + 1) for child in node.named_children]
        return Traced(labels=merge(parts))

    def _add_made(self, found: Traced, node: Node) -> Traced:
        """Return what is known of a node with the text that the evaluator worked out."""
        text = self.made.get((node.start_byte, node.end_byte))
        if text is None or text == found.text:
            return found
        hidden = text in self.hidden
        self.ledger.names_url(text, self.line(node))
        if text in _POWER_NAMES:
            self.ledger.find("reflective-call", self.line(node), f"{text!r} is put together")
        labels = found.labels | ({"decoded"} if hidden else frozenset())
        return found._replace(text=text, labels=labels, name="")

    # --- plain values ----------------------------------------------------------------------------

    def _string(self, node: Node, depth: int) -> Traced:
        text = _unescape(_text(node)[1:-1])[:_MAX_TEXT]
        self.ledger.names_url(text, self.line(node))
        return Traced(text=text)

    def _number(self, node: Node, depth: int) -> Traced:
        text = _text(node)
        try:
            return Traced(text=str(int(text, 0)))
        except ValueError:
            return UNKNOWN

    def _template(self, node: Node, depth: int) -> Traced:
        made = Traced(text="")
        for child in node.children:
            if child.type == "template_substitution":
                inner = child.named_children
                part = self.value(inner[0], depth) if inner else UNKNOWN
                made = _add(made, part if part.text is not None else part._replace(text=HOLE))
            elif child.type in ("string_fragment", "escape_sequence"):
                made = _add(made, Traced(text=_unescape(_text(child))))
        self.ledger.names_url(made.known, self.line(node))
        return made

    def _identifier(self, node: Node, depth: int) -> Traced:
        name = _text(node)
        return self.names.get(name) or Traced(name=name)

    def _array(self, node: Node, depth: int) -> Traced:
        items = tuple(self.value(one, depth) for one in node.named_children[:500])
        return Traced(labels=merge(items), items=items)

    def _object(self, node: Node, depth: int) -> Traced:
        labels: frozenset[str] = frozenset()
        for child in node.named_children:
            key = child.child_by_field_name("key")
            inner = child.child_by_field_name("value")
            part = self.value(inner if inner is not None else child, depth).labels
            if key is not None and _text(key).strip("'\"").lower() in ("headers", "authorization"):
                part = frozenset(
                    one if ":" not in one or one.startswith("header:") else f"header:{one}"
                    for one in part
                )
            labels |= part
        return Traced(labels=labels)

    def _member(self, node: Node, depth: int) -> Traced:
        return self._part(self._owner(node, depth), node, depth)

    def _owner(self, node: Node, depth: int) -> Traced:
        owner = node.child_by_field_name("object")
        return self.value(owner, depth) if owner is not None else UNKNOWN

    def _part(self, base: Traced, node: Node, depth: int) -> Traced:
        """Return what is known of a member or an item of a value."""
        if node.type == "subscript_expression":
            return self._index(base, node, depth)
        key = node.child_by_field_name("property")
        return self._get(base, _text(key) if key is not None else "", node)

    def _index(self, base: Traced, node: Node, depth: int) -> Traced:
        key = node.child_by_field_name("index")
        at = self.value(key, depth) if key is not None else UNKNOWN
        if base.items is not None and at.known.isdecimal() and int(at.known) < len(base.items):
            return base.items[int(at.known)]
        if at.text is None or HOLE in at.text:
            return Traced(labels=base.labels | at.labels)
        found = self._get(base, at.text, node)
        plain = key is not None and key.type == "string"
        mark = frozenset() if plain else frozenset((f"reflected:{self.line(node)}",))
        return found._replace(labels=found.labels | mark)

    def _get(self, base: Traced, name: str, node: Node) -> Traced:
        if base.name == "process.env":
            return Traced(labels=self.ledger.reads_variable(name, self.line(node)))
        if base.name in ("globalThis", "window", "global", "self"):
            return self.names.get(name) or Traced(name=name)
        if name == "constructor" and base.name.rpartition(".")[2] in _FUNCTION_METHODS:
            return base._replace(name="Function", items=None)
        whole = f"{base.name}.{name}" if base.name else f"?.{name}"
        if whole == "process.env":
            return Traced(name=whole, labels=frozenset(("environment",)))
        if base.name.startswith("import.meta"):
            return Traced(name=whole)
        return base._replace(name=whole, items=None)

    def _binary(self, node: Node, depth: int) -> Traced:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        a = self.value(left, depth) if left is not None else UNKNOWN
        b = self.value(right, depth) if right is not None else UNKNOWN
        operator = node.child_by_field_name("operator")
        if operator is not None and _text(operator) == "+":
            made = _add(a, b)
            if made.text in _POWER_NAMES:
                self.ledger.find(
                    "reflective-call", self.line(node), f"{made.text!r} is put together"
                )
            return made
        if operator is not None and _text(operator) in ("||", "??"):
            return (a if a.text or a.labels or a.name else b)._replace(labels=a.labels | b.labels)
        return Traced(labels=a.labels | b.labels)

    def _await(self, node: Node, depth: int) -> Traced:
        inner = node.named_children
        return self.value(inner[0], depth) if inner else UNKNOWN

    # --- statements ------------------------------------------------------------------------------

    def _declare(self, node: Node, depth: int) -> Traced:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None:
            return UNKNOWN
        if value.type in _FUNCTIONS and name.type == "identifier":
            self.functions[_text(name)] = value
        made = self.value(value, depth)
        self._assign(name, made)
        return made

    def _assignment(self, node: Node, depth: int) -> Traced:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        made = self.value(right, depth) if right is not None else UNKNOWN
        if node.type == "augmented_assignment_expression" and left is not None:
            made = _add(self.value(left, depth), made)
        if left is not None:
            self._assign(left, made)
        return made

    def _assign(self, target: Node, value: Traced) -> None:
        if target.type in ("identifier", "shorthand_property_identifier_pattern"):
            self.names[_text(target)] = value
        elif target.type == "object_pattern":
            for child in target.named_children:
                self._assign_property(child, value)
        elif target.type == "array_pattern":
            for number, child in enumerate(target.named_children):
                items = value.items or ()
                part = items[number] if number < len(items) else Traced(labels=value.labels)
                self._assign(child, part)
        elif target.type == "member_expression":
            self._write_property(target, value)

    def _assign_property(self, child: Node, value: Traced) -> None:
        key, inner = child.child_by_field_name("key"), child.child_by_field_name("value")
        name = _text(key) if key is not None else _text(child)
        part = self._get(value, name, child)
        self._assign(inner if inner is not None else child, part)

    def _write_property(self, target: Node, value: Traced) -> None:
        owner = target.child_by_field_name("object")
        if owner is not None and owner.type == "identifier":
            old = self.names.get(_text(owner), UNKNOWN)
            self.names[_text(owner)] = old._replace(labels=old.labels | value.labels)

    def _import(self, node: Node, depth: int) -> Traced:
        source = node.child_by_field_name("source")
        module = _text(source)[1:-1].removeprefix("node:") if source is not None else ""
        self._module(module, node)
        for clause in (one for one in node.named_children if one.type == "import_clause"):
            for child in clause.named_children:
                self._bind_import(child, module)
        return UNKNOWN

    def _module_from(self, address: str, node: Node) -> None:
        """Note a module that is fetched from an address when the program starts."""
        found = host_in(address)
        if found is None:
            return
        self.ledger.reaches(found, self.line(node), used=True)
        vouched = self.ledger.vouches_for(found.host, found.path) or not is_installer(found.host)
        if not (is_known(found.host) and vouched) and not is_module_host(found.host):
            self.ledger.find("package-elsewhere", self.line(node), address)

    def _bind_import(self, child: Node, module: str) -> None:
        if child.type == "identifier":
            self.names[_text(child)] = Traced(name=module)
        elif child.type == "namespace_import":
            self.names[_text(child.named_children[-1])] = Traced(name=module)
        elif child.type == "named_imports":
            for one in child.named_children:
                name, alias = one.child_by_field_name("name"), one.child_by_field_name("alias")
                if name is not None:
                    local = _text(alias if alias is not None else name)
                    self.names[local] = Traced(name=f"{module}.{_text(name)}")

    def _module(self, module: str, node: Node) -> None:
        if "://" in module:
            self._module_from(module, node)
            return
        if module and module[0] not in "./~@#" and module.partition("/")[0] not in _NODE_MODULES:
            judge_package("npm", module.partition("/")[0], self.line(node), self.ledger)

    def _function(self, node: Node, depth: int) -> Traced:
        name = node.child_by_field_name("name")
        if name is not None and node.type != "method_definition":
            self.functions[_text(name)] = node
        return self._follow(node, (), depth)

    def _follow(self, node: Node, arguments: tuple[Traced, ...], depth: int) -> Traced:
        """Follow a function with these arguments; return what it returns."""
        saved, outer = dict(self.names), self._returned
        self._returned = []
        for at, name in enumerate(_parameters(node)):
            self._assign(name, arguments[at] if at < len(arguments) else UNKNOWN)
        body = node.child_by_field_name("body")
        last = self.value(body, depth) if body is not None else UNKNOWN
        made = self._returned
        if body is not None and body.type != "statement_block":
            made = [*made, last]
        self.names, self._returned = saved, outer
        return made[0] if len(made) == 1 else Traced(labels=merge(made))

    def _return(self, node: Node, depth: int) -> Traced:
        inner = node.named_children
        made = self.value(inner[0], depth) if inner else UNKNOWN
        self._returned.append(made)
        return made

    def _for(self, node: Node, depth: int) -> Traced:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        source = self.value(right, depth) if right is not None else UNKNOWN
        if left is not None:
            self._assign(left, Traced(labels=source.labels))
        body = node.child_by_field_name("body")
        return self.value(body, depth) if body is not None else UNKNOWN

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, node: Node, depth: int) -> Traced:
        function = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        arguments = node.child_by_field_name("arguments")
        if function is None:
            return UNKNOWN
        owner = UNKNOWN
        if function.type in ("member_expression", "subscript_expression"):
            owner = self._owner(function, depth + 1)  # once: calls may be a long chain
            target = self._part(owner, function, depth + 1)
        elif function.type == "import":
            target = Traced(name="import")
        else:
            target = self.value(function, depth)
        method = target.name.rpartition(".")[2]
        nodes = list(arguments.named_children) if arguments is not None else []
        if method in ("then", "forEach", "map", "on", "once", "filter", "catch", "finally"):
            return self._callback(target, owner, nodes, depth)
        values = tuple(self.value(one, depth) for one in nodes)
        folded = self._fold(target.name, owner, values, node)
        if folded is not None:
            return folded
        if target.name in self.functions and len(self._open) < 6 and target.name not in self._open:
            return self._call_own(target.name, values, depth)
        name = f"{target.name}_js" if target.name == "eval" else target.name
        call = TracedCall(
            name=name.removeprefix("node:"),
            owner=owner,
            positional=values,
            line=self.line(node),
            labels=target.labels,
        )
        return judge_call(call, self.ledger)

    def _call_own(self, name: str, values: tuple[Traced, ...], depth: int) -> Traced:
        if self._open and not any(one.labels or one.text for one in values):
            return UNKNOWN
        self._open.append(name)
        made = self._follow(self.functions[name], values, depth)
        self._open.pop()
        return made

    def _callback(self, target: Traced, owner: Traced, nodes: list[Node], depth: int) -> Traced:
        """A function that gets what the object holds: `then`, `forEach`, `on`."""
        given = Traced(labels=owner.labels | target.labels, text=None)
        results = [given] if target.name.endswith((".on", ".once")) else []
        for node in nodes:
            if node.type in _FUNCTIONS:
                results.append(self._follow(node, (given, given), depth))
            else:
                value = self.value(node, depth)
                if value.name == "eval":
                    self.ledger.runs_code(given, self.line(node), "eval", "javascript")
                results.append(value)
        return Traced(labels=merge(results))

    def _fold(
        self, name: str, owner: Traced, values: tuple[Traced, ...], node: Node
    ) -> Traced | None:
        """Return the value of a call that is known before a run; None for any other."""
        method = name.rpartition(".")[2]
        first = values[0] if values else UNKNOWN
        if name in ("require", "import", "module.require", "process.mainModule.require"):
            module = first.known.removeprefix("node:")
            self._module(module, node)
            return Traced(name=module)
        if name == "String.fromCharCode":
            items = values if len(values) != 1 or first.items is None else first.items
            texts = [one.known for one in items]
            if texts and all(one.isdecimal() and len(one) < 7 for one in texts):
                return Traced(
                    text="".join(chr(int(one)) for one in texts), labels=frozenset(("decoded",))
                )
        if name in ("Buffer.from", "Buffer") and len(values) > 1:
            form = values[1].known if values[1].known in ("base64", "hex") else ""
            if form:
                call = TracedCall(
                    name=_DECODERS[form], owner=UNKNOWN, positional=(first,), line=self.line(node)
                )
                return judge_call(call, self.ledger)
        if owner.text is not None and method in _STRINGS:
            return _STRINGS[method](owner, values)
        if owner.items is not None and method == "join":
            text = first.known.join(
                one.text if one.text is not None else HOLE for one in owner.items
            )
            return Traced(text=text[:_MAX_TEXT], labels=owner.labels)
        if owner.items is not None and method == "reverse":
            return Traced(items=owner.items[::-1], labels=owner.labels | {"decoded"})
        return None


_DECODERS = {"base64": "base64.b64decode", "hex": "bytes.fromhex"}


def _replace(owner: Traced, values: tuple[Traced, ...]) -> Traced:
    if len(values) > 1 and values[0].text:
        return Traced(
            text=owner.known.replace(values[0].known, values[1].known)[:_MAX_TEXT],
            labels=owner.labels,
        )
    return owner._replace(name="")


def _split(owner: Traced, values: tuple[Traced, ...]) -> Traced:
    mark = values[0].known if values else ""
    parts = owner.known.split(mark) if mark else list(owner.known[:2_000])
    return Traced(items=tuple(Traced(text=one) for one in parts[:2_000]), labels=owner.labels)


def _same(owner: Traced, values: tuple[Traced, ...]) -> Traced:
    return owner._replace(name="")


_STRINGS: dict[str, Callable[[Traced, tuple[Traced, ...]], Traced]] = {
    "concat": lambda owner, values: _add(owner, values[0]) if values else owner,
    "replace": _replace,
    "replaceAll": _replace,
    "split": _split,
    "trim": _same,
    "toString": _same,
    "toLowerCase": lambda owner, values: Traced(text=owner.known.lower(), labels=owner.labels),
}


def _parameters(node: Node) -> list[Node]:
    alone = node.child_by_field_name("parameter")
    if alone is not None:
        return [alone]
    every = node.child_by_field_name("parameters")
    found = []
    for one in every.named_children if every is not None else ():
        inner = one.child_by_field_name("pattern") or one.child_by_field_name("left")
        found.append(inner if inner is not None else one)
    return found


def _add(left: Traced, right: Traced) -> Traced:
    if left.text is None and right.text is None:
        return Traced(labels=left.labels | right.labels)
    a, b = (HOLE if one.text is None else one.text for one in (left, right))
    return Traced(text=f"{a}{b}"[:_MAX_TEXT], labels=left.labels | right.labels)


def _unescape(text: str) -> str:
    return _ESCAPES.sub(_escape, text) if "\\" in text else text


def _escape(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(min(int(match[1] or match[2], 16), 0x10FFFF))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[3], match[3])


def _text(node: Node) -> str:
    data = node.text
    return data.decode("utf-8", "replace") if data else ""


_NODES: dict[str, Callable[[_Reader, Node, int], Traced]] = {
    "string": _Reader._string,
    "number": _Reader._number,
    "template_string": _Reader._template,
    "identifier": _Reader._identifier,
    "shorthand_property_identifier": _Reader._identifier,
    "array": _Reader._array,
    "object": _Reader._object,
    "member_expression": _Reader._member,
    "subscript_expression": _Reader._member,
    "binary_expression": _Reader._binary,
    "await_expression": _Reader._await,
    "parenthesized_expression": _Reader._await,
    "variable_declarator": _Reader._declare,
    "assignment_expression": _Reader._assignment,
    "augmented_assignment_expression": _Reader._assignment,
    "import_statement": _Reader._import,
    "return_statement": _Reader._return,
    "for_in_statement": _Reader._for,
    "call_expression": _Reader._call,
    "new_expression": _Reader._call,
    **dict.fromkeys(_FUNCTIONS, _Reader._function),
}
