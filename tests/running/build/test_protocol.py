from __future__ import annotations

import pytest

from skillbelt.running.build.protocol import Builder
from skillbelt.running.build.registry import builders


@pytest.mark.parametrize("builder", builders().values(), ids=lambda builder: builder.name)
def test_a_builder_says_what_it_is_for_and_of_what_it_is_made(builder: Builder) -> None:
    # One that builds what another is for is only had by its name.
    assert builder.name and (builder.endings or builder.name == "starlingmonkey")
    assert all(ending.startswith(".") for ending in builder.endings)
    assert builder.recipe() == builder.recipe()


def test_no_two_builders_are_for_one_ending() -> None:
    endings = [ending for builder in builders().values() for ending in builder.endings]
    assert len(endings) == len(set(endings))
