"""The token of a Ray cluster: one default for nodes, servers and commands.

Ray itself opens a cluster to anyone who reaches it. Here token authentication is always on, whether
or not RAY_AUTH_MODE asks for it, and nothing works without a token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from skillbelt.errors import ConfigError
from skillbelt.text import one_line

AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
TOKEN_MODE = "token"


def require_token(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Ray process with token authentication on.

    ConfigError without a token.
    """
    mode = environ.get(AUTH_MODE) or TOKEN_MODE
    if mode.lower() != TOKEN_MODE:
        raise ConfigError(
            f"environment variable {AUTH_MODE} is {one_line(mode)!r}: a Ray cluster without a "
            "token runs any program for anyone who reaches it, and no node could trust the orders "
            f"of a server; remove the variable, or set it to {TOKEN_MODE}"
        )
    if not has_token(environ):
        raise ConfigError(
            "a Ray cluster without a token runs any program for anyone who reaches it, and there "
            f"is no token: set {AUTH_TOKEN_PATH} to a file with the same random text on every "
            f"machine, or {AUTH_TOKEN} to the text; for one machine `ray get-auth-token "
            "--generate` writes ~/.ray/auth_token"
        )
    return {
        **environ,
        AUTH_MODE: TOKEN_MODE,
        # Under `uv run`, Ray would send the folder of the project to every node.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        # Ray starts workers with a niceness of 15, and their runs would inherit it.
        "RAY_worker_niceness": "0",
    }


def has_token(environ: Mapping[str, str]) -> bool:
    """Whether Ray would find a token."""
    if environ.get(AUTH_TOKEN, "").strip():
        return True
    path = environ.get(AUTH_TOKEN_PATH) or os.path.join(
        environ.get("HOME", ""), ".ray", "auth_token"
    )
    try:
        with open(path, encoding="utf-8") as file:
            return bool(file.read(4096).strip())
    except (OSError, UnicodeDecodeError):
        return False
