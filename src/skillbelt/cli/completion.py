"""`skillbelt completion`.

The script of a shell calls `skillbelt completion SHELL -- WORDS...` for the words typed so far. The
options of commands are in `completions.json`, so that no module of another command is imported.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skillbelt.cli.failure import Printed
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

TABLE = Path(__file__).with_name("completions.json")
SHELLS = ("bash", "zsh", "fish")
# Only names of these characters are offered: they have no meaning to any shell. Most shells quote
# what they insert; bash does not, and the name may come from a stranger's skill.
_PLAIN = re.compile(r"\w[\w.,:@%+/-]*")
_MAX_WORDS = 1_000
_MAX_TEXT = 60
# The first line of an answer: the kind of completion.
_WORDS, _FILES, _FOLDERS = "words", "files", "folders"
_BASH = r"""# skillbelt: completion for bash
_skillbelt() {
    local kind word
    COMPREPLY=()
    {
        IFS= read -r kind
        while IFS= read -r word; do COMPREPLY+=("$word"); done
    } < <(command skillbelt completion bash -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    case $kind in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    esac
}
complete -F _skillbelt skillbelt
"""
_ZSH = r"""#compdef skillbelt
# skillbelt: completion for zsh
_skillbelt() {
    local -a lines names texts
    local line found
    found=$(command skillbelt completion zsh -- "${(@)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)
    lines=("${(@f)found}")
    case $lines[1] in
    files) _files; return ;;
    folders) _files -/; return ;;
    esac
    for line in "${(@)lines[2,-1]}"; do
        names+=("${line%%$'\t'*}")
        texts+=("${line/$'\t'/  }")
    done
    compadd -l -d texts -a names
}
if [[ ${funcstack[1]-} = _skillbelt ]]; then
    _skillbelt "$@"
else
    compdef _skillbelt skillbelt
fi
"""
_FISH = r"""# skillbelt: completion for fish
function __skillbelt_complete
    set -l typed (commandline -opc) (commandline -ct)
    set -l lines (command skillbelt completion fish -- $typed 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path (commandline -ct)
        case folders
            __fish_complete_directories (commandline -ct)
        case words
            printf '%s\n' $lines[2..-1]
    end
end
complete -c skillbelt -f -a '(__skillbelt_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class NextWord(NamedTuple):
    """A word that may come next, and its meaning."""

    word: str
    text: str = ""


class WordPlace(NamedTuple):
    """The kind of the word to complete.

    A `kind` is a list of words, or one of `file`, `folder`, `skill`, `disabled` and `session`.
    """

    kind: Sequence[str] | str | None
    before: str = ""  # the text before the value in the same word, as in `--scope=`
    project: str | None = None
    config: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish", help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell; with words, print what may come next."""
    if not args.words:
        script = SCRIPTS[args.shell]
        if args.json:
            _print_json({"shell": args.shell, "script": script})
        else:
            print(script, end="")
        return 0
    kind, found = complete(args.words, splits=args.shell == "bash")
    if args.json:
        _print_json({"kind": kind, "words": [one.word for one in found]})
        return 0
    print(kind)
    for one in found:
        described = args.shell != "bash" and one.text
        print(f"{one.word}\t{one.text}" if described else one.word)
    return 0


def _print_json(document: object) -> None:
    """Print the document; `cli.output` would import the catalogue, which options do not need."""
    Printed.document = True
    print(json.dumps(document, indent=2))


def complete(words: Sequence[str], *, splits: bool = False) -> tuple[str, list[NextWord]]:
    """Return the completions of the last word: `words`, `files` or `folders`.

    The first word is the program. With `splits` the shell has split words at `=` and `:`, and
    replaces only the text after the split.
    """
    words = list(words)
    cut = ""
    if splits:
        words, cut = _join(words)
    place, candidates = _locate(words)
    kind = place.kind
    if kind in ("file", "folder"):
        return (_FILES if kind == "file" else _FOLDERS), []
    if isinstance(kind, str):
        # cost: the catalogue and the store take most of the start, and only names need them
        from skillbelt.cli.completion_names import find_names

        named = find_names(kind, place.project, place.config)
        candidates = [
            NextWord(place.before + word, text) for word, text in named if _PLAIN.fullmatch(word)
        ]
    elif kind is not None:
        candidates = [NextWord(place.before + word) for word in kind]
    found = [
        NextWord(one.word[len(cut) :], shorten(one_line(one.text), _MAX_TEXT))
        for one in candidates
        if one.word.startswith(words[-1])
    ]
    return _WORDS, found[:_MAX_WORDS]


def _join(words: list[str]) -> tuple[list[str], str]:
    """Join words that bash split at `=` and `:`.

    Also return the last word's text before its split.
    """
    joined: list[str] = []
    glue = False
    cut = ""
    for word in words:
        mark = word in ("=", ":") and bool(joined)
        if mark or glue:
            cut = joined[-1] if not mark else joined[-1] + word
            joined[-1] += word
        else:
            joined.append(word)
            cut = ""
        glue = mark
    return joined, cut


def _locate(words: list[str]) -> tuple[WordPlace, list[NextWord]]:
    """Return the position of the last word, and the candidates that need no file."""
    table = read_json(TABLE.read_bytes())
    typed = words[-1]
    if len(words) <= 2:
        names = [NextWord(name, about["summary"]) for name, about in table.items()]
        names += [NextWord("--help", "show all commands"), NextWord("--version")]
        return WordPlace(None), names
    about = table.get(words[1])
    if about is None:
        return WordPlace(None), []
    options: dict[str, list[Any]] = about["options"]
    given = _TypedWords(options)
    for word in words[2:-1]:
        given.take(word)
    place = WordPlace(
        None, "", project=given.values.get("--project"), config=given.values.get("--config")
    )
    if given.rest:
        return place._replace(kind="file"), []
    if given.waiting:
        return place._replace(kind=options[given.waiting][0]), []
    name, equals, _ = typed.partition("=")
    if equals and name in options:
        return place._replace(kind=options[name][0], before=f"{name}="), []
    if typed.startswith("-"):
        return place, [NextWord(option, text) for option, (_, text) in options.items()]
    return place._replace(kind=_argument(about["arguments"], given.plain)), []


class _TypedWords:
    """The words after the command: which options have their values, and how many are plain."""

    def __init__(self, options: dict[str, list[Any]]) -> None:
        self._options = options
        self.waiting = ""  # the option whose value comes next
        self.values: dict[str, str] = {}
        self.plain: list[str] = []
        self.rest = False  # after `--`

    def take(self, word: str) -> None:
        name, equals, value = word.partition("=")
        if self.waiting:
            self.values[self.waiting] = word
            self.waiting = ""
        elif word == "--":
            self.rest = True
        elif name in self._options:
            if equals:
                self.values[name] = value
            elif self._options[name][0] is not None:
                self.waiting = name
        elif not word.startswith("-"):
            self.plain.append(word)


def _argument(arguments: list[list[Any]], plain: list[str]) -> Sequence[str] | str | None:
    """Return the kind of the next plain word; the last argument may take many.

    A kind may depend on the first word, as in `permissions why NAME`.
    """
    if not arguments:
        return None
    number = len(plain)
    if number >= len(arguments):
        if not arguments[-1][1]:
            return None
        number = len(arguments) - 1
    kind = arguments[number][0]
    if isinstance(kind, dict):
        kind = kind.get(plain[0]) if plain else None
    found: Sequence[str] | str | None = kind
    return found
