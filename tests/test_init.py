"""The public names."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import skillbelt

SCRIPT = Path(__file__).parents[1] / "scripts" / "public_stub.py"


def test_every_public_name_can_be_had() -> None:
    for name in skillbelt.__all__:
        value = getattr(skillbelt, name)
        assert value.__name__ == name
        assert value.__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'skillbelt' has no attribute 'Catalogue'"):
        skillbelt.Catalogue  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], check=False)
    assert done.returncode == 0, "run `python scripts/public_stub.py --write`"


def test_dir_lists_the_public_names() -> None:
    assert set(dir(skillbelt)) == {*skillbelt.__all__, "__version__"}


def test_the_version_is_the_distributions() -> None:
    assert skillbelt.__version__ == version("skillbelt")
