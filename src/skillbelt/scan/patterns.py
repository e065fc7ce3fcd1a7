"""Search code of any language with patterns.

They serve languages without a parser (PowerShell, Ruby, Go and others), and add to the parsers what
needs no data flow. A pattern is less sure than a parser, so most findings are weaker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import classify, find_urls
from skillbelt.scan.decoding import decode_text, opaque_blob
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.light_code import judge_any_code, read_light
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.values import KINDS, FindingKind
from skillbelt.text import Lazy

MAX_SEARCHED = 512 * 2**10


class _CodePattern(NamedTuple):
    """A pattern: each match has one of `needs`, one of `also`, and `most` characters if not 0."""

    rule: str
    kind: FindingKind
    needs: tuple[str, ...]
    form: re.Pattern[str]
    also: tuple[str, ...] = ("",)
    most: int = 0


def _code(
    rule: str, kind: FindingKind, needs: str, form: str, *, also: str = "", most: int = 0
) -> _CodePattern:
    others = tuple(also.split()) or ("",)
    return _CodePattern(
        rule, kind, tuple(needs.split()), Lazy(form, re.IGNORECASE), also=others, most=most
    )


# Hosts from which packages are usually installed.
_USUAL_INDEX = (
    r"(?:[\w-]{1,40}\.)?(?:npmjs\.(?:org|com)|yarnpkg\.com|pypi\.org|pythonhosted\.org|pytorch\.org"
    r"|pkg\.github\.com|pkg\.dev|jsr\.io|npmmirror\.com|nvidia\.com|localhost|127\.0\.0\.1"
    r"|[\w.-]{1,60}\.(?:amazonaws\.com|pkg\.dev|azure\.com|gitlab\.com))\b"
)
_ANYWHERE = (
    _code("reverse-shell", "block", "socket.socket( fsockopen( tcpsocket. "
          "sockets.tcpclient( net.socket() socket;",
          r"socket\.socket\([^\n]{0,200}connect\([^\n]{0,300}(?:dup2|subprocess|/bin/(?:ba)?sh)"
          r"|fsockopen\([^\n]{0,200}(?:exec|shell_exec|system|/bin/sh)|TCPSocket\.(?:new"
          r"|open)\([^\n]{0,200}(?:exec|/bin/sh)"
          r"|Net\.Sockets\.TCPClient\([\s\S]{0,600}(?:iex|Invoke-Expression|GetStream)"
          r"|net\.Socket\(\)[\s\S]{0,300}(?:spawn|exec)\(['\"](?:/bin/)?(?:ba)?sh"
          r"|use Socket;[\s\S]{0,300}exec\s*\{?['\"]/bin/sh"),
    _code("reverse-shell", "block", "mkfifo mknod",
          r"mk(?:fifo|nod)\s+\S[\s\S]{0,200}?(?:nc|ncat|netcat|telnet|openssl)\b[\s\S]{0,80}"),
    _code("fetch-and-run", "ask", "iex invoke-expression",
          r"(?:irm|iwr|invoke-restmethod|invoke-webrequest"
          r"|downloadstring)\b[^\n]{0,300}(?:\|\s*iex|\|\s*invoke-expression)"
          r"|(?:iex|invoke-expression)\b[^\n]{0,120}(?:irm|iwr|invoke-restmethod"
          r"|invoke-webrequest|downloadstring|new-object net\.webclient)",
          also="irm iwr invoke-restmethod invoke-webrequest downloadstring net.webclient"),
    _code("fetch-and-run", "ask", "net::http uri.open file_get_contents lwp:: http.get curl_exec",
          r"\b(?:eval|assert|instance_eval|create_function|loadstring|load)\b[ (]{0,3}[^\n]{0,80}"
          r"(?:net::http\.|uri\.open\(|file_get_contents\(\s*['\"]https?:|lwp::simple|curl_exec\("
          r"|http\.get\()"),
    _code("fetch-and-run", "ask", "runinthiscontext runinnewcontext runincontext data:text/java",
          r"https?['\"]\)\.get\([\s\S]{0,300}\brunin(?:this|new)?context\("
          r"|\bfetch\([\s\S]{0,200}\bimport\(\s*['\"`]data:text/javascript"),
    _code("fetch-and-run", "ask", "instance_eval class_eval module_eval",
          r"\b(?:instance|class|module)_eval\b[\s\S]{0,250}(?:net::http\.get|uri\.open"
          r"|open-uri)|(?:net::http\.get|uri\.open|open-uri)[\s\S]{0,250}"
          r"\b(?:instance|class|module)_eval\b"),
    _code("fetch-and-run", "ask", "eval",
          r"\beval\b[ ({]{0,3}get ?\(? ?(?:qq?[{(/|]|['\"])https?:", most=22),
    _code("reverse-shell", "ask", "/inet/tcp/ /inet/udp/ /inet4/",
          r"/inet4?/(?:tcp|udp)/\d[\s\S]{0,400}?[^|&]\|[ \t]{0,9}getline"),
    _code("dynamic-code", "ask", "worker(",
          r"\bnew\s{1,9}(?:\w{1,40}\.)?Worker\((?!\s{0,9}['\"`])[^\n]{0,200}\beval[\"']?\s{0,9}:"
          r"\s{0,9}(?:true|!0)"),
    _code("fetch-and-run", "ask", "file_get_contents curl_exec",
          r"\$\w{1,60}\(\s{0,9}(?:file_get_contents\(\s{0,9}['\"]https?:|curl_exec\()"),
    _code("package-elsewhere", "ask", "registry index-url index_url npmregistryserver",
          r"(?:^|\n|\bset\s{1,9}|\bexport\s{1,9}|['\"])\s{0,9}(?:(?:global|install|user)\.)?(?:@"
          r"[\w-]"
          r"{1,40}:)?(?:registry|(?:extra-)?index-url|npmRegistryServer|(?:PIP|UV)_(?:EXTRA_"
          r"|DEFAULT_)?"
          r"INDEX_URL|NPM_CONFIG_REGISTRY)['\"]?\s{0,9}[=: ]\s{0,9}['\"]?https?://"
          rf"(?!{_USUAL_INDEX})[\w.-]{{1,100}}", most=224),
    _code("fetch-and-run", "ask", "array_map call_user_func array_walk usort",
          r"\b(?:array_map|call_user_func(?:_array)?|array_walk|usort)\([^\n]{0,120}"
          r"(?:file_get_contents\(\s*['\"]https?:|curl_exec\()"),
    _code("fetch-and-run", "ask", "exec.command(",
          r"http\.get\([\s\S]{0,600}exec\.command\(\s*\"(?:/bin/)?(?:ba|z)?sh\",\s*\"-c\",\s*"
          r"(?:string\(|\w+[,)])"),
    _code("decode-and-run", "block", "pack(",
          r"\b(?:system|exec|eval|qx)\b[^\n]{0,40}\bpack\(\s{0,9}['\"]H\*?['\"]\s{0,9},\s{0,9}['\"]"
          r"[0-9a-f]{16}"),
    _code("decode-and-run", "block", "[scriptblock]",
          r"\[scriptblock\]::create\([^\n]{0,200}frombase64string"),
    _code("fetch-and-run", "ask", "source( include(",
          r"\bsource\(\s{0,9}(?:url\(\s{0,9})?['\"]https?://"
          r"|\binclude\(\s{0,9}(?:[\w.]{1,30}\()?(?:download\(\s{0,9})?['\"]https?://"),
    _code("fetch-and-run", "ask", "url(",
          r"new url\(\s{0,9}['\"]https?://[^\n]{0,200}\.(?:text|openstream)\b[\s\S]{0,400}?"
          r"(?:\.execute\(|\bevaluate\()", most=646),
    # Classes and libraries that are loaded from bytes of the network
    _code("fetch-and-run", "ask", "assembly.load( assembly].load( "
          "assembly::load( assembly]::load( urlclassloader(",
          r"(?:getbytearrayasync|downloaddata|getstreamasync|openread|webclient)\b[\s\S]{0,800}?"
          r"\bassembly\]?(?:\.|::)load\(|\bassembly\]?(?:\.|::)load\([^\n]{0,200}"
          r"(?:getbytearrayasync"
          r"|downloaddata|webclient)|\burlclassloader\([^\n]{0,120}https?://"),
    _code("data-to-unknown-host", "ask", "program",
          r"\bto\s{1,9}program\s{1,9}'[^'\n]{0,200}https?://", most=236),
    _code("fetch-and-run", "ask", "program",
          r"\bfrom\s{1,9}program\s{1,9}'[^'\n]{0,40}\b(?:curl|wget)\b", most=74),
    _code("secret-to-network", "ask", ".env",
          r"startswith\(\s{0,9}['\"]\.env['\"]\s{0,9}\)[\s\S]{0,300}?readfile[\s\S]{0,400}?"
          r"(?:\bfetch\(|\baxios\b|\brequest\()", most=752),
    _code("dynamic-code", "ask", "[scriptblock]",
          r"\[scriptblock\]::create\(\s{0,9}(?!['\"])[^\n]{1,200}"),
    _code("reflective-call", "ask", "[char[]]",
          r"\[char\[\]\]\s{0,9}\(\s{0,9}\d{2,3}(?:\s{0,9},\s{0,9}\d{2,3}){8,}"),
    _code("data-to-unknown-host", "ask", "document.cookie localstorage sessionstorage",
          r"(?:document\.cookie|json\.stringify\(\s{0,9}(?:window\.)?(?:local|session)storage\b)"
          r"[\s\S]{0,400}?(?:\.src\s{0,9}=|sendbeacon\(|fetch\(|\.open\(|axios\b)"
          r"[^\n]{0,60}https?://"),
    _code("reflective-call", "ask", "gcm get-command",
          r"\b(?:gcm|get-command)\s+['\"]?(?:i\*x|i\*e\*x?|\*ke-ex\*|in\*ex\w*\*|i\?x|\?ex|ie\?)"),
    _code("fetch-and-run", "ask", "certutil bitsadmin",
          r"\bcertutil\b[^\n]{0,60}-urlcache\b[^\n]{0,120}https?://"
          r"|\bbitsadmin\b[^\n]{0,60}/transfer\b"),
    _code("decode-and-run", "block", "frombase64string powershell",
          r"(?:iex|invoke-expression)[^\n]{0,200}frombase64string"
          r"|frombase64string[^\n]{0,300}(?:iex|invoke-expression)"
          r"|powershell[^\n]{0,80}\s-e(?:nc|ncodedcommand|c)?\s+[A-Za-z0-9+/=]{40,}"),
    _code("decode-and-run", "block", "eval",
          r"\beval\s*\(\s*(?:gzinflate|base64_decode|str_rot13|gzuncompress|atob|unescape"
          r"|Buffer\.from|Base64\.(?:strict_)?decode64)\s*\(",
          also="gz base64 rot13 atob unescape buffer"),
    _code("destruction", "block", "remove-item format-volume /q",
          r"remove-item\b[^\n]{0,80}(?:\$home|\$env:userprofile"
          r"|c:\\)[\\/]?\*?\s[^\n]{0,60}-recurse|format-volume\b|\brd\s+/s\s+/q\s+(?:c:\\?"
          r"|%userprofile%)", also="remove-item format-volume c: %userprofile%"),
    _code("persistence", "ask", "schtasks currentversion -scheduledtask $profile",
          r"schtasks\s+/create|currentversion\\+run\b|(?:new|register)-scheduledtask\b|(?:add"
          r"|set)-content\b[^\n]{0,40}\$profile"),
    _code("guard-off", "ask", "set-mppreference set-executionpolicy windefend",
          r"set-mppreference\b[^\n]{0,80}(?:disable|exclusion)|sc\s+(?:stop|delete)\s+windefend"),
    _code("surveillance", "block", "getasynckeystate setwindowshookex keylog key_log cgeventtap",
          r"getasynckeystate|setwindowshookex|cgeventtapcreate|\bkey_?logger\.(?:start|run)\b"),
    _code("miner", "block", "xmrig stratum coinhive cryptonight minerd",
          r"\bxmrig\b|stratum\+(?:tcp|ssl)://|coinhive\.min|\bcryptonight\b|\bminerd\s+-"),
    _code("trace-removal", "ask", "histfile clear-eventlog wevtutil",
          r"unset\s+histfile|histfile=/dev/null|clear-eventlog|wevtutil\s+cl\b"),
    _code("environment-read", "ask", "env: (process.env)",
          r"(?:get-childitem|gci|dir)\s+env:[^\n]{0,80}(?:key|token|secret|pass)"
          r"|object\.(?:keys|entries)\(process\.env\)[\s\S]{0,80}(?:key|token|secret|pass)",
          also="get-childitem gci dir object."),
)  # fmt: skip
_SINK = Lazy(
    r"(?i)\b(?:curl|wget|invoke-webrequest|invoke-restmethod|requests\.(?:post|put)|http\.post"
    r"|urlopen|fetch\(|axios|net/http"
    r"|httpclient|uploadstring|uploadfile|sendbeacon|post\(|file_put_contents\(['\"]http"
    r"|lwp::useragent|net::http)"
)
# Parts that needed words share: most texts have none of them.
_SHARED = ("eval", "sock", "::", "runin", "/inet", "array_", "registry", "storage", "env", "set-")


def _group_words() -> dict[str, list[str]]:
    """Return the words that patterns need, below the part that they share with others."""
    found: dict[str, list[str]] = {}
    for word in dict.fromkeys(word for pattern in _ANYWHERE for word in pattern.needs):
        part = next((part for part in _SHARED if part in word), word)
        found.setdefault(part, []).append(word)
    return found


_NEEDED = tuple(_group_words().items())
# In a language that is not parsed: a request, and a value that is run as code.
_FETCHES = Lazy(
    r"(?i)\b(?:http\.(?:request|get)\(|reqwest::|net::http|uri\.open|lwp::|curl_exec"
    r"|file_get_contents\(\s{0,9}['\"]https?:|socket\.http|msxml2\.|winhttp\.|urlsession"
    r"|http\.client)"
)
_RUNS_VALUE = Lazy(
    r"(?i)\b(?:load(?:string)?\(\s{0,9}\w{1,60}\s{0,9}\)\s{0,9}\(|executeglobal\s"
    r"|command::new\(\s{0,9}\"(?:/bin/)?(?:ba|z|da)?sh\"\s{0,9}\)\s{0,9}\.arg\(\s{0,9}\"-c\""
    r"|eval\(?\s{0,9}\$\w|getruntime\(\)\.exec\(\s{0,9}[a-z])"
)
# Each match of the patterns for requests has one of these.
_FETCHING = (
    "http", "reqwest::", "uri.open", "lwp::", "curl_exec", "file_get_c", "msxml2.", "urlsess",
)  # fmt: skip
_SENDING = (
    "http", "curl", "wget", "invoke-", "requests.p", "urlopen", "fetch(", "axios", "uploads",
    "uploadf", "sendbeacon", "post(", "lwp::",
)  # fmt: skip
_OTHER_READS = frozenset(("credential", "history"))
_SERVICE_READS = frozenset(("service", "settings"))
# Not behind a template of `pack`.
_BETWEEN_PARTS = Lazy(r"(?<![AaHh][\d*])['\"][ \t]{0,9},[ \t]{0,9}['\"]")
# A request with a body, in a text that also reads a file.
_OPENS = Lazy(
    r"(?i)\b(?:open|read|children|glob|readdir|opendir|scandir|slurp|cat|cp|copy|list|walk|each"
    r"|get-content|get-childitem|exec|include|tar|zip)|\.read"
)
_POSTS = Lazy(
    r"(?i)\b(?:post|put)(?:async|form|json|_form)?\s{0,3}\(|uploadstring|uploadfile|\.post\b"
)
_READS = Lazy(
    r"(?i)\b(?:readfile|read_to_string|file\.read|file\.open|readalltext|readallbytes|io\.open"
    r"|file_get_contents|slurp|get-content|readstring|files\.read\w{0,20})\b"
)


# The switch of a request, in a list of words, behind which a file stands.
_UPLOADS = Lazy(
    r"['\"](?:-F|-T|-d|--form|--upload-file|--data(?:-binary|-raw)?)['\"]\s{0,9},"
    r"(?:[^\n]{0,60}@|\s{0,9}&?\w)"
)


# All variables at once, in languages that are not parsed, but where a program inherits them.
_ALL_VARIABLES = Lazy(
    r"\bENV\.(?:to_h(?:ash)?|select|map|inspect|to_a|sort|filter_map|reject)\b"
    r"|(?<!append\()\bos\.Environ\(\)(?!\.{3})|\benv::vars\(\)|\bSystem\.getenv\(\)"
    r"|\bSys\.getenv\(\)"
    r"|\bGetEnvironmentVariables\(\)|\bjson_encode\(\s{0,9}(?:\$_ENV|getenv\(\))|%ENV\b"
)


def _takes_file(text: str) -> bool:
    reads_and_posts = _POSTS.search(text) is not None and _READS.search(text) is not None
    return reads_and_posts or _UPLOADS.search(text) is not None


def search_code(text: str, line: int, ledger: Ledger, *, parsed: bool, shell: bool = False) -> None:
    """Search a text with patterns; `parsed` says that a parser followed its values, too."""
    text = text[:MAX_SEARCHED]
    ledger.spend(1 + len(text) // 100)
    folded = text.lower()
    _search_anywhere(text, folded, line, ledger)
    for name, at in find_composed(folded):
        ledger.find("reflective-call", line + at, name)
    blob = opaque_blob(text)
    if blob is not None:
        _judge_blob(blob, text, line, ledger)
    judge_any_code(text, line, ledger, followed=shell)
    if not parsed:
        _search_unparsed(text, folded, line, ledger)


def search_plainly(text: str, line: int, ledger: Ledger) -> None:
    """Search a file of settings or data, which a program may never run."""
    if ledger.path.endswith(_SIGNATURES):
        return
    text = text[:MAX_SEARCHED]
    ledger.spend(1 + len(text) // 200)
    _search_anywhere(text, text.lower(), line, ledger, at_most="ask")


# Files of signatures: they contain what scanners look for.
_SIGNATURES = (".yar", ".yara", ".rules")


def _search_anywhere(
    text: str, folded: str, line: int, ledger: Ledger, *, at_most: FindingKind = "block"
) -> None:
    there = {word for part, words in _NEEDED if part in folded for word in words if word in folded}
    for one in _ANYWHERE if there else ():
        if there.isdisjoint(one.needs) or not any(word in folded for word in one.also):
            continue
        match = _search_near(one, text, folded) if one.most else one.form.search(text)
        if match is not None:
            at = line + text.count("\n", 0, match.start())
            chosen = max(_usual(match[0], ledger) or one.kind, at_most, key=KINDS.index)
            ledger.find(one.rule, at, match[0], chosen)


def _search_near(one: _CodePattern, text: str, folded: str) -> re.Match[str] | None:
    """Return the first match of a pattern; only text near the words it needs is searched."""
    if len(folded) != len(text):  # a letter became two in lower case, so the places would differ
        return one.form.search(text)
    start = end = 0
    for at in sorted(at for word in one.needs for at in _find_all(word, folded)):
        if at - one.most > end:
            if end and (match := one.form.search(text, start, end)) is not None:
                return match
            start = at - one.most
        end = at + one.most + 1
    return one.form.search(text, max(start, 0), end) if end else None


def _find_all(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


# Names of PowerShell and PHP functions that a text puts together from parts.
_PARTS_IN_ORDER = Lazy(
    r"(['\"])((?:\{\d\}){2,12})\1\s{0,9}-f\s{0,9}((?:['\"][^'\"\n]{1,40}['\"],?\s{0,9}){2,12})"
)
_PARTS_JOINED = Lazy(r"(?:['\"][\w:.-]{1,20}['\"]\s{0,3}\.\s{0,3}){1,8}['\"][\w:.-]{1,20}['\"]")
_PARTS_ADDED = Lazy(r"(?:['\"][\w:.-]{1,20}['\"]\s{0,3}\+\s{0,3}){1,8}['\"][\w:.-]{1,20}['\"]")
_TURNED = Lazy(r"\bstrrev\(\s{0,9}['\"](\w{3,40})['\"]")
_HIDDEN_NAMES = frozenset(
    ("downloadstring", "downloadfile", "downloaddata", "iex", "invoke-expression", "system",
     "frombase64string", "shell_exec", "passthru", "popen", "proc_open", "assert", "eval", "exec",
     "base64_decode", "create_function", "str_rot13", "gzinflate",
     "file_get_contents", "net.webclient", "invoke-webrequest", "scriptblock")
)  # fmt: skip


def find_composed(folded: str) -> Iterator[tuple[str, int]]:
    """Yield names of functions that run or fetch and that a text puts together, with lines."""
    ordered = _PARTS_IN_ORDER.finditer(folded) if "}{" in folded and "-f" in folded else iter(())
    for match, line in number_lines(ordered, folded):
        parts = re.findall(r"['\"]([^'\"]+)['\"]", match[3])
        order = [int(one) for one in re.findall(r"\d", match[2])]
        name = "".join(parts[one] for one in order if one < len(parts))
        if name in _HIDDEN_NAMES:
            yield name, line
    plus = _PARTS_ADDED.finditer(folded) if "new-object" in folded else iter(())
    for match, line in number_lines(plus, folded):
        name = "".join(re.findall(r"[\w:-]+|\.", match[0]))
        if name in _HIDDEN_NAMES:
            yield name, line
    if "<?php" in folded:
        for match, line in number_lines(_PARTS_JOINED.finditer(folded), folded):
            name = "".join(re.findall(r"[\w:-]+", match[0]))
            if name in _HIDDEN_NAMES:
                yield name, line
        for match, line in number_lines(_TURNED.finditer(folded), folded):
            if match[1][::-1] in _HIDDEN_NAMES:
                yield match[1][::-1], line


def _usual(text: str, ledger: Ledger) -> FindingKind | None:
    """Return the weaker kind of a fetch from well-known installers only; None for another one."""
    vouched = [ledger.vouches_for(found.host, found.path) for found in find_urls(text)]
    return "note" if vouched and all(vouched) else None


def _judge_blob(blob: re.Match[str], text: str, line: int, ledger: Ledger) -> None:
    at = line + text.count("\n", 0, blob.start())
    plain = decode_text("base64", blob[0]) or ""
    runs = re.search(
        r"(?i)\b(?:exec|eval|import os|subprocess|child_process|curl|/bin/|powershell)\b", plain
    )
    ledger.names_url(plain, at)
    ledger.find("opaque-payload", at, f"{len(blob[0]):,} characters", None if runs else "note")


def _search_unparsed(text: str, folded: str, line: int, ledger: Ledger) -> None:
    """Note hosts and paths, and credentials in a text that also sends."""
    ledger.names_url(text, line)
    read_light(text, line, ledger)
    fetches = any(word in folded for word in _FETCHING) and _FETCHES.search(text)
    if fetches and (runs := _RUNS_VALUE.search(text)):
        ledger.find("fetch-and-run", line + text.count("\n", 0, runs.start()), runs[0], "ask")
    sink = _SINK.search(text) if any(word in folded for word in _SENDING) else None
    if sink and (all_of_them := _ALL_VARIABLES.search(text)):
        number = line + text.count("\n", 0, all_of_them.start())
        ledger.find("environment-to-network", number, all_of_them[0], "ask")
    # Parts of a path that a call joins: `Join(home, ".kube", "config")`.
    joined = _BETWEEN_PARTS.sub("/", text)
    for path, at in find_paths(joined):
        number = line + joined.count("\n", 0, at)
        if place_class(path) in _OTHER_READS:
            ledger.can("read", path, number)
            # A folder that is named, and of which nothing is read or written, may be a test.
            looked_at = path.endswith(".ssh") and not _OPENS.search(text)
            ledger.find("credential-access", number, path, "note" if looked_at else None)
            if sink:
                ledger.find("secret-to-network", number, path, "ask")
        elif sink and place_class(path) in _SERVICE_READS and _takes_file(text):
            ledger.can("read", path, number)
            ledger.find("secret-to-network", number, path, "ask")
    for found in find_urls(text):
        if sink and classify(found.host, found.path) in ("drop", "tunnel", "address"):
            number = line + text.count("\n", 0, found.at)
            ledger.find("suspect-host", number, found.host, "ask")
