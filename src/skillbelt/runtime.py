"""The facade that wires the rest together."""

from __future__ import annotations

import os
from collections.abc import Iterable

from skillbelt.catalog import Permit
from skillbelt.conversation import RuntimeSession
from skillbelt.session import Session
from skillbelt.settings import Settings
from skillbelt.shelf import Shelf, Visible, ask_for_trust
from skillbelt.store import SessionKey, Store, open_store
from skillbelt.tools import Access, Approve, ToolResult

APP = "skillbelt"


class Runtime(Shelf):
    """Everything for one project: what there is, what a model is told, what it may call.

    `permit` are an agent's rules, `visible` hides skills from the model and its user alike, and
    `approve` may refuse a load with a reason. `tools` is an exact list in place of the profile,
    `always` are skills whose text every conversation begins with, and `guidance` stands in place
    of the text about the tools ("" for none).
    """

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        store: Store | None = None,
        permit: Permit | None = None,
        approve: Approve | None = None,
        visible: Visible | None = None,
        tools: Iterable[str] | None = None,
        always: Iterable[str] = (),
        guidance: str | None = None,
        **overrides: object,
    ) -> None:
        super().__init__(
            project,
            settings=settings,
            permit=permit,
            approve=approve,
            visible=visible,
            tools=tools,
            always=always,
            guidance=guidance,
            **overrides,
        )
        self._store = store

    def __repr__(self) -> str:
        return f"<Runtime of {self.settings.project}>"

    @property
    def store(self) -> Store:
        """Where conversations are kept; in the state folder unless one was given."""
        if self._store is None:
            self._store = open_store(self.settings)
        return self._store

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
            self.approve or ask_for_trust,
            lambda: self.look() and self.available(),
            names=self.names,
        )
        return self.run_tool(name, arguments, access, call_id)

    def session(
        self,
        user: str,
        session: str,
        *,
        agent: str = "",
        app: str = APP,
        visible: Visible | None = None,
    ) -> RuntimeSession:
        """A conversation, new or as the store has it; `visible` hides skills from it alone."""
        settings = self.settings
        key = SessionKey(app, user, session)
        state = Session(
            self.store,
            key,
            agent=agent,
            mode=settings.load_mode,
            max_loaded=settings.max_loaded_skills,
        )
        return RuntimeSession(self, state, self.storage(key), visible)

    def delete_session(self, user: str, session: str, *, app: str = APP) -> bool:
        """Forget a conversation and its stored texts; whether there was one."""
        import shutil

        key = SessionKey(app, user, session)
        shutil.rmtree(self.storage(key).folder, ignore_errors=True)
        return self.store.delete(key)
