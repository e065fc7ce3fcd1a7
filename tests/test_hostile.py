"""One bad neighbour must cost nobody else anything: not a skill, not an exception, not a wait."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt import Catalog, Skill, check_file
from skillbelt.values import Diagnostic
from tests import unprivileged
from tests.hostile import SHAPES, UNREADABLE, Shape
from tests.tree import Tree

NEIGHBOURS = 20
MOST_TIMES = 50  # what a bad skill may cost, beside twenty good ones
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])


def clean(root: Path) -> set[str]:
    """Twenty good skills, before and after the bad one in the order of the walk."""
    names = [f"{'a' if n % 2 else 'z'}-{n}" for n in range(NEIGHBOURS)]
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Fine.\n---\nText.\n"
        )
    return set(names)


@pytest.fixture
def root(tree: Tree) -> Iterator[Path]:
    """A folder for skills that is gone after the test, for some shapes are large."""
    folder = tree.path("skills")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def place(shape: Shape, root: Path) -> Path:
    folder = root / shape.name
    folder.mkdir()
    shape.write(str(folder))
    return folder


def catalogue(tree: Tree, root: Path) -> Catalog:
    return tree.catalog(paths=[root], project_roots=False, user_roots=False, use_index=False)


def below(folder: Path, path: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def about(folder: Path, diagnostics: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    return [found for found in diagnostics if below(folder, found.path)]


def at(folder: Path, skills: list[Skill]) -> Skill | None:
    return next((skill for skill in skills if below(folder, skill.location)), None)


@every_shape
def test_neighbours_are_all_found(shape: Shape, tree: Tree, root: Path) -> None:
    names = clean(root)
    folder = place(shape, root)
    catalog = catalogue(tree, root)
    others = [skill for skill in catalog.discover() if not below(folder, skill.location)]
    assert {skill.name for skill in others} == names
    assert all(skill.description == "Fine." for skill in others)
    assert all(below(folder, found.path) for found in catalog.diagnostics)


@every_shape
def test_shape_itself_gives_what_is_promised(shape: Shape, tree: Tree, root: Path) -> None:
    folder = place(shape, root)
    catalog = catalogue(tree, root)
    skill = at(folder, catalog.discover())
    if shape.description is None:
        assert skill is None
    else:
        assert skill is not None
        assert skill.description == shape.description
        assert skill.model_visible == bool(shape.description)
    codes = [found.code for found in about(folder, catalog.diagnostics)]
    assert shape.code in codes if shape.code else not codes


@every_shape
def test_every_diagnostic_says_where_and_what_to_do(shape: Shape, tree: Tree, root: Path) -> None:
    folder = place(shape, root)
    catalog = catalogue(tree, root)
    for found in about(folder, catalog.diagnostics):
        assert below(folder, found.path)
        assert found.line is None or found.line >= 1
        assert found.message
        assert found.remedy
        assert "\n" not in str(found)


@every_shape
def test_check_reports_it_too(shape: Shape, root: Path) -> None:
    folder = place(shape, root)
    file = next(iter(sorted(folder.glob("[Ss][Kk]*"))), folder / "SKILL.md")
    codes = [found.code for found in check_file(str(file), strict=True).diagnostics]
    if shape.rule:
        assert shape.rule in codes
    if shape.code and shape.code != "link-cycle":
        assert codes


@every_shape
def test_what_is_kept_in_the_index_is_the_same(shape: Shape, tree: Tree, root: Path) -> None:
    place(shape, root)
    first, second = (
        tree.catalog(paths=[root], project_roots=False, user_roots=False) for _ in range(2)
    )
    assert first.discover() == second.discover()
    assert first.diagnostics == second.diagnostics


@pytest.mark.long
def test_no_shape_takes_long(tree: Tree, root: Path) -> None:
    """Each is compared with its neighbours alone, by the best of three."""
    clean(root)

    def cost() -> float:
        taken = []
        for _ in range(3):
            before = time.process_time()
            catalogue(tree, root).discover()
            taken.append(time.process_time() - before)
        return min(taken)

    alone = max(cost(), cost())
    slow = []
    for shape in SHAPES:
        folder = place(shape, root)
        if cost() > MOST_TIMES * alone:
            slow.append(shape.name)
        shutil.rmtree(folder)
    assert not slow


def test_all_shapes_at_once(tree: Tree, root: Path) -> None:
    names = clean(root)
    for shape in SHAPES:
        place(shape, root)
    found = {os.path.basename(skill.dir): skill for skill in catalogue(tree, root).discover()}
    promised = {shape.name for shape in SHAPES if shape.description is not None}
    assert found.keys() == names | promised


@every_shape
def test_show_survives_the_shape(shape: Shape, tree: Tree, root: Path) -> None:
    place(shape, root)
    tree.setenv("SKILLBELT_PATHS", root)
    from skillbelt.cli import main

    name = next(iter(tree.catalog()), shape.name)
    assert main(["show", name, "--json", "--project", str(tree.project)]) in (0, 3)


def test_unreadable_mode_is_reported_and_skipped() -> None:
    with unprivileged.open_folder() as root:
        names = clean(root)
        folder = place(UNREADABLE, root)
        seen = unprivileged.discover(root, root)
    assert set(seen.names) == names
    assert seen.said == [(UNREADABLE.code, f"{folder}/SKILL.md")]
