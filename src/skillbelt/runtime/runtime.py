"""The facade that wires the rest together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from skillbelt.conversation.state import Session
from skillbelt.disclosure.body import Loaded
from skillbelt.errors import SkillNotFound
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import session_id
from skillbelt.permission.rules import Initiator, Request, Rule
from skillbelt.running.following import Watch
from skillbelt.runtime.session import RuntimeSession
from skillbelt.runtime.shelf import Shelf, Visible
from skillbelt.runtime.threads import in_thread
from skillbelt.store import SessionKey, Store
from skillbelt.tools.schema import Access, Runs, ToolResult

if TYPE_CHECKING:
    from skillbelt.running.call import RunResult
    from skillbelt.running.json_call import Execution
    from skillbelt.running.run import Asker
    from skillbelt.sandbox.protocol import Listener

APP = "skillbelt"


class Runtime(Shelf):
    """Everything for one project: what there is, what a model is told, what it may call."""

    def __repr__(self) -> str:
        return f"<Runtime of {self.settings.project}>"

    def dispatch(
        self,
        name: str,
        arguments: object = None,
        session: RuntimeSession | None = None,
        call_id: str = "",
    ) -> ToolResult:
        """Run a tool by the name it is offered under; without a session, loading gives the text."""
        if session is not None:
            return session.call_sync(name, arguments, call_id)
        access = Access(
            skills=self.available(),
            settings=self.settings,
            storage=self.storage(),
            approve=self._approve,
            look=lambda: self.look() and self.available(),
            record=self._record,
            names=self.names_for(self.available()),
            runs=lambda: Runs(self.workbench, self.background, self._own()),
            search=self.search_in,
        )
        return self.run_tool(name, arguments, access, call_id)

    def _own(self) -> Asker:
        from skillbelt.running.run import Asker

        return Asker(self._own_key)

    @cached_property
    def _allowed(self) -> dict[str, Request]:
        """What was last asked for without a session, by skill."""
        return {}

    @cached_property
    def _own_key(self) -> SessionKey:
        """The conversation of whoever names none: what this runtime dispatches, and no other."""
        return SessionKey(APP, "", f"own-{os.urandom(16).hex()}")

    def close(self) -> None:
        """End what runs in the background; refuse what waits for permission, now and later."""
        super().close()
        if "_own_key" in self.__dict__ and "workbench" in self.__dict__:
            self.workbench.forget(self._own_key)

    def _approve(self, skill: Skill, _loading: bool) -> str | None:
        request = self._allowed[skill.name] = self.gate.load_request(skill, "model")
        decision = self.gate.check(request)
        if decision.allowed:
            self.gate.let_through(request._replace(session=session_id(self._own_key)))
        return None if decision.allowed else decision.reason

    def _record(self, skill: Skill, loaded: Loaded) -> None:
        request = self._allowed.get(skill.name) or self.gate.load_request(skill, "model")
        self.gate.record_load(request, loaded, skill)

    def run_sync(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        session: RuntimeSession | None = None,
        inputs: Iterable[str | Mapping[str, object]] = (),
        outputs: Iterable[str] | Mapping[str, object] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        cwd: str = "",
        timeout_seconds: float = 0.0,
        stdin: bytes = b"",
        save_as_artifacts: bool = False,
        omit_inline_content: bool = False,
        listener: Listener | None = None,
    ) -> RunResult:
        """Run a command of a skill in its sandbox, as the user.

        Without a session it has a workspace of its own, empty, that goes with it.

        Words are run as they are, a text by `bash -c`. A command that fails is a result like any
        other; RunRefused, PermissionDenied and SandboxUnavailable say that nothing was run.
        """
        from skillbelt.running.call import RunCall

        given = (inputs,) if isinstance(inputs, str) else inputs
        patterns = (outputs,) if isinstance(outputs, str) else outputs
        call = RunCall(
            command=command if isinstance(command, str) else tuple(command),
            cwd=cwd,
            env=env,
            timeout_seconds=timeout_seconds,
            inputs=[{"from": one} if isinstance(one, str) else one for one in given],
            output_files=() if isinstance(outputs, Mapping) else tuple(patterns),
            outputs=outputs if isinstance(outputs, Mapping) else None,
            save_as_artifacts=save_as_artifacts,
            omit_inline_content=omit_inline_content,
            stdin=stdin,
        )
        skill = self._seen_by(name, session)
        return self.workbench.run(skill, call, _who("user", session), Watch(listener))

    run = in_thread(run_sync)

    def execute_skill_sync(
        self,
        name: str,
        input: object = None,
        *,
        script: str = "",
        wasm_module: str = "",
        timeout_ms: int = 0,
        session: RuntimeSession | None = None,
        listener: Listener | None = None,
    ) -> Execution:
        """Run a skill's module or script on JSON, as the user; its JSON on stdout is the output."""
        from skillbelt.running.json_call import execute

        return execute(
            self.workbench,
            self._seen_by(name, session),
            input,
            who=_who("user", session),
            script=script,
            wasm_module=wasm_module,
            timeout_ms=timeout_ms,
            watch=Watch(listener),
        )

    execute_skill = in_thread(execute_skill_sync)

    def _seen_by(self, name: str, session: RuntimeSession | None) -> Skill:
        """The skill of that name, unless it is hidden from the conversation."""
        skill, visible = self.get_skill(name), session.visible if session else None
        if not self.there(skill, visible):
            seen = (one for one in self.skills().values() if self.there(one, visible))
            raise SkillNotFound(name, [one.name for one in seen])
        return skill

    def session(
        self,
        user: str,
        session: str,
        *,
        agent: str = "",
        app: str = APP,
        visible: Visible | None = None,
        rules: Iterable[Rule] = (),
        store: Store | None = None,
    ) -> RuntimeSession:
        """A conversation, new or as the store has it.

        `visible` hides skills from it alone, and `rules` hold for it on top of all others. A
        `store` keeps it in place of the runtime's own.
        """
        settings = self.settings
        key = SessionKey(app, user, session)
        state = Session(
            store or self.store,
            key,
            agent=agent,
            mode=settings.load_mode,
            max_loaded=settings.max_loaded_skills,
        )
        return RuntimeSession(
            shelf=self,
            session=state,
            storage=self.storage(key),
            visible=visible,
            gate=self.gate.with_rules(rules),
        )

    def delete_session(self, user: str, session: str, *, app: str = APP) -> bool:
        """Forget a conversation, its stored texts and its workspace; whether there was one."""
        import shutil

        key = SessionKey(app, user, session)
        shutil.rmtree(self.storage(key).folder, ignore_errors=True)
        self.workbench.forget(key)
        return self.store.delete(key)


def _who(initiator: Initiator, session: RuntimeSession | None = None) -> Asker:
    from skillbelt.running.run import Asker

    if session is None:
        return Asker(SessionKey(APP, "", "shared"), initiator, once="whole")
    return Asker(session.session.key, initiator, session.session.agent, session.gate)
