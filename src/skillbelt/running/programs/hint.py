"""A hint as a value: one thing that a command lacked."""

from __future__ import annotations

from typing import Literal, NamedTuple

HintKind = Literal[
    "missing_program", "missing_module", "missing_input", "missing_secret", "not_executable",
    "network_refused", "write_refused", "file_refused",
]  # fmt: skip


class Hint(NamedTuple):
    """One thing that a command lacked, and in one line what provides it.

    `name` is the program, the module, the host or the path; `package` is the package that provides
    it, and `install` are commands of packagers for the machine of the user.
    """

    kind: HintKind
    name: str
    message: str
    package: str = ""
    install: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return it as a JSON document, without empty fields."""
        plain = {**self._asdict(), "install": list(self.install)}
        return {key: value for key, value in plain.items() if value}
