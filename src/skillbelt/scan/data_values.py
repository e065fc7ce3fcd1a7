"""Read the values of data files: places, commands and names that a script takes from them.

A script that "applies the settings" does what its data says. A place, a list of files or a command
in data is judged when a script of the skill reads that file and writes, packs, sends or runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from posixpath import basename, dirname, splitext

from skillbelt.scan.addresses import find_urls, is_known, is_reserved
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.light_code import HIDDEN_SPELLINGS, SPELLED
from skillbelt.scan.places import place_class
from skillbelt.scan.values import MAX_OF_A_KIND, DataValue
from skillbelt.text import Lazy

# Words of which each place that matters here has one.
_HINTS = (
    ".ssh", "authorized_keys", "rc.local", ".bashrc", ".zshrc", ".profile", ".bash_", ".zshenv",
    ".zprofile", "config.fish", "sudoers", "/cron", "crontab", "systemd/", "aunchAgents",
    "aunchDaemons", "autostart", "tartup", "git/hooks", "sitecustomize", "site-packages/",
    "ld.so.preload", "profile.d", "urrentVersion", "$PROFILE", "_profile.ps1", ".aws", ".netrc",
    ".npmrc", ".pypirc", ".kube", ".docker/config", ".git-credentials", ".gnupg", "id_rsa",
    "id_ed25519", ".config/gh", ".config/gcloud", ".azure", "eychains", "Login Data", "ookies",
    "_history", ".pgpass", ".vault-token", ".password-store", ".claude", ".codex", ".mozilla",
    "google-chrome", "Chrome/", "wallet.dat", ".electrum", ".config/op", ".terraform.d", "/pam.d",
    ".cargo/credentials", ".gem/credentials", ".s3cfg", ".boto", "/etc/shadow",
)  # fmt: skip
_MAX_HITS = 40
_MAX_LINE = 2_000
_FIELDS = Lazy(
    r"[\"'`,;|<>\t\[\]{}()]|\s=\s|=>|->|→|(?<=\w)[:=](?=\s|[~$/.%])|\s{1,9}(?=[~$/.%])|\s{2,}"
)
# Before a value: what is left out, or the login key that a program of this kind needs.
_LEFT_OUT = Lazy(
    r"(?i)exclu|ignor|skip|deny|denied|block|forbid|sensitive|protect|redact|secret.?pattern|mask"
    r"|never|unsafe|danger|disallow|scrub|filter|private_?key|identity|key_?file|ssh_?key|pubkey"
    r"|public_?key|example|schema|description|placeholder"
)
# The key of a list of what is left out, with the list going on.
_LEFT_OUT_LIST = Lazy(
    r"(?i)(?:exclu|ignor|skip|deny|block|forbid|sensitive|protect|redact|secret|never|disallow"
    r"|mask)\w{0,40}"
    r"[\"']?[ \t]{0,9}[:=]\s{0,9}\[?[ \t]{0,9}\n(?:[ \t]{0,40}(?:-[ \t]|[\"'~$./#])"
    r"[^\n]{0,120}\n){0,20}\Z"
)
_LETTERS = Lazy(r"(?<!\S)[\"'(]?[^\W\d_]{2,}[\"'),.;:]?(?!\S)")
_KEY_PATH = Lazy(r"(?<![\w.-])~?[\w/-]{0,40}\.[a-z][\w./-]{2,60}")
_HOST_NAME = Lazy(r"\.(?:com|net|org|io)\b")
_READS_PLACES = ("credential", "service", "settings", "history")
_OUTSIDE = ("~", "$", "%", "/", ".", "C:", "c:", "HKCU", "HKEY", "%")

# What a script that reads a data file does.
_WRITES = Lazy(
    r"(?i)write|append|install\b|copy|\bcp\b|\bmv\b|\btee\b|>>|\bln\b|symlink|out-file|set-content"
    r"|add-content|copy-item|rename|move|open\([^\n]{0,80}['\"][wax]|file_put_contents|fwrite"
)
_TAKES = Lazy(
    r"(?i)\btar\b|zip\b|tarfile|zipfile|make_archive|archiver|copy|\bcp\b|rsync|scp\b|curl|wget"
    r"|urlopen|requests\.|httpx|fetch\(|axios|upload|\bpost\b|\bput\b|socket|send|print|write|cat\b"
    r"|read_text|readfile|read_bytes|get-content|\bnc\b|echo|puts"
)

# A command that is a value by itself, with no pipe in it.
_COMMAND = Lazy(
    r"(?m)(?:^[ \t]{0,20}(?:-[ \t]{1,9})?|[\"'=:>`][ \t]{0,9}|^[^\n:=]{1,60}[:=][ \t]{0,9})"
    r"((?:sudo[ \t]{1,9}|env[ \t]{1,9}|nohup[ \t]{1,9}|eval[ \t]{1,9}|exec[ \t]{1,9}){0,3}"
    r"(?:curl|wget|nc|ncat|scp|rsync|sftp|rm|tar|zip|base64|bash|sh|zsh|python3?|node|perl|ruby|php"
    r"|chmod|chown|install|cp|mv|cat|dd|ssh|crontab|launchctl|systemctl|schtasks|reg|git|eval|gh"
    r"|source|powershell|pwsh|osascript|docker|useradd|usermod|dig|nslookup|rclone|aws|gpg|openssl"
    r"|tee|echo|printf)[ \t]{1,9}[^\n`]{3,600})"
)
_COMMAND_SIGNS = (
    "curl ", "wget ", "nc ", "ncat ", "scp ", "rsync ", "rm -", "base64 ", "sh -c", "bash ", "tee ",
    "chmod ", "crontab", "launchctl", "systemctl", "schtasks", "-enc", "eval ", ".ssh", "git "
    "config",
    "docker run", "useradd", "usermod", "dig ", "nslookup ", "/dev/tcp", "rclone ", "osascript",
    "source <(", "mkfs", "dd if", "authorized_keys", "sudoers",
)  # fmt: skip
# A value that a program reads as a list of words.
_WORD_LIST = Lazy(
    r"\[\s{0,9}[\"'](?:sudo|bash|sh|zsh|curl|wget|nc|scp|rsync|rm|tar|zip|cat|cp|dd|ssh|git|dig"
    r"|nslookup"
    r"|powershell|pwsh|install|docker)[\"'](?:\s{0,20},\s{0,20}(?:\"[^\"\n]{0,300}\"|'"
    r"[^'\n]{0,300}'))"
    r"{1,30}\s{0,20}\]"
)
_WORD = Lazy(r"\"([^\"\n]{0,300})\"|'([^'\n]{0,300})'")
_MAX_SPELLED = 64 * 2**10
_SENTENCE_WORDS = 6
# Files that describe machines to be made.
_OTHER_MACHINES = (".bicep", ".tf", ".tfvars")
_ENGLISH = Lazy(r"(?i)\b(?:the|and|to|with|your|see|for|from|is|are|of|this|at|in|or|by)\b")


def read_data_file(text: str, ledger: Ledger) -> None:
    """Note the places, the commands and the spelled names that a data file holds."""
    if _is_no_source(ledger.path):
        return
    ledger.spend(1 + len(text) // 500)
    for number, line, before in _find_lines(text):
        if not _LEFT_OUT_LIST.search(before):
            _read_line(line, number, ledger)
    for command, number in find_data_commands(text):
        ledger.read_shell(command, number, ledger)
    if len(text) <= _MAX_SPELLED:
        _find_spelled(text, ledger)


def _is_no_source(path: str) -> bool:
    name = basename(path).lower()
    return name.endswith(("ignore", ".lock", "lock.json", ".svg", ".map")) or name.startswith(
        "license"
    )


def _find_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the lines with a hint, and what stands before; of a long line what is near."""
    seen: set[int] = set()
    for hint in _HINTS:
        at = text.find(hint)
        hits = 0
        while at >= 0 and hits < _MAX_HITS:
            start = text.rfind("\n", max(at - _MAX_LINE, 0), at) + 1
            end = text.find("\n", at, at + _MAX_LINE)
            is_long = (end < 0 and len(text) > at + _MAX_LINE) or (not start and at > _MAX_LINE)
            start, end = max(start, at - _MAX_LINE // 4), end if end >= 0 else at + _MAX_LINE // 4
            if is_long or start not in seen:
                seen.add(start)
                hits += 1
                number = text.count("\n", 0, start) + 1
                yield (
                    number,
                    text[start : min(end, at + _MAX_LINE // 4)],
                    text[max(start - 400, 0) : start],
                )
            at = text.find(hint, at + _MAX_LINE // 4 if is_long else end)


def _read_line(line: str, number: int, ledger: Ledger) -> None:
    place_found = False
    at = 0
    for field in islice(_FIELDS.split(line), 200):
        found = line.find(field, at) if field else -1
        at = found + len(field) if found >= 0 else at
        value = (field or "").strip().strip("\"'`,;:").rstrip("/.")
        if not 3 < len(value) < 160 or not value.startswith(_OUTSIDE) or _HOST_NAME.search(value):
            continue
        if " " in value and not re.search(r"(?i)login data|start menu|user data", value):
            continue
        if _LEFT_OUT.search(line, max(found - 60, 0), max(found, 0)):
            continue
        if value.endswith("authorized_keys") and ledger.path.endswith(_OTHER_MACHINES):
            continue
        rule, needs = _judge_place(value)
        if rule and len(ledger.data_values) < MAX_OF_A_KIND:
            place_found = True
            ledger.data_values.append(
                DataValue(
                    rule=rule,
                    kind="ask",
                    path=ledger.path,
                    line=number,
                    value=value,
                    needs=needs,
                    weaker=ledger.weaker,
                )
            )
    if not place_found:
        _judge_foreign_order(line, number, ledger)


def _judge_place(value: str) -> tuple[str, re.Pattern[str]]:
    """Return the rule for a place, and what a script must do with it."""
    place = place_class(value) or place_class(f"{value}/hosts.yml")
    if "sudoers" in value:
        return "privilege", _WRITES
    if place == "persistence":
        return "persistence", _WRITES
    return ("credential-access" if place in _READS_PLACES else ""), _TAKES


def _judge_foreign_order(line: str, number: int, ledger: Ledger) -> None:
    """Note a key file that a sentence in another language than English names, in data."""
    if len(line) <= 40 or _count_words(line) < _SENTENCE_WORDS or _ENGLISH.search(line):
        return
    for path in islice(_KEY_PATH.findall(line), 10):
        if not _HOST_NAME.search(path) and place_class(path) in (
            "credential",
            "service",
            "history",
        ):
            ledger.find("ask-for-secret", number, line.strip()[:80], "ask")
            return


def _count_words(line: str) -> int:
    """Return about how many words a line has, also where no blanks part them."""
    plain = len(_LETTERS.findall(line))
    return max(plain, (len(line) - len(line.encode("ascii", "ignore"))) // 2)


def find_data_commands(text: str) -> Iterator[tuple[str, int]]:
    """Yield the commands that are values by themselves, with their lines."""
    seen: set[int] = set()
    for sign in _COMMAND_SIGNS:
        at, hits = text.find(sign), 0
        while at >= 0 and hits < _MAX_HITS:
            start = text.rfind("\n", max(at - _MAX_LINE, 0), at) + 1
            start = start or max(at - _MAX_LINE, 0)
            end = text.find("\n", at, at + _MAX_LINE)
            end = end if end >= 0 else at + _MAX_LINE
            if start not in seen:
                seen.add(start)
                hits += 1
                number = text.count("\n", 0, start) + 1
                for command in _find_commands(text[start:end]):
                    yield command, number
            at = text.find(sign, end)


def _find_commands(line: str) -> Iterator[str]:
    for match in islice(_COMMAND.finditer(line), 20):
        command = match[1].strip().rstrip(",")
        before = line[match.start(1) - 1 : match.start(1)]
        if before in "\"'" and before:
            command = command.partition(before)[0] if f"\\{before}" not in command else command
        command = command.replace('\\"', '"').replace("\\n", "\n")
        if any(sign in command for sign in _COMMAND_SIGNS):
            odd = command[-1:] in ("'", '"') and command.count(command[-1]) % 2
            yield command[:-1] if odd else command
    for match in islice(_WORD_LIST.finditer(line), 20):
        words = [one or two for one, two in _WORD.findall(match[0])]
        yield " ".join(f"'{one}'" if " " in one else one for one in words)


def _find_spelled(text: str, ledger: Ledger) -> None:
    """Note names of programs and functions that are written backwards or with other letters."""
    words = set(SPELLED.findall(text))
    for word in words:
        plain = HIDDEN_SPELLINGS.get(word.lower())
        if plain is not None:
            line = text.count("\n", 0, text.find(word)) + 1
            ledger.find("reflective-call", line, f"{word}: {plain}", "ask")


def judge_data_values(ledger: Ledger, scripts: list[str], read: Callable[[str], str]) -> None:
    """Judge the values of data files that a script of the skill reads and acts on."""
    if not ledger.data_values or not scripts:
        return
    texts = [text for path in scripts[:60] if (text := read(path))]
    readers: dict[str, list[str]] = {}
    for one in ledger.data_values:
        if one.path not in readers:
            readers[one.path] = [text for text in texts if _reads(text, one.path)]
        if any(one.needs.search(text) for text in readers[one.path]):
            ledger.path, ledger.first_line, ledger.weaker = one.path, 1, one.weaker
            ledger.find(one.rule, one.line, one.value, one.kind)
    ledger.weaker = False


def _reads(text: str, path: str) -> bool:
    """Whether a script names a data file, its ending, or its folder with a choice of files."""
    name, folder = basename(path), basename(dirname(path))
    stem, ending = splitext(name)
    if name in text or (ending and any(f"{mark}{ending}" in text for mark in "\"'*}`")):
        return True
    quoted = folder and any(f"{mark}{folder}{mark}" in text for mark in "\"'/")
    quoted = quoted or (folder and any(f"{mark}{folder}/" in text for mark in "\"'/ "))
    return bool(quoted) and (stem in text or "*" in text or "iterdir" in text or "$" in text)


def names_unknown_host(text: str) -> str:
    """Return the first unknown host of a text; "" if there is none."""
    for found in find_urls(text, 20):
        if not is_known(found.host) and not is_reserved(found.host):
            return found.host
    return ""
