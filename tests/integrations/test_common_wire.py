"""Every framework, over real sockets, with a server that speaks the protocol of OpenAI.

What the server received is looked at, byte for byte.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillbelt import Rule, Runtime
from tests.benches import alive
from tests.integrations.chats import CHATS, Chat, belt_of, quiet
from tests.openai_server import Answer, Calls, Server, Unfinished, called, raw_parts, said, serving
from tests.tree import Tree

ROOT = Path(__file__).parents[2]
SCRIPT = "echo script says $1\n"
LOAD = called("skill_load", {"skill": "greet"}, "call_load")
RUN = called("skill_run", {"skill": "greet", "command": "sh scripts/say.sh hi"}, "call_run")
DONE = said("Mellif", "luous!")
# It continues only after its first line was read.
WAITING = "echo one; while [ ! -e work/go ]; do sleep 0.02; done; echo two"
WAIT = called("skill_run", {"skill": "greet", "command": WAITING, "timeout": 20}, "call_wait")


@pytest.fixture
def project(belt: Runtime, open_tree: Tree) -> Path:
    """The project of `belt`, with a script."""
    open_tree.write("project/.agents/skills/greet/scripts/say.sh", SCRIPT)
    belt.close()
    return open_tree.project


@pytest.fixture(params=list(CHATS))
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def chat(framework: str, belt: Runtime, server: Server, tmp_path: Path, told: Any = quiet) -> Chat:
    return CHATS[framework](belt, server.url, tmp_path / "state", told)


def say(made: Chat, text: str) -> str:
    return anyio.run(made.say, text)


def answers(request: dict[str, Any]) -> dict[str, str]:
    """Return the results of calls, by their ids, as the server received them."""
    chat = {one.get("tool_call_id"): one.get("content") for one in request.get("messages", ())}
    items = [one for one in request.get("input", ()) if isinstance(one, dict)]
    found = chat | {one.get("call_id"): one.get("output") for one in items}
    return {str(id): _plain(text) for id, text in found.items() if id and text is not None}


def _plain(content: object) -> str:
    """The text of an answer; the kit of Google's wraps it into an object."""
    text = content if isinstance(content, str) else json.dumps(content)
    try:
        wrapped = json.loads(text)
    except ValueError:
        return text
    inner = wrapped.get("result", wrapped.get("error")) if isinstance(wrapped, dict) else None
    return inner if isinstance(inner, str) else text


def prefixes_hold(bodies: list[str]) -> bool:
    """Whether each request begins with the whole of the one before, and the rest is the same."""
    sent = [raw_parts(body) for body in bodies]
    lists = [one.pop("messages", "") or one.pop("input") for one in sent]
    grown = all(new.startswith(old[:-1]) and new != old for old, new in pairwise(lists))
    return grown and all(one == sent[0] for one in sent)


def played(framework: str, project: Path, tmp_path: Path, *script: Answer) -> Server:
    """Return the requests that the server received in a turn with that script."""
    with serving(*script) as server, belt_of(project) as belt:
        say(chat(framework, belt, server, tmp_path), "Greet me.")
    return server


def test_a_skill_is_loaded_then_its_script_runs_then_an_answer_comes(
    framework: str, project: Path, tmp_path: Path
) -> None:
    with serving(LOAD, RUN, DONE) as server, belt_of(project) as belt:
        assert say(chat(framework, belt, server, tmp_path), "Greet me.") == "Mellifluous!"
    assert all(request["stream"] for request in server.requests)
    first, second, third = map(answers, server.requests)
    assert first == {}
    assert "Say the word `mellifluous` first." in second["call_load"]
    assert json.loads(third["call_run"])["stdout"] == "script says hi\n"


def test_a_request_begins_with_the_one_before_byte_for_byte(
    framework: str, project: Path, tmp_path: Path
) -> None:
    server = played(framework, project, tmp_path, LOAD, RUN, DONE)
    assert len(server.bodies) == 3
    assert prefixes_hold(server.bodies)
    assert all("<name>greet</name>" in body for body in server.bodies)


def test_the_next_turn_knows_what_is_loaded(framework: str, project: Path, tmp_path: Path) -> None:
    again = called("skill_load", {"skill": "greet"}, "call_again")
    with serving(LOAD, DONE, again, said("Still here.")) as server, belt_of(project) as belt:
        made = chat(framework, belt, server, tmp_path)
        say(made, "Greet me.")
        assert say(made, "And again.") == "Still here."
    assert "mellifluous" in answers(server.requests[2])["call_load"]
    if framework != "functions":  # they do not see the history
        assert "loaded already" in answers(server.requests[3])["call_again"]
    assert prefixes_hold(server.bodies)


# One session serves both protocols of OpenAI's. To import a framework anew takes seconds.
ELSEWHERE = [name for name in CHATS if name[-9:] != "responses"]


@pytest.mark.parametrize(
    "framework",
    [ELSEWHERE[0], *(pytest.param(one, marks=pytest.mark.long) for one in ELSEWHERE[1:])],
)
def test_another_process_knows_it_from_what_the_framework_kept(
    framework: str, project: Path, tmp_path: Path
) -> None:
    look = called("skill_run", {"skill": "greet", "command": "cat work/note"}, "call_look")
    note = called("skill_run", {"skill": "greet", "command": "echo kept > work/note"}, "call_note")
    with serving(LOAD, note, DONE, look, said("Still here.")) as server:
        with belt_of(project) as belt:
            say(chat(framework, belt, server, tmp_path), "Greet me.")
        assert elsewhere(framework, server.url, tmp_path / "state", project) == "Still here.\n"
    assert "mellifluous" in answers(server.requests[3])["call_load"]
    assert json.loads(answers(server.requests[4])["call_look"])["stdout"] == "kept\n"
    assert prefixes_hold(server.bodies)


def elsewhere(framework: str, url: str, state: Path, project: Path) -> str:
    program = [sys.executable, "-m", "tests.integrations.chats"]
    done = subprocess.run(
        [*program, framework, url, str(state), str(project), "And again."],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_wrong_with_a_call_is_told_to_the_model(
    framework: str, project: Path, tmp_path: Path
) -> None:
    wrong = called("skill_load", {"skil": 3}, "call_wrong")
    unknown = called("skill_load", {"skill": "greed"}, "call_unknown")
    server = played(framework, project, tmp_path, wrong, unknown, said("Sorry."))
    told = answers(server.requests[2])
    assert "unknown argument 'skil'" in told["call_wrong"]
    assert "argument 'skill' is missing" in told["call_wrong"]
    assert "unknown skill: greed" in told["call_unknown"]


# A function cannot be called with these, and Google's kit warns of them itself.
@pytest.mark.parametrize("framework", list(CHATS)[:4])
@pytest.mark.parametrize("arguments", ["[1]", "null"])
def test_arguments_that_are_no_object_are_told_to_the_model(
    framework: str, arguments: str, project: Path, tmp_path: Path
) -> None:
    server = played(framework, project, tmp_path, called("skill_load", arguments), said("Sorry."))
    told = answers(server.requests[1])["call_1"]
    assert "must be an object" in told or "argument 'skill' is missing" in told


def test_arguments_may_have_the_names_that_frameworks_use(
    framework: str, project: Path, tmp_path: Path
) -> None:
    names = "self config run_manager callbacks runtime args kwargs ctx tool tool_context input"
    wrong = called("skill_load", {"skill": "greet"} | dict.fromkeys(names.split(), 1))
    server = played(framework, project, tmp_path, wrong, said("Sorry."))
    told = answers(server.requests[1])["call_1"]
    assert "unknown argument 'self'" in told or "unknown argument 'config'" in told


HALF = '{"skill": "greet", "command": "touch work/half'
CUT = Calls((("call_1", "skill_run", HALF),), finish="length")


UNCLOSED = Calls((("call_1", "skill_run", HALF),))


@pytest.mark.parametrize(
    "cut", [CUT, Unfinished(CUT, 2), UNCLOSED], ids=["too long", "ended", "said to be whole"]
)
def test_a_call_that_broke_off_is_not_carried_out(
    framework: str, cut: Answer, project: Path, tmp_path: Path
) -> None:
    """Half of a command would be a command too."""
    if framework.endswith("responses") and isinstance(cut, Unfinished):
        cut = CUT  # that protocol has no stream that just ends
    with serving(cut, said("Sorry.")) as server, belt_of(project) as belt:
        # Some frameworks raise then, which is up to them.
        with suppress(Exception):
            say(chat(framework, belt, server, tmp_path), "Greet me.")
        assert "half" not in work(belt)


def work(belt: Runtime) -> list[str]:
    with belt.workbench.workspace(belt.session("ada", "chat").session.key) as workspace:
        folder = Path(workspace.path, "work")
        return os.listdir(folder) if folder.exists() else []


def test_what_is_refused_is_told_and_not_done(
    framework: str, project: Path, tmp_path: Path
) -> None:
    # Were every run denied, the tool would not be offered.
    rules = [Rule("run", "*", "deny"), Rule("run", "true", "ask")]
    with serving(RUN, said("Sorry.")) as server, belt_of(project, *rules) as belt:
        assert say(chat(framework, belt, server, tmp_path), "Greet me.") == "Sorry."
    told = answers(server.requests[1])["call_run"]
    assert "script says" not in told
    assert "denied" in told or "not allowed" in told


def test_output_is_told_while_the_command_runs(
    framework: str, project: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    with serving(WAIT, DONE) as server, belt_of(project) as belt:

        def see(text: str) -> None:
            told.append(text)
            go_on(belt)

        say(chat(framework, belt, server, tmp_path, see), "Wait for me.")
    assert "".join(told) == "one\ntwo\n"
    ended = json.loads(answers(server.requests[1])["call_wait"])
    assert (ended["exit_code"], ended["stdout"]) == (0, "one\ntwo\n")


def go_on(belt: Runtime) -> None:
    with belt.workbench.workspace(belt.session("ada", "chat").session.key) as workspace:
        Path(workspace.path, "work", "go").touch()


@pytest.mark.parametrize("framework", [name for name in CHATS if name != "functions"])
def test_a_run_that_is_cancelled_ends_its_command(
    framework: str, project: Path, tmp_path: Path
) -> None:
    mark = str(time.time_ns())
    endless = called(
        "skill_run", {"skill": "greet", "command": f"echo one; sleep {mark}"}, "call_endless"
    )
    with serving(endless, DONE) as server, belt_of(project) as belt:
        seen = asyncio.Event()
        made = chat(framework, belt, server, tmp_path, lambda _text: seen.set())
        anyio.run(cancelled, made, seen)
        # Not every framework waits for what it cancels.
        while alive(mark):
            time.sleep(0.01)
        assert len(server.requests) == 1


async def cancelled(made: Chat, seen: asyncio.Event) -> None:
    task = asyncio.create_task(made.say("Go on for ever."))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
