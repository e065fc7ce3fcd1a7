"""Run discovery with file systems mounted in the project; print what was found as JSON.

    python mounts.py silent PROJECT FOLDER     FOLDER never answers
    python mounts.py memory PROJECT FOLDER...  each FOLDER is a file system of its own with a skill

The silent one is a FUSE file system whose server, this process, says nothing. All lie in a mount
namespace of this process, so that they are gone with it. Exit code 77: not possible here.
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


def silent(folder: str) -> int:
    try:
        handle = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        impossible(f"/dev/fuse: {error.strerror}")
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0"
    check(libc.mount(b"silent", folder.encode(), b"fuse", 0, options.encode()), "no FUSE mount")
    return handle


def memory(folder: str) -> None:
    check(libc.mount(b"none", folder.encode(), b"tmpfs", 0, None), "no tmpfs")
    name = os.path.basename(folder)
    os.mkdir(f"{folder}/{name}")
    with open(f"{folder}/{name}/SKILL.md", "w") as file:
        file.write(f"---\nname: {name}\ndescription: Does a thing.\n---\n")


def discover(project: str) -> dict[str, object]:
    from skillbelt import Catalog
    from skillbelt.discovery import scan

    scan.SCAN_TIMEOUT_SECONDS = float(os.environ.get("SCAN_SECONDS", scan.SCAN_TIMEOUT_SECONDS))

    catalog = Catalog(project)
    skills = [skill.name for skill in catalog.all()]
    # The second look must not wait for the dead folder again.
    again = [skill.name for skill in catalog.all()]
    return {
        "skills": skills,
        "again": again,
        "diagnostics": [diagnostic._asdict() for diagnostic in catalog.problems],
        "stalled": [one.root.path for one in catalog.scans if one.stalled],
    }


def main() -> None:
    kind, project, *folders = sys.argv[1:]
    own_namespace()
    if kind == "memory":
        for folder in folders:
            memory(folder)
        print(json.dumps(discover(project)))
        return
    handle = silent(folders[0])
    try:
        print(json.dumps(discover(project)))
    finally:
        libc.umount2(folders[0].encode(), MNT_FORCE | MNT_DETACH)
        os.close(handle)


if __name__ == "__main__":
    main()
