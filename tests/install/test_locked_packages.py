"""The packages of a skill in its lock: resolved when it is added, held to when it runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.running.packages.locked import from_json
from tests import needs
from tests.discovery.sources.server import Server, running
from tests.install.desk import InstallDesk
from tests.registries import list_wheels, publish, wheel_bytes
from tests.tree import Done, Tree

USER = "home/.config/skillbelt/config.toml"
SHOW = "import greet\nprint(greet.word)\n"


class PackageDesk(InstallDesk):
    """A skill that needs the package `greet`, and an index that has it."""

    def __init__(self, tree: Tree, index: Server) -> None:
        super().__init__(tree)
        self.index = index
        tree.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        self.offer("1.0")
        self.write("alpha", "requirements.txt", "greet\n")
        self.write("alpha", "scripts/show.py", SHOW)
        self.commit()

    def offer(self, *versions: str, word: str = "", needs: tuple[str, ...] = ()) -> dict[str, str]:
        """Let the index have these versions and no others; return their hashes."""
        return list_wheels(
            self.index,
            "greet",
            {
                one: wheel_bytes("greet", {"greet.py": f"word = {word or one!r}\n"}, needs, one)
                for one in versions
            },
        )

    def add(self) -> Done:
        return self.run("add", self.url, "--skill", "alpha", "--yes")

    def entry(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document()["skills"]["alpha"]
        return found

    def change(self, **values: object) -> None:
        """Change what the lock says of `requirements.txt`."""
        document = self.document()
        document["skills"]["alpha"]["packages"]["requirements.txt"].update(values)
        self.lock.write_text(json.dumps(document, indent=2) + "\n")

    def show(self, *words: str) -> Done:
        """Run the script on a machine that has no packages yet."""
        shutil.rmtree(Path(self.settings.cache_dir) / "packages", ignore_errors=True)
        return self.run(
            "run", "alpha", "--yes", "--json", *words, "--", "python3", "scripts/show.py"
        )


@pytest.fixture
def desk(tree: Tree) -> Iterator[PackageDesk]:
    with running() as index:
        yield PackageDesk(tree, index)


def test_adding_a_skill_locks_what_its_packages_come_to(desk: PackageDesk) -> None:
    hashes = desk.offer("1.0", "1.1", needs=("other",))
    other = list_wheels(desk.index, "other", {"3": wheel_bytes("other", {"o.py": ""}, (), "3")})
    assert desk.add().exit_code == 0
    assert desk.entry()["packages"] == {
        "requirements.txt": {
            "kind": "python",
            "requirements": ["greet"],
            "packages": {
                "greet": {"version": "1.1", "hashes": [f"sha256:{hashes['1.1']}"]},
                "other": {"version": "3", "hashes": [f"sha256:{other['3']}"]},
            },
        }
    }
    assert desk.run("verify").exit_code == 0


def test_the_hashes_of_every_platform_are_locked(desk: PackageDesk) -> None:
    """Another machine takes another file of the same version."""
    names = [f"greet-1.0-cp311-cp311-{one}.whl" for one in ("win_amd64", "macosx_11_0_arm64")]
    page = bytes(desk.index.pages["/simple/greet/"])  # type: ignore[arg-type]
    links = "".join(
        f'<a href="/files/{name}#sha256={number * 64}">{name}</a>'
        for number, name in zip("ab", names, strict=True)
    )
    desk.index.pages["/simple/greet/"] = page.replace(b"</body>", links.encode() + b"</body>")
    desk.add()
    locked = desk.entry()["packages"]["requirements.txt"]["packages"]["greet"]["hashes"]
    assert {f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"} < set(locked)
    assert len(locked) == 3


def test_a_run_takes_the_locked_version_though_the_index_has_a_newer_one(desk: PackageDesk) -> None:
    desk.add()
    desk.offer("1.0", "2.0")
    assert desk.show().document["stdout"] == "1.0\n"
    assert desk.run("update", "--packages", "--yes").exit_code == 0
    assert desk.show().document["stdout"] == "2.0\n"


def test_a_file_of_the_locked_version_with_another_hash_is_refused(desk: PackageDesk) -> None:
    desk.add()
    desk.offer("1.0", word="'evil'")
    done = desk.show()
    assert done.exit_code != 0
    assert "greet==1.0" in done.stdout + done.stderr
    assert "evil" not in done.stdout


def test_a_package_that_is_not_in_the_lock_is_refused(desk: PackageDesk) -> None:
    """As on a machine where a package needs more than on the one that locked it."""
    desk.offer("1.0", needs=("other",))
    list_wheels(desk.index, "other", {"3": wheel_bytes("other", {"o.py": ""}, (), "3")})
    desk.add()
    locked = desk.entry()["packages"]["requirements.txt"]["packages"]
    desk.change(packages={"greet": locked["greet"]})
    done = desk.show()
    assert done.exit_code != 0
    assert "skillbelt update --packages" in done.document["error"]["message"]


def test_a_package_that_the_user_names_takes_the_place_of_the_locked_one(desk: PackageDesk) -> None:
    desk.add()
    desk.offer("1.0", "2.0")
    assert desk.show("--with", "greet==2.0").document["stdout"] == "2.0\n"


def test_without_an_index_the_skill_is_installed_and_the_command_says_so(desk: PackageDesk) -> None:
    pages, desk.index.pages = desk.index.pages, {}
    done = desk.add()
    assert done.exit_code == 0
    words = " ".join(done.stderr.split())
    assert "alpha: its packages are not locked" in words
    assert "`skillbelt update --packages alpha` tries again" in words
    assert "packages" not in desk.entry()
    assert desk.run("verify").exit_code == 0
    desk.index.pages = pages
    assert desk.run("update", "--packages", "--yes").exit_code == 0
    assert "packages" in desk.entry()


def test_offline_no_index_is_asked(desk: PackageDesk) -> None:
    desk.tree.write(USER, "offline = true\n")
    done = desk.run("add", str(desk.work / "skills" / "alpha"), "--yes")
    assert "are not locked: offline" in " ".join(done.stderr.split())
    assert desk.index.requests == []


def test_a_package_that_a_rule_denies_is_not_looked_up(desk: PackageDesk) -> None:
    desk.tree.write(USER, '[permission.install]\ngreet = "deny"\n')
    done = desk.add()
    assert "a rule denies the packages" in " ".join(done.stderr.split())
    assert desk.index.requests == []


def test_packages_that_do_not_fit_the_skill_are_a_difference(desk: PackageDesk) -> None:
    desk.add()
    desk.change(requirements=["greet>=3"])
    commands = (("verify",), ("sync", "--frozen"), ("sync", "--check"), ("sync",))
    for words in commands:
        done = desk.run(*words, "--json")
        assert done.exit_code == 2, words
        assert [one["kind"] for one in done.document["drift"]] == ["packages"]
    assert desk.run("update", "--packages", "--yes").exit_code == 0
    assert [desk.run(*words).exit_code for words in commands] == [0, 0, 0, 0]


def test_a_lock_with_other_texts_than_packages_is_refused_before_anything_runs(
    desk: PackageDesk,
) -> None:
    desk.add()
    desk.change(packages={"greet": {"version": "1.0", "hashes": ["md5:00"]}})
    asked = len(desk.index.requests)
    done = desk.show()
    assert done.exit_code != 0
    assert "skillbelt update --packages alpha" in done.document["error"]["message"]
    assert len(desk.index.requests) == asked
    assert desk.run("verify").exit_code == 2


_HASHES = [f"sha256:{'0' * 64}"]


@pytest.mark.parametrize(
    "packages",
    [
        {"greet": {"version": "1.0", "hashes": []}},
        {"greet": {"version": "1.0 --hash=x", "hashes": _HASHES}},
        {"greet\n--index-url x": {"version": "1.0", "hashes": _HASHES}},
        {"Greet": {"version": "1.0", "hashes": _HASHES}},
        {"greet": {"version": 1, "hashes": _HASHES}},
        {"greet": {"version": "1.0", "hashes": _HASHES[0]}},
        {"greet": "1.0"},
        ["greet"],
    ],
)
def test_only_names_versions_and_hashes_are_read(packages: object) -> None:
    good = {"kind": "python", "requirements": ["greet"], "packages": {}}
    assert from_json(good).packages == ()
    with pytest.raises(ValueError, match=r"\w"):
        from_json({**good, "packages": packages})


@pytest.mark.long
@given(st.recursive(st.none() | st.text() | st.integers(), lambda one: st.dictionaries(
    st.sampled_from(("kind", "requirements", "packages", "", "version", "node_modules/a"))
    | st.text(), one | st.lists(one) | st.just("node") | st.just("python"))))  # fmt: skip
def test_no_value_of_a_lock_is_read_with_another_error(value: object) -> None:
    try:
        from_json(value)
    except ValueError:
        return
    assert isinstance(value, dict)


def test_an_update_keeps_what_is_locked_for_the_same_requirements(desk: PackageDesk) -> None:
    desk.add()
    desk.offer("1.0", "2.0")
    before = desk.entry()["packages"]
    desk.write("alpha", "scripts/run.sh", "echo two\n")
    desk.commit()
    assert desk.run("update", "--yes").exit_code == 0
    assert desk.entry()["packages"] == before
    desk.write("alpha", "requirements.txt", "greet>1\n")
    desk.commit()
    assert desk.run("update", "--yes").exit_code == 0
    locked = desk.entry()["packages"]["requirements.txt"]
    assert (locked["requirements"], locked["packages"]["greet"]["version"]) == (["greet>1"], "2.0")


def test_requirements_that_were_edited_are_resolved_anew_with_a_word(desk: PackageDesk) -> None:
    desk.add()
    desk.offer("1.0", "2.0")
    desk.installed("alpha", "requirements.txt").write_text("greet>1\n")
    done = desk.show()
    assert done.document["stdout"] == "2.0\n"
    assert any("other requirements" in one for one in done.document["warnings"])


def test_a_script_with_a_block_of_its_own_is_locked_by_itself(desk: PackageDesk) -> None:
    block = "# /// script\n# dependencies = ['greet<2']\n# ///\n"
    desk.write("alpha", "scripts/own.py", block + SHOW)
    desk.commit()
    desk.offer("1.0", "2.0")
    desk.add()
    found = desk.entry()["packages"]
    versions = {path: one["packages"]["greet"]["version"] for path, one in found.items()}
    assert versions == {"requirements.txt": "2.0", "scripts/own.py": "1.0"}


def test_a_skill_without_packages_asks_no_index(desk: PackageDesk) -> None:
    desk.run("add", desk.url, "--skill", "beta", "--yes")
    assert desk.index.requests == []
    assert "packages" not in desk.document()["skills"]["beta"]


@pytest.mark.long
@needs.npm
@needs.node
def test_packages_for_node_are_locked_and_held_to(desk: PackageDesk) -> None:
    desk.tree.setenv("npm_config_registry", desk.index.url)
    publish(desk.index, "greet")
    desk.write("alpha", "package.json", '{"dependencies": {"greet": "^1.3.0"}}')
    desk.write("alpha", "scripts/show.cjs", "console.log(require('greet')());")
    desk.commit()
    desk.add()
    listed = desk.entry()["packages"]["package.json"]["packages"]["node_modules/greet"]
    assert (listed["version"], "resolved" in listed) == ("1.3.0", False)
    words = ("run", "alpha", "--yes", "--json", "--", "node", "scripts/show.cjs")
    kept = dict(desk.index.pages)
    publish(desk.index, "greet", files={"index.js": "module.exports = () => 'evil'"})
    done = desk.run(*words)
    assert done.exit_code != 0
    assert "evil" not in done.stdout
    desk.index.pages = kept
    assert desk.run(*words).document["stdout"] == "hello\n"
