"""What is asked for is what is used, or nothing runs."""

from __future__ import annotations

import pytest

from skillbelt.errors import ConfigError, SandboxUnavailable
from skillbelt.sandbox import linux
from skillbelt.sandbox.landlock import LandlockSandbox
from skillbelt.sandbox.linux import LinuxSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.registry import choose, sandboxes
from skillbelt.sandbox.sandlock import SandlockSandbox


def broken(self: object) -> str:
    return "it is broken: mend it"


def test_the_strongest_comes_first() -> None:
    levels = [sandbox.level for sandbox in sandboxes()]
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == 0
    assert len({sandbox.name for sandbox in sandboxes()}) == len(levels)


def test_auto_is_the_strongest() -> None:
    assert choose().name == choose("auto").name == "bubblewrap"


def test_auto_takes_the_next_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    monkeypatch.setattr(SandlockSandbox, "unavailable", broken)
    assert choose().name == "landlock"


def test_auto_never_takes_one_that_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 93."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    monkeypatch.setattr(SandlockSandbox, "unavailable", broken)
    monkeypatch.setattr(LandlockSandbox, "unavailable", broken)
    with pytest.raises(SandboxUnavailable, match=r"bubblewrap: it is broken.*landlock: it is"):
        choose()


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "none"])
def test_a_name_is_that_sandbox(name: str) -> None:
    assert choose(name).name == name


def test_a_name_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 93. The cause and the remedy are told."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    with pytest.raises(
        SandboxUnavailable, match="'bubblewrap' can not be used: it is broken: mend"
    ):
        choose("bubblewrap")


def test_an_unknown_name_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="no sandbox named 'jail'; there are: auto, bubblewrap"):
        choose("jail")


def test_without_bubblewrap_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 68."""
    monkeypatch.setattr(linux, "trusted_program", lambda name: None)
    linux._preflight.cache_clear()
    with pytest.raises(SandboxUnavailable, match="install the package 'bubblewrap'"):
        choose("bubblewrap")


def test_no_sandbox_says_so() -> None:
    assert NoSandbox().level == 0
