"""The rules of a scan, one row each: how much it matters, why, and what to do.

`kind` is the strongest kind that a finding of the rule can have. The code that finds it may choose
a weaker one (`ledger.Ledger.find`), never a stronger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from skillbelt.records import NamedTuple
from skillbelt.scan.values import FindingKind


class ScanRule(NamedTuple):
    """One rule: its family, its strongest kind, what was found, why that matters, what to do."""

    id: str
    family: str
    kind: FindingKind
    what: str
    why: str
    remedy: str


def _row(id: str, family: str, kind: FindingKind, *, what: str, why: str, fix: str) -> ScanRule:
    return ScanRule(id=id, family=family, kind=kind, what=what, why=why, remedy=fix)


_READ_IT = "read the lines that are named before you use the skill"
_DROP_IT = "do not use the skill; tell its publisher"
_PLAIN = "write it as plain text that every reader sees"

_ROWS = (
    # What a reader does not see
    _row(
        "hidden-characters", "hidden text", "block",
        what="invisible characters that spell words, or that change the order of text",
        why="A model reads them and a person does not.",
        fix="remove the characters",
    ),
    _row(
        "hidden-comment", "hidden text", "block",
        what="instructions to the model in a comment that a rendered page does not show",
        why="The person approves a page that differs from what the model gets.",
        fix=_PLAIN,
    ),
    _row(
        "padded-text", "hidden text", "ask",
        what="text behind a long run of blank space",
        why="Readers do not scroll that far.",
        fix=_PLAIN,
    ),
    _row(
        "hidden-metadata", "hidden text", "ask",
        what="instructions in the metadata, or in unseen text, of an image or a document",
        why="A model that is given the file reads them, and a person does not.",
        fix="remove them",
    ),
    # Code from elsewhere
    _row(
        "fetch-and-run", "fetch and run", "block",
        what="a program is fetched and run at once",
        why="The server decides at that moment what runs, and no approval covers it.",
        fix="put the program into the skill, or install a pinned package",
    ),
    _row(
        "decode-and-run", "obfuscation", "block",
        what="decoded data is run as a program",
        why="The encoding hides from a reader what runs.",
        fix=_DROP_IT,
    ),
    _row(
        "opaque-payload", "obfuscation", "ask",
        what="a long encoded text beside a decoder",
        why="Its content is unknown until it is decoded.",
        fix="put what it holds into the skill as a file of its own",
    ),
    _row(
        "assembled-text", "obfuscation", "ask",
        what="a sentence or a command that code puts together, so that no reader sees it",
        why="The model that runs the code reads it and may follow it; honest code hides no words.",
        fix=_PLAIN,
    ),
    _row(
        "opaque-instructions", "obfuscation", "ask",
        what="the text tells the model to decode what a reader cannot read",
        why="Only the model learns what it says, and may follow it.",
        fix=_PLAIN,
    ),
    _row(
        "reflective-call", "obfuscation", "ask",
        what="a function that runs programs or reaches the network is named by a computed text",
        why="It hides the name from readers, which honest code has no reason to do.",
        fix="call the function by its name",
    ),
    _row(
        "dynamic-code", "obfuscation", "ask",
        what="code that is not in the skill is run",
        why="Its effect is unknown until it runs.",
        fix=_READ_IT,
    ),
    _row(
        "compiled-code", "obfuscation", "ask",
        what="a compiled program whose source is not in the skill",
        why="No reader can know what it does.",
        fix="add the source, or leave the program out",
    ),
    _row(
        "disguised-file", "obfuscation", "ask",
        what="a program whose name is that of a document or an image",
        why="The name hides what it is.",
        fix=_DROP_IT,
    ),
    _row(
        "prerequisite-download", "fetch and run", "block",
        what="the text tells the user to download and start a program first",
        why="Malware often arrives as an invented prerequisite.",
        fix="use packages of a registry, and name them in the skill's requirements",
    ),
    _row(
        "locked-archive", "fetch and run", "block",
        what="an archive with a password",
        why="The password stops scanners but not users.",
        fix=_DROP_IT,
    ),
    _row(
        "paste-command", "fetch and run", "ask",
        what="the text tells the user to paste a command from a page into a terminal",
        why="The page may hold anything at that moment, and it runs outside of the sandbox.",
        fix="write the command into the skill",
    ),
    _row(
        "nested-archive", "opaque files", "note",
        what="an archive inside the skill that was not fully scanned",
        why="Its unscanned part can hold anything.",
        fix="unpack it into the skill",
    ),
    _row(
        "link-outside", "opaque files", "ask",
        what="a link that leads out of the skill's folder",
        why="It makes a file of the user part of the skill.",
        fix="put the file itself there",
    ),
    # Secrets
    _row(
        "secret-to-network", "exfiltration", "block",
        what="a file with credentials is sent to the network",
        why="No honest skill uploads keys, wallets or browser profiles.",
        fix=_DROP_IT,
    ),
    _row(
        "environment-to-network", "exfiltration", "block",
        what="all environment variables are sent to the network",
        why="They hold the keys of every other service.",
        fix="send the values that the service needs, by name",
    ),
    _row(
        "variable-to-network", "exfiltration", "ask",
        what="a secret is sent to a host that it does not belong to",
        why="A key belongs to its service.",
        fix="send it as a header, to the service it is for",
    ),
    _row(
        "data-to-suspect-host", "exfiltration", "block",
        what="data is sent to a host for anonymous drops",
        why="Webhook catchers, paste sites, tunnels and bare addresses hide who receives the data.",
        fix=_DROP_IT,
    ),
    _row(
        "data-to-unknown-host", "exfiltration", "ask",
        what="files or data are sent to a host that the skill does not speak of",
        why="The skill does not say who receives them or why.",
        fix="name the service in the description, or leave the upload out",
    ),
    _row(
        "dns-exfiltration", "exfiltration", "block",
        what="data becomes part of a host name that is looked up",
        why="A lookup leaves the machine even where connections are refused.",
        fix=_DROP_IT,
    ),
    _row(
        "credential-access", "credentials", "ask",
        what="files with credentials of the user are read",
        why="A skill seldom needs keys, wallets, browser profiles or keychains.",
        fix="take the secret from a variable that the skill declares",
    ),
    _row(
        "environment-read", "credentials", "ask",
        what="all environment variables are read for names like those of secrets",
        why="A skill knows the names of what it needs.",
        fix="read the variables that are needed, by name",
    ),
    _row(
        "secret-in-text", "credentials", "note",
        what="the text holds a secret",
        why="Everyone with the skill can use it.",
        fix="revoke it, and take it from a variable",
    ),
    _row(
        "surveillance", "credentials", "block",
        what="keys, screen, clipboard or camera are recorded",
        why="It sees what the user does in every other program.",
        fix=_DROP_IT,
    ),
    # Hosts
    _row(
        "suspect-host", "hosts", "ask",
        what="a host for anonymous drops, tunnels or short links",
        why="It hides who runs it.",
        fix="name the service itself",
    ),
    # Control
    _row(
        "reverse-shell", "remote control", "block",
        what="a shell is connected to the network",
        why="The remote side can do everything that the user can.",
        fix=_DROP_IT,
    ),
    _row(
        "miner", "resource abuse", "block",
        what="a program that mines cryptocurrency",
        why="It uses the machine for another party.",
        fix=_DROP_IT,
    ),
    _row(
        "endless-work", "resource abuse", "ask",
        what="unlimited processes or memory",
        why="It can freeze the machine.",
        fix="bound the loop",
    ),
    _row(
        "persistence", "persistence", "ask",
        what="something that starts automatically later",
        why="It keeps running after the skill is removed, outside any sandbox.",
        fix="ask the user to set it up",
    ),
    _row(
        "agent-file-change", "persistence", "ask",
        what="instructions, memory, settings or skills of an agent are changed",
        why="It steers every later conversation.",
        fix="ask the user to make the change",
    ),
    _row(
        "privilege", "privilege", "ask",
        what="administrator rights are granted or used",
        why="No sandbox of the user holds what runs as root.",
        fix="work without them, or ask the user to do this step",
    ),
    _row(
        "database-command", "privilege", "ask",
        what="a database runs a program, or reads or writes files of its host",
        why="It acts with the rights of the database, where no sandbox of the user holds it.",
        fix="do that step outside of the database, where the user sees it",
    ),
    _row(
        "guard-off", "privilege", "ask",
        what="a protection is switched off",
        why="It no longer stops what it is there to stop.",
        fix="leave the protection on",
    ),
    _row(
        "destruction", "destruction", "block",
        what="files outside the skill's work are destroyed",
        why="They cannot be restored.",
        fix=_DROP_IT,
    ),
    _row(
        "ransom", "destruction", "block",
        what="files of the user are encrypted in place",
        why="Extortion works this way.",
        fix=_DROP_IT,
    ),
    _row(
        "trace-removal", "destruction", "ask",
        what="logs or the history of commands are removed",
        why="It hides what was done.",
        fix="keep the logs",
    ),
    # Words to the model
    _row(
        "override-instructions", "instructions", "block",
        what="the text tells the model to disregard its instructions",
        why="It puts the skill above the user and the system.",
        fix=_DROP_IT,
    ),
    _row(
        "hide-from-user", "instructions", "ask",
        what="the text tells the model to keep something from the user",
        why="The user can no longer judge what was done.",
        fix="let the model say what it does",
    ),
    _row(
        "skip-asking", "instructions", "ask",
        what="the text tells the model to act without the user's consent",
        why="The question is the user's protection.",
        fix="let the model ask",
    ),
    _row(
        "follow-remote-text", "instructions", "ask",
        what="the text tells the model to fetch text and to follow it",
        why="The text can change at any time, and no approval covers it.",
        fix="put the text into the skill",
    ),
    _row(
        "send-instruction", "instructions", "ask",
        what="the text tells the model to send data elsewhere",
        why="The user asked for a task and not for a copy to another party.",
        fix="say in the description where data goes, or leave it out",
    ),
    _row(
        "ask-for-secret", "instructions", "ask",
        what="the text tells the model to collect secrets",
        why="Secrets in a conversation are read by everyone who sees it.",
        fix="declare the variable that the skill needs",
    ),
    _row(
        "fake-role", "instructions", "ask",
        what="text that poses as a message of the system or of a tool",
        why="It gives the skill's words the weight of the system's.",
        fix="remove the markers",
    ),
    _row(
        "harmful-order", "instructions", "ask",
        what="the text tells the model to act against the user's interest",
        why="It has nothing to do with the task.",
        fix=_READ_IT,
    ),
    _row(
        "side-order", "instructions", "ask",
        what="the text adds an action to every task that no user asked for",
        why="The user asked for the task alone.",
        fix="leave it out, or let the user ask for it",
    ),
    _row(
        "unquoted-value", "instructions", "ask",
        what="the text has a value put into a command as it is, and forbids to quote or change it",
        why="A value with signs of the shell in it runs as a command of its own.",
        fix="quote the value, or pass it in a file or a variable",
    ),
    _row(
        "slanted-result", "instructions", "ask",
        what="the text tells the model to slant what it reports",
        why="The user takes the result for an honest one.",
        fix="state the criteria, and let the result follow from them",
    ),
    _row(
        "catch-all-trigger", "triggers", "note",
        what="a description that claims every task",
        why="The skill is loaded where another one belongs.",
        fix="say when the skill is of use, and when not",
    ),
    # Packages
    _row(
        "package-lookalike", "packages", "ask",
        what="a package whose name is nearly that of a well-known one",
        why="Attackers register such names so that people install them by mistake.",
        fix="check the name; pin it with a hash if it is right",
    ),
    _row(
        "package-known-bad", "packages", "block",
        what="a package that was published as malware",
        why="Installing it runs its code.",
        fix="use the package that it imitates",
    ),
    _row(
        "package-elsewhere", "packages", "ask",
        what="a package or module from a URL or from an unusual index",
        why="No registry vouches for it, and it can change.",
        fix="use a registry's package, with a version",
    ),
    # What the skill says about itself
    _row(
        "undeclared", "declarations", "ask",
        what="the skill uses more than it declares",
        why="It lists what it needs, and uses something else.",
        fix="declare it, or leave it out",
    ),
    _row(
        "broken-claim", "declarations", "ask",
        what="the skill says that it does not use the network, and does",
        why="People decide by what the skill says about itself.",
        fix="correct the description",
    ),
    _row(
        "observed-beyond", "declarations", "ask",
        what="a run did what the skill neither declares nor contains",
        why="It is hidden in the skill, or came from elsewhere.",
        fix="find out what does that before the next run",
    ),
    _row(
        "second-opinion", "opinions", "ask",
        what="the model that was asked reports a problem",
        why="The model read the skill, and may be wrong.",
        fix="read that part and judge for yourself",
    ),
    _row(
        "unseen-part", "declarations", "ask",
        what="a part that was not scanned",
        why="It was too large, too deep, or could not be parsed.",
        fix="make it smaller, or read it",
    ),
)  # fmt: skip

RULES: Mapping[str, ScanRule] = MappingProxyType({row.id: row for row in _ROWS})
