"""With the real SDK, in processes of their own: a process has one provider, for good."""

from __future__ import annotations

import json
import os
import typing
from typing import Any

import pytest

from skillbelt.tracing import SpanName, skill_attributes
from tests.tree import Tree

NAMES = typing.get_args(SpanName)
SET_UP = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""
REPORT = """
print(json.dumps([json.loads(each.to_json()) for each in exporter.get_finished_spans()]))
"""


def traced(tree: Tree, code: str) -> list[dict[str, Any]]:
    """The spans that the code leaves, in the order of their ends."""
    done = tree.python("-c", f"{SET_UP}\nfrom skillbelt.tracing import span\n{code}\n{REPORT}")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_span_has_its_name_and_its_attributes(tree: Tree) -> None:
    code = """
with span("workspace.run", cmd="true", count=2, share=0.5, timed_out=False, patterns=("a", "b"),
          host_path=None, other=object(), **{"gen_ai.skill.name": "pdf"}) as running:
    running.set(exit_code=3, to="out")
"""
    (found,) = traced(tree, code)
    assert found["name"] == "workspace.run"
    assert found["attributes"] == {
        "cmd": "true",
        "count": 2,
        "share": 0.5,
        "timed_out": False,
        "patterns": ["a", "b"],
        "gen_ai.skill.name": "pdf",
        "exit_code": 3,
        "to": "out",
    }
    assert found["status"]["status_code"] == "UNSET"


def test_every_name(tree: Tree) -> None:
    found = traced(tree, f"for name in {NAMES!r}:\n    with span(name): pass")
    assert tuple(each["name"] for each in found) == NAMES
    assert set(NAMES) == {
        "workspace.create",
        "workspace.stage.files",
        "workspace.stage.dir",
        "workspace.run",
        "workspace.collect",
        "workspace.cleanup",
        "workspace.inline",
        "execute_tool",
        "serve",
    }


def test_a_span_within_a_span_is_its_child(tree: Tree) -> None:
    inner, outer = traced(
        tree,
        "with span('workspace.collect'):\n    with span('workspace.inline'): pass",
    )
    assert inner["parent_id"] == outer["context"]["span_id"]
    assert outer["parent_id"] is None


def test_an_error_is_recorded_and_goes_on(tree: Tree) -> None:
    code = """
try:
    with span("workspace.run"):
        raise ValueError("it broke")
except ValueError:
    pass
else:
    raise AssertionError
"""
    (found,) = traced(tree, code)
    assert found["status"] == {"status_code": "ERROR", "description": "ValueError: it broke"}
    (event,) = found["events"]
    assert event["attributes"]["exception.message"] == "it broke"


def test_text_that_no_exporter_could_encode(tree: Tree) -> None:
    code = r"with span('workspace.run', cmd='a\udcffb', path='x' * 10_000): pass"
    (found,) = traced(tree, code)
    assert found["attributes"]["cmd"] == "a?b"
    assert found["attributes"]["path"] == "x" * 4096


def test_a_provider_that_is_set_up_later_counts(tree: Tree) -> None:
    code = f"""
from skillbelt.tracing import span
with span("workspace.create"): pass
{SET_UP}
with span("workspace.run"): pass
{REPORT}
"""
    done = tree.python("-c", code)
    assert [each["name"] for each in json.loads(done.stdout)] == ["workspace.run"]


def test_where_nobody_traces_nothing_is_imported(tree: Tree) -> None:
    code = """
import sys
from skillbelt.tracing import span
with span("workspace.run", cmd="true") as running:
    running.set(exit_code=0)
try:
    with span("workspace.run"):
        raise ValueError
except ValueError:
    print("went on")
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert tree.python("-c", code).stdout == "went on\n[]\n"


def test_the_environment_can_ask_for_it(tree: Tree) -> None:
    tree.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    code = """
from skillbelt.tracing import span
with span("workspace.run"): pass
import sys
print(type(sys.modules["opentelemetry.trace"].get_tracer_provider()).__module__)
"""
    done = tree.python("-c", code)
    assert done.stdout == "opentelemetry.sdk.trace\n", done.stderr


def test_without_the_library_the_environment_asks_in_vain(tree: Tree) -> None:
    tree.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    code = """
import sys
sys.modules["opentelemetry"] = None
from skillbelt.tracing import span
with span("workspace.run"): print("ran")
"""
    assert tree.python("-c", code).stdout == "ran\n"


@pytest.mark.parametrize(
    "location, url, uri",
    [
        ("/a/b c/SKILL.md", "", "file:///a/b%20c/SKILL.md"),
        (f"/a/{os.fsdecode(bytes([255]))}", "", "file:///a/%FF"),
        ("/cache/x/SKILL.md", "https://example.com/pdf.zip", "https://example.com/pdf.zip"),
    ],
)
def test_a_skill_is_named_with_where_it_came_from(location: str, url: str, uri: str) -> None:
    assert skill_attributes("pdf", location, url) == {
        "gen_ai.skill.name": "pdf",
        "gen_ai.skill.source.uri": uri,
    }


def test_the_spans_of_a_run_say_where_everything_is(open_tree: Tree) -> None:
    skill = open_tree.skill("project/.agents/skills/kit")
    note = open_tree.write("project/note.txt", "x")
    code = f"""
from skillbelt import Rule, Runtime
with Runtime({str(open_tree.project)!r}, rules=[Rule("run", "*", "allow")]) as belt:
    session = belt.session("ada", "chat")
    belt.run_sync("kit", "true", session=session, inputs=["host://{note}"])
    belt.delete_session("ada", "chat")
"""
    found = {each["name"]: each["attributes"] for each in traced(open_tree, code)}
    workspace = found["workspace.create"]["path"]
    staged = found["workspace.stage.dir"]
    assert (staged["host_path"], staged["to"]) == (str(skill), "skills/kit")
    assert staged["path"].startswith(workspace)
    assert isinstance(staged["mount_used"], bool)
    files = found["workspace.stage.files"]
    assert (files["host_path"], files["to"]) == ([str(note)], ["work/inputs/note.txt"])
    removed = found["workspace.cleanup"]
    assert (removed["path"], removed["exec_id"]) == (workspace, "skillbelt/ada/chat")


def test_a_trace_goes_on_in_another_process(tree: Tree) -> None:
    code = """
from skillbelt.tracing import extract, inject
print(inject())
with span("workspace.create"):
    carried = inject()
with extract(carried):
    with span("workspace.run"): pass
with span("workspace.collect"): pass
"""
    done = tree.python("-c", f"{SET_UP}\nfrom skillbelt.tracing import span\n{code}\n{REPORT}")
    outside, told = done.stdout.split("\n", 1)
    assert outside == "{}"
    created, ran, collected = json.loads(told)
    assert ran["parent_id"] == created["context"]["span_id"]
    assert ran["context"]["trace_id"] == created["context"]["trace_id"]
    assert collected["parent_id"] is None


@pytest.mark.parametrize("carrier", [{}, {"traceparent": "nonsense"}, {"traceparent": ""}])
def test_what_is_no_trace_begins_a_new_one(tree: Tree, carrier: dict[str, str]) -> None:
    code = f"""
from skillbelt.tracing import extract
with extract({carrier!r}):
    with span("workspace.run"): pass
"""
    (found,) = traced(tree, code)
    assert found["parent_id"] is None


def test_where_nobody_traces_nothing_is_carried(tree: Tree) -> None:
    code = """
import sys
from skillbelt.tracing import extract, inject
with extract({"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}):
    print(inject())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert tree.python("-c", code).stdout == "{}\n[]\n"


def test_a_call_of_a_tool_names_its_skill(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit", "Packs things.")
    code = f"""
from skillbelt import Runtime
with Runtime({str(open_tree.project)!r}) as belt:
    session = belt.session("ada", "chat")
    session.request([{{"role": "user", "content": "hello"}}])
    session.call_sync("skill_load", {{"skill": "kit"}}, "call-1")
    session.call_sync("skill_load", {{"skill": "nothing"}}, "call-2")
"""
    first, second = (
        each for each in traced(open_tree, code) if each["name"] == "execute_tool skill_load"
    )
    assert first["attributes"]["gen_ai.skill.name"] == "kit"
    assert first["attributes"]["gen_ai.skill.description"] == "Packs things."
    assert first["attributes"]["gen_ai.tool.call.id"] == "call-1"
    assert "gen_ai.skill.name" not in second["attributes"]
