"""Secrets that a run is given do not appear in its results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.running.background import Background
from skillbelt.running.call import RunCall
from skillbelt.running.following import Watch
from tests import needs
from tests.bench import KEY, ME, Bench
from tests.tree import Tree

pytestmark = needs.linux
SECRET = "s3cr3t-value"
ENV = {"MY_TOKEN": SECRET}
IN_PIECES = 'printf "a ${MY_TOKEN:0:5}"; sleep 0.2; printf "${MY_TOKEN:5} b s3cr"'


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


def test_whoever_listens_hears_the_name_of_a_secret(echo: Bench) -> None:
    """Attack 63. However the command prints it, and all that it prints beside it."""
    bench, heard = echo.make(), list[bytes]()
    call = RunCall(f"{IN_PIECES}; echo {SECRET} >&2", env=ENV)
    watch = Watch(lambda _, data: heard.append(data))
    result = bench.run(echo.belt.get_skill("echo"), call, ME, watch)
    assert b"".join(sorted(heard)) == b"".join(
        sorted((b"a ", b"[MY_TOKEN] b ", b"[MY_TOKEN]\n", b"s3cr"))
    )
    assert (result.stdout, result.stderr) == ("a [MY_TOKEN] b s3cr", "[MY_TOKEN]\n")


def test_who_polls_reads_the_name_of_a_secret_wherever_it_reads_on(echo: Bench) -> None:
    """Attack 63."""
    bench = echo.make()
    background = Background(bench)
    call = RunCall(f"{IN_PIECES}; read line; : {SECRET}", env=ENV)
    run = background.start(echo.belt.get_skill("echo"), call, ME)
    text, offset, running = "", 0, True
    while running:
        polled = background.poll(KEY, run, stdout_offset=offset, wait_seconds=10)
        text, offset, running = text + polled.stdout, polled.stdout_offset, polled.running
        if text.endswith(" b "):
            background.write(KEY, run, "\n")
    assert text == "a [MY_TOKEN] b s3cr"
    for start in range(len(text)):
        assert background.poll(KEY, run, stdout_offset=start).stdout == text[start:]
    (listed,) = background.list(KEY)
    assert listed.command.endswith("; read line; : [MY_TOKEN]")
    background.close()


def test_a_stream_that_is_cut_within_a_secret_shows_nothing_of_it(echo: Bench) -> None:
    for limit in range(len(SECRET)):
        bench = echo.make(max_stream_bytes=2 + limit)
        result = echo.run('echo "a $MY_TOKEN"', bench=bench, env=ENV)
        assert (result.stdout, result.warnings) == ("a ", ("stdout truncated",))


def test_a_file_that_is_cut_within_a_secret_shows_nothing_of_it(echo: Bench) -> None:
    bench = echo.make(max_output_file_bytes=9)
    command = 'echo "a $MY_TOKEN" > out/a.txt'
    result = echo.run(command, bench=bench, env=ENV, output_files=("out/*",))
    (file,) = result.output_files
    assert (file.content, file.truncated) == ("a ", True)


def test_a_file_that_is_kept_is_kept_to_the_byte(echo: Bench) -> None:
    """Only the shown text is redacted: a store holds the bytes that the command wrote."""
    store = MemoryArtifacts()
    bench = echo.make(artifacts=store)
    command = 'echo "$MY_TOKEN" > out/a.txt; printf "\\0$MY_TOKEN" > out/b.bin'
    outputs = {"globs": ["out/*"], "save": True, "inline": True}
    result = echo.run(command, bench=bench, env=ENV, outputs=outputs)
    assert [file.content for file in result.output_files] == ["[MY_TOKEN]\n", ""]
    kept = bench.artifacts(KEY)
    saved = [store.find(kept.key, one.name, one.version) for one in result.artifact_files]
    assert [one.size for one in saved] == [len(SECRET) + 1] * 2


def test_what_goes_on_is_told_without_secrets(echo: Bench) -> None:
    bench, said = echo.make(), list[str]()
    bench._progress = said.append
    echo.run(f"echo {SECRET}", bench=bench, env=ENV)
    assert "running echo: echo [MY_TOKEN]" in said
    assert not any(SECRET in text for text in said)
