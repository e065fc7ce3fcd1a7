from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.build.build_sandbox import run_build
from skillbelt.running.build.protocol import Source
from skillbelt.settings import Settings
from tests.bounds import bounds
from tests.running.build.skills import Scripted
from tests.sandbox.guests import hosts

SOURCE = Source("src/main.txt", {"src/main.txt": b"text", "SKILL.md": b""})


def made(script: str, settings: Settings | None = None) -> bytes:
    builder = Scripted(script)
    given = settings or hosts()
    (data,) = run_build(builder.prepare(SOURCE, given, print), SOURCE, given)
    return data


def test_what_is_made_comes_back() -> None:
    assert made('cat "$2/src/main.txt" > "$1/made.wasm"; printf "!" >> "$1/made.wasm"') == b"text!"


def test_files_of_the_builder_know_where_things_are() -> None:
    data = made('cat "$3/given.json" > "$1/made.wasm"; printf "%s" "$2" >> "$1/made.wasm"')
    head, _, place = data.partition(b"}")
    assert head == b'{"at": "%b"' % place


def test_the_source_can_not_be_written() -> None:
    script = 'if echo x > "$2/src/main.txt" || echo x > "$3/new"; then exit 9; fi 2>/dev/null; '
    assert made(script + 'cat "$2/src/main.txt" > "$1/made.wasm"') == b"text"


def test_nothing_of_the_host_can_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with pytest.raises(RunRefused, match=r"No such file|Permission denied"):
        made(f'cat {secret} > "$1/made.wasm"')


def test_there_is_no_network() -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 9))"
    with pytest.raises(RunRefused, match=r"Network is unreachable|Permission denied"):
        made(f'python3 -c "{code}" && echo > "$1/made.wasm"')


def test_a_link_in_place_of_what_was_made_is_not_followed() -> None:
    with pytest.raises(RunRefused, match=r"made no made\.wasm"):
        made('ln -s /etc/hostname "$1/made.wasm"')


def test_a_folder_in_place_of_what_was_made_is_refused() -> None:
    with pytest.raises(RunRefused, match=r"made\.wasm"):
        made('mkdir "$1/made.wasm"')


def test_nothing_made_is_said() -> None:
    with pytest.raises(RunRefused, match=r"made no made\.wasm: No such file"):
        made("true")


def test_what_the_tool_says_is_told_without_our_folders() -> None:
    with pytest.raises(RunRefused, match=r"cannot be built: src/main\.txt:1: wrong$"):
        made('echo "$2/src/main.txt:1: wrong" >&2; exit 1')


def test_a_build_that_takes_too_long_is_ended() -> None:
    settings = hosts()._replace(limits=bounds(build_timeout_seconds=1.0))
    with pytest.raises(RunRefused, match=r"not built after 1 s \(build_timeout_seconds\)"):
        made("sleep 50", settings)


def test_more_than_a_module_may_have_is_not_taken() -> None:
    settings = hosts()._replace(limits=bounds(max_wasm_bytes=1000))
    with pytest.raises(RunRefused, match="max_wasm_bytes"):
        made('head -c 2000 /dev/zero > "$1/made.wasm"', settings)
