"""Errors that the developer or the user must fix. A model gets a result instead of an exception.

Each has a `kind`, which is the same in `ToolResult.data["error"]` and in the JSON of the command
line, and never changes.

SkillbeltError            failed               exit 1
├── ConfigError           config               exit 2   a setting, a file or an argument is wrong
│   ├── UsageError        usage                exit 2   a command line that no command takes
│   ├── MissingExtra      missing_extra        exit 2   an optional dependency is not installed
│   └── StoreUnavailable  store_unavailable    exit 2   the session store does not answer
├── LeaseLost             lease_lost           exit 1   another server has the session of a turn
├── SkillNotFound         skill_not_found      exit 3   no skill has that name
│   └── SkillDisabled     skill_disabled       exit 3   the settings switch it off
├── RequiredSkillUnusable required_skill       exit 3   a skill that the settings require
├── NotFound              not_found            exit 1   no session, request or entry has that name
├── PathEscape            path_escape          exit 4   a path leads out of its folder
├── PermissionDenied      permission_denied    exit 4   a rule or a person said no
├── LoadError             load_failed          exit 1   a body or a resource cannot be loaded
│   ├── InvalidFrontmatter invalid_frontmatter exit 1   the SKILL.md cannot be read at all
│   ├── FileTooLarge      file_too_large       exit 1   beyond a limit; it names the workaround
│   ├── SectionNotFound   section_not_found    exit 1   no heading matches
│   ├── FileTypeRefused   file_type_refused    exit 1   a file type that is not passed to a model
│   └── FileUnreadable    file_unreadable      exit 1   missing, forbidden, or not text
├── RunRefused            run_refused          exit 1   an input or a command that is not accepted
│   ├── DiskFull          disk_full            exit 1   no room on this machine, or on a node
│   └── RunLost           run_lost             exit 1   the node of a run is lost, its end unknown
├── SandboxUnavailable    sandbox_unavailable  exit 5   no sandbox here can enforce the request
├── ClusterAway           cluster_away         exit 1   the cluster of a fleet cannot be reached
├── ArtifactError         artifact             exit 1   an artifact is missing or cannot be saved
├── ObjectError           object               exit 1   the object store cannot do what is asked
│   ├── ObjectMissing     object_missing       exit 1   it holds no object of that digest
│   ├── ObjectDamaged     object_damaged       exit 1   the content does not match its digest
│   └── ObjectsAway       objects_away         exit 1   it does not answer, refuses or is full
└── SourceError           source               exit 1   a remote or an archive cannot be used
    └── ArchiveRefused    archive_refused      exit 1   an archive breaks a safety rule
"""

from __future__ import annotations

import errno
from collections.abc import Iterable


def closest(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names most like a wrong one, best first; case is ignored."""
    from difflib import get_close_matches  # cost: 3 ms, only for a wrong name

    folded: dict[str, list[str]] = {}
    for one in known:
        folded.setdefault(one.casefold(), []).append(one)
    near = get_close_matches(name.casefold(), list(folded), n=most, cutoff=cutoff)
    return [one for text in near for one in folded[text]][:most]


def log_warning(text: str, *, trace: bool = False) -> None:
    """Log a problem that does not stop the work; with `trace`, add the current traceback."""
    import logging  # cost: 8 ms, only when there is a message

    logging.getLogger("skillbelt").warning("%s", text, exc_info=trace or None)


class SkillbeltError(Exception):
    """Base class of every error that skillbelt raises on purpose.

    `remedy` says what to do, and `facts` names the attributes that a program may want.
    """

    exit_code = 1
    kind = "failed"
    remedy = "correct what the message names"
    facts: tuple[str, ...] = ()

    def fields(self) -> dict[str, object]:
        """Return the facts for programs, by name."""
        return {name: getattr(self, name) for name in self.facts}


class ConfigError(SkillbeltError):
    """A setting is wrong; the message names the file, the line and the remedy."""

    exit_code = 2
    kind = "config"


class UsageError(ConfigError):
    """A command line that no command takes."""

    kind = "usage"
    remedy = "`skillbelt --help` lists the commands"


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    kind = "missing_extra"
    facts = ("extra",)

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra = extra
        self.remedy = f"pip install 'skillbelt[{extra}]'"
        super().__init__(f"{purpose} needs the {extra!r} extra: {self.remedy}")


class StoreUnavailable(ConfigError):
    """The server that stores the sessions did not answer for too long; the message says what is
    kept.

    A later try may succeed.
    """

    kind = "store_unavailable"
    remedy = "see that the server of the setting store runs, then try again"


class LeaseLost(SkillbeltError):
    """Another server took over the session of this turn, or another process deleted it."""

    kind = "lease_lost"
    remedy = "read the session again, then send the message again"

    def __init__(self) -> None:
        super().__init__(
            "another server took over the session, or it was deleted, while this turn was stopped;"
            f" complete steps are kept: {self.remedy}"
        )


class SkillNotFound(SkillbeltError):
    """No skill has the name; `closest` holds the names most like it."""

    exit_code = 3
    kind = "skill_not_found"
    facts = ("name", "closest")

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.closest = tuple(closest(name, known))
        hint = (
            f"closest: {', '.join(self.closest)}" if self.closest else "see `skillbelt list --all`"
        )
        self.remedy = hint
        super().__init__(f"no skill named {name!r}; {hint}")


class SkillDisabled(SkillNotFound):
    """The settings switch the skill off; `by` is the file and line, or the variable, that does."""

    kind = "skill_disabled"
    facts = ("name", "by")

    def __init__(self, name: str, by: str) -> None:
        super().__init__(name, ())
        self.by = by
        self.remedy = f"change it there; `skillbelt enable {name}` does so in your own settings"
        self.args = (f"the skill {name!r} is disabled by {by}; {self.remedy}",)


class RequiredSkillUnusable(SkillbeltError):
    """A skill that the settings require cannot be used; `by` is the place that requires it."""

    exit_code = 3
    kind = "required_skill"
    facts = ("name", "reason", "by")

    def __init__(self, name: str, reason: str, by: str, remedy: str) -> None:
        self.name, self.reason, self.by, self.remedy = name, reason, by, remedy
        super().__init__(f"the skill {name!r} is required by {by}, but {reason}; {remedy}")


class NotFound(SkillbeltError):
    """No session, request or other entry has the name; `remedy` says where to look."""

    kind = "not_found"

    def __init__(self, reason: str, remedy: str, *, exit_code: int = 1) -> None:
        self.remedy, self.exit_code = remedy, exit_code
        super().__init__(f"{reason}; {remedy}")


class PathEscape(SkillbeltError):
    """A path from outside leads out of the folder it must stay in."""

    exit_code = 4
    kind = "path_escape"
    remedy = "give a path inside the folder"
    facts = ("path", "reason")

    def __init__(self, path: str, root: str, reason: str = "leads out of the folder") -> None:
        self.path, self.root, self.reason = path, root, reason
        super().__init__(f"{path!r} refused: {reason} ({root})")


class PermissionDenied(SkillbeltError):
    """A rule or a person said no, or there was no one to ask; `reason` says which."""

    exit_code = 4
    kind = "permission_denied"
    remedy = "`skillbelt permissions why NAME` shows what decides, `permissions allow` adds a rule"
    facts = ("subject",)

    def __init__(self, subject: str, reason: str) -> None:
        self.subject, self.reason = subject, reason
        super().__init__(f"{subject}: {reason}")


class LoadError(SkillbeltError):
    """A body or a resource cannot be loaded; `path` is the one requested."""

    kind = "load_failed"
    facts = ("path", "reason")

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class InvalidFrontmatter(LoadError):
    """The SKILL.md cannot be read at all."""

    kind = "invalid_frontmatter"
    remedy = "`skillbelt check` says what is wrong with the file"


class FileTooLarge(LoadError):
    """The file is beyond a limit."""

    kind = "file_too_large"
    remedy = "read a section or some lines of it"


class SectionNotFound(LoadError):
    """No heading matches the hint."""

    kind = "section_not_found"
    remedy = "give a heading of the file, or none"


class FileTypeRefused(LoadError):
    """A file type that is not passed to a model."""

    kind = "file_type_refused"
    remedy = "give a text file"


class FileUnreadable(LoadError):
    """Missing, forbidden, or not text."""

    kind = "file_unreadable"
    remedy = "check the path; `skillbelt show NAME` lists the files"


class RunRefused(SkillbeltError):
    """An argument of a run is not accepted; the message is for the caller. Nothing was run."""

    kind = "run_refused"


class DiskFull(RunRefused):
    """A disk of this machine or of a node is full; the message says which. Nothing was run."""

    kind = "disk_full"
    remedy = "free space on the disk that the message names"


class RunLost(RunRefused):
    """The node that carried out a run is lost; whether and how far the command ran is unknown."""

    kind = "run_lost"
    remedy = "look at what the command may have done before it is run again"


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or its cause, says that a disk or a quota is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


class SandboxUnavailable(SkillbeltError):
    """No sandbox of this machine can enforce the request; the message says what is missing."""

    exit_code = 5
    kind = "sandbox_unavailable"
    remedy = "`skillbelt doctor -v` says what each sandbox lacks"


class ClusterAway(SkillbeltError):
    """The cluster of a fleet cannot be reached, or does not answer; the message says why."""

    kind = "cluster_away"
    remedy = "check the setting ray_address, the head node and its token (RAY_AUTH_TOKEN_PATH)"


class ArtifactError(SkillbeltError):
    """An artifact does not exist, or cannot be saved."""

    kind = "artifact"
    remedy = "`skillbelt artifacts list` shows what is kept"


class ObjectError(SkillbeltError):
    """An object cannot be stored or read by its digest; the message names it and says why."""

    kind = "object"


class ObjectMissing(ObjectError):
    """The object store does not hold the object any more, or never did."""

    kind = "object_missing"
    remedy = "put it there again; the retention of objects may have removed it"
    facts = ("digest",)

    def __init__(self, digest: str, where: str) -> None:
        self.digest = digest
        super().__init__(f"{digest} is not in the object store ({where})")


class ObjectDamaged(ObjectError):
    """The content in the object store does not match its digest. None of it was used."""

    kind = "object_damaged"
    remedy = "find out who wrote it; remove it from the object store, then put it there again"
    facts = ("digest",)

    def __init__(self, digest: str, where: str, reason: str) -> None:
        self.digest = digest
        super().__init__(f"{digest} refused: {reason} ({where})")


class ObjectsAway(ObjectError):
    """The object store does not answer, refuses the credentials, or is full."""

    kind = "objects_away"
    remedy = "check the setting `objects`, the credentials in the environment, and the store"


class SourceError(SkillbeltError):
    """A remote source cannot be used now; the message names it and says why."""

    kind = "source"
    remedy = "check the address, then `skillbelt refresh`"
    facts = ("source", "reason")

    def __init__(self, source: str, reason: str) -> None:
        self.source, self.reason = source, reason
        super().__init__(f"{source}: {reason}")


class ArchiveRefused(SourceError):
    """An archive breaks a safety rule. None of it was kept."""

    kind = "archive_refused"
    remedy = "ask its publisher for an archive of plain files"
