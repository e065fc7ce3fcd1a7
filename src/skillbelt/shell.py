"""What a command line would run, as far as it can be told without running it."""

from __future__ import annotations

# With any of these the shell does more than run one program after the other.
_BEYOND = ("`", "$(", "${", "<", ">", "(", ")", "{", "}", "\n", "\r", "\0", "\\")
_BETWEEN = ";&|"
WHOLE = "shell: "


def simple_commands(command: str) -> tuple[str, ...]:
    """The commands of a line that a permission is needed for, each as one text.

    `git add . && git push` gives `git add .` and `git push`. A line that can not be taken apart
    for certain comes back whole behind `shell: `, so that no rule about one program matches it.
    """
    if any(mark in command for mark in _BEYOND):
        return (WHOLE + command,)
    try:
        parts = _split(command)
    except ValueError:  # a quote that is not closed
        return (WHOLE + command,)
    return tuple(dict.fromkeys(parts)) or (WHOLE + command,)


def _split(command: str) -> list[str]:
    import shlex

    lexer = shlex.shlex(command, posix=True, punctuation_chars=_BETWEEN)
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word and not word.strip(_BETWEEN):
            parts.append([])
        else:
            parts[-1].append(shlex.quote(word) if _blank(word) else word)
    return [" ".join(words) for words in parts if words]


def _blank(word: str) -> bool:
    """Whether the word would be taken for several, or for none, once it stands among others."""
    return not word or any(char.isspace() for char in word)
