"""Single commands: tables of programs, and how their arguments enter the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from skillbelt.launchers import PREFIXES, SHELLS
from skillbelt.records import NamedTuple
from skillbelt.scan.command_names import COMMAND_NAMES
from skillbelt.scan.decoding import decode_text
from skillbelt.scan.embedded import find_command_strings
from skillbelt.scan.ledger import HOLE, SERVICE_OF, UNKNOWN, Ledger, Traced, merge
from skillbelt.scan.machine_settings import judge_instead, note_automatic
from skillbelt.scan.package_names import judge_packages
from skillbelt.scan.places import (
    find_paths,
    is_env_file,
    place_class,
    prints_token,
    service_of,
)
from skillbelt.scan.shell_values import (
    cut_lines,
    edit_lines,
    format_values,
    print_fields,
    translate_signs,
)
from skillbelt.text import Lazy

# The label of a text that a script puts together, and the name of one that ends no line.
MADE, UNENDED = "made", "unended"


class ShellCall(NamedTuple):
    """One command: its words, what it gets on standard input, and its line."""

    words: tuple[Traced, ...]
    stdin: Traced
    line: int

    @property
    def name(self) -> str:
        """The program without its folder, in lower case."""
        return self.words[0].known.rpartition("/")[2].lower().removesuffix(".exe")

    @property
    def texts(self) -> list[str]:
        """The words after the program, as far as they are known."""
        return [one.known for one in self.words[1:]]

    @property
    def whole(self) -> str:
        """The command as a line."""
        return " ".join(one.known for one in self.words)

    def option(self, *names: str) -> Traced | None:
        """Return the value of an option: the next word, or what is joined to it."""
        for at, one in enumerate(self.words[1:], 1):
            for name in names:
                if one.known == name:
                    return self.words[at + 1] if at + 1 < len(self.words) else UNKNOWN
                joined = f"{name}=" if name.startswith("--") else name
                if one.known.startswith(joined) and len(one.known) > len(joined):
                    return one._replace(text=one.known[len(joined) :])
        return None

    def has(self, *names: str) -> bool:
        """Whether one of the words is there."""
        return any(word in names for word in self.texts)

    @property
    def operands(self) -> list[Traced]:
        """The words that are no options."""
        return [one for one in self.words[1:] if not one.known.startswith("-")]


class ShellState:
    """State of one script so far: variables, and files that it fetched."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.variables: dict[str, Traced] = {
            "BASH": Traced(text="bash"),
            "SHELL": Traced(text="sh"),
        }
        self.aliases: dict[str, str] = {}
        self.files: dict[str, Traced] = {}
        # Where the script is, as far as it changed to a folder that it made, and what it unpacked.
        self.folder = ""
        self.unpacked = UNKNOWN

    def find(self, path: str) -> Traced | None:
        """Return what was put at a path, or into the folder that holds it; None if nothing was."""
        plain = _plain(path)
        known = self.files.get(plain) or self.ledger.fetched.get(plain)
        if known is not None or not plain or HOLE in plain or len(plain) > _MAX_PATH:
            return known
        inside = plain if plain[0] in "/~$" else f"{self.folder}{plain}"
        parts = inside.split("/")[:_MAX_FOLDERS]
        for end in range(len(parts), 0, -1):
            known = self.files.get("/".join(parts[:end]))
            if known is not None:
                return known
        if "/" in plain and self.unpacked.labels and plain[0] not in "/~$":
            return None if self.ledger.read_sibling(plain) else self.unpacked
        return None

    def assign(self, name: str, value: Traced, line: int) -> None:
        """Note a variable that is set."""
        self.variables[name] = value
        if name == "HISTFILE" and value.known in ("/dev/null", ""):
            self.ledger.find("trace-removal", line, f"{name}={value.known}")
        if name in ("NODE_TLS_REJECT_UNAUTHORIZED", "GIT_SSL_NO_VERIFY", "PYTHONHTTPSVERIFY"):
            self.ledger.find("guard-off", line, f"{name}={value.known}", "note")
        if name in ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PROMPT_COMMAND", "BASH_ENV"):
            self.ledger.find("persistence", line, f"{name}={value.known}", "note")
        if name in _COMMAND_VARIABLES:
            self.ledger.runs_shell(value, line, name)
        if value.text:
            self.ledger.names_url(value.text, line)

    def wrote(self, path: str, content: Traced, line: int, *, adds: bool = False) -> None:
        """Note a file that a command wrote, or added to."""
        if path:
            self.ledger.writes_file(path, line, content)
            before = self.files.get(_plain(path)) if adds else None
            if before is not None:
                text = f"{before.known}{content.known}"[:_MAX_WRITTEN]
                content = Traced(text=text or None, labels=before.labels | content.labels)
            self.files[_plain(path)] = content

    def content(self, path: Traced, line: int) -> Traced:
        """Return what a file holds: what this text put there, or what its place says."""
        if path.name == "<(":
            return path
        known = self.find(path.known)
        if known is not None:
            return known
        return Traced(labels=self.ledger.reads_file(path.known, line) | path.labels)


_MAX_WRITTEN = 64 * 2**10
_MAX_PATH, _MAX_FOLDERS = 1_000, 20
# Variables whose value is a command that another program runs.
_COMMAND_VARIABLES = frozenset(
    ("GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_ASKPASS", "PAGER",
     "MANPAGER", "EDITOR", "VISUAL", "LESSOPEN", "RSYNC_RSH", "PROMPT_COMMAND", "BROWSER")
)  # fmt: skip


def _plain(path: str) -> str:
    return path.removeprefix("./").strip("\"'")


Handler = Callable[[ShellCall, ShellState], Traced]


def run_call(call: ShellCall, state: ShellState) -> Traced:
    """Note what one command does; return what it prints."""
    ledger = state.ledger
    ledger.spend(1 + len(call.stdin.known) // 500)
    call = _unwrap(call, state)
    name = call.name
    if not name:
        return UNKNOWN
    path = call.words[0].known
    known = "/" in path or (path in state.files and name not in _HANDLERS)
    script = state.find(path) if known else None  # else a program of the system
    if script is not None and (script.text or "net" in script.labels):
        ledger.runs_shell(script, call.line, call.whole)
    if (
        _PROGRAM.fullmatch(name)
        and name not in _BUILTINS
        and (not ledger.may_be_prose or _is_surely_command(call))
    ):
        ledger.can("program", name, call.line)
    _look_at_words(call, state)
    handler = _HANDLERS.get(re.sub(r"[0-9.]+$", "", name)) or _HANDLERS.get(name)
    if handler is not None:
        return handler(call, state)
    labels = merge(call.words[1:]) | call.stdin.labels
    if name in _FILTERS:
        for one in call.operands[1:] if name in _SKIPS_ONE else call.operands:
            labels |= _maybe_file(one, call, state)
    return Traced(labels=labels)


# Neither a number of a list nor a word with a mark behind it.
_PROGRAM = Lazy(r"(?=[0-9._+-]{0,40}[a-z])[a-z0-9](?:[a-z0-9._+-]{0,39}[a-z0-9+])?")
_COMMAND_NAME = Lazy(COMMAND_NAMES)
_ARGUMENT = Lazy(
    r"--?[A-Za-z0-9][\w=,./-]*\Z|~?/[\w./-]|\./|[\w-]{1,80}/[\w./-]|[\w.-]{1,80}\.\w{1,5}\Z"
)


def _is_surely_command(call: ShellCall) -> bool:
    """Whether a line that may be prose is a command: a known one, or one with arguments."""
    first = call.words[0].known
    if not first[:1].islower() and "/" not in first:
        return False
    known = bool(_COMMAND_NAME.match(f"{first} "))
    return known or any(_ARGUMENT.match(one) for one in call.texts)


def _unwrap(call: ShellCall, state: ShellState) -> ShellCall:
    """Remove the programs that only start another one: sudo, env, timeout, xargs."""
    for _ in range(6):
        name = call.name
        if name not in PREFIXES and name not in _STARTERS:
            return call
        if name == "command" and call.has("-v", "-V"):  # asks where a program is
            return call
        rest = list(call.words[1:])
        if name in ("sudo", "doas"):
            state.ledger.can("program", name, call.line)
            state.ledger.find("privilege", call.line, call.whole, "note")
        while rest and _is_prefix_word(rest[0].known, name):
            option = rest.pop(0).known
            if option in _VALUED.get(name, ()) and rest:
                rest.pop(0)
        if name in ("timeout", "chroot") and rest:
            rest.pop(0)
        if not rest:
            return call
        words = _fill_words(call, rest) if name == "xargs" else tuple(rest)
        call = call._replace(words=words)
    return call


def _fill_words(call: ShellCall, rest: list[Traced]) -> tuple[Traced, ...]:
    """Return the words of a command that xargs starts, with those that it reads."""
    stdin = call.stdin
    mark = call.option("-I", "-i")
    if mark is not None and mark.known and stdin.text:
        known = stdin.text.strip()[:_MAX_PATH]
        return tuple(
            Traced(text=one.known.replace(mark.known, known), labels=one.labels | stdin.labels)
            if mark.known in one.known and len(one.known) < _MAX_PATH
            else one
            for one in rest
        )
    if stdin.text and not stdin.labels and len(stdin.text) < _MAX_PATH:
        return (*rest, *(Traced(text=one) for one in stdin.text.split()))
    return (*rest, stdin) if stdin.labels else tuple(rest)


_STARTERS = frozenset(("command", "builtin", "exec", "nohup", "arch", "then", "do", "else", "!"))
_VALUED = {
    "sudo": ("-u", "-g", "-p", "--user"),
    "xargs": ("-I", "-n", "-P", "-L", "-d"),
    "env": ("-u", "-C"),
    "nice": ("-n",),
    "timeout": ("-s", "-k"),
}


def _is_prefix_word(word: str, name: str) -> bool:
    assigns = name == "env" and re.match(r"[A-Za-z_]\w*=", word) is not None
    return assigns or (word.startswith("-") and len(word) > 1)


_GUARDS = Lazy(
    r"--(?:dangerously[\w-]*|yolo|no-verify-ssl|disable-web-security|allow-dangerous[\w-]*"
    r"|break-system-packages|bypass-permissions)\b"
)
# Programs that start another agent, and the switches that turn off its questions.
_AGENTS = frozenset(
    ("claude", "codex", "cursor-agent", "gemini", "aider", "amp", "copilot", "goose", "opencode",
     "qwen", "cline", "droid", "crush")
)  # fmt: skip
_UNASKED = Lazy(
    r"(?i)\s(?:(?<=cursor-agent\s)(?:\S{1,40}\s){0,9}?--force\b|--full-auto\b|--yes-always\b"
    r"|--allow-all(?:-tools)?\b|(?:--ask-for-approval|-a)[ =]never\b|\S{0,20}danger-full-access\b"
    r"|--permission-mode[ =]bypasspermissions\b|--approval-mode[ =]yolo\b)"
)
_MINERS = Lazy(
    r"(?i)\b(?:xmrig|minerd|cpuminer|ethminer|t-rex-miner|nbminer|phoenixminer|lolminer|cgminer|"
    r"coinhive|cryptonight|nicehash)\b|stratum\+(?:tcp|ssl)://|--donate-level\b"
)


def _look_at_words(call: ShellCall, state: ShellState) -> None:
    """Search the words of any command for miners, disabled guards and addresses."""
    ledger, whole = state.ledger, call.whole
    if call.name in _AGENTS and (free := _UNASKED.search(whole)):
        ledger.find("guard-off", call.line, f"{call.name} {free[0].strip()}")
    if guard := _GUARDS.search(whole):
        strong = "dangerously" in guard[0] or guard[0] in ("--yolo", "--bypass-permissions")
        ledger.find("guard-off", call.line, guard[0], "ask" if strong else "note")
    if _MINERS.search(whole):
        ledger.find("miner", call.line, whole)
    if "NOPASSWD" in whole:
        ledger.find("privilege", call.line, whole)
    if call.name not in ("curl", "wget"):
        ledger.names_url(whole, call.line)
    if call.name in _PACKERS or _PUBLISHES.search(whole):
        _note_publishing(call, ledger)


_PACKERS = frozenset(("tar", "zip", "cp", "7z", "rsync", "install", "ditto"))
_PUBLISHES = Lazy(
    r"\bgit\b[^\n]{0,80}\bpush\b|\bgh-pages\b|\baws s3 (?:sync|cp)\b|\bgsutil\b[^\n]{0,40}\b(?:cp"
    r"|rsync)\b"
    r"|\b(?:netlify|vercel|firebase|surge|wrangler)\b[^\n]{0,40}\b(?:deploy|publish)\b|\brclone "
    r"(?:sync|copy)\b"
    r"|\brsync\b[^\n]{0,200}\S:|\bscp\b|\b(?:npm|cargo|twine|gem) (?:publish|upload|push)\b"
    r"|\bhub release\b"
    r"|\bgh release (?:create|upload)\b"
)
# The home folder as a whole.
_ALL_OF_HOME = Lazy(r"(?:~|\$\{?HOME\}?|/root|/home/\w{1,40}|/Users/\w{1,40})/?\.?\*?\Z")


def _note_publishing(call: ShellCall, ledger: Ledger) -> None:
    """Note key files that are put together, and folders that go to the public."""
    if call.name in _PACKERS:
        for one in call.operands[: None if call.name in ("tar", "zip", "7z") else -1]:
            path = one.known
            key = place_class(path) in ("credential", "service", "settings") or is_env_file(path)
            if key and len(ledger.packed) < _MAX_PACKED and not ledger.weaker:
                ledger.packed.append((ledger.path, call.line + ledger.first_line - 1, path))
    if _PUBLISHES.search(call.whole):
        # What is pushed may be prose; a script says what it does.
        ledger.publishes = ledger.publishes or not ledger.may_be_prose
        for one in (
            call.operands if call.name in ("aws", "rsync", "scp", "rclone", "gsutil") else ()
        ):
            if _ALL_OF_HOME.match(one.known) and any(":" in other.known for other in call.operands):
                ledger.find("secret-to-network", call.line, call.whole, "ask")


_MAX_PACKED = 100


def _maybe_file(word: Traced, call: ShellCall, state: ShellState) -> frozenset[str]:
    text = word.known
    if word.name == "<(" or not text or text == HOLE:
        return word.labels
    if "/" in text or "." in text or text.startswith("~") or _plain(text) in state.files:
        return state.content(word, call.line).labels
    return word.labels


# --- printing and decoding -----------------------------------------------------------------------


def _echo(call: ShellCall, state: ShellState) -> Traced:
    words = [one for one in call.words[1:] if one.known not in ("-e", "-n", "-ne", "-en", "--")]
    text = " ".join(one.known for one in words)
    unended = call.name == "printf" or call.has("-n", "-ne", "-en")
    if call.name == "printf" and words:
        if len(words) > 2 and words[0].known == "-v":
            form, *values = [one.known for one in words[2:]]
            made = Traced(text=_read_escapes(format_values(form, values)), labels=merge(words))
            state.assign(words[1].known, made, call.line)
            return UNKNOWN
        form, *values = (one.known for one in words)
        text = format_values(form, values).replace("\\n", "\n")
    elif call.has("-e", "-ne", "-en"):
        text = text.replace("\\n", "\n")
    plain = _read_escapes(text)
    labels = merge(words) | ({MADE} if plain != text else frozenset())
    return Traced(text=plain, labels=labels, name=UNENDED if unended else "")


def _read_escapes(text: str) -> str:
    if "\\x" in text or "\\u" in text or _OCTAL.search(text):
        text = _UNICODE.sub(lambda match: chr(int(match[1], 16)), text)
        return decode_text("escapes", text) or text
    return text


_OCTAL = re.compile(r"\\[0-7]{3}")
_UNICODE = Lazy(r"\\u([0-9a-fA-F]{4})")


def _cat(call: ShellCall, state: ShellState) -> Traced:
    if not call.operands:
        return call.stdin
    contents = [state.content(one, call.line) for one in call.operands]
    texts = [one.text for one in contents]
    known = "\n".join(one for one in texts if one) if any(texts) else None
    return Traced(text=known, labels=merge(contents))


def _decoder(form: str, *switches: str) -> Handler:
    """Return a handler of a program that decodes when one of the switches is given."""

    def run(call: ShellCall, state: ShellState) -> Traced:
        sources = [call.stdin]
        sources += [
            state.content(one, call.line)
            for one in call.operands
            if "/" in one.known or "." in one.known or one.name == "<("
        ]
        labels = merge(sources)
        if switches and not any(_has_switch(word, switches) for word in call.texts):
            return Traced(labels=labels)
        text = next((one.text for one in sources if one.text), None)
        plain = decode_text(form, text) if text and HOLE not in text else None
        return Traced(text=plain, labels=labels | {"decoded"})

    return run


def _has_switch(word: str, switches: tuple[str, ...]) -> bool:
    return word in switches or (
        len(word) > 2 and word[0] == "-" != word[1] and any(one[1:] in word for one in switches)
    )


def _tr(call: ShellCall, state: ShellState) -> Traced:
    text, labels = call.stdin.text, call.stdin.labels
    sets = [one.known for one in call.operands]
    if not text or HOLE in text or not sets:
        return Traced(labels=labels)
    options = "".join(word[1:] for word in call.texts if word.startswith("-"))
    made = translate_signs(text, sets, options)
    # Who turns one letter into another hides the text.
    hides = len(sets) > 1 and len(sets[1]) > 3 and "[:" not in "".join(sets)
    hides = hides and {one.lower() for one in sets} != {"a-z"}
    return Traced(text=made, labels=labels | ({"decoded"} if hides else {MADE}))


def _cut(call: ShellCall, state: ShellState) -> Traced:
    text, labels = call.stdin.text, call.stdin.labels
    for one in call.operands:
        labels |= _maybe_file(one, call, state)
    signs, fields = call.option("-c", "-b", "--characters"), call.option("-f", "--fields")
    if not text or HOLE in text or (signs is None and fields is None):
        return Traced(labels=labels)
    mark = call.option("-d", "--delimiter")
    form = signs if signs is not None else fields
    known = form.known if form is not None else ""
    made = cut_lines(text, "c" if signs is not None else "f", known, mark.known if mark else "\t")
    return Traced(text=made, labels=labels | {MADE})


def _awk(call: ShellCall, state: ShellState) -> Traced:
    text, labels = call.stdin.text, call.stdin.labels | merge(call.words[1:])
    for program in call.operands:
        for command, _ in find_command_strings(program.known):
            state.ledger.runs_shell(Traced(text=command), call.line, call.name)
    for one in call.operands[1:]:
        labels |= _maybe_file(one, call, state)
    made = None
    mark = call.option("-F")
    for program in call.operands:
        if "print" in program.known and (text or "BEGIN" in program.known):
            made = print_fields(
                (text or "")[:_MAX_WRITTEN], program.known, mark.known if mark else ""
            )
    return Traced(text=made, labels=labels | ({MADE} if made else frozenset()))


def _read(call: ShellCall, state: ShellState) -> Traced:
    """Put what `read` gets into its variables."""
    text = call.stdin.known.rstrip("\n")
    names, at = [], 1
    words = [one.known for one in call.words]
    while at < len(words):
        if words[at] in ("-p", "-d", "-n", "-N", "-t", "-u", "-i"):
            at += 1
        elif not words[at].startswith("-"):
            names.append(words[at])
        at += 1
    mark = state.variables.pop("IFS", UNKNOWN).text
    if not names or not (text or call.stdin.labels):
        return UNKNOWN
    parts = [one for one in (text.split(mark[:1]) if mark else text.split()) if one]
    if any(re.fullmatch(r"-\w*a", one) for one in words) or call.name in ("mapfile", "readarray"):
        parts = text.split("\n") if call.name != "read" else parts
        items = tuple(Traced(text=one, labels=call.stdin.labels) for one in parts[:500])
        state.variables[names[-1]] = Traced(
            text=" ".join(parts), labels=call.stdin.labels, items=items
        )
        return UNKNOWN
    for number, name in enumerate(names):
        last = number == len(names) - 1
        known = (mark or " ").join(parts[number:]) if last else "".join(parts[number : number + 1])
        known = text if len(names) == 1 else known
        state.variables[name] = Traced(text=known or None, labels=call.stdin.labels)
    return UNKNOWN


def _trap(call: ShellCall, state: ShellState) -> Traced:
    """Note what a script does when it gets a signal, or ends."""
    for one in call.operands[:1]:
        state.ledger.runs_shell(one, call.line, call.name)
    return UNKNOWN


def _alias(call: ShellCall, state: ShellState) -> Traced:
    for one in call.words[1:]:
        name, sign, command = one.known.partition("=")
        if sign and re.fullmatch(r"[\w.-]{1,40}", name) and len(state.aliases) < 200:
            state.aliases[name] = command.strip("\"'")
    return UNKNOWN


def _head(call: ShellCall, state: ShellState) -> Traced:
    """Return the first or last signs of a text, for head and tail."""
    labels, text = call.stdin.labels, call.stdin.text
    for one in call.operands:
        labels |= _maybe_file(one, call, state)
    signs = call.option("-c")
    count = signs.known.lstrip("+-") if signs is not None else ""
    if not text or not count.isdecimal() or signs is None:
        return Traced(text=text, labels=labels)
    number, first = int(count[:6]), call.name == "head"
    if signs.known.startswith("+"):
        made = text[number - 1 :]
    elif signs.known.startswith("-") and first:
        made = text[:-number] if number else text
    else:
        made = text[:number] if first else text[-number:]
    return Traced(text=made, labels=labels | {MADE})


def _rev(call: ShellCall, state: ShellState) -> Traced:
    text = call.stdin.text
    turned = "\n".join(one[::-1] for one in text.split("\n")) if text else None
    return Traced(text=turned, labels=call.stdin.labels | {"decoded"})


def _openssl(call: ShellCall, state: ShellState) -> Traced:
    if call.has("-d") and (call.has("base64", "-base64", "-a") or call.has("enc")):
        where = call.option("-in")
        if where is not None and not call.stdin.text:
            call = call._replace(stdin=state.content(where, call.line))
        return _decoder("base64")(call, state)
    if call.has("enc") and call.has("-e", "-aes-256-cbc", "-aes256"):
        source = call.option("-in")
        if source is not None:
            state.ledger.reads_file(source.known, call.line)
            if source.known.startswith(("~", "/home", "/Users", "$")) or HOLE in source.known:
                state.ledger.find("ransom", call.line, call.whole, "ask")
    return Traced(labels=call.stdin.labels)


# --- running -------------------------------------------------------------------------------------


def _shell(call: ShellCall, state: ShellState) -> Traced:
    ledger, line = state.ledger, call.line
    script = _after_command_switch(call)
    if script is not None:
        ledger.runs_shell(script, line, call.whole)
        return Traced(labels=script.labels)
    files = [one for one in call.operands if one.known]
    options = call.words[1 : call.words.index(files[0])] if files else call.words[1:]
    if any(one.known in ("-n", "-nu", "-un") for one in options):
        return UNKNOWN  # only the syntax is checked
    if files:
        content = state.content(files[0], line)
        if content.text or "net" in content.labels or "decoded" in content.labels:
            ledger.runs_shell(content, line, call.whole)
    elif call.stdin.labels or call.stdin.text:
        ledger.runs_shell(call.stdin, line, call.whole)
    return UNKNOWN


def _after_command_switch(call: ShellCall) -> Traced | None:
    for at, one in enumerate(call.words[1:], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", one.known) and at + 1 < len(call.words):
            return call.words[at + 1]
    return None


_LANGUAGES = {"node": "javascript", "bun": "javascript", "deno": "javascript", "python": "python"}


def _interpreter(call: ShellCall, state: ShellState) -> Traced:
    name = re.sub(r"[0-9.]+$", "", call.name)
    language = _LANGUAGES.get(name, name)
    code = call.option("-c", "-e", "--eval", "-r", "-p")
    if name == "python" and call.option("-m") is not None:
        return _python_module(call, state)
    if code is not None and code.text:
        state.ledger.runs_code(code, call.line, call.name, language)
        return Traced(labels=code.labels)
    files = call.operands
    # Behind `-`, which stands for what is piped in, words are data for it.
    if files and not any(one.known == "-" for one in call.words[1 : call.words.index(files[0])]):
        content = state.content(files[0], call.line)
        if "net" in content.labels:
            state.ledger.runs_code(content, call.line, call.whole, language)
    elif call.stdin.labels or call.stdin.text:
        state.ledger.runs_code(call.stdin, call.line, f"{call.name} -", language)
    return UNKNOWN


def _python_module(call: ShellCall, state: ShellState) -> Traced:
    module = call.option("-m")
    if module is not None and module.known in ("pip", "uv", "pipx"):
        at = [one.known for one in call.words].index(module.known)
        return _packages(call._replace(words=call.words[at:]), state)
    if module is not None and module.known in ("http.server", "SimpleHTTPServer"):
        state.ledger.can("program", "http.server", call.line)
    return UNKNOWN


def _eval(call: ShellCall, state: ShellState) -> Traced:
    text = " ".join(one.known for one in call.words[1:])
    state.ledger.runs_shell(Traced(text=text, labels=merge(call.words[1:])), call.line, call.name)
    return UNKNOWN


# A variable that a file sets to a constant.
_SET = Lazy(
    r"(?m)^[ \t]*(?:export[ \t]{1,9})?(\w{1,60})="
    r"(\"[^\"\n`(]{1,300}\"|'[^'\n]{1,300}'|[^\s\"'`(]{1,300})"
)
_CHARS_OF_A_STEP = 10


def _source(call: ShellCall, state: ShellState) -> Traced:
    if call.operands and call.operands[0].known in ("/dev/stdin", "/proc/self/fd/0"):
        state.ledger.runs_shell(call.stdin, call.line, call.whole)
        return UNKNOWN
    for one in call.operands[:1]:
        text = state.ledger.read_sibling(one.known)
        # Charge for the file: a short line can name a long file many times.
        state.ledger.spend(len(text) // _CHARS_OF_A_STEP)
        for match in _SET.finditer(text):
            state.variables[match[1]] = Traced(text=match[2].strip("\"'").replace("$HOME", "~"))
    for one in call.operands[:1]:
        content = state.content(one, call.line)
        if content.labels & {"net", "decoded"} or (one.name == "<(" and content.text):
            state.ledger.runs_shell(content, call.line, call.whole)
    return UNKNOWN


def _powershell(call: ShellCall, state: ShellState) -> Traced:
    for at, one in enumerate(call.words[1:], 1):
        if re.fullmatch(r"(?i)-e(?:c|nc|ncodedcommand)?", one.known) and at + 1 < len(call.words):
            code = decode_text("utf16", call.words[at + 1].known)
            state.ledger.find("decode-and-run", call.line, call.whole)
            state.ledger.names_url(code or "", call.line)
    return UNKNOWN


def _osascript(call: ShellCall, state: ShellState) -> Traced:
    text = call.whole
    if re.search(r"(?i)hidden answer|with administrator privileges", text):
        state.ledger.find("surveillance", call.line, text)
    for command in re.findall(r'do shell script\s+"((?:[^"\\]|\\.)*)"', text):
        state.ledger.runs_shell(Traced(text=command.replace('\\"', '"')), call.line, "osascript")
    return UNKNOWN


# --- the network ---------------------------------------------------------------------------------

_DATA = ("-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--json", "-F",
         "--form", "--form-string", "-T", "--upload-file", "--post-data", "--post-file",
         "--body-data", "--body-file", "--url-query")  # fmt: skip
_TAKES = frozenset(
    ("-o", "--output", "-O", "--output-document", "-X", "--request", "-H", "--header", "-u",
     "--user", "-A", "--user-agent", "-e", "--referer", "-b", "--cookie", "-c", "-m",
     "--max-time", "--connect-timeout", "--retry", "-w", "--write-out", "-P", "-x", "--proxy")
)  # fmt: skip


def _request(call: ShellCall, state: ShellState) -> Traced:
    ledger, line = state.ledger, call.line
    parts = _request_parts(call)
    address = next(
        (one for one in parts["address"] if "." in one.known or "://" in one.known),
        parts["address"][0] if parts["address"] else UNKNOWN,
    )
    if address.known.startswith("-"):
        return UNKNOWN
    sent: list[Traced] = [_body(one, call, state) for one in parts["data"]]
    others = [one for one in parts["address"] if "://" in one.known and one is not address]
    for to in (address, *others):
        if sent:
            ledger.sends(Traced(labels=merge(sent)), to, line)
        for one in parts["header"]:
            ledger.sends(one, to, line, part="header")
    answer = Traced(
        labels=ledger.fetches(address, line).union(*(ledger.fetches(one, line) for one in others))
    )
    if call.has("-k", "--insecure", "--no-check-certificate"):
        ledger.find("guard-off", line, "certificates are not checked", "note")
    output = call.option("-o", "--output", "--output-document") or _joined_output(call)
    output = output or (call.option("-O") if call.name == "wget" else None)
    if output is not None and output.known and output.known != "-":
        state.wrote(output.known, answer, line)
        return UNKNOWN
    if call.name == "wget" or call.has("-O", "--remote-name", "-LO", "-OL", "-sLO", "-fsSLO"):
        state.wrote(address.known.rstrip("/").rpartition("/")[2], answer, line)
        return answer if _to_stdout(call) else UNKNOWN
    return answer


_JOINED_WGET, _JOINED_CURL = Lazy(r"-[a-zA-Z]{1,8}O"), Lazy(r"-[a-zA-Z#]{1,8}o")


def _joined_output(call: ShellCall) -> Traced | None:
    """Return what follows switches of one letter of which the last names a file: `-qO FILE`."""
    form = _JOINED_WGET if call.name == "wget" else _JOINED_CURL
    for at, one in enumerate(call.words[1:-1], 1):
        if form.fullmatch(one.known):
            return call.words[at + 1]
    return None


def _to_stdout(call: ShellCall) -> bool:
    return any(re.fullmatch(r"-q?O-?|-qO-|-O-|-", word) for word in call.texts)


def _request_parts(call: ShellCall) -> dict[str, list[Traced]]:
    parts: dict[str, list[Traced]] = {"address": [], "data": [], "header": []}
    words = list(call.words[1:])
    at = 0
    while at < len(words):
        text = words[at].known
        name, joined, value = text.partition("=")
        if name in _DATA and joined:
            parts["data"].append(words[at]._replace(text=value))
        elif text in _DATA and at + 1 < len(words):
            at += 1
            parts["data"].append(words[at])
        elif text in ("-H", "--header", "-u", "--user") and at + 1 < len(words):
            at += 1
            parts["header"].append(words[at])
        elif text in _TAKES or (call.name == "curl" and _JOINED_CURL.fullmatch(text)):
            at += 1
        elif not text.startswith("-") and words[at].name != "<(":
            parts["address"].append(words[at])
        at += 1
    return parts


def _body(word: Traced, call: ShellCall, state: ShellState) -> Traced:
    """Return the data of a request: itself, or the file that it names."""
    name, at, path = word.known.rpartition("@")
    if at and path == "-":
        return call.stdin
    if at and len(path) > 1 and not re.search(r"\s|\.com\b", path):
        content = state.content(Traced(text=path.partition(";")[0]), call.line)
        return Traced(labels=content.labels | word.labels)
    if word.known == "-" or (name == "" and word.known == "@-"):
        return call.stdin
    if call.has("-T", "--upload-file", "--post-file", "--body-file") or any(
        text.startswith(("--upload-file=", "--post-file=", "--body-file=")) for text in call.texts
    ):
        return Traced(labels=word.labels | state.ledger.reads_file(word.known, call.line))
    return word


def _netcat(call: ShellCall, state: ShellState) -> Traced:
    ledger, whole = state.ledger, call.whole
    shell = re.search(
        r"(?i)(?:-e|-c|--exec|--sh-exec|exec:|system:)\W*+\S{0,200}(?:sh|cmd|powershell)\b", whole
    )
    if shell:
        ledger.find("reverse-shell", call.line, whole)
    address = Traced(text=whole)
    if call.stdin.labels:
        ledger.sends(call.stdin, address, call.line)
    elif call.operands:
        ledger.fetches(address, call.line)
    return Traced(labels=frozenset(("net",)))


def _copy_away(call: ShellCall, state: ShellState) -> Traced:
    """scp, rsync, sftp, rclone: files to another machine."""
    remote = [one for one in call.operands if re.search(r"[\w.-]@?:|://", one.known)]
    local = [one for one in call.operands if one not in remote]
    if remote and local and call.operands[-1] in remote:
        labels = merge([state.content(one, call.line) for one in local])
        host = remote[-1].known.partition("@")[2] or remote[-1].known
        address = Traced(text=host.partition(":")[0] if "://" not in host else host)
        state.ledger.sends(Traced(labels=labels | {"file"}), address, call.line)
    return UNKNOWN


def _lookup(call: ShellCall, state: ShellState) -> Traced:
    labels = merge(call.words[1:]) | call.stdin.labels
    if labels:
        state.ledger.sends(Traced(labels=labels), Traced(text=call.whole), call.line, part="name")
    return Traced(labels=frozenset(("net",)))


def _mail(call: ShellCall, state: ShellState) -> Traced:
    if call.stdin.labels:
        state.ledger.sends(call.stdin, Traced(text=call.whole), call.line)
    return UNKNOWN


def _tunnel(call: ShellCall, state: ShellState) -> Traced:
    state.ledger.find("suspect-host", call.line, call.whole, "note")
    return UNKNOWN


def _ssh(call: ShellCall, state: ShellState) -> Traced:
    if call.has("-R"):
        state.ledger.find("reverse-shell", call.line, call.whole, "ask")
    return UNKNOWN


# --- secrets -------------------------------------------------------------------------------------


def _environment(call: ShellCall, state: ShellState) -> Traced:
    if call.name == "set" and call.has("--"):
        given = call.words[[one.known for one in call.words].index("--") + 1 :]
        text = " ".join(one.known for one in given)[:_MAX_WRITTEN]
        state.variables["@"] = Traced(text=text, labels=merge(given), name="@", items=given)
        state.variables.update({str(at): one for at, one in enumerate(given[:9], 1)})
        return UNKNOWN
    names = [one.known for one in call.operands if re.fullmatch(r"[A-Za-z_]\w*", one.known)]
    if names:
        labels = [Traced(labels=state.ledger.reads_variable(one, call.line)) for one in names]
        return Traced(labels=merge(labels))
    return Traced(labels=frozenset(("environment",)))


def _grep(call: ShellCall, state: ShellState) -> Traced:
    labels = call.stdin.labels
    if "environment" in labels and re.search(r"(?i)key|token|secret|pass|cred|auth", call.whole):
        state.ledger.find("environment-read", call.line, call.whole)
    for one in call.operands[1:]:
        labels |= _maybe_file(one, call, state)
    wide = call.has("-r", "-R", "-rn", "-ri", "-rE", "-rnE") and re.search(
        r" (?:/|~|/home)/?\s*$", call.whole
    )
    if wide and re.search(r"(?i)passw|secret|token|api.?key|private key", call.whole):
        state.ledger.find("credential-access", call.line, call.whole)
        labels |= {"credential"}
    return Traced(labels=labels)


# Up to the next match, so that each is searched once.
_ENCRYPTS_ALL = Lazy(
    r"-exec\s+(?:openssl|gpg)\b(?:(?!-exec\s+(?:openssl|gpg)\b).)*?(?:enc|-c\b|--symmetric)"
)
# Names of files with secrets, for which a search through folders looks.
_HUNTED = Lazy(
    r"(?i)-i?name\s+\S*(?:id_rsa|id_ed25519|\.pem|\.key\b|wallet|\.kdbx|credentials"
    r"|\.env\b|keystore|cookies)"
)


def _find(call: ShellCall, state: ShellState) -> Traced:
    whole = call.whole
    labels = frozenset(("file",))
    if _HUNTED.search(whole) and re.search(r"\s(?:~|/|\$HOME|/home|/Users)", f" {whole}"):
        state.ledger.find("credential-access", call.line, whole)
        labels |= {"credential"}
    if _ENCRYPTS_ALL.search(whole):
        state.ledger.find("ransom", call.line, whole)
    if call.has("-delete") and re.search(r"find\s+(?:/|~|\$HOME)\S*\s+-delete", whole):
        state.ledger.find("destruction", call.line, whole)
    at = next((n for n, one in enumerate(call.words) if one.known in ("-exec", "-execdir")), 0)
    if at and at + 1 < len(call.words):
        inner = [one for one in call.words[at + 1 :] if one.known not in (";", "+", "\\;")]
        if inner:
            call = call._replace(words=tuple(inner), stdin=Traced(labels=labels))
            return run_call(call, state)
    return Traced(labels=labels)


def _keychain(call: ShellCall, state: ShellState) -> Traced:
    whole = call.whole
    if re.search(r"find-(?:generic|internet)-password|dump-keychain|export|lookup|search", whole):
        weak = "find-" in whole and call.has("-s")
        state.ledger.find("credential-access", call.line, whole, "note" if weak else None)
        return Traced(labels=frozenset(("service" if weak else "credential",)))
    return UNKNOWN


def _about_machine(call: ShellCall, state: ShellState) -> Traced:
    """Return what programs print that tell one machine, or its user, from another."""
    return Traced(labels=frozenset(("system",)))


def _clipboard(call: ShellCall, state: ShellState) -> Traced:
    return Traced(labels=frozenset(("watch",)))


# --- what stays ----------------------------------------------------------------------------------


def _crontab(call: ShellCall, state: ShellState) -> Traced:
    if call.name == "crontab" and call.has("-l") and len(call.words) == 2:
        return UNKNOWN
    state.ledger.can("persistence", call.name, call.line)
    state.ledger.find("persistence", call.line, call.whole)
    return UNKNOWN


def _service(call: ShellCall, state: ShellState) -> Traced:
    if call.has("enable", "load", "bootstrap", "/create", "-create", "add", "defaults", "submit"):
        whole = call.whole
        if call.name == "reg" and not re.search(r"(?i)currentversion\\?.?run", whole):
            return UNKNOWN
        state.ledger.can("persistence", whole, call.line)
        state.ledger.find("persistence", call.line, whole)
    if call.has("stop", "disable", "mask") and re.search(
        r"(?i)firewall|auditd|falcon|defend", call.whole
    ):
        state.ledger.find("guard-off", call.line, call.whole)
    return UNKNOWN


# Settings of git whose value is a command; few people set the first ones.
_COMMAND_KEY = Lazy(
    r"core\.(?:(hooksPath|sshCommand|fsmonitor|pager)|editor)\b"
    r"|\b(?:alias\.|filter\.\S{1,40}\.(?:clean|smudge)\b)"
)


# Settings whose value is a program that git runs on what is stored or sent.
_RUN_KEY = Lazy(
    r"(?i)\b(?:filter\.\S{1,40}\.(?:clean|smudge|process)|diff\.(?:\S{1,40}\.)?(?:textconv|command"
    r"|external)"
    r"|merge\.\S{1,40}\.driver|core\.(?:fsmonitor|sshCommand|gitProxy|hooksPath)|gpg\."
    r"(?:\S{1,20}\.)?program"
    r"|init\.templateDir|interactive\.diffFilter|(credential\.(?:\S{1,80}\.)?helper"
    r"|core\.askPass))\b"
)
_USUAL_HELPER = Lazy(
    r"(?i)(?:store|cache|osxkeychain|manager(?:-core)?|libsecret|wincred|gnome-keyring|oauth"
    r"|gcloud(?:\.sh)?"
    r"|!?(?:/\S{1,60}/)?gh auth git-credential|!?aws codecommit|!?glab|netrc|\Z"
    r"|credential\.\S{0,80}helper)"
)
_INSTEAD_KEY = Lazy(r"(?i)\burl\.[\"']?(\S{4,200}?)[\"']?\.(?:push)?insteadOf\b")


def _git(call: ShellCall, state: ShellState) -> Traced:
    if call.has("config") and (key := _COMMAND_KEY.search(call.whole)):
        # Hooks in the checkout are reviewed with it.
        here = key[1] == "hooksPath" and not re.match(r"[~/$]|\.\.|\Z", call.texts[-1])
        own = here and not call.has("--global", "--system")
        plain = not key[1] or own or call.texts[-1] in ("true", "false", "cat", "less")
        state.ledger.find("persistence", call.line, call.whole, "note" if plain else None)
        command = call.words[-1].known.removeprefix("!")
        state.ledger.runs_shell(Traced(text=command), call.line, "git config")
    if call.has("config") and (key := _RUN_KEY.search(call.whole)):
        note_automatic(call.texts[-1], "a program that git runs", state.ledger)
        if key[1] and not _USUAL_HELPER.match(call.texts[-1]):
            state.ledger.find("persistence", call.line, call.whole, "ask")
    if call.has("config") and (instead := _INSTEAD_KEY.search(call.whole)):
        judge_instead(instead[1], call.texts[-1], call.line, state.ledger)
    if call.has("config", "remote") and call.has("-l", "--list", "--get-regexp", "-v"):
        return _about_machine(call, state)
    if call.has("clone"):
        for at, one in enumerate(call.operands):
            if "://" in one.known:
                name = one.known.rstrip("/").removesuffix(".git").rpartition("/")[2]
                target = call.operands[at + 1].known if at + 1 < len(call.operands) else name
                state.files[_plain(target).rstrip("/")] = Traced(
                    labels=state.ledger.fetches(one, call.line)
                )
    return UNKNOWN


def _cd(call: ShellCall, state: ShellState) -> Traced:
    where = _plain(call.operands[0].known).rstrip("/") if call.operands else ""
    if where and state.find(where) is not None:
        state.folder = f"{where}/" if where[0] in "/~$" else f"{state.folder}{where}/"
    elif where != ".":
        state.folder = ""
    return UNKNOWN


def _github(call: ShellCall, state: ShellState) -> Traced:
    """gh: what it downloads from the repository of anyone, and what it prints of one."""
    words = call.texts
    if words[:2] == ["release", "download"] or words[:2] == ["repo", "clone"]:
        repo = call.option("-R", "--repo") or (call.operands[2] if call.operands[2:] else UNKNOWN)
        answer = _from_github(repo, call, state)
        output = call.option("-O", "--output")
        pattern = call.option("-p", "--pattern")
        name = repo.known.rpartition("/")[2] if words[0] == "repo" else ""
        if repo.known and (output is not None or name):
            state.wrote(output.known if output is not None else name, answer, call.line)
        elif repo.known and pattern is not None:
            state.wrote(pattern.known.rstrip("*"), answer, call.line)
        return UNKNOWN
    if words[:1] == ["api"]:
        repo = next((one for one in call.operands if "repos/" in one.known), UNKNOWN)
        text = repo.known.partition("repos/")[2]
        if text and "/contents/" in text:
            return _from_github(Traced(text=text), call, state)
    if words[:2] == ["gist", "view"]:
        return _from_github(Traced(text="gist"), call, state)
    return _service_token(call, state)


def _from_github(repo: Traced, call: ShellCall, state: ShellState) -> Traced:
    address = Traced(text=f"https://github.com/{repo.known}")
    return Traced(labels=state.ledger.fetches(address, call.line))


def _write_words(call: ShellCall, state: ShellState) -> Traced:
    """tee, cp, mv, install, ln: the last word is written, tee writes all."""
    targets = call.operands if call.name == "tee" else call.operands[-1:]
    content = call.stdin
    if call.name != "tee" and len(call.operands) > 1:
        content = Traced(
            labels=merge([state.content(one, call.line) for one in call.operands[:-1]])
        )
    for one in targets:
        state.wrote(one.known, content, call.line)
    return content


def _sed(call: ShellCall, state: ShellState) -> Traced:
    if any(word.startswith(("-i", "--in-place")) for word in call.texts) and call.operands:
        state.wrote(call.operands[-1].known, UNKNOWN, call.line)
    text, labels = call.stdin.text, call.stdin.labels
    if not text or HOLE in text:
        return Traced(labels=labels)
    scripts = [one.known for one in call.operands[:9]]
    return Traced(text=edit_lines(text, scripts), labels=labels | {MADE})


# --- rights and destruction ----------------------------------------------------------------------


def _chmod(call: ShellCall, state: ShellState) -> Traced:
    mode = call.texts[0] if call.texts else ""
    if re.search(r"\+s|^[42]7[0-7]{2}$|^u\+s", mode):
        state.ledger.find("privilege", call.line, call.whole)
    elif re.search(r"777\b|a\+rwx|o\+w", call.whole):
        top = any(
            re.fullmatch(r"/(?:etc|usr|opt|var|bin|)\S*|\.\.?/?|~/?|\*", one)
            for one in call.texts[1:]
        )
        state.ledger.find("privilege", call.line, call.whole, "ask" if top else "note")
    return UNKNOWN


def _chown(call: ShellCall, state: ShellState) -> Traced:
    if re.search(r"\broot(?::root)?\b", call.whole):
        state.ledger.find("privilege", call.line, call.whole, "ask")
    return UNKNOWN


def _admin(call: ShellCall, state: ShellState) -> Traced:
    whole = call.whole
    if re.search(r"\b(?:sudo|wheel|admin|docker|root)\b", whole) or call.name == "visudo":
        usual = re.search(r"\bdocker\b", whole) and not re.search(r"\b(?:sudo|wheel|root)\b", whole)
        state.ledger.find("privilege", call.line, whole, "note" if usual else None)
    return UNKNOWN


_HOME_OR_ROOT = Lazy(
    r"(?:/|/\*|~|~/|~/\*|\$\{?HOME\}?(?:/\*?)?|/home|/home/\*|/Users(?:/\*)?|/etc|/usr|/var|/boot"
    r"|/bin"
    r"|~/(?:documents|desktop|pictures|downloads|\.ssh|\.aws|\.config)(?:/\*?)?|[a-z]:\\?\*?)\Z",
    re.IGNORECASE,
)


# Everything in the folder where the user works, or something beside it.
_ALL_OF_WORK = Lazy(r"(?:\./|\.\./)?\*\Z|\.\.?/?\Z|(?:\.\./)++[^/*]*+\*[^/]*+\Z")


def _remove(call: ShellCall, state: ShellState) -> Traced:
    options = "".join(word for word in call.texts if word.startswith("-"))
    deep = "r" in options.lower() or call.name in ("shred", "wipe", "rd", "rmdir")
    for one in call.operands:
        path = one.known
        if deep and _HOME_OR_ROOT.match(path):
            state.ledger.find("destruction", call.line, call.whole)
        elif deep and _ALL_OF_WORK.match(path):
            state.ledger.find("destruction", call.line, call.whole, "ask")
        elif place_class(path) == "history" or (
            re.search(r"^/var/log\b|wtmp|\.log$", path) and path.startswith("/var")
        ):
            state.ledger.find("trace-removal", call.line, call.whole)
        elif place_class(path) == "agent" and deep:
            state.ledger.find("agent-file-change", call.line, call.whole, "note")
        if path.startswith(("~", "/")):
            state.ledger.can("write", path, call.line)
    return UNKNOWN


def _disk(call: ShellCall, state: ShellState) -> Traced:
    if call.name == "dd" and not re.search(r"of=/dev/(?!null|stdout|zero)", call.whole):
        return Traced(labels=call.stdin.labels)
    state.ledger.find("destruction", call.line, call.whole)
    return UNKNOWN


def _history(call: ShellCall, state: ShellState) -> Traced:
    if call.has("-c", "-w", "-cw") and call.name == "history":
        state.ledger.find("trace-removal", call.line, call.whole)
    return Traced(labels=frozenset(("history",)))


_GUARD_OFF = Lazy(
    r"(?i)setenforce\s+0|ufw\s+disable|iptables\s+(?:-f|--flush)|csrutil\s+disable"
    r"|spctl\s+--(?:master|global)-disable|xattr\s++(?:(?!xattr\s|com\.apple\.quar).)*+"
    r"com\.apple\.quarantine|xattr\s+-c"
    r"|set-mppreference|netsh\s+advfirewall\s+set\s+\S+\s+state\s+off|sc\s+stop\s+windefend"
)


def _guard(call: ShellCall, state: ShellState) -> Traced:
    if _GUARD_OFF.search(call.whole):
        state.ledger.find("guard-off", call.line, call.whole)
    return UNKNOWN


def _container(call: ShellCall, state: ShellState) -> Traced:
    if not call.has("run", "create"):
        return UNKNOWN
    if _OPEN_CONTAINER.search(call.whole):
        state.ledger.find("privilege", call.line, call.whole)
    if _HOME_MOUNT.search(call.whole):
        state.ledger.find("credential-access", call.line, call.whole)
    return UNKNOWN


_OPEN_CONTAINER = Lazy(r"--privileged|-v\s+/:|--volume[= ]/:|docker\.sock|--pid[= ]host")
# The whole home of the user, with all keys in it.
_HOME_MOUNT = Lazy(
    r"(?:-v|--volume|--mount)[= ](?:\S{0,40}source=)?(?:~|\$\{?HOME\}?|/root|/home|/Users)/?[:,]"
)


# What anyone may write: issues, comments and discussions, but not their numbers or titles.
_STRANGERS_WRITE = Lazy(
    r"(?i)\b(?:issue|pr|mr|discussion|incident)\s{1,9}(?:view|list|show|note)\b[^\n]{0,200}?"
    r"(?:body|comments?"
    r"|reviews|notes)\b|\bapi\b[^\n]{0,200}?(?:/comments|/issues/|/reviews|/discussions|/notes"
    r"|\.body\b|bodytext)"
)


def _service_token(call: ShellCall, state: ShellState) -> Traced:
    """Return what programs of services print when they are asked for the token of the user."""
    if call.name in ("gh", "glab") and _STRANGERS_WRITE.search(call.whole):
        return Traced(labels=frozenset(("net",)))
    asked = prints_token(f"{call.name} {' '.join(call.texts)}")
    labels = frozenset(("service", f"{SERVICE_OF}{service_of(call.name)}"))
    return Traced(labels=labels) if asked else UNKNOWN


def _unpack(call: ShellCall, state: ShellState) -> Traced:
    locked = call.option("-P") if call.name == "unzip" else None
    if call.name in ("7z", "7za", "unrar", "rar"):
        locked = next((one for one in call.words[1:] if re.match(r"-p\S", one.known)), None)
    if locked is not None:
        state.ledger.find("locked-archive", call.line, call.whole, "ask")
    lists = any(re.match(r"-?[a-z]*[tl]", word) for word in call.texts[:1])
    if "net" in call.stdin.labels and not lists:
        state.unpacked = call.stdin
    for one in call.operands:
        content = state.files.get(_plain(one.known))
        if content is not None and not lists:
            state.unpacked = content
            folder = re.sub(r"\.(?:zip|tar\.gz|tgz|tar|7z|rar)$", "", one.known)
            state.files[folder] = content
    labels = call.stdin.labels
    for one in call.operands:
        labels |= _maybe_file(one, call, state)
    return Traced(labels=labels)


def _packages(call: ShellCall, state: ShellState) -> Traced:
    judge_packages(call.name, call.texts, call.line, state.ledger)
    return UNKNOWN


def _screen(call: ShellCall, state: ShellState) -> Traced:
    state.ledger.find("surveillance", call.line, call.whole, "note")
    return Traced(labels=frozenset(("watch",)))


def _insmod(call: ShellCall, state: ShellState) -> Traced:
    state.ledger.find("privilege", call.line, call.whole)
    return UNKNOWN


_BUILTINS = frozenset(
    ("cd", "echo", "printf", "export", "set", "unset", "if", "then", "fi", "for", "do", "done",
     "while", "case", "esac", "in", "true", "false", "test", "[", "[[", "read", "exit", "return",
     "local", "source", ".", "eval", "shift", "wait", "trap", "alias", "function", "else", "pwd")
)  # fmt: skip
_FILTERS = frozenset(
    ("less", "more", "sort", "uniq", "jq", "xxd", "od", "hexdump",
     "strings", "tar", "zip", "gzip", "nl", "paste", "column", "yq", "gpg", "sqlite3", "plutil")
)  # fmt: skip
_SKIPS_ONE = frozenset(("jq", "yq"))


def _table(rows: Sequence[tuple[str, Handler]]) -> dict[str, Handler]:
    return {name: handler for names, handler in rows for name in names.split()}


_HANDLERS: dict[str, Handler] = _table(
    (
        ("echo printf", _echo),
        ("cat tac bat type", _cat),
        ("base64", _decoder("base64", "-d", "-D", "--decode", "-di")),
        ("base32", _decoder("base32", "-d", "--decode")),
        ("xxd", _decoder("hex", "-r")),
        ("gunzip zcat bzcat xzcat uudecode", _decoder("gzip")),
        ("unxz bunzip2 unzstd zstdcat lzcat unlzma", _decoder("gzip")),
        ("gzip xz bzip2 zstd lzma pigz brotli", _decoder("gzip", "-d", "--decompress")),
        ("tr", _tr),
        ("cut", _cut),
        ("awk gawk mawk nawk", _awk),
        ("head tail", _head),
        ("read mapfile readarray", _read),
        ("alias", _alias),
        ("trap", _trap),
        ("rev", _rev),
        ("openssl", _openssl),
        (" ".join(SHELLS), _shell),
        ("python pypy node bun deno perl ruby php lua", _interpreter),
        ("eval", _eval),
        ("source .", _source),
        ("powershell pwsh", _powershell),
        ("osascript", _osascript),
        ("curl wget http https xh curlie", _request),
        ("nc ncat netcat socat telnet", _netcat),
        ("scp rsync sftp rclone", _copy_away),
        ("dig nslookup host drill ping", _lookup),
        ("mail mailx sendmail mutt", _mail),
        ("ngrok cloudflared localtunnel lt", _tunnel),
        ("ssh autossh", _ssh),
        ("env printenv set export declare", _environment),
        ("grep egrep rg ag", _grep),
        ("find fd", _find),
        ("security secret-tool keyring", _keychain),
        (
            "uname hostname whoami id ifconfig ip ps who last arp sw_vers system_profiler ioreg",
            _about_machine,
        ),
        ("pbpaste xclip xsel wl-paste", _clipboard),
        ("screencapture scrot gnome-screenshot imagesnap", _screen),
        ("crontab at", _crontab),
        ("systemctl launchctl schtasks reg update-rc.d chkconfig service", _service),
        ("git", _git),
        ("tee cp mv install ln", _write_words),
        ("sed", _sed),
        ("chmod", _chmod),
        ("chown", _chown),
        ("usermod visudo adduser useradd gpasswd dscl", _admin),
        ("rm shred wipe rd", _remove),
        ("dd mkfs mkfs.ext4 mkfs.xfs wipefs diskutil", _disk),
        ("history", _history),
        ("setenforce ufw iptables csrutil spctl xattr set-mppreference netsh sc", _guard),
        ("docker podman nerdctl", _container),
        ("cd pushd", _cd),
        ("gh", _github),
        ("glab gcloud az aws op pass bw vault doppler", _service_token),
        ("unzip 7z 7za unrar rar tar", _unpack),
        ("pip pipx uv uvx npm npx pnpm yarn bunx gem cargo go brew poetry conda", _packages),
        ("insmod modprobe", _insmod),
    )
)
__all__ = ["ShellCall", "ShellState", "find_paths", "run_call"]
