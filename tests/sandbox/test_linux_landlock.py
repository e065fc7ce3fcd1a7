from __future__ import annotations

import errno
import os

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.linux import landlock
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.testing.sandbox_suite import Place, SandboxConformance
from skillbelt.values import Capabilities
from tests.sandbox.ordinary import conformance_as_user
from tests.sandbox.test_linux_seccomp import ALLOWED, AUDIT, I386, KILLED, answer


class TestLandlock(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> LandlockSandbox:
        return LandlockSandbox()


def test_a_link_that_a_command_made_grants_nothing(place: Place) -> None:
    """It would be followed by who grants, with the rights of the user."""
    outside = place.beside("outside")
    os.symlink(outside, os.path.join(place.folder, "data"))
    inner = os.path.join(place.folder, "data")
    mounts = (Mount(place.folder, place.target, True), Mount(inner, inner))
    with pytest.raises(RunRefused, match="there is a link on the way"):
        run(LandlockSandbox(), place.job("true", mounts=mounts))


def test_granted_paths_can_be_used_and_others_not(place: Place) -> None:
    read, write, other = (place.beside(name) for name in ("read", "write", "other"))
    granted = Capabilities((read,), (write,), processes=True)
    script = f"ls {read} && echo x > {write}/made && ! echo x > {read}/made && ! ls {other}"
    outcome = run(LandlockSandbox(), place.shell(script, capabilities=granted))
    assert outcome.exit_code == 0, outcome
    assert (os.listdir(read), os.listdir(write)) == ([], ["made"])


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_other_process_is_held_back(machine: str, place: Place) -> None:
    """Attack 23. Each of these calls is for the calling process alone; all others are as ever."""
    program = landlock.filter_program(place.job("true"), machine)
    column = 0 if machine == "x86_64" else 1

    def ask(numbers: tuple[int, int], *arguments: int) -> int:
        return answer(program, numbers[column], *arguments, arch=AUDIT[machine])

    for numbers in ((142, 118), (144, 119), (203, 122), (314, 274)):
        assert ask(numbers, 0, 7) == ALLOWED
        assert ask(numbers, 1234, 0) == ask(numbers, 2**32 + 1) == errno.EPERM
    for numbers, kind in (((141, 140), 0), ((251, 30), 1)):
        assert ask(numbers, kind, 0, 7) == ALLOWED
        assert ask(numbers, kind, 1234) == ask(numbers, kind + 1, 0) == errno.EPERM
    assert ask((240, 180)) == errno.EPERM
    assert ask((0, 63)) == ALLOWED
    assert ask((254, 27)) == errno.ENOSYS  # a watch on a folder of any user
    for numbers in ((188, 5), (189, 6), (191, 8), (194, 11), (197, 14)):
        assert ask(numbers) == errno.EOPNOTSUPP
    assert ask((193, 10)) == ALLOWED
    assert ask((165, 40)) == errno.EPERM
    assert answer(program, 0, arch=I386) == KILLED


def test_it_shows_nothing_at_another_place(place: Place) -> None:
    with pytest.raises(SandboxUnavailable, match="at another place"):
        run(LandlockSandbox(), place.job("true", mounts=(Mount(place.folder, "/work", True),)))


def test_it_says_what_it_does_not_hold(place: Place) -> None:
    fixed = os.path.join(place.folder, "fixed")
    os.mkdir(fixed)
    mounts = (Mount(place.folder, place.target, True), Mount(fixed, fixed))
    enforced = run(LandlockSandbox(), place.job("true", mounts=mounts)).enforced
    assert "not for read-only folders inside writable ones" in enforced["files"]
    assert enforced["file modes"].startswith("not enforced")
    assert enforced["temporary files"].startswith("not enforced")


def test_a_kernel_without_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 2)
    landlock._preflight.cache_clear()
    assert "no Landlock of version 3 or newer" in str(LandlockSandbox().unavailable())


@pytest.mark.long
def test_an_ordinary_user_gets_the_same() -> None:
    found = conformance_as_user("landlock.LandlockSandbox()")
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}
