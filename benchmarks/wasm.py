"""Measure the WASM sandbox, as an ordinary user: `python -m benchmarks.wasm`.

Python in it is measured beside Python in the native sandbox, and a compiled module beside the
engine alone with the module loaded, in turns, so that whatever else the machine does weighs on all
of them; as it only ever adds, the time that one run in ten stays below is taken. Then how long a
guest that sleeps is waited for, and whether anything grows. Exit code 1 when a bar is missed.

The first time, the host component for Python is built, which takes a minute and the registry.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from benchmarks.run import interleaved
from benchmarks.sandbox import USER, Row, as_json, leave_root, table
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings

RUNS, MANY, FIRST = 100, 1000, 100
MODULE = "examples/skills/code-review/wasm/skill.wasm"
INPUT = {"files": [{"path": "a.py", "content": "import os\nprint(eval(input()))\n"}]}
PYTHON = ("python3", "-c", "print(1)")
SLEEP = ("python3", "-c", "import time; time.sleep(1000)")


class Place:
    """A workspace, a module and a sandbox whose components are made and compiled."""

    def __init__(self, root: str, cache: str) -> None:
        """`cache` is one whose components are used, if it has any; it is left as it is."""
        self.folder, self.skill = os.path.join(root, "work"), os.path.join(root, "skill")
        self.cache = os.path.join(root, "cache")
        for folder in (self.folder, self.skill):
            os.mkdir(folder)
        if cache:
            shutil.copytree(cache, self.cache)
        repository = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        shutil.copy(os.path.join(repository, MODULE), os.path.join(self.skill, "skill.wasm"))

    def prepare(self) -> None:
        """Make what takes long, as whoever we are."""
        sandbox = self.sandbox(lambda text: print(text, file=sys.stderr))
        for job in (self.job(*PYTHON), self.module()):
            _checked(run(sandbox, job).exit_code)
        sandbox.close()

    def hand_over(self) -> None:
        """Give all of it to whom we become."""
        for folder, names, files in os.walk(os.path.dirname(self.cache)):
            for name in (".", *names, *files):
                if os.getuid() == 0:
                    os.chown(os.path.join(folder, name), USER, USER)

    def sandbox(self, progress: Callable[[str], None] | None = None) -> WasmSandbox:
        return WasmSandbox(Settings(cache_dir=self.cache), progress, install_tools)

    def job(self, *argv: str, seconds: float = 60.0) -> Job:
        mounts = (Mount(self.folder, self.folder, True), Mount(self.skill, self.skill))
        env = {"PATH": "/usr/bin:/bin"}
        return Job(
            argv=argv,
            env=env,
            cwd=self.folder,
            mounts=mounts,
            workspace=self.folder,
            timeout_seconds=seconds,
        )

    def module(self) -> Job:
        path = os.path.join(self.skill, "skill.wasm")
        return self.job(path)._replace(stdin=json.dumps(INPUT).encode())


def python(place: Place, sandbox: WasmSandbox, runs: int) -> Row:
    """Python in the host component over Python in the native sandbox."""
    native, job = LinuxSandbox(), place.job(*PYTHON)
    outside, inside = interleaved(
        runs,
        lambda: _checked(run(native, job).exit_code),
        lambda: _checked(run(sandbox, job).exit_code),
    )
    detail = f"{inside * 1000:.1f} ms, native {outside * 1000:.1f} ms"
    return Row("python", inside / outside, 0.8, "times native", detail)


def compiled(place: Place, sandbox: WasmSandbox, bare: Bare, runs: int) -> Row:
    """A module of a skill over the engine alone, in this process, with the module loaded."""
    job = place.module()
    alone, ours = interleaved(runs, bare.run, lambda: _checked(run(sandbox, job).exit_code))
    detail = f"{ours * 1000:.1f} ms, the engine alone {alone * 1000:.1f} ms"
    return Row("compiled", ours / alone, 4.0, "times the engine", detail)


class Bare:
    """The engine in this process, with the module loaded: nobody could end it."""

    def __init__(self, place: Place) -> None:
        import wasmtime
        from wasmtime import component

        self._wasmtime, self._place = wasmtime, place
        self._engine = wasmtime.Engine()
        path = os.path.join(place.skill, "skill.wasm")
        self._component = component.Component.from_file(self._engine, path)
        self._linker = component.Linker(self._engine)
        self._linker.add_wasip2()
        with self._linker.root() as root:
            with root.add_instance("skillbelt:host/control@0.1.0") as control:
                control.add_func("exit", lambda _, code: None)
            with root.add_instance("skillbelt:host/http@0.1.0") as http:
                http.add_func("fetch", lambda _, request: "not granted")
        self._input = os.path.join(place.folder, "input")
        with open(self._input, "w", encoding="utf-8") as file:
            json.dump(INPUT, file)

    def run(self) -> None:
        wasmtime, folder = self._wasmtime, self._place.folder
        store, wasi = wasmtime.Store(self._engine), wasmtime.WasiConfig()
        wasi.argv, wasi.env = ["skill.wasm"], [("PWD", folder)]
        wasi.stdin_file = self._input
        wasi.stdout_file = wasi.stderr_file = os.path.join(folder, "output")
        wasi.preopen_dir(folder, folder)
        store.set_wasi(wasi)
        instance = self._linker.instantiate(store, self._component)
        found = self._component.get_export_index("wasi:cli/run@0.2.0")
        index = self._component.get_export_index("run", found)
        assert index is not None
        call = instance.get_func(store, index)
        assert call is not None
        call(store)
        store.close()


def deadline(place: Place, sandbox: WasmSandbox) -> list[Row]:
    """When a guest that sleeps is answered for, and how long the next call takes."""
    start = time.perf_counter()
    outcome = run(sandbox, place.job(*SLEEP, seconds=1.0))
    answered = time.perf_counter()
    assert outcome.timed_out
    _checked(run(sandbox, place.job(*PYTHON)).exit_code)
    after = time.perf_counter() - answered
    return [
        Row("deadline", answered - start, 1.5, "s", "sleep(1000) with a limit of 1 s"),
        Row("next", after, 0.5, "s", "the call after that"),
    ]


def growth(place: Place, sandbox: WasmSandbox, runs: int) -> list[Row]:
    """Measure what grew between the first hundred runs and the last."""
    job = place.module()
    found = []
    for count in (FIRST, runs):
        for _ in range(count):
            _checked(run(sandbox, job).exit_code)
        time.sleep(0.5)  # a worker that is kept ready is there again
        found.append(_counted(sandbox, place))
    return [
        Row(name, float(later - before), bar, unit, f"{runs} runs")
        for name, unit, bar, before, later in zip(
            ("memory", "handles", "files", "processes"),
            ("MB", "more", "more", "more"),
            (1.0, 0.0, 0.0, 0.0),
            *found,
            strict=True,
        )
    ]


def _counted(sandbox: WasmSandbox, place: Place) -> tuple[float, int, int, int]:
    engine = sandbox._pool.engine().pid
    pids = [os.getpid(), engine]
    memory = sum(_anonymous_bytes(pid) for pid in pids) / 10**6
    handles = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    folders = (sandbox._pool.root(), place.cache, place.folder)
    files = sum(len(names) + len(more) for each in folders for _, names, more in os.walk(each))
    return memory, handles, files, len(descendants(engine))


def _anonymous_bytes(pid: int) -> int:
    """Its own memory: what is mapped from files comes and goes."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _checked(exit_code: int) -> None:
    assert exit_code == 0, exit_code


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--many", type=int, default=MANY)
    parser.add_argument("--cache", default="", help="where components were built before")
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as root:
        os.chmod(root, 0o755)
        child = os.fork()
        if child == 0:
            # Another user from here on; whoever made the folder removes it.
            os._exit(_measured(Place(root, options.cache), options))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code in (0, 1) else 1


def _measured(place: Place, options: argparse.Namespace) -> int:
    try:
        place.prepare()
        bare = Bare(place)
        bare.run()
        place.hand_over()
        leave_root()
        os.chdir("/")
        sandbox = place.sandbox()
        rows = [
            python(place, sandbox, options.runs),
            compiled(place, sandbox, bare, options.runs),
            *deadline(place, sandbox),
            *growth(place, sandbox, options.many),
        ]
        sandbox.close()
    except BaseException:
        import traceback

        traceback.print_exc()
        return 2
    print(as_json(rows) if options.json else table(rows), flush=True)
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
