"""A run: one object that the executor completes step by step, from the call to the outcome."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from skillbelt.format.fields import requirements
from skillbelt.format.skill import Skill
from skillbelt.permission.command_lines import Line
from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import Environment
from skillbelt.permission.rules import Request
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.history import RunRecorder, StepClock
from skillbelt.running.inputs import Inputs
from skillbelt.running.named_files import Ground
from skillbelt.running.outputs import Wanted
from skillbelt.running.packages.declared import Needs
from skillbelt.running.programs.folder import Programs
from skillbelt.running.secret_store import StoredSecret
from skillbelt.running.secrets import redacted, secrets_of
from skillbelt.running.staging import Staged
from skillbelt.running.workspace import SKILLS, Workspace, placed
from skillbelt.sandbox.network.proxy import Network
from skillbelt.sandbox.protocol import Job, Outcome, Sandbox
from skillbelt.values import Capabilities, Frontmatter, Limits, Requirements

if TYPE_CHECKING:
    from skillbelt.running.packages.installation import EnvironmentPlan

INSIDE = "/workspace"


class Run:
    """One run. The executor's steps set the fields in the order in which they appear here.

    Reading a field before its step has set it raises AttributeError.
    """

    def __init__(
        self,
        *,
        skill: Skill,
        call: RunCall,
        who: Asker,
        gate: Gate,
        limits: Limits,
        sandbox: Sandbox,
        argv: tuple[str, ...],
        wanted: Wanted | None = None,
        listed_hosts: tuple[str, ...] = (),
        only_hosts: tuple[str, ...] | None = None,
        policy: bool = False,
        observed: bool = False,
        known_secrets: Mapping[str, str] | None = None,
        gpus: int = 0,
    ) -> None:
        """Take the checked call; nothing has been changed yet.

        `listed_hosts` are those of the user for tools that name none, `only_hosts` the only ones
        for this skill. `policy`: a list of commands chose the program. `observed`: record the hosts
        it asks for even if it may reach none. `known_secrets` were given to earlier runs. `gpus` is
        the number that the node of a cluster must have.
        """
        # Not a dataclass: importing that alone takes 8 ms.
        self.skill, self.call, self.who, self.gate = skill, call, who, gate
        self.limits, self.sandbox, self.argv, self.wanted = limits, sandbox, argv, wanted
        self.listed_hosts, self.only_hosts = listed_hosts, only_hosts
        self.policy, self.observed = policy, observed
        self.known_secrets, self.gpus = known_secrets or {}, gpus
        self.others: dict[str, str] = {}
        self.secrets: Mapping[str, str] = {}
        self.clock = StepClock()
        self.recorder: RunRecorder | None = None
        self.followed = False  # the caller wants the output as it arrives

    # Staged: the workspace, the skill's copy in it, this run's folder and the inputs. `others` are
    # the copies of skills that inputs come from, by name.
    workspace: Workspace
    staged: Staged
    folder: str
    inputs: Inputs

    # Asked for: what the command line means there, the request, and the files that runs can write
    # which the answer is bound to (None: a rule allowed it, with any files).
    line: Line
    ground: Ground
    script: str
    needs: Needs | None
    stored: tuple[StoredSecret, ...] = ()
    missing_secrets: tuple[str, ...] = ()
    request: Request
    bound_files: Mapping[str, str] | None = None
    remembered: bool = False

    # Provided: what was granted, and the job for the sandbox.
    packages: Environment | None = None
    planned: EnvironmentPlan | None = None
    programs: Programs | None = None
    program_folders: tuple[tuple[str, str], ...] = ()
    capabilities: Capabilities
    granted_tools: tuple[str, ...] = ()
    egress: Network | None = None
    job: Job
    warnings: tuple[str, ...] = ()
    # Why a network tool opened nothing: of interest if the command fails.
    unopened: tuple[str, ...] = ()

    # Started: when, by the clock of the workspace's file system.
    began: int = 0
    outcome: Outcome

    @cached_property
    def frontmatter(self) -> Frontmatter:
        """Return the skill's frontmatter, read once, so that the question and the grant agree."""
        return self.skill.frontmatter

    @property
    def requirements(self) -> Requirements:
        """Return the requirements that the skill states."""
        return requirements(self.frontmatter)

    @property
    def redacts(self) -> dict[str, str]:
        """Return the secrets to redact everywhere, by name.

        A file of the workspace may hold one that an earlier run was given.
        """
        return {**self.known_secrets, **secrets_of(self.call.env), **self.secrets}

    @property
    def shown(self) -> str:
        """Return the command as one line, without secrets."""
        return redacted(self.call.text, self.redacts)

    # Paths. With a sandbox that remaps, the workspace is at INSIDE and each skill in `skills/`.

    @property
    def remaps(self) -> bool:
        """Whether the sandbox shows the workspace at another path."""
        return self.sandbox.remaps

    @property
    def root(self) -> str:
        """Return the path of the workspace as the command sees it."""
        return INSIDE if self.remaps else self.workspace.path

    @property
    def homes(self) -> dict[str, str]:
        """Return the copies that the run sees, by name, its own last: paths in the workspace."""
        name = self.skill.name
        others = {other: home for other, home in self.others.items() if other != name}
        return {**others, name: self.staged.home}

    @property
    def skills(self) -> str:
        """Return the folder that contains the skill, below the root that the command sees."""
        return SKILLS if self.remaps else posixpath.dirname(self.staged.home)

    def inside(self, path: str) -> str:
        """Return the path of the workspace as the command sees it."""
        seen = path if self.remaps else placed(path, self.homes)
        return os.path.normpath(os.path.join(self.root, seen))
