"""Resolve packages and build an environment from them, each in its own sandbox."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import HALF_MADE, INTERPRETER, Environment, Lock
from skillbelt.running.packages.declared import Needs, describe, name_of
from skillbelt.running.packages.fetched import KeptPages, PackageIndex
from skillbelt.running.packages.index_config import IndexConfig, node_indexes
from skillbelt.running.packages.index_fetcher import IndexFetcher
from skillbelt.running.packages.index_pages import (
    IndexFile,
    NodeIndex,
    PythonIndex,
    SharedSource,
)
from skillbelt.running.packages.installation import (
    INSTALL_TIMEOUT_SECONDS,
    RECORD,
    EnvironmentPlan,
    InstallSandbox,
    InstallSandboxes,
    InstallTools,
    SourceBuilds,
    changed,
    fits,
    libc_version,
    numbers,
    remove,
    which,
    write_json,
)
from skillbelt.running.packages.installers import (
    InstallerFailed,
    Npm,
    Uv,
    find_npm,
    find_uv,
    is_own_program,
)
from skillbelt.running.packages.locked import check_kept, hashed_lines
from skillbelt.running.packages.lockfiles import (
    NOWHERE,
    Platform,
    is_sure,
    python_lock,
    read_node,
    read_python,
    refuse,
)
from skillbelt.running.packages.shared_files import SharedFiles
from skillbelt.running.packages.wheels import WheelInstaller
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

_OUTPUT_CHARS = 600
_EXPECTED = 8  # packages whose pages are fetched before uv asks for them
_MAX_DEPTH = 64  # depth of folders; deeper nesting is suspicious
_LIMITS = Limits()
# Not copied from uv's environment: recreated here, or not needed.
_NOT_COPIED = frozenset(
    ("bin", "lib64", "pyvenv.cfg", ".gitignore", ".lock", "CACHEDIR.TAG", INTERPRETER, RECORD)
)


def install_node(
    lock: Lock,
    target: str,
    *,
    sandboxes: InstallSandboxes,
    environ: Mapping[str, str],
    hosts: Iterable[str] = (),
    timeout_seconds: float = INSTALL_TIMEOUT_SECONDS,
    max_bytes: int = _LIMITS.max_packages_bytes,
) -> None:
    """Install the packages of our own lock into a folder; raises InstallerFailed.

    The lock may lack packages for other platforms.
    """
    npm = find_npm("", environ)
    node = which("node", environ)
    tools = InstallTools(
        sandboxes=sandboxes,
        program=npm,
        interpreter=node,
        version="",
        environ=environ,
        indexes=node_indexes(environ, npm),
        hosts=tuple(hosts),
        builds=SourceBuilds(),
        seconds=timeout_seconds,
        most=max_bytes,
        say=lambda _: None,
        faults=[],
        sizes={},
        kept=KeptPages(),
    )
    installer = _npm(tools)
    with sandboxes.open(max_bytes) as sandbox:
        index = NodeIndex(*_index_for(tools, installer, sandbox), only=lock)
        installer.install(sandbox, lock, index, lenient=True)
        sandbox.copy("node_modules", target)


# Resolving


def resolve(needs: Needs, tools: InstallTools, *, portable: bool = False) -> Lock:
    """Resolve with the index; raises RunRefused for packages from other places.

    With `portable` the lock has the hashes of all platforms.
    """
    if not needs.requirements:
        return Lock(needs.kind, (), "")
    tools.say(f"resolving {describe(needs)}")
    with tools.sandboxes.open(tools.most) as sandbox, _installer_errors(needs, tools):
        if needs.kind == "node":
            found = _node_lock(needs, tools, sandbox)
        else:
            found = _python_lock(needs, tools, sandbox, portable=portable)
    return check_kept(found, needs)


def _python_lock(
    needs: Needs, tools: InstallTools, sandbox: InstallSandbox, *, portable: bool
) -> Lock:
    uv = _uv(tools)
    index = PythonIndex(*_index_for(tools, uv, sandbox))
    if not tools.indexes.links:  # find-links: nothing can be fetched ahead
        for one in filter(name_of, needs.requirements[:_EXPECTED]):
            if ";" in one:  # uv may not ask for it: uv decides that
                continue
            index.expect(name_of(one), partial(_guess_wheel, tools, one))
    data = uv.resolve(sandbox, needs, index)
    builds = tools.builds
    lock = read_python(
        data,
        (*needs.requirements, *hashed_lines(needs)),
        _platform(tools),
        builds=builds.every,
        built=frozenset(builds.names),
    )
    tools.sizes.update((one.name, index.size(one)) for one in lock.packages)
    if not portable:
        return lock
    hashed = {name_of(one) for one in needs.requirements if "--hash" in one}
    return python_lock(
        one if one.name in hashed else one._replace(hashes=index.hashes_of_version(one))
        for one in lock.packages
    )


def _guess_wheel(tools: InstallTools, wanted: str, files: Iterable[IndexFile]) -> IndexFile | None:
    """Return the wheel that uv will likely choose: the newest that fits. A wrong guess is harmless.

    None for a requirement that only uv understands.
    """
    here, python = _platform(tools), tools.version.rpartition(" ")[2]
    found = re.fullmatch(r"[\w.-]+\s*([<>=!~,.\d\s*]*)", wanted)
    if not found or tools.indexes.before:
        return None
    best: tuple[tuple[int, ...], IndexFile] | None = None
    for one in files:
        version = "".join(one.name.split("-")[1:2])
        if (
            re.fullmatch(r"\d+(?:\.\d+)*", version)
            and not one.yanked
            and is_sure(one.name, here)
            and fits(version, found[1])
            and fits(python, one.pythons)
            and (best is None or best[0] <= numbers(version))
        ):
            best = (numbers(version), one)
    return best and best[1]


def _platform(tools: InstallTools) -> Platform:
    """Return the platform of the wheels to fetch."""
    name, _, version = libc_version().partition(" ")
    libc = "glibc" if name == "glibc" else "musl" if sys.platform == "linux" else ""
    return Platform(
        minor=numbers(tools.version)[1],
        machine=os.uname().machine,
        libc=libc,
        system=sys.platform,
        libc_version=numbers(version)[:2],
    )


def _node_lock(needs: Needs, tools: InstallTools, sandbox: InstallSandbox) -> Lock:
    npm = _npm(tools)
    index = NodeIndex(*_index_for(tools, npm, sandbox))
    try:
        lock = read_node(npm.resolve(sandbox, needs, index))
    except InstallerFailed as failed:
        for name in re.findall(rf"(\S+)@{re.escape(NOWHERE)}", str(failed)):
            for (by, version), why in index.foreign.items():
                if f" {name.strip(chr(39))} " in why:
                    raise refuse(f"{by}@{version}", why) from failed
        raise
    for one in lock.packages:
        why = index.foreign.get((one.name, one.version), "")
        if why:
            raise refuse(f"{one.name}@{one.version}", why)
    return lock


def _uv(tools: InstallTools) -> Uv:
    program = find_uv(tools.program, tools.environ)
    folders = tools.sandboxes.folders_of(tools.interpreter)
    before = tools.indexes.before
    return Uv(
        program=program,
        python=tools.interpreter,
        folders=folders,
        seconds=tools.seconds,
        builds=tools.builds,
        before=before,
    )


def _npm(tools: InstallTools) -> Npm:
    return Npm(find_npm(tools.program, tools.environ), tools.interpreter, tools.seconds)


def _index_for(
    tools: InstallTools, installer: Uv | Npm, sandbox: InstallSandbox
) -> tuple[IndexConfig, IndexFetcher]:
    """Return the index for the installer: the user's, else the installer's default."""
    indexes = tools.indexes
    own = indexes.main is None and not indexes.closed
    if own:
        indexes = indexes.with_default(_default_index(installer, sandbox))
    fetcher = IndexFetcher(
        indexes, hosts=tools.hosts, environ=tools.environ, open_default=own, kept=tools.kept
    )
    fetcher.faults = tools.faults
    return indexes, fetcher


# Keyed by the path of the installer and its time of change.
_DEFAULTS: dict[tuple[str, int], str] = {}


def _default_index(installer: Uv | Npm, sandbox: InstallSandbox) -> str:
    """Return the installer's own default, asked for once."""
    key = (installer.program, changed(installer.program))
    if key not in _DEFAULTS:
        _DEFAULTS[key] = installer.default_index(sandbox)
    return _DEFAULTS[key]


@contextmanager
def _installer_errors(needs: Needs, tools: InstallTools) -> Iterator[None]:
    """Turn an installer's failure into a refusal that names the packages."""
    try:
        yield
    except InstallerFailed as failed:
        said = "; ".join((*dict.fromkeys(tools.faults), str(failed)))
        reason = shorten(one_line(said), _OUTPUT_CHARS)
        remedy = "correct what is declared, or run without packages (--no-install)"
        raise RunRefused(f"installing {describe(needs)} failed: {reason}; {remedy}") from failed
    except TimeoutError as error:
        reason = f"not done after {tools.seconds:g} s"
        raise RunRefused(f"installing {describe(needs)}: {reason}") from error
    except OSError as error:  # a full disk
        raise RunRefused(f"installing {describe(needs)} failed: {error}") from error


# Building


def build(planned: EnvironmentPlan) -> Environment:
    """Build in a temporary folder and rename it into place (locked)."""
    path, key, tools = planned.path, planned.hash, planned.tools
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(f".{key}{HALF_MADE}"):  # left by a killed process
            remove(os.path.join(folder, name))
    stage = tempfile.mkdtemp(prefix=f".{key}{HALF_MADE}", dir=folder)
    try:
        tools.say(f"installing {describe(planned.needs)}")
        with _installer_errors(planned.needs, tools):
            _install_and_copy(planned, stage)
        installed = tuple(sorted((one.name, one.version) for one in planned.lock.packages))
        environment = Environment(path, key, installed)
        write_json(os.path.join(stage, RECORD), {"hash": key, "installed": installed})
        _check_size(_make_read_only(stage), planned)
        if os.path.lexists(path):  # left by a removal that was interrupted
            remove(path)
        os.rename(stage, path)
    except BaseException:
        remove(stage)
        raise
    write_json(planned.record, planned.lock._asdict())
    return environment


def _check_size(size: int, planned: EnvironmentPlan) -> None:
    if size > planned.tools.most:
        raise RunRefused(
            f"{describe(planned.needs)}: {size} bytes once installed, more than "
            f"{planned.tools.most} (max_packages_bytes)"
        )


def _install_and_copy(planned: EnvironmentPlan, stage: str) -> None:
    """Install in a sandbox and copy the result; if one way cannot do it, try the next."""
    sandboxes, most = planned.tools.sandboxes, planned.tools.most
    ways = (_unpack, _install) if planned.needs.kind == "python" else (_install_modules,)
    for way in ways:
        with sandboxes.open(most) as sandbox:
            if way(planned, sandbox):
                copy = _copy_python if planned.needs.kind == "python" else _copy_modules
                copy(planned, sandbox, stage)
                return


def _unpack(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    """Unpack the wheels if the lock leaves no choice; else return False."""
    tools = planned.tools
    if tools.builds.any or not tools.version.startswith("CPython "):
        return False
    index = PythonIndex(*_index_for(tools, _uv(tools), sandbox), only=planned.lock)
    wheels = WheelInstaller(
        index,
        _platform(tools),
        most=max(tools.most, _LIMITS.max_network_bytes),
        seconds=tools.seconds,
        shared=SharedFiles.from_url(tools.objects) if tools.objects else None,
    )
    return wheels.install(
        sandbox,
        planned.lock,
        planned.path,
        python=tools.interpreter,
        folders=tools.sandboxes.folders_of(tools.interpreter),
    )


def _install(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    tools, uv = planned.tools, _uv(planned.tools)
    index: PackageIndex | None = None
    if planned.lock.packages:
        # A build needs more packages than it installs.
        only = None if tools.builds.any else planned.lock
        source = _shared_source(planned)
        index = PythonIndex(*_index_for(tools, uv, sandbox), only=only, shared=source)
    uv.install(sandbox, planned.lock, index, planned.path)
    return True


def _copy_python(planned: EnvironmentPlan, sandbox: InstallSandbox, stage: str) -> None:
    """Copy the environment, with our own links to the interpreter."""
    tools = planned.tools
    programs = os.path.join(stage, "bin")
    sandbox.copy("venv", stage, omitted=_NOT_COPIED)
    os.mkdir(programs)
    own = frozenset(name for name in sandbox.names("venv/bin") if is_own_program(name))
    sandbox.copy("venv/bin", programs, omitted=own)
    python = os.path.realpath(tools.interpreter)
    version = tools.version.rpartition(" ")[2]
    os.mkdir(os.path.join(stage, INTERPRETER))
    for name in ("python", "python3", "python" + ".".join(version.split(".")[:2])):
        for folder in (programs, os.path.join(stage, INTERPRETER)):
            os.symlink(python, os.path.join(folder, name))
    with open(os.path.join(stage, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write(f"home = {os.path.dirname(python)}\nversion = {version}\n")
        file.write("include-system-site-packages = false\n")


def _install_modules(planned: EnvironmentPlan, sandbox: InstallSandbox) -> bool:
    npm = _npm(planned.tools)
    index = _index_for(planned.tools, npm, sandbox)
    source = _shared_source(planned)
    npm.install(sandbox, planned.lock, NodeIndex(*index, only=planned.lock, shared=source))
    return True


def _shared_source(planned: EnvironmentPlan) -> SharedSource | None:
    tools = planned.tools
    if not tools.objects:
        return None
    return SharedSource(SharedFiles.from_url(tools.objects), planned.lock, tools.most)


def _copy_modules(_: EnvironmentPlan, sandbox: InstallSandbox, stage: str) -> None:
    modules = os.path.join(stage, "node_modules")
    os.mkdir(modules)
    sandbox.copy("node_modules", modules)


def _make_read_only(stage: str) -> int:
    """Make all files read-only for all users; return their total size.

    Links are left alone. Raises RunRefused for folders that are nested too deep.
    """
    total, folders = 0, [(stage, 0)]
    for folder, depth in folders:
        if depth > _MAX_DEPTH:
            raise RunRefused(f"the packages have folders nested {depth} deep")
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
                elif not entry.is_symlink():
                    found = entry.stat()
                    total += found.st_size
                    os.chmod(entry.path, 0o555 if found.st_mode & 0o100 else 0o444)
    for folder, _ in reversed(folders):
        os.chmod(folder, 0o555)
    return total
