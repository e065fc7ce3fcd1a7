"""Read shell: what each command of a text reads, sends, runs and writes.

With the extra `scan` the text is parsed by tree-sitter. Without it only words, quotes and the
operators between commands are understood (`shell_words.py`), and the scan says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skillbelt.scan.ledger import HOLE, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.parsers import parse_or_none
from skillbelt.scan.self_reading import search_pipelines
from skillbelt.scan.shell_commands import ShellCall, ShellState, run_call
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
     "else_clause", "while_statement", "for_statement", "c_style_for_statement", "do_group",
     "case_statement", "case_item", "function_definition", "negated_command", "ERROR",
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
        ledger.find("reverse-shell", at, match[0])


def _read_words(text: str, line: int, state: ShellState) -> None:
    for at, pipeline in split_pipelines(text):
        value = UNKNOWN
        for words in pipeline:
            call = ShellCall(
                words=tuple(Traced(text=word) for word in words), stdin=value, line=line + at
            )
            value = run_call(call, state)


class _Reader:
    """Runs through the tree of one text, in the order in which the shell would."""

    def __init__(self, state: ShellState, line: int, source: bytes) -> None:
        self.state, self.ledger, self.first, self.source = state, state.ledger, line, source

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
        if kind == "command":
            return self._command(node, stdin, depth)
        if kind == "pipeline":
            return self._pipeline(node, stdin, depth)
        if kind == "redirected_statement":
            return self._redirected(node, stdin, depth)
        if kind == "variable_assignment":
            self._assign(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self._declare(node, depth)
        elif kind == "for_statement":
            self._loop_variable(node, depth)
            return self._body(node, stdin, depth)
        elif kind in _BODIES or kind == "variable_assignments":
            return self._body(node, stdin, depth)
        return UNKNOWN

    def _body(self, node: Node, stdin: Traced, depth: int) -> Traced:
        printed = [self.run(child, stdin, depth + 1) for child in node.named_children]
        texts = [one.text for one in printed if one.text]
        return Traced(text="\n".join(texts) if texts else None, labels=merge(printed))

    def _loop_variable(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("variable")
        values = [self.word(one, depth + 1) for one in node.children_by_field_name("value")]
        if name is not None and values:
            first = values[0] if len(values) == 1 else Traced(labels=merge(values))
            self.state.variables[self.text(name)] = first

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
        traced = self.word(value, depth + 1) if value is not None else Traced(text="")
        self.state.assign(self.text(name), traced, self.line(node))

    def _pipeline(self, node: Node, stdin: Traced, depth: int) -> Traced:
        value = stdin
        for child in node.named_children:
            value = self.run(child, value, depth + 1)
        return value

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
                words.append(self.word(child, depth + 1))
        if not words:
            return UNKNOWN
        outputs = [
            where
            for child in node.named_children
            if child.type == "file_redirect"
            and (where := child.child_by_field_name("destination")) is not None
            and ">" in self.text(child.children[0])
        ]
        call = ShellCall(words=tuple(_split(words)), stdin=stdin, line=self.line(node))
        self._judge_name(node, call)
        printed = run_call(call, self.state)
        for where in outputs:
            self.state.wrote(self.word(where, depth + 1).known, printed, self.line(node))
        return printed

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
        if kind == "raw_string":
            return Traced(text=self.text(node)[1:-1])
        if kind == "ansi_c_string":
            return Traced(text=_unescape(self.text(node)[2:-1]))
        if kind in ("string", "concatenation", "translated_string"):
            return _join(self._parts(node, depth))
        if kind in ("simple_expansion", "expansion"):
            return self._expand(node, depth)
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
        for child in node.children:
            if child.type == "string_content":
                text = self.text(child).replace("\\\n", "")
                yield Traced(text=re.sub(r'\\([$`"\\])', r"\1", text))
            elif child.type != '"':
                yield self.word(child, depth + 1)

    def _expand(self, node: Node, depth: int) -> Traced:
        names = [one for one in node.named_children if "variable_name" in one.type]
        name = self.text(names[0]) if names else ""
        if name == "IFS":
            return Traced(text=" ")
        if name in self.state.variables:
            return self.state.variables[name]
        labels = frozenset[str]()
        if name.isupper() or "_" in name:
            labels = (
                self.ledger.reads_variable(name, self.line(node)) if _is_variable(name) else labels
            )
        if name in ("HOME", "USERPROFILE"):
            return Traced(text="~")
        others = [one for one in node.named_children if one not in names]
        if others and ":-" in self.text(node):
            return self.word(others[0], depth + 1)
        return Traced(text=HOLE, labels=labels)


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
    text = "".join(HOLE if one.text is None else one.text for one in every)
    return Traced(text=text, labels=merge(every))


def _unescape(text: str) -> str:
    return _ESCAPES.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    body = match[1]
    if body[0] in "xu" and len(body) > 1:
        return chr(int(body[1:], 16))
    if body[0] in "01234567":
        return chr(int(body, 8) % 256)
    return _SIMPLE.get(body, body)
