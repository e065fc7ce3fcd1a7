"""The suite that every executor must pass, run by pytest. Give an `executor` fixture."""

import os
import threading
from pathlib import Path

from skillbelt.format.skill import Skill
from skillbelt.permission.rules import Rule
from skillbelt.running.background import Background
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.executors import Executor
from skillbelt.running.following import Follower, Watch
from skillbelt.running.json_call import execute
from skillbelt.running.workbench import Workbench
from skillbelt.runtime.runtime import Runtime
from skillbelt.sandbox.protocol import Running, Stream
from skillbelt.store import SessionKey

WAIT_SECONDS = 60.0
ME = Asker(SessionKey("app", "me", "one"), "user")
OTHER = Asker(SessionKey("app", "you", "one"), "user")
ONCE = ME._replace(once="whole")
_HEAD = "---\nname: echo\ndescription: Says things. Use it to say things.\n---\n"
_JSON = "import sys\nprint('{\"got\": ' + sys.stdin.read() + '}')\n"
# Each runs here and on the executor; the results must be the same.
CALLS = (
    RunCall("echo hello; echo there >&2; exit 3"),
    RunCall(("python3", "scripts/where.py")),
    RunCall("echo data > out/a.txt; mkdir out/b; echo x > out/b/c.bin", output_files=("out/**",)),
    RunCall("cat", stdin=b"given \xff"),
    RunCall("echo $GIVEN; pwd; ls", env={"GIVEN": "value"}, cwd="$WORK_DIR"),
    RunCall("no-such-program"),
    RunCall("ln -s /etc/passwd out/link; mkfifo out/p; echo é > 'out/ö'", output_files=("out/*",)),
)  # fmt: skip


class ExecutorConformance:
    """Every promise of `Executor`. `executor` is a usable one, for each test or for all."""

    def test_the_result_is_the_same_as_on_this_machine(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        """Everything except the times."""
        for number, call in enumerate(CALLS):
            who = Asker(SessionKey("app", "me", f"call-{number}"), "user")
            there = _run(_open(tmp_path, executor), call, who)
            assert _without_duration(there) == _without_duration(
                _run(_open(tmp_path), call, who)
            ), call

    def test_a_conversation_has_its_files(self, executor: Executor, tmp_path: Path) -> None:
        """The next run has them, here and on the executor; removed ones are gone."""
        bench = _open(tmp_path, executor)
        _run(bench, RunCall("echo 1 > $WORK_DIR/a; mkdir $WORK_DIR/d; echo 2 > $WORK_DIR/d/b"))
        done = _run(bench, RunCall("cat $WORK_DIR/a; rm $WORK_DIR/a; chmod 700 $WORK_DIR/d/b"))
        assert done.stdout == "1\n"
        done = _run(bench, RunCall("ls $WORK_DIR; $WORK_DIR/d/b; ls -l $WORK_DIR/d"))
        assert done.stdout.split()[:2] == ["d", "inputs"]
        assert "-rwx------" in done.stdout
        with bench.workspace(ME.key) as workspace:
            assert os.listdir(os.path.join(workspace.path, "work", "d")) == ["b"]

    def test_what_changes_here_is_seen_there(self, executor: Executor, tmp_path: Path) -> None:
        """Inputs are put into the workspace here, before each run."""
        bench = _open(tmp_path, executor)
        for text in ("first", "second"):
            path = tmp_path / "project" / "input.txt"
            path.write_text(text)
            inputs = [{"from": f"host://{path}", "to": "work/inputs/in.txt"}]
            done = _run(bench, RunCall("cat $WORK_DIR/inputs/in.txt", inputs=inputs))
            assert done.stdout == text

    def test_each_conversation_has_its_own(self, executor: Executor, tmp_path: Path) -> None:
        """No file appears in the workspace of another user, or of a run without a conversation."""
        bench = _open(tmp_path, executor)
        _run(bench, RunCall("echo mine > $WORK_DIR/mine; echo mine > $OUTPUT_DIR/mine"))
        for who in (OTHER, ONCE):
            done = _run(bench, RunCall("ls $WORK_DIR $OUTPUT_DIR; ls /workspace/runs"), who)
            assert "mine" not in done.stdout

    def test_output_comes_while_it_runs(self, executor: Executor, tmp_path: Path) -> None:
        """The command waits for an answer to what it printed."""
        bench, started = _open(tmp_path, executor), threading.Event()
        running: list[Running] = []
        answers = threading.Thread(target=lambda: None)

        def listen(stream: Stream, data: bytes) -> None:
            nonlocal answers
            if data == b"ready\n":
                assert started.wait(WAIT_SECONDS)
                answers = threading.Thread(target=running[0].write, args=(b"go\n",))
                answers.start()

        def note(one: Running) -> None:
            running.append(one)
            started.set()

        call = RunCall("echo ready; read x; echo got $x", stdin=None, timeout_seconds=WAIT_SECONDS)
        done = bench.run(_skill(bench), call, ME, Watch(listen, note))
        answers.join()
        assert (done.stdout, done.timed_out) == ("ready\ngot go\n", False)

    def test_a_run_that_is_killed_ends(self, executor: Executor, tmp_path: Path) -> None:
        """Its output and files until then are kept."""
        bench = _open(tmp_path, executor)

        def end(stream: Stream, data: bytes) -> None:
            follower.kill()

        follower = Follower(end)
        call = RunCall("echo x > out/a; echo begun; sleep 600", output_files=("out/*",))
        done = bench.run(_skill(bench), call, ONCE, follower.watch)
        assert (done.cancelled, done.stdout) == (True, "begun\n")
        assert [one.name for one in done.output_files] == ["out/a"]

    def test_a_deadline_is_kept(self, executor: Executor, tmp_path: Path) -> None:
        """The command is ended, and the result reports it."""
        done = _run(_open(tmp_path, executor), RunCall("sleep 600", timeout_seconds=0.5), ONCE)
        assert (done.timed_out, done.exit_code) == (True, 124)

    def test_a_run_in_the_background(self, executor: Executor, tmp_path: Path) -> None:
        """Started, written to, polled; another one is killed."""
        bench = _open(tmp_path, executor)
        background = Background(bench)
        try:
            id = background.start(_skill(bench), RunCall("read x; echo got $x"), ME)
            background.write(ME.key, id, "this\n")
            text = ""
            while (polled := background.poll(ME.key, id, wait_seconds=WAIT_SECONDS)).running:
                text = polled.stdout
            assert polled.result is not None, polled.error
            assert (polled.result.stdout, text or polled.stdout) == ("got this\n", "got this\n")
            id = background.start(_skill(bench), RunCall("sleep 600"), ME)
            background.kill(ME.key, id)
            polled = background.poll(ME.key, id)
            assert polled.result is None or polled.result.cancelled
            assert not polled.running
        finally:
            background.close()

    def test_a_skill_as_a_function(self, executor: Executor, tmp_path: Path) -> None:
        """JSON in, JSON out, with the variables of such a script."""
        done = execute(
            _open(tmp_path, executor), _skill(_open(tmp_path)), [1], who=ONCE, script="answer"
        )
        here = execute(_open(tmp_path), _skill(_open(tmp_path)), [1], who=ONCE, script="answer")
        assert done.output == here.output == {"got": [1]}
        assert done.enforced == here.enforced


def _open(folder: Path, executor: Executor | None = None) -> Workbench:
    """Return a workbench for a project with the skill `echo`."""
    project = folder / "project"
    skill = project / ".agents" / "skills" / "echo"
    if not skill.exists():
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text(_HEAD)
        (skill / "scripts" / "answer.py").write_text(_JSON)
        (skill / "scripts" / "where.py").write_text("import os\nprint(sorted(os.environ))\n")
    belt = Runtime(
        project,
        rules=[Rule("*", "*", "allow")],
        state_dir=str(folder / ("there" if executor else "here")),
        cache_dir=str(folder / "cache"),
    )
    return Workbench(belt.settings, belt.gate, belt.get_skill, executor=executor)


def _skill(bench: Workbench) -> Skill:
    return bench.find("echo")


def _run(bench: Workbench, call: RunCall, who: Asker = ME) -> RunResult:
    return bench.run(bench.find("echo"), call, who)


def _without_duration(result: RunResult) -> dict[str, object]:
    return {**result.document(), "duration_ms": 0}
