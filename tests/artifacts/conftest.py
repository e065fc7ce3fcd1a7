from __future__ import annotations

import pytest

# What takes long with a server that speaks S3; the other stores keep to it in every run.
LONG_IN_S3 = {
    "test_a_large_file_is_read_in_pieces",
    "test_a_version_is_whole_while_others_delete",
    "test_any_name_is_kept_as_it_is",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "InS3::" in item.nodeid and item.name.partition("[")[0] in LONG_IN_S3:
            item.add_marker("long")
