"""Search code of any language for what is plain in its text.

For languages that are not parsed (PowerShell, Ruby, Go and others), and beside the parsers for what
needs no data flow. A pattern knows less than a parser, so most of these say less, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from skillbelt.scan.addresses import classify, find_urls, is_installer
from skillbelt.scan.decoding import decode_text, opaque_blob
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.values import FindingKind

MAX_SEARCHED = 256 * 2**10


class _CodePattern(NamedTuple):
    rule: str
    kind: FindingKind
    needs: tuple[str, ...]
    form: re.Pattern[str]


def _code(rule: str, kind: FindingKind, needs: str, form: str) -> _CodePattern:
    return _CodePattern(rule, kind, tuple(needs.split()), re.compile(form, re.IGNORECASE))


_ANYWHERE = (
    _code("reverse-shell", "block", "socket pty.spawn /dev/tcp fsockopen tcpsocket new-object",
          r"socket\.socket\([^\n]{0,200}connect\([^\n]{0,300}(?:dup2|subprocess|/bin/(?:ba)?sh)"
          r"|fsockopen\([^\n]{0,200}(?:exec|shell_exec|system|/bin/sh)|TCPSocket\.(?:new"
          r"|open)\([^\n]{0,200}(?:exec|/bin/sh)"
          r"|Net\.Sockets\.TCPClient\([\s\S]{0,600}(?:iex|Invoke-Expression|GetStream)"
          r"|net\.Socket\(\)[\s\S]{0,300}(?:spawn|exec)\(['\"](?:/bin/)?(?:ba)?sh"
          r"|use Socket;[\s\S]{0,300}exec\s*\{?['\"]/bin/sh"),
    _code("reverse-shell", "block", "mkfifo mknod",
          r"mk(?:fifo|nod)\s+\S+[\s\S]{0,120}(?:nc|ncat|netcat|telnet|openssl)\b[\s\S]{0,80}"),
    _code("fetch-and-run", "ask", "iex invoke-expression",
          r"(?:irm|iwr|invoke-restmethod|invoke-webrequest"
          r"|downloadstring)\b[^\n]{0,300}(?:\|\s*iex|\|\s*invoke-expression)"
          r"|(?:iex|invoke-expression)\b[^\n]{0,120}(?:irm|iwr|invoke-restmethod"
          r"|invoke-webrequest|downloadstring|new-object net\.webclient)"),
    _code("decode-and-run", "block", "frombase64string -enc",
          r"(?:iex|invoke-expression)[^\n]{0,200}frombase64string"
          r"|frombase64string[^\n]{0,300}(?:iex|invoke-expression)"
          r"|powershell[^\n]{0,80}\s-e(?:nc|ncodedcommand|c)?\s+[A-Za-z0-9+/=]{40,}"),
    _code("decode-and-run", "block", "eval( assert(",
          r"\beval\s*\(\s*(?:gzinflate|base64_decode|str_rot13|gzuncompress|atob|unescape"
          r"|Buffer\.from|Base64\.(?:strict_)?decode64)\s*\("),
    _code("destruction", "block", "remove-item format-volume /s",
          r"remove-item\b[^\n]{0,80}(?:\$home|\$env:userprofile"
          r"|c:\\)[\\/]?\*?\s[^\n]{0,60}-recurse|format-volume\b|\brd\s+/s\s+/q\s+(?:c:\\?"
          r"|%userprofile%)"),
    _code("persistence", "ask", "schtasks currentversion new-scheduledtask register-scheduledtask "
    "$profile startup",
          r"schtasks\s+/create|currentversion\\+run\b|(?:new|register)-scheduledtask\b|(?:add"
          r"|set)-content\b[^\n]{0,40}\$profile"),
    _code("guard-off", "ask", "set-mppreference set-executionpolicy windefend",
          r"set-mppreference\b[^\n]{0,80}(?:disable|exclusion)|sc\s+(?:stop|delete)\s+windefend"),
    _code("surveillance", "block", "getasynckeystate setwindowshookex keylog cgeventtap",
          r"getasynckeystate|setwindowshookex|cgeventtapcreate|\bkey_?logger\.(?:start|run)\b"),
    _code("miner", "block", "xmrig stratum coinhive cryptonight minerd",
          r"\bxmrig\b|stratum\+(?:tcp|ssl)://|coinhive\.min|\bcryptonight\b|\bminerd\s+-"),
    _code("trace-removal", "ask", "histfile clear-eventlog wevtutil",
          r"unset\s+histfile|histfile=/dev/null|clear-eventlog|wevtutil\s+cl\b"),
    _code("environment-read", "ask", "environ process.env getchilditem",
          r"(?:get-childitem|gci|dir)\s+env:[^\n]{0,80}(?:key|token|secret|pass)"
          r"|object\.(?:keys|entries)\(process\.env\)[^\n]{0,80}(?:key|token|secret|pass)"),
)  # fmt: skip
_SINK = re.compile(
    r"(?i)\b(?:curl|wget|invoke-webrequest|invoke-restmethod|requests\.(?:post|put)|http\.post"
    r"|urlopen|fetch\(|axios|net/http"
    r"|httpclient|uploadstring|uploadfile|sendbeacon|\.post\(|file_put_contents\(['\"]http"
    r"|lwp::useragent|net::http)"
)
_OTHER_READS = frozenset(("credential", "history"))


def search_code(text: str, line: int, ledger: Ledger, *, parsed: bool) -> None:
    """Note what is plain in a text; `parsed` says that a parser followed its values, too."""
    text = text[:MAX_SEARCHED]
    ledger.spend(1 + len(text) // 100)
    folded = text.lower()
    for rule, kind, needs, form in _ANYWHERE:
        if any(word in folded for word in needs):
            for match in form.finditer(text):
                at = line + text.count("\n", 0, match.start())
                ledger.find(rule, at, match[0], _usual(match[0]) or kind)
                break
    blob = opaque_blob(text)
    if blob is not None:
        _judge_blob(blob, text, line, ledger)
    if not parsed:
        _search_unparsed(text, line, ledger)


def _usual(text: str) -> FindingKind | None:
    """Return what a fetch counts for where all of it comes from well-known installers."""
    hosts = [found.host for found in find_urls(text)]
    return "note" if hosts and all(map(is_installer, hosts)) else None


def _judge_blob(blob: re.Match[str], text: str, line: int, ledger: Ledger) -> None:
    at = line + text.count("\n", 0, blob.start())
    plain = decode_text("base64", blob[0]) or ""
    runs = re.search(
        r"(?i)\b(?:exec|eval|import os|subprocess|child_process|curl|/bin/|powershell)\b", plain
    )
    ledger.names_url(plain, at)
    ledger.find("opaque-payload", at, f"{len(blob[0]):,} characters", None if runs else "note")


def _search_unparsed(text: str, line: int, ledger: Ledger) -> None:
    """Note hosts and paths, and credentials in a text that also sends."""
    ledger.names_url(text, line)
    sink = _SINK.search(text)
    for path, at in find_paths(text):
        number = line + text.count("\n", 0, at)
        if place_class(path) in _OTHER_READS:
            ledger.can("read", path, number)
            ledger.find("credential-access", number, path)
            if sink:
                ledger.find("secret-to-network", number, path, "ask")
    for found in find_urls(text):
        if sink and classify(found.host, found.path) in ("drop", "tunnel", "address"):
            number = line + text.count("\n", 0, found.at)
            ledger.find("suspect-host", number, found.host, "ask")
