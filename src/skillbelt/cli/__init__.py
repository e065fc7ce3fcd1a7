"""The command line: parse arguments, call the library, print.

Only the module of the chosen command is imported, to keep the start-up of `skillbelt list` short.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from skillbelt import __version__
from skillbelt.cli.failure import INTERRUPTED, Printed, describe, describe_error, print_error
from skillbelt.cli.help_texts import TOPICS, list_commands, show_examples, suggest
from skillbelt.cli.words import clear_line, has_colours, paint_help, print_failure
from skillbelt.errors import PermissionDenied, SkillbeltError, UsageError, closest
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line

_MANY_OBJECTS = 50_000
_NEAR = 0.7  # how similar a mistyped word must be to a command


class CliCommand(NamedTuple):
    """A command: its module, a one-line summary, and details for its help page."""

    module: str
    summary: str
    details: str = ""
    words: str = ""  # metavar of the arguments after `--`, which are passed on unparsed
    json: str = "print one JSON document"
    own_words: int = 1  # how many plain words come before `words`


# No module may be called `list`: it would shadow the built-in here.
COMMANDS: dict[str, CliCommand] = {
    "list": CliCommand("listing", "list the available skills"),
    "show": CliCommand("show", "show one skill: manifest, files, origin, problems, token cost"),
    "add": CliCommand(
        "add",
        "add skills from a folder, a repository, an archive, a site or a registry, and lock them",
        "Says what each skill can do and asks once; nothing of a skill is run. Without --skill "
        "or --all a terminal shows a list. Exit code 3: some skills were refused; 4: all were.",
    ),
    "init": CliCommand(
        "init",
        "write a new skill that passes every check",
        "Never writes over something that is there.",
    ),
    "new-version": CliCommand(
        "new_version",
        "raise the version of a skill that you are writing",
        "Changes metadata.version in its SKILL.md, and nothing else.",
    ),
    "pack": CliCommand(
        "pack",
        "pack skills for others: .skill, a plugin, files for a site, an OCI layout",
        "The same files always give the same bytes. A skill with errors is not packed.",
    ),
    "sign": CliCommand(
        "sign",
        "sign skills, so that others know that every file is yours",
        "Writes skill.oms.sig into each skill, as OpenSSF Model Signing does; `model_signing "
        "verify` reads it too. Needs the extra `signing`.",
    ),
    "enable": CliCommand(
        "switch",
        "enable disabled skills again",
        "Changes your own settings. Exit code 4: a file of the project or the environment "
        "disables the skill.",
    ),
    "disable": CliCommand(
        "switch",
        "disable skills: models, commands and servers no longer get them",
        "Changes your own settings, for all projects.",
    ),
    "sync": CliCommand(
        "sync",
        "install exactly what the lock file says",
        "Reads skills-lock.json of the project, which `skills` uses too, or with -g the lock of "
        "your home. Exit code 2: the lock and the disk differ; 3: some skills could not be "
        "installed; 4: refused.",
    ),
    "verify": CliCommand(
        "verify",
        "compare installed skills with the lock file",
        "Names every change of files, modes and links. Exit code 2: something differs.",
    ),
    "update": CliCommand(
        "update",
        "update installed skills to the newest versions of their sources",
        "Shows what is new and asks. Local edits stay: they are merged, and where both sides "
        "changed the same lines your file stays, with the new one beside it as FILE.upstream. "
        "Exit code 2: --check found a new version; 3: a conflict, or some skills were not "
        "updated.",
    ),
    "outdated": CliCommand("update", "list installed skills whose sources have a newer version"),
    "remove": CliCommand(
        "remove",
        "remove installed skills, their links and their entries in the lock file",
        "Exit code 2: nothing was removed; 3: some were not.",
    ),
    "link": CliCommand(
        "link",
        "link a skill that you are writing, instead of installing a copy",
        "The lock stays as it is; `skillbelt remove NAME` takes the link away. In a project the "
        "folder must lie inside it; -g takes any.",
    ),
    "export": CliCommand(
        "export",
        "copy installed skills into the folder of a client",
        "For clients that follow no links. Exit code 2: nothing was copied; 3: some were not.",
    ),
    "import": CliCommand(
        "importing",
        "record skills that openskills, clawhub, gh skill or apm installed in the lock file",
        "Nothing is fetched, and no file of a skill changes. A skill in the folder of a client "
        "moves to .agents/skills, and the client gets a link. What `skills` installed is in the "
        "lock already: `skillbelt sync` records it. Exit code 2: nothing was recorded; 3: some "
        "were not.",
    ),
    "where": CliCommand("where", "print the folder of a skill"),
    "search": CliCommand(
        "search",
        "search the full text of skills",
        "The query may be a few words or a page of text. Exit code 1: no skill matches.",
    ),
    "check": CliCommand(
        "check",
        "check skills against the rules of the format",
        "Exit code 1: there are errors.",
    ),
    "scan": CliCommand(
        "scan",
        "say what skills can do before they do it, and find what is hostile",
        "Reads text and code; runs nothing and needs no network. What a scan does not see, the "
        "sandbox holds. Exit code 1: a skill is blocked.",
    ),
    "diff": CliCommand(
        "diff",
        "compare two skills: their lines, or what they can do",
        "Exit code 1: they differ.",
    ),
    "prompt": CliCommand("prompt", "print the overview of skills for a model's system prompt"),
    "load": CliCommand("load", "print the instructions of a skill, and documents on request"),
    "read": CliCommand("read", "print a document of a skill, or part of it"),
    "run": CliCommand(
        "run",
        "run a command of a skill in a sandbox",
        "The arguments after -- are passed as they are; use `bash -c` for a shell. The -- may "
        "be left out where no argument is an option of this command too. The exit code is that "
        "of the command; with --json it is 1 for any failure, and 124 after a timeout.",
        "COMMAND...",
    ),
    "exec": CliCommand(
        "execution",
        "call a skill with JSON; its script answers from a sandbox",
        "The exit code is that of the script; with --json it is 1 for any failure.",
    ),
    "try": CliCommand(
        "trial",
        "start every script of a skill, and say what the failing ones lack",
        "Each script is started with --help, or with the example in its own `# /// try` block, "
        "in an empty workspace and without a network. Exit code 1: some do not start.",
    ),
    "eval": CliCommand(
        "evals",
        "measure whether skills are found, work and help",
        "init NAME writes a first set of cases. Without a model: route, is each skill found among "
        "its neighbours, and script NAME, do its scripts do what is expected? With one: trigger, "
        "does it use the skill, and run NAME, does the skill help? diff OLD NEW compares two "
        "versions of one skill: folders or git revisions. Cases are read from evals/ in the skill, "
        "in the forms of agentskills.io, NVIDIA, waza, vally, promptfoo and tessl. Exit code 1: "
        "under a bar, or not all cases were run; 2: a file is wrong.",
    ),
    "ask": CliCommand(
        "ask",
        "answer a question with the skills, with or without a model",
        "Without --model no language model is used: the best matching skill is loaded, and its "
        "script is run. A model needs the API key of its provider in the environment. Exit code "
        "4: permission was refused, and the model found no other way.",
    ),
    "chat": CliCommand(
        "chat",
        "chat with a model that can use the skills",
        "/help lists the commands of the chat.",
        json="print one line of JSON per event",
    ),
    "demo": CliCommand("demo", "show what skillbelt does, step by step; needs no API key"),
    "build": CliCommand(
        "build",
        "build the source of a skill into a WASM module",
        "Builds TypeScript, JavaScript, Python, C and WAT. Exit code 1 with --check: the module "
        "is not current.",
    ),
    "sessions": CliCommand("sessions", "list, show, export and delete stored conversations"),
    "store": CliCommand(
        "store",
        "move sessions to another store, delete old ones, clear objects",
        "`migrate` can be stopped and repeated at any time; it compares every session. "
        "`collect` removes objects without references from the object store.",
    ),
    "artifacts": CliCommand(
        "artifacts",
        "list the files that runs saved, get or delete one",
        "NAME@V is one version, NAME the newest; `list NAME` shows all. Without --session: "
        "those of runs from the command line.",
    ),
    "permissions": CliCommand(
        "permissions",
        "list, explain and change permissions; answer pending requests",
        "`why NAME` shows which rule decides, with file and line; allow, ask and deny add a "
        "user rule; revoke removes a rule or a remembered answer; watch answers requests of "
        "other processes, pending lists them, and answer answers one.",
        json="print one JSON document; with watch one line per request",
    ),
    "secrets": CliCommand(
        "secrets",
        "set, list and remove the secrets that skills may use",
        "The value of `set` is typed at a hidden prompt, read from standard input, or taken "
        "from a variable. A skill gets a secret after a question, in the environment of that "
        "run alone; `permissions allow SKILL/NAME --type secret` answers it for good.",
    ),
    "doctor": CliCommand(
        "doctor",
        "show the skill folders, what was found there, and problems",
        "Exit code 1 with --sandbox: an attack was not stopped; 5: there is no sandbox.",
    ),
    "trust": CliCommand("trust", "list and change the trusted project folders and origins"),
    "log": CliCommand(
        "log",
        "print the audit log: decisions, loads and runs, with the reasons",
        json="print one JSON document; with --follow one line per event",
    ),
    "console": CliCommand(
        "console",
        "show a page where people answer requests and see skills, runs and the log",
        "Listens on this machine only and prints a link that signs in once. Answers the requests "
        "of every process that shares the store. Needs the extra http.",
        json="print one JSON document with the addresses and a token, then serve",
    ),
    "serve": CliCommand(
        "serve",
        "serve skills over MCP, or as a JSON API over HTTP",
        "Over standard input and output there is one client, which starts this program. Over "
        "HTTP there may be many; each sends the token.",
        json="with --http: print the URL of the server and its token as one JSON document",
    ),
    "fleet": CliCommand(
        "fleet",
        "show and manage the machines that run commands",
        "status: nodes, queued runs, whether the stores answer. nodes: what each can do and "
        "contains. drain NODE: stops new work there, saves its workspaces, waits for its runs. "
        "doctor: attacks the sandboxes of every node, compares versions and settings. join "
        "HOST:PORT: makes this machine a node, with COMMAND beside it. Exit code 1: problems "
        "were found; 124: something still runs on the node.",
        "COMMAND...",
        own_words=2,
    ),
    "refresh": CliCommand(
        "refresh", "scan all folders and remote sources again, and print what changed"
    ),
    "watch": CliCommand(
        "watch",
        "print changes of the catalogue until interrupted",
        json="print one line of JSON per change",
    ),
    "config": CliCommand("config", "print the merged settings and the source of each"),
    "mcp": CliCommand(
        "mcp",
        "add skillbelt to an MCP client, such as Claude Code or an editor, or remove it",
        "clients: lists the clients, and which have it. install CLIENT and uninstall "
        "CLIENT change one file after a question. Exit code 4: you said no, or there was no "
        "terminal to ask at and no --yes.",
    ),
    "completion": CliCommand(
        "completion",
        "print the script that completes commands, options and skills in a shell",
        'One line for each new shell. In ~/.bashrc: eval "$(skillbelt completion bash)". In '
        '~/.zshrc, below compinit: eval "$(skillbelt completion zsh)". In '
        "~/.config/fish/config.fish: skillbelt completion fish | source. With words after -- it "
        "prints the completions, as the script asks for them.",
        "WORD...",
    ),
}
# Messages of the dynamic loader and of Python when memory or threads run out.
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
_NO_THREAD = "can't start new thread"
# Messages of argparse about an invalid choice and an unknown option.
_CHOICE = Lazy(r"invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
_CHOICES = Lazy(r"[\w-]+")
_OPTION = Lazy(r"unrecognized arguments: (--[\w-]+)")


def run_process() -> NoReturn:
    """Run the command of this process, and end the process with its exit code.

    To free all modules takes a command 4 ms. It is left out where nothing but memory would be
    freed: no other thread runs, nothing is registered for the end of the process, no database was
    open, and all that was printed is written. Everything else ends as usual.
    """
    code = main()
    if not _is_needed_at_end():
        os._exit(code)
    sys.exit(code)


def _is_needed_at_end() -> bool:
    """Whether anything waits for the interpreter to end, or may; and write what was printed."""
    count_registered = getattr(atexit, "_ncallbacks", None)
    if count_registered is None or count_registered():
        return True
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return True
    if "sqlite3" in sys.modules or sys.flags.inspect or sys.flags.dev_mode:
        return True
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return True
    return False


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    if argv is None:
        # Importing creates many objects and no garbage: collecting it takes a tenth of a command.
        gc.set_threshold(_MANY_OBJECTS)
    arguments = list(sys.argv[1:] if argv is None else argv)
    _escape_unencodable()
    Printed.document = False
    try:
        code = _run(arguments, _wants_json(arguments))
        if argv is None:
            gc.freeze()  # all of it ends with the process
        return code
    except OSError:
        # The reader closed the pipe, or the disk is full, while an error was printed to it.
        _discard_output()
        return 1


def _run(arguments: list[str], as_json: bool) -> int:
    """Run one command; return the exit code. With `as_json` an error is a document."""
    code = 0
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SkillbeltError as error:
        print_failure(one_line(str(error)), _remedy(error))
        if as_json:
            print_error(describe_error(error))
        return error.exit_code
    except KeyboardInterrupt:
        # A second KeyboardInterrupt may arrive while the first is handled: treat both as one.
        try:
            return _report_interrupt(as_json)
        except KeyboardInterrupt:
            return _report_interrupt(as_json)
    except BrokenPipeError:
        # The reader closed the pipe; the exit code stays as it is.
        _discard_output()
        return code
    except OSError as error:
        print_failure(one_line(str(error)))
        return _report_system_error(error, as_json)
    except Exception as error:
        if _report_shortage(error, as_json):
            return 1
        if as_json:
            message = f"{type(error).__name__}: {error}"
            print_error(describe("internal", message, "report it, with the text on stderr", 1))
        raise


def _remedy(error: SkillbeltError) -> str:
    """Return the remedy, for a line below the error; "" if it would repeat the message."""
    if error.remedy == SkillbeltError.remedy:
        return ""
    # Other refusals name their own command in the message, or a person said no.
    if error.remedy == PermissionDenied.remedy and "is denied by" not in str(error):
        return ""
    return one_line(error.remedy)


def _report_shortage(error: Exception, as_json: bool) -> bool:
    """Print which resource ran out, if that is why the process failed; return whether it is."""
    shortage = _shortage(error)
    if shortage:
        print_failure(shortage)
    if shortage and as_json:
        print_error(describe("system", shortage, "raise the limit, or end other programs", 1))
    return bool(shortage)


def _shortage(error: Exception) -> str:
    """Return which resource ran out, if that is why it failed; such errors have no type."""
    if isinstance(error, MemoryError) or any(one in str(error) for one in _NO_MEMORY):
        return "there is not enough memory for this (see ulimit -v)"
    if _NO_THREAD in str(error):
        return "no thread can be started: too many processes, or too little memory (see ulimit -a)"
    return ""


def _wants_json(arguments: list[str]) -> bool:
    """Whether --json was given, also in a command line that cannot be parsed."""
    return "--json" in _split_words(arguments)[0]


def _report_interrupt(as_json: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if clear_line():
        print_failure("interrupted")
    if as_json:
        print_error(describe("interrupted", "interrupted", "run the command again", INTERRUPTED))
    return INTERRUPTED


def _report_system_error(error: OSError, as_json: bool) -> int:
    """Print the document of the error, unless stdout itself cannot be written."""
    try:
        if as_json:
            print_error(describe("system", str(error), "check the file or the device", 1))
        sys.stdout.flush()
    except OSError:
        pass
    _discard_output()
    return 1


def _discard_output() -> None:
    """Redirect stdout to /dev/null, so that Python does not flush to the closed pipe at exit."""
    number = sys.stdout.fileno()
    os.close(number)  # first, so that a descriptor is free even if they ran out
    handle = os.open(os.devnull, os.O_WRONLY)
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)


class _Parser(argparse.ArgumentParser):
    """A parser that raises our own errors, so that programs get them too."""

    def print_help(self, file: Any = None) -> None:
        """Print the help, in colour if the terminal supports it."""
        text = self.format_help()
        print(paint_help(text) if has_colours(sys.stdout) else text, end="", file=file)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        text = f"{message}{self._suggest(message)}"
        error = UsageError(f"{self.prog.removeprefix('skillbelt ')}: {text}")
        error.remedy = f"`{self.prog} --help` shows what it takes"
        raise error

    def _suggest(self, message: str) -> str:
        """Return which choice or option was probably meant."""
        choice = _CHOICE.search(message)
        option = _OPTION.search(message)
        if choice:
            close = closest(choice[1], _CHOICES.findall(choice[2]), most=1)
        else:
            close = closest(option[1], self._option_string_actions, most=1) if option else []
        return f"; did you mean {close[0]!r}?" if close else ""


def parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command, with the common options."""
    command = COMMANDS[name]
    made = _Parser(
        prog=f"skillbelt {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}. {command.details}".strip(),
        epilog=show_examples(name),
        allow_abbrev=False,
        formatter_class=_formatter,
    )
    import_module(f"skillbelt.cli.{command.module}").configure(made)
    for one in made._get_positional_actions():
        if one.nargs == "*":  # or an error would call it required
            one.required = False
    common = made.add_argument_group("options of every command")
    common.add_argument("--json", action="store_true", help=command.json)
    common.add_argument(
        "--project", metavar="DIR", help="the project folder (default: the current one)"
    )
    common.add_argument(
        "--config", metavar="FILE", help="a settings file to use instead of the project's"
    )
    common.add_argument("-q", "--quiet", action="store_true", help="print no messages")
    common.add_argument("-v", "--verbose", action="store_true", help="print more")
    if command.words:
        shown = made.format_usage().removeprefix("usage: ").rstrip()
        made.usage = f"{shown} -- {command.words}".replace("%", "%%")
    return made


class _Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples, and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return the formatter with a fixed width: to detect it, argparse would import shutil."""
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = 80
    return _Formatter(prog, width=min(width, 100) - 2)


def usage() -> str:
    """Return the overview of all commands."""
    return "\n".join(
        [
            "usage: skillbelt COMMAND [options]",
            "",
            "Find Agent Skills, show them to models, run them in a sandbox, serve them to",
            "agents.",
            *list_commands({name: command.summary for name, command in COMMANDS.items()}),
            "",
            "`skillbelt COMMAND --help` explains a command, with examples.",
            f"`skillbelt help TOPIC` explains: {', '.join(TOPICS)}.",
        ]
    )


def _help(words: list[str]) -> int:
    """Print the overview, the help of a command, or a topic."""
    named = [word for word in words if not word.startswith("-")]
    if not named:
        text = usage()
    elif named[0] in COMMANDS:
        text = parser(named[0]).format_help().rstrip()
    elif named[0] in TOPICS:
        text = TOPICS[named[0]]
    else:
        close = closest(named[0], [*TOPICS, *COMMANDS], most=1)
        hint = suggest(named[0], COMMANDS) or (
            f"did you mean {close[0]!r}?" if close else f"there are {', '.join(TOPICS)}"
        )
        error = UsageError(f"help: no topic or command named {one_line(named[0])!r}; {hint}")
        error.remedy = hint
        raise error
    if "--json" in words:
        print(json.dumps({"topic": " ".join(named[:1]), "text": text}))
    else:
        print(paint_help(text) if has_colours(sys.stdout) else text)
    return 0


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        return _help(arguments[1:]) if arguments else 2 + _help([])
    if name in ("-V", "--version"):
        print(f"skillbelt {__version__}")
        return 0
    if name not in COMMANDS:
        raise _unknown_command(name)
    try:
        made = parser(name)
        options, words = (
            _split_command(made, arguments[1:], COMMANDS[name].own_words)
            if COMMANDS[name].words
            else (arguments[1:], [])
        )
        # A list of plain words mixes with options only so, which costs the text of the usage.
        mixed = any(one.nargs is not None for one in made._get_positional_actions())
        parsed = made.parse_intermixed_args(options) if mixed else made.parse_args(options)
        parsed.words, parsed.typed = words, arguments
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        code: int = import_module(f"skillbelt.cli.{COMMANDS[name].module}").run(parsed)
    except UsageError as error:
        if error.remedy == UsageError.remedy:
            error.remedy = f"`{made.prog} --help` shows what it takes"
        raise
    return code


def _split_command(
    made: argparse.ArgumentParser, arguments: list[str], own_words: int
) -> tuple[list[str], list[str]]:
    """Split into options and command: after `--`, or from the first word that is not its own."""
    options, words = _split_words(arguments)
    start = _find_command(made, options, own_words)
    if start == len(options):
        return options, words
    known = {*made._option_string_actions, "--"}
    both = [word for word in arguments[start:] if word.partition("=")[0] in known]
    if both:
        error = UsageError(
            f"{one_line(both[0])} may belong to {made.prog} or to the command; put -- before the "
            f"command: {made.prog} NAME [options] -- COMMAND..."
        )
        error.remedy = "put -- before the command"
        raise error
    return arguments[:start], arguments[start:]


def _find_command(made: argparse.ArgumentParser, options: list[str], own_words: int) -> int:
    """Return the index of the command's first word; the length if none, or an unknown option."""
    plain = at = 0
    while at < len(options):
        word = options[at]
        action = made._option_string_actions.get(word.partition("=")[0])
        if action is not None:
            at += 1 if action.nargs == 0 or "=" in word else 2
            continue
        if word.startswith("-") and word != "-":
            break
        plain += 1
        if plain > own_words:
            return at
        at += 1
    return len(options)


def _split_words(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the options, and the arguments after the first `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _unknown_command(name: str) -> UsageError:
    close = closest(name, COMMANDS, most=1, cutoff=_NEAR)
    hint = suggest(name, COMMANDS) or (
        f"did you mean {close[0]!r}?" if close else "`skillbelt --help` lists them"
    )
    if name.startswith("-"):
        hint = "options come after the command"
    error = UsageError(f"no command named {one_line(name)!r}; {hint}")
    error.remedy = hint
    return error


def _escape_unencodable() -> None:
    """Print characters that the terminal cannot encode as escapes instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
