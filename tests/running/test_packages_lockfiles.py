"""Strict parsing of the lock files of installers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import RunRefused
from skillbelt.running.packages.lockfiles import (
    BASE,
    Platform,
    file_url,
    fits,
    is_range,
    is_sure,
    preference,
    read_node,
    read_python,
)

HERE = Platform(11, "x86_64", "glibc")
HASH = "a" * 64
STRONG = f"sha512-{'A' * 86}=="


def pylock(*, name: str = "greet", file: str = "greet-1.0-py3-none-any.whl", url: str = "",
           hashes: str = f'sha256 = "{HASH}"', more: str = "") -> bytes:  # fmt: skip
    url = url or f"{BASE}/files/{name}/{file}"
    return (
        f'lock-version = "1.0"\n[[packages]]\nname = "{name}"\nversion = "1.0"\n{more}'
        f'wheels = [{{ url = "{url}", hashes = {{ {hashes} }} }}]\n'
    ).encode()


def test_a_lock_of_uv_is_read_and_written_anew() -> None:
    lock = read_python(pylock(), ("greet",), HERE)
    assert lock.text == f"greet==1.0 --hash=sha256:{HASH}\n"
    assert [one.text for one in lock.packages] == [f"greet==1.0 sha256:{HASH}"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pylock(url="https://evil.example/greet-1.0-py3-none-any.whl"), "greet is not installed"),
        (pylock(url=f"{BASE}/files/other/greet-1.0-py3-none-any.whl"), "greet is not installed"),
        (pylock(url=f"{BASE}/files/greet/../x.whl"), "greet is not installed"),
        (pylock(hashes='md5 = "00"'), "no sha256"),
        (pylock(hashes=f'sha256 = "{HASH[:-1]}"'), "no sha256"),
        (pylock(more='vcs = { type = "git", url = "x" }\n'), "greet is not installed: it comes"),
        (pylock(more='directory = { path = "x" }\n'), "it comes from a folder"),
        (pylock(more='archive = { url = "x" }\n'), "it comes from a file"),
        (pylock(name="../x"), "could not be resolved"),
        (pylock() + pylock().partition(b"\n")[2], "lists a package twice"),
        (b"[", "could not be resolved"),
        (b'[[packages]]\nname = "x"\nversion = "1"\n', "no wheel"),
        (b'[[packages]]\nname = "x"\n', "has no version"),
    ],
)
def test_what_is_not_of_the_index_is_refused_by_name(data: bytes, said: str) -> None:
    with pytest.raises(RunRefused, match=said):
        read_python(data, (), HERE)


def test_a_declared_hash_is_the_only_one() -> None:
    read_python(pylock(), (f"Greet==1.0 --hash=sha256:{HASH}",), HERE)
    with pytest.raises(RunRefused, match="no file with a hash that is declared"):
        read_python(pylock(), (f"greet==1.0 --hash=sha256:{'b' * 64}",), HERE)


@pytest.mark.parametrize(
    ("file", "fitting"),
    [
        ("x-1-py3-none-any.whl", True), ("x-1-py2.py3-none-any.whl", True),
        ("x-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("x-1-cp38-abi3-manylinux_2_17_x86_64.whl", True),
        ("x-1-cp312-abi3-linux_x86_64.whl", False),
        ("x-1-cp310-cp310-manylinux_2_17_x86_64.whl", False), ("x-1-py2-none-any.whl", False),
        ("x-1-cp311-cp311-musllinux_1_1_x86_64.whl", False),
        ("x-1-cp311-cp311-win_amd64.whl", False),
        ("x-1-cp311-cp311-manylinux_2_17_aarch64.whl", False), ("x.whl", False),
        ("x-1-cp311-cp311t-manylinux_2_17_x86_64.whl", False),
    ],
)  # fmt: skip
def test_which_wheels_are_for_this_machine(file: str, fitting: bool) -> None:
    assert fits(file, HERE) is fitting


# --- Node.js -------------------------------------------------------------------------------------


def package_lock(path: str = "node_modules/greet", **about: Any) -> bytes:
    entry = {"version": "1.3.0", "resolved": file_url("node", "greet", "1.3.0"),
             "integrity": STRONG, **about}  # fmt: skip
    kept = {key: value for key, value in entry.items() if value is not None}
    root = {"dependencies": {"greet": "^1"}}
    return json.dumps({"lockfileVersion": 3, "packages": {"": root, path: kept}}).encode()


def test_a_lock_of_npm_is_read_and_written_anew() -> None:
    lock = read_node(package_lock(funding="x", scripts={"install": "x"}, license="MIT"))
    assert [one.text for one in lock.packages] == [f"greet@1.3.0 sha512:{'00' * 64}"]
    kept = json.loads(lock.text)["packages"]["node_modules/greet"]
    assert sorted(kept) == ["integrity", "resolved", "version"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (package_lock(resolved="git+ssh://git@evil.example/x.git#abc"), "greet@1.3.0 is not"),
        (package_lock(resolved="https://evil.example/greet.tgz"), "it comes from https://evil"),
        (package_lock(resolved="file:../greet"), "it comes from file:"),
        (package_lock(resolved=None), "it comes from None"),
        (package_lock(resolved=file_url("node", "other", "1.3.0")), "greet@1.3.0 is not"),
        (package_lock(link=True, resolved="x"), "a folder or a link"),
        (package_lock("../x"), "a folder or a link"),
        (package_lock("packages/x"), "a folder or a link"),
        (package_lock(integrity=None), "no hash"),
        (
            package_lock(integrity="sha1-AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            "no hash for it stronger than sha1",
        ),
        (package_lock(integrity="sha512-AA=="), "no hash"),
        (package_lock(hasShrinkwrap=True), "has its own lock file"),
        (package_lock(dependencies={"x": "git+https://evil.example/x"}), "x is not installed"),
        (package_lock(optionalDependencies={"x": "file:../x"}), "x is not installed"),
        (package_lock(peerDependencies={"x": "user/repo"}), "x is not installed"),
        (package_lock(inBundle=True, resolved=None), "no package of the registry bundles it"),
        (package_lock(version="../1"), "is not installed"),
        (b'{"lockfileVersion": 1, "packages": {"": {}}}', "could not be resolved"),
        (b"[]", "could not be resolved"),
    ],
)
def test_what_is_not_of_the_registry_is_refused_by_name(data: bytes, said: str) -> None:
    with pytest.raises(RunRefused, match=said):
        read_node(data)


def test_a_lock_of_ours_may_leave_out_where_it_comes_from() -> None:
    lock = read_node(package_lock(resolved=None), fill=True)
    assert file_url("node", "greet", "1.3.0") in lock.text


def test_what_a_package_brings_in_itself_has_its_hash() -> None:
    whole = json.loads(package_lock())
    whole["packages"]["node_modules/greet/node_modules/in"] = {"version": "2.0.0", "inBundle": True}
    lock = read_node(json.dumps(whole).encode())
    assert [one.text for one in lock.packages] == [
        f"greet@1.3.0 sha512:{'00' * 64}", f"in@2.0.0 sha512:{'00' * 64}",
    ]  # fmt: skip


def test_what_is_for_other_machines_is_not_asked_for() -> None:
    assert read_node(package_lock(optional=True, os=["win32"])).packages == ()
    assert read_node(package_lock(os=["win32"])).packages != ()
    assert read_node(package_lock(optional=True, os=["!win32"])).packages != ()


@pytest.mark.parametrize("wanted", ["^1", ">=1 <2 || 3.x", "latest", "", "npm:other@^1", "*"])
def test_a_requirement_on_the_registry(wanted: str) -> None:
    assert is_range(wanted)


@pytest.mark.parametrize(
    "wanted",
    ["a/b", "git+ssh://x", "http://x", "file:x", "link:x", "workspace:*", "npm:a/b/c", None],
)
def test_a_requirement_on_another_place(wanted: object) -> None:
    assert not is_range(wanted)


@given(st.binary())
def test_no_lock_raises_anything_but_a_refusal(data: bytes) -> None:
    with suppress(RunRefused):
        read_node(data)
    with suppress(RunRefused):
        read_python(data, (), HERE)


@pytest.mark.parametrize(
    ("system", "sure"),
    [
        ("any", True), ("manylinux_2_17_x86_64", True), ("manylinux2014_x86_64", True),
        ("manylinux_2_36_x86_64", True), ("manylinux_2_37_x86_64", False),
        ("manylinux_2_37_x86_64.manylinux2010_x86_64", True), ("manylinux2014_aarch64", False),
        ("musllinux_1_2_x86_64", False), ("linux_x86_64", False), ("win_amd64", False),
    ],
)  # fmt: skip
def test_a_wheel_surely_fits_a_machine(system: str, sure: bool) -> None:
    here = Platform(11, "x86_64", "glibc", libc_version=(2, 36))
    assert is_sure(f"greet-1.0-cp311-cp311-{system}.whl", here) is sure
    assert not is_sure(f"greet-1.0-cp312-cp312-{system}.whl", here)


def test_the_most_special_wheel_is_preferred() -> None:
    here = Platform(11, "x86_64", "glibc", libc_version=(2, 36))
    tags = [
        "py3-none-any", "py3-none-manylinux_2_17_x86_64", "cp38-abi3-manylinux2014_x86_64",
        "cp310-abi3-manylinux2014_x86_64", "cp311-cp311-manylinux2010_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux_2_28_x86_64",
    ]  # fmt: skip
    ranks = [preference(f"greet-1.0-{tag}.whl", here) for tag in tags]
    assert ranks == sorted(set(ranks))
    assert preference("greet-1.0-1-py3-none-any.whl", here) == ()
