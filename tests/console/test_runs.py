"""The pages about runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from skillbelt import Rule, Runtime
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.history import RunHistory
from skillbelt.store import SessionKey
from tests.console.desks import Browser, console, fill
from tests.desks import until
from tests.tree import Tree

pytestmark = pytest.mark.anyio

KEY = SessionKey("app", "ada", "one")


@pytest.fixture
def belt(open_tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(open_tree).project, rules=[Rule("run", "*", "allow")]) as belt:
        yield belt


def run(belt: Runtime, *words: str, **more: object) -> None:
    skill = belt.look()["pdf"]
    belt.workbench.run(skill, RunCall(words, **more), Asker(KEY, agent="builder"))  # type: ignore[arg-type]


async def first(browser: Browser) -> str:
    """The address of the newest run."""
    found = re.search(r'href="(/runs/[\w-]+)"', await browser.read("/runs"))
    assert found is not None
    return found[1]


async def test_a_run_has_its_output_steps_and_sandbox(belt: Runtime) -> None:
    run(belt, "echo", "\x1b[1;31mred\x1b[0m \x1b]0;title\x07<b>")
    async with console(belt) as browser:
        page = await browser.read(await first(browser))
        assert '<span class="c1 tb">red</span>' in page
        assert "&lt;b&gt;" in page
        assert "\x1b" not in page
        assert "]0;title" not in page.split("<h2>Output</h2>")[1]
        for text in ("stage", "ask", "provide", "collect", "builder", "app/ada/one", "exit 0"):
            assert text in page


async def test_runs_are_filtered(belt: Runtime) -> None:
    run(belt, "echo", "good")
    run(belt, "sleep", "x")
    async with console(belt) as browser:
        assert (await browser.read("/runs")).count("data-row") == 2
        assert "sleep x" in (page := await browser.read("/runs?state=failed"))
        assert "echo good" not in page
        assert "No runs" in await browser.read("/runs?skill=other")
        assert (await browser.read("/runs?session=app/ada/one")).count("data-row") == 2


async def test_a_run_that_goes_on_can_be_followed_and_stopped(belt: Runtime) -> None:
    id = await anyio.to_thread.run_sync(
        lambda: belt.background.start(belt.look()["pdf"], RunCall(("sleep", "600")), Asker(KEY))
    )
    async with console(belt) as browser:
        history = RunHistory(belt.store)
        await anyio.to_thread.run_sync(until, lambda: history.page()[0])
        address = await first(browser)
        assert "running" in await browser.read(address)
        await browser.send(f"{address}/stop", {})
        await anyio.to_thread.run_sync(until, lambda: not belt.background.poll(KEY, id).running)
        assert "stopped" in await browser.read(address)
        answer = await browser.send(f"{address}/stop", {})
        assert answer.headers["location"].endswith("notice=ended")


async def test_a_run_is_repeated(belt: Runtime) -> None:
    run(belt, "echo", "once more")
    async with console(belt) as browser:
        await browser.send(f"{await first(browser)}/again", {})
        history = RunHistory(belt.store)
        await anyio.to_thread.run_sync(until, lambda: len(history.page()[0]) == 2)
        assert [one.command for one in history.page()[0]] == ["echo 'once more'"] * 2


async def test_a_run_is_repeated_with_its_inputs(belt: Runtime) -> None:
    inputs = [{"from": "skill://pdf/guide.md", "to": "inputs/guide.md"}]
    run(belt, "cat", "work/inputs/guide.md", inputs=inputs, env={"A": "b"})
    async with console(belt) as browser:
        address = await first(browser)
        assert "Run again" in await browser.read(address)
        await browser.send(f"{address}/again", {})
        history = RunHistory(belt.store)
        await anyio.to_thread.run_sync(until, lambda: len(history.page()[0]) == 2)
        one, other = history.page()[0]
        assert one.facts["call"] == other.facts["call"]
        assert one.facts["inputs"] == other.facts["inputs"] == ["work/inputs/guide.md"]


@pytest.mark.parametrize(
    "more", [{"env": {"A_TOKEN": "secret-value"}}, {"stdin": b"x" * 40_000}, {"stdin": b"\xff"}]
)
async def test_a_call_that_is_not_kept_is_not_repeated(
    belt: Runtime, more: dict[str, object]
) -> None:
    run(belt, "echo", "x", **more)
    async with console(belt) as browser:
        address = await first(browser)
        assert "It cannot be run again here" in await browser.read(address)
        answer = await browser.send(f"{address}/again", {})
        assert answer.status_code == 422
        key = SessionKey("skillbelt:runs", "all", address.split("/")[-1])
        assert "secret-value" not in str(belt.store.state(key))


async def test_files_are_there_as_long_as_the_workspace(belt: Runtime) -> None:
    inputs = [{"from": "skill://pdf/guide.md", "to": "inputs/guide.md"}]
    run(belt, "cp", "work/inputs/guide.md", "out/copy.md", inputs=inputs, output_files=("out/*",))
    async with console(belt) as browser:
        address = await first(browser)
        page = await browser.read(address)
        assert "out/copy.md" in page
        assert "The guide of pdf." in await browser.read(f"{address}/files/out/copy.md")
        answer = await browser.get(f"{address}/files/work/inputs/guide.md?download=1")
        assert answer.text == "The guide of pdf.\n"
        assert (await browser.get(f"{address}/files/out/other.md")).status_code == 404
        belt.workbench.forget(KEY)
        assert (await browser.get(f"{address}/files/out/copy.md")).status_code == 410


async def test_a_link_in_the_workspace_leads_nowhere_else(belt: Runtime, open_tree: Tree) -> None:
    secret = open_tree.write("secret.txt", "secret")
    run(belt, "touch", "out/x.txt", output_files=("out/*",))
    [folder] = belt.workbench.workspaces(KEY)
    async with console(belt) as browser:
        address = await first(browser)
        [past], _ = RunHistory(belt.store).page()
        [out] = past.facts["outputs"]
        path = Path(folder, out["name"])
        path.unlink()
        path.symlink_to(secret)
        assert (await browser.get(f"{address}/files/{out['name']}")).status_code == 410


async def test_a_kept_file_is_shown_and_sent(belt: Runtime) -> None:
    run(belt, "echo", "x", output_files=("skills/pdf/guide.md",), save_as_artifacts=True)
    async with console(belt) as browser:
        address = await first(browser)
        [past], _ = RunHistory(belt.store).page()
        [kept] = past.facts["artifacts"]
        page = await browser.read(f"{address}/files/{kept['name']}")
        assert "The guide of pdf." in page
        answer = await browser.get(f"{address}/files/{kept['name']}?download=1")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert (await browser.get(f"{address}/files/other")).status_code == 404


async def test_a_run_that_is_not_there_says_so(belt: Runtime) -> None:
    async with console(belt) as browser:
        assert (await browser.get("/runs/nothing")).status_code == 404
