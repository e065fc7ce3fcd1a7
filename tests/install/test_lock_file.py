"""The lock files, as `skills` 1.7.4 has them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skillbelt.errors import ConfigError
from skillbelt.install import lock_file
from skillbelt.install.lock_file import (
    LockChanges,
    find_place,
    locked_place,
    read_lock,
    sort_as_javascript,
    write_lock,
)
from skillbelt.install.values import InstallPlace, InstallScope, LockEntry
from skillbelt.settings import Settings, load_settings
from tests.tree import Tree

HASH = "ab" * 32
# Written by `skills` 1.7.4.
WRITTEN = """{
  "version": 1,
  "skills": {
    "alpha": {
      "source": "owner/repo",
      "ref": "main",
      "sourceType": "github",
      "skillPath": "skills/alpha/SKILL.md",
      "computedHash": "HASH"
    },
    "beta": {
      "source": "./here",
      "sourceType": "local",
      "skillPath": "SKILL.md",
      "computedHash": "HASH",
      "subagents": [
        "",
        "name"
      ]
    }
  }
}
""".replace("HASH", HASH)


@contextmanager
def change_lock(place: InstallPlace, settings: Settings) -> Iterator[LockChanges]:
    with locked_place(place, settings):
        changes = LockChanges(read_lock(place))
        yield changes
        write_lock(changes)


class Locks:
    """A project's lock file."""

    def __init__(self, tree: Tree) -> None:
        self.settings: Settings = load_settings(tree.project)
        self.place: InstallPlace = find_place(self.settings, "project")
        self.path = Path(self.place.lock)

    def put(self, **values: Any) -> None:
        with change_lock(self.place, self.settings) as changes:
            changes.put(LockEntry(**values))


@pytest.fixture
def locks(tree: Tree) -> Locks:
    return Locks(tree)


def test_a_lock_of_skills_is_read(locks: Locks) -> None:
    locks.path.write_text(WRITTEN)
    lock = read_lock(locks.place)
    assert lock.entries["alpha"].source == "owner/repo"
    assert lock.entries["alpha"].skill_path == "skills/alpha/SKILL.md"
    assert (lock.entries["alpha"].ref, lock.entries["alpha"].computed_hash) == ("main", HASH)
    assert not lock.ours
    assert not lock.refused


def test_a_changed_lock_has_all_other_bytes_as_before(locks: Locks) -> None:
    locks.path.write_text(WRITTEN)
    locks.put(name="b0", source="o/r", source_type="github", computed_hash=HASH, commit="1" * 40)
    added = (
        f'    "b0": {{\n      "source": "o/r",\n      "sourceType": "github",\n'
        f'      "computedHash": "{HASH}",\n      "commit": "{"1" * 40}"\n    }},\n'
    )
    at = WRITTEN.index('    "beta"')
    assert locks.path.read_text() == WRITTEN[:at] + added + WRITTEN[at:]


def test_unknown_keys_stay_in_an_entry_and_at_the_top(locks: Locks) -> None:
    document = json.loads(WRITTEN)
    document["skills"]["beta"]["theirs"] = {"x": [1, None]}
    document["more"] = "kept"
    locks.path.write_text(json.dumps(document))
    entry = read_lock(locks.place).entries["beta"]
    with change_lock(locks.place, locks.settings) as changes:
        changes.put(entry._replace(content_digest=f"sha256:{HASH}"))
    after = json.loads(locks.path.read_text())
    assert after["more"] == "kept"
    assert after["skills"]["beta"]["theirs"] == {"x": [1, None]}
    assert after["skills"]["beta"]["subagents"] == ["", "name"]
    assert after["skills"]["beta"]["contentDigest"] == f"sha256:{HASH}"


def test_a_user_lock_ends_without_a_line_feed_and_keeps_its_order(tree: Tree) -> None:
    settings = load_settings(tree.project)
    place = find_place(settings, "user")
    for name in ("zeta", "alpha"):
        with change_lock(place, settings) as changes:
            changes.put(LockEntry(name=name, source="o/r", source_type="github"))
    text = Path(place.lock).read_text()
    assert text.endswith("}")
    document = json.loads(text)
    assert list(document) == ["version", "skills", "dismissed"]
    assert (document["version"], list(document["skills"])) == (3, ["zeta", "alpha"])
    assert list(document["skills"]["alpha"]) == [
        "source", "sourceType", "skillFolderHash", "installedAt", "updatedAt"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"),
    [("", "home/.agents/.skill-lock.json"), ("s", "s/skills/.skill-lock.json")],
)
def test_the_user_lock_is_where_skills_has_it(tree: Tree, state: str, expected: str) -> None:
    environ = {"HOME": f"{tree.root}/home", "XDG_STATE_HOME": state and f"{tree.root}/{state}"}
    settings = load_settings(tree.project, environ=environ)
    assert find_place(settings, "user").lock == f"{tree.root}/{expected}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version": 1, "skills": {', r":1: the lock is not JSON"),
        ('{"version": 2,\n "skills": {}}', r":1: the lock has version 2"),
        ('{"skills": {},\n\n"version": true}', r":3: the lock has version True"),
        ('{"version": 1}', "has no object `skills`"),
        ("[]", "has no object `skills`"),
        ('{"version": 1, "skills": {"a": {},\n"a": {}}}', r":2: the lock has the key 'a' twice"),
        ('{\n<<<<<<< HEAD\n"version": 1\n=======\n>>>>>>> x\n}', r":2: the lock has merge"),
        ('{"version": 1, "skills": {}, "x": NaN}', "NaN is not JSON"),
        ("\ud800", "is not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ('"' + "x" * (4 * 2**20) + '"', "is longer than"),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_lock_is_an_error_and_stays(locks: Locks, text: str, reason: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    locks.path.write_bytes(data)
    with pytest.raises(ConfigError, match=reason) as caught:
        locks.put(name="x", source="o/r", source_type="github")
    assert str(locks.path) in str(caught.value)
    assert caught.value.remedy != ConfigError.remedy
    assert locks.path.read_bytes() == data


def test_a_lock_that_is_a_link_is_an_error_and_stays(locks: Locks, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(WRITTEN)
    locks.path.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is a link"):
        locks.put(name="x", source="o/r", source_type="github")
    assert elsewhere.read_text() == WRITTEN


@pytest.mark.parametrize(
    ("name", "entry", "reason"),
    [
        ("../up", {}, "not the name of a skill"),
        ("__proto__", {}, "not the name of a skill"),
        ("x" * 200, {}, "not the name of a skill"),
        ("bad", {"source": "o/r"}, "no `sourceType`"),
        ("bad", {"skillPath": "../x/SKILL.md"}, "leads out of the folder"),
        ("bad", {"skillPath": "/etc/SKILL.md"}, "absolute"),
        ("bad", {"skillPath": "x/other.md"}, "does not end in SKILL.md"),
        ("bad", {"ref": "a\nb"}, "not a text of one line"),
        ("bad", {"source": ["x"]}, "not a text of one line"),
        ("bad", {"commit": "--upload-pack=x"}, "not a hash"),
        ("bad", {"contentDigest": "md5:1"}, "not a hash"),
        ("bad", {"clients": ["../x"]}, "not a list of names"),
        ("Alpha", {}, "same folder as 'alpha'"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named_and_kept(
    locks: Locks, name: str, entry: dict[str, object], reason: str
) -> None:
    document = json.loads(WRITTEN)
    whole = {"source": "o/r", "sourceType": "github", **entry}
    document["skills"][name] = {"source": "o/r"} if entry == {"source": "o/r"} else whole
    locks.path.write_text(json.dumps(document))
    lock = read_lock(locks.place)
    assert list(lock.entries) == ["alpha", "beta"]
    [(refused, message)] = lock.refused
    assert refused == name
    assert reason in message
    locks.put(name="new", source="o/r", source_type="github")
    assert json.loads(locks.path.read_text())["skills"][name] == document["skills"][name]


def test_names_are_sorted_as_an_object_of_javascript_has_them() -> None:
    names = dict.fromkeys(["b", "10", "9", "a", "01", "Z", "4294967295", "\U0001f600", "\uff21"])
    assert list(sort_as_javascript(names)) == [
        "9", "10", "01", "4294967295", "Z", "a", "b", "\U0001f600", "\uff21"
    ]  # fmt: skip


def test_an_unchanged_lock_is_not_written(locks: Locks) -> None:
    locks.path.write_text(WRITTEN)
    before = os.stat(locks.path)
    with change_lock(locks.place, locks.settings) as changes:
        changes.put(changes.lock.entries["alpha"])
    assert os.path.samestat(os.stat(locks.path), before)


@pytest.mark.parametrize("scope", ["project", "user"])
def test_a_lock_that_is_changed_step_by_step_has_the_bytes_of_a_whole_one(
    tree: Tree, scope: InstallScope
) -> None:
    settings = load_settings(tree.project)
    place = find_place(settings, scope)
    odd = {"": [], "{": {"a": {}, "b\n": [1, {"c": None}]}, "\u00e9": "\u2028\ud800", "n": 1.50}
    skills = {"alpha": {"source": "o/r", "sourceType": "git", "odd": odd}, "bad": 5, "..": odd}
    document = {"version": 1 if scope == "project" else 3, "more": [odd], "skills": skills}
    Path(place.lock).parent.mkdir(parents=True, exist_ok=True)
    Path(place.lock).write_text(json.dumps(document))

    def change(name: str, source: str) -> None:
        with change_lock(place, settings) as changes:
            if source:
                changes.put(LockEntry(name=name, source=source, source_type="git"))
            else:
                changes.remove(name)
        path = Path(place.lock)
        text = json.dumps(json.loads(path.read_text()), indent=2, ensure_ascii=False)
        text = text.replace("\ud800", "\\ud800") + ("\n" if scope == "project" else "")
        assert path.read_text() == text
        known = read_lock(place)
        path.write_text(text + " ")  # other bytes, so that all of it is read
        again = read_lock(place)
        assert (known.entries, known.refused) == (again.entries, again.refused)
        assert known.document == again.document
        path.write_text(text)

    for name, source in [("b", "o/b"), ("10", "o/x"), ("b", "o/c"), ("B!", "o/b"), ("b", "")]:
        change(name, source)
    for name in list(json.loads(Path(place.lock).read_text())["skills"]):
        change(name, "")
    assert json.loads(Path(place.lock).read_text())["skills"] == {}


def test_what_did_not_change_in_a_lock_is_not_read_again(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    entry = lock_file._read_entry

    def count(name: str, written: object, place: InstallPlace) -> LockEntry:
        read.append(name)
        return entry(name, written, place)

    monkeypatch.setattr(lock_file, "_read_entry", count)
    names = [f"s{number}" for number in range(30)]
    for name in names:
        locks.put(name=name, source="o/r", source_type="github")
    for name in names:
        with change_lock(locks.place, locks.settings) as changes:
            changes.remove(name)
    assert read == names


def test_a_lock_that_another_program_changed_meanwhile_stays(locks: Locks) -> None:
    locks.path.write_text(WRITTEN)
    with (
        pytest.raises(ConfigError, match="changed by another program"),
        change_lock(locks.place, locks.settings) as changes,
    ):
        locks.path.write_text(WRITTEN + " ")
        changes.remove("alpha")
    assert locks.path.read_text() == WRITTEN + " "


def test_two_writers_lose_nothing(locks: Locks) -> None:
    def write(start: int) -> None:
        for number in range(start, start + 10):
            locks.put(name=f"s{number}", source="o/r", source_type="github")

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_lock(locks.place).entries) == 20


def test_the_mode_of_a_lock_stays(locks: Locks) -> None:
    locks.path.write_text(WRITTEN)
    locks.path.chmod(0o640)
    locks.put(name="x", source="o/r", source_type="github")
    assert locks.path.stat().st_mode & 0o777 == 0o640


def test_the_nearest_lock_above_counts(tree: Tree) -> None:
    below = Path(tree.project) / "a" / "b"
    below.mkdir(parents=True)
    (Path(tree.project) / ".git").mkdir(exist_ok=True)
    assert find_place(load_settings(below), "project").base == str(tree.project)
    (below.parent / "skills-lock.json").write_text(WRITTEN)
    assert find_place(load_settings(below), "project").base == str(below.parent)
