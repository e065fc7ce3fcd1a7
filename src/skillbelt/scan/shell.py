"""Read shell: what each command of a text reads, sends, runs and writes.

With the extra `scan` the text is parsed by tree-sitter. Without it only words, quotes and the
operators between commands are understood (`shell_words.py`), and the scan says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from skillbelt.scan.ledger import HOLE, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.made_texts import judge_made_text
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.parsers import parse_or_none
from skillbelt.scan.self_reading import search_pipelines
from skillbelt.scan.shell_commands import MADE, UNENDED, ShellCall, ShellState, run_call
from skillbelt.scan.shell_values import (
    MAX_MADE,
    calculate,
    expand_braces,
    expand_range,
    expand_text,
    find_by_glob,
)
from skillbelt.scan.shell_words import split_pipelines
from skillbelt.text import Lazy

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SHELL_BYTES = 512 * 2**10
_MAX_DEPTH = 40
_ESCAPES = Lazy(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{1,4}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}
_BODIES = frozenset(
    ("program", "list", "subshell", "compound_statement", "if_statement", "elif_clause",
     "else_clause", "while_statement", "do_group",
     "case_statement", "case_item", "negated_command", "ERROR",
     "test_command", "binary_expression", "unary_expression", "parenthesized_expression")
)  # fmt: skip
# Programs whose names honest text does not put together.
_POWERS = frozenset(
    ("curl", "wget", "nc", "ncat", "bash", "sh", "eval", "python", "python3", "perl", "base64",
     "crontab", "ssh", "scp")
)  # fmt: skip
_FORK_BOMB = Lazy(r"((?<!\w)\w++|:)\s*+\(\)\s*+\{\s*+\1\s*+\|\s*+\1\s*+&\s*+\}\s*+(?:;\s*+)?\1")
# The expression for all secrets of a workflow, and a program that sends.
_ALL_SECRETS = Lazy(r"(?i)\$\{\{\s{0,9}tojson\(\s{0,9}(?:secrets|env)\s{0,9}\)")
_SENDER = Lazy(r"\b(?:curl|wget|nc|ncat)\s")
_SOCKET = Lazy(r"/dev/(?:tcp|udp)/([\w.$\{\}-]+)/?([\w$\{\}]*)")


def read_shell(text: str, line: int, ledger: Ledger) -> bool:
    """Note what a shell text does; return whether all of it could be parsed.

    Raises nothing but ScanExhausted.
    """
    text = expand_braces(text)
    data = text.encode("utf-8", "replace")[:MAX_SHELL_BYTES]
    weight = _weigh(data)
    ledger.spend(_CALL_STEPS + min(weight, _MAX_WEIGHT) // _WEIGHT_OF_A_STEP)
    state = ShellState(ledger)
    _look_at_text(text[:MAX_SHELL_BYTES], line, ledger)
    readable = weight <= _MAX_WEIGHT and not _ODD_END.search(data)
    root = parse_or_none(data, "shell", line, ledger) if readable else None
    if root is None:
        _read_words(text[:MAX_SHELL_BYTES], line, state)
    else:
        _Reader(state, line, data).run(root, UNKNOWN, 0)
    return readable


# A here-document whose last line is not ASCII: the parser sees dots there, and could end it
# at another line.
_ODD_END = Lazy(
    rb"(?<!<)<<(?!<)-?[ \t]{0,99}(?:[^\s;|&<>()'\"\x80-\xff]|'[^'\n\x80-\xff]{0,99}'"
    rb"|\"[^\"\n\x80-\xff]{0,99}\"){0,20}(?:['\"][^'\"\n\x80-\xff]{0,99})?[\x80-\xff]"
)
# The parser takes quadratic time in the signs of one statement: 0.1 s for 2,000 of them.
_SIGNS = b"|({[=~$?"
_MAX_WEIGHT = 2_000**2
_WEIGHT_OF_A_STEP = 100
# The least cost of a parse.
_CALL_STEPS = 50


def _weigh(data: bytes) -> int:
    """Return a measure of the time that parsing takes."""
    weight, signs, goes_on = data.count(b"<<") ** 2, 0, False
    for line in data.split(b"\n"):
        plain = line.strip()
        if not goes_on and not plain.startswith(b"|"):
            weight += signs * signs
            signs = 0
        signs += len(line) - len(line.translate(None, _SIGNS))
        goes_on = plain.endswith((b"|", b"\\", b"(", b"{", b"["))
    return weight + signs * signs


def _look_at_text(text: str, line: int, ledger: Ledger) -> None:
    """Search the whole text for patterns that need no parser."""
    for match, at in number_lines(_FORK_BOMB.finditer(text), text, line):
        ledger.find("endless-work", at, match[0])
    if "${{" in text and _SENDER.search(text):
        for match, at in number_lines(_ALL_SECRETS.finditer(text), text, line):
            ledger.find("environment-to-network", at, match[0])
    search_pipelines(text, line, ledger)
    for match, at in number_lines(_SOCKET.finditer(text), text, line):
        ledger.can("host", match[1], at)
        tries = _only_tries(text, match)
        ledger.find("reverse-shell", at, match[0], "note" if tries else None)


def _only_tries(text: str, match: re.Match[str]) -> bool:
    """Whether a socket is opened to see whether a port answers: nothing is sent or read."""
    before = text[max(match.start() - 60, text.rfind("\n", 0, match.start()) + 1) : match.start()]
    end = text.find("\n", match.end())
    after = text[match.end() : end if end >= 0 else len(text)][:60]
    found = _TRIES.search(before)
    closed = found is not None and ("<>" not in found[0] or after.lstrip('" ').startswith(")"))
    return closed and _TRIED.match(after) is not None


# A redirection of nothing, or a socket that is closed at once, and what may follow.
_TRIES = Lazy(
    r"(?:(?:^|[;(\"'{&|]|\b(?:then|do|if|bash -c|sh -c)\b)[\"' \t({]{0,4}!?[ \t]{0,4}"
    r"(?:(?:echo|:|true)(?:[ \t]{1,4}(?:-n|\"\"|''))?[ \t]{0,4}|cat[ \t]{0,4}<[ \t]{0,4}/dev/null"
    r"[ \t]{0,4})?>[ \t]{0,4}|(?<!\$)\([ \t]{0,4}exec[ \t]{1,4}\d{0,3}<>[ \t]{0,4})\"?\Z"
)
_TRIED = Lazy(
    r"\"?[ \t]{0,4}[\"')}]{0,4}[ \t]{0,4}(?:[12&]?>[ \t]{0,4}(?:/dev/null|&1)[ \t\"')}]{0,8}){0,4}"
    r"(?:$|;|&|\|\||#)"
)


def _read_words(text: str, line: int, state: ShellState) -> None:
    for at, pipeline in split_pipelines(text):
        value = UNKNOWN
        for words in pipeline:
            call = ShellCall(
                words=tuple(Traced(text=word) for word in words), stdin=value, line=line + at
            )
            value = run_call(call, state)


_Follow = Callable[["_Reader", "Node", Traced, int], Traced]


class _Reader:
    """Runs through the tree of one text, in the order in which the shell would."""

    def __init__(self, state: ShellState, line: int, source: bytes) -> None:
        self.state, self.ledger, self.first, self.source = state, state.ledger, line, source
        self._functions: dict[str, Node] = {}
        self._open: list[str] = []
        # The bytes that loops and functions may still be followed for.
        self._left = _MAX_FOLLOWED
        self._statements = 0
        # The variable whose value is being worked out: it is empty if nothing set it before.
        self._assigned = ""

    def line(self, node: Node) -> int:
        return self.first + node.start_point[0]

    def text(self, node: Node) -> str:
        """Return what is written there; the tree was made of a text in ASCII."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def run(self, node: Node, stdin: Traced, depth: int) -> Traced:
        """Note what a statement does; return what it prints."""
        self.ledger.spend()
        if depth > _MAX_DEPTH:
            self.ledger.miss("shell that is nested too deep")
            return UNKNOWN
        kind = node.type
        follow = self._FOLLOWED.get(kind)
        if follow is not None:
            return follow(self, node, stdin, depth)
        if kind == "variable_assignment":
            self._assign(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self._declare(node, depth)
        elif kind == "function_definition":
            self._define(node, depth)
        elif kind in _BODIES or kind == "variable_assignments":
            return self._body(node, stdin, depth)
        return UNKNOWN

    def _body(self, node: Node, stdin: Traced, depth: int) -> Traced:
        return _join_printed([self.run(child, stdin, depth + 1) for child in node.named_children])

    def _loop(self, node: Node, stdin: Traced, depth: int) -> Traced:
        """Follow a loop: over a short list that is known, once for each of its items."""
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = list(self._list_values(node, depth))
        known = [one for one in values if one.text and HOLE not in one.text]
        if name is None or body is None or not values:
            return self._body(node, stdin, depth)
        variable = self.text(name)
        if len(known) < len(values) or not self._may_follow(body, len(values)):
            first = values[0] if len(values) == 1 else Traced(labels=merge(values))
            self.state.variables[variable] = first
            return self._body(node, stdin, depth)
        printed = []
        for one in values:
            self.state.variables[variable] = one
            printed.append(self.run(body, stdin, depth + 1))
        return _join_printed(printed)

    def _list_values(self, node: Node, depth: int) -> Iterator[Traced]:
        for child in node.children_by_field_name("value"):
            one = self.word(child, depth + 1)
            plain = expand_range(self.text(child))
            if plain is None and one.text and child.type not in ("string", "raw_string"):
                plain = one.text.split() if one.items is None else None
            if plain is None and one.items is not None:
                yield from one.items
            elif plain is None:
                yield one
            else:
                yield from (Traced(text=part, labels=one.labels) for part in plain)

    def _may_follow(self, node: Node, rounds: int) -> bool:
        """Whether there are steps left to follow a part so many times more."""
        needed = (node.end_byte - node.start_byte) * rounds
        if rounds > _MAX_ROUNDS or needed > self._left or self.ledger.weaker:
            return False
        self._left -= needed
        return True

    def _count(self, node: Node, stdin: Traced, depth: int) -> Traced:
        """Follow `for ((…; …; …))` as long as its numbers are known."""
        parts = [node.child_by_field_name(one) for one in ("initializer", "condition", "update")]
        body = node.child_by_field_name("body")
        start, condition, update = (self.text(one) if one is not None else "" for one in parts)
        if body is None or not self._set_number(start):
            return self._body(node, stdin, depth)
        printed: list[Traced] = []
        for number in range(_MAX_ROUNDS):
            if not self._number(condition) or not self._may_follow(body, 1):
                break
            printed.append(self.run(body, stdin, depth + 1))
            if not self._set_number(update) or number > _MAX_ROUNDS:
                break
        return _join_printed(printed) if printed else self._body(node, stdin, depth)

    def _set_number(self, formula: str) -> bool:
        """Set the variable of `i=0`, `i++` or `i+=2`; return whether its value is known."""
        match = _SETS_NUMBER.match(formula)
        if match is None:
            return False
        name, sign, operand = match[1] or match[5], match[2] or match[4], match[3] or ""
        if sign in ("++", "--"):
            sign, operand = f"{sign[0]}=", "1"
        number = self._number(operand)
        if number is not None and sign != "=":
            number = self._number(f"{name}{sign[0]}({operand})")
        if number is None:
            return False
        self.state.variables[name] = Traced(text=str(number))
        return True

    def _number(self, formula: str) -> int | None:
        """Return the value of a formula of variables that are known."""

        def name_value(match: re.Match[str]) -> str:
            if match[1]:
                return str(len(self.state.variables.get(match[1], UNKNOWN).known))
            return self.state.variables.get(match[2], UNKNOWN).known[:20] or "?"

        return calculate(_NAME_IN_FORMULA.sub(name_value, formula[:_MAX_FORMULA]))

    def _define(self, node: Node, depth: int) -> None:
        """Remember a function, and note what it does with unknown arguments."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        self._functions[self.text(name)] = body
        before = {one: self.state.variables.pop(one, None) for one in _ARGUMENTS}
        self.run(body, UNKNOWN, depth + 1)
        self.state.variables.update({one: v for one, v in before.items() if v is not None})

    def _call_function(self, call: ShellCall, depth: int) -> Traced | None:
        """Follow a function with what it is given; None for what is no function of the text."""
        name = call.words[0].known
        body = self._functions.get(name)
        if body is None or name in self._open or len(self._open) > _MAX_OPEN:
            return None
        given = [one for one in call.words[1:] if one.text or one.labels]
        if not (given or call.stdin.text or call.stdin.labels) or not self._may_follow(body, 1):
            return UNKNOWN
        variables = self.state.variables
        before = {one: variables.pop(one, None) for one in _ARGUMENTS}
        for at, one in enumerate(call.words[1:10], 1):
            variables[str(at)] = one
        whole = _join_words(call.words[1:])
        variables["@"] = variables["*"] = whole
        self._open.append(name)
        printed = self.run(body, call.stdin, depth + 1)
        self._open.pop()
        for one, value in before.items():
            if value is None:
                variables.pop(one, None)
            else:
                variables[one] = value
        return printed

    def _declare(self, node: Node, depth: int) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, depth)
            elif self.text(child) == "HISTFILE":
                self.ledger.find("trace-removal", self.line(node), self.text(node))

    def _assign(self, node: Node, depth: int) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        self._assigned = self.text(name)
        traced = self.word(value, depth + 1) if value is not None else Traced(text="")
        self._assigned = ""
        adds = any(one.type == "+=" for one in node.children)
        variable = self.text(name)
        if name.type == "subscript":
            self._set_item(name, traced, depth)
            return
        if adds and variable in self.state.variables:
            traced = _append(self.state.variables[variable], traced)
        self.state.assign(variable, traced, self.line(node))

    def _set_item(self, node: Node, value: Traced, depth: int) -> None:
        """Set one item of an array."""
        name, key = node.child_by_field_name("name"), node.child_by_field_name("index")
        if name is None or key is None:
            return
        at = self.word(key, depth + 1).known
        old = self.state.variables.get(self.text(name), Traced(items=()))
        items = list(old.items or ())
        self.state.variables[f"{self.text(name)}[{at}]"] = value
        if at.isdecimal() and int(at[:4]) <= len(items) + _MAX_GAP:
            number = int(at[:4])
            items += [UNKNOWN] * (number + 1 - len(items))
            items[number] = value
            self.state.variables[self.text(name)] = _list_of(items)
        else:
            labels = old.labels | value.labels
            self.state.variables[self.text(name)] = old._replace(labels=labels)

    def _pipeline(self, node: Node, stdin: Traced, depth: int) -> Traced:
        value = stdin
        self._statements += 1
        for child in node.named_children:
            value = self.run(child, value, depth + 1)
        self._statements -= 1
        self._judge_printed(value, node)
        return value

    def _judge_printed(self, printed: Traced, node: Node) -> None:
        """Judge a text that the script puts together and prints, or stores."""
        if self._statements or not printed.text or HOLE in printed.text:
            return
        if printed.labels & {"decoded", MADE}:
            source = self.source.decode("utf-8", "replace")
            judge_made_text(printed.text, source, self.line(node), self.ledger)

    def _redirected(self, node: Node, stdin: Traced, depth: int) -> Traced:
        body = node.child_by_field_name("body")
        outputs: list[tuple[str, Node, bool]] = []
        for redirect in node.children_by_field_name("redirect"):
            stdin = self._input(redirect, stdin, depth)
            where = redirect.child_by_field_name("destination")
            if redirect.type == "file_redirect" and where is not None:
                operator = self.text(redirect.children[0] if redirect.children else redirect)
                if "<" in operator and ">" not in operator:
                    continue
                path = self.word(where, depth + 1).known
                outputs.append((path, redirect, operator.endswith(">>")))
        printed = self.run(body, stdin, depth + 1) if body is not None else stdin
        for path, redirect, adds in outputs:
            if path and not path.startswith("&") and not path.isdigit():
                self.state.wrote(path, printed, self.line(redirect), adds=adds)
        return printed

    def _input(self, redirect: Node, stdin: Traced, depth: int) -> Traced:
        if redirect.type == "herestring_redirect" and redirect.named_children:
            return self.word(redirect.named_children[0], depth + 1)
        if redirect.type == "heredoc_redirect":
            body = next((one for one in redirect.children if one.type == "heredoc_body"), None)
            after = [
                one for one in redirect.named_children
                if one.type not in ("heredoc_body", "heredoc_start", "heredoc_end")
            ]  # fmt: skip
            text = Traced(text=self.text(body) if body is not None else "")
            value = text
            for one in after:  # in `cat <<E | sh` the rest of the pipeline is a child of this node
                if one.type in ("command", "pipeline", "list", "redirected_statement"):
                    value = self.run(one, value, depth + 1)
            return text
        if redirect.type == "file_redirect":
            where = redirect.child_by_field_name("destination")
            operator = self.text(redirect.children[0]) if redirect.children else ""
            if where is not None and operator == "<":
                path = self.word(where, depth + 1)
                return self.state.content(path, self.line(redirect))
        return stdin

    def _command(self, node: Node, stdin: Traced, depth: int) -> Traced:
        words: list[Traced] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child, depth)
            elif (
                child.type in ("herestring_redirect", "heredoc_redirect")
                or child.type == "file_redirect"
            ):
                stdin = self._input(child, stdin, depth)
            else:
                one = self.word(child, depth + 1)
                words += one.items if one.items is not None and one.name == "@" else (one,)
        if not words:
            return UNKNOWN
        outputs = [
            where
            for child in node.named_children
            if child.type == "file_redirect"
            and (where := child.child_by_field_name("destination")) is not None
            and ">" in self.text(child.children[0])
        ]
        words = list(_split(words))
        alias = self.state.aliases.get(words[0].known)
        if alias is not None:
            words = [*(Traced(text=one) for one in alias.split()), *words[1:]]
        call = ShellCall(words=tuple(words), stdin=stdin, line=self.line(node))
        call = self._find_program(call)
        self._judge_name(node, call)
        printed = self._call_function(call, depth)
        if printed is None:
            printed = run_call(call, self.state)
        if node.parent is None or node.parent.type != "pipeline":
            self._judge_printed(printed, node)
        for where in outputs:
            self.state.wrote(self.word(where, depth + 1).known, printed, self.line(node))
        return printed

    def _find_program(self, call: ShellCall) -> ShellCall:
        """Return a call whose program is named by signs that stand for letters with its name."""
        place = find_by_glob(call.words[0].known)
        if not place:
            return call
        self.ledger.find("reflective-call", call.line, f"{call.words[0].known}: {place}")
        return call._replace(words=(Traced(text=place), *call.words[1:]))

    def _judge_name(self, node: Node, call: ShellCall) -> None:
        """Note a program with power whose name is put together from parts."""
        name = node.child_by_field_name("name")
        parts = name.named_children if name is not None else []
        several = parts and len(parts[0].named_children) > 1
        if not parts or not (several or parts[0].type == "command_substitution"):
            return
        if call.name in _POWERS and call.name not in self.text(parts[0]):
            self.ledger.find(
                "reflective-call", self.line(node), f"{self.text(parts[0])}: {call.name}"
            )

    _FOLLOWED: Mapping[str, _Follow] = MappingProxyType(
        {
            "command": _command,
            "pipeline": _pipeline,
            "redirected_statement": _redirected,
            "for_statement": _loop,
            "c_style_for_statement": _count,
        }
    )

    # --- words -----------------------------------------------------------------------------------

    def word(self, node: Node, depth: int) -> Traced:
        """Return the value of a word, as far as it is known."""
        self.ledger.spend()
        kind = node.type
        if depth > _MAX_DEPTH:
            return UNKNOWN
        if kind == "command_name":
            inner = node.named_children
            return self.word(inner[0], depth + 1) if inner else Traced(text=self.text(node))
        if kind == "word":
            return Traced(text=re.sub(r"\\(.)", r"\1", self.text(node), flags=re.DOTALL))
        if kind in ("raw_string", "ansi_c_string"):
            text = self.text(node)
            return Traced(text=text[1:-1] if kind == "raw_string" else _unescape(text[2:-1]))
        if kind in ("string", "concatenation", "translated_string"):
            return _join(self._parts(node, depth))
        if kind in ("simple_expansion", "expansion"):
            return self._expand(node, depth)
        if kind == "array":
            return _list_of([self.word(one, depth + 1) for one in node.named_children[:_MAX_ITEMS]])
        if kind == "arithmetic_expansion":
            number = self._number(self.text(node)[3:-2])
            return Traced(text=HOLE if number is None else str(number))
        if kind in ("command_substitution", "process_substitution"):
            printed = self._body(node, UNKNOWN, depth)
            text = printed.text.rstrip("\n") if printed.text is not None else HOLE
            name = "<(" if kind == "process_substitution" else ""
            return Traced(text=text, labels=printed.labels, name=name)
        return Traced(text=self.text(node))

    def _parts(self, node: Node, depth: int) -> Iterator[Traced]:
        if node.type == "string" and not node.named_children:
            yield Traced(text=self.text(node)[1:-1])
            return
        if node.type == "string" and _SLICE_BY_NAME.search(self.text(node)):
            yield self._slice_by_name(self.text(node)[1:-1])
            return
        end = node.children[0].end_byte if node.children else 0
        for child in node.children:
            if child.start_byte > end:  # line breaks, which belong to no part
                yield Traced(text=self.source[end : child.start_byte].decode("utf-8", "replace"))
            end = child.end_byte
            if child.type == "string_content":
                text = self.text(child).replace("\\\n", "")
                yield Traced(text=re.sub(r'\\([$`"\\])', r"\1", text))
            elif child.type != '"':
                yield self.word(child, depth + 1)

    def _slice_by_name(self, text: str) -> Traced:
        """Return a string with `${x:$i:1}`, which the parser does not read, as far as known."""
        labels = {MADE}

        def fill(match: re.Match[str]) -> str:
            value = self.state.variables.get(match[1] or match[3], UNKNOWN)
            labels.update(value.labels)
            if value.text is None or HOLE in value.text:
                return HOLE
            rest = _IN_INDEX.sub(self._value_in_rest, match[2] or "")
            return (expand_text(value.text, rest) or "") if rest else value.text

        return Traced(text=_PLAIN_EXPANSION.sub(fill, text)[:MAX_MADE], labels=frozenset(labels))

    def _expand(self, node: Node, depth: int) -> Traced:
        match = _EXPANSION.match(self.text(node))
        name = match[2] if match is not None else self.text(node)[1:]
        rest = match[4] if match is not None else ""
        variables = self.state.variables
        if match is not None and match[1] == "!" and name in variables:
            name = variables[name].known
        value = variables.get(name)
        if value is not None and match is not None and match[3]:
            value = self._item(value, name, match[3])
        if value is not None:
            return self._edit(value, rest, sign=match[1] if match is not None else "")
        return self._unset(name, node, depth)

    def _item(self, value: Traced, name: str, key: str) -> Traced:
        """Return an item of an array, or all of it."""
        items = value.items
        if key in ("@", "*"):
            if items is None:
                return value
            mark = self.state.variables.get("IFS", Traced(text=" ")).known[:1]
            together = (mark if key == "*" else " ").join(one.known for one in items)
            return value._replace(text=together, name="@" if key == "@" else "")
        at = self._resolve(key)
        known = self.state.variables.get(f"{name}[{at}]")
        if known is not None:
            return known
        if (
            items is not None
            and re.fullmatch(r"-?\d{1,4}", at)
            and -len(items) <= int(at) < len(items)
        ):
            return items[int(at)]
        return Traced(text=HOLE, labels=value.labels)

    def _resolve(self, key: str) -> str:
        """Return an index with its variables; a formula as its number."""
        plain = _IN_INDEX.sub(lambda one: self.state.variables.get(one[1], UNKNOWN).known[:99], key)
        number = self._number(plain)
        return plain.strip("\"'") if number is None else str(number)

    def _edit(self, value: Traced, rest: str, *, sign: str) -> Traced:
        """Return `${name REST}`, or the length of a value for the sign `#`."""
        if sign == "#":
            size = len(value.items) if value.items is not None else len(value.known)
            return Traced(text=str(size))
        if not rest:
            return value
        if value.text is None or HOLE in value.text or rest.startswith((":-", ":=", "-", ":?")):
            return value
        made = expand_text(value.text, _IN_INDEX.sub(self._value_in_rest, rest))
        if made is None or len(made) > MAX_MADE:
            return Traced(text=HOLE, labels=value.labels)
        return Traced(text=made, labels=value.labels | {MADE})

    def _value_in_rest(self, match: re.Match[str]) -> str:
        return self.state.variables.get(match[1], UNKNOWN).known[:99]

    def _unset(self, name: str, node: Node, depth: int) -> Traced:
        """Return what is known of a variable that the text does not set."""
        if name == "IFS":
            return Traced(text=" ")
        if name == self._assigned and name.islower():
            return Traced(text="")
        if name in ("0", "SHELL"):
            return Traced(text="bash")
        labels = frozenset[str]()
        if (name.isupper() or "_" in name) and _is_variable(name):
            labels = self.ledger.reads_variable(name, self.line(node))
        if name in ("HOME", "USERPROFILE"):
            return Traced(text="~")
        others = [one for one in node.named_children if "variable_name" not in one.type]
        if others and ":-" in self.text(node):
            return self.word(others[0], depth + 1)
        return Traced(text=HOLE, labels=labels)


# `${!name[key] rest}` and `$name`.
_EXPANSION = Lazy(
    r"\$\{([!#]?)([A-Za-z_]\w{0,99}|[0-9@*#?])(?:\[([^\]\[]{1,99})\])?([^}]{0,300})\}\Z"
)
_SLICE_BY_NAME = Lazy(r"\$\{\w{1,99}:\$")
_PLAIN_EXPANSION = Lazy(
    r"\$\{([A-Za-z_]\w{0,99})(:[$\w{}: -]{1,60}?)?\}(?!:)|\$([A-Za-z_]\w{0,99})"
)
_IN_INDEX = Lazy(r"\$\{?([A-Za-z_]\w{0,99}|\d)\}?")
_NAME_IN_FORMULA = Lazy(r"\$?\{?#([A-Za-z_]\w{0,99})\}?|\$?\{?\b([A-Za-z_]\w{0,99})\b\}?(?!#)")
_SETS_NUMBER = Lazy(
    r"\s*(?:([A-Za-z_]\w{0,99})\s*(?:([-+*/]?=)([^;=]{1,100})|(\+\+|--))|(?:\+\+|--)(\w{1,99}))\s*\Z"
)
_MAX_FOLLOWED = 64 * 2**10
_MAX_ROUNDS = 300
_MAX_FORMULA = 200
_MAX_OPEN = 4
_MAX_ITEMS = 500
_MAX_GAP = 50
_ARGUMENTS = (*"123456789@*",)


def _list_of(items: list[Traced]) -> Traced:
    text = " ".join(HOLE if one.text is None else one.text for one in items)
    return Traced(text=text[:MAX_MADE], labels=merge(items), items=tuple(items))


def _join_words(words: tuple[Traced, ...]) -> Traced:
    return _list_of(list(words))._replace(name="@")


def _append(before: Traced, more: Traced) -> Traced:
    """Return a variable after `+=`."""
    if more.items is not None or before.items is not None:
        return _list_of([*(before.items or (before,)), *(more.items or (more,))][:_MAX_ITEMS])
    return Traced(text=f"{before.known}{more.known}"[:MAX_MADE], labels=before.labels | more.labels)


def _join_printed(printed: list[Traced]) -> Traced:
    """Return what commands print one after the other; `printf` ends no line."""
    text = ""
    for one in printed:
        if one.text:
            text += one.text if one.name == UNENDED else f"{one.text}\n"
    name = UNENDED if printed and printed[-1].name == UNENDED else ""
    text = text[:MAX_MADE] if name else text[:MAX_MADE].removesuffix("\n")
    return Traced(text=text or None, labels=merge(printed), name=name)


def _is_variable(name: str) -> bool:
    return name not in ("PATH", "PWD", "USER", "SHELL", "LANG", "TERM", "HOME", "TMPDIR", "OLDPWD")


def _split(words: list[Traced]) -> Iterator[Traced]:
    """Yield the words; one that a variable made of several is several, as in the shell."""
    for number, one in enumerate(words):
        first = one.text.split()[:1] if number == 0 and one.text else []
        if first and one.text and len(first[0]) < len(one.text.strip()) and "/" not in first[0]:
            yield from (Traced(text=part, labels=one.labels) for part in one.text.split())
        else:
            yield one


def _join(parts: Iterator[Traced]) -> Traced:
    every = list(parts)
    if len(every) == 1:
        return every[0]
    text = "".join(HOLE if one.text is None else one.text for one in every)
    return Traced(text=text[:MAX_MADE], labels=merge(every))


def _unescape(text: str) -> str:
    return _ESCAPES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    body = match[1]
    if body[0] in "xu" and len(body) > 1:
        return chr(int(body[1:], 16))
    if body[0] in "01234567":
        return chr(int(body, 8) % 256)
    return _SIMPLE.get(body, body)
