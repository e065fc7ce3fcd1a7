"""Read code of languages without a parser: names in pieces, and data that leaves or is deleted.

The strings of a text are collected, and put together in the ways that code does it: joined, turned
around, decoded, chosen by numbers from a list. A name of a key file or of a program that only
appears then was hidden from readers. No language is parsed, so all of this is a question at most.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, product

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import is_known, is_reserved
from skillbelt.scan.decoding import decode_text
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.places import PlaceClass, find_named_place
from skillbelt.scan.values import FindingKind
from skillbelt.text import Lazy

# Strings of a text that are looked at, and the parts of one list.
_MAX_STRINGS = 3_000
_MAX_PARTS = 64
_MAX_MADE = 4_000
_MAX_GAP = 40

_STRING = Lazy(
    r"%[wWiI][\[({<]([^\])}>\n]{1,400})[\])}>]|\bqw\s{0,3}[\[({</]([^\])}>/\n]{1,400})[\])}>/]"
    r"|'((?:[^'\\\n]|\\.){0,400}+)'|\"((?:[^\"\\\n]|\\.){0,400}+)\""
)
# What stands between two parts of one list or one sum.
_BETWEEN = Lazy(r"\s{0,30}(?:[,+.&]|\.\.|<>|\|\||[\])}]\s{0,3},\s{0,3}[\[({])?\s{0,30}_?\s{0,9}\Z")
_CODES = Lazy(
    r"(?:0x[0-9a-fA-F]{2}|\d{2,3})(?:\s{0,9},\s{0,9}(?:0x[0-9a-fA-F]{2}|\d{2,3})){3,400}+"
)
_CALLED_CODES = Lazy(
    r"(?i)(?:\(?(?:chrw?|string\.char|\[char\]|ascii character|character id)\s{0,3}\(?\s{0,3}"
    r"(?:0x[0-9a-f]{2}|\d{2,3})\s{0,3}\)?\s{0,9}[.+&,]{0,2}\s{0,9}){3,400}+"
)
_NUMBERS = Lazy(r"[\[({]\s{0,3}(\d{1,2}(?:\s{0,3},\s{0,3}\d{1,2}){0,9})\s{0,3}[\])}]")
_NUMBER = Lazy(r"0x[0-9a-fA-F]{2}|\d{1,3}")
# Variables that hold a short string, and sums of variables.
_HOLDS = Lazy(
    r"\$?\b([A-Za-z_]\w{0,39})[ \t]{0,9}(?::=|=|<-)[ \t]{0,9}(?:'([^'\\\n]{1,40})'|\"("
    r"[^\"\\\n]{1,40})\")"
)
_SUM = Lazy(
    r"\$?\b[A-Za-z_]\w{0,39}(?:[ \t]{0,3}(?:\.\.|[.+&]|<>)[ \t]{0,3}\$?[A-Za-z_]\w{0,39}){1,8}+"
)
_NAME = Lazy(r"[A-Za-z_]\w{0,39}")
_TURNS = ("revers", "rot13", "rot-13", "rot_13", "n-za-m", "rev(", "rev ")

_POWERS = frozenset(
    re.split(
        r"\s+",
        """system exec execute eval popen spawn shell_exec passthru proc_open invoke-expression iex
    invoke-webrequest invoke-restmethod downloadstring downloadfile start-process os.execute
    io.popen loadstring removeall rm_rf remove_tree unlink instance_eval class_eval urlopen
    urlretrieve child_process subprocess environ webrequest execsync spawnsync scriptblock
    frombase64string create_function call_user_func gethostbyname net.webclient powershell
    powershell.exe wscript.shell webclient __import__ builtins getenv processbuilder
    runtime.exec invoke expression rmtree lookuphost getaddress""",
    )
)
# Too common as words to be looked for in joined lists.
_WORDS = frozenset(("invoke", "expression", "execute", "environ", "spawn", "exec", "unlink", "iex"))
# Names that only stand in the folders of keys, of starts and of rights.
_NAMES: dict[str, PlaceClass] = {
    "authorized_keys": "persistence", "authorized_keys2": "persistence", "id_rsa": "credential",
    "id_ed25519": "credential", "id_ecdsa": "credential", "sudoers.d": "persistence",
    "sudoers": "persistence", "crontab": "persistence", "launchagents": "persistence",
    "launchdaemons": "persistence", ".bash_profile": "persistence", ".bashrc": "persistence",
    ".zshrc": "persistence", ".zshenv": "persistence", ".profile": "persistence",
    "currentversion\\run": "persistence", "rc.local": "persistence", "ld.so.preload": "persistence",
}  # fmt: skip
_PROGRAM_NAMES = frozenset(
    (
        "bash",
        "curl",
        "wget",
        "python3",
        "/bin/sh",
        "/bin/bash",
        "sh -c",
        "cmd.exe",
        "ncat",
        "netcat",
    )
)
_HOME_FOLDERS = frozenset(
    re.split(
        r"\s+",
        """documents desktop pictures downloads backups backup photos movies music library onedrive
    dropbox dokumente bilder""",
    )
)
_DELETES = Lazy(
    r"(?i)\b(?:os\.remove(?:all)?|rm_rf?|remove_tree|rmtree|unlink|remove-item|removeitem"
    r"|file\.delete|files\.delete\w*|deleterecursively|remove_dir_all|removeall|rmdirsync|rmsync"
    r"|rmdir\s{1,3}/s|del\s{1,3}/[sqf]|directory\.delete|deletefile|deletefolder|file\.remove)\b"
)
_SENDS = Lazy(
    r"(?i)\b(?:curl|wget|invoke-webrequest|invoke-restmethod|net::http|net/http|http\.post"
    r"|http\.newrequest|httpparty|httparty|faraday|restclient|open-uri|uri\.open|lwp::|http::tiny"
    r"|io::socket|tcpsocket|udpsocket|fsockopen|curl_exec|stream_socket_client|net\.dial"
    r"|socket\.http|socket\.tcp|socket\.udp|httr|rcurl|url\(|httpurlconnection|httpclient"
    r"|urlsession|webclient|uploadstring|uploaddata|uploadfile|msxml2|winhttp|reqwest|net\.socket"
    r"|tcpstream|udpclient|mail\(|smtp)"
)
_LOOKS_UP = Lazy(
    r"(?i)\b(?:resolv\.get\w{1,20}|resolv::dns|gethostbyname2?|getaddrinfo|net\.lookup\w{1,8}"
    r"|lookup(?:host|addr|ip|txt)|dns\.(?:gethost\w{1,20}|lookup|resolve\w{0,9}|toip|query)"
    r"|resolve-dnsname|dns_get_record|checkdnsrr|getmxrr|inetaddress\.get\w{1,9}|net::dns"
    r"|nslookup|dns\.resolver|to_socket_addrs|lookup_host|inet_aton|getaddress(?:es)?"
    r"|gethostaddresses|gethostentry|addrinfo\.\w{1,12})\b"
)
# A name whose first part is data, before a fixed domain.
_DATA_LABEL = Lazy(
    r"(?:#?\{[^{}\"'\n]{1,60}\}|\$\{?\w{1,40}\}?|%[sdvx]|\$\([^\"\n]{1,80}\))[\w-]{0,20}"
    r"(?:\.(?:#?\{[^{}\"'\n]{1,60}\}|\$\{?\w{1,40}\}?|%[sdvx]|[\w-]{1,40})){0,6}?"
    r"\.((?:[a-z0-9-]{1,40}\.){1,5}[a-z]{2,12})[\"'`.]"
    r"|[\"']\.((?:[a-z0-9-]{1,40}\.){1,5}[a-z]{2,12})\.?[\"']",
    re.IGNORECASE,
)
_ENCODES = Lazy(
    r"(?i)unpack1?\b|encodetostring|tohexstring|bin2hex|base32|base64|hexencode|%02x|encode_hex"
    r"|readfile|binread|file\.read|slurp|getenv|environ|gethostname|os\.hostname|\benv\b|env\["
    r"|file_get_contents|readalltext|readallbytes|get-content|io\.open|open\s"
)
# A function that deletes or runs, kept under another name.
_RENAMED = Lazy(
    r"(?m)(?::=|(?<![=!<>])=)\s{0,9}(?:os\.(?:RemoveAll|execute)|exec\.Command|io\.popen"
    r"|FileUtils\.method\(:\w{1,20}\)|method\(:(?:system|exec|eval|rm_rf|`)\)"
    r"|\\?&(?:CORE::)?(?:system|unlink|exec|eval))\s{0,9};?\s{0,9}$"
)
# What takes a text apart, in the call of what runs it.
_RUNS_MADE = Lazy(
    r"(?i)(?:\b(?:eval|exec|system(?!\.(?:text|convert|io|net)\b)|load|loadstring|invoke-expression|iex|instance_eval|assert"
    r"|os\.execute|io\.popen|popen|process\.start|run script|do shell script|qx|execute"
    r"|executeglobal|source)\b|\bdo\.call\b|\bmatch\.fun\b|(?<![\w-])(?:public_)?send\s{0,3}\(|\.(?:public_)?send\b|\bconst_get\b"
    r"|__send__)[^\n]{0,60}?(?:\.reverse\b|\brev\(|strrev|rot13|\.tr\(|\btr/|unpack|\bpack\s{0,3}\("
    r"|\bchr\(|string\.char|rawtochar|inttoutf8|chartr|base64|hex2bin|frombase64|character id"
    r"|ascii character|:reverse\(|strreverse|\[char)"
)
# A command of PowerShell whose name is computed: what is called, and how it was made.
_CALLED_VALUE = Lazy(r"(?m)(?:^|[=;({|])[ \t]{0,20}[&.][ \t]{1,9}\$(\w{1,40})\b")
_MADE_NAME = Lazy(
    r"(?i)\$(\w{1,40})[ \t]{0,9}=[^\n]{0,120}?(?:'[ \t]{0,9}-f\b|\"[ \t]{0,9}-f\b|-join"
    r"|\.replace\(|-replace"
    r"|\[char|reverse|\.substring\(|tochararray|frombase64|'[ \t]{0,9}\+[ \t]{0,9}'|\[-1|\[\d{1,3}"
    r"[,.])"
)
_CALLED_SUM = Lazy(
    r"(?m)(?:^|[=;({|])[ \t]{0,20}[&.][ \t]{0,9}\([ \t]{0,9}(?:'[^'\n]{1,40}'[ \t]{0,9}\+|\"[^\"\n]"
    r"{1,40}\"[ \t]{0,9}(?:\+|-f)|'[^'\n]{1,40}'[ \t]{0,9}-f|\$\w{1,40}(?:\.\w{1,40}){0,4}"
    r"[ \t]{0,9}\+|-join|\[string\]::join|\(?[^\n()]{1,80}-join)"
)
# Letters of a batch file that are cut out of variables, or commands of two variables.
_CUT_LETTER = Lazy(r"[%!]\w{1,30}:~-?\d{1,3}(?:,-?\d{1,3})?[%!]")
_TWO_VARIABLES = Lazy(r"(?m)^[ \t]{0,20}@?(?:call[ \t]{1,9})?%\w{1,30}%%\w{1,30}%")
# A variable of PHP that holds a name made from pieces, and is called.
_PHP_NAME = Lazy(
    r"\$(\w{1,40})\s{0,9}=\s{0,9}(?:implode|join|strrev|str_rot13|base64_decode|hex2bin|pack|chr"
    r"|strtr|str_replace|substr|array_reduce)\s{0,3}\("
)
_PHP_CALL = Lazy(r"\$(\w{1,40})\s{0,9}\(")
# The table of all functions, with a computed name.
_ALL_FUNCTIONS = Lazy(
    r"\b(?:_G|_ENV|os|io|getfenv\(\))\[\s{0,9}(?!['\"]\w{1,40}['\"]\s{0,9}\]|\w{0,9}\d\s{0,3}\])"
    r"[^\]\n]{1,80}(?:\.\.|char|reverse|concat|sub\()[^\n]{0,80}\]"
    r"|&\{\s{0,9}(?:\\?[\"']?\w{0,20}::)?[^}\n]{0,40}(?:\.|join|reverse|pack)"
    r"[^}\n]{0,60}\}\s{0,9}\("
    r"|\bmethodbyname\(\s{0,9}[^\"\s)]|\bclass\.forname\([^\"\n]{0,60}[+(]",
    re.IGNORECASE,
)
_READS_KEYS: frozenset[PlaceClass] = frozenset(("credential", "service", "settings", "history"))
_ALL_OF_ENVIRONMENT = Lazy(
    r"(?i)\bENV\.(?:each\w{0,12}|to_h(?:ash)?|select|map|inspect|to_a|sort|filter_map|reject"
    r"|keys)\b"
    r"|\benv::vars\(|\b(?:keys|values|each)\s{1,3}%ENV\b|\\%ENV\b|[({=,]\s{0,3}%ENV\b|\$_ENV\b"
    r"(?!\[)"
    r"|getenv\(\s{0,3}\)|\b(?:get-childitem|gci|dir|ls)\s{1,3}env:(?![\w\\])"
    r"|GetEnvironmentVariables"
    r"|popen\(\s{0,3}[\"'](?:env|printenv|set)\b|`(?:env|printenv)`|qx.(?:env|printenv)\b"
    r"|environment\.getenvironmentvariables|(?m:^\s{0,9}set\s{0,3}>)"
    r"|ProcessInfo\S{0,20}\.environment\b"
)


# What these names look like backwards, and with letters 13 places on.
HIDDEN_SPELLINGS = {
    spelled: name
    for name in (
        *_POWERS,
        "curl",
        "wget",
        "bash",
        "https",
        "http://",
        "https://",
        "/bin/sh",
        "content",
    )
    for spelled in (name[::-1], decode_text("rot13", name) or "")
    if len(spelled) > 3
}


SPELLED = Lazy(r"(?<![\w/+.-])[A-Za-z_.:/-]{4,40}(?![\w/+=-])")


class _Piece(NamedTuple):
    """A string of a text, or the words of a list in one: where it begins and ends."""

    parts: tuple[str, ...]
    start: int
    end: int


# Code that strangers write, and that a text takes out of what they wrote and runs.
_NEAR = 4_000
_STRANGERS = Lazy(
    r"(?i)\bgh[\"', ]{1,4}(?:issue|pr|api)\b|/issues/|/comments\b|/pulls/|issue_comment"
    r"|\.get_comments\("
    r"|\.listcomments|imaplib|poplib|messages\(\)\.(?:list|get)|conversations[._]history|getupdates"
    r"|channel\.history|\.messages\.fetch|feedparser|praw\.|/discussions|\bnotes\.list|glab"
)
_TAKES_BLOCK = Lazy(
    r"```[\w\\+*?()|:-]{0,40}?(?:\\[nsSr]|\[|\(|\.\*)|(?:split|find|indexof|index|startswith"
    r"|startswith\?"
    r"|rfind|partition)\(\s{0,3}[\"'`](?:```|~~~)|codeblock|code_block|\bfenced\b"
    r"|(?:select|find|find_all|queryselector|queryselectorall|css|xpath)\(\s{0,3}[\"'](?://)?"
    r"(?:pre|code)\b",
    re.IGNORECASE,
)
_RUNS_TEXT = Lazy(
    r"(?i)\b(?:subprocess\.\w{1,20}|os\.(?:system|popen)|exec(?:sync|file|filesync)?|eval|spawn"
    r"(?:sync)?"
    r"|runpy\.\w{1,12}|child_process|new function|vm\.run\w{1,20}|system|popen|instance_eval"
    r"|invoke-expression|iex)\s{0,3}\(|\b(?:bash|sh|zsh|python3?|node)[\"']?[ ,]{1,3}[\"']?(?:-c\b"
    r"|[\w./$-]{1,60})"
)
# The function that loads modules, handed on as a value; modules handed to a template.
_LOADER_AS_VALUE = Lazy(
    r"(?:(?<![=!<>])=|[,:(\[])\s{0,9}__import__\b(?!\s{0,3}\()"
    r"|\.globals(?:\[[\"']\w{1,40}[\"']\]\s{0,3}=|\.update\([^\n]{0,80}=)\s{0,3}(?:eval|exec"
    r"|getattr|open|os"
    r"|subprocess|sys|importlib(?:\.import_module)?|__builtins__|builtins)\b"
)
_REMOTE_TEMPLATE = Lazy(
    r"(?:FunctionLoader|DictLoader|from_string|Template|Handlebars\.compile|ERB\.new|render_string"
    r"|renderString)\s{0,3}\([^\n]{0,120}\b(?:urlopen|requests\.get|httpx\.get|fetch|axios"
    r"(?:\.get)?"
    r"|Net::HTTP\.get|URI\.open|got)\s{0,3}\("
)
_FETCHES_TEXT = Lazy(r"\b(?:urlopen|requests\.get|httpx\.get|urllib3|aiohttp)\b")


_HOME_MARKS = (
    "homedir(",
    "expanduser",
    "Path.home",
    "Dir.home",
    "HOME",
    "USERPROFILE",
    "HomeDir",
    "~/",
)
_BLOCK_MARKS = ("```", "~~~", "ode_block", "odeblock", "odeBlock", "fenced", '"code', "'code",
                '"pre',
                "'pre", "//pre", "//code")  # fmt: skip
_SENDS_ANY = Lazy(
    r"\b(?:fetch|axios|requests\.(?:post|put)|urlopen|httpx|https?\.request|curl|wget|sendBeacon"
    r"|net\.connect"
    r"|createConnection|socket|http\.client|got|Net::HTTP|http\.Post)\b"
)
_DOTTED_CHOICE = Lazy(
    r"\^?\\?\.(?:\((?:\?:)?([\w-]{1,20}(?:\|[\w-]{1,20}){1,7})\)|\{([\w-]{1,20}(?:,"
    r"[\w-]{1,20}){1,7})\})[\w.\\-]{0,20}"
)


def _names_strangers(text: str, at: int) -> bool:
    """Whether what others wrote is read near a place."""
    return _STRANGERS.search(text, max(at - _NEAR, 0), at + _NEAR) is not None


def judge_any_code(text: str, line: int, ledger: Ledger, *, followed: bool = False) -> None:
    """Note what needs no data flow in code of any language, parsed or not."""
    # A shell's commands are followed.
    fenced = not followed and any(mark in text for mark in _BLOCK_MARKS)
    fenced = fenced and _STRANGERS.search(text) is not None and _RUNS_TEXT.search(text) is not None
    block = _TAKES_BLOCK.search(text) if fenced else None
    if block is not None and _names_strangers(text, block.start()):
        at = line + text.count("\n", 0, block.start())
        ledger.find("fetch-and-run", at, "a block of code out of what others wrote", "ask")
    if any(mark in text for mark in ("\\.(", ".{")) and any(mark in text for mark in _HOME_MARKS):
        _judge_choices(text, line, ledger)
    if "__import__" in text or ".globals" in text:
        _find_once(_LOADER_AS_VALUE, "reflective-call", text, line, ledger)
    if any(
        mark in text
        for mark in ("Loader(", "from_string(", "Template(", "bars.compile(", "ERB.new(")
    ):
        _find_once(_REMOTE_TEMPLATE, "fetch-and-run", text, line, ledger)
    if "FunctionLoader(" in text and "Sandboxed" not in text and _FETCHES_TEXT.search(text):
        at = line + text.count("\n", 0, text.find("FunctionLoader("))
        ledger.find("fetch-and-run", at, "templates that a server sends", "ask")


def _find_once(form: re.Pattern[str], rule: str, text: str, line: int, ledger: Ledger) -> None:
    if (match := form.search(text)) is not None:
        ledger.find(rule, line + text.count("\n", 0, match.start()), match[0], "ask")


def _judge_choices(text: str, line: int, ledger: Ledger) -> None:
    """Note key files of the home folder that a pattern of names stands for, where a text sends."""
    if not _SENDS_ANY.search(text):
        return
    for match in islice(_DOTTED_CHOICE.finditer(text), 40):
        for made, at, _ in _from_choice(match):
            if find_named_place(made.lstrip("^").rstrip("$"))[0] in _READS_KEYS:
                number = line + text.count("\n", 0, at)
                ledger.find("secret-to-network", number, match[0], "ask")
                break


def read_light(text: str, line: int, ledger: Ledger) -> None:
    """Note names that code of any language puts together, and what data does in it."""
    ledger.spend(1 + len(text) // 100)
    folded = text.lower()
    starts = _LineStarts(text, line)
    kinds = set[PlaceClass]()
    deletes = _has(_DELETES, folded)
    for made, at, is_plain in _find_made(text):
        found = _judge_made(made, text, deletes is not None, is_plain)
        if found is None:
            continue
        rule, place = found
        if place:
            kinds.add(place)
            ledger.can("read", made, starts.line_of(at))
        ledger.find(rule, starts.line_of(at), made, "ask")
    if any(word in folded for word in _TURNS):
        for word in set(SPELLED.findall(text)):
            if word.lower() in HIDDEN_SPELLINGS:
                at = text.find(word)
                ledger.find("reflective-call", starts.line_of(at), word, "ask")
    sends = _has(_SENDS, folded)
    if kinds & _READS_KEYS and sends is not None:
        ledger.find("secret-to-network", starts.line_of(sends.start()), sends[0], "ask")
    if _has(_LOOKS_UP, folded) is not None:
        _judge_lookups(text, starts, ledger, bool(kinds))
    _judge_calls(text, folded, starts, ledger)
    if sends is not None and (all_of_them := _ALL_OF_ENVIRONMENT.search(text)):
        at = starts.line_of(all_of_them.start())
        ledger.find("environment-to-network", at, all_of_them[0], "ask")


def _has(form: re.Pattern[str], folded: str) -> re.Match[str] | None:
    """Return the first match in a text in lower case that has a word of the form."""
    return form.search(folded) if any(word in folded for word in _WORDS_OF[form]) else None


# Without one of these in lower case, a form matches nothing.
_WORDS_OF: dict[re.Pattern[str], tuple[str, ...]] = {
    _DELETES: ("remove", "rm_r", "rmtree", "unlink", "delet", "rmdir", "rmsync", "del "),
    _SENDS: (
        "curl", "wget", "invoke-", "http", "socket", "net.dial", "url", "smtp", "mail(",
        "webclient", "upload", "faraday", "reqwest", "tcpstream", "udpclient", "lwp", "restclient",
    ),
    _LOOKS_UP: (
        "resolv", "gethost", "getaddr", "lookup", "dns", "getmxrr", "inet", "addrinfo", "to_socket",
    ),
    _RUNS_MADE: (
        "reverse", "rev(", "rot13", ".tr(", "tr/", "pack", "chr(", ".char", "rawtochar",
        "inttoutf8", "chartr", "base64", "hex2bin", "character", "[char",
    ),
    _ALL_FUNCTIONS: ("_g[", "_env[", "os[", "io[", "getfenv", "&{", "methodbyname", "forname"),
    _CALLED_SUM: ("-f", "-join", "::join", "'+", "' +", '"+', '" +', "'\t+", '"\t+'),
    _MADE_NAME: (
        "-f", "-join", "replace", "[char", "reverse", "substring", "tochararray", "frombase64",
        "'+", "' +", "'\t+", "[-1", "[0", "[1", "[2", "[3", "[4", "[5", "[6", "[7", "[8", "[9",
    ),
    _TWO_VARIABLES: ("%%",),
    _CUT_LETTER: (":~",),
    _PHP_NAME: ("<?",),
    _RENAMED: (
        "os.removeall", "os.execute", "exec.command", "io.popen", "method(:", "&system", "&unlink",
        "&core", "&exec", "&eval",
    ),
}  # fmt: skip


class _LineStarts:
    """The lines of a text, found once."""

    def __init__(self, text: str, first: int) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._first = first

    def line_of(self, at: int) -> int:
        return self._first + bisect_right(self._ends, at - 1)


def _judge_made(
    made: str, text: str, deletes: bool, is_plain: bool
) -> tuple[str, PlaceClass] | None:
    """Return the rule that a text in pieces breaks, and the kind of place that it names."""
    folded = made.lower()
    if folded in _POWERS and (not is_plain or folded not in _WORDS) and len(folded) > 3:
        return "reflective-call", ""
    if not is_plain and re.match(
        r"(?:https?|ftp)://[\w.-]{4}|[\w.-]{1,9}\s{0,2}\|\s{0,2}(?:ba)?sh\b", folded
    ):
        return "reflective-call", ""
    if not is_plain and folded in _PROGRAM_NAMES:
        return "reflective-call", ""
    if deletes and folded.strip("/") in _HOME_FOLDERS and not (is_plain and made in text):
        return "destruction", ""
    if folded in _NAMES and made not in text:
        return ("credential-access" if folded.startswith("id_") else "persistence"), _NAMES[folded]
    place, named = find_named_place(made)
    if not place or place in ("system", "agent") or _is_written(named, text):
        return None
    before = made[: max(made.find(named), 0)][-1:]
    if named.startswith(".") and before.isalnum():  # the end of a word
        return None
    if place == "persistence":
        return "persistence", place
    return "credential-access", place


def _is_written(named: str, text: str) -> bool:
    """Whether a reader finds the name in the text as it is, or as the parts of a path."""
    if named in text:
        return True
    words = [word for word in re.split(r"/", named) if word]
    return all(f"{quote}{word}{quote}" in text or f"/{word}" in text or f"{word}/" in text
               for word in words for quote in _quotes(word, text))  # fmt: skip


def _quotes(word: str, text: str) -> str:
    return '"' if f'"{word}"' in text else "'"


def find_made_names(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield what the strings of a text stand for when they are put together."""
    return _find_made(text)


def _find_made(text: str) -> Iterator[tuple[str, int, bool]]:
    return islice(_list_made(text), _MAX_MADE)


def _list_made(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield composed texts, where they begin, and whether they are only joined."""
    for match in _CODES.finditer(text):
        yield from _from_codes(match[0], match.start())
    if re.search(r"(?i)chr|char", text):
        for match in _CALLED_CODES.finditer(text):
            yield from _from_codes(match[0], match.start())
    groups = list(_find_groups(text))
    for group in groups:
        yield from _join(group)
    yield from _choose_by_numbers(text, groups)
    yield from _add_variables(text)
    for group in groups:
        for piece in group:
            for part in piece.parts:
                yield from _decode(part, piece.start)


def _from_codes(numbers: str, at: int) -> Iterator[tuple[str, int, bool]]:
    codes = [int(one, 0) for one in _NUMBER.findall(numbers) if not re.fullmatch("0[0-9]+", one)]
    if codes and all(9 <= one < 127 for one in codes):
        made = "".join(map(chr, codes))
        yield made, at, False
        yield made[::-1], at, False


def _from_choice(match: re.Match[str]) -> Iterator[tuple[str, int, bool]]:
    """Yield the names that a short pattern stands for."""
    listed = match[1] or match[2]
    before, _, after = match[0].partition(listed)
    before = before.rstrip("?:").removesuffix("(").removesuffix("{")
    after = after[1:]
    for one in re.split("[|,]", listed):
        yield f"{before}{one}{after}".replace("\\", "").lstrip("/"), match.start(), False


def _find_groups(text: str) -> Iterator[list[_Piece]]:
    """Yield the strings that stand side by side in one list or sum."""
    group: list[_Piece] = []
    for match in islice(_STRING.finditer(text), _MAX_STRINGS):
        words = match[1] or match[2]
        if words is not None:
            parts = tuple(words.split()[:_MAX_PARTS])
        else:
            parts = ((match[3] if match[3] is not None else match[4] or ""),)
        piece = _Piece(parts, match.start(), match.end())
        gap = text[group[-1].end : match.start()] if group else ""
        if group and (len(gap) > _MAX_GAP or len(group) >= _MAX_PARTS or not _BETWEEN.match(gap)):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _join(group: Sequence[_Piece]) -> Iterator[tuple[str, int, bool]]:
    """Yield what the parts of a list make together."""
    parts = [part for piece in group for part in piece.parts][:_MAX_PARTS]
    at = group[0].start
    if len(parts) < 2 or sum(map(len, parts)) > 400:
        return
    for between in ("", "/", "_", "-", "."):
        yield between.join(parts), at, True
    yield "".join(reversed(parts)), at, True
    if len(parts) <= 12:
        for first, second in pairwise(parts):
            yield first + second, at, True
            yield f"{first}/{second}", at, True


def _choose_by_numbers(
    text: str, groups: Iterable[list[_Piece]]
) -> Iterator[tuple[str, int, bool]]:
    """Yield the words of a list that lists of numbers choose."""
    lists = [
        parts
        for group in groups
        if 3 < len(parts := [part for piece in group for part in piece.parts]) <= _MAX_PARTS
    ][:20]
    numbers = list(islice(_NUMBERS.finditer(text), 60)) if lists else []
    for parts, match in islice(product(lists, numbers), 400):
        chosen = [int(one) for one in _NUMBER.findall(match[1])]
        if max(chosen) < len(parts):
            words = [parts[one] for one in chosen]
            yield "/".join(words), match.start(), False
            if len(words) > 1:
                yield "".join(words), match.start(), False


def _add_variables(text: str) -> Iterator[tuple[str, int, bool]]:
    """Yield the sums of variables that hold short strings."""
    values = {match[1]: match[2] or match[3] or "" for match in islice(_HOLDS.finditer(text), 400)}
    if len(values) < 2:
        return
    for match in islice(_SUM.finditer(text), 400):
        names = _NAME.findall(match[0])
        if all(one in values for one in names):
            yield "".join(values[one] for one in names), match.start(), True


def _decode(part: str, at: int) -> Iterator[tuple[str, int, bool]]:
    """Yield what one string may stand for."""
    if not 3 <= len(part) <= 200:
        return
    yield part[::-1], at, False
    if part.isascii() and any(map(str.isalpha, part)):
        yield decode_text("rot13", part) or "", at, False
    if len(part) >= 8 and re.fullmatch(r"(?:[0-9a-fA-F]{2}){4,100}", part):
        yield decode_text("hex", part) or "", at, False
    if len(part) >= 8 and re.fullmatch(r"[A-Za-z0-9+/]{8,200}={0,2}", part):
        plain = decode_text("base64", part) or ""
        if plain.isascii() and plain.isprintable():
            yield plain, at, False
    if "\\x" in part or "\\0" in part or "\\1" in part:
        yield decode_text("escapes", part) or "", at, False


def _judge_lookups(text: str, starts: _LineStarts, ledger: Ledger, has_key: bool) -> None:
    """Note data in a name that is looked up."""
    if not (has_key or _ENCODES.search(text)):
        return
    for match in islice(_DATA_LABEL.finditer(text), 20):
        domain = (match[1] or match[2]).lower()
        if (
            not is_known(domain)
            and not is_reserved(domain)
            and domain.rpartition(".")[2] not in _ENDINGS
        ):
            kind: FindingKind | None = None if has_key else "ask"
            at = starts.line_of(match.start())
            ledger.find("dns-exfiltration", at, domain, kind)


_ENDINGS = frozenset(
    ("rb", "py", "js", "ts", "md", "txt", "json", "html", "csv", "xml", "yaml", "yml", "log", "tmp",
     "gz", "zip", "png", "jpg", "pdf", "local", "arpa", "internal", "go", "php", "lua", "pl", "sh")
)  # fmt: skip


def _judge_calls(text: str, folded: str, starts: _LineStarts, ledger: Ledger) -> None:
    """Note calls whose function or code is made from pieces."""
    found = [_has(one, folded) for one in (_RUNS_MADE, _ALL_FUNCTIONS, _CALLED_SUM, _TWO_VARIABLES)]
    if any(word in folded for word in _WORDS_OF[_RENAMED]):
        found.append(_RENAMED.search(text))
    if len(_CUT_LETTER.findall(text) if ":~" in text else ()) > 5:
        found.append(_CUT_LETTER.search(text))
    if "$" in folded and _has(_MADE_NAME, folded) is not None:
        found.extend(_find_called(_MADE_NAME, _CALLED_VALUE, folded))
    if "<?" in text:
        found.extend(_find_called(_PHP_NAME, _PHP_CALL, folded))
    for match in found:
        if match is not None:
            ledger.find("reflective-call", starts.line_of(match.start()), match[0].strip(), "ask")


def _find_called(
    makes: re.Pattern[str], calls: re.Pattern[str], folded: str
) -> Iterator[re.Match[str]]:
    """Yield where names are made that are called elsewhere."""
    called = {match[1] for match in islice(calls.finditer(folded), 1_000)}
    for match in islice(makes.finditer(folded), 100) if called else ():
        if match[1] in called:
            yield match
