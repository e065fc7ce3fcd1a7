"""The rules `skillbelt check` knows: one row each, with what it costs in both modes.

`severity` says what a broken rule means for loading: an error makes the skill unusable, a warning
loads anyway, an info is worth knowing. `strict` is the specification to the letter: whatever it
forbids is an error. docs/check.md holds the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from skillbelt.values import Diagnostic, Severity

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


class Rule(NamedTuple):
    """One rule: its levels, what is wrong, why that matters and how to mend it."""

    code: str
    severity: Severity
    strict: Severity
    what: str
    why: str
    mend: str


def finding(code: str, path: str, line: int | None, message: str, remedy: str = "") -> Diagnostic:
    """A diagnostic of that rule, with the rule's own remedy where no better one is given."""
    rule = RULES[code]
    return Diagnostic(
        code=code,
        severity=rule.severity,
        path=path,
        line=line,
        message=message,
        remedy=remedy or rule.mend,
    )


def harden(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The same findings with the severities of strict mode, which never lowers one."""
    return tuple(
        found._replace(severity=max(found.severity, rule.strict, key=SEVERITIES.index))
        if (rule := RULES.get(found.code))
        else found
        for found in diagnostics
    )


_ROWS = (
    # The file itself
    Rule(
        code="file-name",
        severity="error",
        strict="error",
        what="the file is not named exactly SKILL.md",
        why="Skills are found by that exact name; other spellings are not loaded.",
        mend="rename the file to SKILL.md (--fix does)",
    ),
    Rule(
        code="not-a-file",
        severity="error",
        strict="error",
        what="SKILL.md is a folder, a pipe, a device or a socket",
        why="Only a regular file can be read; anything else is never opened.",
        mend="make it a regular file",
    ),
    Rule(
        code="unreadable",
        severity="error",
        strict="error",
        what="SKILL.md, or a folder on the way to it, can not be read",
        why="The skill is not found, or found and not loaded.",
        mend="mend its permissions",
    ),
    Rule(
        code="broken-link",
        severity="warning",
        strict="warning",
        what="a symbolic link leads nowhere",
        why="Nothing can be read through it; as SKILL.md it is an error.",
        mend="point the link at something that exists, or remove it",
    ),
    Rule(
        code="file-cut",
        severity="warning",
        strict="warning",
        what="SKILL.md is larger than what is checked",
        why="Only the first 2 MiB are read, so rules about the body saw a part of it.",
        mend="move long material into files below references/",
    ),
    Rule(
        code="no-skill",
        severity="warning",
        strict="error",
        what="a checked folder holds no SKILL.md",
        why="A skill is a folder with a SKILL.md; a check of nothing passes by mistake.",
        mend="name a folder that holds skills, or add a SKILL.md",
    ),
    Rule(
        code="max-depth",
        severity="warning",
        strict="warning",
        what="folders lie deeper than the search goes",
        why="Skills in them are not found.",
        mend="raise `max_depth`, or move the skills up",
    ),
    Rule(
        code="max-directories",
        severity="warning",
        strict="warning",
        what="the search for skills stopped at its limit of folders",
        why="Skills in the rest are not found.",
        mend="raise `max_directories`, or name a smaller folder",
    ),
    Rule(
        code="max-root-entries",
        severity="warning",
        strict="warning",
        what="the search for skills stopped at its limit of entries",
        why="Skills in the rest are not found.",
        mend="name a smaller folder",
    ),
    Rule(
        code="link-cycle",
        severity="warning",
        strict="warning",
        what="a link leads back to a folder above it",
        why="It is visited once; other tools may go round in it.",
        mend="remove the link",
    ),
    Rule(
        code="same-folder",
        severity="info",
        strict="info",
        what="a link leads to a folder that was visited",
        why="Its skills are checked once.",
        mend="nothing needs to be done",
    ),
    Rule(
        code="byte-order-mark",
        severity="info",
        strict="info",
        what="the file begins with a byte-order mark",
        why="Some readers do not see the opening `---` behind it.",
        mend="save as UTF-8 without a byte-order mark (--fix does)",
    ),
    Rule(
        code="line-endings",
        severity="info",
        strict="info",
        what="lines end with CR LF",
        why="Harmless here; some readers keep the CR as a part of values.",
        mend="save with LF endings; --fix keeps endings as they are",
    ),
    # The block between the `---` lines, as the parser tells of it
    Rule(
        code="frontmatter-missing",
        severity="warning",
        strict="error",
        what="there is no frontmatter, or it is empty",
        why="Name and description are guessed from the folder and the first paragraph.",
        mend="begin the file with `---`, `name: …`, `description: …`, `---`",
    ),
    Rule(
        code="frontmatter-unclosed",
        severity="warning",
        strict="error",
        what="the frontmatter is opened and never closed",
        why="Nobody can tell where the fields end, so the whole file is taken as text.",
        mend="end the fields with a line `---`",
    ),
    Rule(
        code="frontmatter-too-large",
        severity="error",
        strict="error",
        what="the frontmatter is larger than 64 KiB",
        why="It is read for every skill at every start; the file is skipped.",
        mend="move text to the body",
    ),
    Rule(
        code="yaml-repaired",
        severity="warning",
        strict="error",
        what="the frontmatter is not YAML, or stands in the wrong place",
        why="It was read all the same; other clients drop the skill without a word.",
        mend="put the value in quotes (--fix does)",
    ),
    Rule(
        code="yaml-unreadable",
        severity="warning",
        strict="error",
        what="the frontmatter can not be read at all",
        why="The whole file is taken as text.",
        mend="write `key: value` lines between two `---` lines",
    ),
    Rule(
        code="yaml-depth",
        severity="error",
        strict="error",
        what="the frontmatter nests too deep",
        why="Deep nesting is an attack on readers; the file is skipped.",
        mend="flatten it",
    ),
    Rule(
        code="yaml-aliases",
        severity="error",
        strict="error",
        what="the frontmatter uses too many YAML aliases",
        why="Aliases can grow without bound; the file is skipped.",
        mend="write the values out",
    ),
    Rule(
        code="yaml-tag",
        severity="warning",
        strict="warning",
        what="a value has a YAML tag",
        why="Nothing is built from tags; the plain value is used.",
        mend="remove the tag",
    ),
    Rule(
        code="duplicate-key",
        severity="warning",
        strict="error",
        what="a key stands twice",
        why="YAML forbids it; the last one counts here, the first elsewhere.",
        mend="remove one of them",
    ),
    Rule(
        code="comment-cut",
        severity="warning",
        strict="warning",
        what="YAML takes the end of a name or description for a comment",
        why="Everything after ` #` in a value without quotes is lost.",
        mend="put the value in quotes",
    ),
    Rule(
        code="control-characters",
        severity="warning",
        strict="error",
        what="the frontmatter holds control characters",
        why="YAML forbids them; they are left out.",
        mend="remove them (--fix does)",
    ),
    Rule(
        code="field-type",
        severity="warning",
        strict="error",
        what="a field has a value of the wrong type",
        why="It was turned into text, or is ignored.",
        mend="write the type the message names",
    ),
    Rule(
        code="description-missing",
        severity="error",
        strict="error",
        what="there is no description",
        why="It is required: a model is never told of a skill without one.",
        mend="add `description: what it does and when to use it`",
    ),
    Rule(
        code="not-utf8",
        severity="error",
        strict="error",
        what="the file is not UTF-8",
        why="It is skipped.",
        mend="save it as UTF-8",
    ),
    Rule(
        code="body-encoding",
        severity="warning",
        strict="error",
        what="the body is not UTF-8",
        why="The wrong bytes are shown as replacement characters.",
        mend="save the file as UTF-8",
    ),
    Rule(
        code="file-empty",
        severity="warning",
        strict="error",
        what="the file is empty",
        why="There is nothing to load.",
        mend="write a name, a description and a body",
    ),
    # Name
    Rule(
        code="name-missing",
        severity="warning",
        strict="error",
        what="there is no `name`",
        why="It is required; without it the folder's name is used.",
        mend="add `name` with the folder's name (--fix does)",
    ),
    Rule(
        code="name-length",
        severity="warning",
        strict="error",
        what="the name is longer than 64 characters",
        why="The specification allows 1 to 64; other clients reject the skill.",
        mend="choose a shorter name",
    ),
    Rule(
        code="name-characters",
        severity="warning",
        strict="error",
        what="the name has characters other than lowercase letters, digits and hyphens",
        why="Names become paths, commands and tags; strict mode allows ASCII only.",
        mend="use a-z, 0-9 and single hyphens",
    ),
    Rule(
        code="name-hyphens",
        severity="warning",
        strict="error",
        what="the name begins or ends with a hyphen, or has two in a row",
        why="The specification forbids it.",
        mend="use single hyphens between words",
    ),
    Rule(
        code="name-folder",
        severity="warning",
        strict="error",
        what="the name differs from the folder's name",
        why="The specification wants them equal; clients that go by folder see another skill.",
        mend="rename the folder or change `name`",
    ),
    Rule(
        code="name-reserved",
        severity="warning",
        strict="warning",
        what="the name is a reserved word or holds one",
        why="`anthropic` and `claude` are refused by a large client, device names by Windows.",
        mend="choose another name",
    ),
    Rule(
        code="name-duplicate",
        severity="warning",
        strict="warning",
        what="two of the checked skills have the same name",
        why="Where both are found only the first is used.",
        mend="rename one of them",
    ),
    # Description
    Rule(
        code="description-length",
        severity="warning",
        strict="error",
        what="the description is longer than 1,024 characters",
        why="The specification allows 1 to 1,024; listings cut it.",
        mend="keep what the skill does and when to use it; move the rest into the body",
    ),
    Rule(
        code="description-tags",
        severity="warning",
        strict="error",
        what="the description holds `<` or `>`",
        why="Descriptions stand in prompts, where tags can be taken for structure.",
        mend="write it without angle brackets",
    ),
    Rule(
        code="hidden-text",
        severity="warning",
        strict="warning",
        what="name or description holds control, invisible or direction-changing characters",
        why="Such text looks different to a person than to a model.",
        mend="remove these characters (--fix removes control characters)",
    ),
    # Other fields
    Rule(
        code="compatibility-length",
        severity="warning",
        strict="error",
        what="`compatibility` is empty or longer than 500 characters",
        why="The specification allows 1 to 500.",
        mend="shorten it, or remove the field",
    ),
    Rule(
        code="metadata-values",
        severity="info",
        strict="error",
        what="`metadata` holds values that are not strings",
        why="The specification wants a map from string to string.",
        mend="quote the values, or flatten the map",
    ),
    Rule(
        code="allowed-tools-form",
        severity="info",
        strict="error",
        what="`allowed-tools` is not a space-separated string",
        why="Lists and commas are read here, but not by every client.",
        mend="write the tools in one string with spaces between (--fix does)",
    ),
    Rule(
        code="field-unknown",
        severity="info",
        strict="error",
        what="a field is not part of the specification",
        why="It is kept as it is; strict clients reject the file.",
        mend="move it below `metadata`, or remove it",
    ),
    Rule(
        code="field-misspelled",
        severity="warning",
        strict="error",
        what="a field looks like a known one spelled wrongly",
        why="A field of another name has no effect.",
        mend="use the known name (--fix mends case, `_` for `-` and known variants)",
    ),
    # Body
    Rule(
        code="body-empty",
        severity="warning",
        strict="warning",
        what="there is no text after the frontmatter",
        why="A skill without instructions gives a model nothing to do.",
        mend="write what to do, step by step",
    ),
    Rule(
        code="body-long",
        severity="warning",
        strict="warning",
        what="the body is over 500 lines or about 5,000 tokens",
        why="All of it is read on activation; the specification advises less.",
        mend="move detail into files below references/ and link to them",
    ),
    Rule(
        code="reference-missing",
        severity="warning",
        strict="warning",
        what="a link leads to a file that is not there",
        why="A model follows the link and finds nothing.",
        mend="add the file or correct the link; links are relative to the skill's folder",
    ),
    Rule(
        code="mention-missing",
        severity="info",
        strict="info",
        what="a path written as code names a file that is not there",
        why="It may be made later; if not, a model looks for it in vain.",
        mend="add the file or correct the path",
    ),
    Rule(
        code="reference-outside",
        severity="warning",
        strict="warning",
        what="a link leads out of the skill",
        why="Only the skill's own folder is installed and readable.",
        mend="copy the file into the skill",
    ),
    Rule(
        code="reference-chain",
        severity="warning",
        strict="warning",
        what="a linked document leads on to one that SKILL.md does not name",
        why="The specification advises references one level deep; further ones are overlooked.",
        mend="link to the document from SKILL.md too",
    ),
    # The folder
    Rule(
        code="nested-skill",
        severity="info",
        strict="info",
        what="a SKILL.md lies inside a skill",
        why="The search ends at the outer skill: the inner one is only a file of it.",
        mend="move it next to the outer skill, or check its folder by name",
    ),
    Rule(
        code="link-outside",
        severity="warning",
        strict="warning",
        what="a symbolic link leads out of the skill",
        why="Only a SKILL.md is read through it, and in a project only another SKILL.md of the "
        "project.",
        mend="replace the link with a copy",
    ),
    Rule(
        code="entry-unusable",
        severity="warning",
        strict="warning",
        what="an entry of the skill can not be read",
        why="It is no regular file, or may not be opened.",
        mend="make it readable, or remove it",
    ),
    Rule(
        code="entry-large",
        severity="info",
        strict="info",
        what="a file of the skill is larger than 2,000,000 bytes",
        why="Files of that size are not given to a model.",
        mend="split it, or let a script read it",
    ),
    Rule(
        code="folder-large",
        severity="info",
        strict="info",
        what="the skill has more than 512 files or 16 MiB",
        why="Hosts that get skills over MCP need not take more than that.",
        mend="move data that is not always needed out of the skill",
    ),
    Rule(
        code="folder-cut",
        severity="info",
        strict="info",
        what="the skill's folder has more entries than are checked",
        why="Rules about files saw only a part of them.",
        mend="keep build output and dependencies out of the skill",
    ),
    Rule(
        code="script-mode",
        severity="info",
        strict="info",
        what="a script has a `#!` line but is not executable",
        why="It can not be run by its path.",
        mend="chmod +x the script",
    ),
    Rule(
        code="script-shebang",
        severity="info",
        strict="info",
        what="a script has no `#!` line",
        why="Run by its path it is taken for whatever shell comes first.",
        mend="begin it with a line such as `#!/usr/bin/env bash`",
    ),
    # --fix
    Rule(
        code="fix-dropped",
        severity="warning",
        strict="warning",
        what="--fix would have changed what the file says, or could not write it",
        why="A mended file must read the same as before; else it is left alone.",
        mend="mend it by hand",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ROWS})
