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
    return Diagnostic(code, rule.severity, path, line, message, remedy or rule.mend)


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
        "file-name",
        "error",
        "error",
        "the file is not named exactly SKILL.md",
        "Skills are found by that exact name; other spellings are not loaded.",
        "rename the file to SKILL.md (--fix does)",
    ),
    Rule(
        "not-a-file",
        "error",
        "error",
        "SKILL.md is a folder, a pipe, a device or a socket",
        "Only a regular file can be read; anything else is never opened.",
        "make it a regular file",
    ),
    Rule(
        "unreadable",
        "error",
        "error",
        "SKILL.md, or a folder on the way to it, can not be read",
        "The skill is not found, or found and not loaded.",
        "mend its permissions",
    ),
    Rule(
        "broken-link",
        "warning",
        "warning",
        "a symbolic link leads nowhere",
        "Nothing can be read through it; as SKILL.md it is an error.",
        "point the link at something that exists, or remove it",
    ),
    Rule(
        "file-cut",
        "warning",
        "warning",
        "SKILL.md is larger than what is checked",
        "Only the first 2 MiB are read, so rules about the body saw a part of it.",
        "move long material into files below references/",
    ),
    Rule(
        "no-skill",
        "warning",
        "error",
        "a checked folder holds no SKILL.md",
        "A skill is a folder with a SKILL.md; a check of nothing passes by mistake.",
        "name a folder that holds skills, or add a SKILL.md",
    ),
    Rule(
        "max-depth",
        "warning",
        "warning",
        "folders lie deeper than the search goes",
        "Skills in them are not found.",
        "raise `max_depth`, or move the skills up",
    ),
    Rule(
        "max-directories",
        "warning",
        "warning",
        "the search for skills stopped at its limit of folders",
        "Skills in the rest are not found.",
        "raise `max_directories`, or name a smaller folder",
    ),
    Rule(
        "max-root-entries",
        "warning",
        "warning",
        "the search for skills stopped at its limit of entries",
        "Skills in the rest are not found.",
        "raise `max_root_entries`, or name a smaller folder",
    ),
    Rule(
        "link-cycle",
        "warning",
        "warning",
        "a link leads back to a folder above it",
        "It is visited once; other tools may go round in it.",
        "remove the link",
    ),
    Rule(
        "same-folder",
        "info",
        "info",
        "a link leads to a folder that was visited",
        "Its skills are checked once.",
        "nothing needs to be done",
    ),
    Rule(
        "byte-order-mark",
        "info",
        "info",
        "the file begins with a byte-order mark",
        "Some readers do not see the opening `---` behind it.",
        "save as UTF-8 without a byte-order mark (--fix does)",
    ),
    Rule(
        "line-endings",
        "info",
        "info",
        "lines end with CR LF",
        "Harmless here; some readers keep the CR as a part of values.",
        "save with LF endings; --fix keeps endings as they are",
    ),
    # The block between the `---` lines, as the parser tells of it
    Rule(
        "frontmatter-missing",
        "warning",
        "error",
        "there is no frontmatter, or it is empty",
        "Name and description are guessed from the folder and the first paragraph.",
        "begin the file with `---`, `name: …`, `description: …`, `---`",
    ),
    Rule(
        "frontmatter-unclosed",
        "warning",
        "error",
        "the frontmatter is opened and never closed",
        "Nobody can tell where the fields end, so the whole file is taken as text.",
        "end the fields with a line `---`",
    ),
    Rule(
        "frontmatter-too-large",
        "error",
        "error",
        "the frontmatter is larger than 64 KiB",
        "It is read for every skill at every start; the file is skipped.",
        "move text to the body",
    ),
    Rule(
        "yaml-repaired",
        "warning",
        "error",
        "the frontmatter is not YAML, or stands in the wrong place",
        "It was read all the same; other clients drop the skill without a word.",
        "put the value in quotes (--fix does)",
    ),
    Rule(
        "yaml-unreadable",
        "warning",
        "error",
        "the frontmatter can not be read at all",
        "The whole file is taken as text.",
        "write `key: value` lines between two `---` lines",
    ),
    Rule(
        "yaml-depth",
        "error",
        "error",
        "the frontmatter nests too deep",
        "Deep nesting is an attack on readers; the file is skipped.",
        "flatten it",
    ),
    Rule(
        "yaml-aliases",
        "error",
        "error",
        "the frontmatter uses too many YAML aliases",
        "Aliases can grow without bound; the file is skipped.",
        "write the values out",
    ),
    Rule(
        "yaml-tag",
        "warning",
        "warning",
        "a value has a YAML tag",
        "Nothing is built from tags; the plain value is used.",
        "remove the tag",
    ),
    Rule(
        "duplicate-key",
        "warning",
        "error",
        "a key stands twice",
        "YAML forbids it; the last one counts here, the first elsewhere.",
        "remove one of them",
    ),
    Rule(
        "comment-cut",
        "warning",
        "warning",
        "YAML takes the end of a name or description for a comment",
        "Everything after ` #` in a value without quotes is lost.",
        "put the value in quotes",
    ),
    Rule(
        "control-characters",
        "warning",
        "error",
        "the frontmatter holds control characters",
        "YAML forbids them; they are left out.",
        "remove them (--fix does)",
    ),
    Rule(
        "field-type",
        "warning",
        "error",
        "a field has a value of the wrong type",
        "It was turned into text, or is ignored.",
        "write the type the message names",
    ),
    Rule(
        "description-missing",
        "error",
        "error",
        "there is no description",
        "It is required: a model is never told of a skill without one.",
        "add `description: what it does and when to use it`",
    ),
    Rule(
        "not-utf8",
        "error",
        "error",
        "the file is not UTF-8",
        "It is skipped.",
        "save it as UTF-8",
    ),
    Rule(
        "body-encoding",
        "warning",
        "error",
        "the body is not UTF-8",
        "The wrong bytes are shown as replacement characters.",
        "save the file as UTF-8",
    ),
    Rule(
        "file-empty",
        "warning",
        "error",
        "the file is empty",
        "There is nothing to load.",
        "write a name, a description and a body",
    ),
    # Name
    Rule(
        "name-missing",
        "warning",
        "error",
        "there is no `name`",
        "It is required; without it the folder's name is used.",
        "add `name` with the folder's name (--fix does)",
    ),
    Rule(
        "name-length",
        "warning",
        "error",
        "the name is longer than 64 characters",
        "The specification allows 1 to 64; other clients reject the skill.",
        "choose a shorter name",
    ),
    Rule(
        "name-characters",
        "warning",
        "error",
        "the name has characters other than lowercase letters, digits and hyphens",
        "Names become paths, commands and tags; strict mode allows ASCII only.",
        "use a-z, 0-9 and single hyphens",
    ),
    Rule(
        "name-hyphens",
        "warning",
        "error",
        "the name begins or ends with a hyphen, or has two in a row",
        "The specification forbids it.",
        "use single hyphens between words",
    ),
    Rule(
        "name-folder",
        "warning",
        "error",
        "the name differs from the folder's name",
        "The specification wants them equal; clients that go by folder see another skill.",
        "rename the folder or change `name`",
    ),
    Rule(
        "name-reserved",
        "warning",
        "warning",
        "the name is a reserved word or holds one",
        "`anthropic` and `claude` are refused by a large client, device names by Windows.",
        "choose another name",
    ),
    Rule(
        "name-duplicate",
        "warning",
        "warning",
        "two of the checked skills have the same name",
        "Where both are found only the first is used.",
        "rename one of them",
    ),
    # Description
    Rule(
        "description-length",
        "warning",
        "error",
        "the description is longer than 1,024 characters",
        "The specification allows 1 to 1,024; listings cut it.",
        "keep what the skill does and when to use it; move the rest into the body",
    ),
    Rule(
        "description-tags",
        "warning",
        "error",
        "the description holds `<` or `>`",
        "Descriptions stand in prompts, where tags can be taken for structure.",
        "write it without angle brackets",
    ),
    Rule(
        "hidden-text",
        "warning",
        "warning",
        "name or description holds control, invisible or direction-changing characters",
        "Such text looks different to a person than to a model.",
        "remove these characters (--fix removes control characters)",
    ),
    # Other fields
    Rule(
        "compatibility-length",
        "warning",
        "error",
        "`compatibility` is empty or longer than 500 characters",
        "The specification allows 1 to 500.",
        "shorten it, or remove the field",
    ),
    Rule(
        "metadata-values",
        "info",
        "error",
        "`metadata` holds values that are not strings",
        "The specification wants a map from string to string.",
        "quote the values, or flatten the map",
    ),
    Rule(
        "allowed-tools-form",
        "info",
        "error",
        "`allowed-tools` is not a space-separated string",
        "Lists and commas are read here, but not by every client.",
        "write the tools in one string with spaces between (--fix does)",
    ),
    Rule(
        "field-unknown",
        "info",
        "error",
        "a field is not part of the specification",
        "It is kept as it is; strict clients reject the file.",
        "move it below `metadata`, or remove it",
    ),
    Rule(
        "field-misspelled",
        "warning",
        "error",
        "a field looks like a known one spelled wrongly",
        "A field of another name has no effect.",
        "use the known name (--fix mends case, `_` for `-` and known variants)",
    ),
    # Body
    Rule(
        "body-empty",
        "warning",
        "warning",
        "there is no text after the frontmatter",
        "A skill without instructions gives a model nothing to do.",
        "write what to do, step by step",
    ),
    Rule(
        "body-long",
        "warning",
        "warning",
        "the body is over 500 lines or about 5,000 tokens",
        "All of it is read on activation; the specification advises less.",
        "move detail into files below references/ and link to them",
    ),
    Rule(
        "reference-missing",
        "warning",
        "warning",
        "a link leads to a file that is not there",
        "A model follows the link and finds nothing.",
        "add the file or correct the link; links are relative to the skill's folder",
    ),
    Rule(
        "mention-missing",
        "info",
        "info",
        "a path written as code names a file that is not there",
        "It may be made later; if not, a model looks for it in vain.",
        "add the file or correct the path",
    ),
    Rule(
        "reference-outside",
        "warning",
        "warning",
        "a link leads out of the skill",
        "Only the skill's own folder is installed and readable.",
        "copy the file into the skill",
    ),
    Rule(
        "reference-chain",
        "warning",
        "warning",
        "a linked document leads on to one that SKILL.md does not name",
        "The specification advises references one level deep; further ones are overlooked.",
        "link to the document from SKILL.md too",
    ),
    # The folder
    Rule(
        "nested-skill",
        "info",
        "info",
        "a SKILL.md lies inside a skill",
        "The search ends at the outer skill: the inner one is only a file of it.",
        "move it next to the outer skill, or check its folder by name",
    ),
    Rule(
        "link-outside",
        "warning",
        "warning",
        "a symbolic link leads out of the skill",
        "Nothing but a SKILL.md is read through it, and in a project only another SKILL.md of the "
        "project.",
        "replace the link with a copy",
    ),
    Rule(
        "entry-unusable",
        "warning",
        "warning",
        "an entry of the skill can not be read",
        "It is no regular file, or may not be opened.",
        "make it readable, or remove it",
    ),
    Rule(
        "entry-large",
        "info",
        "info",
        "a file of the skill is larger than 2,000,000 bytes",
        "Files of that size are not given to a model.",
        "split it, or let a script read it",
    ),
    Rule(
        "folder-large",
        "info",
        "info",
        "the skill has more than 512 files or 16 MiB",
        "Hosts that get skills over MCP need not take more than that.",
        "move data that is not always needed out of the skill",
    ),
    Rule(
        "folder-cut",
        "info",
        "info",
        "the skill's folder has more entries than are checked",
        "Rules about files saw only a part of them.",
        "keep build output and dependencies out of the skill",
    ),
    Rule(
        "script-mode",
        "info",
        "info",
        "a script has a `#!` line but is not executable",
        "It can not be run by its path.",
        "chmod +x the script",
    ),
    Rule(
        "script-shebang",
        "info",
        "info",
        "a script has no `#!` line",
        "Run by its path it is taken for whatever shell comes first.",
        "begin it with a line such as `#!/usr/bin/env bash`",
    ),
    # --fix
    Rule(
        "fix-dropped",
        "warning",
        "warning",
        "--fix would have changed what the file says, or could not write it",
        "A mended file must read the same as before; else it is left alone.",
        "mend it by hand",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ROWS})
