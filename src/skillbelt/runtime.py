"""The facade that wires the rest together."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.conversation import RuntimeSession
from skillbelt.load import Loaded
from skillbelt.permission import Rule
from skillbelt.session import Session
from skillbelt.shelf import Shelf, Visible
from skillbelt.skill import Skill
from skillbelt.store import SessionKey
from skillbelt.tools import Access, ToolResult

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
            self.available(),
            self.settings,
            self.storage(),
            self._approve,
            lambda: self.look() and self.available(),
            self._record,
            names=self.names,
        )
        return self.run_tool(name, arguments, access, call_id)

    def _approve(self, skill: Skill, _loading: bool) -> str | None:
        decision = self.gate.check(self.gate.load_request(skill, "model"))
        return None if decision.allowed else decision.reason

    def _record(self, skill: Skill, loaded: Loaded) -> None:
        self.gate.record_load(self.gate.load_request(skill, "model"), loaded)

    def session(
        self,
        user: str,
        session: str,
        *,
        agent: str = "",
        app: str = APP,
        visible: Visible | None = None,
        rules: Iterable[Rule] = (),
    ) -> RuntimeSession:
        """A conversation, new or as the store has it.

        `visible` hides skills from it alone, and `rules` hold for it on top of all others.
        """
        settings = self.settings
        key = SessionKey(app, user, session)
        state = Session(
            self.store,
            key,
            agent=agent,
            mode=settings.load_mode,
            max_loaded=settings.max_loaded_skills,
        )
        return RuntimeSession(self, state, self.storage(key), visible, self.gate.with_rules(rules))

    def delete_session(self, user: str, session: str, *, app: str = APP) -> bool:
        """Forget a conversation and its stored texts; whether there was one."""
        import shutil

        key = SessionKey(app, user, session)
        shutil.rmtree(self.storage(key).folder, ignore_errors=True)
        return self.store.delete(key)
