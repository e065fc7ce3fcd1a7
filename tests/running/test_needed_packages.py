"""The packages that a command of a skill needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.needed_packages import StartedIn, Wishes, find_needs
from skillbelt.running.packages.declared import Needs, describe


def found(
    skill: Path,
    command: str | Sequence[str],
    *,
    script: str = "",
    stdin: bytes = b"",
    wishes: Wishes | None = None,
) -> Needs | None:
    place = StartedIn(home=str(skill), workspace=str(skill.parent), folder=str(skill))
    return find_needs(place, command, script=script, stdin=stdin, wishes=wishes or Wishes())


def guessed(skill: Path, command: str | Sequence[str], **more: str) -> tuple[str, ...]:
    needs = found(skill, command, **more)  # type: ignore[arg-type]
    return needs.guessed if needs else ()


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "skill"
    (folder / "scripts").mkdir(parents=True)
    return folder


def write(skill: Path, **files: str) -> None:
    for name, text in files.items():
        path = skill / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# --- which scripts count -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("python3", "scripts/a.py", "--help"),
        "python scripts/a.py | head",
        "cd scripts && python3 a.py",
        "PYTHONPATH=. timeout 5 python3 -X dev scripts/a.py",
        "uv run scripts/a.py",
        "bash -c 'python3 scripts/a.py'",
        "bash scripts/run.sh",
        "./scripts/a.py",
        "python3 -m scripts.a",
        "for f in x; do python3 scripts/a.py $f; done",
        "find . | xargs python3 scripts/a.py",
    ],
)
def test_the_script_that_a_command_starts_counts_alone(
    skill: Path, command: str | Sequence[str]
) -> None:
    write(skill, scripts__a_py="import scrapy\n", scripts__b_py="import torch\n")
    (skill / "scripts" / "run.sh").write_text('#!/bin/bash\nset -e\npython3 scripts/a.py "$@"\n')
    assert guessed(skill, command) == ("scrapy",)


def test_code_in_the_command_counts(skill: Path) -> None:
    assert guessed(skill, ("python3", "-c", "import scrapy")) == ("scrapy",)
    assert guessed(skill, "python3 - <<'EOF'\nimport scrapy\nEOF\n") == ("scrapy",)
    assert guessed(skill, ("node", "-e", "require('docx')")) == ("docx@*",)
    needs = found(skill, ("python3", "-"), stdin=b"import scrapy\n")
    assert needs is not None and needs.guessed == ("scrapy",)
    assert guessed(skill, "python3 -m markitdown x.pdf") == ("markitdown",)
    assert guessed(skill, "python3 -m http.server") == ()


@pytest.mark.parametrize("command", ["python3 -m tool.deep.run", "python3 -m tool.deep"])
def test_a_module_brings_what_the_packages_around_it_import(skill: Path, command: str) -> None:
    """Python imports them first."""
    for name, text in {
        "tool/__init__.py": "import requests\n",
        "tool/deep/__init__.py": "import yaml\n",
        "tool/deep/run.py": "import rich\n",
        "tool/deep/__main__.py": "import rich\n",
        "tool/other.py": "import numpy\n",
    }.items():
        path = skill / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert set(guessed(skill, command)) == {"requests", "pyyaml", "rich"}


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("uv run --with 'scrapy>=2' python -c 'print(1)'", "scrapy>=2"),
        ("pip install scrapy && scrapy --help", "scrapy"),
        ("python3 -m pip install -q scrapy", "scrapy"),
        ("npm install docx && node -e 1", "docx@*"),
        ("npx -y prettier@3 x.js", "prettier@3"),
        ("uvx ruff check .", "ruff"),
    ],
)
def test_a_package_that_the_command_names_is_asked_for(
    skill: Path, command: str, package: str
) -> None:
    assert guessed(skill, command) == (package,)


@pytest.mark.parametrize(
    "command",
    [
        "pip install git+https://example.com/x",
        "pip install ./x",
        "pip install --index-url=https://example.com scrapy==1@x",
        "npm install file:../x",
        "pip install -r /etc/passwd",
        "echo 'import scrapy'",
        "python3 missing.py",
        "'",
        "",
        "python3",
        "uv run",
        "uv run --with",
        "npx",
        "bash -c",
        "python3 -m",
    ],
)
def test_a_command_that_names_nothing_acceptable_needs_nothing(skill: Path, command: str) -> None:
    assert found(skill, command) is None


# --- which modules are the skill's own -----------------------------------------------------------


def test_modules_of_the_skill_are_followed_and_never_looked_for(skill: Path) -> None:
    write(
        skill,
        scripts__a_py="import helper\nfrom office.pack import x\nfrom office import unpack\n",
        scripts__helper_py="import scrapy\n",
        scripts__office__pack_py="from . import inner\nfrom .deep.er import y\n",
        scripts__office__unpack_py="import httpx\n",
        scripts__office__inner_py="import arrow\n",
        scripts__office__deep__er_py="import attrs\nimport helper\n",
        scripts__other_py="import torch\n",
    )
    (skill / "scripts/office/__init__.py").write_text("import rich\n")
    expected = {"scrapy", "httpx", "arrow", "attrs", "rich"}
    assert set(guessed(skill, ("python3", "scripts/a.py"))) == expected


def test_a_module_elsewhere_in_the_skill_is_never_asked_of_an_index(skill: Path) -> None:
    write(skill, scripts__a_py="import acme_helper\nimport lib.x\n", lib__acme_helper_py="")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()
    # A known package is not hidden by a file of its name that the script does not reach.
    write(skill, scripts__a_py="import yaml, scrapy\n", examples__scrapy_py="")
    assert "scrapy" in guessed(skill, ("python3", "scripts/a.py"))
    write(skill, scripts__a_py="import sys\nsys.path.append('examples')\nimport scrapy\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()


def test_a_folder_that_is_called_like_a_package_is_not_its_module(skill: Path) -> None:
    write(skill, scripts__a_py="import scrapy\n", scripts__scrapy__example_py="print(1)\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("scrapy",)
    (skill / "scripts/scrapy/__init__.py").touch()
    assert guessed(skill, ("python3", "scripts/a.py")) == ()


def test_alternatives_propose_the_first_that_a_package_has(skill: Path) -> None:
    write(skill, scripts__a_py="try:\n import scrapy\nexcept ImportError:\n import httpx\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("scrapy",)
    write(skill, scripts__a_py="try:\n import win32com\nexcept ImportError:\n import httpx\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("httpx",)
    write(skill, scripts__a_py="try:\n import tomllib\nexcept ImportError:\n import tomli\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()


def test_a_large_package_that_a_script_can_do_without_is_left_out(skill: Path) -> None:
    write(skill, scripts__a_py="try:\n import torch\nexcept ImportError:\n torch = None\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()
    write(skill, scripts__a_py="import torch\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("torch",)


def test_scripts_of_node_are_followed_too(skill: Path) -> None:
    (skill / "a.mjs").write_text("import './lib/b.js'\nimport fs from 'node:fs'\nimport 'docx'\n")
    (skill / "lib").mkdir()
    (skill / "lib" / "b.ts").write_text("import sharp from 'sharp'\nrequire('path')\n")
    needs = found(skill, ("node", "a.mjs"))
    assert needs is not None
    assert (needs.kind, needs.guessed, needs.unknown) == ("node", ("docx@*", "sharp@*"), ())


# --- what is declared, and what is missing in it -------------------------------------------------


def test_what_a_list_lacks_is_proposed_beside_it(skill: Path) -> None:
    write(skill, scripts__a_py="import scrapy, cv2, bs4\n")
    (skill / "scripts/requirements.txt").write_text("scrapy>=2\nopencv-python\n")
    needs = found(skill, ("python3", "scripts/a.py"))
    assert needs is not None
    assert needs.requirements == ("scrapy>=2", "opencv-python", "beautifulsoup4")
    assert (needs.guessed, needs.source_path) == (("beautifulsoup4",), "scripts/requirements.txt")
    assert describe(needs) == (
        "3 Python packages: scrapy>=2, opencv-python (from scripts/requirements.txt); "
        "beautifulsoup4 (not declared by the skill; guessed from its imports)"
    )


def test_the_nearest_list_counts_and_those_for_development_do_not(skill: Path) -> None:
    write(skill, scripts__deep__a_py="print(1)\n")
    (skill / "requirements.txt").write_text("httpx\n")
    (skill / "scripts/requirements-dev.txt").write_text("pytest\n")
    needs = found(skill, ("python3", "scripts/deep/a.py"))
    assert needs is not None and needs.requirements == ("httpx",)
    (skill / "scripts/requirements-pdf.txt").write_text("pypdf\n")
    needs = found(skill, ("python3", "scripts/deep/a.py"))
    assert needs is not None and needs.source_path == "scripts/requirements-pdf.txt"


def test_a_list_elsewhere_says_only_the_version_of_what_is_imported(skill: Path) -> None:
    write(skill, scripts__a_py="import scrapy\n", templates__x_py="")
    (skill / "templates/requirements.txt").write_text("django\nscrapy>=2,<3\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("scrapy>=2,<3",)
    (skill / "templates/requirements.txt").write_text("--index-url https://x\nscrapy>=2\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ("scrapy",)


def test_a_list_may_name_others_of_the_skill(skill: Path) -> None:
    write(skill, scripts__a_py="print(1)\n")
    (skill / "scripts/requirements.txt").write_text("-r ../base.txt\nrich\n")
    (skill / "base.txt").write_text("httpx\n")
    needs = found(skill, ("python3", "scripts/a.py"))
    assert needs is not None and needs.requirements == ("httpx", "rich")
    for line in ("-r ../../outside.txt", "-r /etc/passwd", "-r requirements.txt"):
        (skill / "scripts/requirements.txt").write_text(f"{line}\n")
        with pytest.raises(RunRefused, match=r"names no file|more than 5 deep"):
            found(skill, ("python3", "scripts/a.py"))


def test_a_refusal_says_what_to_do(skill: Path) -> None:
    write(skill, scripts__a_py="print(1)\n")
    (skill / "requirements.txt").write_text("x @ https://example.com/x.whl\n")
    with pytest.raises(RunRefused) as refused:
        found(skill, ("python3", "scripts/a.py"))
    assert str(refused.value).endswith(
        "write the name and the version, as `name==1.2`, or run without packages (--no-install)"
    )


def test_the_version_of_python_and_its_library_are_no_packages(skill: Path) -> None:
    write(skill, scripts__a_py="print(1)\n")
    (skill / "requirements.txt").write_text("python>=3.8\npathlib\nargparse\nrich\n")
    needs = found(skill, ("python3", "scripts/a.py"))
    assert needs is not None
    assert (needs.requirements, needs.requires_python) == (("rich",), ">=3.8")


# --- what is asked for beside --------------------------------------------------------------------


def test_packages_can_be_named_beside(skill: Path) -> None:
    write(skill, scripts__a_py="import scrapy\n")
    (skill / "requirements.txt").write_text("rich>=10\nhttpx\n")
    needs = found(skill, ("python3", "scripts/a.py"), wishes=Wishes(("rich>=13",)))
    assert needs is not None
    assert needs.requirements == ("httpx", "rich>=13", "scrapy")
    assert needs.source_path == "requirements.txt and --with"
    for bad in ("-r x", "--index-url=x", "x @ https://y", "./x", "x;rm"):
        with pytest.raises(RunRefused, match="--with: "):
            found(skill, ("python3", "scripts/a.py"), wishes=Wishes((bad,)))


# --- attacks -------------------------------------------------------------------------------------


def test_a_look_alike_is_shown_as_a_guess(skill: Path) -> None:
    write(skill, scripts__a_py="import reqeusts, scrapy\n")
    needs = found(skill, ("python3", "scripts/a.py"))
    assert needs is not None
    assert (needs.guessed, needs.unknown) == (("reqeusts", "scrapy"), ("reqeusts",))
    assert describe(needs).endswith(
        "of these reqeusts by the name of the import alone: no known package, so check that it is "
        "what the skill means"
    )


def test_a_name_is_not_guessed_beside_a_package_that_may_have_it(skill: Path) -> None:
    write(skill, scripts__a_py="import acme\n")
    (skill / "requirements.txt").write_text("acme-sdk\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()


def test_many_imports_propose_few_packages(skill: Path) -> None:
    write(skill, scripts__a_py="".join(f"import nobody{one}\n" for one in range(100_000)))
    assert len(guessed(skill, ("python3", "scripts/a.py"))) <= 60


def test_links_out_of_the_skill_are_not_read(skill: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("import scrapy\n")
    (skill / "scripts/helper.py").symlink_to(tmp_path / "outside.py")
    write(skill, scripts__a_py="import helper\n")
    assert guessed(skill, ("python3", "scripts/a.py")) == ()
