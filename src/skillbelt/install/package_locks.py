"""Access the packages of a lock lazily.

Most skills declare no packages, and then nothing more is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from skillbelt.format.skill import Skill
from skillbelt.install.values import InstallPlace, LockEntry
from skillbelt.permission.packages import LockedPackages
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings


def packages_module() -> ModuleType:
    """Return the module that resolves packages and reads what is locked of them."""
    from skillbelt.install import locked_packages  # cost: 40 ms, most skills declare none

    return locked_packages


class PackageLocks(NamedTuple):
    """Finds the locked packages of skills, for runs. The lock is read when a run needs packages."""

    settings: Settings | Callable[[], Settings]

    def of(self, skill: Skill) -> Mapping[str, LockedPackages]:
        """Return what the lock says, by the file that declares it.

        ConfigError for an invalid lock file, RunRefused for packages that cannot be read.
        """
        settings = self.settings() if callable(self.settings) else self.settings
        found: Mapping[str, LockedPackages] = packages_module().locked_files(skill, settings)
        return found


def find_package_fault(entry: LockEntry, folder: str, place: InstallPlace) -> str:
    """Say how the locked packages do not fit the skill; "" where they do, or there are none."""
    if not entry.packages:
        return ""
    return str(packages_module().find_package_fault(entry, folder, place))
