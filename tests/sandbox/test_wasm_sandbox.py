"""The WASM sandbox keeps what every sandbox promises, as far as a guest can ask for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Mount, Outcome, Stream, run
from skillbelt.sandbox.wasm import sandbox as wasm
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import HANG_SECONDS, Place, refused
from skillbelt.values import Limits
from tests import needs
from tests.bounds import bounds
from tests.handles import no_handle_left
from tests.sandbox import guests
from tests.sandbox.guests import ECHO, SLEEP, SPIN, WORDS


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox()
    yield made
    made.close()


def outcome_of(sandbox: WasmSandbox, place: Place, data: bytes, **fields: object) -> Outcome:
    return run(sandbox, guests.job(place, data, **fields))


def test_it_can_be_used_here(sandbox: WasmSandbox) -> None:
    assert sandbox.unavailable() is None
    assert sandbox.unavailable() is None


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "packages", lambda: "")
    assert "pip install 'skillbelt[wasm]'" in str(WasmSandbox().unavailable())


def test_an_engine_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it said last."""
    monkeypatch.setattr("skillbelt.sandbox.wasm.engine.packages", lambda: "/no/such/folder")
    made = WasmSandbox()
    assert "No module named 'wasmtime'" in str(made.unavailable())
    made.close()


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127, 200, 255])
def test_both_streams_and_the_exit_code_come_back(
    sandbox: WasmSandbox, place: Place, code: int
) -> None:
    """Every code there is, byte for byte."""
    outcome = outcome_of(sandbox, place, guests.hello("a\0é\n", code))
    assert (outcome.exit_code, outcome.stdout.data) == (code, "a\0é\n".encode())
    assert outcome.stderr.data == "a\0é\n".encode()
    assert not (outcome.timed_out or outcome.cancelled or outcome.limits_hit)
    assert outcome.duration_seconds > 0


@pytest.mark.parametrize("version", ["0.2.0", "0.2.3", "0.2.12", "0.2.99"])
def test_every_component_for_wasi_0_2_runs(
    sandbox: WasmSandbox, place: Place, version: str
) -> None:
    good = guests.component("(i32.const 0)", version=version)
    bad = guests.component("(i32.const 1)", version=version)
    assert outcome_of(sandbox, place, good).exit_code == 0
    assert outcome_of(sandbox, place, bad).exit_code == 1


@pytest.mark.parametrize(("said", "code"), [(0, 0), (7, 7), (200, 200), (-1, 255), (256, 0)])
def test_a_component_says_its_exit_code(
    sandbox: WasmSandbox, place: Place, said: int, code: int
) -> None:
    """WASI itself knows well and not well only."""
    assert outcome_of(sandbox, place, guests.controlled(said)).exit_code == code


def test_what_was_enforced_has_the_same_names_as_elsewhere(
    sandbox: WasmSandbox, place: Place
) -> None:
    here = outcome_of(sandbox, place, guests.hello()).enforced
    assert list(here) == list(run(LinuxSandbox(), place.job("true")).enforced)
    assert f"uid {current_identity().uid}" in here["user"]


def test_words_and_variables_survive(sandbox: WasmSandbox, place: Place) -> None:
    """Empty ones, odd ones; nothing of the host's comes along."""
    words = ("", " ", "a b", "'", "$HOME", "\n", "*", "--", "\\", "é")
    env = {"ODD": "a\n'\"$(x) é=\\", "EMPTY": ""}
    job = guests.job(place, guests.module(WORDS), *words, env=env)
    said = run(sandbox, job).stdout.data.decode()
    given, _, variables = said.partition("\0\nODD=")
    assert given.split("\0") == ["/guests/guest.wasm", *words]
    assert variables.split("\0") == [env["ODD"], "EMPTY=", f"PWD={place.target}", ""]


@pytest.mark.parametrize("word", ["a\0b", "\udc80", "\ud800"])
def test_words_that_no_guest_can_be_given_are_refused(
    sandbox: WasmSandbox, place: Place, word: str
) -> None:
    with pytest.raises(RunRefused):
        run(sandbox, guests.job(place, guests.hello(), word))


def test_input_arrives_whole(sandbox: WasmSandbox, place: Place) -> None:
    """More than a pipe holds, and back again."""
    data = bytes(range(256)) * 4000
    limits = Limits(max_stream_bytes=2**21)
    outcome = outcome_of(sandbox, place, guests.module(ECHO), stdin=data, limits=limits)
    assert outcome.stdout.data == data


def test_input_that_nobody_reads_does_not_matter(sandbox: WasmSandbox, place: Place) -> None:
    assert outcome_of(sandbox, place, guests.hello(), stdin=bytes(2**21)).exit_code == 0


def test_more_input_than_there_may_be_is_refused(sandbox: WasmSandbox, place: Place) -> None:
    with pytest.raises(RunRefused, match="max_stdin_bytes"):
        outcome_of(sandbox, place, guests.hello(), stdin=b"abc", limits=bounds(max_stdin_bytes=2))


def test_input_can_be_written_while_it_runs(sandbox: WasmSandbox, place: Place) -> None:
    heard: list[tuple[Stream, bytes]] = []
    said = threading.Event()

    def listener(stream: Stream, data: bytes) -> None:
        heard.append((stream, data))
        said.set()

    running = sandbox.start(guests.job(place, guests.module(ECHO), stdin=None), listener)
    running.write(b"one")
    assert said.wait(HANG_SECONDS)
    assert running.wait(0.0) is None
    running.write(b"two")
    running.close_stdin()
    outcome = running.wait(HANG_SECONDS)
    assert outcome is not None
    assert outcome.stdout.data == b"onetwo"
    assert b"".join(data for _, data in heard) == b"onetwo"
    assert refused(lambda: running.write(b"three"))


def test_a_terminal_on_request(sandbox: WasmSandbox, place: Place) -> None:
    """All three streams are one terminal."""
    job = guests.job(place, guests.module(ECHO), terminal=True, stdin=b"word\n")
    outcome = run(sandbox, job)
    assert outcome.exit_code == 0
    assert outcome.stdout.data.count(b"word") == 2
    assert outcome.stderr.total_bytes == 0


def test_output_beyond_the_limit_is_counted_and_dropped(sandbox: WasmSandbox, place: Place) -> None:
    limits, data = Limits(max_stream_bytes=1000), bytes(3_000_000)
    outcome = outcome_of(sandbox, place, guests.module(ECHO), stdin=data, limits=limits)
    assert outcome.stdout == (bytes(1000), 3_000_000)
    assert outcome.limits_hit == ("max_stream_bytes",)


@pytest.mark.parametrize("body", [SLEEP, SPIN])
def test_a_timeout_keeps_what_was_said(sandbox: WasmSandbox, place: Place, body: str) -> None:
    """Attack 56: whether the guest sleeps or spins."""
    data = guests.module(guests.saying("before") + body, guests.text_at(1024, "before"))
    outcome = outcome_of(sandbox, place, data, timeout_seconds=0.5)
    assert (outcome.exit_code, outcome.timed_out, outcome.cancelled) == (124, True, False)
    assert outcome.stdout.data == b"before"
    assert outcome.limits_hit == ("run_timeout_seconds",)


def test_kill_ends_it_at_once(sandbox: WasmSandbox, place: Place) -> None:
    running = sandbox.start(guests.job(place, guests.module(SLEEP)))
    running.kill()
    running.kill()
    outcome = running.wait(HANG_SECONDS)
    assert outcome is not None
    assert (outcome.cancelled, outcome.timed_out) == (True, False)
    running.kill()
    assert running.wait() == outcome


def test_what_a_listener_throws_is_its_own_affair(sandbox: WasmSandbox, place: Place) -> None:
    def listener(stream: Stream, data: bytes) -> None:
        raise RuntimeError(stream)

    outcome = run(sandbox, guests.job(place, guests.hello()), listener)
    assert (outcome.exit_code, outcome.stdout.data) == (0, b"hello\n")


@pytest.mark.parametrize(
    "argv",
    [("ls", "-l"), ("/bin/true",), ("bash", "-c", "a | b"), ("sh", "x.sh"), ("python3", "-Z")],
)
def test_what_it_can_not_run_is_an_outcome(
    sandbox: WasmSandbox, place: Place, argv: tuple[str, ...]
) -> None:
    """127 and one line that says what it does run."""
    outcome = run(sandbox, place.job(*argv))
    assert outcome.exit_code == 127
    said = outcome.stderr.data.decode()
    assert said.count("\n") == 1
    assert "runs WASM modules, Python and JavaScript/TypeScript scripts" in said


@pytest.mark.parametrize("path", ["none.wasm", "/none/none.wasm", "../none.wasm"])
def test_a_missing_module_is_an_outcome(sandbox: WasmSandbox, place: Place, path: str) -> None:
    outcome = run(sandbox, place.job(path))
    assert (outcome.exit_code, outcome.stderr.data) == (127, f"{path}: not found\n".encode())


def test_a_module_is_found_below_the_folder_it_is_started_in(
    sandbox: WasmSandbox, place: Place
) -> None:
    guests.put(place, "here.wasm", guests.hello())
    job = guests.job(place, guests.hello(), cwd="/guests")
    assert run(sandbox, job._replace(argv=("./here.wasm",))).exit_code == 0
    assert run(sandbox, job._replace(argv=("sh", "-c", "./here.wasm"))).exit_code == 0


def test_no_handle_stays_behind(sandbox: WasmSandbox, place: Place) -> None:
    """After any kind of end."""
    kinds = (
        guests.job(place, guests.hello(), name="a.wasm"),
        guests.job(place, guests.module("unreachable"), name="b.wasm"),
        guests.job(place, guests.module(SLEEP), name="c.wasm", timeout_seconds=0.1),
        guests.job(place, guests.hello(), name="a.wasm", terminal=True),
        guests.job(place, b"nothing", name="d.wasm"),
        place.job("none"),
    )
    for each in kinds:
        run(sandbox, each)
    with no_handle_left():
        for each in kinds * 2:
            run(sandbox, each)


def test_a_read_only_folder_in_a_writable_one_is_refused(
    sandbox: WasmSandbox, place: Place
) -> None:
    """A guest that has a folder has all of it."""
    inner = os.path.join(place.folder, "inner")
    os.mkdir(inner)
    mounts = (Mount(place.folder, "/work", True), Mount(inner, "/inner"))
    with pytest.raises(SandboxUnavailable, match="cannot be read-only"):
        run(sandbox, place.job("x.wasm", mounts=mounts))


@needs.root
def test_a_folder_that_can_not_be_reached_is_told(sandbox: WasmSandbox, place: Place) -> None:
    closed = os.path.join(place.beside("closed"), "inner")
    os.mkdir(closed)
    os.chmod(os.path.dirname(closed), 0o700)
    os.chown(os.path.dirname(closed), 0, 0)
    with pytest.raises(SandboxUnavailable, match=r"is closed to uid \d+, which runs commands"):
        run(sandbox, place.job("x.wasm", mounts=(Mount(closed, "/work", True),)))
