"""Children of a bubblewrap that was killed while it started are killed too."""

from __future__ import annotations

import os
import select
import subprocess

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.stuck import end_stuck
from tests.needs import not_run


def test_a_child_that_waits_for_a_killed_bubblewrap_is_ended() -> None:
    if reason := LinuxSandbox().unavailable():
        not_run(reason)
    block, release = os.pipe()
    info, said = os.pipe()
    # It makes its child, and waits before it lets it go on: here a killed one leaves it.
    options = ["--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/"]
    options += ["--userns-block-fd", str(block), "--info-fd", str(said)]
    with subprocess.Popen(
        ["bwrap", *options, "--", "/.sandbox/sh"], pass_fds=(block, said, release)
    ) as outer:
        os.close(said)
        child = int(os.read(info, 1000).split(b":")[1].split(b",")[0].split()[0].strip(b"} \n"))
        handle = os.pidfd_open(child)
        end_stuck()
        assert not select.select([handle], [], [], 0)[0]  # its parent lives
        outer.kill()
        outer.wait()
        assert not select.select([handle], [], [], 0)[0]  # nothing else ends it
        assert end_stuck() >= 1
        assert select.select([handle], [], [], 30)[0]
    for one in (block, release, info, handle):
        os.close(one)
