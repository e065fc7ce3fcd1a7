"""Find which texts of skills a cut history lacks, and which of them a request puts back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skillbelt.conversation.compaction import (
    Compacted,
    Lacking,
    Selection,
    as_loaded,
    digest,
    find_lacking,
    is_context,
    make_context,
    mark_of,
    result_texts,
    select,
    state_key,
)
from skillbelt.conversation.messages import Material, Message
from skillbelt.conversation.state import LoadedSkill, Session
from skillbelt.tools.caller import Caller
from skillbelt.tools.loaded import LoadedTexts

# Share of the window for texts that are put back after a cut.
RESTORE_SHARE = 0.25
PLACE = "Base directory for this skill:"
# How many messages with such texts are recognised in a history; a host may have kept them.
MAX_CONTEXTS = 32


class RestoredTexts:
    """The skills of one conversation as of one request.

    A skill is `inline` if its text was in an answer: requests do not carry it as long as exactly
    that answer is in the history.
    """

    def __init__(
        self, session: Session, caller: Caller, texts: LoadedTexts, restore_tokens: int | None
    ) -> None:
        state = caller.state
        self._session, self._state = session, state
        self._given = session.given(state)
        loaded = {one.name: one for one in session.loaded(state)}
        shown = {
            name: given[-1] for name, given in self._given.items() if given and name not in loaded
        }
        self._folders = {name: one.folder for name, one in shown.items() if one.folder}
        read = texts.read([*loaded.values(), *map(LoadedSkill, shown)], caller, shown)
        self._materials = {one.name: one for one in read}
        self._withheld = texts.withheld
        self._inline = {
            name for name, given in self._given.items() if any(one.answer for one in given)
        }
        window = caller.settings.context_window_tokens
        share = window * RESTORE_SHARE if window else float("inf")
        self._room = share if restore_tokens is None else restore_tokens
        self.cuts = False  # whether this is a cut, so that earlier selections do not count
        self.made = Compacted([])
        self.blocks: frozenset[str] = frozenset()

    def for_requests(self) -> list[Material]:
        """Return the skills whose text is not in an answer, so that requests carry it."""
        return [one for one in self._materials.values() if one.name not in self._inline]

    def context(self, messages: Sequence[Message], blocks: Mapping[str, str]) -> str:
        """Return the text of the message with what these messages lack; "" for nothing.

        `blocks` are the texts that requests carry and that have no answer there. `made` has the
        names afterwards.
        """
        lacking = {name: self._find_block(name, text) for name, text in blocks.items()}
        lacking |= self._lacking_inline(messages)
        before = Selection.read(self._state.get(self._key("restored"), ""))
        if not lacking and before == Selection():
            return ""
        landed = self._session.landed(self._state)
        chosen = select(
            {name: one.text for name, one in lacking.items()},
            Selection() if self.cuts else before,
            mark_of(messages),
            order=self._session.order(self._state),
            room=self._room,
            loaded=self._materials,
            required={name for name in blocks if not landed.get(name)},
        )
        self._keep(before, chosen)
        self.blocks = frozenset(
            self._materials[name].text for name in chosen.put if not lacking[name].changed
        )
        texts = {name: one.text for name, one in lacking.items()}
        self.made = Compacted(
            messages=[],
            put_back=chosen.put,
            left_out=chosen.left,
            changed=tuple(sorted(name for name, one in lacking.items() if one.changed)),
            context=make_context(texts, chosen.put, chosen.named),
        )
        return self.made.context

    def find_own(self, messages: Sequence[Message]) -> list[int]:
        """Return the indices of the messages that are the host's own.

        A host may have kept messages that put texts back before.
        """
        known = self._state.get(self._key("contexts"), "").split()
        return [index for index, one in enumerate(messages) if not is_context(one, known)]

    def remember_context(self) -> None:
        """Remember the message that `context` made, to recognise it later."""
        known = self._state.get(self._key("contexts"), "").split()
        made = digest(self.made.context)
        if self.made.context and made not in known:
            self._store("contexts", " ".join([*known, made][-MAX_CONTEXTS:]))

    def _find_block(self, name: str, text: str) -> Lacking:
        """Return the block that a request carries, unless the skill changed since it was loaded."""
        if name in self._withheld:
            return Lacking(text)
        found = as_loaded(self._materials[name], self._given.get(name, ()))
        return found if found.changed else Lacking(text)

    def _lacking_inline(self, messages: Sequence[Message]) -> dict[str, Lacking]:
        names = [name for name in sorted(self._inline) if name in self._materials]
        results = {digest(text) for text in result_texts(messages)} if names else set()
        found = {}
        for name in names:
            given = () if name in self._withheld else self._given[name]
            lacking = find_lacking(self._materials[name], given, results)
            if lacking is not None:
                found[name] = lacking._replace(text=lacking.text + self._folder_line(name))
        return found

    def _folder_line(self, name: str) -> str:
        """Return the line that names a skill's folder, for a model that knows the folder."""
        folder = self._folders.get(name)
        return f"\n\n{PLACE} {folder}" if folder else ""

    def _keep(self, before: Selection, chosen: Selection) -> None:
        """Store the selection, unless it follows from what is lacking."""
        kept = chosen if chosen.named else Selection()
        if kept != before:
            self._store("restored", None if kept == Selection() else str(kept))

    def _store(self, kind: str, value: str | None) -> None:
        self._session.store.append(self._session.key, [], {self._key(kind): value})

    def _key(self, kind: str) -> str:
        return state_key(kind, self._session.agent)
