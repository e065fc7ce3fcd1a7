"""The package indexes in the user's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages.index_config import IndexAddress, node_indexes, python_indexes


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def write(environ: dict[str, str], path: str, text: str) -> None:
    file = Path(environ["HOME"]) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_nothing_is_configured_by_default(home: dict[str, str]) -> None:
    home["PIP_CONFIG_FILE"] = "/dev/null"
    found = python_indexes({**home, "UV_NO_CONFIG": "1"})
    assert (found.first, found.links, found.closed) == ((), (), False)
    assert found.with_default("https://a.example/simple").main is not None


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_a_variable_names_the_index(home: dict[str, str], name: str) -> None:
    found = python_indexes({**home, name: "https://me:sek%40ret@a.example/simple/"})
    assert found.main == IndexAddress("https://a.example/simple", "Basic bWU6c2VrQHJldA==")
    assert "sek" not in repr(found.address)


def test_a_file_of_uv_names_indexes(home: dict[str, str]) -> None:
    write(home, ".config/uv/uv.toml", """
no-index = false
[[index]]
name = "mine"
url = "https://b.example/simple"
[[index]]
url = "https://a.example/simple"
default = true
[[index]]
url = "https://c.example/simple"
explicit = true
""")  # fmt: skip
    env = {**home, "UV_INDEX_MINE_USERNAME": "me", "UV_INDEX_MINE_PASSWORD": "x"}
    found = python_indexes(env)
    assert found.main == IndexAddress("https://a.example/simple")
    assert found.first == (IndexAddress("https://b.example/simple", "Basic bWU6eA=="),)


def test_a_file_of_pip_names_the_index_where_uv_names_none(home: dict[str, str]) -> None:
    write(home, ".config/pip/pip.conf", "[global]\nindex-url = https://p.example/simple\n")
    assert python_indexes(home).main == IndexAddress("https://p.example/simple")
    home["UV_DEFAULT_INDEX"] = "https://a.example/simple"
    assert python_indexes(home).main == IndexAddress("https://a.example/simple")


def test_what_netrc_says_of_the_host_is_used(home: dict[str, str]) -> None:
    write(home, ".netrc", "machine a.example login me password x\n")
    (Path(home["HOME"]) / ".netrc").chmod(0o600)
    home["UV_DEFAULT_INDEX"] = "https://a.example/simple"
    assert python_indexes(home).main == IndexAddress("https://a.example/simple", "Basic bWU6eA==")


def test_folders_of_files_stand_beside_or_alone(home: dict[str, str]) -> None:
    found = python_indexes({**home, "UV_NO_INDEX": "1", "UV_FIND_LINKS": "/a, /b"})
    assert (found.links, found.closed, found.main) == (("/a", "/b"), True, None)
    assert found.with_default("https://x.example").main is None


def test_an_address_that_is_none_is_refused(home: dict[str, str]) -> None:
    with pytest.raises(RunRefused, match="'ftp://a' is not the URL of an index"):
        python_indexes({**home, "UV_DEFAULT_INDEX": "ftp://me:secret@a"})


def test_two_configurations_differ_by_their_address(home: dict[str, str]) -> None:
    one, two = (
        python_indexes({**home, "UV_DEFAULT_INDEX": f"https://{host}.example"}) for host in "ab"
    )
    assert one.address != two.address


def test_npm_is_told_by_the_user(home: dict[str, str]) -> None:
    write(home, ".npmrc", """
; mine
registry=https://r.example/npm/
//r.example/npm/:_authToken=${MY_TOKEN}
@s:registry = "https://s.example"
//s.example/:username=me
//s.example/:_password=eA==
cafile=/ca.pem
""")  # fmt: skip
    found = node_indexes({**home, "MY_TOKEN": "sekret"})
    assert found.main == IndexAddress("https://r.example/npm", "Bearer sekret")
    assert found.scopes == {"@s": IndexAddress("https://s.example", "Basic bWU6eA==")}
    assert found.authorities[0] == "/ca.pem"
    assert "sekret" not in repr(found.address)


def test_a_variable_is_stronger_than_a_file_for_npm(home: dict[str, str]) -> None:
    write(home, ".npmrc", "registry=https://r.example\n")
    found = node_indexes({**home, "NPM_CONFIG_REGISTRY": "http://127.0.0.1:1/"})
    assert found.main == IndexAddress("http://127.0.0.1:1")


def test_what_a_registry_is_told_holds_for_the_default_too(home: dict[str, str]) -> None:
    write(home, ".npmrc", "//r.example/:_authToken=x\n")
    found = node_indexes(home).with_default("https://r.example/")
    assert found.main is not None
    assert found.main.authorization == "Bearer x"
