from __future__ import annotations

import errno
import json
import os
import sys

import pytest

from skillbelt.errors import ConfigError
from skillbelt.files.handles import closed_on_error, is_shortage
from tests import warm


def test_handles_are_closed_when_the_block_fails() -> None:
    with pytest.raises(ValueError, match="no"), closed_on_error() as handles:
        opened = handles.add(os.open("/", os.O_RDONLY))
        raise ValueError("no")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened)


def test_handles_stay_open_when_the_block_ends() -> None:
    with closed_on_error() as handles:
        opened = handles.add(os.open("/", os.O_RDONLY))
    assert handles.all == (opened,)
    os.close(opened)


def test_a_shortage_is_found_behind_other_errors() -> None:
    try:
        raise ConfigError("it cannot be written") from OSError(errno.EMFILE, "no handles")
    except ConfigError as error:
        assert is_shortage(error)
    assert not is_shortage(OSError(errno.ENOENT, "missing"))


def test_the_limit_is_raised_as_far_as_the_system_lets_it() -> None:
    code = (
        "import json, resource; from skillbelt.files.handles import raise_limit, spare_handles\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "before = spare_handles()\n"
        "raise_limit()\n"
        "print(json.dumps([before, spare_handles(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))"
    )
    done = warm.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [76, 176, 200, 200]
