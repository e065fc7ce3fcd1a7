"""The standard library, imported as a whole while the Python host is built."""

import ast
import base64
import importlib.util
import linecache
import pkgutil
import re
import sys
import warnings
from types import CodeType

# Not for a script without a screen, a terminal or other processes; or they act when imported.
_LEFT_OUT = """
__main__ _android_support _ios_support _pyrepl _winapi antigravity curses ensurepip idlelib lib2to3
msilib msvcrt nt pip pydoc_data setuptools test this tkinter turtle turtledemo venv winreg winsound
"""


# Of use as `python3 -m NAME`: their code is kept, since no file of theirs is there later.
_PROGRAMS = """
ast base64 calendar cProfile dis doctest gzip json json.tool mimetypes pickletools platform pprint
py_compile quopri random symtable sysconfig tabnanny tarfile textwrap timeit tokenize trace
unittest uuid zipfile
"""
PROGRAMS: dict[str, CodeType] = {}


def _names() -> list[str]:
    tops = sorted(sys.stdlib_module_names.difference(_LEFT_OUT.split()))
    return [name for name in tops if not name.startswith(("_test", "_xxtest", "xx"))]


def _import(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except BaseException:  # a part that this platform does not have
        return None


# Imported inside functions of the library, so that no source shows that they are needed.
_HIDDEN = """
_strptime encodings.ascii encodings.cp1252 encodings.idna encodings.latin_1 encodings.utf_16
encodings.utf_16_be encodings.utf_16_le encodings.utf_32 encodings.utf_8_sig importlib.resources
shlex stringprep textwrap traceback zoneinfo
"""


def _imported(source: bytes) -> set[str]:
    """The modules that a source imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return found


def _import_needed(sources: list[bytes]) -> None:
    wanted = set(_HIDDEN.split()).union(*map(_imported, sources))
    for name in sorted(wanted):
        if name.partition(".")[0] in sys.stdlib_module_names:
            _import(name)


def _import_all() -> None:
    for name in _names():
        module = _import(name)
        for path in getattr(module, "__path__", ()):
            for part in pkgutil.walk_packages([path], f"{name}."):
                if not {"test", "tests", "__main__", "idle_test"}.intersection(
                    part.name.split(".")
                ):
                    _import(part.name)


def _keep_programs() -> None:
    for name in _PROGRAMS.split():
        for whole in (f"{name}.__main__", name):
            code = _code(whole)
            if code is not None:
                PROGRAMS.setdefault(name, code)


def _code(name: str) -> CodeType | None:
    try:
        found = importlib.util.find_spec(name)
        return found.loader.get_code(name) if found and found.loader else None  # type: ignore
    except (ImportError, AttributeError):
        return None


def settle() -> None:
    """Leave nothing behind that belongs to the building: caches, and folders that go away."""
    sys.path_importer_cache.clear()
    linecache.clearcache()
    re.purge()
    sys.path[:] = []


def _prepare() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # extra: a module that only a built skill has
            from skill_sources import SOURCES  # type: ignore[import-not-found]
        except ImportError:
            _import_all()
            _keep_programs()
        else:
            _import_needed([base64.b64decode(text) for _, _, text in SOURCES.values()])


if __name__ == "python_library":  # so the guest calls it; elsewhere it is only looked at
    _prepare()
