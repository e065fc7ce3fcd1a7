"""The policy of a user and a team for installed skills: sources, signers, age, scan.

The user's settings and those of the project are applied separately, and what either refuses is
refused: a project can tighten, and never loosen. A lock comes with the project. What it says of a
skill counts against the demands of the project, and never against the user's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skillbelt.errors import PermissionDenied
from skillbelt.files.contain import open_file, read_handle
from skillbelt.files.locks import locked
from skillbelt.files.private import make_folder, replace_file
from skillbelt.format.skill import Skill
from skillbelt.install.hashes import FolderHashes
from skillbelt.install.names import typed_name
from skillbelt.install.values import NO_VALUES, Drift, LockEntry
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.scan.inspector import SkillInspector
from skillbelt.scan.report import explain_refusal
from skillbelt.scan.values import NOT_SCANNED, ScannedSkill, at_level
from skillbelt.settings import Settings
from skillbelt.source_rules import TrustedSigner, matches_source, parse_signer
from skillbelt.text import one_line, shell_line
from skillbelt.untrusted_json import BadJson, read_json

if TYPE_CHECKING:
    import datetime

    from skillbelt.install import signature_file, signatures
else:
    datetime = Late("datetime")  # cost: 1 ms, only where the age counts
    # cost: 2 ms, only where signatures count
    signature_file = Late("skillbelt.install.signature_file")
    signatures = Late("skillbelt.install.signatures")

_MAX_NOTES = 5_000
_MOST_WARNINGS = 5
_MAX_NOTES_BYTES = 2 * 2**20
_CODES = {"unsigned": "unsigned", "unknown": "unknown-signer", "bad": "bad-signature"}


class Acceptance(NamedTuple):
    """Exceptions that the user accepts for one command: an unsigned skill, another signer."""

    unsigned: bool = False
    signer: bool = False


NOTHING_ACCEPTED = Acceptance()


class PolicyFault(NamedTuple):
    """Why a skill is refused: a code, the reason and what to do."""

    code: str
    message: str
    remedy: str


class PolicyRefusal(PermissionDenied):
    """A skill that a policy refuses; `kind` is the code of the fault."""

    def __init__(self, name: str, fault: PolicyFault) -> None:
        super().__init__(name, fault.message)
        self.args = (fault.message,)
        self.kind, self.remedy = fault.code, fault.remedy


class SkillToJudge(NamedTuple):
    """A skill that is about to be installed.

    `url` is the address that it comes from, `before` its entry in the lock, `command` what accepts
    it: the words after `skillbelt`. `of_user` says that the lock is the user's own. `target` is
    what `skillbelt scan` takes for it, "" for the name of an installed one.
    """

    name: str
    folder: str
    hashes: FolderHashes
    kind: str
    url: str
    committed_at: str = ""
    before: LockEntry | None = None
    command: tuple[str, ...] = ()
    of_user: bool = False
    target: str = ""


class JudgedSkill(NamedTuple):
    """The verdict: faults, which refuse the skill, warnings, and facts for the lock."""

    faults: tuple[PolicyFault, ...] = ()
    warnings: tuple[str, ...] = ()
    signer: signature_file.SkillSigner | None = None
    unsigned: bool = False
    first_seen: str = ""
    scanned: ScannedSkill = NOT_SCANNED

    @property
    def scan(self) -> dict[str, object]:
        """The lock's record of a scan: the level, and how many findings of each rule."""
        if not self.scanned.digest:
            return {}
        rules = sorted({one.rule for one in self.scanned.findings if one.kind != "note"})
        accepted = sorted({one.finding.rule for one in self.scanned.suppressed})
        return {
            "level": self.scanned.level,
            **({"rules": rules} if rules else {}),
            **({"accepted": accepted} if accepted else {}),
        }

    def provenance(self, known: Mapping[str, object]) -> dict[str, object]:
        """Return what is known of the origin, with the signer and when it was first seen."""
        made = dict(known)
        if self.signer is not None:
            made["signer"] = self.signer.as_provenance()
        if self.first_seen:
            made["firstSeen"] = self.first_seen
        return made


NOT_JUDGED = JudgedSkill()


class _Layer(NamedTuple):
    """The demands of the user or of the project about signatures."""

    rule: str
    signers: tuple[TrustedSigner, ...]
    of_project: bool = False


def judge_skill(
    skill: SkillToJudge, settings: Settings, accepts: Acceptance = NOTHING_ACCEPTED
) -> JudgedSkill:
    """Judge one skill before it is installed. Nothing of it is run.

    Where the age counts, content that is new on this machine is recorded.
    """
    faults = [*find_source_faults(skill.url, settings)]
    age, first_seen = _judge_age(skill, settings)
    signed = _judge_signature(skill, settings, accepts)
    scanned, found, warnings = _judge_content(skill, settings)
    return signed._replace(
        faults=(*faults, *age, *signed.faults, *found),
        warnings=(*signed.warnings, *warnings),
        first_seen=first_seen,
        unsigned=signed.unsigned,
        scanned=scanned,
    )


def _judge_content(
    skill: SkillToJudge, settings: Settings
) -> tuple[ScannedSkill, list[PolicyFault], list[str]]:
    """Scan a skill: findings above the threshold refuse it, others are warnings."""
    scanned = SkillInspector(settings).scan(Skill.from_folder(skill.folder))
    refused = at_level(scanned.findings, settings.scan_refuses)
    asked = dict.fromkeys(
        f"{one.path}: {one.message}"
        for one in scanned.findings
        if one.kind == "ask" and one not in refused
    )
    blocked = explain_refusal(refused, (skill.target or typed_name(skill.name),), settings)
    faults = [PolicyFault(*blocked)] if blocked else []
    return scanned, faults, [one_line(text) for text in list(asked)[:_MOST_WARNINGS]]


def require_permitted(skill: SkillToJudge, settings: Settings, accepts: Acceptance) -> JudgedSkill:
    """Judge a skill; PolicyRefusal if it may not be installed."""
    judged = judge_skill(skill, settings, accepts)
    if judged.faults:
        raise PolicyRefusal(skill.name, judged.faults[0])
    return judged


# --- sources -------------------------------------------------------------------------------------


def find_source_faults(url: str, settings: Settings) -> Iterator[PolicyFault]:
    """Yield why skills of this address may not be installed; nothing is fetched."""
    for patterns, where, folder in (
        _list_of(settings, "allowed_sources"),
        _list_of_project(settings, "allowed_sources"),
    ):
        if patterns and not any(matches_source(one, url, folder) for one in patterns):
            yield PolicyFault(
                code="source-not-allowed",
                message=f"{one_line(url)} is not one of the allowed sources of {where}",
                remedy=f"add {_make_pattern(url)} to allowed_sources in {where}",
            )


def _make_pattern(url: str) -> str:
    """Return the pattern that covers this address alone."""
    return one_line(url) if " " not in url else "a pattern for it"


def check_source(name: str, url: str, settings: Settings) -> None:
    """Raise PolicyRefusal for a source that is not allowed."""
    for fault in find_source_faults(url, settings):
        raise PolicyRefusal(name, fault)


def record_acceptance(
    judged: JudgedSkill, digest: str, settings: Settings, accepts: Acceptance
) -> None:
    """Note on this machine that the user accepted an unsigned content that was installed."""
    if judged.unsigned and accepts.unsigned:
        note_content(digest, settings, unsigned=True)


def _list_of(settings: Settings, key: str) -> tuple[tuple[str, ...], str, str]:
    """Return the user's list, the file that sets it, and the base folder of its paths."""
    where = settings.sources.get(key, "your settings")
    folder = os.path.dirname(where) if os.path.isabs(where) else settings.project
    return tuple(getattr(settings, key)), where, folder


def _list_of_project(settings: Settings, key: str) -> tuple[tuple[str, ...], str, str]:
    file = settings.demands.get(f"{key}_file", ("",))[0]
    return settings.demands.get(key, ()), file, os.path.dirname(file)


# --- age -----------------------------------------------------------------------------------------


def _judge_age(skill: SkillToJudge, settings: Settings) -> tuple[list[PolicyFault], str]:
    """Return a fault for a skill that is too new, and when this content was seen first.

    The date of a commit is a claim of its author, so it can make a skill younger and never older.
    A folder of this machine has no age.
    """
    if not settings.min_age_days or skill.kind == "local":
        return [], ""
    seen = note_content(skill.hashes.content_digest, settings)
    if skill.of_user or settings.by_project("min_age_days"):
        seen = min(seen, _read_claimed_time(skill) or seen)
    begins = max(seen, _parse_time(skill.committed_at) or seen)
    until = begins + datetime.timedelta(days=settings.min_age_days)
    if datetime.datetime.now(datetime.UTC) >= until:
        return [], _format_time(seen)
    days = f"{settings.min_age_days:g}"
    fault = PolicyFault(
        code="too-new",
        message=f"this content is known since {begins:%Y-%m-%d %H:%M} UTC, and {days} days are "
        "demanded (min_age_days)",
        remedy=f"run the command again after {until:%Y-%m-%d %H:%M} UTC",
    )
    return [fault], _format_time(seen)


def _read_claimed_time(skill: SkillToJudge) -> datetime.datetime | None:
    """Return when the lock says that the same content was seen first."""
    if skill.before is None or not _is_locked(skill):
        return None
    return _parse_time(skill.before.provenance.get("firstSeen"))


def _is_locked(skill: SkillToJudge) -> bool:
    """Whether the content is the one that the lock has."""
    return skill.before is not None and skill.before.content_digest == skill.hashes.content_digest


def _parse_time(text: object) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text) if isinstance(text, str) and text else None
        return found.astimezone(datetime.UTC) if found and found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _format_time(time: datetime.datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


# --- what this machine knows of contents ---------------------------------------------------------


def note_content(digest: str, settings: Settings, *, unsigned: bool = False) -> datetime.datetime:
    """Record a content digest; return when it was first seen. `unsigned`: the user accepts it."""
    path = _notes_path(settings)
    make_folder(os.path.dirname(path))
    with locked(f"{path}.lock"):
        notes = _read_notes(path)
        note = dict(notes.get(digest, {}))
        seen = _parse_time(note.get("seen")) or datetime.datetime.now(datetime.UTC).replace(
            microsecond=0
        )
        changed = {"seen": _format_time(seen)} | (
            {"unsigned": True} if unsigned or note.get("unsigned") is True else {}
        )
        if changed != note:
            notes.pop(digest, None)
            kept = list(notes.items())[-(_MAX_NOTES - 1) :]
            replace_file(path, json.dumps({**dict(kept), digest: changed}, indent=0).encode())
    return seen


def is_accepted(digest: str, settings: Settings) -> bool:
    """Whether the user accepted this content unsigned, on this machine."""
    return _read_notes(_notes_path(settings)).get(digest, {}).get("unsigned") is True


def _notes_path(settings: Settings) -> str:
    return os.path.join(settings.state_dir, "install", "contents.json")


def _read_notes(path: str) -> dict[str, dict[str, object]]:
    """Read the recorded digests; an unreadable file has none, so all content is new."""
    try:
        notes = read_json(read_handle(open_file(path), _MAX_NOTES_BYTES))
    except (OSError, BadJson):
        return {}
    found = notes.items() if isinstance(notes, dict) else ()
    return {digest: note for digest, note in found if isinstance(note, dict)}


# --- signatures ----------------------------------------------------------------------------------


def _find_layers(settings: Settings, url: str) -> Iterator[_Layer]:
    own = settings.demands.get("own_signatures", (settings.signatures,))[0]
    yield _Layer(own, _find_signers(_list_of(settings, "trusted_signers"), url))
    theirs = _list_of_project(settings, "trusted_signers")
    if theirs[0] or settings.by_project("signatures"):
        named = theirs if theirs[0] else _list_of(settings, "trusted_signers")
        yield _Layer(settings.signatures, _find_signers(named, url), of_project=True)


def needs_signature(entry: LockEntry, url: str, settings: Settings) -> bool:
    """Whether the signature of an installed skill counts: a rule says so, or the lock has one."""
    return signature_file.signer_of(entry.provenance) is not None or any(
        layer.rule != "off" for layer in _find_layers(settings, url)
    )


def signers_for(settings: Settings, url: str = "") -> tuple[TrustedSigner, ...]:
    """Return the signers that the user trusts for an address."""
    return _find_signers(_list_of(settings, "trusted_signers"), url)


def _find_signers(listed: tuple[tuple[str, ...], str, str], url: str) -> tuple[TrustedSigner, ...]:
    """Return the signers for an address, with the paths of their files made absolute."""
    texts, _, folder = listed
    found = []
    for one in map(parse_signer, texts):
        if matches_source(one.pattern, url, folder):
            value = one.value if one.method == "sigstore" else _make_absolute(one.value, folder)
            root = _make_absolute(one.root, folder) if one.root else ""
            found.append(one._replace(value=value, root=root))
    return tuple(found)


def _make_absolute(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _judge_signature(skill: SkillToJudge, settings: Settings, accepts: Acceptance) -> JudgedSkill:
    layers = [*_find_layers(settings, skill.url)]
    recorded = signature_file.signer_of(skill.before.provenance) if skill.before else None
    if recorded is None and all(layer.rule == "off" for layer in layers):
        return NOT_JUDGED
    checks = [signatures.check_signature(skill.folder, skill.hashes, one.signers) for one in layers]
    signers = [one.signer for one in checks if one.signer is not None]
    faults: list[PolicyFault] = []
    warnings: list[str] = []
    # Of the content that was locked, no signer may be known on this machine.
    known = bool(signers) or not _is_locked(skill)
    if recorded is not None and recorded not in signers and known and not accepts.signer:
        faults.append(_signer_changed(skill, recorded, checks))
    for layer, check in zip(layers, checks, strict=True):
        if check.state == "trusted" or layer.rule == "off":
            continue
        what = "it is not signed" if check.state == "unsigned" else "its signature is not trusted"
        reason = f"{what}: {check.reason}"
        waived = check.state != "bad" and _is_waived(skill, layer, settings, accepts)
        if layer.rule == "require" and not waived:
            faults.append(_refuse_unsigned(skill, check, reason))
        else:
            warnings.append(reason)
    return JudgedSkill(
        faults=tuple(dict.fromkeys(faults)),
        warnings=tuple(dict.fromkeys(warnings)),
        signer=recorded if recorded in signers else next(iter(signers), None),
        unsigned=bool(warnings),
    )


def _is_waived(skill: SkillToJudge, layer: _Layer, settings: Settings, accepts: Acceptance) -> bool:
    """Whether a person accepted this content unsigned: now, earlier here, or in the lock.

    The lock of a project counts against the demand of that project alone.
    """
    digest = skill.hashes.content_digest
    locked_so = (
        skill.before is not None
        and skill.before.unsigned
        and _is_locked(skill)
        and (layer.of_project or skill.of_user)
    )
    return accepts.unsigned or locked_so or is_accepted(digest, settings)


def _quote_command(skill: SkillToJudge, option: str) -> str:
    name, *words = skill.command
    scope = ("-g",) * skill.of_user
    return f"`{shell_line(('skillbelt', name, *scope, *words, option))}`"


def _signer_changed(
    skill: SkillToJudge,
    recorded: signature_file.SkillSigner,
    checks: Sequence[signatures.SignatureCheck],
) -> PolicyFault:
    signer = next((one.signer for one in checks if one.signer is not None), None)
    now = f"is signed by {signer.text}" if signer else f"is not: {checks[0].reason}"
    return PolicyFault(
        code="signer-changed",
        message=f"the lock says that it is signed by {recorded.text}, and this version {now}",
        remedy=f"ask its publisher; {_quote_command(skill, '--allow-signer-change')} accepts it",
    )


def _refuse_unsigned(
    skill: SkillToJudge, check: signatures.SignatureCheck, reason: str
) -> PolicyFault:
    accept = _quote_command(skill, "--allow-unsigned")
    remedy = {
        "unsigned": f"ask its publisher for a signed one; {accept} accepts it as it is",
        "unknown": f"add its signer to trusted_signers, such as '{_make_pattern(skill.url)} key "
        f"acme.pub'; {accept} accepts it as it is",
    }.get(check.state, "ask its publisher; nothing accepts a wrong signature")
    return PolicyFault(code=_CODES[check.state], message=reason, remedy=remedy)


# --- what is installed ---------------------------------------------------------------------------


def verify_policy(
    skills: Iterable[tuple[SkillToJudge, str, str]], settings: Settings
) -> Iterator[Drift]:
    """Yield what the policy finds wrong in installed skills, each with its path.

    The third text says what to do about local edits first, "" without any. The age no longer
    counts. Skills are scanned again where a setting demands a level.
    """
    scans = "scan_refuses" in settings.sources
    for skill, path, undo in skills:
        judged = _judge_signature(skill, settings, NOTHING_ACCEPTED)
        found = _judge_content(skill, settings)[1] if scans else ()
        of_content = (fault._replace(remedy=undo or fault.remedy) for fault in judged.faults)
        for fault in (*find_source_faults(skill.url, settings), *of_content, *found):
            yield Drift(
                name=skill.name,
                kind="policy",
                path=path,
                message=fault.message,
                remedy=fault.remedy,
            )


def committed_at(provenance: Mapping[str, object] = NO_VALUES) -> str:
    """Return the date of a commit, as its author claims it; "" where there is none."""
    said = provenance.get("committedAt")
    return said if isinstance(said, str) else ""
