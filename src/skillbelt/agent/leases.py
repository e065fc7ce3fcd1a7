"""One turn at a time in a session, across all machines: a lease in the store that is renewed.

A server that dies stops renewing, and the next turn begins once its lease has expired; on the same
machine it begins at once. A server that was only suspended learns at its next append that another
has the session: the store refuses it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing

from anyio import to_thread

from skillbelt.agent.stream import start_task, wait_shielded
from skillbelt.errors import ConfigError, LeaseLost, log_warning
from skillbelt.permission.waiting import has_ended, process_mark
from skillbelt.store import SessionKey, Store
from skillbelt.store.protocol import Lease, lease_topic

# How long a session stays locked after the server of a turn died, and how often a running turn
# renews its lease. A waiting turn learns by a renewal that the other is alive, so a refusal
# may take that long.
LEASE_SECONDS = 15.0
RENEW_SECONDS = 3.0
_LOOK_SECONDS = 0.5
BUSY = "another run is active in this session{where}; wait for it to end, or cancel it"


class TurnLease:
    """Holds a session for one turn."""

    def __init__(self, store: Store, key: SessionKey) -> None:
        self._store, self._key = store, key
        self.number = os.urandom(16).hex()
        self.lost = False
        # A cancelled task leaves its thread at work: a lease that it takes is released afterwards.
        self._in_turn, self._released = threading.Lock(), False

    async def take(self) -> str:
        """Take the session; return why not if another turn is active in it.

        It waits for a turn that ends soon, and for the lease of a server that died.
        """
        if (await to_thread.run_sync(self._ask)).number == self.number:
            return ""
        seen: Lease | None = None
        with closing(await to_thread.run_sync(self._store.watch, lease_topic(self._key))) as watch:
            while True:
                found = await to_thread.run_sync(self._ask)
                if found.number == self.number:
                    return ""
                if seen not in (None, found):
                    return BUSY.format(where=f" ({found.holder.partition('|')[0]})")
                seen = found
                if _has_ended(found.holder):
                    await to_thread.run_sync(self._store.release_lease, self._key, found.number)
                    continue
                await to_thread.run_sync(watch.wait, _LOOK_SECONDS)

    def _ask(self) -> Lease:
        with self._in_turn:
            if self._released:
                raise LeaseLost()
            return self._store.take_lease(self._key, self.number, _describe_self(), LEASE_SECONDS)

    async def keep(self, stop: Callable[[], None]) -> None:
        """Renew the lease until this is cancelled; call `stop` when another has the session."""
        while not self.lost:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                self.lost = not await to_thread.run_sync(self._renew)
            except ConfigError as error:
                log_warning(f"a session could not be kept for its turn: {error}")
        stop()

    def _renew(self) -> bool:
        return self._store.renew_lease(self._key, self.number, LEASE_SECONDS)

    async def release(self) -> None:
        """Release the session, also when this task is cancelled meanwhile."""
        await wait_shielded([start_task(self._give_back())])

    async def _give_back(self) -> None:
        try:
            await to_thread.run_sync(self._release)
        except ConfigError as error:
            log_warning(f"a session is free again in {LEASE_SECONDS:.0f} seconds: {error}")

    def _release(self) -> None:
        with self._in_turn:
            self._released = True
            self._store.release_lease(self._key, self.number)


def _describe_self() -> str:
    """Return the process in words, and the mark by which others on its machine identify it."""
    return f"process {os.getpid()} on {socket.gethostname()}|{process_mark()}"


def _has_ended(holder: str) -> bool:
    """Whether the process that holds a lease is on this machine and has ended."""
    return has_ended(holder.partition("|")[2])
