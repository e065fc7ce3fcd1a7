"""The packages that the tests take from npm, pinned by a lock with hashes and installed once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import needs

HERE = Path(__file__).parent / "npm"
FILES = ("package.json", "package-lock.json", ".npmrc")
CLIENT = "client.mjs"
INSPECTOR = "node_modules/@modelcontextprotocol/inspector-cli/build/cli.js"
CONFORMANCE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"


def installed() -> Path:
    """Return a folder with the packages; the first process installs them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        needs.not_run("needs Node.js and npm: apt install nodejs npm")
    mark = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"skillbelt-npm-{os.getuid()}-{mark[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _install(folder)
        # Beside what it imports; in place of an older one at once, as others may be using that.
        part = folder / f"client.{os.getpid()}"
        shutil.copy(HERE / CLIENT, part)
        part.replace(folder / CLIENT)
    return folder


def _install(folder: Path) -> None:
    for name in FILES:
        shutil.copy(HERE / name, folder)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(npm, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    # The command line is a part of the inspector, and looks there for its version; the
    # rest of it are web pages, which no test needs.
    (folder / INSPECTOR).parents[2].joinpath("package.json").write_text(
        '{"name": "inspector", "version": "1.0.3", "type": "module"}'
    )
    (folder / "ready").touch()


def newer_node(folder: Path) -> str:
    """The Node.js of the lock, for what needs a newer one than the system has."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "")
    node = folder / f"node_modules/node-linux-{machine}/bin/node"
    return str(node) if node.exists() else "node"
