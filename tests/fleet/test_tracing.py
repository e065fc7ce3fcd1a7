"""One trace from a client over a server to a node, through real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fleet.cluster import open_cluster
from tests.mcp.clients import over_stdio, text_of
from tests.serving.clients import fill
from tests.tree import Tree

pytestmark = [pytest.mark.long, pytest.mark.anyio]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
# Every Python process that is started with it exports its spans to a file, as an operator's
# `opentelemetry-instrument` would.
SITE = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

class ToFile:
    def write(self, text):
        with open(os.path.join(os.environ["SPANS"], str(os.getpid())), "a") as file:
            file.write(text)

    def flush(self):
        pass

exporter = ConsoleSpanExporter(out=ToFile(), formatter=lambda one: one.to_json(indent=None) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


def read_spans(folder: Path) -> dict[str, dict[str, tuple[str, str | None]]]:
    """Return by process and name of each span its trace and its parent."""
    return {
        file.name: {
            one["name"]: (one["context"]["trace_id"], one["parent_id"])
            for one in map(json.loads, file.read_text().splitlines())
        }
        for file in folder.iterdir()
    }


async def test_the_trace_of_an_mcp_client_reaches_the_server_and_the_node(
    open_tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, spans = tmp_path / "site", tmp_path / "spans"
    site.mkdir()
    spans.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("SPANS", str(spans))
    fill(open_tree)
    with open_cluster() as cluster:
        text = f'executor = "ray"\nray_address = "{cluster.address}"\npermission.run = "allow"\n'
        open_tree.write("home/.config/skillbelt/config.toml", text)
        async with over_stdio(open_tree) as client:
            ran = await client.call_tool(
                "skill_run",
                {"skill": "pdf", "command": "echo hello"},
                meta={"traceparent": f"00-{TRACE}-{PARENT}-01"},  # type: ignore[arg-type]
            )
            assert "hello" in text_of(ran)
        found = {
            pid: {name: parent for name, (trace, parent) in one.items() if trace == f"0x{TRACE}"}
            for pid, one in read_spans(spans).items()
        }
    [server] = [one for one in found.values() if "execute_tool skill_run" in one]
    assert server["tools/call skill_run"] == f"0x{PARENT}"
    [node] = [one for one in found.values() if one and one is not server]
    assert "workspace.run" in node
