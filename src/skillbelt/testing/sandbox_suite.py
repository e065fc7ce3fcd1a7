"""The suite that every sandbox must pass, run by pytest. Give a `sandbox` and a `place` fixture."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from skillbelt.sandbox.protocol import Job, Mount, Outcome, Sandbox, Stream, run
from skillbelt.values import Capabilities, Limits

PATH = "/usr/bin:/bin"
HANG_SECONDS = 60.0
PROCESSES = Capabilities(processes=True)


class Place:
    """A workspace owned by the user of the run, and jobs in it."""

    def __init__(self, folder: str, owner: tuple[int, int]) -> None:
        self._owner = owner
        self._root = folder
        self.folder = self.target = self.beside("work")

    def beside(self, name: str) -> str:
        """Return a new folder next to the workspace, with the same owner."""
        path = os.path.join(self._root, name)
        os.mkdir(path)
        os.chown(path, *self._owner)
        return path

    def job(self, *argv: str, **fields: object) -> Job:
        """Return a job in the workspace; it may start processes unless `processes` is False."""
        values: dict[str, object] = {
            "env": {"PATH": PATH},
            "cwd": self.target,
            "mounts": (Mount(self.folder, self.target, True),),
            "workspace": self.folder,
            "capabilities": PROCESSES,
            "timeout_seconds": HANG_SECONDS,
            **fields,
        }
        return Job(argv=argv, **values)  # type: ignore[arg-type]

    def shell(self, script: str, **fields: object) -> Job:
        """Return a job that runs a shell script."""
        return self.job("sh", "-c", script, **fields)

    def python(self, code: str, **fields: object) -> Job:
        """Return a job that runs Python code."""
        return self.job("python3", "-c", code, **fields)


class SandboxConformance:
    """Every promise of `Sandbox` and `Running`.

    `sandbox` is one that works here; `place` a new workspace for each test.
    """

    def test_it_can_be_used_here(self, sandbox: Sandbox) -> None:
        """Its preflight passes, also a second time."""
        assert sandbox.unavailable() is None
        assert sandbox.unavailable() is None

    def test_both_streams_and_the_exit_code_come_back(self, sandbox: Sandbox, place: Place) -> None:
        """Each stream separately, byte for byte."""
        outcome = run(sandbox, place.shell("printf 'a\\000\\377'; printf b >&2; exit 3"))
        assert (outcome.exit_code, outcome.stdout.data) == (3, b"a\0\xff"), outcome
        assert outcome.stderr.data == b"b"
        assert not (outcome.timed_out or outcome.cancelled or outcome.limits_hit)
        assert outcome.duration_seconds > 0

    def test_it_says_what_was_enforced(self, sandbox: Sandbox, place: Place) -> None:
        """Every outcome does, in words."""
        assert run(sandbox, place.job("true")).enforced

    def test_the_environment_is_the_one_given(self, sandbox: Sandbox, place: Place) -> None:
        """No variable of the host comes through; odd values survive."""
        env = {"PATH": PATH, "ODD": "a\n'\"$(x) é=\\", "EMPTY": ""}
        outcome = run(sandbox, place.job("env", "-0", env=env))
        found = dict(
            line.split("=", 1) for line in outcome.stdout.data.decode().split("\0") if line
        )
        assert {name: found.pop(name) for name in env} == env
        assert set(found) <= {"PWD", "OLDPWD", "SHLVL", "_"}

    def test_arguments_survive(self, sandbox: Sandbox, place: Place) -> None:
        """Empty ones, ones with quotes and newlines, ones that look like options."""
        words = ("", " ", "a b", "'", '"', "$HOME", "`x`", "\n", "*", "-n", "--", "\\", "é", "=")
        outcome = run(sandbox, place.job("printf", "%s|", *words))
        assert outcome.stdout.data.decode() == "".join(f"{word}|" for word in words)

    def test_the_workspace_is_written_to_disk(self, sandbox: Sandbox, place: Place) -> None:
        """The host sees the files of a command, and the command those of the host."""
        with open(os.path.join(place.folder, "given"), "w", encoding="utf-8") as file:
            file.write("given")
        assert run(sandbox, place.shell("cat given > made")).exit_code == 0
        with open(os.path.join(place.folder, "made"), encoding="utf-8") as file:
            assert file.read() == "given"

    def test_a_read_only_mount_can_not_be_written(self, sandbox: Sandbox, place: Place) -> None:
        """Not even when its owner runs the command."""
        fixed = place.beside("fixed")
        mounts = (Mount(place.folder, place.target, True), Mount(fixed, fixed))
        outcome = run(sandbox, place.shell(f"cd {fixed} && ls && echo > x", mounts=mounts))
        if sandbox.level:
            assert outcome.exit_code != 0
            assert os.listdir(fixed) == []
        else:
            assert os.listdir(fixed) == ["x"]

    def test_a_missing_program_is_an_outcome(self, sandbox: Sandbox, place: Place) -> None:
        """By name and by path."""
        assert run(sandbox, place.job("no-such-program")).exit_code == 127
        assert run(sandbox, place.job("/no/such/program")).exit_code == 127

    def test_a_signal_is_128_and_its_number(self, sandbox: Sandbox, place: Place) -> None:
        """The same code as a shell reports."""
        assert run(sandbox, place.shell("kill -SEGV $$")).exit_code == 139

    def test_input_arrives_whole(self, sandbox: Sandbox, place: Place) -> None:
        """More than a pipe holds, and back again, without a deadlock."""
        data = bytes(range(256)) * 4000
        limits = Limits(max_stream_bytes=2**21)
        outcome = run(sandbox, place.job("cat", stdin=data, limits=limits))
        assert outcome.stdout.data == data

    def test_input_that_nobody_reads_does_not_matter(self, sandbox: Sandbox, place: Place) -> None:
        """The command ends as if there were none."""
        assert run(sandbox, place.job("true", stdin=bytes(2**21))).exit_code == 0

    def test_without_input_there_is_an_end_of_file(self, sandbox: Sandbox, place: Place) -> None:
        """A command that reads gets EOF, and does not hang."""
        assert run(sandbox, place.job("cat")).exit_code == 0

    def test_input_can_be_written_while_it_runs(self, sandbox: Sandbox, place: Place) -> None:
        """It ends when it is closed; later writes are refused."""
        heard: list[tuple[Stream, bytes]] = []
        ready = threading.Event()

        def listener(stream: Stream, data: bytes) -> None:
            heard.append((stream, data))
            ready.set()

        running = sandbox.start(place.job("cat", stdin=None), listener)
        running.write(b"one")
        assert ready.wait(HANG_SECONDS)
        assert running.wait(0.0) is None
        running.write(b"two")
        running.close_stdin()
        outcome = running.wait(HANG_SECONDS)
        assert outcome is not None
        assert outcome.stdout.data == b"onetwo"
        assert b"".join(data for _, data in heard) == b"onetwo"
        assert refused(lambda: running.write(b"three"))

    def test_output_beyond_the_limit_is_counted_and_dropped(
        self, sandbox: Sandbox, place: Place
    ) -> None:
        """The head is kept; the limit is reported."""
        limits = Limits(max_stream_bytes=1000)
        outcome = run(sandbox, place.shell("head -c 3000000 /dev/zero; echo x >&2", limits=limits))
        assert outcome.stdout == (bytes(1000), 3_000_000)
        assert outcome.stdout.truncated and not outcome.stderr.truncated
        assert outcome.limits_hit == ("max_stream_bytes",)

    def test_a_timeout_keeps_what_was_said(self, sandbox: Sandbox, place: Place) -> None:
        """Exit code 124, even when the command ignores signals."""
        script = "trap '' TERM INT HUP; echo before; while :; do sleep 60; done"
        outcome = run(sandbox, place.shell(script, timeout_seconds=1.0))
        assert (outcome.exit_code, outcome.timed_out, outcome.cancelled) == (124, True, False)
        assert outcome.stdout.data == b"before\n"
        assert "run_timeout_seconds" in outcome.limits_hit

    def test_kill_ends_it_at_once(self, sandbox: Sandbox, place: Place) -> None:
        """The outcome is cancelled; a second kill, and a kill after the end, are not errors."""
        running = sandbox.start(place.job("sleep", "1000"))
        running.kill()
        running.kill()
        outcome = running.wait(HANG_SECONDS)
        assert outcome is not None
        assert (outcome.cancelled, outcome.timed_out) == (True, False)
        running.kill()
        assert running.wait() == outcome

    def test_nothing_outlives_a_command(self, sandbox: Sandbox, place: Place) -> None:
        """A daemon in its own session ends with the command, and does not keep it open."""
        assert (
            run(sandbox, place.python(DAEMON + "while not os.path.exists('beat'): pass")).exit_code
            == 0
        )
        assert silent(place)

    def test_nothing_outlives_a_timeout(self, sandbox: Sandbox, place: Place) -> None:
        """Nor a timeout."""
        run(sandbox, place.python(DAEMON + "time.sleep(1000)", timeout_seconds=1.5))
        assert os.path.exists(os.path.join(place.folder, "beat"))
        assert silent(place)

    def test_a_stopped_command_is_ended(self, sandbox: Sandbox, place: Place) -> None:
        """Also one that stops itself."""
        outcome = run(sandbox, place.shell("kill -STOP $$; echo no", timeout_seconds=1.0))
        assert (outcome.timed_out, outcome.stdout.data) == (True, b"")

    def test_a_thread_that_ends_does_not_end_its_command(
        self, sandbox: Sandbox, place: Place
    ) -> None:
        """A run belongs to the process that started it, not to the thread."""
        started = []
        job = place.shell("sleep 0.5; echo done")
        thread = threading.Thread(target=lambda: started.append(sandbox.start(job)))
        thread.start()
        thread.join()
        outcome = started[0].wait(HANG_SECONDS)
        assert outcome is not None
        assert outcome.stdout.data == b"done\n"

    def test_runs_side_by_side(self, sandbox: Sandbox, place: Place) -> None:
        """In one workspace, each with its own outcome."""
        runs = [sandbox.start(place.shell(f"sleep 0.2; echo {n}")) for n in range(8)]
        outcomes = [running.wait(HANG_SECONDS) for running in runs]
        outputs = [outcome and outcome.stdout.data for outcome in outcomes]
        assert outputs == [b"%d\n" % n for n in range(8)]

    def test_a_terminal_on_request(self, sandbox: Sandbox, place: Place) -> None:
        """All three streams are one terminal, which is the controlling one."""
        script = "test -t 0 && test -t 1 && test -t 2 && : < /dev/tty && read x && echo got $x"
        outcome = run(sandbox, place.shell(script, terminal=True, stdin=b"word\n"))
        assert outcome.exit_code == 0, outcome
        assert b"got word" in outcome.stdout.data
        assert outcome.stderr.total_bytes == 0

    def test_no_handle_of_the_host_comes_along(self, sandbox: Sandbox, place: Place) -> None:
        """Only the three streams, even if the host has inheritable descriptors."""
        read, write = os.pipe()
        os.set_inheritable(read, True)
        try:
            outcome = run(sandbox, place.python("import os; print(os.listdir('/proc/self/fd'))"))
        finally:
            os.close(read)
            os.close(write)
        # The fourth is the folder that is being listed.
        assert outcome.stdout.data == b"['0', '1', '2', '3']\n", outcome

    def test_no_handle_stays_behind(self, sandbox: Sandbox, place: Place) -> None:
        """No file descriptor is left after any kind of end."""
        run(sandbox, place.job("true"))
        before = open_handles()
        for _ in range(5):
            run(sandbox, place.job("true"))
            run(sandbox, place.job("no-such-program"))
            run(sandbox, place.job("sleep", "9", timeout_seconds=0.2))
            run(sandbox, place.job("true", terminal=True))
        assert open_handles() - before == Counter()

    def test_what_a_listener_throws_is_its_own_affair(self, sandbox: Sandbox, place: Place) -> None:
        """The run continues, and its output is captured."""

        def listener(stream: Stream, data: bytes) -> None:
            raise RuntimeError(stream)

        outcome = run(sandbox, place.shell("echo a"), listener)
        assert (outcome.exit_code, outcome.stdout.data) == (0, b"a\n")


# Leaves the session and the process group, closes all streams, and beats until it is killed.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            open('beat', 'w').write(str(time.time()))
            time.sleep(0.01)
    os._exit(0)
"""


def open_handles() -> Counter[str]:
    """Return the targets of this process's file descriptors; others may close some meanwhile."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return found


def silent(place: Place) -> bool:
    """Whether the daemon has stopped beating."""
    path = os.path.join(place.folder, "beat")
    before = os.stat(path).st_mtime_ns
    time.sleep(0.2)
    return os.stat(path).st_mtime_ns == before


def refused(write: Callable[[], None]) -> bool:
    """Whether the pipe is broken."""
    try:
        write()
    except BrokenPipeError:
        return True
    return False


def succeeded(outcome: Outcome) -> bool:
    """Whether the command succeeded, without truncated output."""
    return outcome.exit_code == 0 and not outcome.limits_hit
