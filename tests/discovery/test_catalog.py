from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillbelt import Catalog, Changes, ConfigError, Skill, SkillNotFound, discover_skills
from skillbelt.discovery.describe import diagnostics_json, skill_json
from skillbelt.discovery.index import MemoryIndex
from skillbelt.trust import Trust
from tests.bounds import bounds
from tests.discovery.sources.server import running
from tests.tree import Tree, codes

AGENTS = "project/.agents/skills"
CLAUDE = "project/.claude/skills"


# As a mapping


def test_a_catalogue_is_a_mapping_in_name_order(tree: Tree) -> None:
    """Case 1."""
    for name in ("b", "a", "c"):
        tree.skill(f"{AGENTS}/{name}")
    catalog = tree.catalog()
    assert isinstance(catalog, Mapping)
    assert list(catalog) == ["a", "b", "c"]
    assert [skill.name for skill in catalog.values()] == ["a", "b", "c"]
    assert len(catalog) == 3
    assert "a" in catalog
    assert "x" not in catalog
    assert catalog.get("x") is None
    assert isinstance(catalog["a"], Skill)
    with pytest.raises(KeyError):
        catalog["x"]


def test_names_are_ordered_across_roots(tree: Tree) -> None:
    for path in ("home/.agents/skills/a", f"{AGENTS}/c", f"{CLAUDE}/b"):
        tree.skill(path)
    assert list(tree.catalog()) == ["a", "b", "c"]


def test_making_one_reads_nothing(tree: Tree) -> None:
    catalog = tree.catalog()
    assert repr(catalog) == f"<Catalog of {tree.project}: not scanned yet>"
    tree.skill(f"{AGENTS}/a")
    assert list(catalog) == ["a"]
    assert repr(catalog) == f"<Catalog of {tree.project}: 1 skills>"


def test_as_a_mapping_it_is_the_state_of_the_last_scan(tree: Tree) -> None:
    catalog = tree.catalog()
    assert list(catalog) == []
    tree.skill(f"{AGENTS}/a")
    assert list(catalog) == []
    assert [skill.name for skill in catalog.all()] == ["a"]
    assert list(catalog) == ["a"]


def test_find_gives_the_skill_or_the_closest_names(tree: Tree) -> None:
    for name in ("csv-report", "json-diff"):
        tree.skill(f"{AGENTS}/{name}")
    catalog = tree.catalog()
    assert catalog.find("csv-report") is catalog["csv-report"]
    with pytest.raises(SkillNotFound) as caught:
        catalog.find("csv-reprot")
    assert caught.value.closest == ("csv-report",)


def test_dirs_are_the_folders_of_all_skills(tree: Tree) -> None:
    folders = [tree.skill(path) for path in (f"{CLAUDE}/a", f"{AGENTS}/b")]
    assert tree.catalog().dirs() == sorted(map(str, folders))


def test_problems_are_the_diagnostics_to_act_on(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/b")
    tree.path(f"{AGENTS}/c").symlink_to("b")
    tree.write(f"{AGENTS}/a/skill.md", "x")
    catalog = tree.catalog()
    assert sorted(codes(catalog)) == ["file-name", "same-folder"]
    assert [problem.code for problem in catalog.problems] == ["file-name"]


def test_a_wrong_setting_is_an_error_at_once(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="did you mean 'nested'"):
        tree.catalog(nestd=True)


def test_paths_may_be_one_path_or_path_objects(tree: Tree) -> None:
    tree.skill("x/a")
    tree.skill("y/b")
    x, y = tree.path("x"), tree.path("y")
    assert list(tree.catalog(paths=x)) == ["a"]
    assert list(tree.catalog(paths=str(x))) == ["a"]
    assert list(tree.catalog(paths=[x, str(y)], cache_dir=tree.path("cache"))) == ["a", "b"]
    assert tree.path("cache").is_dir()


def test_discover_skills_is_the_short_way(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/b")
    tree.skill("home/.claude/skills/a")
    assert [skill.name for skill in discover_skills(tree.project)] == ["a", "b"]
    settings = tree.settings(user_roots=False)
    assert [skill.name for skill in discover_skills(settings=settings)] == ["b"]


def test_without_the_index_nothing_is_written(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/a")
    assert list(tree.catalog(use_index=False)) == ["a"]
    assert not (tree.home / ".cache").exists()


def test_an_index_may_be_given(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/a")
    index = MemoryIndex()
    assert list(tree.catalog(index=index)) == ["a"]
    assert len(index.load(str(tree.project))) == 1


# Which one wins


def test_precedence_of_scopes(tree: Tree) -> None:
    """Explicit, then project, then user."""
    folders = [tree.skill(path) for path in ("x/s", f"{AGENTS}/s", "home/.agents/skills/s")]
    for strongest in (0, 1, 2):
        skill = tree.catalog(paths=["../x"])["s"]
        assert (skill.dir, skill.scope) == (
            str(folders[strongest]),
            ("explicit", "project", "user")[strongest],
        )
        shutil.rmtree(folders[strongest])


def test_precedence_of_clients(tree: Tree) -> None:
    order = [".skillbelt", ".agents", ".claude", ".codex", ".opencode", ".github", ".cursor"]
    for client in reversed(order):
        tree.skill(f"project/{client}/skills/s")
    for client in order:
        assert tree.catalog()["s"].dir == str(tree.path(f"project/{client}/skills/s"))
        shutil.rmtree(tree.path(f"project/{client}"))


def test_the_nearest_folder_wins_whatever_the_client(tree: Tree) -> None:
    """Case 16."""
    tree.git()
    tree.skill("project/.skillbelt/skills/s")
    near = tree.skill("project/a/b/.cursor/skills/s")
    tree.skill("project/a/.agents/skills/t")
    tree.skill(".agents/skills/outside")
    (tree.project / "a/b/c").mkdir()
    catalog = tree.catalog("project/a/b/c")
    assert list(catalog) == ["s", "t"]
    assert catalog["s"].dir == str(near)


def test_outside_git_the_projects_own_folder_is_found(tree: Tree) -> None:
    """Case 17."""
    tree.skill(f"{AGENTS}/s")
    assert list(tree.catalog()) == ["s"]


def test_in_one_root_the_first_path_wins(tree: Tree) -> None:
    first = tree.skill(f"{AGENTS}/a", name="s")
    tree.skill(f"{AGENTS}/b", name="s")
    assert tree.catalog()["s"].dir == str(first)


def test_singular_and_plural_folders(tree: Tree) -> None:
    """Case 14."""
    tree.skill("project/.opencode/skill/a")
    tree.skill("project/.opencode/skills/b")
    assert list(tree.catalog()) == ["a", "b"]


@pytest.mark.parametrize("second", [".claude", ".cursor"])
def test_a_shadowed_skill_is_kept_and_both_paths_are_named(tree: Tree, second: str) -> None:
    """Case 11, in the order of the clients."""
    made = [tree.skill(f"project/{name}/skills/s") for name in (second, ".agents")]
    loser, winner = made
    for _ in range(20):
        catalog = tree.catalog(use_index=False)
        assert len(catalog) == 1
        assert catalog["s"].location == f"{winner}/SKILL.md"
        assert catalog["s"].shadows == (f"{loser}/SKILL.md",)
        assert [skill.location for skill in catalog.shadowed] == [f"{loser}/SKILL.md"]
        [problem] = catalog.problems
        assert (problem.code, problem.path) == ("shadowed", f"{loser}/SKILL.md")
        assert f"{winner}/SKILL.md" in problem.message
        assert f"{loser}/SKILL.md" in problem.message


def test_the_order_of_scopes_can_be_turned_round(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/s")
    tree.skill("home/.agents/skills/s")
    order = ["user", "project", "explicit", "remote", "builtin"]
    assert tree.catalog()["s"].scope == "project"
    assert tree.catalog(scope_order=order)["s"].scope == "user"


def test_three_of_one_name_are_one_winner_and_two_losers(tree: Tree) -> None:
    for name in (".agents", ".claude", ".cursor"):
        tree.skill(f"project/{name}/skills/s")
    catalog = tree.catalog()
    assert [Path(path).parts[-4] for path in catalog["s"].shadows] == [".claude", ".cursor"]
    assert codes(catalog) == ["shadowed", "shadowed"]


def test_the_same_folder_reached_twice_counts_once(tree: Tree) -> None:
    """Case 12."""
    tree.skill(f"{AGENTS}/s")
    tree.path("project/.claude").mkdir()
    tree.path(CLAUDE).symlink_to(tree.path(AGENTS))
    catalog = tree.catalog()
    assert list(catalog) == ["s"]
    assert catalog["s"].shadows == ()
    assert codes(catalog) == ["same-folder"]
    assert catalog.problems == ()


def test_an_explicit_path_inside_a_standard_root_counts_once(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/s")
    catalog = tree.catalog(paths=[".agents/skills/s"])
    assert [(skill.name, skill.scope) for skill in catalog.values()] == [("s", "explicit")]
    assert codes(catalog) == ["same-folder"]
    assert catalog.problems == ()


def test_explicit_paths_that_do_not_exist_are_named(tree: Tree) -> None:
    """Case 18."""
    tree.skill(f"{AGENTS}/s")
    catalog = tree.catalog(paths=["nowhere"])
    assert list(catalog) == ["s"]
    assert [(p.code, p.path) for p in catalog.problems] == [
        ("root-missing", str(tree.project / "nowhere"))
    ]


def test_skills_root_is_an_explicit_folder(tree: Tree) -> None:
    tree.skill("x/s")
    tree.setenv("SKILLS_ROOT", tree.path("x"))
    assert tree.catalog()["s"].scope == "explicit"


def test_switches(tree: Tree) -> None:
    """Case 15."""
    tree.skill(f"{CLAUDE}/c")
    tree.skill(f"{AGENTS}/a")
    tree.skill("project/.skillbelt/skills/n")
    tree.skill("home/.agents/skills/u")
    assert list(tree.catalog()) == ["a", "c", "n", "u"]
    assert list(tree.catalog(disabled_clients=["claude"])) == ["a", "n", "u"]
    assert list(tree.catalog(disabled_clients=["*"])) == ["n"]
    assert list(tree.catalog(project_roots=False)) == ["u"]
    assert list(tree.catalog(user_roots=False)) == ["a", "c", "n"]
    assert list(tree.catalog(project_roots=False, user_roots=False)) == []


# Kept true


def test_all_sees_deleted_edited_and_new_skills(tree: Tree) -> None:
    """Cases 20, 21 and 22."""
    for name in ("a", "b"):
        tree.skill(f"{AGENTS}/{name}")
    catalog = tree.catalog()
    assert [skill.name for skill in catalog.all()] == ["a", "b"]
    tree.path(f"{AGENTS}/a/SKILL.md").unlink()
    tree.skill(f"{AGENTS}/b", "Something else.")
    tree.skill("project/.cursor/skills/c")
    assert [(s.name, s.description) for s in catalog.all()] == [
        ("b", "Something else."),
        ("c", "Does a thing."),
    ]
    assert sum(scan.files_read for scan in catalog.scans) == 2


def test_an_answer_may_be_as_old_as_wanted(tree: Tree) -> None:
    catalog = tree.catalog(rescan_seconds=3600)
    assert catalog.all() == []
    tree.skill(f"{AGENTS}/a")
    assert catalog.all() == []
    assert [skill.name for skill in catalog.discover()] == ["a"]


def test_refresh_says_what_changed(tree: Tree) -> None:
    """Case 22."""
    for name in ("a", "b", "c"):
        tree.skill(f"{AGENTS}/{name}")
    catalog = tree.catalog()
    assert catalog.refresh() == Changes(added=("a", "b", "c"))
    assert not catalog.refresh()
    shutil.rmtree(tree.path(f"{AGENTS}/a"))
    tree.skill(f"{AGENTS}/b", "Something else.")
    tree.skill(f"{AGENTS}/d")
    changes = catalog.refresh()
    assert changes == Changes(added=("d",), changed=("b",), removed=("a",))
    assert changes


def test_refresh_says_what_broke_and_what_is_fixed(tree: Tree) -> None:
    path = tree.write("project/.agents/skills/a/SKILL.md", "---\n- a\n- b\n---\nText.\n")
    catalog = tree.catalog()
    catalog.discover()
    tree.skill("project/.agents/skills/a")
    found = catalog.refresh()
    assert (found.changed, found.broken, found.fixed) == (("a",), (), (str(path),))
    path.write_text("---\n- a\n- b\n---\nText.\n")
    [said] = catalog.refresh().broken
    assert (said.path, said.code) == (str(path), "yaml-unreadable")
    assert said.remedy
    path.unlink()
    assert catalog.refresh() == Changes(removed=("a",))


def test_a_skill_that_takes_over_a_name_is_a_change(tree: Tree) -> None:
    tree.skill(f"{CLAUDE}/s", "Claude's.")
    catalog = tree.catalog()
    catalog.refresh()
    tree.skill(f"{AGENTS}/s", "Agents'.")
    assert catalog.refresh().changed == ("s",)
    assert catalog["s"].description == "Agents'."


def test_a_second_process_reads_no_file(tree: Tree) -> None:
    for number in range(10):
        tree.skill(f"{AGENTS}/s{number}")
    reads = [sum(scan.files_read for scan in tree.catalog().scans) for _ in range(2)]
    assert reads == [10, 0]


def test_other_rules_for_reading_read_again(tree: Tree) -> None:
    tree.write(f"{AGENTS}/x/SKILL.md", "Just a body.")
    assert list(tree.catalog()) == ["x"]
    assert list(tree.catalog(strict=True)) == []
    bounds(derived_description_chars=6)
    assert tree.catalog()["x"].description != "Just a body."
    assert list(tree.catalog()) == ["x"]


# Who may see what


def test_available_is_what_a_model_may_be_shown(tree: Tree) -> None:
    """Case 37."""
    tree.skill(f"{AGENTS}/a")
    tree.skill(f"{AGENTS}/b", None)
    tree.skill(f"{AGENTS}/c", disable_model_invocation=True)
    tree.skill(f"{AGENTS}/d", metadata={"internal": True})
    catalog = tree.catalog()
    assert [skill.name for skill in catalog.available()] == ["a"]
    assert list(catalog) == ["a", "b", "c", "d"]


def test_a_permit_decides_for_each_agent(tree: Tree) -> None:
    for name in ("a", "b"):
        tree.skill(f"{AGENTS}/{name}")
    asked: list[tuple[str | None, str]] = []

    def permit(agent: str | None, skill: Skill) -> bool:
        asked.append((agent, skill.name))
        return agent != "writer" or skill.name == "b"

    catalog = Catalog(tree.project, permit=permit)
    assert [skill.name for skill in catalog.available("writer")] == ["b"]
    assert [skill.name for skill in catalog.available()] == ["a", "b"]
    assert asked == [("writer", "a"), ("writer", "b"), (None, "a"), (None, "b")]
    assert len(catalog.all()) == 2


# The same tree gives the same


def document(catalog: Catalog) -> str:
    skills = [skill_json(skill) for skill in (*catalog.all(), *catalog.shadowed)]
    return json.dumps([skills, diagnostics_json(catalog.diagnostics)])


def test_the_order_in_which_a_tree_was_made_does_not_show(tree: Tree) -> None:
    """Case 11: twenty times the same tree, made in another order each time."""
    skills = [
        (f"project/.{client}/skills/{group}{name}", f"s{number % 7}")
        for client in ("agents", "claude", "cursor", "codex")
        for group in ("", "group/")
        for number, name in enumerate(("a", "b", "B", "é", "a-b", "z"))
    ]
    broken = [("project/.agents/skills/bad/SKILL.md", b"---\nname: [\xff\n---\n"),
              ("project/.claude/skills/odd/skill.md", b"x")]  # fmt: skip
    shuffle = random.Random(1).shuffle
    documents = set()
    for _ in range(20):
        shuffle(skills)
        for path, name in skills:
            tree.skill(path, name=name)
        for path, data in broken:
            tree.write(path, data)
        os.symlink("a", tree.path(f"{AGENTS}/link"))
        documents |= {document(tree.catalog()), document(tree.catalog(use_index=False))}
        shutil.rmtree(tree.project)
        tree.project.mkdir()
    assert len(documents) == 1
    assert len(json.loads(documents.pop())[0]) == len(skills)


def test_settings_and_single_settings_together_are_refused(tree: Tree) -> None:
    with pytest.raises(TypeError, match="not both"):
        Catalog(settings=tree.settings(), nested=True)


def test_a_relative_archive_is_relative_to_the_project(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nname: packed\ndescription: Lies in an archive.\n---\n"
    with zipfile.ZipFile(tree.path("project/skills.zip"), "w") as archive:
        archive.writestr("packed/SKILL.md", text)
    monkeypatch.chdir(tree.root)
    assert list(tree.catalog(paths=["skills.zip"])) == ["packed"]


def test_an_index_that_can_not_be_used_is_a_note(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/a")
    tree.write("home/file", "in the way")
    catalog = tree.catalog(cache_dir=str(tree.path("home/file/cache")))
    assert list(catalog) == ["a"]
    [note] = catalog.diagnostics
    assert (note.code, note.severity) == ("index-unusable", "info")
    assert catalog.problems == ()


def test_threads_may_ask_at_once(tree: Tree) -> None:
    for number in range(30):
        tree.skill(f"{AGENTS}/s{number}")
    catalog = tree.catalog()
    with ThreadPoolExecutor(8) as pool:
        counts = {len(found) for found in pool.map(lambda _: catalog.all(), range(40))}
    assert counts == {30}
    assert catalog.diagnostics == ()


def test_current_is_the_state_and_another_scan_gives_another(tree: Tree) -> None:
    tree.skill(f"{AGENTS}/a")
    catalog = tree.catalog(rescan_seconds=3600.0)
    first = catalog.current()
    assert list(first) == ["a"]
    assert catalog.current() is first
    tree.skill(f"{AGENTS}/b")
    catalog.refresh()
    assert list(catalog.current()) == ["a", "b"]


def test_a_scan_that_takes_long_is_not_repeated_at_once(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.skill(f"{AGENTS}/a")
    monkeypatch.setattr("skillbelt.discovery.catalog._CHEAP_SECONDS", 0.0)
    bounds(max_scan_share=1e-09)
    catalog = tree.catalog()
    first = catalog.current()
    tree.skill(f"{AGENTS}/b")
    assert catalog.current() is first
    assert list(catalog.all()) == list(first.values())
    catalog.refresh()
    assert list(catalog.current()) == ["a", "b"]


def test_a_project_nobody_trusts_has_no_host_called(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    with running() as server:
        server.pages["/SKILL.md"] = b"---\nname: far\ndescription: d\n---\n"
        tree.write("project/skillbelt.toml", f'urls = ["{server.url}/SKILL.md"]\n')
        catalog = tree.catalog()
        assert [skill.name for skill in catalog.all()] == ["pdf"]
        assert [d.code for d in catalog.diagnostics] == ["untrusted-source"]
        assert server.requests == []
        Trust(catalog.settings.state_dir).add(str(tree.project))
        # Trusting a project does not allow it to contact this machine.
        assert [d.code for d in tree.catalog().diagnostics] == ["remote-private"]
        assert server.requests == []
        trusted = tree.catalog(private_sources=["127.0.0.1"])
        assert [skill.name for skill in trusted.all()] == ["far", "pdf"]


def test_watching_takes_no_more_than_its_share(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = tree.catalog()
    catalog.discover()
    began = catalog._scanned_at
    monkeypatch.setattr(catalog, "_pause", lambda: 60.0)
    monkeypatch.setattr("skillbelt.discovery.catalog.ticks", lambda *_: iter([False, False, False]))
    tree.skill("project/.agents/skills/new")
    assert list(catalog.watch()) == []
    assert catalog._scanned_at == began


def test_a_change_that_is_signalled_is_not_kept_waiting(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tree.catalog()
    catalog.discover()
    monkeypatch.setattr(catalog, "_pause", lambda: 3600.0)

    def ticks(*_: object) -> Iterator[bool]:
        tree.skill("project/.agents/skills/new")
        yield True
        tree.skill("project/.agents/skills/newer")
        yield from (True, False)

    monkeypatch.setattr("skillbelt.discovery.catalog.ticks", ticks)
    assert list(catalog.watch()) == [Changes(added=("new",))]
