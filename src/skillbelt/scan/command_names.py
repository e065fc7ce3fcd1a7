"""The programs with which a line that may be prose is taken for a command."""

from __future__ import annotations

COMMAND_NAMES = (
    r"(?:\$ |# |> )?(?:sudo |env )?(?:curl|wget|bash|sh|npm|npx|pip3?|python3?|node"
    r"|git|cat|echo|cd|rm|chmod|mkdir|brew|apt(?:-get)?|docker|export|uvx?|powershell|eval|nc|base64"
    r"|openssl|crontab|scp|ssh|tar|unzip|xattr|osascript|launchctl|for \w{1,20} in)\b"
)
# Behind the first command of a line, or behind variables that are set for it.
LATER_COMMAND = r"(?:&&?|\|\|?|[;`(]|^[A-Za-z_]\w{0,40}=[^\s;&|]{0,200})[ \t]{0,9}" + COMMAND_NAMES
