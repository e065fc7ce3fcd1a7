"""A run uses the sandbox that was asked for, or does not start."""

from __future__ import annotations

import pytest

from skillbelt.errors import ConfigError, RunRefused, SandboxUnavailable
from skillbelt.format.skill import Skill
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.macos.seatbelt import SeatbeltSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.registry import auto_sandboxes, choice_of, choose, name_for, sandboxes
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings


def broken(self: object) -> str:
    return "it is broken: fix it"


def test_the_strongest_comes_first() -> None:
    levels = [sandbox.level for sandbox in auto_sandboxes()]
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] > 0


def test_each_has_a_name_of_its_own() -> None:
    assert len({sandbox.name for sandbox in sandboxes()}) == len(sandboxes())


def test_only_the_last_holds_nothing_back() -> None:
    assert [sandbox.name for sandbox in sandboxes() if not sandbox.level] == ["none"]
    assert sandboxes()[-1].name == "none"


def test_auto_is_the_strongest() -> None:
    assert choose().name == choose("auto").name == "bubblewrap"


def test_auto_takes_the_next_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    assert choose().name == "landlock"


def test_auto_does_not_go_down_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice_of().warning == choice_of("landlock").warning == ""
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    said = choice_of().warning
    assert said.startswith(
        "bubblewrap: it is broken: fix it; landlock is used instead, without: names"
    )


def test_auto_never_takes_one_that_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 93."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    monkeypatch.setattr(LandlockSandbox, "unavailable", broken)
    with pytest.raises(SandboxUnavailable, match=r"bubblewrap: it is broken.*landlock: it is"):
        choose()


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(SeatbeltSandbox, "unavailable", lambda _: None)
    monkeypatch.setattr(ContainerSandbox, "unavailable", broken)
    monkeypatch.setattr(WasmSandbox, "unavailable", broken)


def test_auto_on_macos_takes_no_sandbox_that_is_not_verified(mac: None) -> None:
    """The message names what to install."""
    with pytest.raises(SandboxUnavailable, match=r"container: it is.*wasm: .*install Docker or"):
        choose()


def test_auto_on_macos_takes_a_container_or_wasm(
    mac: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WasmSandbox, "unavailable", lambda _: None)
    assert choose().name == "wasm"
    monkeypatch.setattr(ContainerSandbox, "unavailable", lambda _: None)
    assert choose().name == "container"


def test_seatbelt_is_taken_by_its_name_with_a_warning(mac: None) -> None:
    choice = choice_of("seatbelt")
    assert choice.sandbox.name == "seatbelt"
    assert "not verified" in choice.warning


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "none"])
def test_a_name_is_that_sandbox(name: str) -> None:
    assert choose(name).name == name


def test_a_name_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 93. The message has the cause and the remedy."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", broken)
    with pytest.raises(SandboxUnavailable, match="'bubblewrap' cannot be used: it is broken: fix"):
        choose("bubblewrap")


def test_an_unknown_name_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="no sandbox named 'jail'; there are: auto, bubblewrap"):
        choose("jail")


def test_without_bubblewrap_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 68."""
    monkeypatch.setattr(bubblewrap, "trusted_program", lambda name: None)
    bubblewrap._preflight.cache_clear()
    with pytest.raises(SandboxUnavailable, match="install the package 'bubblewrap'"):
        choose("bubblewrap")


def test_no_sandbox_says_so() -> None:
    assert NoSandbox().level == 0


# Which one a run of a skill goes to


def skill(runtime: str = "", trusted: bool = True) -> Skill:
    text = f"---\nname: tool\ndescription: d\n{runtime}---\n"
    return Skill.from_text(text)._replace(trusted=trusted)


NESTED = "metadata:\n  skillbelt:\n    runtime: wasm\n"
DOTTED = "metadata:\n  skillbelt.runtime: wasm\n"


@pytest.mark.parametrize("said", [NESTED, DOTTED])
def test_a_skill_can_say_that_its_scripts_are_for_wasm(said: str) -> None:
    assert name_for(skill(said), Settings()) == "wasm"
    assert name_for(skill(said.replace("wasm", "native")), Settings()) == "auto"


@pytest.mark.parametrize("name", ["none", "container", "[]", "landlock"])
def test_a_skill_can_not_choose_any_other(name: str) -> None:
    said = NESTED.replace("wasm", name)
    with pytest.raises(RunRefused, match=r"metadata\.skillbelt\.runtime is .* native, wasm"):
        name_for(skill(said), Settings())


def test_the_setting_comes_before_what_a_skill_says() -> None:
    assert name_for(skill(NESTED), Settings(sandbox="bubblewrap")) == "bubblewrap"


def test_skills_that_are_not_trusted_can_have_a_sandbox_of_their_own() -> None:
    settings = Settings(untrusted_sandbox="wasm")
    assert name_for(skill(trusted=False), settings) == "wasm"
    assert name_for(skill(), settings) == "auto"
    assert name_for(skill(trusted=False), settings._replace(sandbox="landlock")) == "landlock"


def test_what_a_run_needs_is_taken_when_nothing_is_set() -> None:
    assert name_for(skill(), Settings(), "wasm") == "wasm"
    assert name_for(skill(), Settings(sandbox="wasm"), "wasm") == "wasm"


@pytest.mark.parametrize(
    ("setting", "settings"),
    [
        ("sandbox", Settings(sandbox="container")),
        ("untrusted_sandbox", Settings(untrusted_sandbox="container")),
    ],
)
def test_what_a_run_needs_does_not_get_round_a_setting(setting: str, settings: Settings) -> None:
    with pytest.raises(SandboxUnavailable, match=f"'wasm' for this, and {setting} is 'container'"):
        name_for(skill(trusted=False), settings, "wasm")
