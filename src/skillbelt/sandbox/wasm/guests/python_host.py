"""The Python host: it runs a script as `python3 SCRIPT` would, inside a WASM component.

Built by componentize-py, which keeps the memory of the interpreter as it is once this module was
imported. Nothing of the standard library is there to be read afterwards, so all of it is imported
while building (`python_library`), and a run only compiles and runs the script.
"""

import atexit
import errno
import io
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn

# A skill's module may have the name of one of the library's; these are always imported first.
_AT_START = frozenset(sys.modules)

import python_library  # type: ignore[import-not-found]  # noqa: E402
import python_loop  # type: ignore[import-not-found]  # noqa: E402
import python_network  # type: ignore[import-not-found]  # noqa: E402
from wit_world.imports import control  # type: ignore[import-not-found]  # noqa: E402

_LIBRARY = frozenset(sys.modules) - _AT_START
_FLAGS = "BEIOPRSbdiqsuvx"
_WITH_VALUE = "WX"
_CANNOT = 2
# WASI numbers errors in its own way.
_LINUX = {errno.ENOENT: 2, errno.EACCES: 13, errno.ENOTDIR: 20, errno.EISDIR: 21, errno.ELOOP: 40}


class CommandLine(NamedTuple):
    """What the command line asks for."""

    kind: str  # script, code, module, stdin, version, wrong
    what: str = ""
    arguments: tuple[str, ...] = ()
    flags: str = ""

    @property
    def isolated(self) -> bool:
        """Whether neither the script's folder nor the environment says where modules are."""
        return "I" in self.flags


class Run:
    """wasi:cli/run."""

    def run(self) -> None:
        """Run the program that the arguments name; its exit status goes to the engine."""
        sys.executable, call = "".join(sys.argv[:1]), self.parsed()
        _prepare(call)
        status = _guarded(lambda: self.start(call))
        atexit._run_exitfuncs()
        control.exit(_flushed(status) & 0xFF)

    def parsed(self) -> CommandLine:
        """What the arguments ask for."""
        return _parsed(sys.argv[1:])

    def start(self, call: CommandLine) -> None:
        """Do it."""
        _start(call)


def _parsed(words: list[str]) -> CommandLine:
    flags = ""
    while words and words[0].startswith("-") and words[0] != "-":
        word, *words = words
        if word == "--version":
            return CommandLine("version")
        for at, letter in enumerate(word[1:], 2):
            if letter in "cm":
                rest = [word[at:], *words] if word[at:] else words
                if not rest:
                    return CommandLine("wrong", f"Argument expected for the -{letter} option")
                kind = "code" if letter == "c" else "module"
                return CommandLine(kind, rest[0], tuple(rest[1:]), flags)
            if letter in _WITH_VALUE:
                words = words if word[at:] else words[1:]
                break
            if letter == "V":
                return CommandLine("version")
            if letter not in _FLAGS:
                return CommandLine("wrong", f"unknown option -{letter}")
            flags += letter
    if not words or words[0] == "-":
        return CommandLine("stdin", "".join(words[:1]), tuple(words[1:]), flags)
    return CommandLine("script", words[0], tuple(words[1:]), flags)


def _prepare(call: CommandLine) -> None:
    """What an interpreter that starts finds out about its surroundings."""
    folder = os.environ.get("PWD", "")
    if folder:
        try:
            os.chdir(folder)
        except OSError:
            os.chdir("/")
    unbuffered = "u" in call.flags or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin, sys.stdout, sys.stderr = _streams(unbuffered)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.path[:] = _search_path(call)
    sys.dont_write_bytecode = True


def _streams(unbuffered: bool) -> tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]:
    return (
        _stream(0, "<stdin>", "r", "surrogateescape", False, False),
        _stream(1, "<stdout>", "w", "surrogateescape", False, unbuffered),
        _stream(2, "<stderr>", "w", "backslashreplace", True, unbuffered),
    )


def _stream(
    number: int, name: str, mode: str, errors: str, lines: bool, unbuffered: bool
) -> io.TextIOWrapper:
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = name
    kept: Any = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    text = io.TextIOWrapper(
        raw if unbuffered else kept,
        "utf-8", errors, line_buffering=lines, write_through=unbuffered,
    )  # fmt: skip
    text.mode = mode  # type: ignore[misc]
    return text


def _search_path(call: CommandLine) -> list[str]:
    found: list[str] = []
    if not call.isolated and "E" not in call.flags:
        found += [one for one in os.environ.get("PYTHONPATH", "").split(":") if one]
    environment = os.environ.get("VIRTUAL_ENV", "")
    if environment:
        found += _site_packages(os.path.join(environment, "lib"))
    return found


def _site_packages(folder: str) -> list[str]:
    try:
        versions = sorted(name for name in os.listdir(folder) if name.startswith("python3"))
    except OSError:
        return []
    return [os.path.join(folder, name, "site-packages") for name in versions]


def _start(call: CommandLine) -> None:
    if call.kind == "script":
        _run_script(call)
    elif call.kind == "code":
        _run_code(call.what.encode() + b"\n", "<string>", ["-c", *call.arguments], call)
    elif call.kind == "stdin":
        given = [call.what, *call.arguments]
        _run_code(sys.stdin.buffer.read(), "<stdin>", given, call)
    elif call.kind == "module":
        _lead_path("", call)
        _run_module(call)
    elif call.kind == "version":
        print(f"Python {sys.version.split()[0]}")
    else:
        _refuse(call.what)


def _refuse(reason: str) -> NoReturn:
    print(reason, file=sys.stderr)
    raise SystemExit(_CANNOT)


def _run_script(call: CommandLine) -> None:
    path = os.path.abspath(call.what)
    sys.argv[:] = [call.what, *call.arguments]
    if os.path.isdir(path):
        sys.path.insert(0, call.what)
        _forget_shadowed(call.what)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    try:
        with open(call.what, "rb") as file:
            source = file.read()
    except OSError as error:
        number = _LINUX.get(error.errno or 0, error.errno)
        _refuse(f"{sys.executable}: can't open file {path!r}: [Errno {number}] {error.strerror}")
    _lead_path(os.path.dirname(os.path.realpath(path)), call)
    _execute(source, path, main_module(path))


def _run_module(call: CommandLine) -> None:
    """A module of the library is not there as a file; some were kept for this."""
    sys.argv[:] = ["-m", *call.arguments]
    kept = python_library.PROGRAMS.get(call.what)
    if kept is None or call.what not in sys.modules:
        runpy._run_module_as_main(call.what)  # type: ignore[attr-defined]
        return
    sys.argv[0] = kept.co_filename
    space = main_module(kept.co_filename)
    space["__package__"] = call.what.rpartition(".")[0]
    exec(kept, space)


def _run_code(source: bytes, name: str, argv: list[str], call: CommandLine) -> None:
    _lead_path("", call)
    sys.argv[:] = argv
    _execute(source, name, main_module(None))


def _lead_path(folder: str, call: CommandLine) -> None:
    """The script's own folder comes first, and its modules before the library's."""
    if not call.isolated and "P" not in call.flags:
        sys.path.insert(0, folder)
        _forget_shadowed(folder or ".")


def _forget_shadowed(folder: str) -> None:
    try:
        names = {name.removesuffix(".py") for name in os.listdir(folder)}
    except OSError:
        return
    for name in [one for one in _LIBRARY if one.partition(".")[0] in names]:
        if _shadows(os.path.join(folder, name.partition(".")[0])):
            sys.modules.pop(name, None)


def _shadows(path: str) -> bool:
    return os.path.isfile(f"{path}.py") or os.path.isfile(os.path.join(path, "__init__.py"))


def main_module(path: str | None) -> dict[str, Any]:
    """A new `__main__`, and what is in it."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    space = vars(module)
    space.update(__builtins__=sys.modules["builtins"], __loader__=BuiltinImporter)
    if path is not None:
        space.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    return space


def _execute(source: bytes, name: str, space: dict[str, Any]) -> None:
    code: CodeType = compile(source, name, "exec", dont_inherit=True)
    exec(code, space)


def _guarded(program: Callable[[], None]) -> int:
    """Run it; the exit status that the interpreter would end with."""
    try:
        program()
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        _report(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code if -(2**63) <= code < 2**63 else -1
    _flushed(0)
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    error = error.with_traceback(trace)
    _flushed(0)
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException:
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exc()
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)


def _is_ours(name: str) -> bool:
    return os.path.dirname(name) == os.path.dirname(__file__)


def _flushed(status: int) -> int:
    """The status after everything was written; 120 when that fails, as the interpreter has it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or (0 if stream.closed else 120)
        except AttributeError:
            continue
    return status


_leave = os._exit


def _exit_now(status: int) -> NoReturn:
    control.exit(status & 0xFF)
    _leave(status & 0xFF)


os._exit = _exit_now
python_loop.install()
python_network.install()
python_library.settle()
