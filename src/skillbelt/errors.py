"""Errors that the developer or the user must fix. A model gets a result instead of an exception.

SkillbeltError                 exit 1
├── ConfigError                exit 2   a setting, a file or an argument is wrong
│   └── MissingExtra           exit 2   an optional dependency is not installed
├── SkillNotFound              exit 3   no skill has that name
├── PathEscape                 exit 4   a path leads out of its folder
├── PermissionDenied           exit 4   a rule or a person said no, or there was no one to ask
├── LoadError                  exit 1   a body or a resource cannot be loaded
│   ├── InvalidFrontmatter     exit 1   the SKILL.md cannot be read at all
│   ├── FileTooLarge           exit 1   beyond a limit; the message names the workaround
│   ├── SectionNotFound        exit 1   no heading matches; the head of the file comes with it
│   ├── FileTypeRefused        exit 1   a file type that is not passed to a model
│   └── FileUnreadable         exit 1   missing, forbidden, or not text
├── RunRefused                 exit 1   an input, an output or a command that is not accepted
├── SandboxUnavailable         exit 5   no sandbox here can enforce the request; nothing was run
├── ArtifactError              exit 1   an artifact does not exist, or cannot be saved
└── SourceError                exit 1   a remote or an archive cannot be used
    └── ArchiveRefused         exit 1   an archive breaks a safety rule; nothing of it was kept
"""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names most like a wrong one, the best first."""
    from difflib import get_close_matches  # cost: 3 ms, only for a wrong name

    return get_close_matches(name, list(known), n=most, cutoff=cutoff)


class SkillbeltError(Exception):
    """Base class of every error that skillbelt raises on purpose."""

    exit_code = 1


class ConfigError(SkillbeltError):
    """A setting is wrong; the message names the file, the line and the remedy."""

    exit_code = 2


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra = extra
        super().__init__(f"{purpose} needs the {extra!r} extra: pip install 'skillbelt[{extra}]'")


class SkillNotFound(SkillbeltError):
    """No skill has the name; `closest` holds the names most like it."""

    exit_code = 3

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.closest = tuple(closest(name, known))
        hint = (
            f"closest: {', '.join(self.closest)}" if self.closest else "see `skillbelt list --all`"
        )
        super().__init__(f"no skill named {name!r}; {hint}")


class PathEscape(SkillbeltError):
    """A path from outside leads out of the folder it must stay in."""

    exit_code = 4

    def __init__(self, path: str, root: str, reason: str = "leads out of the folder") -> None:
        self.path, self.root, self.reason = path, root, reason
        super().__init__(f"{path!r} refused: {reason} ({root})")


class PermissionDenied(SkillbeltError):
    """A rule or a person said no, or there was no one to ask; `reason` says which."""

    exit_code = 4

    def __init__(self, subject: str, reason: str) -> None:
        self.subject, self.reason = subject, reason
        super().__init__(f"{subject}: {reason}")


class LoadError(SkillbeltError):
    """A body or a resource cannot be loaded; `path` is the one requested."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class InvalidFrontmatter(LoadError):
    """The SKILL.md cannot be read at all."""


class FileTooLarge(LoadError):
    """The file is beyond a limit."""


class SectionNotFound(LoadError):
    """No heading matches the hint."""


class FileTypeRefused(LoadError):
    """A file type that is not passed to a model."""


class FileUnreadable(LoadError):
    """Missing, forbidden, or not text."""


class RunRefused(SkillbeltError):
    """An argument of a run is not accepted; the message is for the caller. Nothing was run."""


class SandboxUnavailable(SkillbeltError):
    """No sandbox of this machine can enforce the request; the message says what is missing."""

    exit_code = 5


class ArtifactError(SkillbeltError):
    """An artifact does not exist, or cannot be saved."""


class SourceError(SkillbeltError):
    """A remote source cannot be used now; the message names it and says why."""

    def __init__(self, source: str, reason: str) -> None:
        self.source, self.reason = source, reason
        super().__init__(f"{source}: {reason}")


class ArchiveRefused(SourceError):
    """An archive breaks a safety rule. Nothing of it was kept."""
