"""No link leads a reader out: not in discovery, not in loading, checking or searching."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Catalog, build_manifest, load_resource, load_skill_body
from skillbelt.check.check import check_all
from skillbelt.check.fix import fix_file
from skillbelt.cli import main
from skillbelt.disclosure.body import read_file, walk
from skillbelt.errors import PathEscape, SkillbeltError
from skillbelt.files import contain
from skillbelt.files.contain import Fence, open_dir, open_file, read_handle
from skillbelt.format.skill import Skill
from skillbelt.search.text import parts_of
from tests.examples import examples
from tests.tree import Tree, codes

SKILLS = "project/.agents/skills"
MARK = "xyzzyplugh"
SECRET = f"[default]\naws_secret_access_key = {MARK}\n"


def test_a_handle_is_read_to_the_bound_and_closed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    handle = os.open(tmp_path / "a", os.O_RDONLY)
    assert read_handle(handle, 2) == b"ab"
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(handle)


def given_by(path: Path, fence: Path) -> bytes:
    return read_handle(open_file(str(path), str(fence)), 100)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A fence with a file in it, and one beside it."""
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/a").write_text("a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text(MARK)
    return tmp_path


@pytest.mark.parametrize(
    "target", ["deep/a", "./deep/../deep/a", "{}/in/deep/a", "{}/out/../in/deep/a"]
)
def test_a_link_that_stays_inside_is_followed(place: Path, target: str) -> None:
    (place / "in/A").symlink_to(target.format(place))
    assert given_by(place / "in/A", place / "in") == b"a"
    (place / "in/other").symlink_to(target.format(place))
    with pytest.raises(PathEscape, match="not called other"):
        given_by(place / "in/other", place / "in")


@pytest.mark.parametrize("target", ["../out/a", "{}/out/a", "deep/../../out/a", "again"])
def test_a_link_that_leads_out_is_not(place: Path, target: str) -> None:
    (place / "in/again").symlink_to(place / "out/a")
    (place / "in/link").symlink_to(target.format(place))
    with pytest.raises(PathEscape, match="leads out"):
        given_by(place / "in/link", place / "in")
    assert read_handle(open_file(str(place / "in/link")), 100) == MARK.encode()


def test_a_folder_on_the_way_may_not_lead_out_either(place: Path) -> None:
    (place / "in/way").symlink_to("../out")
    with pytest.raises(PathEscape):
        given_by(place / "in/way/a", place / "in")
    with pytest.raises(PathEscape):
        open_dir(str(place / "in/way"), str(place / "in"))
    (place / "in/well").symlink_to("deep")
    assert given_by(place / "in/well/a", place / "in") == b"a"


def test_a_fence_reached_by_a_link_is_the_same_fence(place: Path) -> None:
    (place / "alias").symlink_to("in")
    assert given_by(place / "alias/deep/a", place / "alias") == b"a"
    assert given_by(place / "in/deep/a", place / "alias") == b"a"
    with pytest.raises(PathEscape):
        given_by(place / "out/a", place / "alias")


def test_without_the_system_call_it_is_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.files.contain._openat2", lambda: None)
    test_a_link_that_stays_inside_is_followed(place, "deep/a")
    test_a_folder_on_the_way_may_not_lead_out_either(place)


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/self/status", "/sys/kernel/uevent_seqnum"]
)
def test_what_the_kernel_makes_up_is_no_file(tmp_path: Path, path: str) -> None:
    if not os.path.exists(path):
        pytest.fail(f"{path} is needed here")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="kernel generates it"):
        open_file(str(tmp_path / "link"))


def test_a_python_without_ctypes_tells_them_apart_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setattr("skillbelt.files.contain._generated_devices", {})
    contain._openat2.cache_clear()
    try:
        assert given_by(place / "in/deep/a", place / "in") == b"a"
        test_what_the_kernel_makes_up_is_no_file(place, "/proc/self/environ")
    finally:
        contain._openat2.cache_clear()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_regular_file_is_not_waited_for(
    tmp_path: Path, make: Callable[[str], None]
) -> None:
    make(str(tmp_path / "a"))
    for fence in ("", str(tmp_path)):
        with pytest.raises(OSError, match="not a regular file"):
            open_file(str(tmp_path / "a"), fence)


def test_a_fence_is_opened_once_and_again_after_it_was_closed(place: Path) -> None:
    with Fence(str(place / "in")) as fence:
        for _ in range(2):
            os.close(fence.open_file(str(place / "in/deep/a")))
            fence.close()


# --- through every door --------------------------------------------------------------------------


def linked(tree: Tree, target: str | os.PathLike[str], name: str = "aws") -> Path:
    folder = tree.path(f"{SKILLS}/{name}")
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(target)
    return folder


@pytest.mark.parametrize("git", [True, False])
@pytest.mark.parametrize(
    "setting", [{}, {"trust_project": "ask"}, {"follow_symlinks": False}, {"strict": True}]
)
def test_a_projects_skill_file_that_leads_out_is_not_read(
    tree: Tree, git: bool, setting: dict[str, object]
) -> None:
    if git:
        tree.git()
    tree.write("home/.aws/credentials", SECRET)
    folder = linked(tree, "../../../../home/.aws/credentials")
    catalog = tree.catalog(**setting)
    assert list(catalog) == []
    assert codes(catalog) == ["link-outside"]
    [said] = catalog.diagnostics
    assert (said.path, said.remedy != "") == (str(folder / "SKILL.md"), True)


def test_the_environment_of_the_process_is_no_skill(tree: Tree) -> None:
    for where in (SKILLS, "home/.claude/skills"):
        tree.path(f"{where}/env").mkdir(parents=True)
        tree.path(f"{where}/env/SKILL.md").symlink_to("/proc/self/environ")
    tree.setenv("OPENAI_API_KEY", MARK)
    done = tree.run("prompt")
    assert (done.exit_code, MARK in done.stdout) == (0, False)
    assert sorted(codes(tree.catalog())) == ["link-outside", "unreadable"]


def test_the_command_line_shows_nothing_of_it(tree: Tree) -> None:
    tree.write("home/.aws/credentials", SECRET)
    linked(tree, tree.path("home/.aws/credentials"))
    for command in (
        ["list"], ["prompt"], ["show", "aws"], ["search", MARK], ["load", "aws"], ["check"],
        ["check", "--fix", "."], ["check", ".agents/skills/aws/SKILL.md"], ["doctor"],
        ["--path", ".agents/skills", "list"],
    ):  # fmt: skip
        done = tree.run(*command)
        assert MARK not in done.stdout + done.stderr, command
    assert "link-outside" in tree.run("check").stdout
    assert tree.path("home/.aws/credentials").read_text() == SECRET


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize(
    "target", [".env", ".git/config", ".git/SKILL.md", "notes.md", "keys/SKILL.md", "hop/SKILL.md"]
)
def test_no_file_of_the_project_but_a_skills_is_told_as_one(
    tree: Tree, target: str, loose: bool
) -> None:
    tree.git()
    text = f"---\nname: gitc\ndescription: {MARK}\n---\n{MARK}\n"
    if target.startswith("keys"):
        text = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MARK}\n"
    if target.startswith("hop"):
        tree.write("project/.env", text)
        tree.path("project/hop").mkdir()
        tree.path("project/hop/SKILL.md").symlink_to("../.env")
    else:
        tree.write(f"project/{target}", text)
    folder = tree.path(f"{SKILLS}/gitc")
    folder.mkdir(parents=True)
    link = folder / ("skill.md" if loose else "SKILL.md")
    link.symlink_to(f"../../../{target}")
    catalog = tree.catalog(loose_file_name=loose)
    assert list(catalog) == []
    assert "link-outside" in codes(catalog)
    for command in (["list"], ["prompt"], ["search", MARK], ["load", "gitc"], ["check"]):
        done = tree.run(*command)
        assert MARK not in done.stdout.replace(f"'{MARK}'", "") + done.stderr, command
    skill = Skill("gitc", "gitc", "", str(link), fence=str(tree.project))
    for take in (lambda: load_skill_body(skill), lambda: read_file(skill, link.name, 1000)):
        with pytest.raises(SkillbeltError) as refused:
            take()
        assert MARK not in str(refused.value)


def test_what_the_user_links_to_in_a_folder_of_their_own_may_have_any_name(tree: Tree) -> None:
    tree.write("store/hash-hm_pdf", "---\nname: pdf\ndescription: Reads.\n---\nBody.\n")
    tree.write("store/hash-hm_raw", f"{MARK}\n")
    for name in ("pdf", "raw"):
        tree.path(f"home/.claude/skills/{name}").mkdir(parents=True)
        tree.path(f"home/.claude/skills/{name}/SKILL.md").symlink_to(
            tree.path(f"store/hash-hm_{name}")
        )
    catalog = tree.catalog()
    assert list(catalog) == ["pdf"]
    assert MARK not in tree.run("prompt").stdout


@pytest.mark.parametrize("link", [".agents", ".agents/skills", ".agents/skills/pdf"])
def test_a_folder_that_leads_out_of_the_project_is_not_searched(tree: Tree, link: str) -> None:
    there = tree.path("elsewhere") / link
    shutil.copytree(tree.skill("made/pdf", text=MARK), tree.path("elsewhere/.agents/skills/pdf"))
    (tree.project / link).parent.mkdir(parents=True, exist_ok=True)
    (tree.project / link).symlink_to(there)
    catalog = tree.catalog()
    assert list(catalog) == []
    assert codes(catalog) == ["link-outside"]


def test_a_link_to_another_folder_of_the_worktree_is_followed(tree: Tree) -> None:
    tree.git()
    tree.skill("project/shared/pdf", text="Body.\n")
    (tree.project / "sub/.claude/skills").mkdir(parents=True)
    (tree.project / "sub/.claude/skills/pdf").symlink_to("../../../shared/pdf")
    (tree.project / "sub/.claude/skills/csv").mkdir()
    (tree.project / "sub/.claude/skills/csv/SKILL.md").symlink_to(
        tree.project / "shared/pdf/SKILL.md"
    )
    catalog = tree.catalog("project/sub", nested=True)
    assert list(catalog) == ["pdf"]
    assert load_skill_body(catalog["pdf"]).text == "Body.\n"
    assert load_skill_body(catalog.shadowed[0]).text == "Body.\n"


def test_a_project_below_a_home_that_is_a_worktree_ends_at_itself(tree: Tree) -> None:
    tree.git("home")
    tree.write("home/.aws/credentials", SECRET)
    folder = tree.path("home/dl/evil/.agents/skills/aws")
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to("../../../../../.aws/credentials")
    catalog = tree.catalog("home/dl/evil")
    assert (list(catalog), codes(catalog)) == ([], ["link-outside"])


def test_a_folder_that_only_the_project_names_is_its_own_fence(tree: Tree) -> None:
    tree.write("secret.md", f"---\nname: aws\ndescription: {MARK}\n---\n")
    tree.path("elsewhere/aws").mkdir(parents=True)
    tree.path("elsewhere/aws/SKILL.md").symlink_to(tree.path("secret.md"))
    tree.write("project/skillbelt.toml", 'paths = ["../elsewhere"]\n')
    catalog = tree.catalog()
    assert (list(catalog), codes(catalog)) == ([], ["link-outside"])
    assert list(tree.catalog(paths=[tree.path("elsewhere")])) == ["aws"]


def test_settings_that_lie_outside_the_project_are_not_read(tree: Tree) -> None:
    tree.write("home/secret.toml", f'[tool.skillbelt]\n{MARK} = "{MARK}"\n')
    (tree.project / "pyproject.toml").symlink_to("../home/secret.toml")
    assert tree.run("list").exit_code == 0
    (tree.project / "skillbelt.toml").symlink_to("../home/secret.toml")
    done = tree.run("list")
    assert (done.exit_code, "leads out of" in done.stderr) == (2, True)
    assert MARK not in done.stdout + done.stderr
    (tree.project / "skillbelt.toml").unlink()
    tree.write("project/config/own.toml", "strict = true\n")
    (tree.project / "skillbelt.toml").symlink_to("config/own.toml")
    assert tree.settings().strict


# --- the user's own ------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
@pytest.mark.parametrize("where", ["home/.claude/skills", "named"])
def test_the_users_own_links_are_listed_and_load(tree: Tree, where: str, whole: bool) -> None:
    """Stow, Nix and dotfile managers create such links."""
    store = tree.skill("dotfiles/pdf", text="Body.\n")
    tree.write("dotfiles/pdf/reference/a.md", "More.\n")
    own = tree.path(where)
    (own if whole else own / "pdf").mkdir(parents=True)
    if whole:
        (own / "pdf").symlink_to(store)
    else:
        tree.path("hop").symlink_to(store / "SKILL.md")
        (own / "pdf/SKILL.md").symlink_to(tree.path("hop"))
    catalog = tree.catalog(paths=[tree.path("named")] if where == "named" else [])
    skill = catalog["pdf"]
    assert not catalog.problems
    assert load_skill_body(skill).text == "Body.\n"
    assert skill.frontmatter.name == "pdf"
    plain = build_manifest(str(store)).hash if whole else build_manifest(own_copy(tree, store)).hash
    assert skill.files.digest() == plain
    assert "Body" in parts_of(skill).body


def own_copy(tree: Tree, store: Path) -> str:
    folder = tree.path("copy/pdf")
    folder.mkdir(parents=True)
    shutil.copy(store / "SKILL.md", folder)
    return str(folder)


def test_a_linked_skill_file_is_part_of_what_was_approved(tree: Tree) -> None:
    file = tree.write("dotfiles/one.md", "---\nname: a\ndescription: b\n---\n1\n")
    tree.path("home/.claude/skills/a").mkdir(parents=True)
    tree.path("home/.claude/skills/a/SKILL.md").symlink_to(file)
    skill = tree.catalog()["a"]
    before = skill.files.digest()
    file.write_text(file.read_text().replace("1", "2"))
    assert skill.files.digest() != before


def test_a_home_that_is_the_project_keeps_its_links(tree: Tree) -> None:
    tree.skill("store/pdf")
    tree.path("home/.claude/skills").mkdir(parents=True)
    tree.path("home/.claude/skills/pdf").symlink_to(tree.path("store/pdf"))
    assert list(tree.catalog("home")) == ["pdf"]


# --- whatever the links --------------------------------------------------------------------------


class Maze:
    """A project of random links, some of which lead out to files that all hold the mark."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.project, self.chance = root, root / "project", random.Random(seed)
        shutil.rmtree(root, ignore_errors=True)
        self.inside: list[Path] = [self.project / "plain"]
        self.outside = [
            root / "home/.aws/credentials", root / "out/skill/SKILL.md", root / "out/skill",
            root / "out", root / "out/skill/reference/r.md", root / "home",
            Path("/proc/self/environ"),
        ]  # fmt: skip
        for path in (p for p in self.outside if p.suffix or p.name == "credentials"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"---\nname: {MARK}\ndescription: {MARK}\n---\n{SECRET}")
        self.plain("plain")
        for client in (".agents", ".claude", ".cursor"):
            self.client(self.project / client / "skills")

    def client(self, skills: Path) -> None:
        if self.chance.random() < 0.2:
            place = self.chance.choice([skills, skills.parent])
            place.parent.mkdir(parents=True, exist_ok=True)
            self.link(place)
            return
        for number in range(3):
            folder = skills / f"s{number}"
            skills.mkdir(parents=True, exist_ok=True)
            if self.chance.random() < 0.3:
                self.link(folder)
            else:
                self.skill(folder)

    def plain(self, name: str) -> None:
        folder = self.project / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Fine.\n---\nBody.\n")
        (folder / "a.md").write_text("Fine.\n")
        self.inside += [folder / "SKILL.md", folder / "a.md"]

    def skill(self, folder: Path) -> None:
        for below in ("agents", "reference", "scripts"):
            if self.chance.random() < 0.3:
                folder.mkdir(exist_ok=True)
                self.link(folder / below)
            else:
                (folder / below).mkdir(parents=True)
        text = f"---\nname: {folder.name}\ndescription: See [r](reference/r.md).\n---\n[r](r.md)\n"
        for path in ("SKILL.md", "agents/openai.yaml", "reference/r.md", "scripts/s.py", "r.md"):
            with suppress(OSError):
                if self.chance.random() < 0.5:
                    self.link(folder / path)
                elif not (folder / path).parent.is_symlink():
                    (folder / path).write_text(text)
                    self.inside.append(folder / path)

    def link(self, at: Path) -> None:
        target = self.chance.choice([*self.outside, *self.inside])
        said = str(target) if self.chance.random() < 0.5 else os.path.relpath(target, at.parent)
        if not at.parent.is_symlink():
            at.symlink_to(said)
            self.inside.append(at)


def read_through(maze: Maze) -> Iterator[object]:
    """All that a reader of the project is given, by every way there is."""
    catalog = Catalog(maze.project, nested=True)
    skills = [*catalog.values(), *catalog.shadowed]
    yield skills
    yield [one.message for one in catalog.diagnostics]
    for skill in skills:
        yield from read_skill(skill)
    found = [str(path) for path in maze.project.rglob("SKILL.md")]
    yield check_all(found, fence=lambda _: str(maze.project))
    yield [fix_file(path, fence=str(maze.project)) for path in found]
    yield [result.skill for result in catalog.search(MARK)]


def read_skill(skill: Skill) -> Iterator[object]:
    yield [skill.fields, parts_of(skill), build_manifest(skill.dir, None, skill.fence)]
    with suppress(SkillbeltError):
        yield load_skill_body(skill)
    names = [
        *walk(skill),
        "SKILL.md",
        "r.md",
        "reference/r.md",
        "agents/openai.yaml",
        "scripts/s.py",
    ]
    for name in names:
        with suppress(SkillbeltError):
            yield read_file(skill, name, 10_000)
        with suppress(SkillbeltError):
            yield load_resource(skill, name)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_nothing_outside_is_ever_read(tree: Tree, seed: int) -> None:
    tree.setenv("HELD", MARK)
    maze = Maze(tree.path("maze"), seed)
    before = {path: path.read_bytes() for path in maze.outside if path.is_file()}
    for given_out in read_through(maze):
        assert MARK not in repr(given_out)
    assert {path: path.read_bytes() for path in before} == before


def test_nothing_outside_is_shown_by_the_command_line(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.setenv("HELD", MARK)
    for seed in range(8):
        maze = Maze(tree.path("maze"), seed)
        monkeypatch.chdir(maze.project)
        names = list(Catalog(maze.project))
        for command in (["list", "-v"], ["prompt"], ["check", "-v"], *(["show", n] for n in names)):
            with suppress(SystemExit):
                main(command)
            shown = capsys.readouterr()
            assert MARK not in shown.out + shown.err, (seed, command)
