"""The command lines that the WASM sandbox accepts, and the programs they mean."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.wasm.command import NotRunnable, parse_command


@pytest.mark.parametrize(
    ("argv", "kind", "given"),
    [
        (("a.wasm", "x"), "module", ("a.wasm", "x")),
        (("/skill/wasm/a.wasm",), "module", ("/skill/wasm/a.wasm",)),
        (("python3", "s.py", "-c"), "python", ("python3", "s.py", "-c")),
        (("python", "-c", "code", "a"), "python", ("python", "-c", "code", "a")),
        (("/usr/bin/python3.11", "-I", "-c", "x"), "python", ("/usr/bin/python3.11", "-c", "x")),
        (("python3", "-IBu", "-X", "utf8", "-Wdefault", "s.py"), "python", ("python3", "s.py")),
        (("python3", "-Ic", "code"), "python", ("python3", "-c", "code")),
        (("python3", "-m", "json.tool"), "python", ("python3", "-m", "json.tool")),
        (("python3", "-u", "-"), "python", ("python3", "-")),
        (("python3",), "python", ("python3", "-")),
        (("uv", "run", "-q", "--script", "s.py", "x"), "python", ("python", "s.py", "x")),
        (("uv", "run", "python3", "-m", "json.tool"), "python", ("python3", "-m", "json.tool")),
        (("node", "a.ts", "x"), "javascript", ("node", "a.ts", "x")),
        (("node", "-e", "1"), "javascript", ("node", "-e", "1")),
        (("bash", "-c", "python3 s.py 'a b'"), "python", ("python3", "s.py", "a b")),
        (("sh", "-c", "  ./a.wasm x  "), "module", ("./a.wasm", "x")),
        (("sh", "-c", "sh -c 'node a.js'"), "javascript", ("node", "a.js")),
    ],
)
def test_what_is_run(argv: tuple[str, ...], kind: str, given: tuple[str, ...]) -> None:
    program = parse_command(argv)
    assert (program.kind, program.argv) == (kind, given)


@pytest.mark.parametrize(
    "argv",
    [
        ("ls",),
        ("",),
        ("pythonic", "x.py"),
        ("python2", "x.py"),
        ("uv", "run"),
        ("uv", "pip", "list"),
        ("uv", "run", "--with", "x", "s.py"),
        ("python3", "--help"),
        ("python3", "-i", "x.py"),
        ("node",),
        ("node", "x.txt"),
        ("node", "-p", "1"),
        ("sh",),
        ("sh", "x.sh"),
        ("sh", "-c", ""),
        ("sh", "-xc", "python3 x.py"),
        ("bash", "-c", "python3 x.py; rm y"),
        ("bash", "-c", "python3 x.py | cat"),
        ("bash", "-c", "python3 $HOME/x.py"),
        ("bash", "-c", "python3 `x`"),
        ("bash", "-c", "A=1 python3 x.py"),
        ("bash", "-c", "python3 *.py"),
        ("bash", "-c", "python3 x.py > out"),
        ("bash", "-c", "python3 'x.py"),
        ("bash", "-c", "python3 x.py\nls"),
        ("bash", "-c", "ls"),
    ],
)
def test_what_is_not(argv: tuple[str, ...]) -> None:
    with pytest.raises(NotRunnable, match="the sandbox 'wasm' runs WASM modules") as caught:
        parse_command(argv)
    assert "\n" not in str(caught.value)


def test_a_long_word_is_cut_and_has_no_line_of_its_own() -> None:
    with pytest.raises(NotRunnable) as caught:
        parse_command(("x\n\x1b" * 10000,))
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
