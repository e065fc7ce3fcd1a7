"""Run discovery with a folder on a mount that never answers; print what was found as JSON.

    python stalled.py PROJECT FOLDER

The mount is a FUSE file system whose server, this process, stays silent. It lies in a mount
namespace of its own, so that it is gone with the process. Exit code 77: not possible here.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
MNT_FORCE, MNT_DETACH = 1, 2
IMPOSSIBLE = 77

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        impossible(f"{what}: {os.strerror(ctypes.get_errno())}")


def impossible(reason: str) -> None:
    print(reason, file=sys.stderr)
    sys.exit(IMPOSSIBLE)


def own_namespace() -> None:
    user, group = os.getuid(), os.getgid()
    if user == 0:
        check(libc.unshare(CLONE_NEWNS), "no mount namespace")
    else:
        check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "no user namespace")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "no private mounts")


def mount(folder: str) -> int:
    try:
        handle = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        impossible(f"/dev/fuse: {error.strerror}")
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0"
    check(libc.mount(b"silent", folder.encode(), b"fuse", 0, options.encode()), "no FUSE mount")
    return handle


def discover(project: str) -> dict[str, object]:
    from skillbelt import Catalog

    catalog = Catalog(project)
    skills = [skill.name for skill in catalog.all()]
    # The second look must not wait for the dead folder again.
    again = [skill.name for skill in catalog.all()]
    return {
        "skills": skills,
        "again": again,
        "diagnostics": [diagnostic._asdict() for diagnostic in catalog.problems],
        "stalled": [scan.root.path for scan in catalog.scans if scan.stalled],
    }


def main() -> None:
    project, folder = sys.argv[1:]
    own_namespace()
    handle = mount(folder)
    try:
        print(json.dumps(discover(project)))
    finally:
        libc.umount2(folder.encode(), MNT_FORCE | MNT_DETACH)
        os.close(handle)


if __name__ == "__main__":
    main()
