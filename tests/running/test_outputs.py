from __future__ import annotations

import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.artifacts.conformance import KEY
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.running.outputs import (
    HINT,
    Collected,
    OutputFile,
    Wanted,
    collect,
    parse_output_files,
    parse_outputs,
    primary,
)
from skillbelt.values import Limits
from tests import needs, warm
from tests.bounds import bounds
from tests.examples import examples
from tests.handles import no_handle_left
from tests.outputs import ALL, PNG, names, saving, sh
from tests.tree import Tree

# What is found


@pytest.mark.parametrize("glob", ["out/*.txt", "$OUTPUT_DIR/*.txt", "${OUTPUT_DIR}/*.txt"])
def test_a_file_is_found_by_its_pattern(workspace: Path, glob: str) -> None:
    """Case 56. Case 57."""
    sh(workspace, "echo hi > out/a.txt")
    found = collect(str(workspace), parse_output_files([glob]))
    ref = "workspace://out/a.txt"
    assert found.files == (
        OutputFile(
            name="out/a.txt",
            ref=ref,
            content="hi\n",
            mime_type="text/plain",
            size_bytes=3,
            truncated=False,
        ),
    )
    assert found.warnings == (HINT,)
    assert (found.limits_hit, found.errors, found.saved) == ((), (), ())


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("$WORK_DIR/*", "work/w"),
        ("${WORK_DIR}/w", "work/w"),
        ("$SKILLS_DIR/x/*", "skills/x/s"),
        ("$WORKSPACE_DIR/out/*", "out/o"),
        ("$RUN_DIR/*", "runs/1/r"),
        ("./out/*", "out/o"),
        ("skills/x/out/*", "out/o"),
    ],
)
def test_variables_stand_for_folders_of_the_workspace(
    workspace: Path, glob: str, name: str
) -> None:
    sh(workspace, "mkdir skills/x; ln -s ../../out skills/x/out")
    sh(workspace, "for f in out/o work/w skills/x/s runs/1/r; do echo 1 > $f; done")
    assert names(collect(str(workspace), Wanted((glob,)), run="runs/1")) == [name]


def test_files_come_sorted_and_once(workspace: Path) -> None:
    sh(workspace, "mkdir out/b out/é; touch out/b/2 out/c out/a out/b/1 out/é/x out/B")
    wanted = Wanted(("out/**", "out/*", "out/c", "$OUTPUT_DIR/**", "out/b/*"))
    assert names(collect(str(workspace), wanted)) == [
        "out/B", "out/a", "out/b/1", "out/b/2", "out/c", "out/é/x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("../*", "leads out"),
        ("out/../../*", "leads out"),
        ("{..,out}/secret", "leads out"),
        ("/etc/passwd", "absolute"),
        ("$OUTPUT_DIR/../../*", "leads out"),
        ("file:///etc/passwd", "is a URI"),
        ("{a,b}" * 20, "alternatives"),
        ("out/missing-*", "no file matches"),
        ("$OUTPUT_DIR", "no file matches"),
        ("$WORKSPACE_DIR", "no file matches"),
        ("$HOME/*", "no file matches"),
    ],
)
def test_a_pattern_that_finds_nothing_says_why(tmp_path: Path, glob: str, why: str) -> None:
    """Case 78: nothing outside is collected, however it is asked for."""
    workspace = tmp_path / "session"
    (workspace / "out").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    found = collect(str(workspace), Wanted((glob,), inline=True))
    assert found.files == ()
    [warning] = found.warnings
    assert why in warning


def test_what_the_runtime_keeps_there_is_not_collected(workspace: Path) -> None:
    sh(workspace, "touch private/x out/private out/metadata.json")
    found = collect(str(workspace), Wanted(("**", "*", "private/*", "metadata.json")))
    assert names(found) == ["out/metadata.json", "out/private"]


def test_a_link_is_never_followed(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Case 78: links to files and folders, inside and outside."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("secret")
    sh(workspace, "mkdir work/d; echo inside > work/d/in.txt")
    for name, target in (
        ("file", outside / "secret.txt"),
        ("folder", outside),
        ("inner", workspace / "work/d/in.txt"),
        ("inner-folder", workspace / "work/d"),
        ("self", workspace / "out"),
        ("fd", Path("/proc/self/fd/0")),
    ):
        (workspace / "out" / name).symlink_to(target)
    found = collect(str(workspace), Wanted(("out/**", "out/*/secret.txt", "out/*/in.txt"), True))
    assert found.files == ()
    assert len([one for one in found.warnings if "is a link" in one]) == 6
    assert primary(str(workspace)) is None


def test_a_linked_out_folder_is_not_followed(workspace: Path) -> None:
    (workspace / "out").rmdir()
    (workspace / "out").symlink_to("/etc")
    assert collect(str(workspace), Wanted(("out/passwd", "out/**"))).files == ()


def test_only_regular_files_are_opened(workspace: Path) -> None:
    os.mkfifo(workspace / "out/fifo.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace / "out/socket.txt"))
    if os.getuid() == 0:
        os.mknod(workspace / "out/zero.txt", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    sh(workspace, "echo x > out/real.txt; ln out/real.txt out/hard.txt; mkdir out/dir.txt")
    found = collect(str(workspace), ALL)
    assert names(found) == ["out/hard.txt", "out/real.txt"]
    special = [one for one in found.warnings if "neither a file nor a folder" in one]
    assert len(special) == (3 if os.getuid() == 0 else 2)


@pytest.mark.parametrize("name", [b"\xff.txt", b"a\nb.txt", b"\x1b[2J", b"\x7f"])
def test_a_name_that_is_not_plain_text_is_left_out(workspace: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(workspace) + b"/out/" + name)).write_text("x")
    (workspace / "out/ok.txt").write_text("x")
    found = collect(str(workspace), ALL)
    assert names(found) == ["out/ok.txt"]
    assert "its name is not plain text" in found.warnings[0]
    assert found.warnings[0].isprintable()


@settings(max_examples=examples(100))
@given(st.sets(st.text(max_size=12), max_size=5))
def test_any_name_is_collected_or_told(given: set[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        out.mkdir()
        made = set()
        for name in given:
            try:
                (out / name).write_text("x")
            except (OSError, ValueError):
                continue
            made.add(name)
        made = set(os.listdir(out))
        found = collect(folder, Wanted(("out/*", "out/.*"), inline=True))
        told = [one for one in found.warnings if "its name is not plain text" in one]
        assert {file.name.removeprefix("out/") for file in found.files} <= made
        assert len(found.files) + len(told) == len(made)
        for file in found.files:
            assert file.ref.encode()
            # A name may say that the file is something else than text.
            if file.mime_type.startswith("text/"):
                assert file.content == "x"


def test_a_missing_workspace_is_told(tmp_path: Path) -> None:
    found = collect(str(tmp_path / "gone"), ALL)
    assert found == Collected(warnings=("the workspace cannot be read: No such file or directory",))
    assert primary(str(tmp_path / "gone")) is None


def test_unreadable_files_and_folders_are_told(open_tree: Tree) -> None:
    open_tree.write("out/no.txt", "x").chmod(0)
    open_tree.write("out/yes.txt", "x")
    open_tree.write("out/closed/a.txt", "x").parent.chmod(0)
    code = (
        "from skillbelt.running.outputs import Wanted, collect\n"
        "import os, sys\n"
        "collect(sys.argv[1], Wanted(('out/*',), True))\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "found = collect(sys.argv[1], Wanted(('out/**',), True))\n"
        "print([file.name for file in found.files], *found.warnings[:2], sep='\\n')\n"
    )
    done = open_tree.python("-c", code, str(open_tree.root))
    assert done.stderr == ""
    listed, *warnings = done.stdout.splitlines()
    assert listed == "['out/yes.txt']"
    assert sorted(warnings) == [
        "'out/closed/' cannot be read: Permission denied",
        "'out/no.txt' cannot be read: Permission denied",
    ]


@needs.root
def test_root_collects_what_belongs_to_another_user(workspace: Path) -> None:
    sh(workspace, "echo x > out/a.txt; chmod 0 out/a.txt; chown -R 12345 out; chmod 0 out")
    assert names(collect(str(workspace), ALL)) == ["out/a.txt"]


def test_very_deep_folders_do_not_hang(workspace: Path) -> None:
    here = os.open(workspace / "out", os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("bottom.txt", os.O_CREAT, dir_fd=here))
    os.close(here)
    found = collect(str(workspace), Wanted(("out/**", "**/bottom.txt")))
    assert found.files == ()
    assert any("too deep" in one for one in found.warnings)
    sh(workspace, "rm -rf out")


def test_very_many_files_do_not_hang(workspace: Path) -> None:
    for number in range(300):
        (workspace / "out" / f"{number:03}").touch()
    found = collect(str(workspace), ALL, Limits(max_workspace_files=200))
    assert len(found.files) == 100
    assert found.limits_hit == ("max_workspace_files", "max_output_files")
    assert found.warnings[0] == "there is too much to look through; not all files were found"


@pytest.mark.long
def test_hostile_patterns_do_not_hang(workspace: Path) -> None:
    for number in range(2000):
        (workspace / "out" / f"{number:04}{'a' * 250}").touch()
    hostile = tuple(f"out/*{'?' * (100 + number)}b" for number in range(100))
    found = collect(str(workspace), Wanted(hostile))
    assert found.files == ()
    assert found.warnings == ("there is too much to look through; not all files were found",)


def test_warnings_are_bounded(workspace: Path) -> None:
    for number in range(1000):
        (workspace / "out" / str(number)).symlink_to("/etc/passwd")
    found = collect(str(workspace), ALL)
    assert len(found.warnings) == 21
    assert found.warnings[-1] == "and 981 more of the kind"


# What is read


@pytest.mark.parametrize(
    ("name", "data", "mime", "content"),
    [
        ("a.txt", "é\r\n日本".encode(), "text/plain", "é\r\n日本"),
        ("a.png", PNG, "image/png", ""),
        ("lies.txt", PNG, "image/png", ""),
        ("nul.txt", b"a\0b", "text/plain", ""),
        ("latin.txt", b"caf\xe9", "text/plain", ""),
        ("late.csv", b"a" * 5000 + b"\0", "text/csv", ""),
        ("a.json", b"{}", "application/json", "{}"),
        ("a.yaml", b"a: 1", "application/yaml", "a: 1"),
        ("a.svg", b"<svg/>", "image/svg+xml", "<svg/>"),
        ("a.md", b"# A", "text/markdown", "# A"),
        ("a.zip", b"PK\x03\x04x", "application/zip", ""),
        ("noending", b"words", "text/plain", "words"),
        ("binary", b"\0\1", "application/octet-stream", ""),
        ("empty.txt", b"", "text/plain", ""),
    ],
)
def test_content_is_given_for_text_alone(
    workspace: Path, name: str, data: bytes, mime: str, content: str
) -> None:
    """Case 60."""
    (workspace / "out" / name).write_bytes(data)
    [file] = collect(str(workspace), ALL).files
    ref = f"workspace://out/{name}"
    assert file == (f"out/{name}", ref, content, mime, len(data), False)


def test_omitted_content_leaves_the_rest(workspace: Path) -> None:
    """Case 60."""
    sh(workspace, "echo hi > out/a.txt")
    found = collect(str(workspace), ALL, omit_content=True)
    expected = OutputFile(
        name="out/a.txt",
        ref="workspace://out/a.txt",
        content="",
        mime_type="text/plain",
        size_bytes=3,
    )
    assert found.files == (expected,)
    assert found.primary == expected
    assert primary(str(workspace), omit_content=True) == expected


def test_content_is_given_only_when_inline_is_wanted(workspace: Path) -> None:
    sh(workspace, "echo hi > out/a.txt")
    found = collect(str(workspace), parse_outputs({"globs": ["out/*"]}))
    assert [file.content for file in found.files] == [""]
    found = collect(str(workspace), parse_outputs({"globs": ["out/*"], "inline": True}))
    assert [file.content for file in found.files] == ["hi\n"]


def test_a_redirection_of_a_failed_command_is_left_out(workspace: Path) -> None:
    """Case 62."""
    code = sh(workspace, "echo kept > out/kept.txt; false > out/empty.txt")
    assert code == 1
    found = collect(str(workspace), ALL, exit_code=code)
    assert names(found) == ["out/kept.txt"]
    assert "'out/empty.txt' is left out: it is empty, and the command failed" in found.warnings
    assert names(collect(str(workspace), ALL, exit_code=0)) == ["out/empty.txt", "out/kept.txt"]


# Limits


def test_no_more_than_so_many_files(workspace: Path) -> None:
    """Case 79."""
    sh(workspace, "echo 1 > out/a; echo 2 > out/b")
    found = collect(str(workspace), Wanted(("out/*",), max_files=1))
    assert names(found) == ["out/a"]
    assert found.limits_hit == ("max_output_files",)
    assert "left out: 'out/b' (max_output_files)" in found.warnings
    assert collect(str(workspace), Wanted(("out/*",), max_files=2)).limits_hit == ()


def test_what_is_left_out_for_the_limit_of_all_is_counted(workspace: Path) -> None:
    sh(workspace, "for name in a b c d; do echo 1 > out/$name; done")
    found = collect(str(workspace), Wanted(("out/*",), max_total_bytes=2))
    assert (names(found), found.limits_hit) == (["out/a"], ("max_output_bytes",))
    assert "left out: 'out/b' and 2 more (max_output_bytes)" in found.warnings


def test_a_file_beyond_the_limit_is_cut_between_characters(workspace: Path) -> None:
    """Case 79."""
    (workspace / "out/a.txt").write_text("aéé")
    found = collect(str(workspace), ALL._replace(max_file_bytes=4))
    [file] = found.files
    assert (file.content, file.size_bytes, file.truncated) == ("aé", 5, True)
    assert found.limits_hit == ("max_output_file_bytes",)
    [file] = collect(str(workspace), ALL._replace(max_file_bytes=5)).files
    assert (file.content, file.truncated) == ("aéé", False)


@pytest.mark.parametrize("inline", [True, False])
def test_the_bytes_of_all_files_are_bounded(workspace: Path, inline: bool) -> None:
    for name in "abc":
        (workspace / "out" / name).write_text("x" * 40_000)
    wanted = Wanted(("out/*",), inline, max_total_bytes=60_000)
    found = collect(str(workspace), wanted)
    assert [(file.size_bytes, file.truncated) for file in found.files] == [
        (40_000, False),
        (40_000, True),
    ]
    assert [len(file.content) for file in found.files] == ([40_000, 20_000] if inline else [0, 0])
    assert found.limits_hit == ("max_output_bytes",)


def test_a_call_can_raise_limits_up_to_the_settings(workspace: Path) -> None:
    for name in "abcd":
        (workspace / "out" / name).write_text("xxxx")
    limits = bounds(max_output_files=2, max_output_file_bytes=3, max_workspace_files=100)
    few = collect(str(workspace), Wanted(("out/*",), True, max_file_bytes=99), limits)
    assert [file.content for file in few.files] == ["xxx", "xxx"]
    assert (
        "max_file_bytes was lowered from 99 to 3, the maximum: max_output_file_bytes of the "
        "settings"
    ) in few.warnings
    more = collect(str(workspace), Wanted(("out/*",), True, max_files=3), limits)
    assert names(more) == ["out/a", "out/b", "out/c"]
    most = collect(str(workspace), Wanted(("out/*",), max_files=101), limits)
    assert "max_files was lowered from 101 to 100" in most.warnings[0]


def test_the_text_in_one_result_is_bounded_whatever_the_call_asks_for(workspace: Path) -> None:
    for name in "abc":
        (workspace / "out" / name).write_text("x" * 40)
    limits = bounds(max_output_bytes=100)
    found = collect(str(workspace), Wanted(("out/*",), True, max_total_bytes=1000), limits)
    assert [len(file.content) for file in found.files] == [40, 40, 0]
    assert found.limits_hit == ("max_output_bytes",)
    assert "the text of 'out/c' is left out" in found.warnings[0]


def test_a_huge_file_is_not_read_whole(workspace: Path) -> None:
    with open(workspace / "out/huge.txt", "wb") as file:
        file.truncate(2**40)
    [found] = collect(str(workspace), ALL).files
    assert (found.size_bytes, found.truncated) == (2**40, True)


@contextmanager
def meanwhile(code: str, workspace: Path) -> Iterator[None]:
    """Code that runs over and over in another process."""
    program = f"import os, sys\nos.chdir(sys.argv[1])\nwhile True:\n{code}"
    with warm.Popen[bytes]([sys.executable, "-c", program, str(workspace)]) as process:
        try:
            time.sleep(0.2)
            yield
            assert process.poll() is None, "it should still be at work"
        finally:
            process.kill()


def test_a_file_that_grows_never_breaks_a_limit(workspace: Path) -> None:
    grow = (
        " with open('out/a.txt', 'ab') as file:\n"
        "  file.write(b'x' * 1000)\n"
        "  if file.tell() > 50_000: os.unlink('out/a.txt')\n"
    )
    store = MemoryArtifacts()
    wanted = ALL._replace(max_file_bytes=20_000, save=True)
    with meanwhile(grow, workspace):
        for _ in range(300):
            for file in collect(str(workspace), wanted, save=saving(store)).files:
                assert len(file.content) <= 20_000
                assert file.truncated == (file.size_bytes > 20_000)
                assert file.truncated or len(file.content) == file.size_bytes
    assert all(one.size <= 20_000 for one in store.versions(KEY, "out/a.txt"))


def test_a_file_that_is_swapped_never_leads_out(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.txt").write_text("secret")
    swap = (
        f" secret = {str(outside)!r}\n"
        " for make in (lambda: os.mkdir('out/d'), lambda: os.symlink(secret, 'out/d')):\n"
        "  make()\n"
        "  if not os.path.islink('out/d'):\n"
        "   open('out/d/a.txt', 'w').write('fine')\n"
        "   os.unlink('out/d/a.txt'); os.mkfifo('out/d/a.txt')\n"
        "   os.unlink('out/d/a.txt'); os.symlink(secret + '/a.txt', 'out/d/a.txt')\n"
        "   os.unlink('out/d/a.txt'); os.rmdir('out/d')\n"
        "  else: os.unlink('out/d')\n"
    )
    with meanwhile(swap, workspace):
        for _ in range(1000):
            found = collect(str(workspace), Wanted(("out/**", "out/d/a.txt"), inline=True))
            assert {file.content for file in found.files} <= {"fine", ""}


@pytest.mark.parametrize(
    ("swap", "why"),
    [
        ("mkfifo out/b", "it is not a file any more"),
        ("ln -s ../work/other out/b", "it is a link"),
        ("ln -s /etc/passwd out/b", "it is a link"),
        ("mkdir out/b", "it is not a file any more"),
        ("true", "No such file or directory"),
    ],
)
def test_what_takes_the_place_of_a_file_that_was_found_is_not_read(
    workspace: Path, swap: str, why: str
) -> None:
    sh(workspace, "echo 1 > out/a; echo 2 > out/b; echo other > work/other")

    def save(name: str, data: bytes, mime: str) -> int:
        assert data == b"1\n"
        return sh(workspace, f"rm out/b; {swap}")

    found = collect(str(workspace), ALL._replace(save=True), save=save)
    assert names(found) == ["out/a"]
    [warning] = found.warnings
    assert why in warning


def test_collecting_leaves_no_descriptor_open(workspace: Path) -> None:
    sh(workspace, "mkdir out/d; echo x > out/a; echo y > out/d/b; mkfifo out/f; ln -s /etc out/l")
    collect(str(workspace), ALL)
    with no_handle_left():
        for _ in range(20):
            collect(str(workspace), ALL, Limits(max_workspace_files=2))
            collect(str(workspace), ALL)
