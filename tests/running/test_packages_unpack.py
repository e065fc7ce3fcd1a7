"""Wheels that are unpacked here: what they may hold, and what is left to uv."""

from __future__ import annotations

import ast
import errno
import hashlib
import io
import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages import unpack
from skillbelt.running.packages.environments import provide
from skillbelt.running.packages.fetched import KeptPages
from skillbelt.running.packages.index_pages import read_listing
from skillbelt.running.packages.install_sandbox import NativeSandbox
from skillbelt.running.packages.installation import InstallStep
from tests import needs
from tests.discovery.sources.server import Reply, running
from tests.registries import list_wheel, wheel, wheel_bytes
from tests.running.test_packages_environments import Shop, says
from tests.running.test_packages_environments import _made_removable as _made_removable
from tests.running.test_packages_environments_hostile import Market

pytestmark = [needs.linux]
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
FILE = "greet-1.0-py3-none-any.whl"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    with running() as index, running() as other:
        yield Market(tmp_path, index, other)


def installer(path: str, name: str = "greet") -> str:
    """The installer that a package's record names."""
    [found] = Path(path).rglob(f"{name}-1.0.dist-info/INSTALLER")
    return found.read_text().strip()


def changed(data: bytes, change: Callable[[zipfile.ZipInfo], None], name: str) -> bytes:
    """The wheel with another entry for one file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.infolist():
            text = old.read(entry)
            if entry.filename == name:
                change(entry)
            new.writestr(entry, text)
    return packed.getvalue()


# --- what is installed ---------------------------------------------------------------------------


def test_one_wheel_for_each_package_needs_no_uv_to_install(shop: Shop) -> None:
    wheel(shop.packages, "greet", {"greet.py": "word = 'hello'"}, ["inner"])
    wheel(shop.packages, "inner", {"inner/__init__.py": "word = 'inside'"})
    made = shop.provision("greet")
    assert (installer(made.path), installer(made.path, "inner")) == ("skillbelt", "skillbelt")
    assert says(made, "import greet, inner; print(greet.word, inner.word)") == "hello inside\n"


def test_what_is_unpacked_is_listed_as_any_installer_does(shop: Shop) -> None:
    entry = "[other]\nx = y\n[console_scripts]\n# none\ngreet = greet.deep:run.all [extra]\n"
    files = {"greet/deep.py": "", "greet-1.0.dist-info/entry_points.txt": entry,
             "greet-1.0.data/data/share/doc": ""}  # fmt: skip
    wheel(shop.packages, "greet", files)
    made = shop.provision("greet")
    code = "from importlib.metadata import files; print(*sorted(map(str, files('greet'))))"
    assert says(made, code).split() == [
        "../../../bin/greet", "../../../share/doc", "greet-1.0.dist-info/INSTALLER",
        "greet-1.0.dist-info/METADATA", "greet-1.0.dist-info/RECORD", "greet-1.0.dist-info/WHEEL",
        "greet-1.0.dist-info/entry_points.txt", "greet/deep.py",
    ]  # fmt: skip
    text = Path(made.bin, "greet").read_text()
    assert "from greet.deep import run\n" in text and "sys.exit(run.all())" in text


def test_every_kind_of_file_goes_to_its_place(shop: Shop) -> None:
    data = "greet-1.0.data"
    files = {
        f"{data}/purelib/pure.py": "word = 'pure'",
        f"{data}/platlib/plat.py": "word = 'plat'",
        f"{data}/scripts/say": "#!python\nimport pure, plat\nprint(pure.word, plat.word)\n",
        f"{data}/scripts/other": "#!/bin/sh\necho other\n",
        f"{data}/headers/greet.h": "int x;",
        f"{data}/data/share/doc": "text",
    }
    wheel(shop.packages, "greet", files)
    made = shop.provision("greet")
    assert subprocess.check_output([f"{made.bin}/say"]) == b"pure plat\n"
    assert subprocess.check_output([f"{made.bin}/other"]) == b"other\n"
    assert Path(made.path, "share", "doc").read_text() == "text"
    assert list(Path(made.path, "include").rglob("greet/greet.h"))


def test_a_program_keeps_its_mode_and_a_link_is_a_file(shop: Shop) -> None:
    def program(entry: zipfile.ZipInfo) -> None:
        entry.external_attr = 0o100755 << 16

    def link(entry: zipfile.ZipInfo) -> None:
        entry.external_attr = 0o120777 << 16

    data = wheel_bytes("greet", {"greet/run": "#!/bin/sh\n", "greet/link": "/etc/passwd"})
    data = changed(changed(data, program, "greet/run"), link, "greet/link")
    (shop.packages / FILE).write_bytes(data)
    made = shop.provision("greet")
    [run], [linked] = (list(Path(made.path).rglob(f"greet/{name}")) for name in ("run", "link"))
    assert os.access(run, os.X_OK)
    assert not linked.is_symlink() and linked.read_text() == "/etc/passwd"


def test_packages_may_bring_the_same_file(shop: Shop) -> None:
    wheel(shop.packages, "greet", {"shared/__init__.py": ""}, ["inner"])
    wheel(shop.packages, "inner", {"shared/__init__.py": ""})
    assert len(shop.provision("greet").installed) == 2


@pytest.mark.parametrize("source", ["x = (", "\0", "(" * 100_000, "# coding: none\n"])
def test_a_module_that_cannot_be_compiled_stays_as_it_is(shop: Shop, source: str) -> None:
    wheel(shop.packages, "greet", {"broken.py": source, "works.py": "word = 'yes'"})
    made = shop.provision("greet")
    assert says(made, "import works; print(works.word)") == "yes\n"
    assert not list(Path(made.path).rglob("broken.*.pyc"))
    assert list(Path(made.path).rglob("works.*.pyc"))


@pytest.mark.parametrize("beyond", [1, 100, 258])
def test_a_file_that_ends_just_behind_a_piece_is_whole(shop: Shop, beyond: int) -> None:
    packed = io.BytesIO(wheel_bytes("greet", {}))
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("zeros", b"\0" * (2**20 + beyond))
    (shop.packages / FILE).write_bytes(packed.getvalue())
    [zeros] = Path(shop.provision("greet").path).rglob("zeros")
    assert zeros.stat().st_size == 2**20 + beyond


@pytest.mark.parametrize("path", ["interpreter", "interpreter/python", "environment.json/x"])
def test_what_every_environment_has_comes_from_no_package(shop: Shop, path: str) -> None:
    wheel(shop.packages, "greet", {f"greet-1.0.data/data/{path}": "hostile"})
    made = shop.provision("greet")
    assert Path(made.path, "interpreter", "python").is_symlink()
    assert Path(made.path, "environment.json").is_file()


def test_what_unpacks_needs_no_newer_python_than_scripts_may_ask_for() -> None:
    source = Path(unpack.__file__).read_text()
    ast.parse(source, feature_version=(3, 8))
    assert "removesuffix" not in source and "removeprefix" not in source  # of Python 3.9


def test_many_modules_are_all_compiled(shop: Shop) -> None:
    wheel(shop.packages, "greet", {f"greet/m{number}.py": "" for number in range(60)})
    made = shop.provision("greet")
    assert len(list(Path(made.path).rglob("m*.pyc"))) == 60


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../../../../x", "/etc/x", "a/../../x", "a\\b", "./x", "greet-1.0.data/data/../x"]
)
def test_a_file_outside_is_refused(shop: Shop, path: str) -> None:
    wheel(shop.packages, "greet", {path: "x"})
    said = shop.refusal("greet")
    assert f"{FILE} cannot be unpacked: it has a file at" in said
    assert shop.left() == []


@pytest.mark.parametrize(
    ("at", "what"),
    [(16, "another sum"), (24, "another size"), (42, "another place")],
)
def test_a_file_that_is_not_what_is_listed_is_refused(shop: Shop, at: int, what: str) -> None:
    data = bytearray(wheel_bytes("greet", {"greet.py": "word = 1"}))
    entry = data.index(b"PK\x01\x02")
    data[entry + at] ^= 1
    listed = hashlib.sha256(data).hexdigest()
    (shop.packages / FILE).write_bytes(data)
    # What cannot be unpacked can be resolved: another file tells what it needs.
    said = shop.refusal(f"greet==1.0 --hash=sha256:{listed}")
    assert "greet" in said, what
    assert shop.left() == []


def test_content_that_grows_is_not_written_beyond_what_is_listed(shop: Shop) -> None:
    packed = io.BytesIO(wheel_bytes("greet", {}))
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 50_000_000)
    data = bytearray(packed.getvalue())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    (shop.packages / FILE).write_bytes(data)
    assert "greet" in shop.refusal("greet", max_bytes=2**20)
    assert shop.left() == []


# --- what is left to uv --------------------------------------------------------------------------


def test_where_there_is_a_choice_uv_chooses(shop: Shop) -> None:
    for file in (FILE, "greet-1.0-1-py3-none-any.whl"):
        (shop.packages / file).write_bytes(wheel_bytes("greet", {"greet.py": f"word = {file!r}"}))
    made = shop.provision("greet")
    assert installer(made.path) == "uv"
    assert says(made, "import greet; print(greet.word)") == "greet-1.0-1-py3-none-any.whl\n"


def test_an_entry_point_that_is_no_name_is_left_to_uv(shop: Shop) -> None:
    entry = "[console_scripts]\ngreet = greet:x;import os\n"
    wheel(shop.packages, "greet", {"greet-1.0.dist-info/entry_points.txt": entry})
    try:
        made = shop.provision("greet")
    except Exception:  # whatever uv says to it
        assert shop.left() == []
    else:
        assert installer(made.path) == "uv"


def test_the_files_of_another_package_are_left_to_uv_which_refuses_them(shop: Shop) -> None:
    (shop.packages / FILE).write_bytes(wheel_bytes("other", {"other.py": ""}))
    assert "greet" in shop.refusal("greet")


def test_a_wheel_that_says_another_name_than_the_index_is_left_to_uv(market: Market) -> None:
    """The index tells its own metadata of it, which is what was resolved and asked for."""
    told = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"
    packed = io.BytesIO(wheel_bytes("greet", {}))
    other = io.BytesIO()
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.infolist():
            is_told = entry.filename.endswith("METADATA")
            new.writestr(entry, told.format("other") if is_told else old.read(entry))
    digest = hashlib.sha256(other.getvalue()).hexdigest()
    listed = {"filename": FILE, "url": f"/files/{FILE}", "hashes": {"sha256": digest}}
    page = json.dumps({"files": [{**listed, "core-metadata": True}]}).encode()
    market.index.pages |= {
        "/simple/greet/": Reply(page, headers={"Content-Type": SIMPLE_JSON}),
        f"/files/{FILE}": other.getvalue(),
        f"/files/{FILE}.metadata": told.format("greet").encode(),
    }
    assert "does not match" in market.refusal("python", "greet")


def test_a_file_in_the_name_of_another_package_is_left_to_uv(market: Market) -> None:
    """Two packages that list a file of one name: neither takes the place of the other."""
    digest = list_wheel(market.index, "greet", {"greet.py": "word = 'greet'"})
    list_wheel(market.index, "inner", {"inner.py": ""})
    link = f'<a href="/files/{FILE}#sha256={digest}">inner-1.0-py3-none-any.whl</a>'
    market.index.pages["/simple/inner/"] = link.encode()
    assert "inner" in market.refusal("python", "greet", "inner")


# --- how they are fetched ------------------------------------------------------------------------


def test_what_unpacks_has_no_network_and_uv_does_not_run_again(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[InstallStep] = []
    real = NativeSandbox.run

    def run(sandbox: NativeSandbox, step: InstallStep) -> tuple[int, str]:
        steps.append(step)
        return real(sandbox, step)

    monkeypatch.setattr(NativeSandbox, "run", run)
    list_wheel(market.index, "greet", {"greet.py": ""})
    assert installer(market.provision("python", "greet").path) == "skillbelt"
    resolving, unpacking = steps
    assert resolving.package_index is not None
    assert unpacking.package_index is None
    assert not any(word.endswith("/uv") for word in unpacking.argv)


def test_nothing_is_fetched_twice(market: Market) -> None:
    list_wheel(market.index, "greet", {}, ["inner"])
    list_wheel(market.index, "inner", {})
    market.provision("python", "greet>=1")
    assert sorted(market.index.requests) == [
        f"/files/{FILE}", "/files/inner-1.0-py3-none-any.whl", "/simple/greet/", "/simple/inner/",
    ]  # fmt: skip


def test_a_version_that_is_not_wanted_is_not_fetched_ahead(market: Market) -> None:
    list_wheel(market.index, "greet", {})
    newer = '<a href="/files/greet-2.0-py3-none-any.whl">greet-2.0-py3-none-any.whl</a>'
    page = market.index.pages["/simple/greet/"]
    assert isinstance(page, bytes)
    market.index.pages["/simple/greet/"] = page.replace(b"<body>", b"<body>" + newer.encode())
    assert market.plan("python", "greet<2").lock.packages[0].version == "1.0"
    assert "/files/greet-2.0-py3-none-any.whl" not in market.index.requests


def test_what_is_not_for_this_python_is_not_asked_for(market: Market) -> None:
    list_wheel(market.index, "greet", {})
    market.plan("python", "greet", "hidden; python_version < '3'")
    assert "/simple/hidden/" not in market.index.requests


@pytest.mark.parametrize("path", ["/simple/greet/", f"/files/{FILE}"])
def test_an_index_that_does_not_answer_is_not_waited_for_beyond_the_time(
    market: Market, path: str
) -> None:
    list_wheel(market.index, "greet", {})
    planned = market.plan("python", "greet")
    tools = planned.tools._replace(kept=KeptPages(), seconds=0.3)
    market.index.pages[path] = Reply(stall=100)
    with pytest.raises(RunRefused, match=r"not done after 0\.3 s"):
        provide(planned._replace(tools=tools))


@pytest.mark.parametrize("url", ["http://[", "file://{file}"])
def test_a_page_of_the_index_names_no_file_of_this_machine(
    market: Market, tmp_path: Path, url: str
) -> None:
    file = tmp_path / FILE
    file.write_bytes(wheel_bytes("greet", {}))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    listed = {"filename": FILE, "url": url.format(file=file), "hashes": {"sha256": digest}}
    page = json.dumps({"files": [listed]}).encode()
    market.index.pages["/simple/greet/"] = Reply(page, headers={"Content-Type": SIMPLE_JSON})
    assert "has no valid host" in market.refusal("python", "greet")


def test_a_disk_that_is_full_is_a_refusal(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(sandbox: NativeSandbox, name: str, data: object) -> None:
        if name == FILE:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(sandbox, name, data)  # type: ignore[arg-type]

    real = NativeSandbox.put
    monkeypatch.setattr(NativeSandbox, "put", put)
    wheel(shop.packages, "greet", {})
    assert "No space left on device" in shop.refusal("greet")
    assert shop.left() == []


def test_a_file_that_is_larger_than_packages_may_be_is_not_fetched_whole(market: Market) -> None:
    list_wheel(market.index, "greet", {"big": "x" * 3_000_000})
    said = market.refusal("python", "greet", max_bytes=2**20)
    assert "max_packages_bytes" in said


# --- how large they are --------------------------------------------------------------------------


def test_how_much_will_be_fetched_is_known_from_what_resolving_fetched(market: Market) -> None:
    list_wheel(market.index, "greet", {"greet.txt": "x" * 1_250_000})
    assert market.plan("python", "greet").size == "1.3 MB to fetch"


def test_how_much_will_be_fetched_is_known_from_the_page_of_the_index(market: Market) -> None:
    digest = list_wheel(market.index, "greet", {}, ["inner"])
    list_wheel(market.index, "inner", {})
    listed = {"filename": FILE, "url": f"/files/{FILE}", "hashes": {"sha256": digest}}
    page = {"files": [{**listed, "size": 52_400_000}]}
    reply = Reply(json.dumps(page).encode(), headers={"Content-Type": SIMPLE_JSON})
    market.index.pages["/simple/greet/"] = reply
    assert market.plan("python", "greet").size == "52.4 MB to fetch"


@pytest.mark.parametrize("size", [-1, 0, True, "7", 2**60, None])
def test_a_size_that_is_none_is_not_told(size: object) -> None:
    page = json.dumps({"files": [{"filename": FILE, "url": FILE, "size": size}]}).encode()
    [found] = read_listing("https://index.example/greet/", SIMPLE_JSON, page)
    assert found.size == 0
