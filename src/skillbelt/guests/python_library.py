"""The standard library, imported as a whole while the Python host is built."""

import importlib.util
import pkgutil
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
    import linecache
    import re

    sys.path_importer_cache.clear()
    linecache.clearcache()
    re.purge()
    sys.path[:] = []


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _import_all()
    _keep_programs()
