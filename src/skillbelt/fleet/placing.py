"""Find the nodes that meet the needs of a run, or refuse with a clear reason.

Ray places runs: this module only says on which nodes it may, and how much a run takes. It does not
import Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from skillbelt import __version__
from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.fleet.facts import INTERPRETERS, PRODUCT, VERSION_LABEL, label_of, needs_of
from skillbelt.sandbox.registry import CONTAINER, WASM
from skillbelt.text import one_line

# Ray's names of these resources.
CPU, GPU, MEMORY, NODE_LABEL = "CPU", "GPU", "memory", "ray.io/node-id"
_MAX_SHOWN = 8
_MIB = 2**20


class AnnouncedNode(NamedTuple):
    """A live node, its total resources, and its product version; "" when it announces none."""

    id: str
    host: str
    resources: Mapping[str, float]
    version: str = ""

    @classmethod
    def from_ray(cls, plain: Mapping[str, Any]) -> AnnouncedNode:
        """Return a node as `ray.nodes()` lists it."""
        host = one_line(str(plain.get("NodeManagerHostname", "")))
        labels = plain.get("Labels") or {}
        resources, version = dict(plain.get("Resources") or {}), str(labels.get(VERSION_LABEL, ""))
        return cls(str(plain["NodeID"]), host, resources, version)

    @property
    def shown(self) -> str:
        """Return its name for people."""
        return f"{self.host} ({self.id[:12]})"

    def has(self, names: Iterable[str]) -> bool:
        """Whether it announces all of these."""
        return all(self.resources.get(name) for name in names)


class NodeNeeds(NamedTuple):
    """The needs of a run. An interpreter that no node announces is not waited for."""

    sandbox: str
    memory_bytes: int
    gpus: int = 0
    interpreter: str = ""

    @property
    def name(self) -> str:
        """Return one word for the needs: runs with the same needs share actors."""
        words = [self.sandbox, f"{-(-self.memory_bytes // _MIB)}m", self.interpreter]
        return "-".join(filter(None, (*words, f"gpu{self.gpus}" if self.gpus else "")))


class NodePlacement(NamedTuple):
    """The placement of actors for some needs: how many actors, and Ray's options for one."""

    name: str
    actors: int
    options: Mapping[str, Any]


def interpreter_of(argv: Sequence[str], sandbox: str) -> str:
    """Return the interpreter that a command begins with, if nodes announce it; else ""."""
    if sandbox in (WASM, CONTAINER) or not argv:  # these sandboxes have their own interpreters
        return ""
    return argv[0] if argv[0] in INTERPRETERS else ""


def find_placement(nodes: Sequence[AnnouncedNode], needs: NodeNeeds) -> NodePlacement:
    """Return the placement of runs with these needs.

    RunRefused names the need that no node meets.
    """
    all_takers = [one for one in nodes if one.has([PRODUCT])]
    takers = [one for one in all_takers if one.version in ("", label_of(__version__))]
    if all_takers and not takers:
        raise RunRefused(
            f"no node of the Ray cluster has this version of skillbelt, {__version__}: "
            f"{_list(all_takers, lambda one: one.version)}; nothing was run; install the same "
            "version on nodes and servers, and join the nodes again"
        )
    fitting = [one for one in takers if one.has(needs_of(needs.sandbox))]
    if not fitting:
        raise lacking_sandbox(needs.sandbox)
    enough = [one for one in fitting if one.resources.get(MEMORY, 0) >= needs.memory_bytes]
    if not enough:
        raise RunRefused(
            f"no node of the Ray cluster has the memory that a run may take, "
            f"{_gib(needs.memory_bytes)} (max_memory_bytes): "
            f"{_list(fitting, lambda one: _gib(one.resources.get(MEMORY, 0)))}; nothing was run; "
            "lower max_memory_bytes, or add a node with more by `skillbelt fleet join`"
        )
    able = [one for one in enough if one.resources.get(GPU, 0) >= needs.gpus]
    if not able:
        raise RunRefused(
            f"no node of the Ray cluster has the {needs.gpus} GPUs that the settings say the skill "
            f"needs (gpus): {_list(enough, lambda one: f'{one.resources.get(GPU, 0):g}')}; nothing "
            "was run; change gpus in the settings of the skill, or add a node with more by "
            "`skillbelt fleet join`"
        )
    wanted = needs_of(needs.sandbox, filter(None, (needs.interpreter,)))
    chosen = [one for one in able if one.has(wanted)]
    if not chosen:  # the command itself then reports what is missing, as on one machine
        chosen, wanted = able, needs_of(needs.sandbox)
    options: dict[str, Any] = {"resources": wanted}
    if len(enough) < len(fitting) or len(takers) < len(all_takers):
        options["label_selector"] = {NODE_LABEL: f"in({','.join(one.id for one in chosen)})"}
    actors = sum(one.resources.get(CPU, 0) for one in chosen)
    if needs.gpus:
        options["num_gpus"] = needs.gpus
        actors = sum(one.resources.get(GPU, 0) // needs.gpus for one in chosen)
    return NodePlacement(needs.name, max(1, int(actors)), options)


def lacking_sandbox(name: str) -> SandboxUnavailable:
    """Return the error for a sandbox that no node announces."""
    return SandboxUnavailable(
        f"no node of the Ray cluster announces the sandbox {name!r}; `skillbelt fleet nodes` "
        "says what each one has, and `skillbelt fleet join` starts a node that announces it"
    )


def _list(nodes: Sequence[AnnouncedNode], has: Callable[[AnnouncedNode], str]) -> str:
    shown = [f"{one.shown} has {has(one)}" for one in nodes[:_MAX_SHOWN]]
    return ", ".join(shown) + (f" and {len(nodes) - _MAX_SHOWN} more" * (len(nodes) > _MAX_SHOWN))


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
