"""A skill in Python as a component of its own: its modules come along as data."""

import base64
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import CodeType, ModuleType

import python_host  # type: ignore[import-not-found]
from skill_sources import MAIN, SOURCES  # type: ignore[import-not-found]

_PLACE = "/skill"  # where the skill's folder is in a run
_CODE: dict[str, CodeType] = {
    name: compile(base64.b64decode(text), f"{_PLACE}/{path}", "exec", dont_inherit=True)
    for name, (path, _, text) in SOURCES.items()
}


class _Modules(MetaPathFinder, InspectLoader):
    """Finds the skill's own modules, before those of the library."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in SOURCES:
            return None
        return spec_from_loader(fullname, self, is_package=SOURCES[fullname][1])

    def get_code(self, fullname: str) -> CodeType:
        return _CODE[fullname]

    def get_source(self, fullname: str) -> str:
        return base64.b64decode(SOURCES[fullname][2]).decode()


class Run(python_host.Run):  # type: ignore[misc]
    """wasi:cli/run."""

    def parsed(self) -> object:
        """The arguments are the program's own."""
        return python_host.CommandLine("skill")

    def start(self, call: object) -> None:
        """Run the skill's main module."""
        for name in SOURCES:
            sys.modules.pop(name, None)
        sys.path.insert(0, _CODE[MAIN].co_filename.rpartition("/")[0])
        exec(_CODE[MAIN], python_host.main_module(_CODE[MAIN].co_filename))


sys.meta_path.insert(0, _Modules())
