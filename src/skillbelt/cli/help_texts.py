"""The help beyond the options: groups of commands, examples, topics, words of other tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skillbelt.records import NamedTuple

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Find and read skills": ("list", "search", "show", "load", "read", "where", "prompt", "diff"),
    "Install skills": (
        *("add", "sync", "update", "outdated", "verify", "remove", "link", "export", "import"),
    ),
    "Use skills": ("ask", "chat", "run", "exec", "sessions", "artifacts", "demo"),
    "Write skills": ("init", "check", "try", "eval", "build", "new-version", "pack", "sign"),
    "Control what skills may do": (
        *("scan", "permissions", "trust", "secrets", "enable", "disable", "log"),
    ),
    "Serve skills to other programs": ("serve", "mcp", "console"),
    "Settings and upkeep": (
        *("config", "doctor", "refresh", "watch", "store", "fleet", "completion"),
    ),
}
_REST = "More"
_COLUMNS = 80


class HelpExample(NamedTuple):
    """A command line, and its purpose."""

    line: str
    about: str


EXAMPLES: Mapping[str, tuple[HelpExample, ...]] = {
    "diff": (
        HelpExample("skillbelt diff pdf ./pdf --capabilities", "what ./pdf can do in addition"),
        HelpExample("skillbelt diff old/pdf new/pdf", "the lines that differ"),
    ),
    "scan": (
        HelpExample("skillbelt scan pdf", "what the skill can do, and what is wrong with it"),
        HelpExample("skillbelt scan owner/repo --level note", "before anything is installed"),
    ),
    "list": (
        HelpExample("skillbelt list --client claude", "the skills in folders of Claude Code"),
        HelpExample("skillbelt list --all --wide", "every skill, with its whole description"),
    ),
    "show": (
        HelpExample("skillbelt show pdf", "files, origin, problems and token cost"),
        HelpExample("skillbelt show pdf --json", "the same for a program"),
    ),
    "add": (
        HelpExample("skillbelt add anthropics/skills --skill pdf", "a skill of a repository"),
        HelpExample("skillbelt add ./team --all --to claude", "every skill of a folder"),
    ),
    "sync": (
        HelpExample("skillbelt sync", "install what the lock says"),
        HelpExample("skillbelt sync --frozen", "the same for CI: exactly that, or fail"),
    ),
    "verify": (
        HelpExample("skillbelt verify", "compare what is installed with the lock"),
        HelpExample("skillbelt verify --json", "every difference for a program"),
    ),
    "remove": (
        HelpExample("skillbelt remove pdf", "the skill, its links and its entry"),
        HelpExample("skillbelt remove pdf -g", "from all your projects"),
    ),
    "init": (
        HelpExample("skillbelt init tidy-notes", "write .agents/skills/tidy-notes/SKILL.md"),
        HelpExample("skillbelt init tidy-notes --script python --tests", "with more to start from"),
    ),
    "pack": (
        HelpExample("skillbelt pack .agents/skills/pdf", "write pdf.skill"),
        HelpExample("skillbelt pack skills/pdf --format well-known -o site", "files for a site"),
    ),
    "sign": (
        HelpExample("skillbelt sign skills/pdf --key key.pem", "with a private key"),
        HelpExample("skillbelt sign skills/pdf --sigstore", "with your identity"),
    ),
    "new-version": (
        HelpExample("skillbelt new-version skills/pdf", "1.2.3 becomes 1.2.4"),
        HelpExample("skillbelt new-version --part minor", "the skill in this folder: 1.3.0"),
    ),
    "export": (
        HelpExample("skillbelt export claude-code pdf", "a copy in .claude/skills"),
        HelpExample("skillbelt export codex --dry-run", "what would be copied for Codex"),
    ),
    "import": (
        HelpExample("skillbelt import --dry-run", "see what other tools left behind"),
        HelpExample("skillbelt import --from gh", "record what `gh skill` installed"),
    ),
    "update": (
        HelpExample("skillbelt update --check --diff", "see what is new"),
        HelpExample("skillbelt update pdf", "take the new version, keep your edits"),
    ),
    "outdated": (
        HelpExample("skillbelt outdated", "skills whose source has a newer version"),
        HelpExample("skillbelt outdated -g", "those in your home"),
    ),
    "link": (
        HelpExample("skillbelt link drafts/pdf", "use a skill you are writing"),
        HelpExample("skillbelt link -g ~/src/pdf", "in every project"),
    ),
    "enable": (
        HelpExample("skillbelt enable pdf", "models get it again"),
        HelpExample("skillbelt enable pdf docx", "several at once"),
    ),
    "disable": (
        HelpExample("skillbelt disable pdf", "no model gets it any more"),
        HelpExample("skillbelt disable pdf docx", "several at once"),
    ),
    "where": (
        HelpExample("skillbelt where pdf", "print its folder"),
        HelpExample("skillbelt where pdf --json", "folder and file for a program"),
    ),
    "search": (
        HelpExample("skillbelt search 'fill in a PDF form'", "the skills for a task"),
        HelpExample("skillbelt search - --limit 3", "read the task from standard input"),
    ),
    "check": (
        HelpExample("skillbelt check --fix", "check this project, fix what can be fixed"),
        HelpExample("skillbelt check --strict .agents/skills/pdf", "one skill, strictly"),
    ),
    "prompt": (
        HelpExample("skillbelt prompt", "what a model sees of the skills"),
        HelpExample("skillbelt prompt --budget 2000", "in at most 2,000 tokens"),
    ),
    "load": (
        HelpExample("skillbelt load pdf", "print its instructions"),
        HelpExample("skillbelt load pdf --all-docs", "with every document"),
    ),
    "read": (
        HelpExample("skillbelt read pdf reference.md", "print a document"),
        HelpExample("skillbelt read pdf reference.md --section Forms", "one section of it"),
    ),
    "run": (
        HelpExample("skillbelt run receipts python3 scripts/total.py", "ask, then run it"),
        HelpExample("skillbelt run receipts --yes -- bash -c 'ls | wc'", "without a question"),
    ),
    "exec": (
        HelpExample('skillbelt exec receipts --input \'{"file": "a"}\'', "call it with JSON"),
        HelpExample("skillbelt exec receipts --input @in.json --yes", "input from a file"),
    ),
    "try": (
        HelpExample("skillbelt try pdf", "does every script start?"),
        HelpExample("skillbelt try pdf --json", "what each lacks, for a program"),
    ),
    "eval": (
        HelpExample("skillbelt eval route --min 0.8", "is every skill found? for CI"),
        HelpExample("skillbelt eval run pdf --model ollama:qwen3", "does it help a model?"),
    ),
    "ask": (
        HelpExample("skillbelt ask 'What does it come to?' --file a.txt", "without a model"),
        HelpExample("skillbelt ask 'Sum it up' --model openai:gpt-5", "with a model"),
    ),
    "chat": (
        HelpExample("skillbelt chat --model openai:gpt-5", "a new conversation"),
        HelpExample("skillbelt chat --session chat-1", "continue one"),
    ),
    "demo": (
        HelpExample("skillbelt demo", "see everything in a minute"),
        HelpExample("skillbelt demo --quiet", "without the explanations"),
    ),
    "build": (
        HelpExample("skillbelt build pdf", "build its source into a WASM module"),
        HelpExample("skillbelt build pdf --check", "does the module match the source?"),
    ),
    "sessions": (
        HelpExample("skillbelt sessions show chat-1", "read a conversation"),
        HelpExample("skillbelt sessions export chat-1 --format html", "as a page"),
    ),
    "store": (
        HelpExample("skillbelt store expire --days 90", "delete old conversations"),
        HelpExample("skillbelt store collect", "clear the object store"),
    ),
    "artifacts": (
        HelpExample("skillbelt artifacts list", "files that runs saved"),
        HelpExample("skillbelt artifacts get report.pdf", "print the newest version"),
    ),
    "permissions": (
        HelpExample("skillbelt permissions why 'git push' --type run", "which rule decides?"),
        HelpExample("skillbelt permissions allow 'git log *' --type run", "allow it for good"),
    ),
    "secrets": (
        HelpExample("skillbelt secrets set API_KEY", "type the value at a hidden prompt"),
        HelpExample("skillbelt secrets list", "names, never values"),
    ),
    "doctor": (
        HelpExample("skillbelt doctor", "folders, what was found there, problems"),
        HelpExample("skillbelt doctor --sandbox", "attack the sandboxes"),
    ),
    "trust": (
        HelpExample("skillbelt trust add .", "trust this project"),
        HelpExample("skillbelt trust list", "what is trusted"),
    ),
    "log": (
        HelpExample("skillbelt log --since 2h", "what happened lately"),
        HelpExample("skillbelt log --type decision --follow", "watch decisions"),
    ),
    "serve": (
        HelpExample("skillbelt serve mcp", "for a client that starts this program"),
        HelpExample("skillbelt serve mcp --http 127.0.0.1:8000", "for many clients"),
    ),
    "console": (
        HelpExample("skillbelt console --open", "sign in with a browser"),
        HelpExample("skillbelt console --port 9000", "on another port"),
    ),
    "fleet": (
        HelpExample("skillbelt fleet status", "nodes, and what waits"),
        HelpExample("skillbelt fleet doctor", "attack the sandboxes of every node"),
    ),
    "refresh": (
        HelpExample("skillbelt refresh", "scan again, print what changed"),
        HelpExample("skillbelt refresh --json", "the changes for a program"),
    ),
    "watch": (
        HelpExample("skillbelt watch", "print changes until Ctrl-C"),
        HelpExample("skillbelt watch --json", "one line of JSON per change"),
    ),
    "mcp": (
        HelpExample("skillbelt mcp install claude-code", "shows the change, and asks"),
        HelpExample("skillbelt mcp clients", "which clients have it, and in which files"),
    ),
    "completion": (
        HelpExample("skillbelt completion bash >> ~/.bashrc", "instead of a line with eval"),
        HelpExample(
            "skillbelt completion fish > ~/.config/fish/completions/skillbelt.fish",
            "for every new fish",
        ),
    ),
    "config": (
        HelpExample("skillbelt config", "every setting and its source"),
        HelpExample("skillbelt config --json", "the same for a program"),
    ),
}

_COPY_IT = " copy its folder to .agents/skills/NAME"
_WRITE_IT = (
    " write .agents/skills/NAME/SKILL.md; `skillbelt list` in an empty folder shows the form"
)
# A command, and the words of other tools for it. The first command that this version has is
# suggested; an entry that begins with a blank is advice.
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("list",), "ls ll dir skills list-skills inventory index"),
    (("search",), "find grep query lookup discover match"),
    (("show",), "info view describe inspect details about"),
    (("load",), "cat print open activate use"),
    (("where",), "which path locate folder"),
    (("check",), "lint validate verify fmt format audit scan fix"),
    (("eval", "try"), "test tests smoke"),
    (("eval", "search --eval"), "eval evaluate benchmark bench"),
    (("run",), "call invoke start sh shell bash"),
    (("chat",), "talk repl console agent tui"),
    (("add", _COPY_IT), "add install i get download clone import"),
    (("remove", "disable"), "remove rm uninstall del delete erase"),
    (("update", "refresh"), "update upgrade pull sync up fetch"),
    (("init", _WRITE_IT), "init new create generate scaffold template"),
    (("new-version",), "bump version"),
    (("import",), "adopt migrate convert"),
    (("pack", "build"), "pack package bundle compile make publish release zip"),
    (("sessions",), "history conversations threads resume"),
    (("permissions",), "rules policy grant allow deny permit revoke approve"),
    (("secrets",), "secret keys key env credentials login auth"),
    (("trust",), "untrust"),
    (("config",), "settings setting configure preferences options set"),
    (("doctor",), "status health diagnose debug problems"),
    (("log",), "logs events journal"),
    (("artifacts",), "files outputs artifact"),
    (("serve mcp",), "server mcp mcp-server listen host daemon"),
    (("disable",), "off stop mute"),
    (("enable",), "on unmute"),
    (("watch",), "follow tail"),
    (("sync",), "lock freeze restore ci"),
    (("--version",), "version"),
)
_MEANT = {word: meant for meant, words in _WORDS for word in words.split()}

EXIT_CODES = """\
0    done
1    failed, nothing found, or problems were found
2    wrong usage or configuration
3    no such skill or session
4    denied by permission; for `ask`, what was asked for did not run
5    no sandbox
124  timed out
130  interrupted

`run` and `exec` end with the exit code of the command; with --json they end
with 1 for any failure. What installs skills ends with 2 when lock and disk
differ, 3 when a part is done, 4 when it was refused."""
TOPICS: Mapping[str, str] = {
    "exit-codes": EXIT_CODES,
    "output": """\
On a terminal: tables that fit it, in colour; --wide cuts nothing, and
NO_COLOR=1 leaves the colours out.
In a pipe: one line per item, with tabs between the cells and exact times.
--json: one JSON document on stdout; an error is
{"error": {"kind", "message", "remedy", "exit_code"}}.
Messages go to stderr; -q leaves them out, -v prints more.""",
    "folders": """\
Skills are found in .agents/skills of the project and of your home, in the
folders of Claude Code, Codex, Cursor, Gemini CLI, OpenCode and others, and
where the settings `paths` and `urls` point.
`skillbelt doctor` lists the folders, `skillbelt list --all` every skill.""",
    "approvals": """\
What a skill does needs a rule that allows it, or your answer. Without a
terminal a question is a no (exit code 4). --yes answers the questions of one
command with yes, never against a rule.
`permissions why NAME` says which rule decides, `permissions allow` adds one,
and `log` shows what was decided.""",
}


def list_commands(summaries: Mapping[str, str]) -> list[str]:
    """Return the lines of all commands, in groups."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, _REST: tuple(name for name in summaries if name not in grouped)}
    lines: list[str] = []
    for title, names in groups.items():
        known = [name for name in names if name in summaries]
        if known:
            lines += ["", f"{title}:"]
            lines += [line for name in known for line in _wrap(f"  {name:<11}", summaries[name])]
    return lines


def _wrap(start: str, text: str) -> list[str]:
    """Return lines of at most 80 columns; `textwrap` would cost each command its import."""
    lines = [start]
    for word in text.split():
        if len(lines[-1]) + len(word) >= _COLUMNS:
            lines.append(" " * len(start))
        lines[-1] += f" {word}"
    return lines


def show_examples(name: str) -> str:
    """Return the examples of a command for the end of its help."""
    shown = EXAMPLES.get(name, ())
    if not shown:
        return ""
    lines = [part for one in shown for part in (f"  # {one.about}", f"  {one.line}")]
    return "\n".join(["examples:", *lines])


def suggest(word: str, commands: Collection[str]) -> str:
    """Return the command for a word of another tool; "" if it is unknown."""
    for command in _MEANT.get(word.casefold().removeprefix("skill-"), ()):
        if command.startswith(" "):
            return command.strip()
        if command.startswith("--") or command.partition(" ")[0] in commands:
            return f"did you mean {command!r}?"
    return ""
