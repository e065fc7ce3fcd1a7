"""The programs in examples/sdk, with the vendors' packages, against servers of their protocols.

What the servers received is looked at byte for byte.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from anthropic import Anthropic
from openai import OpenAI

from skillbelt import join_stream
from skillbelt.conversation.vendors.read import read_history
from skillbelt.conversation.vendors.shapes import MessageFormat
from skillbelt.files.remove import remove_tree
from tests.openai_server import Calls, Said, Server, called, raw_parts, serving
from tests.tree import Tree, sheltered
from tests.vendor_rules import broken_rules

ROOT = Path(__file__).parents[1]
BLOCK = re.DOTALL | re.MULTILINE
SEAL = "c2VhbGVkIQ=="
TEXT = json.dumps({"text": "To be or not to be."})
# Two calls at once: a skill, and a document of another one.
BOTH = Calls(
    (
        ("call_a", "skill_load", '{"skill": "text-stats"}'),
        (
            "call_b",
            "load_resource",
            '{"skill": "csv-report", "relative_path": "references/columns.md"}',
        ),
    ),
    sealed=SEAL,
)
COMMAND = {"skill": "text-stats", "command": "python3 scripts/count.py", "stdin": TEXT}
RUN = Calls((("call_c", "skill_run", json.dumps(COMMAND)),), sealed=SEAL)
DONE = Said(("Six ", "words."))
ASKED = "How long is 'To be or not to be.'?"


class Program(NamedTuple):
    """An example: its file, its format, and the list of a request that grows."""

    file: str
    format: MessageFormat
    grows: str


PROGRAMS = [
    Program("openai_chat", "openai", "messages"),
    Program("openai_responses", "responses", "input"),
    Program("anthropic_messages", "anthropic", "messages"),
    Program("google_genai", "gemini", "contents"),
]
# Each program whole, and streamed.
WAYS = [(program, options) for program in PROGRAMS for options in ((), ("--stream",))]


class Played(NamedTuple):
    """What a program printed, and the server that it asked."""

    program: Program
    server: Server
    printed: str

    @property
    def requests(self) -> list[Any]:
        """The lists that grow."""
        return [request[self.program.grows] for request in self.server.requests]


def play(program: Program, *script: Any, options: tuple[str, ...] = ()) -> Played:
    """Start a program in a project with two of the example skills; the server has the script."""
    root = Path(tempfile.mkdtemp(prefix="skillbelt-"))
    root.chmod(0o755)
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, sheltered(root), serving(*script) as server:
        project = Tree(root, patch).project
        for name in ("text-stats", "csv-report"):
            ignored = shutil.ignore_patterns("__pycache__")
            source = ROOT / "examples" / "skills" / name
            shutil.copytree(source, project / ".agents" / "skills" / name, ignore=ignored)
        patch.chdir(project)
        base = server.url.removesuffix("/v1")
        for name, url in (("OPENAI", server.url), ("ANTHROPIC", base), ("GOOGLE_GEMINI", base)):
            patch.setenv(f"{name}_BASE_URL", url)
        for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
            patch.setenv(f"{name}_API_KEY", "key")
        patch.delenv("GOOGLE_API_KEY", raising=False)
        with redirect_stdout(printed):
            load(program.file).main([*options, ASKED])
    remove_tree(str(root))
    return Played(program, server, printed.getvalue())


@pytest.fixture(
    scope="module",
    params=WAYS,
    ids=[f"{one.file}{'-streamed' * bool(options)}" for one, options in WAYS],
)
def played(request: pytest.FixtureRequest) -> Played:
    """A whole loop: two calls at once, a run, an answer."""
    program, options = request.param
    return play(program, BOTH, RUN, DONE, options=options)


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / "sdk" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_skill_is_loaded_a_document_read_a_script_run_and_an_answer_given(
    played: Played,
) -> None:
    assert played.printed == "Six words.\n"
    first, second, third = played.requests
    format = played.program.format
    assert "<name>text-stats</name>" in played.server.bodies[0]
    assert "<name>" not in json.dumps(first[-1])  # the list is in the system text
    assert [one.id for one in read_history(second, format).results()] == ["call_a", "call_b"]
    results = read_history(third, format).results()
    assert [one.id for one in results] == ["call_a", "call_b", "call_c"]
    skill, document, run = (one.text for one in results)
    assert skill.startswith("[Loaded] text-stats") and "let the scripts count" in skill
    assert "integer" in document
    assert json.loads(json.loads(run)["stdout"])["words"] == 6


def test_a_request_begins_with_the_whole_of_the_one_before(played: Played) -> None:
    sent = [raw_parts(body) for body in played.server.bodies]
    lists = [one.pop(played.program.grows) for one in sent]
    assert len(lists) == 3
    assert all(new.startswith(old[:-1]) and new != old for old, new in pairwise(lists))
    assert all(one == sent[0] for one in sent)
    assert "tools" in sent[0]


def test_a_request_is_one_that_the_vendor_takes(played: Played) -> None:
    for request in played.server.requests:
        assert broken_rules(played.program.format, request) == []


def test_what_is_sealed_goes_back_as_it_came(played: Played) -> None:
    sealed = [0, 0, 0] if played.program.format == "openai" else [0, 1, 2]
    assert [body.count(SEAL) for body in played.server.bodies] == sealed


def test_marks_for_the_cache_are_where_anthropic_has_them(played: Played) -> None:
    marks = [body.count('"cache_control"') for body in played.server.bodies]
    assert marks == ([2, 2, 2] if played.program.format == "anthropic" else [0, 0, 0])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_a_mistake_of_the_model_is_a_result_and_the_loop_goes_on(program: Program) -> None:
    wrong = called("skill_load", {"skill": "no-such-skill"}, "call_a")._replace(sealed=SEAL)
    found = play(program, wrong, DONE)
    assert found.printed == "Six words.\n"
    [result] = read_history(found.requests[1], program.format).results()
    assert result.text == "unknown skill: no-such-skill"
    failed = {"anthropic": '"is_error":true', "gemini": '"error"'}.get(program.format, "")
    assert failed in found.server.bodies[1].replace(" ", "")


def test_the_events_of_a_stream_make_the_reply_that_the_package_makes() -> None:
    messages: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    with serving(BOTH) as server:
        base = server.url.removesuffix("/v1")
        with Anthropic(base_url=base, api_key="key") as anthropic:
            events = list(anthropic.messages.create(stream=True, **messages))
            whole = anthropic.messages.create(**messages)
        with OpenAI(base_url=server.url, api_key="key") as openai:
            chunks = list(openai.responses.create(model="m", input="x", stream=True))
            response = openai.responses.create(model="m", input="x")
    joined = read_history([join_stream(events, "anthropic")], "anthropic")
    assert joined.items == read_history([whole], "anthropic").items
    joined = read_history([join_stream(chunks, "responses")], "responses")
    assert joined.items == read_history([response], "responses").items


def test_the_page_shows_the_lines_that_are_marked_in_the_programs() -> None:
    page = (ROOT / "docs" / "how-to" / "own-loop.md").read_text("utf-8")
    shown = re.findall(r'^```python title="examples/sdk/(\w+)\.py"\n(.*?)^```$', page, BLOCK)
    marked = [
        (path.stem, lines.rstrip("\n") + "\n")
        for path in sorted((ROOT / "examples" / "sdk").glob("*.py"))
        for lines in re.findall(
            r"^# copy from here\n(.*?)^# copy to here$", path.read_text("utf-8"), BLOCK
        )
    ]
    assert set(shown) <= set(marked)
    assert {"openai_chat", "anthropic_messages"} <= {name for name, _ in shown}
    named = set(re.findall(r"`examples/sdk/(\w+)\.py`", page))
    assert named == {name for name, _ in marked}
    assert len(marked) == 2 * len(PROGRAMS)
