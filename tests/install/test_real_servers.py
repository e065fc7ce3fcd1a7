"""Sources on servers that others wrote: an OCI registry and an ssh server, both from Debian."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import needs
from tests.install.repositories import BareRepository, skill_text
from tests.install.repositories import Tree as Files
from tests.tree import Tree

pytestmark = needs.linux
SSHD = "/usr/sbin/sshd"
_GUARD_SECONDS = 500.0
_TREE: Files = {"SKILL.md": skill_text("alpha"), "scripts": {"run.sh": ("100755", "echo one\n")}}


def _free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def serving(words: list[str], port: int) -> Iterator[None]:
    """Run a server until the end of the block; begin when it accepts connections."""
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + _GUARD_SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 5).close()
                    break
                except OSError:
                    assert process.poll() is None, f"{words[0]} ended"
                    assert time.monotonic() < end, f"{words[0]} does not answer"
                    time.sleep(0.02)
            yield
        finally:
            process.terminate()


# --- a registry ----------------------------------------------------------------------------------


@pytest.fixture
def registry(tree: Tree) -> Iterator[str]:
    """The address of a registry that has nothing yet."""
    port = _free_port()
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tree.root / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    written = tree.write("registry.yml", json.dumps(config))
    with serving(["docker-registry", "serve", str(written)], port):
        yield f"127.0.0.1:{port}"


def _send(method: str, url: str, data: bytes, kind: str = "application/octet-stream") -> str:
    request = urllib.request.Request(url, data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=_GUARD_SECONDS) as answer:
        return str(answer.headers.get("Location", ""))


def push(layout: Path, host: str, name: str, tag: str) -> str:
    """Push what `skillbelt pack --format oci-layout` wrote; return the digest of its manifest."""
    (listed,) = json.loads((layout / "index.json").read_text())["manifests"]
    blobs = layout / "blobs" / "sha256"
    manifest = (blobs / listed["digest"].removeprefix("sha256:")).read_bytes()
    for blob in blobs.iterdir():
        data = blob.read_bytes()
        if data != manifest:
            place = _send("POST", f"http://{host}/v2/{name}/blobs/uploads/", b"")
            sign = "&" if "?" in place else "?"
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            _send("PUT", f"{place}{sign}digest={digest}", data)
    _send("PUT", f"http://{host}/v2/{name}/manifests/{tag}", manifest, listed["mediaType"])
    return str(listed["digest"])


def _pack(tree: Tree, word: str) -> Path:
    folder = tree.path(f"made-{word}/alpha")
    tree.write(folder / "SKILL.md", skill_text("alpha", word))
    made = tree.path(f"layout-{word}")
    done = tree.run("pack", str(folder), "--format", "oci-layout", "--output", str(made))
    assert done.exit_code == 0, done.stderr
    return made


@needs.docker_registry
def test_a_registry_has_what_was_packed_and_the_lock_outlives_a_moved_tag(
    tree: Tree, registry: str
) -> None:
    digest = push(_pack(tree, "one"), registry, "team/alpha", "v1")
    done = tree.run("add", f"oci://{registry}/team/alpha:v1", "--yes")
    assert done.exit_code == 0, done.stderr
    entry = json.loads((tree.project / "skills-lock.json").read_text())["skills"]["alpha"]
    assert entry["provenance"]["digest"] == digest
    push(_pack(tree, "two"), registry, "team/alpha", "v1")
    installed = tree.project / ".agents/skills/alpha/SKILL.md"
    shutil.rmtree(installed.parent)
    shutil.rmtree(tree.settings().cache_dir, ignore_errors=True)
    assert tree.run("sync", "--frozen", "--yes").exit_code == 0
    assert installed.read_text() == skill_text("alpha", "one")
    assert tree.run("update", "--yes").exit_code == 0
    assert installed.read_text() == skill_text("alpha", "two")


@needs.docker_registry
def test_a_registry_without_the_name_is_an_error_that_says_so(tree: Tree, registry: str) -> None:
    done = tree.run("add", f"oci://{registry}/team/none:v1", "--yes")
    assert done.exit_code != 0
    assert "404" in done.stderr or "has no" in done.stderr


# --- ssh -----------------------------------------------------------------------------------------


class SshServer:
    """A server that lets the key of the tests in, as the user who runs them."""

    def __init__(self, tree: Tree) -> None:
        self.folder = tree.path("ssh")
        self.folder.mkdir(mode=0o700)
        for name in ("host", "mine"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(words, check=True)
        self.port = _free_port()
        self.user = getpass.getuser()
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.folder}/host\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/mine.pub\nPidFile none\nStrictModes no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it is started by root

    def use(self, tree: Tree, *, known: bool) -> None:
        """Let git log in with the key of the tests; `known` says whether it knows the server."""
        host = " ".join((self.folder / "host.pub").read_text().split()[:2])
        hosts = tree.write("ssh/known", f"[127.0.0.1]:{self.port} {host}\n" if known else "")
        words = ["ssh", "-F", "/dev/null", "-oBatchMode=yes", "-i", str(self.folder / "mine"),
                 "-oIdentitiesOnly=yes", f"-oUserKnownHostsFile={hosts}",
                 "-oGlobalKnownHostsFile=/dev/null"]  # fmt: skip
        tree.setenv("GIT_SSH_COMMAND", shlex.join(words))

    def url(self, repository: BareRepository) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{repository.folder}"


@pytest.fixture
def ssh(tree: Tree) -> Iterator[SshServer]:
    server = SshServer(tree)
    with serving([SSHD, "-D", "-e", "-f", str(server.folder / "sshd_config")], server.port):
        yield server


@needs.sshd
def test_a_repository_behind_ssh_is_added_and_restored(tree: Tree, ssh: SshServer) -> None:
    repository = BareRepository(tree.root / "team/source.git")
    commit = repository.commit({"skills": {"alpha": _TREE}})
    ssh.use(tree, known=True)
    done = tree.run("add", ssh.url(repository), "--all", "--yes")
    assert done.exit_code == 0, done.stderr
    entry = json.loads((tree.project / "skills-lock.json").read_text())["skills"]["alpha"]
    assert entry["commit"] == commit
    repository.commit({"skills": {"alpha": {**_TREE, "more.md": "x\n"}}}, parent=commit)
    shutil.rmtree(tree.project / ".agents")
    shutil.rmtree(tree.settings().cache_dir, ignore_errors=True)
    assert tree.run("sync", "--frozen", "--yes").exit_code == 0
    assert not (tree.project / ".agents/skills/alpha/more.md").exists()
    assert os.access(tree.project / ".agents/skills/alpha/scripts/run.sh", os.X_OK)


@needs.sshd
def test_a_server_that_ssh_does_not_know_is_refused_without_a_question(
    tree: Tree, ssh: SshServer
) -> None:
    repository = BareRepository(tree.root / "team/source.git")
    repository.commit({"skills": {"alpha": _TREE}})
    ssh.use(tree, known=False)
    done = tree.run("add", ssh.url(repository), "--all", "--yes")
    assert done.exit_code != 0
    assert "host key" in done.stderr.lower()
    assert not (tree.project / ".agents").exists()
