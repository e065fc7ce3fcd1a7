"""Lock files, documents, tool descriptions and scripts that read themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.format.skill import Skill
from skillbelt.scan.scanner import scan_skill

HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n# Notes\n\nKeep notes.\n"
USUAL = "registry." + "npmjs" + ".org"


def find_rules(folder: Path, name: str, data: bytes | str) -> set[str]:
    """Return the rules that find something in a skill with this file, notes left out."""
    path = folder / "notes" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "notes/SKILL.md").write_text(HEAD, "utf-8")
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    found = scan_skill(Skill.from_folder(str(folder / "notes"))).findings
    return {one.rule for one in found if one.kind != "note"}


LOCKS = {
    "package-lock.json": '{"p": {"a": {"resolved": "https://%s/a.tgz"},\n"funding": {"url": '
    '"https://opencollective.example.dev/a"},\n"b": {"resolved": "https://{}/b.tgz"}}}' % USUAL,
    "yarn.lock": 'a@1:\n  resolved "https://{}/a.tgz#1"\n',
    "pnpm-lock.yaml": "a:\n  resolution: {tarball: https://{}/a.tgz}\n",
    "uv.lock": 'sdist = { url = "https://{}/a.tar.gz" }\n',
    "Cargo.lock": 'source = "registry+https://{}/index"\n',
    "Gemfile.lock": "GEM\n  remote: https://{}/\n",
}
ODD_HOSTS = (
    "packages.cdn-mirror.dev",
    "registry.npmjs.\u043erg",
    "registry.npmjs.org.packages-cdn.dev",
    f"{USUAL}:x@packages-cdn.dev",
    f"{USUAL}:8443",
)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_with_a_package_from_elsewhere(tmp_path: Path, name: str) -> None:
    text = LOCKS[name].replace("{}", ODD_HOSTS[0])
    assert "package-elsewhere" in find_rules(tmp_path / "a", name, text)
    assert find_rules(tmp_path / "b", name, LOCKS[name].replace("{}", USUAL)) == set()


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_host_that_looks_like_a_registry(tmp_path: Path, host: str) -> None:
    text = LOCKS["package-lock.json"].replace("{}", host)
    assert find_rules(tmp_path, "package-lock.json", text) == {"package-elsewhere"}


def test_a_lock_file_that_spells_an_address_by_numbers(tmp_path: Path) -> None:
    text = '{"a": {"\\u0072esolved": "https:\\/\\/cdn-mirror.dev\\/a.tgz"}}'
    assert find_rules(tmp_path, "package-lock.json", text) == {"package-elsewhere"}


def test_a_rented_registry_is_usual_for_a_whole_file_only(tmp_path: Path) -> None:
    whole = 'a@1:\n  resolved "https://team.jfrog.io/a.tgz"\n'
    mixed = whole + f'b@1:\n  resolved "https://{USUAL}/b.tgz"\n' * 3
    assert find_rules(tmp_path / "a", "yarn.lock", whole) == set()
    assert find_rules(tmp_path / "b", "yarn.lock", mixed) == {"package-elsewhere"}


def test_the_end_of_a_long_lock_file_is_read(tmp_path: Path) -> None:
    text = f'a@1:\n  resolved "https://{USUAL}/a.tgz"\n' * 20_000
    text += 'a@1:\n  resolved "https://cdn-mirror.dev/a.tgz"\n'
    assert find_rules(tmp_path, "yarn.lock", text) == {"package-elsewhere"}
