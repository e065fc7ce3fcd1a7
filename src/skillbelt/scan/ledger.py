"""The record that the readers of one skill fill: capabilities, findings, and gaps.

The readers of Markdown, shell, Python and JavaScript say what a text does: it reads, sends, runs,
writes. What that means is decided here, once for all languages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from skillbelt.files.sensitive import looks_secret
from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import (
    HOLE,
    FoundUrl,
    classify,
    find_urls,
    host_in,
    is_installer,
    is_known,
    is_of_models,
    is_reserved,
    is_widely_used,
    publisher_of,
    words_of,
)
from skillbelt.scan.places import is_env_file, place_class, service_of
from skillbelt.scan.rules import RULES
from skillbelt.scan.values import (
    KINDS,
    MAX_OF_A_KIND,
    Capability,
    CapabilityKind,
    DataValue,
    Finding,
    FindingKind,
)
from skillbelt.text import Lazy, one_line, shorten

# Steps of all readers for one skill: about a second of work. The rest of a skill is not read.
MAX_STEPS = 600_000
# Steps of the evaluators for one skill; texts that need more are not worked out.
MAX_EVALUATION_STEPS = 400_000
# The parsers count no steps, so they have a time limit. Another run may need less time, so the
# result of a skill that reaches the limit is not cached.
MAX_PARSE_SECONDS = 10.0
MAX_FINDINGS = 200
_MAX_OF_A_RULE = 5
# Texts inside texts: a shell command in a Python string in a shell command.
MAX_NESTING = 6
# So many folders with keys are no longer those of one service.
_MANY_KEYS = 3
_CHARS_OF_A_STEP = 10
_SHOWN_CHARS = 90
_PUT_TOGETHER = "put together from constants"
_NO_LABELS: frozenset[str] = frozenset()
_SECRET_NAME = Lazy(
    r"(?i)(?:key|token|secret|passw|credential|private|auth|mnemonic|seed_phrase|_pat\b|dsn"
    r"|database_url)"
)
_PUBLIC_NAME = Lazy(r"(?i)public|keyboard|keyword|monkey|token(?:s|izer)|max_tokens|author\b")


class Traced(NamedTuple):
    """A value as far as it is known before a run.

    `text` has a HOLE for each part that is unknown, and is None when all of it is. `labels` say
    where it comes from: credential, service, history, file, environment, variable:NAME, net,
    decoded, watch. `name` is the dotted name of a function or module. `items` are those of a list.
    """

    text: str | None = None
    labels: frozenset[str] = _NO_LABELS
    name: str = ""
    items: tuple[Traced, ...] | None = None

    @property
    def known(self) -> str:
        """The text, "" if nothing of it is known."""
        return self.text or ""


UNKNOWN = Traced()
# The labels of what comes from a long literal that says nothing, and of text that is made of it.
OPAQUE, SPELLED = "opaque", "spelled"


class SentData(NamedTuple):
    """Data that code sends: to which host, from which place, and whether it is a whole file."""

    host: str
    path: str
    line: int
    file: bool
    weaker: bool


class ScanExhausted(Exception):
    """The skill needs more steps than a scan may take."""


def merge(values: Iterable[Traced]) -> frozenset[str]:
    """Return where all the values come from together."""
    labels: frozenset[str] = _NO_LABELS
    for one in values:
        if one.labels:
            labels |= one.labels
    return labels


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name probably holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _PUBLIC_NAME.search(name)


class Ledger:
    """The notes about one skill. `path` and `first_line` are those of the text being read."""

    def __init__(self, skill_words: frozenset[str] = frozenset()) -> None:
        self.capabilities: dict[tuple[str, str], Capability] = {}
        self.findings: list[Finding] = []
        self.unseen: list[str] = []
        self.skill_words = skill_words
        # Whether the skill is described in English.
        self.is_english = False
        self.path, self.first_line = "", 1
        # Whether findings count one kind less, because the text only shows an example.
        self.weaker = False
        # Whether what is read as shell may be prose, so that not each line begins with a program.
        self.may_be_prose = False
        # Where code puts together the text being read; 0 for a text that is read as it stands.
        self.made_at = 0
        # What evaluates code of the skill, with the steps that are left; None before the first.
        self.evaluator: object | None = None
        self.nesting = 0
        # The hosts that code connects to, each with the first place.
        self.used_hosts: dict[str, tuple[str, int]] = {}
        self.named_keys: dict[str, tuple[str, int]] = {}
        # Data sent to hosts, judged once the whole skill was read.
        self.sent: dict[tuple[str, bool, bool], SentData] = {}
        self._steps = MAX_STEPS
        self.evaluation_steps = MAX_EVALUATION_STEPS
        # The parsing time that is left, and whether a parser ran out of it.
        self.parse_seconds = MAX_PARSE_SECONDS
        self.is_late = False
        # The index in `findings` by rule and line.
        self._finding_at: dict[tuple[str, str, int], int] = {}
        self._counts: Counter[tuple[str, str, FindingKind]] = Counter()
        self._of_a_kind: Counter[str] = Counter()
        self.read_shell: Callable[[str, int, Ledger], object] = lambda text, line, ledger: None
        # Modules and packages of Python that the skill has, as paths without the ending.
        self.own_modules: frozenset[str] = frozenset()
        # The text of a file that lies beside the one being read, or below the skill; "" if none.
        self.read_sibling: Callable[[str], str] = lambda path: ""
        self.read_code: Callable[[str, str, int, Ledger], object] = lambda *_: None
        self.read_text: Callable[[str, int, Ledger], object] = lambda *_: None
        # The path of the text whose log records go to a host, and that host.
        self.log_host: tuple[str, Traced] = ("", UNKNOWN)
        # Texts that write what they fetched to a file whose name is not known.
        self.unnamed_fetches: set[str] = set()
        # Values of data files that matter if a script acts on them, judged at the end.
        self.data_values: list[DataValue] = []
        # Key files that are put into another file, and whether a script publishes a folder.
        self.packed: list[tuple[str, int, str]] = []
        self.publishes = False
        # Files of the skill that other programs run by themselves, and which those are.
        self.automatic: dict[str, str] = {}
        # Files that one text of the skill fetched, and that another one may run.
        self.fetched: dict[str, Traced] = {}

    def spend(self, steps: int = 1) -> None:
        """Count the work; raise ScanExhausted when there was too much."""
        self._steps -= steps
        if self._steps < 0:
            raise ScanExhausted

    # --- notes -----------------------------------------------------------------------------------

    def can(self, kind: CapabilityKind, value: str, line: int) -> None:
        """Note that the text being read contains a capability."""
        value = shorten(one_line(value.replace(HOLE, "…")), 200)
        key = (kind, value)
        if not value or key in self.capabilities:
            return
        if self._of_a_kind[kind] >= MAX_OF_A_KIND:
            self.miss(f"capabilities of the kind {kind} after the first {MAX_OF_A_KIND}")
        else:
            self._of_a_kind[kind] += 1
            self.capabilities[key] = Capability(
                kind=kind, value=value, origin="contained", path=self.path, line=self._line(line)
            )

    def find(self, rule: str, line: int, detail: str, kind: FindingKind | None = None) -> None:
        """Note a finding; `kind` is its kind where that is weaker than the rule's."""
        row = RULES[rule]
        chosen = max(kind or row.kind, row.kind, key=KINDS.index)
        if self.weaker:
            chosen = KINDS[min(KINDS.index(chosen) + 1, len(KINDS) - 1)]
        at = self._line(line)
        place, count = (rule, self.path, at), self._counts[rule, self.path, chosen]
        at_index = self._finding_at.get(place)
        if at_index is None and count < _MAX_OF_A_RULE:
            at_index = self._find_index(chosen)
        elif at_index is None or KINDS.index(self.findings[at_index].kind) <= KINDS.index(chosen):
            return
        if at_index is None:
            return
        shown = shorten(one_line(detail.replace(HOLE, "…")), _SHOWN_CHARS)
        shown = f"{_PUT_TOGETHER}: {shown}" if self.made_at else shown
        finding = Finding(
            rule=rule,
            kind=chosen,
            path=self.path,
            line=at or None,
            message=f"{row.what}: {shown}" if shown else row.what,
            remedy=row.remedy,
        )
        self.findings[at_index : at_index + 1] = [finding]
        self._finding_at[place] = at_index
        self._counts[rule, self.path, chosen] = count + 1

    def _find_index(self, kind: FindingKind) -> int | None:
        """Return the index for a finding; when the list is full, that of the last weaker one.

        So many weak findings cannot push out a strong one.
        """
        if len(self.findings) < MAX_FINDINGS:
            return len(self.findings)
        self.miss(f"findings after the first {MAX_FINDINGS}, but for those that count for more")
        weaker = [
            at for at, one in enumerate(self.findings) if KINDS.index(one.kind) > KINDS.index(kind)
        ]
        if not weaker:
            return None
        gone = self.findings[weaker[-1]]
        self._finding_at = {place: at for place, at in self._finding_at.items() if at != weaker[-1]}
        self._counts[gone.rule, gone.path, gone.kind] -= 1
        return weaker[-1]

    def miss(self, what: str) -> None:
        """Note what was not read."""
        if what not in self.unseen and len(self.unseen) < MAX_OF_A_KIND:
            self.unseen.append(what)

    def _line(self, line: int) -> int:
        return max(self.made_at or line, 1) + self.first_line - 1

    # --- what a text does ------------------------------------------------------------------------

    def reads_variable(self, name: str, line: int) -> frozenset[str]:
        """Note a variable that is read; return the labels of its value."""
        if not name:
            return _NO_LABELS
        self.can("variable", name, line)
        return frozenset((f"variable:{name}",)) if is_secret_name(name) else _NO_LABELS

    def reads_file(self, path: str, line: int) -> frozenset[str]:
        """Note a file that is read; return the labels of its content."""
        plain = path.replace("\\", "/")
        kind = place_class(plain)
        if kind in ("credential", "service", "settings", "history"):
            self.can("read", plain, line)
            weak = kind == "settings" or (kind == "service" and self._is_about(plain))
            self.find("credential-access", line, plain, "note" if weak else None)
            return frozenset((kind, "file", f"{SERVICE_OF}{plain}"))
        if plain.startswith(("~", "/", "$HOME")) and plain != "/dev/null":
            self.can("read", plain, line)
        if looks_secret(plain.strip("/")) or is_env_file(plain):
            self.can("read", plain, line)
            return frozenset(("secret-file", "file"))
        return frozenset(("file",))

    def judge_collection(self, labels: frozenset[str], line: int) -> None:
        """Note secrets of several services in one place, none of which is the skill's."""
        names = [one.partition(":")[2] for one in labels if one.startswith("variable:")]
        strange = sorted(name for name in names if not self._fits(name, ""))
        if len(strange) > 1 and len(strange) == len(names):
            self.find("environment-read", line, ", ".join(strange))

    def _is_about(self, text: str) -> bool:
        """Whether the skill is about what the path or the variable belongs to."""
        return bool(self.skill_words & words_of(text))

    def is_own_host(self, host: str) -> bool:
        """Whether a host belongs to the subject of the skill, or to this machine."""
        return classify(host) == "own" or bool(
            (words_of(host) - _HOST_WORDS) & self.skill_words and classify(host) == ""
        )

    def names_key(self, folder: str, line: int) -> None:
        """Remember a file with keys that a sentence says to read."""
        self.named_keys.setdefault(folder, (self.path, self._line(line)))

    def judge_named_keys(self) -> None:
        """Judge the files with keys that sentences say to read: one skill needs those of one."""
        if len(self.named_keys) >= _MANY_KEYS:
            self.path, line = next(iter(self.named_keys.values()))
            self.first_line, self.weaker = 1, False
            self.find("credential-access", line, ", ".join(sorted(self.named_keys)))

    def vouches_for(self, host: str, path: str) -> bool:
        """Whether a program of this address is one that many run, or that of the skill's subject.

        At a host where anyone can publish, that depends on the publisher.
        """
        if not is_installer(host):
            return False
        publisher = publisher_of(host, path)
        if publisher is None or is_widely_used(publisher) or not publisher.strip("<>{}[]$*.…"):
            return True
        words = words_of(publisher) | {re.sub(r"[^a-z0-9]", "", publisher)}
        return bool((words - _PUBLISHER_WORDS) & self.skill_words)

    def keep_fetched(self, path: str, content: Traced) -> None:
        """Remember a file that was fetched, for the other texts of the skill."""
        if HOLE not in path and re.search(r"\w", path) and len(self.fetched) < MAX_OF_A_KIND:
            self.fetched.setdefault(path, content)

    def writes_file(self, path: str, line: int, content: Traced = UNKNOWN) -> None:
        """Note a file that is written."""
        plain = path.replace("\\", "/")
        kind = place_class(plain)
        if "net" in content.labels:
            self.keep_fetched(plain.removeprefix("./").strip("\"'"), content)
        if plain.startswith(("~", "/", "$HOME", "..")) and not plain.startswith("/dev/"):
            self.can("write", plain, line)
        if kind == "persistence":
            # Every guide has people set a variable in the start file of their shell.
            plainly = re.match(
                r"\s*(?:export )?(?!BASH_ENV|ENV=|LD_PRELOAD|DYLD_|PYTHONSTARTUP|PROMPT_COMMAND"
                r"|PERL5OPT|RUBYOPT|NODE_OPTIONS|GIT_SSH_COMMAND)[A-Z_]\w*=|\s*eval \"\$\(\w+ ",
                content.known,
            )
            self.can("persistence", plain, line)
            self.find("persistence", line, plain, "note" if plainly else None)
        elif kind == "agent":
            self.can("agent-file", plain, line)
            own = HOLE in plain or self._is_about(plain.rpartition("/")[2])
            self.find("agent-file-change", line, plain, "note" if own else None)
        elif kind == "system" and not plain.startswith(_OPEN_DEVICES):
            self.find("privilege", line, f"writes {plain}", "note")
        if "net" in content.labels and place_class(plain) in ("persistence", "agent"):
            # A clone that is copied there is how many people install skills.
            self.find("fetch-and-run", line, plain, "ask" if "/skills" in plain else None)

    def names_url(
        self, text: str, line: int, *, used: bool = False, all_hosts: bool = True
    ) -> None:
        """Note the hosts that a text names; without `all_hosts` those that hide their owner."""
        if "://" not in text:
            return
        for found in find_urls(text):
            if all_hosts or classify(found.host, found.path) not in ("", "own"):
                self.reaches(found, line + text.count("\n", 0, found.at), used=used, code=False)

    def reaches(self, found: FoundUrl, line: int, *, used: bool = False, code: bool = True) -> None:
        """Note a host; `used` says that something connects to it, `code` that code does."""
        kind = classify(found.host, found.path)
        if kind == "own" or HOLE in found.host.split(".")[-1]:
            return
        self.can("host", found.host, line)
        if used and code and not self.weaker and not is_reserved(found.host):
            self.used_hosts.setdefault(found.host, (self.path, self._line(line)))
        if kind in ("drop", "tunnel") or kind == "address":
            self.find("suspect-host", line, found.host, "ask" if used else "note")
        elif kind == "short":
            self.find("suspect-host", line, found.host, "note")

    def fetches(self, address: Traced, line: int) -> frozenset[str]:
        """Note a request without a body; return the labels of its answer."""
        found = host_in(address.known)
        if found is not None:
            self.reaches(found, line, used=True)
        if address.labels:
            self.sends(address, address, line, part="address")
        return frozenset(
            ("net", f"from:{found.scheme}://{found.host}{found.path}" if found else "net")
        )

    def sends(self, data: Traced, address: Traced, line: int, *, part: str = "body") -> None:
        """Note data that leaves; `part` is body, header, address or name (a lookup)."""
        found = host_in(address.known)
        host = found.host if found else ""
        if found is not None:
            self.reaches(found, line, used=True)
        labels = data.labels
        if re.search("[a-z0-9]", host) and part == "body":
            self._remember_sent(host, labels, line)
        if classify(host) == "own":
            return
        drop = classify(host, found.path if found else "") in ("drop", "tunnel", "address")
        if part == "name":
            self._judge_lookup(address, labels, line, host)
        if labels & {"credential", "history", "watch"}:
            self.find("secret-to-network", line, host)
        elif "environment" in labels:
            self.find("environment-to-network", line, host)
        elif labels & {"service", "settings"}:
            own = self._is_host_of(host, labels)
            among_models = is_of_models(host) and _are_of_models(labels)
            # Settings of an agent hold addresses and keys that the user set up.
            least: FindingKind | None = (
                None if drop or ("service" in labels and not among_models) else "ask"
            )
            if part == "header" and not re.search("[a-z0-9]", host) and "service" in labels:
                # A service's own token, with the address in a variable that is not known.
                own, least = self._is_about(_places_of(labels)), "ask"
            self.find("secret-to-network", line, host, "note" if own else least)
        elif "secret-file" in labels and part != "header":
            self.find("secret-to-network", line, host, "block" if drop else "ask")
        else:
            self._sends_variable(labels, host, line, part=part, drop=drop)

    def judge_named_key(self, host: str, paths: Sequence[str], names: Sequence[str]) -> FindingKind:
        """Return the kind of an order to send files or variables with keys to a host."""
        kind = classify(host)
        if kind == "own":
            return "note"
        if any(place_class(path) in ("credential", "history") for path in paths):
            return "block"
        if paths and not kind:
            parts = [part for path in paths for part in (path, *re.split(r"[/.]", path))]
            labels = frozenset(f"{SERVICE_OF}{part} {service_of(part)}" for part in parts)
            return "ask" if self._is_host_of(host, labels) else "block"
        if names and not paths and not kind:
            if all(self._fits(name, host) for name in names):
                return "note"
            return "ask" if is_known(host) else "block"
        return "block"

    def _judge_lookup(self, address: Traced, labels: frozenset[str], line: int, host: str) -> None:
        """Judge a name that is looked up: a secret in it, or data before a fixed domain."""
        secret = labels & {"credential", "service", "settings", "environment", "secret-file"}
        if secret or any(one.startswith("variable:") for one in labels):
            self.find("dns-exfiltration", line, host)
        elif labels & {"file", "command", "system"} and "." in address.known.partition(HOLE)[2]:
            self.find("dns-exfiltration", line, host, "ask")

    def _remember_sent(self, host: str, labels: frozenset[str], line: int) -> None:
        file = bool(labels & {"file", "command", "watch", "system"})
        key = (host, file, self.weaker)
        if is_reserved(host) or key in self.sent:
            return
        if len(self.sent) >= MAX_OF_A_KIND:
            self.find("unseen-part", line, f"data for more than {MAX_OF_A_KIND} hosts")
            return
        self.sent[key] = SentData(
            host=host, path=self.path, line=self._line(line), file=file, weaker=self.weaker
        )

    def judge_sent(self, declared: Callable[[str], bool]) -> None:
        """Judge the hosts that got data by what the skill declares and describes."""
        names = self.skill_words | words_of(
            " ".join(one.value for one in self.capabilities.values() if one.kind == "variable")
        )
        for one in self.sent.values():
            kind = classify(one.host)
            words = words_of(one.host) - _HOST_WORDS
            squeezed = re.sub(r"[^a-z0-9]", "", one.host)
            known = words & names or any(len(name) > 3 and name in squeezed for name in names)
            if kind == "own" or known or declared(one.host):
                continue
            is_found = any(
                (finding.path, finding.line) == (one.path, one.line)
                and RULES[finding.rule].family == "exfiltration"
                for finding in self.findings
            )
            if not is_found and (kind == "hosting" or (one.file and not is_known(one.host))):
                self.path, self.first_line, self.weaker = one.path, 1, one.weaker
                self.find("data-to-unknown-host", one.line, one.host)
        self.weaker = False

    def _is_host_of(self, host: str, labels: frozenset[str]) -> bool:
        """Whether a host belongs to the skill, or is that of the service whose keys are sent."""
        if words_of(host) & self.skill_words:
            return True
        places = words_of(_places_of(labels)) - _PLACE_WORDS
        return is_known(host) and any(word in host for word in places)

    def _sends_variable(
        self, labels: frozenset[str], host: str, line: int, *, part: str, drop: bool
    ) -> None:
        names = sorted(one.partition(":")[2] for one in labels if one.startswith("variable:"))
        strange = [name for name in names if not self._fits(name, host)]
        if strange and drop:
            self.find("data-to-suspect-host", line, f"{strange[0]} to {host}")
        elif strange and part != "header" and host:
            self.find("variable-to-network", line, f"{strange[0]} to {host}")
        elif drop and labels & {"file", "system", "command"}:
            self.find("data-to-suspect-host", line, host)
        elif len(names) >= 4 and part != "header":
            self.find("variable-to-network", line, f"{len(names)} secrets to {host or 'a host'}")

    def _fits(self, name: str, host: str) -> bool:
        """Whether a variable belongs to the host or to the skill."""
        words = words_of(name) - _COMMON_WORDS
        squeezed = re.sub(r"[^a-z0-9]", "", host)
        if not words:  # a general name fits any host, unless it guards all of a system
            return not re.search(r"(?i)database|passw|private|session|jwt|master", name)
        return any(
            word in squeezed or any(word in own or own in word for own in self.skill_words)
            for word in words
        )

    # --- running ---------------------------------------------------------------------------------

    def runs_code(self, code: Traced, line: int, how: str, language: str = "python") -> None:
        """Note that a value is run as code of a language."""
        labels = code.labels
        if "net" in labels:
            self._runs_fetched(labels, line, how)
        elif "decoded" in labels:
            self.find("decode-and-run", line, how)
        elif labels & {"file"} and "hidden-file" in labels:
            self.find("dynamic-code", line, how)
        elif code.text is None or HOLE in code.text:
            self.find("dynamic-code", line, how, "note")
        self.shows(code, line, how)
        if code.text and self.nesting < MAX_NESTING:
            self._nested(code.text, line, language)

    def _runs_fetched(self, labels: frozenset[str], line: int, how: str) -> None:
        origins = [one[5:] for one in sorted(labels) if one.startswith("from:")]
        kinds: list[FindingKind] = []
        for origin in origins:
            scheme, _, rest = origin.partition("://")
            host, _, path = rest.partition("/")
            if classify(host, f"/{path}") in ("drop", "tunnel", "address", "short"):
                kinds.append("block")
            elif scheme in ("https", "") and self.vouches_for(host, f"/{path}"):
                kinds.append("note")
            else:
                kinds.append("ask")
        kind: FindingKind = min(kinds, key=KINDS.index) if kinds else "ask"
        if "decoded" in labels:
            kind = "block"
        places = " ".join(one.removeprefix("://") for one in origins)
        self.find("fetch-and-run", line, f"{how} {places}"[:200], kind)

    def shows(self, text: Traced, line: int, how: str) -> None:
        """Note a text that is printed or run and that only a run decodes."""
        known = text.text or HOLE
        if SPELLED in text.labels and (HOLE in known or not "".join(known.split()).isprintable()):
            self.find("opaque-payload", line, f"{how} of what only a run decodes")

    def runs_shell(self, command: Traced, line: int, how: str) -> None:
        """Note a command line that is handed to a shell."""
        labels = command.labels
        if "net" in labels:
            self._runs_fetched(labels, line, how)
        elif "decoded" in labels:
            self.find("decode-and-run", line, how)
        self.shows(command, line, how)
        if command.text and self.nesting < MAX_NESTING:
            self._nested(command.text, line, "shell")

    def reads_made_text(self, text: str, line: int) -> None:
        """Note what a text says and does that code at this line puts together."""
        before, self.made_at = self.made_at, self.made_at or max(line, 1)
        try:
            self._nested(text, line, "text")
        finally:
            self.made_at = before

    def _nested(self, text: str, line: int, language: str) -> None:
        # Charge for the text: a short command can run a long text many times.
        self.spend(len(text) // _CHARS_OF_A_STEP)
        self.nesting += 1
        try:
            if language == "shell":
                self.read_shell(text, line, self)
            elif language == "text":
                self.read_text(text, line, self)
            else:
                self.read_code(text, language, line, self)
        finally:
            self.nesting -= 1


def _places_of(labels: frozenset[str]) -> str:
    """Return the names of the files, or of the services, that keys come from."""
    return " ".join(one[len(SERVICE_OF) :] for one in labels if one.startswith(SERVICE_OF))


def _are_of_models(labels: frozenset[str]) -> bool:
    """Whether all files that data comes from hold keys of services that answer with a model.

    In a script that takes the first key it finds, the scan cannot tell the keys apart.
    """
    places = [one[len(SERVICE_OF) :] for one in labels if one.startswith(SERVICE_OF)]
    return bool(places) and all(words_of(place) & _MODEL_WORDS for place in places)


_MODEL_WORDS = words_of("openai anthropic gemini mistral groq openrouter huggingface")
# The prefix of a label that names the file of a secret.
SERVICE_OF = "of:"
_PLACE_WORDS = words_of("config home users api key token json credentials auth com app www")
_COMMON_WORDS = words_of(
    "api key token secret password access auth credentials private user client app bot admin "
    "service url host default env prod dev test app_id id my the session bearer account webhook "
    "database smtp db"
)
# Devices that every program may write to.
_OPEN_DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "tty", "std", "fd/", "shm/", "pts/")
)
# Words that say nothing about who publishes.
_PUBLISHER_WORDS = words_of(
    "the and for dev labs lab tools tool code app apps skill skills agent agents data github git "
    "team org project projects open source software cloud web core community official user users "
    "use using with your from this that network social create read write file files script scripts "
    "install setup automation assistant online free pro hub api"
)
_HOST_WORDS = words_of(
    "www api com org net app dev cloud http https upload data server host service backup files"
)
__all__ = [
    "HOLE",
    "MAX_NESTING",
    "UNKNOWN",
    "Ledger",
    "ScanExhausted",
    "Traced",
    "is_reserved",
    "is_secret_name",
    "merge",
]
