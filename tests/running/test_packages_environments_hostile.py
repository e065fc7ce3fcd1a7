"""Packages that want more than to be installed: nothing of theirs runs or fetches outside."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Environment
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import plan, provide
from skillbelt.running.packages.fetched import KeptPages
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import EnvironmentPlan
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from tests import needs
from tests.discovery.sources.server import Server, running
from tests.examples import first_one
from tests.registries import integrity, list_wheel, publish, tarball, wheel_bytes
from tests.running.test_packages_environments import _made_removable as _made_removable

pytestmark = [
    needs.linux,
]
npm = needs.npm


class Market:
    """An index of the user, and another server that no setting names."""

    def __init__(self, root: Path, index: Server, other: Server) -> None:
        self.root, self.index, self.other = root, index, other
        self.environ = {
            **os.environ,
            "npm_config_registry": index.url,
            "UV_DEFAULT_INDEX": f"{index.url}/simple",
            "UV_NO_CONFIG": "1",
        }

    def plan(self, kind: str, *requirements: str, **options: object) -> EnvironmentPlan:
        needs = Needs(kind, requirements, "listed")  # type: ignore[arg-type]
        given = {"environ": self.environ, "sandboxes": NativeSandboxes(), **options}
        return plan(needs, str(self.root / "cache"), **given)  # type: ignore[arg-type]

    def provision(self, kind: str, *requirements: str, **options: object) -> Environment:
        return provide(self.plan(kind, *requirements, **options))

    def refusal(self, kind: str, *requirements: str, **options: object) -> str:
        with pytest.raises(RunRefused) as caught:
            self.provision(kind, *requirements, **options)
        assert self.other.requests == []
        folder = self.root / "cache" / "environments"
        left = os.listdir(folder) if folder.is_dir() else []
        assert [name for name in left if not name.endswith(".lock")] == []
        return str(caught.value)


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    with running() as index, running() as other:
        yield Market(tmp_path, index, other)


# --- Node.js -------------------------------------------------------------------------------------


@npm
def test_a_git_dependency_deep_down_runs_nothing(market: Market, tmp_path: Path) -> None:
    """npm would clone it, and take the program for that from a file in the clone."""
    marker, scratch = tmp_path / "PWNED", tmp_path / "deep"
    scratch.mkdir()
    evil = scratch / "evil.sh"
    evil.write_text(f"#!/bin/sh\nid > {marker}\n")
    evil.chmod(0o755)
    (scratch / ".npmrc").write_text("git=./evil.sh\n")
    about = {"name": "deep", "version": "1.0.0", "dependencies": {"x": "git+file:///nowhere"},
             "scripts": {"prepare": f"touch {marker}"}}  # fmt: skip
    (scratch / "package.json").write_text(json.dumps(about))
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        options = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "-C", str(scratch), *options, *words], check=True)
    publish(market.index, "nicepkg", about={"dependencies": {"middle": "^1.3.0"}})
    publish(market.index, "middle", about={"dependencies": {"deep": f"git+file://{scratch}"}})
    said = market.refusal("node", "nicepkg@1.3.0")
    assert said.startswith("middle@1.3.0 is not installed: it requires deep from git+file://")
    assert not marker.exists()


@npm
@pytest.mark.parametrize(
    "where", first_one("{url}/inner.tgz", "file:../x", "user/repo", "link:../x")
)
@pytest.mark.parametrize(
    "key", ["dependencies", pytest.param("optionalDependencies", marks=pytest.mark.long)]
)
def test_a_dependency_from_elsewhere_is_refused_by_name(
    market: Market, where: str, key: str
) -> None:
    wanted = where.format(url=market.other.url)
    publish(market.index, "nicepkg", about={key: {"inner": wanted}})
    said = market.refusal("node", "nicepkg@1.3.0")
    assert f"nicepkg@1.3.0 is not installed: it requires inner from {wanted}" in said


@pytest.mark.long
@npm
@pytest.mark.parametrize("told", [True, False])
def test_a_list_that_a_package_brings_is_not_followed(market: Market, told: bool) -> None:
    data = tarball({"package.json": json.dumps({"name": "inner", "version": "1.0.0"})})
    locked = {"version": "1.0.0", "resolved": f"{market.other.url}/inner.tgz",
              "integrity": integrity(data)}  # fmt: skip
    listed = {"name": "nicepkg", "version": "1.3.0", "lockfileVersion": 3, "requires": True,
              "packages": {"": {}, "node_modules/inner": locked}}  # fmt: skip
    market.other.pages["/inner.tgz"] = data
    files = {"npm-shrinkwrap.json": json.dumps(listed)}
    about = {"dependencies": {"inner": "1.0.0"}, **({"_hasShrinkwrap": True} if told else {})}
    publish(market.index, "inner", about={"version": "1.3.0"})
    publish(market.index, "nicepkg", about={**about, "dependencies": {"inner": "*"}}, files=files)
    if told:
        said = market.refusal("node", "nicepkg@1.3.0")
        assert "nicepkg@1.3.0 is not installed: it has its own lock file" in said
    else:
        made = market.provision("node", "nicepkg@1.3.0")
        assert dict(made.installed)["inner"] == "1.3.0"
        assert market.other.requests == []


@pytest.mark.long
@npm
def test_files_come_from_the_registry_and_from_hosts_that_are_set(market: Market) -> None:
    elsewhere = f"{market.other.url}/greet.tgz"
    publish(market.index, "greet", dist={"tarball": elsewhere})
    host = market.other.url.removeprefix("http://")
    said = market.refusal("node", "greet@1.3.0")
    assert "127.0.0.1 is not your package index; if that serves files from there, set" in said
    market.other.pages["/greet.tgz"] = market.index.pages["/greet.tgz"]
    assert market.provision("node", "greet@1.3.0", hosts=(host,)).installed


@npm
@pytest.mark.parametrize(
    "dist",
    first_one(
        {"integrity": "sha512-AA=="}, {"integrity": None}, {"integrity": None, "shasum": None}
    ),
)
def test_a_package_without_a_strong_hash_is_refused(
    market: Market, dist: dict[str, str | None]
) -> None:
    publish(market.index, "greet", dist=dist)
    assert "greet@1.3.0 is not installed: the registry has no hash" in market.refusal(
        "node", "greet@1.3.0"
    )


@npm
def test_other_bytes_than_were_resolved_are_not_installed(market: Market) -> None:
    publish(market.index, "greet")
    planned = market.plan("node", "greet@1.3.0")
    market.index.pages["/greet.tgz"] = tarball({"package.json": '{"name": "greet"}'})
    with pytest.raises(RunRefused, match=r"integrity|EINTEGRITY"):
        provide(planned)


@npm
def test_everything_that_comes_is_listed_with_its_hash(market: Market) -> None:
    inner = publish(market.index, "inner")
    publish(market.index, "greet", about={"dependencies": {"inner": "^1.0.0"}})
    planned = market.plan("node", "greet@1.3.0")
    assert [one.text.partition(":")[0] for one in planned.lock.packages] == [
        "greet@1.3.0 sha512", "inner@1.3.0 sha512",
    ]  # fmt: skip
    import base64

    digest = base64.b64decode(inner.partition("-")[2]).hex()
    assert planned.lock.packages[1].hashes == (f"sha512:{digest}",)


# --- Python --------------------------------------------------------------------------------------


def test_a_python_dependency_from_elsewhere_is_refused(market: Market) -> None:
    market.other.pages["/deep-1.0-py3-none-any.whl"] = b"x"
    url = f"{market.other.url}/deep-1.0-py3-none-any.whl"
    list_wheel(market.index, "nice", {}, [f"deep @ {url}"])
    assert "deep" in market.refusal("python", "nice")


def test_a_file_that_the_index_has_elsewhere_needs_a_host_that_is_set(market: Market) -> None:
    digest = list_wheel(market.index, "greet", {})
    file = "greet-1.0-py3-none-any.whl"
    market.other.pages[f"/{file}"] = market.index.pages.pop(f"/files/{file}")
    link = f'<a href="{market.other.url}/{file}#sha256={digest}">x</a>'
    market.index.pages["/simple/greet/"] = link.encode()
    assert "set package_hosts to 127.0.0.1" in market.refusal("python", "greet")
    host = market.other.url.removeprefix("http://")
    assert market.provision("python", "greet", hosts=(host,)).installed == (("greet", "1.0"),)


def test_a_file_that_the_index_gives_no_hash_of_stays_what_it_was(market: Market) -> None:
    digest = list_wheel(market.index, "greet", {})
    file = "greet-1.0-py3-none-any.whl"
    market.index.pages["/simple/greet/"] = f'<a href="/files/{file}">x</a>'.encode()
    planned = market.plan("python", "greet")
    assert planned.lock.packages[0].hashes == (f"sha256:{digest}",)
    market.index.pages[f"/files/{file}"] = wheel_bytes("greet", {"other.py": ""})
    later = planned._replace(tools=planned.tools._replace(kept=KeptPages()))
    with pytest.raises(RunRefused, match=r"[Hh]ash mismatch"):
        provide(later)
    # What resolving fetched is still what was asked for.
    assert not list(Path(provide(planned).path).rglob("other.py"))


def test_a_hash_that_is_declared_counts(market: Market) -> None:
    digest = list_wheel(market.index, "greet", {})
    assert market.plan("python", f"greet==1.0 --hash=sha256:{digest}").lock.packages
    said = market.refusal("python", f"greet==1.0 --hash=sha256:{'0' * 64}")
    assert "greet" in said and "hash" in said


def test_all_that_python_packages_need_is_listed(market: Market) -> None:
    inner = list_wheel(market.index, "inner-one", {})
    outer = list_wheel(market.index, "greet", {}, ["Inner_One>=1"])
    assert [one.text for one in market.plan("python", "Greet").lock.packages] == [
        f"greet==1.0 sha256:{outer}",
        f"inner-one==1.0 sha256:{inner}",
    ]


def test_a_program_of_a_package_is_not_the_interpreter(market: Market) -> None:
    entry = "[console_scripts]\npython3 = evil:main\nls = evil:main\n"
    list_wheel(market.index, "evil", {"evil-1.0.dist-info/entry_points.txt": entry, "evil.py": ""})
    try:
        made = market.provision("python", "evil")
    except RunRefused as refused:
        assert "python3" in str(refused)
        return
    for folder in (made.bin, made.interpreter):
        assert os.path.realpath(f"{folder}/python3") == os.path.realpath(NativeSandboxes().python)
    assert sorted(os.listdir(made.interpreter))[0] == "python"
    assert "ls" not in os.listdir(made.interpreter)


# --- the user's own ------------------------------------------------------------------------------


def test_what_the_index_is_told_is_not_known_inside(market: Market, tmp_path: Path) -> None:
    list_wheel(market.index, "greet", {})
    secret = market.index.url.replace("http://", "http://me:sekret@")
    market.environ |= {"UV_DEFAULT_INDEX": f"{secret}/simple", "MY_TOKEN": "sekret"}
    spy = tmp_path / "uv"
    spy.write_text("#!/bin/sh\nenv; cat /proc/*/environ *; ls -A /root /home ~; id; exit 1\n")
    spy.chmod(0o755)
    said = market.refusal("python", "greet", uv_path=str(spy))
    assert "packages.invalid" in said
    assert "sekret" not in said and "uid=0" not in said and market.index.url not in said
    made = market.provision("python", "greet")
    told = {headers.get("authorization", "") for headers in market.index.headers}
    assert told == {"Basic bWU6c2VrcmV0"}
    kept = [path for path in Path(made.path).rglob("*") if path.is_file()]
    assert not any(b"sekret" in path.read_bytes() for path in kept)


def test_an_installer_reaches_the_index_and_nothing_else(market: Market, tmp_path: Path) -> None:
    spy = tmp_path / "uv"
    code = (
        "import urllib.request as u\n"
        "for url in ('http://packages.invalid/simple/greet/', OTHER):\n"
        "    try: print(u.urlopen(url).status)\n"
        "    except Exception as error: print(error)\n"
    ).replace("OTHER", repr(market.other.url))
    spy.write_text(f"#!/usr/bin/python3\n{code}raise SystemExit(1)\n")
    spy.chmod(0o755)
    list_wheel(market.index, "greet", {})
    said = market.refusal("python", "greet", uv_path=str(spy))
    assert "200 HTTP Error 403" in said


def test_two_indexes_share_no_environment(market: Market) -> None:
    list_wheel(market.index, "greet", {})
    list_wheel(market.other, "greet", {})
    one = market.plan("python", "greet")
    market.environ["UV_DEFAULT_INDEX"] = f"{market.other.url}/simple"
    other = market.plan("python", "greet")
    assert one.lock == other.lock
    assert one.hash != other.hash


def test_another_file_is_another_environment(market: Market) -> None:
    list_wheel(market.index, "greet", {})
    one = market.plan("python", "greet")
    list_wheel(market.index, "greet", {"greet.py": "x = 2"})
    assert market.plan("python", "greet").hash != one.hash


def test_without_a_sandbox_nothing_is_installed_and_it_is_said_what_is_missing(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinuxSandbox, "unavailable", lambda _: "install the package 'bubblewrap'")
    said = market.refusal("python", "greet")
    assert "packages are installed inside bubblewrap, independent of the setting `sandbox`" in said
    assert said.endswith("install the package 'bubblewrap'")
    assert market.index.requests == []
