from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.artifacts import Artifact, ArtifactStore, open_artifacts
from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.cli.output import CLI_SESSION
from skillbelt.store import SessionKey
from tests import warm
from tests.terminal import on_terminal
from tests.tree import Tree

OWN = SessionKey(*CLI_SESSION)
OTHER = SessionKey("desk", "a/da", "chat 1")
OTHER_ID = "desk/a%2Fda/chat%201"
BINARY = bytes(range(256))
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def store(tree: Tree) -> ArtifactStore:
    tree.setenv("XDG_STATE_HOME", tree.home / "state")
    return open_artifacts(tree.settings())


@pytest.fixture
def kept(store: ArtifactStore) -> list[Artifact]:
    """Three versions of two artifacts of the command line's own session."""
    return [
        store.save(OWN, "report.md", b"# Draft\n", "text/markdown"),
        store.save(OWN, "report.md", "# Bericht für 李\n".encode(), "text/markdown"),
        store.save(OWN, "plot.png", BINARY, "image/png"),
    ]


def raw(tree: Tree, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command, with its output as it is."""
    return warm.run(
        [sys.executable, "-m", "skillbelt", "artifacts", *arguments],
        cwd=tree.project,
        capture_output=True,
        timeout=500,
        check=False,
    )


def test_list_has_the_newest_version_of_each(tree: Tree, kept: list[Artifact]) -> None:
    done = tree.run("artifacts", "list")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert re.fullmatch(rf"plot\.png\t0\t256\t{TIME}\timage/png", first)
    assert re.fullmatch(rf"report\.md\t1\t19\t{TIME}\ttext/markdown", second)


def test_without_an_action_they_are_listed(tree: Tree, kept: list[Artifact]) -> None:
    assert tree.run("artifacts") == tree.run("artifacts", "list")


def test_list_as_json(tree: Tree, kept: list[Artifact]) -> None:
    document = tree.run("artifacts", "list", "--json").document
    assert document == {"artifacts": [kept[2]._asdict(), kept[1]._asdict()]}
    assert document["artifacts"][0].keys() == {
        "name", "version", "size", "sha256", "mime", "time",
    }  # fmt: skip


def test_list_of_a_name_has_every_version(tree: Tree, kept: list[Artifact]) -> None:
    document = tree.run("artifacts", "list", "report.md", "--json").document
    assert document == {"artifacts": [kept[0]._asdict(), kept[1]._asdict()]}
    document = tree.run("artifacts", "list", "report.md@0", "--json").document
    assert document == {"artifacts": [kept[0]._asdict()]}


def test_list_of_nothing_makes_nothing(tree: Tree, store: ArtifactStore) -> None:
    assert tree.run("artifacts", "list") == (0, "", "no artifacts in skillbelt/cli/default\n")
    assert tree.run("artifacts", "list", "-q") == (0, "", "")
    assert tree.run("artifacts", "list", "--json").document == {"artifacts": []}
    assert not tree.path("home/state").exists()


def test_list_on_a_terminal(tree: Tree, kept: list[Artifact]) -> None:
    head, first, _ = on_terminal(tree, "artifacts", "list").lines
    assert head.split() == ["artifact", "version", "size", "saved", "type"]
    assert first.startswith("plot.png")


def test_another_session_has_its_own(tree: Tree, store: ArtifactStore) -> None:
    store.save(OTHER, "theirs", b"x")
    store.save(OTHER._replace(session="chat-2"), "user:shared", b"y")
    assert tree.run("artifacts", "list").stdout == ""
    done = tree.run("artifacts", "list", "--session", OTHER_ID)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [
        "theirs",
        "user:shared",
    ]
    assert tree.run("artifacts", "get", "theirs", "--session", OTHER_ID).stdout == "x"


def test_get_gives_the_very_bytes(tree: Tree, kept: list[Artifact]) -> None:
    assert raw(tree, "get", "plot.png").stdout == BINARY
    assert raw(tree, "get", "report.md").stdout.decode() == "# Bericht für 李\n"
    assert raw(tree, "get", "report.md@0").stdout == b"# Draft\n"
    assert raw(tree, "get", "artifact://report.md@0").stdout == b"# Draft\n"


def test_get_into_a_file(tree: Tree, kept: list[Artifact]) -> None:
    done = tree.run("artifacts", "get", "plot.png", "--output", "here.png")
    assert done == (0, "", "")
    assert tree.path("project/here.png").read_bytes() == BINARY


def test_get_as_json_tells_what_it_is(tree: Tree, kept: list[Artifact]) -> None:
    done = tree.run("artifacts", "get", "plot.png", "--json")
    assert done.document == kept[2]._asdict()
    done = tree.run("artifacts", "get", "plot.png", "--json", "--output", "here.png")
    assert done.document["sha256"] == hashlib.sha256(BINARY).hexdigest()
    assert tree.path("project/here.png").read_bytes() == BINARY


def test_a_name_with_a_sign_in_it(tree: Tree, store: ArtifactStore) -> None:
    store.save(OWN, "a@b.txt", b"mail")
    assert tree.run("artifacts", "get", "a@b.txt").stdout == "mail"
    assert tree.run("artifacts", "get", "a@b.txt@0").stdout == "mail"


def test_text_is_shown_on_a_terminal_and_can_not_play_with_it(
    tree: Tree, store: ArtifactStore
) -> None:
    store.save(OWN, "evil", "Fine\x1b[2J \u202eevil\nnext\n".encode())
    screen = on_terminal(tree, "artifacts", "get", "evil")
    assert screen.exit_code == 0
    assert "\x1b[2J" not in screen.written
    assert "\u202e" not in screen.written
    assert screen.lines[-1] == "next"


@pytest.mark.parametrize("data", [BINARY, b"a\0b"])
def test_what_is_not_text_is_not_printed_on_a_terminal(
    tree: Tree, store: ArtifactStore, data: bytes
) -> None:
    store.save(OWN, "plot.png", data, "image/png")
    screen = on_terminal(tree, "artifacts", "get", "plot.png", columns=200)
    assert screen.exit_code == 1
    assert screen.lines == [
        f"skillbelt: 'plot.png' is not text (image/png, {len(data)} bytes); "
        "write it to a file with --output FILE"
    ]


def test_what_is_not_there_is_answered_with_the_closest(tree: Tree, kept: list[Artifact]) -> None:
    for action in ("get", "list"):
        done = tree.run("artifacts", action, "report.mb")
        assert (done.exit_code, done.stdout) == (1, "")
        reason = "skillbelt: there is no artifact 'report.mb'; closest: report.md\n"
        assert done.stderr == reason
    assert "; session skillbelt/cli/default has 2 others\n" in raw_error(tree, "xyzzy")
    missing = "'report.md' in version 7; there is version 0, 1\n"
    assert missing in raw_error(tree, "report.md@7")


def raw_error(tree: Tree, name: str) -> str:
    done = tree.run("artifacts", "get", name)
    assert (done.exit_code, done.stdout) == (1, "")
    return done.stderr


def test_what_was_damaged_is_not_given(tree: Tree, kept: list[Artifact]) -> None:
    damaged = 0
    for folder, _, files in os.walk(tree.path("home/state")):
        for path in (os.path.join(folder, name) for name in files):
            with open(path, "rb") as file:
                same = file.read() == BINARY
            if same:
                os.chmod(path, 0o600)
                with open(path, "wb") as file:
                    file.write(BINARY[::-1])
                damaged += 1
    assert damaged
    done = raw(tree, "get", "plot.png")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"damaged" in done.stderr


def test_without_a_store_that_is_told(tree: Tree, store: ArtifactStore) -> None:
    tree.setenv("SKILLBELT_ARTIFACTS_URL", "none")
    done = tree.run("artifacts", "list")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "artifacts_url" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["get"], ["list", "--output", "x"], ["list", "--session", "a/b"], ["forget", "x"],
     ["get", "x", "--session", "a/b/%ff"]],
)  # fmt: skip
def test_wrong_usage(tree: Tree, kept: list[Artifact], arguments: list[str]) -> None:
    done = tree.run("artifacts", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_name_that_no_artifact_can_have(tree: Tree, store: ArtifactStore) -> None:
    done = tree.run("artifacts", "get", "a\x1bb")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cannot name an artifact" in done.stderr


def test_a_damaged_record_is_named_and_the_rest_is_listed(
    tree: Tree, store: ArtifactStore, kept: list[Artifact]
) -> None:
    assert isinstance(store, DiskArtifacts)
    [record] = Path(store.folder).glob("kept/*/*/1.json")  # the newest report.md
    record.write_bytes(b"")
    done = tree.run("artifacts", "list")
    assert done.exit_code == 1
    listed = [tuple(line.split("\t")[:2]) for line in done.stdout.splitlines()]
    assert listed == [("plot.png", "0"), ("report.md", "0")]
    assert f"{record}: the record of an artifact was damaged" in done.stderr
    wanted = tree.run("artifacts", "get", "report.md")
    assert wanted.exit_code == 1
    assert f"{record}: the record" in wanted.stderr
    assert store.delete(OWN, "report.md")
    assert tree.run("artifacts", "list").exit_code == 0


def test_an_artifact_whose_name_ends_like_a_version_is_deleted(
    tree: Tree, store: ArtifactStore
) -> None:
    for name in ("a", "a@0"):
        store.save(OWN, name, b"x", "text/plain")
    assert tree.run("artifacts", "delete", "a@0").stderr == "deleted a@0\n"
    assert tree.run("artifacts", "delete", "a").exit_code == 0


def test_delete_removes_every_version(
    tree: Tree, store: ArtifactStore, kept: list[Artifact]
) -> None:
    done = tree.run("artifacts", "delete", "report.md")
    assert done == (0, "", "deleted report.md\n")
    assert [one.name for one in store.latest(OWN)] == ["plot.png"]
    assert tree.run("artifacts", "delete", "report.md").exit_code == 1
    assert tree.run("artifacts", "delete", "plot.png@0").exit_code == 2
    assert tree.run("artifacts", "delete").exit_code == 2
    done = tree.run("artifacts", "delete", "plot.png", "--json")
    assert done.document == {"deleted": "plot.png"}
