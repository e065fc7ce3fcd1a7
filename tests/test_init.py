"""The public names."""

from __future__ import annotations

from importlib.metadata import version

import pytest

import skillbelt


@pytest.mark.parametrize("name", skillbelt.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    value = getattr(skillbelt, name)
    assert value.__name__ == name
    assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'skillbelt' has no attribute 'Catalogue'"):
        skillbelt.Catalogue  # noqa: B018


def test_dir_lists_the_public_names() -> None:
    assert set(dir(skillbelt)) == {*skillbelt.__all__, "__version__"}


def test_the_version_is_the_distributions() -> None:
    assert skillbelt.__version__ == version("skillbelt")
