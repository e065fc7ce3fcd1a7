from __future__ import annotations

import pytest

from skillbelt import Catalog
from tests.discovery.sources.archives import SKILL, zipped
from tests.terminal import on_terminal
from tests.tree import Tree

KEYS = {
    "name",
    "description",
    "location",
    "scope",
    "origin",
    "model_visible",
    "user_invocable",
    "trusted",
    "enabled",
    "disabled_by",
    "visible",
    "pinned",
    "required",
    "denied",
    "shadows",
    "client",
}
DIAGNOSTIC_KEYS = {"code", "severity", "path", "line", "message", "remedy"}
LONG = "Extract text and tables from PDF files, fill forms and merge documents. " * 5


@pytest.fixture
def skills(tree: Tree) -> Tree:
    """Two in the project, one of them over one of the home; and one that is hidden."""
    tree.skill("project/.agents/skills/text", description="Reads text.")
    tree.skill("project/.agents/skills/pdf", description="Reads PDF files.")
    tree.skill("home/.agents/skills/pdf", description="Older.")
    tree.skill("home/.agents/skills/mail", description="Mail.", disable_model_invocation=True)
    tree.skill("project/.agents/skills/secret", description="Inside.", metadata={"internal": True})
    return tree


def listed(tree: Tree, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = tree.run("list", "--json", *arguments).document["skills"]
    return found


def test_json_has_exactly_the_promised_keys(skills: Tree) -> None:
    document = skills.run("list", "--json").document
    assert document.keys() == {"skills", "diagnostics"}
    assert all(skill.keys() == KEYS for skill in document["skills"])
    assert all(found.keys() == DIAGNOSTIC_KEYS for found in document["diagnostics"])
    assert [skill["name"] for skill in document["skills"]] == ["mail", "pdf", "text"]


def test_json_of_one_skill(skills: Tree) -> None:
    mail, pdf, _ = listed(skills)
    assert pdf == {
        "name": "pdf",
        "description": "Reads PDF files.",
        "location": str(skills.path("project/.agents/skills/pdf/SKILL.md")),
        "scope": "project",
        "origin": "local",
        "model_visible": True,
        "user_invocable": True,
        "trusted": True,
        "enabled": True,
        "disabled_by": "",
        "visible": "full",
        "pinned": False,
        "required": False,
        "denied": False,
        "shadows": [str(skills.path("home/.agents/skills/pdf/SKILL.md"))],
        "client": "agents",
    }
    assert (mail["scope"], mail["model_visible"]) == ("user", False)


def test_json_says_what_is_wrong(skills: Tree) -> None:
    file = skills.write("project/.agents/skills/bad/SKILL.md", b"\xff")
    document = skills.run("list", "--json").document
    found = {one["code"]: one for one in document["diagnostics"]}
    assert found["not-utf8"]["path"] == str(file)
    assert found["not-utf8"]["severity"] == "error"
    assert found["shadowed"]["line"] is None


def test_all_adds_hidden_and_shadowed_ones(skills: Tree) -> None:
    names = [(skill["name"], skill["scope"]) for skill in listed(skills, "--all")]
    assert names == [
        ("mail", "user"),
        ("pdf", "project"),
        ("pdf", "user"),
        ("secret", "project"),
        ("text", "project"),
    ]


def test_all_marks_them_in_the_table(skills: Tree) -> None:
    rows = [line.split("\t") for line in skills.run("list", "--all").stdout.splitlines()]
    assert rows == [
        ["mail", "user, manual", "Mail.", "agents"],
        ["pdf", "project", "Reads PDF files.", "agents"],
        ["pdf", "user, shadowed", "Older.", "agents"],
        ["secret", "project, hidden", "Inside.", "agents"],
        ["text", "project", "Reads text.", "agents"],
    ]


@pytest.mark.parametrize(
    ("scope", "names"),
    [("project", ["pdf", "text"]), ("user", ["mail"]), ("remote", []), ("explicit", [])],
)
def test_scope(skills: Tree, scope: str, names: list[str]) -> None:
    assert [skill["name"] for skill in listed(skills, "--scope", scope)] == names


def test_scope_with_all(skills: Tree) -> None:
    found = [skill["name"] for skill in listed(skills, "--scope", "user", "--all")]
    assert found == ["mail", "pdf"]


def test_an_unknown_scope_is_wrong_usage(skills: Tree) -> None:
    done = skills.run("list", "--scope", "moon")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "project" in done.stderr


def test_a_pipe_gets_plain_lines(skills: Tree) -> None:
    done = skills.run("list")
    assert done.exit_code == 0
    assert done.stdout == (
        "mail\tuser, manual\tMail.\tagents\n"
        "pdf\tproject\tReads PDF files.\tagents\n"
        "text\tproject\tReads text.\tagents\n"
    )
    assert done.stderr == "3 skills; 1 problem: `skillbelt doctor` shows more\n"


def test_no_problems_no_words(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    assert tree.run("list") == (0, "pdf\tproject\tDoes a thing.\tagents\n", "")


def test_a_terminal_gets_a_table(skills: Tree) -> None:
    screen = on_terminal(skills, "list")
    assert screen.exit_code == 0
    assert screen.lines[0].split() == ["name", "scope", "from", "description"]
    assert screen.lines[2].split(maxsplit=3) == ["pdf", "project", "agents", "Reads PDF files."]
    assert "\x1b[36mpdf" in screen.written


def test_no_colour_when_it_is_not_wanted(skills: Tree) -> None:
    assert "\x1b[36m" not in on_terminal(skills, "list", NO_COLOR="1").written


@pytest.mark.parametrize("columns", [50, 60, 80, 200])
def test_a_long_description_takes_no_room_from_the_name(tree: Tree, columns: int) -> None:
    tree.skill("project/.agents/skills/release-notes", description=LONG)
    tree.skill("project/.agents/skills/pdf", description="李" * 300)
    lines = on_terminal(tree, "list", columns=columns).lines
    assert len(lines) == 3
    assert lines[2].startswith("release-notes  project  agents  Extract")
    assert lines[1].split()[:2] == ["pdf", "project"]
    assert all(line.endswith("…") and len(line) <= columns for line in lines[1:])


def test_a_long_name_is_shown_whole(tree: Tree) -> None:
    tree.skill(f"project/.agents/skills/{'n' * 64}", description=LONG)
    screen = on_terminal(tree, "list", columns=80)
    assert "n" * 64 in screen.lines[0].split()
    assert screen.lines[2].startswith("    description: Extract")


def test_a_description_on_a_very_narrow_terminal_has_its_own_line(tree: Tree) -> None:
    tree.skill("project/.agents/skills/release-notes", description=LONG)
    first, second = on_terminal(tree, "list", columns=40).lines
    assert first == "release-notes  project  agents"
    assert second.startswith("    description: Extract") and second.endswith("…")
    assert len(second) <= 40


def test_a_remote_skill_is_marked(tree: Tree) -> None:
    """`file://` is on this disk, but came in an archive from elsewhere."""
    archive = tree.write("s.zip", zipped({"pdf/SKILL.md": SKILL}))
    tree.setenv("SKILLS_ROOT", f"file://{archive}")
    assert (
        tree.run("list").stdout == f"pdf\texplicit, untrusted\tReads PDF files.\tfile://{archive}\n"
    )
    assert listed(tree)[0]["trusted"] is False


def test_an_archive_among_the_addresses_is_remote(tree: Tree) -> None:
    archive = tree.write("s.zip", zipped({"pdf/SKILL.md": SKILL}))
    tree.setenv("SKILLBELT_URLS", f"file://{archive}")
    [skill] = listed(tree, "--scope", "remote")
    assert (skill["name"], skill["trusted"], skill["client"]) == ("pdf", False, "")


@pytest.fixture
def clients(tree: Tree) -> Tree:
    tree.skill("project/.claude/skills/pdf", description="Reads PDF files.")
    tree.skill("home/.codex/skills/mail", description="Mail.")
    tree.skill("home/.codex/skills/pdf", description="Older.")
    return tree


def test_each_skill_is_listed_with_its_client(clients: Tree) -> None:
    head, mail, pdf = on_terminal(clients, "list").lines[:3]
    assert head.split() == ["name", "scope", "from", "description"]
    assert mail.split() == ["mail", "user", "codex", "Mail."]
    assert pdf.split()[:3] == ["pdf", "project", "claude"]


def test_a_skill_of_no_client_is_listed_with_its_folder(tree: Tree) -> None:
    tree.skill("home/mine/pdf", description="Reads PDF files.")
    tree.setenv("SKILLS_ROOT", tree.home / "mine")
    assert tree.run("list").stdout == "pdf\texplicit\tReads PDF files.\t~/mine\n"


def test_only_the_skills_of_a_client(clients: Tree) -> None:
    assert [one["name"] for one in listed(clients, "--client", "codex")] == ["mail"]
    found = listed(clients, "--client", "codex", "--all")
    assert [one["name"] for one in found] == ["mail", "pdf"]
    assert listed(clients, "--client", "cursor") == []


def test_a_client_that_is_none_is_wrong_usage(clients: Tree) -> None:
    done = clients.run("list", "--client", "codx")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no client named 'codx'; closest: codex" in done.stderr


def test_no_skills_says_where_it_looked_and_how_to_make_one(tree: Tree) -> None:
    tree.path("project/.agents/skills").mkdir(parents=True)
    done = tree.run("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert str(tree.path("project/.agents/skills")) in done.stderr
    assert "SKILL.md" in done.stderr
    assert "description:" in done.stderr
    assert "skillbelt doctor" in done.stderr


def test_no_folders_at_all(tree: Tree) -> None:
    done = tree.run("list")
    assert done.exit_code == 0
    assert "None of the skill folders exists yet." in done.stderr


def test_no_skills_as_json(tree: Tree) -> None:
    done = tree.run("list", "--json")
    assert done.exit_code == 0
    assert done.document == {"skills": [], "diagnostics": []}
    assert done.stderr == ""


def test_what_it_advises_works(tree: Tree) -> None:
    """The example in the message is a skill, word by word."""
    said = tree.run("list").stderr
    lines = [line[2:] for line in said.splitlines() if line.startswith("  ")]
    tree.write("project/.agents/skills/NAME/SKILL.md", "\n".join(lines) + "\n")
    catalog: Catalog = tree.catalog()
    assert catalog["NAME"].description == "What it does and when to use it."
    assert not catalog.diagnostics


def test_a_blank_description_is_told(tree: Tree) -> None:
    text = '---\nname: pdf\ndescription: " "\n---\n# PDF\n'
    tree.write("project/.agents/skills/pdf/SKILL.md", text)
    document = tree.run("list", "--json").document
    assert [one["model_visible"] for one in document["skills"]] == [False]
    assert [one["code"] for one in document["diagnostics"]] == ["description-missing"]


@pytest.mark.parametrize("root", ["/nonexistent/skills", "http://127.0.0.1:9/none.zip"])
def test_a_root_that_the_user_named_and_that_has_nothing_is_named(tree: Tree, root: str) -> None:
    tree.setenv("SKILLS_ROOT", root)
    done = tree.run("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith(f"skillbelt: SKILLS_ROOT {root}: ")


def test_a_skill_that_a_rule_denies_is_marked(skills: Tree) -> None:
    skills.write("home/.config/skillbelt/config.toml", '[permission.skill]\npdf = "deny"\n')
    assert "pdf\tproject, denied\t" in skills.run("list").stdout
    assert {one["name"]: one["denied"] for one in listed(skills)} == {
        "mail": False,
        "pdf": True,
        "text": False,
    }
