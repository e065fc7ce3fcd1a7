from __future__ import annotations

from skillbelt.format.frontmatter import read_card, read_head
from tests.bounds import bounds
from tests.tree import Tree


def test_only_the_head_is_read_unless_the_frontmatter_is_longer(tree: Tree) -> None:
    bounds(first_read_bytes=1024, max_frontmatter_bytes=4096)
    short = tree.skill("short", text="x" * 10_000) / "SKILL.md"
    long = tree.skill("long", "x" * 3000, text="x" * 10_000) / "SKILL.md"
    huge = tree.skill("huge", "x" * 9000) / "SKILL.md"
    assert len(read_head(str(short))) == 1024
    assert 3000 < len(read_head(str(long))) < 4096 + 1024
    data = read_head(str(huge))
    assert len(data) < 4096 + 1024
    card = read_card(data, str(huge), "huge")
    assert card.diagnostics
    assert "x" * 9000 not in card.description


def test_the_largest_frontmatter_allowed_is_read_whole(tree: Tree) -> None:
    bounds(first_read_bytes=1024, max_frontmatter_bytes=4096)
    description = "x" * (4096 - len("name: big\ndescription: \n"))
    file = tree.skill("big", description, text="body") / "SKILL.md"
    card = read_card(read_head(str(file)), str(file), "big")
    assert card.description == description
    assert file.read_bytes()[card.body_offset :] == b"body"
