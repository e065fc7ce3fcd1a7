"""An attack, as data."""

from typing import NamedTuple


class Probe(NamedTuple):
    """One attack; `claim` is the protection that a sandbox must claim for the attack to count.

    `allowed` is shell or Python that must end with 0: a blocked attack proves nothing if everything
    is broken. `ends` are limits of which one must be reported, for attacks that are stopped by
    ending the run.
    """

    name: str
    numbers: tuple[int, ...]
    claim: str
    script: str
    allowed: str = ""
    processes: bool = True
    terminal: bool = False
    ends: tuple[str, ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    timeout_seconds: float = 30.0
