"""What an attack is, as data."""

from typing import NamedTuple


class Probe(NamedTuple):
    """One attack. `claim` is what a sandbox must say it enforces for the attack to count.

    `allowed` is shell or Python that must end with 0: that a door is shut is worth nothing where
    everything is broken. `ends` are limits of which one must be reported, for attacks that are
    answered by ending the run.
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
