"""Other Python readers of skills, each in an environment of its own, each called its own way.

None of their code is kept here: an adapter is the import and the call a user of that library
writes. `found` is the number of skills it offers afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.measure import Stopped, Subject
from benchmarks.tree import cache_folder

INSTALL_SECONDS = 900


class Peer(NamedTuple):
    """One way to read a tree with one library."""

    label: str
    requirements: tuple[str, ...]
    setup: str
    call: str

    @property
    def version(self) -> str:
        """The version of the distribution that the label names."""
        name = self.label.partition(",")[0]
        pins = dict(pin.split("==") for pin in self.requirements if "==" in pin)
        return pins[name]

    @property
    def folder(self) -> str:
        """The environment; peers with the same requirements share it."""
        return os.path.join(cache_folder(), "peers", self.requirements[0].replace("==", "-"))


_PYDANTIC = ("pydantic-ai-skills==2.1.0", "pydantic-ai-harness==0.62.0")
_ADK = ("google-adk==2.13.0",)
_AGNO = ("agno==3.1.10",)
_FASTMCP = ("fastmcp==4.1.2",)
_SKILLS_REF = ("skills-ref==0.1.1",)

PEERS: tuple[Peer, ...] = (
    Peer(
        "openai-agents",
        ("openai-agents==0.24.0",),
        """
from pathlib import Path
from agents.sandbox.capabilities.skills import LocalDirLazySkillSource
from agents.sandbox.entries import LocalDir
os.chdir(root)
""",
        """
source = LocalDirLazySkillSource(source=LocalDir(src=Path(root)))
found = len(source.list_skill_metadata(skills_path=".agents"))
""",
    ),
    Peer(
        "agent-skills-sdk",
        ("agent-skills-sdk==0.1.1",),
        "from agent_skills_sdk import AgentSkillsClient",
        "found = len(AgentSkillsClient(skill_paths=[root]).discover_metadata())",
    ),
    Peer(
        "langchain-skills-adapters",
        ("langchain-skills-adapters==0.1.6",),
        "from langchain_skills_adapters import SkillsLoader",
        "found = len(SkillsLoader(root).skill_map)",
    ),
    Peer(
        "agno, validate=False",
        _AGNO,
        "from agno.skills import LocalSkills, Skills",
        "found = len(Skills(loaders=[LocalSkills(root, validate=False)]).get_skill_names())",
    ),
    Peer(
        "agno",
        _AGNO,
        "from agno.skills import LocalSkills",
        "found = len(LocalSkills(root).load())",
    ),
    Peer(
        "deepagents",
        ("deepagents==0.7.32",),
        """
from deepagents.backends.filesystem import FilesystemBackend
from deepagents.middleware.skills import _list_skills
""",
        "found = len(_list_skills(FilesystemBackend(root_dir=root), '/'))",
    ),
    Peer(
        "strands-agents",
        ("strands-agents==1.62.0",),
        "from strands.vended_plugins.skills import Skill",
        "found = len(Skill.from_directory(root))",
    ),
    Peer(
        "crewai",
        ("crewai==1.15.30",),
        "from pathlib import Path\nfrom crewai.skills.loader import discover_skills",
        "found = len(discover_skills(Path(root)))",
    ),
    Peer(
        "skillkit",
        ("skillkit==0.4.0", "aiofiles"),
        "from skillkit import SkillManager",
        """
manager = SkillManager(project_skill_dir=root, anthropic_config_dir="")
manager.discover()
found = len(manager.list_skills())
""",
    ),
    Peer(
        "haystack-ai",
        ("haystack-ai==3.4.0",),
        "from haystack.skill_stores.file_system.skill_store import FileSystemSkillStore",
        """
store = FileSystemSkillStore(root)
store.warm_up()
found = len(store.list_skills())
""",
    ),
    Peer(
        "google-adk, list",
        _ADK,
        "from google.adk.skills import list_skills_in_dir",
        "found = len(list_skills_in_dir(root))",
    ),
    Peer(
        "google-adk, load",
        _ADK,
        "from google.adk.skills import load_skills_from_dir",
        "found = len(load_skills_from_dir(root))",
    ),
    Peer(
        "agentscope",
        ("agentscope==2.0.10",),
        "import asyncio\nfrom agentscope.skill import LocalSkillLoader",
        "found = len(asyncio.run(LocalSkillLoader(root, scan_subdir=True).list_skills()))",
    ),
    Peer(
        "skillengine",
        ("skillengine==0.2.1",),
        "from pathlib import Path\nfrom skillengine import SkillsConfig, SkillsEngine",
        "found = len(SkillsEngine(config=SkillsConfig(skill_dirs=[Path(root)])).load_skills())",
    ),
    Peer(
        "openskills-sdk",
        ("openskills-sdk==0.0.8",),
        "import asyncio\nfrom pathlib import Path\nfrom openskills import SkillManager",
        "found = len(asyncio.run(SkillManager([Path(root)]).discover()))",
    ),
    Peer(
        "skills-runtime-sdk",
        ("skills-runtime-sdk==0.1.12",),
        "from pathlib import Path\nfrom skills_runtime.skills.manager import SkillsManager",
        """
manager = SkillsManager(workspace_root=Path(root), skills_config={
    "spaces": [{"id": "all", "namespace": "all:bench", "sources": ["disk"]}],
    "sources": [{"id": "disk", "type": "filesystem", "options": {"root": root}}],
})
found = len(manager.scan().skills)
""",
    ),
    Peer(
        "agent-framework-core",
        ("agent-framework-core==1.23.0",),
        """
import asyncio
from agent_framework import FileSkillsSource
from agent_framework._skills import SkillsSourceContext
""",
        """
source = FileSkillsSource(root)
found = len(asyncio.run(source.get_skills(SkillsSourceContext(agent=None))))
""",
    ),
    Peer(
        "fastmcp",
        _FASTMCP,
        "from fastmcp.server.providers.skills import SkillsDirectoryProvider",
        "found = len(SkillsDirectoryProvider(roots=root).providers)",
    ),
    Peer(
        "fastmcp, SEP-2640",
        _FASTMCP,
        "from fastmcp.server.providers.skills import SkillsDirectoryProvider",
        """
provider = SkillsDirectoryProvider(roots=root, experimental_skills=True)
found = len(provider._snapshots())
""",
    ),
    Peer(
        "trpc-agent-py",
        ("trpc-agent-py==1.2.0", "greenlet"),
        "from trpc_agent_sdk.skills import FsSkillRepository",
        "found = len(FsSkillRepository(root).summaries())",
    ),
    Peer(
        "pydantic-ai-harness",
        _PYDANTIC,
        """
import asyncio
from pydantic_ai.workspaces.local import LocalWorkspaceBackend
from pydantic_ai_harness.skills import Skills
""",
        """
catalog = asyncio.run(Skills([root]).load(LocalWorkspaceBackend(root)))
found = len(catalog.skills)
""",
    ),
    Peer(
        "pydantic-ai-skills",
        _PYDANTIC,
        """
import asyncio
from pydantic_ai.workspaces.local import LocalWorkspaceBackend
from pydantic_ai_skills import SkillsCapability
""",
        """
capability = SkillsCapability(root)
catalog = asyncio.run(capability._skills.load(LocalWorkspaceBackend(root)))
found = len(catalog.skills)
""",
    ),
    Peer(
        "skills-ref, read_properties",
        _SKILLS_REF,
        "from pathlib import Path\nfrom skills_ref import SkillError, read_properties",
        """
found = 0
for folder in sorted(Path(root).iterdir()):
    try:
        read_properties(folder)
        found += 1
    except (SkillError, AttributeError):
        pass
""",
    ),
    Peer(
        "skills-ref, validate",
        _SKILLS_REF,
        "from pathlib import Path\nfrom skills_ref import validate",
        """
found = 0
for folder in sorted(Path(root).iterdir()):
    try:
        found += not validate(folder)
    except AttributeError:
        pass
""",
    ),
    Peer(
        "skillport, builds its index",
        ("skillport==1.1.2", "skillport-mcp==1.1.2"),
        """
import tempfile
from skillport.modules.indexing.public.index import build_index
from skillport.shared.config import Config
state = tempfile.TemporaryDirectory()
""",
        """
built = build_index(
    config=Config(skills_dir=root, db_path=state.name + "/db", meta_dir=state.name + "/meta"),
    force=True,
)
state.cleanup()
if not built.success:
    raise SystemExit(built.message)
found = built.skill_count
""",
    ),
)


def chosen(names: Iterable[str]) -> list[Peer]:
    """The peers whose label starts with one of the names; all of them for no names."""
    prefixes = tuple(names)
    return [peer for peer in PEERS if not prefixes or peer.label.startswith(prefixes)]


def install(peer: Peer) -> Subject:
    """The peer, ready to be measured. Raises `Stopped` when it does not install."""
    folder = peer.folder
    marker = os.path.join(folder, "ready")
    if not os.path.exists(marker):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        _uv("venv", "--python", sys.executable, folder)
        _uv("pip", "install", "--python", _python(folder), *peer.requirements)
        with open(marker, "w", encoding="utf-8") as file:
            file.write("\n".join(peer.requirements))
    return Subject(peer.label, peer.setup, peer.call, _python(folder), _environment())


def _python(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def _environment() -> dict[str, str]:
    """An empty home and no telemetry: a peer finds the tree and nothing else."""
    home = os.path.join(cache_folder(), "peer-home")
    os.makedirs(home, exist_ok=True)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "LANG": "C.UTF-8",
        "OTEL_SDK_DISABLED": "true",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "HAYSTACK_TELEMETRY_ENABLED": "false",
        "AGNO_TELEMETRY": "false",
    }


def _uv(*arguments: str) -> None:
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    command = [beside if os.path.exists(beside) else "uv", "--quiet", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Stopped(f"does not install: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise Stopped(f"does not install: {said[-1].strip()}")
