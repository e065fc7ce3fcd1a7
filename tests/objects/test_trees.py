"""Folders in an object store: what comes back is what was put, or an error."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from skillbelt import Skill
from skillbelt.errors import (
    ConfigError,
    ObjectDamaged,
    ObjectError,
    ObjectMissing,
    ObjectsAway,
)
from skillbelt.files.manifest import LocalFiles
from skillbelt.objects.blobs import GRACE_SECONDS, blob_path, tenant_prefix
from skillbelt.objects.cache import kept_folder
from skillbelt.objects.pack import PACK_BYTES, SMALL_BYTES
from skillbelt.objects.remote import open_store
from skillbelt.objects.space import Objects, ObjectSpace
from skillbelt.objects.tree import StoredTree, TreeLimits, decode_entry
from skillbelt.running.workspace import prefix_of
from skillbelt.settings import load_settings
from skillbelt.store.protocol import SessionKey
from tests.examples import examples
from tests.running.test_same_files import folder, skill
from tests.tree import Tree

__all__ = ["folder", "skill"]

KEY = SessionKey("app", "user", "session")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def objects(store: MemoryStore) -> Objects:
    return Objects(store, "some/prefix")


@pytest.fixture
def space(objects: Objects) -> ObjectSpace:
    return objects.tenant(KEY)


def paths(store: MemoryStore, prefix: str = "") -> list[str]:
    return [one["path"] for page in store.list(prefix) for one in page]


def seen(folder: str | Path) -> dict[str, tuple[object, ...]]:
    """Everything in a folder, by path: kind, mode, time, and bytes or target."""
    found: dict[str, tuple[object, ...]] = {}
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = os.path.join(top, name)
            info = os.lstat(path)
            below, mode = os.path.relpath(path, folder), stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                found[below] = ("link", os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                found[below] = ("folder", mode)
            else:
                found[below] = ("file", mode, info.st_mtime_ns, Path(path).read_bytes())
    return found


# Skills


def test_a_skill_comes_back_with_the_digest_that_approvals_are_bound_to(
    objects: Objects, skill: Skill, tmp_path: Path
) -> None:
    digest = objects.put_skill(skill)
    assert digest == skill.files.digest()
    objects.get_skill(digest, str(tmp_path / "copy"))
    copy = LocalFiles(str(tmp_path / "copy"))
    assert copy.digest() == digest
    names = {(one.path, one.kind, one.executable, one.target) for one in skill.files.entries()}
    assert {(one.path, one.kind, one.executable, one.target) for one in copy.entries()} == names


def test_a_skill_whose_links_name_its_own_place_has_one_digest_everywhere(
    objects: Objects, tree: Tree, tmp_path: Path
) -> None:
    folder = tree.skill("a/linked")
    tree.write(folder / "lib" / "x.py", "x")
    (folder / "here").symlink_to(folder / "lib")
    digest = objects.put_skill(Skill.from_folder(folder))
    objects.get_skill(digest, str(tmp_path / "copy"))
    assert os.readlink(tmp_path / "copy" / "here") == "lib"
    assert LocalFiles(str(tmp_path / "copy")).digest() == digest == LocalFiles(str(folder)).digest()


def test_a_skill_that_cannot_be_run_is_not_kept(objects: Objects, tree: Tree) -> None:
    folder = tree.skill("a/piped")
    os.mkfifo(folder / "pipe")
    with pytest.raises(ObjectError, match="'pipe' is a named pipe"):
        objects.put_skill(Skill.from_folder(folder))
    out = tree.skill("a/outside")
    (out / "link").symlink_to("/etc/passwd")
    with pytest.raises(ObjectError, match="leads out of the folder"):
        objects.put_skill(Skill.from_folder(out))


def test_a_skill_that_is_there_is_not_sent_again(
    objects: Objects, skill: Skill, store: MemoryStore
) -> None:
    digest = objects.put_skill(skill)
    [path] = paths(store, "some/prefix/skills/trees")
    store.delete(path)
    assert objects.put_skill(skill) == digest
    assert paths(store, "some/prefix/skills/trees") == []
    other = Objects(store, "some/prefix")
    assert [other.put_skill(skill), Objects(store, "some/prefix").put_skill(skill)] == [digest] * 2
    assert len(paths(store, "some/prefix/skills")) == 2  # a pack, the list


def test_the_folder_of_a_skill_is_kept_on_the_machine_and_repaired(
    objects: Objects, skill: Skill, store: MemoryStore, tmp_path: Path
) -> None:
    digest = objects.put_skill(skill)
    with objects.skill_folder(digest, str(tmp_path), "awkward") as path:
        first = os.stat(path).st_ino
        assert Skill.from_folder(path).files.digest() == digest
    with objects.skill_folder(digest, str(tmp_path), "awkward") as path:
        assert os.stat(path).st_ino == first
    (Path(path) / "run.sh").write_text("another program")
    with objects.skill_folder(digest, str(tmp_path), "awkward") as path:
        assert LocalFiles(path).digest() == digest


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", ""])
def test_the_folder_of_a_skill_has_a_plain_name(
    objects: Objects, name: str, tmp_path: Path
) -> None:
    with pytest.raises(ObjectError, match="not a name for a folder"):  # noqa: SIM117
        with objects.skill_folder(f"sha256:{'0' * 64}", str(tmp_path), name):
            pass


# Trees


NAMES = st.one_of(
    st.sampled_from(["a", "B", "b", "SKILL.md", ".git", "node_modules", "co:lon", "back\\slash",
                     "new\nline", "\udcff", "ü", "-rf", "out", "$(x)"]),
    st.text("xyz", min_size=1, max_size=3),
)  # fmt: skip
CONTENT = st.one_of(
    st.binary(max_size=50),
    st.sampled_from([b"", b"same", b"z" * SMALL_BYTES, b"y" * (SMALL_BYTES - 1)]),
)
ENTRY = st.one_of(
    st.tuples(st.just("file"), CONTENT, st.sampled_from([0o644, 0o755, 0o600, 0o444])),
    st.tuples(st.just("folder"), st.just(b""), st.sampled_from([0o755, 0o700, 0o555])),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"../..", b"/etc/passwd", b"."]), st.just(0)),
)


@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), ENTRY, max_size=12))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_tree_comes_back_as_it_was(entries: dict[str, tuple[str, bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, copy, third = (os.path.join(place, name) for name in ("one", "two", "three"))
        os.mkdir(folder)
        modes = {}
        for path, (kind, data, mode) in entries.items():
            at = os.path.join(folder, path)
            try:
                os.makedirs(os.path.dirname(at), exist_ok=True)
                if kind == "folder":
                    os.mkdir(at)
                elif kind == "link":
                    os.symlink(os.fsdecode(data), at)
                else:
                    with open(at, "xb") as file:
                        file.write(data)
            except OSError:
                continue  # a file is where a folder would be
            if kind != "link" and os.path.realpath(os.path.dirname(at)).startswith(folder):
                modes[at] = mode
        for at, mode in sorted(modes.items(), reverse=True):
            os.chmod(at, mode)
        space = Objects(MemoryStore()).tenant(KEY)
        digest = space.put_tree(folder)
        space.get_tree(digest, copy)
        assert seen(copy) == seen(folder)
        assert space.put_tree(copy) == digest
        packed = Objects(MemoryStore()).tenant(KEY)
        assert packed.put_tree(copy) == digest
        packed.get_tree(digest, third)
        assert seen(third) == seen(folder)


def test_small_files_share_requests_and_large_ones_stand_alone(
    space: ObjectSpace, store: MemoryStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(300):
        (source / f"small-{number}").write_bytes(os.urandom(1000))
    for number in range(2):
        (source / f"large-{number}").write_bytes(os.urandom(PACK_BYTES + 5))
    (source / "same").write_bytes((source / "large-0").read_bytes())
    digest = space.put_tree(str(source))
    assert len(paths(store)) == 4  # two large ones, a pack, the list
    space.get_tree(digest, str(tmp_path / "copy"))
    assert seen(tmp_path / "copy") == seen(source)


def test_what_has_no_meaning_elsewhere_is_left_out(space: ObjectSpace, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))
    (source / "file").write_text("x")
    space.get_tree(space.put_tree(str(source)), str(tmp_path / "copy"))
    assert os.listdir(tmp_path / "copy") == ["file"]


def test_a_tree_beyond_a_limit_is_not_read(space: ObjectSpace, tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ObjectError, match=r"has 1,099,511,627,776 bytes or more; the limit is"):
        space.put_tree(str(tmp_path))
    (tmp_path / "sparse").unlink()
    for number in range(6):
        (tmp_path / str(number)).touch()
    with pytest.raises(ObjectError, match="more than 5 files and folders"):
        space.put_tree(str(tmp_path), limits=TreeLimits(max_entries=5))
    digest = space.put_tree(str(tmp_path))
    with pytest.raises(ObjectDamaged, match="more than 5 files and folders"):
        space.get_tree(digest, str(tmp_path / "copy"), limits=TreeLimits(max_entries=5))
    assert not (tmp_path / "copy").exists()


# Hostile objects


def hostile(
    store: MemoryStore, space: ObjectSpace, change: Callable[[dict[str, Any]], None]
) -> str:
    """Put a list of a tree that was changed, under the digest that it then really has."""
    content = b"harmless"
    digits = hashlib.sha256(content).hexdigest()
    store.put(f"{space.prefix}{blob_path(f'{digits}/{COPY}')}", content)
    document: dict[str, Any] = {
        "format": 1,
        "kind": "exact",
        "blobs": [f"{digits}/{COPY}"],
        "entries": [["d", "a", 0o755], ["f", "a/b", 0o644, 8, digits, 0, 0, 0]],
        "facts": {},
    }
    change(document)
    digest = _digest(document)
    store.put(place_of(space, digest), encoded(document))
    return digest


def encoded(document: dict[str, Any]) -> bytes:
    head = {name: value for name, value in document.items() if name != "entries"}
    return "\n".join(map(json.dumps, [head, *document["entries"]])).encode()


def place_of(space: ObjectSpace, digest: str) -> str:
    return f"{space.prefix}trees/{digest[7:9]}/{digest[9:]}/{COPY}"


def _digest(document: dict[str, Any]) -> str:
    """The digest of the list, by the words of design/fleet.md."""
    try:
        entries = tuple(map(decode_entry, document["entries"]))
        return StoredTree(document["kind"], (), entries, document["facts"]).digest()
    except (ObjectError, UnicodeEncodeError, IndexError, TypeError):
        return f"sha256:{'0' * 64}"


def entry(*row: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["entries"].append(list(row))


COPY = "0123456789abcdef"
ZERO = hashlib.sha256().hexdigest()
ATTACKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "absolute": entry("f", "/tmp/x", 420, 0, ZERO, -1, 0, 0),
    "above": entry("f", "../x", 420, 0, ZERO, -1, 0, 0),
    "above in the middle": entry("f", "a/../../x", 420, 0, ZERO, -1, 0, 0),
    "empty name": entry("d", "", 493),
    "dot": entry("d", "a/./b", 493),
    "NUL": entry("d", "a\0b", 493),
    "long name": entry("d", "x" * 300, 493),
    "deep": lambda document: document["entries"].extend(
        ["d", "/".join("d" * depth), 493] for depth in range(1, 80)
    ),
    "twice": entry("d", "a", 493),
    "file and folder": entry("f", "a", 420, 0, ZERO, -1, 0, 0),
    "below a file": entry("f", "a/b/c", 420, 0, ZERO, -1, 0, 0),
    "below nothing": entry("f", "nowhere/c", 420, 0, ZERO, -1, 0, 0),
    "through a link": lambda document: document["entries"].extend(
        [["l", "out", "/tmp"], ["f", "out/x", 420, 0, ZERO, -1, 0, 0]]
    ),
    "link to nothing": entry("l", "link", ""),
    "link with NUL": entry("l", "link", "a\0"),
    "link of no text": entry("l", "link", "\ud800"),
    "name of no text": entry("d", "\ud800", 493),
    "device": entry("c", "null", 438),
    "negative": entry("f", "x", 420, -5, ZERO, 0, 0, 0),
    "far away": entry("f", "x", 420, 8, ZERO, 0, 2**80, 0),
    "no blob": entry("f", "x", 420, 8, ZERO, 7, 0, 0),
    "no digest": entry("f", "x", 420, 8, "../../x", 0, 0, 0),
    "truth for a number": entry("f", "x", 420, True, ZERO, 0, 0, 0),
    "blob elsewhere": lambda document: document.update(blobs=["../../../secret"]),
    "bomb": lambda document: document["entries"].extend(
        ["f", f"x{n}", 420, 2**28, document["blobs"][0][:64], 0, 0, 0] for n in range(9)
    ),
    "no list": lambda document: document.update(entries={"a": 1}),
    "long line": entry("d", "a" * 300_000, 493),
    "no head": lambda document: document.update(kind=[], facts=0),
    "newer": lambda document: document.update(format=2),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_list_is_refused_before_anything_is_written(
    name: str, store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    digest = hostile(store, space, ATTACKS[name])
    with pytest.raises(ObjectDamaged, match=digest):
        space.get_tree(digest, str(tmp_path / "copy"))
    assert os.listdir(tmp_path) == []


def test_the_list_that_is_attacked_is_good_without_the_attack(
    store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    digest = hostile(store, space, lambda document: None)
    space.get_tree(digest, str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "a" / "b").read_bytes() == b"harmless"


def test_a_list_under_the_digest_of_another_tree_is_refused(
    store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    wanted = hostile(store, space, lambda document: None)
    other = hostile(store, space, entry("d", "more", 493))
    store.put(place_of(space, wanted), bytes(store.get(place_of(space, other)).bytes()))
    with pytest.raises(ObjectDamaged, match=f"it lists a tree that has {other}"):
        space.get_tree(wanted, str(tmp_path / "copy"))


@pytest.mark.parametrize("data", [b"harmfull", b"short", b"", b"longer than it was"])
def test_changed_bytes_are_refused_and_named(
    data: bytes, store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    digest = hostile(store, space, lambda document: None)
    digits = hashlib.sha256(b"harmless").hexdigest()
    store.put(f"{space.prefix}{blob_path(f'{digits}/{COPY}')}", data)
    with pytest.raises(ObjectDamaged, match=digits):
        space.get_tree(digest, str(tmp_path / "copy"))
    assert os.listdir(tmp_path) == []
    with pytest.raises(ObjectDamaged, match=digits):
        space.open_file(f"sha256:{digits}")


@pytest.mark.parametrize("data", [b"", b"\n" * 10**6, b"[" * 10**6, b"[]," * 10**6, b"{}", b"\xff"])
def test_a_list_that_is_none_is_refused_in_bounded_memory(
    data: bytes, store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    digest = f"sha256:{'7' * 64}"
    store.put(place_of(space, digest), data)
    with pytest.raises(ObjectDamaged, match=digest):
        space.get_tree(digest, str(tmp_path / "copy"))


def test_no_bit_comes_back_that_gives_rights(
    store: MemoryStore, space: ObjectSpace, tmp_path: Path
) -> None:
    digest = hostile(store, space, entry("f", "su", 0o6755, 0, ZERO, -1, 0, 0))
    space.get_tree(digest, str(tmp_path / "copy"))
    assert stat.S_IMODE(os.stat(tmp_path / "copy" / "su").st_mode) == 0o755


def test_a_skill_gets_the_modes_and_times_that_packing_gives_it(
    store: MemoryStore, objects: Objects, tmp_path: Path
) -> None:
    """The digest does not cover them, so a store can say anything."""

    def change(document: dict[str, Any]) -> None:
        [folder, file] = document["entries"]
        document["kind"], folder[2], file[2], file[7] = "skill", 0, 0o022, 77

    digest = hostile(store, objects.skills, change)
    objects.get_skill(digest, str(tmp_path / "copy"))
    found = seen(tmp_path / "copy")
    assert found["a"] == ("folder", 0o755)
    assert found["a/b"][1] == 0o644 and found["a/b"][2] != 77


def test_a_folder_that_is_never_whole_is_not_fetched_without_end(tmp_path: Path) -> None:
    fetched = []

    def fetch(path: str) -> None:
        os.mkdir(path)
        fetched.append(path)

    kept = kept_folder(str(tmp_path), "0", "name", fetch=fetch, is_whole=lambda _: False)
    with pytest.raises(ObjectError, match="is not complete after it was fetched 3 times"), kept:
        pass
    assert len(fetched) == 3


# Files


def test_a_file_is_had_by_its_digest(space: ObjectSpace, tmp_path: Path) -> None:
    data = os.urandom(9 * 2**20)
    (tmp_path / "file").write_bytes(data)
    digest = space.put_file(str(tmp_path / "file"))
    assert digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert space.put_file(data) == digest
    with open(tmp_path / "file", "rb") as file:
        assert space.put_file(file) == digest
    with space.open_file(digest) as found:
        assert found.read() == data
    with pytest.raises(ObjectError, match="at most 5 are taken"):
        space.open_file(digest, most=5)
    assert space.has_file(digest)


def test_what_is_not_there_is_named(space: ObjectSpace, tmp_path: Path) -> None:
    digest = f"sha256:{'5' * 64}"
    assert not space.has_file(digest)
    assert not space.has_tree(digest)
    with pytest.raises(ObjectMissing, match=digest):
        space.open_file(digest)
    with pytest.raises(ObjectMissing, match=digest):
        space.get_tree(digest, str(tmp_path / "copy"))
    with pytest.raises(ObjectError, match="is not a digest"):
        space.open_file("sha256:../../etc")


def test_tenants_have_nothing_of_each_other(objects: Objects) -> None:
    digest = objects.tenant(KEY).put_file(b"mine")
    for other in (KEY._replace(user="other"), KEY._replace(app="other")):
        assert not objects.tenant(other).has_file(digest)
    assert objects.tenant(KEY._replace(session="other")).has_file(digest)


def test_a_name_with_nul_in_it_leads_to_nothing_of_another() -> None:
    one, other = SessionKey("a", "b\0c", "d"), SessionKey("a", "b", "c\0d")
    assert prefix_of(one) != prefix_of(other)
    assert prefix_of(KEY) == hashlib.sha256(b"app\0user\0session").hexdigest()[:16]
    one, other = SessionKey("a\0b", "c", ""), SessionKey("a", "b\0c", "")
    assert tenant_prefix(one) != tenant_prefix(other)


def test_an_old_blob_is_sent_again(tmp_path: Path) -> None:
    space = Objects(LocalStore(tmp_path)).tenant(KEY)
    digits = space.put_file(b"x")[7:]
    folder = tmp_path / space.prefix / "blobs" / digits[:2] / digits[2:]
    space.put_file(b"x")
    [path] = folder.iterdir()
    os.utime(path, (path.stat().st_mtime - GRACE_SECONDS,) * 2)
    space.put_file(b"x")
    assert len(list(folder.iterdir())) == 2


def test_one_good_copy_is_enough(space: ObjectSpace, store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("x")
    file, tree = space.put_file(b"x"), space.put_tree(str(tmp_path / "source"))
    for path in paths(store):
        store.put(f"{path[:-16]}{COPY}", b"y")  # newer, and wrong
    with space.open_file(file) as found:
        assert found.read() == b"x"
    space.get_tree(tree, str(tmp_path / "copy"))


# The store


def test_the_setting_names_the_store(tree: Tree, tmp_path: Path) -> None:
    settings = load_settings(tree.project, overrides={"objects": f"file://{tmp_path}/a b/store"})
    digest = Objects.from_settings(settings).tenant(KEY).put_file(b"x")
    assert Objects.from_settings(settings).tenant(KEY).has_file(digest)
    assert stat.S_IMODE(os.stat(tmp_path / "a b" / "store").st_mode) == 0o700
    with pytest.raises(ConfigError, match="set `objects`"):
        Objects.from_settings(settings._replace(objects=""))


@pytest.mark.parametrize("url", ["nix://a", "/plain", "s3:/x", "file:///proc/version/x"])
def test_a_wrong_setting_says_so(url: str) -> None:
    with pytest.raises(ConfigError, match="give a URL such as s3://bucket/prefix"):
        open_store(url)


def test_a_password_in_the_setting_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="has a password in it") as caught:
        open_store("s3://key:hunter2@bucket/prefix")
    assert "hunter2" not in str(caught.value)


def test_a_variable_that_is_set_to_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would panic at the first request."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL is empty"):
        open_store("s3://bucket")


def test_a_store_that_is_away_is_an_error_after_few_retries() -> None:
    with socket.socket() as closed:  # bound and not listening: every connection is refused
        closed.bind(("127.0.0.1", 0))
        away = Objects.from_url(
            "s3://bucket",
            endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}",
            region="us-east-1",
            access_key_id="id",
            secret_access_key="secret",
            client_options={"allow_http": True},
            retry_config={"max_retries": 1},
        )
        with pytest.raises(ObjectsAway, match=r"the object store: .* cannot be listed"):
            away.tenant(KEY).put_file(b"x")
        with pytest.raises(ObjectsAway):
            away.tenant(KEY).open_file(f"sha256:{'0' * 64}")
