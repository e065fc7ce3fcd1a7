"""The sandbox for WASM modules, and for scripts run by an interpreter in WASM.

A guest sees only the folders that the job mounts and a private `/tmp`: no programs, processes,
network or devices. The engine confines the guest, and the kernel confines its worker: each run has
its own process, never root, which can open only those folders.
"""

import os
import sys
import threading
from collections.abc import Callable

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.remove import remove_tree
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.cgroups import hierarchy
from skillbelt.sandbox.linux.identity import blocking_folder, current_identity, run_identity
from skillbelt.sandbox.linux.landlock import version
from skillbelt.sandbox.process.hidden_usage import can_see
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.limits import counted_enforced
from skillbelt.sandbox.process.run import check_job
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES, Job, Listener, Mount, Running, refusal
from skillbelt.sandbox.wasm.command import MISSING, NotRunnable, Program, parse_command
from skillbelt.sandbox.wasm.engine import packages
from skillbelt.sandbox.wasm.folders import GuestFolders
from skillbelt.sandbox.wasm.interpreters import InstallTools, host_component
from skillbelt.sandbox.wasm.modules import (
    MAX_WASM_CACHE_BYTES,
    UNCOUNTED_FUEL,
    ModuleCache,
    Modules,
)
from skillbelt.sandbox.wasm.pool import WasmPool
from skillbelt.sandbox.wasm.run import WasmPlan, WasmRun
from skillbelt.settings import Settings

_CACHE = "wasm"
# (module (memory (export "memory") 1) (func (export "_start")))
_TINY = bytes.fromhex(
    "0061736d0100000001040160000003020100050301000107130206"
    "6d656d6f72790200065f737461727400000a040102000b"
)
_MAX_REACHABLE = 256
Progress = Callable[[str], None]


class WasmSandbox:
    """Runs modules and scripts in wasmtime."""

    name = "wasm"
    level = 2
    remaps = True

    def __init__(
        self,
        settings: Settings | None = None,
        progress: Progress | None = None,
        install: InstallTools | None = None,
    ) -> None:
        """Create the sandbox. Without a cache folder, compiled modules are cached until `close`.

        `install` installs the tools that build the Python interpreter, on first use.
        """
        self._settings = settings or Settings()
        self._progress, self._install = progress, install
        self._lock = threading.Lock()
        self._pool = WasmPool(self._settings.limits)
        self._modules: Modules | None = None
        self._works = False
        self._hosts: dict[str, str] = {}
        self._reachable: set[str] = set()

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can."""
        return refusal(self._preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; raises SandboxUnavailable when the sandbox itself cannot start."""
        self._preflight()
        return self._start(job, listener)

    def close(self) -> None:
        """Stop the engine process after the current runs. The sandbox can be used again."""
        with self._lock:
            modules, self._modules = self._modules, None
        if modules is not None:
            modules.close()
        self._pool.close()

    def _preflight(self) -> None:
        """Run a tiny module like a real run, until that has worked once."""
        if self._works:
            return
        reason = _find_missing()
        if reason is not None:
            raise SandboxUnavailable(reason)
        folder = self._pool.temporary()
        try:
            with open(os.path.join(folder, "tiny.wasm"), "wb") as file:
                file.write(_TINY)
            os.chmod(file.name, 0o444)
            mounts = (Mount(folder, "/tiny", True),)
            job = Job(
                argv=("/tiny/tiny.wasm",), env={}, cwd="/tiny", mounts=mounts, workspace=folder
            )
            outcome = self._start(job, None).wait()
        finally:
            remove_tree(folder)
        assert outcome is not None
        if outcome.exit_code:
            said = outcome.stderr.data.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"a module in it ends with {outcome.exit_code}: {said}")
        self._works = True

    def _start(self, job: Job, listener: Listener | None) -> Running:
        check_job(job)
        _check_text(job)
        self._check_reach(job)
        program: Program | None = None
        said = host = ""
        try:
            program = parse_command(job.argv)
            host = self._host(program)
        except NotRunnable as error:
            said = str(error)
        temporary = self._pool.temporary()
        try:
            plan = WasmPlan(
                program=program,
                folders=GuestFolders(job, temporary),
                temporary=temporary,
                host=host,
                said=said,
                code=MISSING,
            )
            modules = self._open_modules()
            return WasmRun(
                plan=plan,
                job=job,
                listener=listener,
                pool=self._pool,
                modules=modules,
                enforced=_describe_enforced(job),
            )
        except BaseException:
            self._pool.give_back(temporary)
            raise

    def _host(self, program: Program) -> str:
        """Return the component that runs scripts of this kind; built on first use."""
        if program.kind == "module":
            return ""
        known = self._hosts.get(program.kind, "")
        if known and os.path.isfile(known):
            return known
        settings = self._settings
        if not settings.cache_dir:
            settings = settings._replace(cache_dir=os.path.join(self._pool.root(), "hosts"))
        found = host_component(
            program.kind, settings, install=self._install, progress=self._progress
        )
        self._hosts[program.kind] = found
        return found

    def _open_modules(self) -> Modules:
        with self._lock:
            if self._modules is None:
                cache = self._settings.cache_dir or self._pool.root()
                kept = ModuleCache(os.path.join(cache, _CACHE), MAX_WASM_CACHE_BYTES, self._report)
                self._modules = Modules(kept, self._report)
            return self._modules

    def _report(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    def _check_reach(self, job: Job) -> None:
        """Raise SandboxUnavailable for a folder that the user of commands cannot reach."""
        if run_identity() is None:
            return
        for mount in job.mounts:
            parent = os.path.dirname(mount.source)
            if parent in self._reachable:
                continue
            folder = blocking_folder(mount.source)
            if folder is not None:
                raise SandboxUnavailable(
                    f"{mount.source} cannot be used: {folder} is closed to uid "
                    f"{current_identity().uid}, which runs commands; keep it in a folder that "
                    "others can pass through"
                )
            if len(self._reachable) >= _MAX_REACHABLE:
                self._reachable.clear()
            self._reachable.add(parent)


def _find_missing() -> str | None:
    if not packages():
        return "the package 'wasmtime' is not installed: pip install 'skillbelt[wasm]'"
    if sys.platform != "linux":
        return "it needs Linux, where the kernel can confine its workers"
    if not seccomp.supported():
        return f"there is no seccomp filter for this processor ({os.uname().machine})"
    return None


def _check_text(job: Job) -> None:
    """Raise RunRefused for text that is not valid Unicode, and for too much input."""
    try:
        "".join((*job.argv, job.cwd, *job.env, *job.env.values())).encode()
    except UnicodeEncodeError as error:
        raise RunRefused(
            "a module takes only arguments and variables that are valid Unicode"
        ) from error
    most = MAX_STDIN_BYTES
    if job.stdin is not None and len(job.stdin) > most:
        raise RunRefused(f"more than {most:,} bytes of input (max_stdin_bytes)")


def _describe_enforced(job: Job) -> dict[str, str]:
    kernel = f", Landlock version {version()}" if version() else ""
    worker = seccomp.described(False, False, programs=False)
    found = hierarchy()
    fuel = 0 < job.limits.max_wasm_fuel < UNCOUNTED_FUEL
    memory = "each memory by the engine; watched for the process"
    changed = ", changed from root" if run_identity() else ""
    none = "none: a guest has no way to it"
    return {
        "files": f"WASI folders{kernel}",
        "file modes": "a guest cannot change any",
        "time": "the worker is ended at the deadline",
        "network": "single requests, proxy only" if job.bridge else f"{none}; seccomp",
        "other processes": none,
        "system calls": f"{none}; for the worker {worker}",
        "child processes": f"{none}; seccomp",
        "other programs": f"{none}; seccomp",
        "user": f"uid {current_identity().uid}{changed}",
        **counted_enforced("", can_see()),
        "memory": f"{memory}; {found.label}" if found else memory,
        "memory beside processes": f"{none}; seccomp for the worker",
        "kernel memory": f"{none}; seccomp for the worker",
        "process count": "one worker, seccomp",
        "cpu": "rlimit, watched" + ("; fuel" if fuel else ""),
        "file size": "rlimit",
        "open files": "rlimit",
        "disk": f"watched every {TICK_SECONDS * 1000:.0f} ms",
        "temporary files": "a private folder, watched",
    }
