"""The ways of the page "Install", without a network: what the product needs is lent to it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from skillbelt import __version__

ROOT = Path(__file__).parents[1]
UV = Path(sysconfig.get_path("scripts")) / "uv"
LENT = sysconfig.get_path("purelib")
WHEEL = f"skillbelt-{__version__}-py3-none-any.whl"


class Machine:
    """A folder to install into, with the commands of this Python and no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        names = [one.partition(">")[0] for one in needed["dependencies"]]
        # Dependencies that apply nowhere are not fetched; PYTHONPATH lends them.
        nowhere = "".join(f"{name} ; python_version < '3'\n" for name in names)
        (folder / "overrides.txt").write_text(nowhere)
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PIP_")},
            "HOME": str(folder),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_OFFLINE": "1",
            "UV_OVERRIDE": str(folder / "overrides.txt"),
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_TOOL_DIR": str(folder / "tools"),
            "UV_TOOL_BIN_DIR": str(folder / "bin"),
            "UV_PYTHON": sys.executable,
        }

    def run(self, *command: str | Path, **environ: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.env, **environ},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pip(self, environment: Path, *words: str | Path) -> None:
        """Install with pip into an environment; the build system is lent too."""
        pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python")
        alone = ("--no-deps", "--no-build-isolation", "--ignore-installed")
        self.run(*pip, "install", "-q", *alone, *words, PYTHONPATH=LENT)

    def says_its_version(self, *command: str | Path) -> bool:
        said = self.run(*command, "--version", PYTHONPATH=LENT)
        listed = self.run(*command, "list", "--json", PYTHONPATH=LENT)
        return said == f"skillbelt {__version__}\n" and '"skills": []' in listed


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the page says to build."""
    folder = tmp_path_factory.mktemp("dist")
    build = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    Machine(tmp_path_factory.mktemp("builder")).run(sys.executable, "-m", "pip", *build)
    assert [path.name for path in folder.iterdir()] == [WHEEL]
    return folder / WHEEL


@pytest.fixture
def environment(machine: Machine) -> Path:
    machine.run(UV, "venv", "-q", "own")
    return machine.folder / "own"


@pytest.mark.long
def test_a_checkout_with_pip(machine: Machine, environment: Path) -> None:
    machine.pip(environment, ROOT)
    assert machine.says_its_version(environment / "bin" / "skillbelt")


@pytest.mark.long
def test_a_wheel_with_uv_pip(machine: Machine, environment: Path, wheel: Path) -> None:
    machine.run(UV, "pip", "install", "-q", "--python", environment, wheel)
    assert machine.says_its_version(environment / "bin" / "skillbelt")


def test_a_tool_of_uv(machine: Machine, wheel: Path) -> None:
    machine.run(UV, "tool", "install", "-q", wheel)
    assert machine.says_its_version(machine.folder / "bin" / "skillbelt")


def test_uvx_without_installing(machine: Machine, wheel: Path) -> None:
    assert machine.says_its_version(UV.with_name("uvx"), "-q", "--from", wheel, "skillbelt")


def test_the_examples_of_the_demo_are_in_the_wheel(
    machine: Machine, environment: Path, wheel: Path
) -> None:
    machine.run(UV, "pip", "install", "-q", "--python", environment, wheel)
    [packages] = environment.glob("lib/python*/site-packages")
    shipped = {path.parent.name for path in packages.glob("skillbelt/examples/*/SKILL.md")}
    assert shipped == {path.parent.name for path in ROOT.glob("examples/skills/*/SKILL.md")}


def test_the_wheel_has_the_man_page_and_what_completion_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        [page] = [name for name in names if name.endswith(".data/data/share/man/man1/skillbelt.1")]
        assert files.read(page) == (ROOT / "man" / "skillbelt.1").read_bytes()
    assert "skillbelt/cli/completions.json" in names


def test_the_page_names_the_wheel_that_is_built() -> None:
    assert f"dist/{WHEEL}" in (ROOT / "docs" / "start" / "install.md").read_text("utf-8")
