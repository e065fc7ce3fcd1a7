"""Find scripts that run a part of themselves, or bytes of a data file, which a reader passes over.

Only the text is looked at: what the parts of a pipeline do to their input is not followed.
"""

from __future__ import annotations

from collections.abc import Iterator

from skillbelt.scan.ledger import Ledger, Traced
from skillbelt.scan.markdown import number_lines
from skillbelt.text import Lazy

_SHELL = (
    r"(?:(?:sudo|env|exec|command|nohup)[ \t]{1,9}(?:-\w{1,9}[ \t]{1,9})?){0,3}"
    r"(?:[\w.~-]{0,40}/){0,5}(?:(?:ba|z|da|k|a|fi)?sh\b(?![\w./=-])|[\"']?\$[({]?SHELL\b"
    r"|(?:source|\.)[ \t]{1,9}/(?:dev|proc)/)"
)
# What runs the output of the commands before it, and what runs that of the commands inside.
_PIPED = Lazy(rf"\|&?[ \t]{{0,20}}(?:\\?\n[ \t]{{0,40}})?(?={_SHELL})")
_INSIDE = Lazy(
    r"(?:\beval\b|\b(?:ba|z|da|k)?sh[ \t]{1,9}-\w{0,9}c\b|\bsource\b|(?<![\w.])\.(?=\s)"
    r"|\b(?:ba|z|da|k)?sh\b)[ \t]{1,9}[\"']?(?:\$\(|<\(|`)"
)
_SINKS = ("sh", "eval", "SHELL", "source", ". ")
_MAX_STATEMENT = 1_500
_GOES_ON = ("|", "\\", "&&")

_SELF_NAME = r"\$\{?(?:0|BASH_SOURCE(?:\[0\])?|ZSH_ARGZERO)\}?(?![\w%#])"
_IS_SELF = Lazy(
    rf"\b(?:sed|g?awk|mawk|e?grep|tail|head|cat|cut|perl|tac|tr|dd|rev|nl|strings|more)\b[^|]{{0,300}}?"
    rf"(?<=[\s<\"=]){_SELF_NAME}(?=[\"\s)|;&<]|\Z)|<[ \t]{{0,9}}\"?{_SELF_NAME}"
)
_NAMED = Lazy(
    rf"(?m)(?<![\w$])(\w{{1,40}})=[\"']?(?:\$\((?:readlink -f|realpath) [\"']?)?{_SELF_NAME}"
    r"[\"')]{0,3}[ \t]{0,9}(?=$|;)"
)
_VARIABLE = Lazy(r"\$\{?([A-Za-z_]\w{0,39})\}?")
_SAME = Lazy(r"\$\((?:readlink -f|realpath) ([^()\n]{1,99})\)")
_BESIDE = Lazy(r"\$\((?:dirname|basename|cd|pwd)\b[^()\n]{0,99}\)")
_QUOTED = Lazy(r"'[^'\n]*+'|\"[^\"\n$`]*+[ \t][^\"\n]*+\"")
_UNPACKS = Lazy(
    r"\b(?:xz|gzip|bzip2|zstd|lzma|brotli|lz4|pigz)\b[ \t]{1,9}(?:-\S{1,20}[ \t]{1,9}){0,4}?"
    r"(?:-[a-z0-9]{0,4}d[a-z0-9]{0,4}\b|--decompress|--uncompress)|\b(?:unxz|xzcat|zcat|gunzip|bzcat"
    r"|bunzip2|zstdcat|unzstd|lzcat|unlzma|uudecode)\b"
)
# Letters for letters, which is no change of case or of line ends.
_SWAPS = Lazy(
    r"\btr[ \t]{1,9}(?!-)(?![\"']?(?:\[:|a-z[\"']?[ \t]|A-Z[\"']?[ \t]))([\"']?)"
    r"(?P<from>[^\"'\n]{4,200})\1[ \t]{1,9}([\"']?)(?P<to>[^\"'\n]{4,200})\3(?=[\s|)<]|\Z)"
)
_SLICES = Lazy(
    r"\b(?:head|tail)[ \t]{1,9}(?:-c|--bytes)[ =]?[+-]?\w{1,20}[ \t]{1,9}(?=[^\s|-])"
    r"|\bdd\b[^|\n]{0,99}?\bif=[^|\n]{0,99}?\bskip="
)
_COMMENT = Lazy(r"[ \t]{0,40}#(?!!)[^\w\s\"'$]{0,3}[ \t]?([^\n]*)")


def search_pipelines(text: str, line: int, ledger: Ledger) -> None:
    """Note each pipeline of a shell text that runs a part of its script, or unpacked bytes."""
    if not any(sink in text for sink in _SINKS):
        return
    own = {match[1] for match in _NAMED.finditer(text)} if "=" in text else set[str]()
    reads_itself = False
    for statement, at in _find_run(text):
        detail = statement.strip()[:80]
        if _UNPACKS.search(statement) or _has_swap(statement):
            ledger.find("decode-and-run", line + at, detail)
        elif _IS_SELF.search(_simplify(statement, own)):
            ledger.find("decode-and-run", line + at, detail, "ask")
            reads_itself = True
        elif _SLICES.search(statement):
            ledger.find("decode-and-run", line + at, detail, "ask")
    if reads_itself:
        found = (_COMMENT.match(one) for one in text.split("\n"))
        hidden = "\n".join(one[1] if one is not None else "" for one in found)
        ledger.runs_shell(Traced(text=hidden), line, "comments")


def _find_run(text: str) -> Iterator[tuple[str, int]]:
    """Yield what prints the commands that a shell runs, with its line counted from 0."""
    for match, at in number_lines(_PIPED.finditer(text), text):
        start = match.start()
        least = max(start - _MAX_STATEMENT, 0)
        while True:
            start = text.rfind("\n", least, start)
            before = text[least : max(start, least)].rstrip(" \t")
            if start < 0 or not before.endswith(_GOES_ON):
                break
        yield text[max(start + 1, least) : match.start()], at
    for match, at in number_lines(_INSIDE.finditer(text), text):
        end = text.find("\n", match.end())
        end = min(end if end >= 0 else len(text), match.end() + _MAX_STATEMENT)
        yield text[match.end() : end], at


def _simplify(statement: str, own: set[str]) -> str:
    """Return a statement without quoted programs, and with `$0` for each name of the script."""
    plain = _BESIDE.sub("D", _SAME.sub(r"\1", statement))
    plain = _QUOTED.sub("''", plain)
    return _VARIABLE.sub(lambda one: "$0" if one[1] in own else one[0], plain) if own else plain


def _has_swap(statement: str) -> bool:
    match = _SWAPS.search(statement)
    return match is not None and match["from"] != match["to"] and "[:" not in match["to"]


# --- other languages -----------------------------------------------------------------------------

_OWN_TEXT = (
    "__file__", "__filename", "__FILE__", "DATA.", "<DATA>", "MyInvocation", "PSCommandPath", "%~f0"
)  # fmt: skip
_READS_ITSELF = Lazy(
    r"\bopen\(\s{0,9}(?:os\.path\.(?:abspath|realpath)\(\s{0,9})?__file__\s{0,9}[,)]"
    r"|\bPath\(\s{0,9}__file__\s{0,9}\)(?:\.\w{1,20}\(\)){0,2}\.(?:read_(?:text|bytes)|open)\("
    r"|\b(?:getlines|getsource)\(\s{0,9}(?:__file__|sys\.modules\[__name__\])"
    r"|\breadFile(?:Sync)?\(\s{0,9}__filename\b"
    r"|\b(?:file|file_get_contents|fopen|readfile)\(\s{0,9}__FILE__"
    r"|\bFile\.(?:read|readlines|open|foreach|binread)\(?\s{0,9}__FILE__"
    r"|\bDATA\.(?:read|each_line|readlines|gets|each)\b|<DATA>"
    r"|\b(?:Get-Content|gc|type|ReadAllText\(|ReadAllLines\(|ReadAllBytes\()[^\n|;]{0,60}?\$\{?"
    r"(?:MyInvocation\.(?:MyCommand\.(?:Path|Definition|Source)|InvocationName)|PSCommandPath)"
    r"|\b(?:findstr|more|type|certutil|for)\b[^\n|]{0,99}%~f0"
)
_RUNS_TEXT = Lazy(
    r"(?<![\w.$>])(?:exec|eval)\b(?!\s{0,9}\{)\s{0,9}[(\w\"'$<]|\b(?:instance|module|class)_eval\b|\bos\.system\("
    r"|\bos\.popen\(|\bshell\s{0,9}=\s{0,9}True|\bnew Function\(|\bvm\.runIn|\bexecSync\("
    r"|(?i:\biex\b|\binvoke-expression\b|\[scriptblock\]::create|\|\s{0,9}(?:cmd|powershell|pwsh)\b)"
    r"|\b(?:system|shell_exec|passthru|popen)\("
)


def search_self_reading(text: str, line: int, ledger: Ledger) -> None:
    """Note a script that reads its own file and runs a text; shell has a search of its own."""
    if not any(word in text for word in _OWN_TEXT):
        return
    run = _RUNS_TEXT.search(text)
    if run is not None and (read := _READS_ITSELF.search(text)) is not None:
        at = line + text.count("\n", 0, run.start())
        ledger.find("decode-and-run", at, f"{read[0]}, {run[0].strip()}", "ask")
