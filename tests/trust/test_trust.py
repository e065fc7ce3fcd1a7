from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillbelt import Catalog
from skillbelt.errors import ConfigError
from skillbelt.settings import load_settings
from skillbelt.trust import FILE, Trust, TrustEntry, normal_url
from skillbelt.values import Origin
from tests import needs, warm
from tests.tree import Tree

BASE = "https://a.example/x"
# A process that trusts folders until it is killed.
ADDS = """
import sys
from skillbelt.trust import Trust
trust = Trust(sys.argv[1])
while True:
    for folder in sys.argv[2:]:
        trust.add(folder)
        print(folder, flush=True)
        trust.remove(folder)
"""


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(str(tmp_path / "state"))


def archive(url: str) -> Origin:
    return Origin("archive", url)


def write(trust: Trust, content: bytes | str, mode: int = 0o600) -> None:
    os.makedirs(os.path.dirname(trust.path), exist_ok=True)
    Path(trust.path).write_bytes(content.encode() if isinstance(content, str) else content)
    os.chmod(trust.path, mode)


def document(*entries: dict[str, object], version: object = 1) -> str:
    return json.dumps({"version": version, "trusted": list(entries)})


# Folders


def test_nothing_is_trusted_at_first_and_nothing_is_made(trust: Trust, tmp_path: Path) -> None:
    assert trust.entries() == []
    assert not trust.project(str(tmp_path))
    assert not trust.origin(archive(BASE))
    assert trust.diagnostics == ()
    assert not (tmp_path / "state").exists()


def test_a_folder_and_all_below_it(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "p" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "pp").mkdir()
    entry = trust.add(str(tmp_path / "p"))
    assert entry[:2] == ("project", str(tmp_path / "p"))
    assert trust.entries() == [entry]
    assert trust.project(str(tmp_path / "p"))
    assert trust.project(str(tmp_path / "p" / "deep" / "er"))
    assert not trust.project(str(tmp_path / "pp"))
    assert not trust.project(str(tmp_path))


def test_links_are_resolved_on_both_sides(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "p" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("p")
    (tmp_path / "p" / "out").symlink_to(tmp_path / "elsewhere")
    assert trust.add(str(tmp_path / "link")).value == str(tmp_path / "p")
    assert trust.project(str(tmp_path / "link" / "inner"))
    assert not trust.project(str(tmp_path / "p" / "out"))
    assert not trust.project(str(tmp_path / "p" / ".." / "elsewhere"))


def test_a_relative_path_is_made_absolute(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trust.add(".").value == str(tmp_path)


def test_two_slashes_are_one(trust: Trust, tmp_path: Path) -> None:
    assert trust.add(f"/{tmp_path}").value == str(tmp_path)
    assert trust.project(f"/{tmp_path}//a")
    assert not trust.project("//")


def test_the_root_of_all_folders(trust: Trust, tmp_path: Path) -> None:
    trust.add("/")
    assert trust.project("/")
    assert trust.project(str(tmp_path))


@pytest.mark.parametrize("value", ["", "nowhere", "a\0b", "a.example/x"])
def test_a_folder_must_exist_to_be_trusted(trust: Trust, value: str) -> None:
    with pytest.raises(ConfigError, match="no such folder; give an existing one, or the URL"):
        trust.add(value)
    assert trust.entries() == []


def test_a_folder_that_is_gone_can_be_removed(trust: Trust, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    added = trust.add(str(folder))
    folder.rmdir()
    assert trust.remove(str(folder)) == added
    assert trust.entries() == []


def test_a_name_of_any_bytes(trust: Trust, tmp_path: Path) -> None:
    folder = os.path.join(tmp_path, os.fsdecode(b"p\xff\n\x1b"))
    os.mkdir(folder)
    trust.add(folder)
    assert Trust(os.path.dirname(trust.path)).project(folder)


def test_an_archive_on_this_disk_is_an_origin(trust: Trust, tmp_path: Path) -> None:
    """As the catalogue calls it when the settings name its path."""
    file = tmp_path / "my skills.zip"
    file.write_bytes(b"")
    entry = trust.add(str(file))
    assert entry[:2] == ("origin", f"file://{tmp_path}/my%20skills.zip")
    assert trust.origin(archive(f"file://{tmp_path}/my%20skills.zip"))
    assert trust.remove(str(file)) == entry


# Origins


@pytest.mark.parametrize(
    "url",
    [
        BASE,
        f"{BASE}/",
        f"{BASE}/y",
        f"{BASE}/y/z.zip",
        f"{BASE}//y",
        f"{BASE}/a%20b",
        "https://A.Example/x/y",
        "HTTPS://a.example/x",
        "https://a.example:443/x",
        "https://a.example:/x",
        "https://a.example:0443/x",
    ],
)
def test_an_origin_and_all_below_it(trust: Trust, url: str) -> None:
    trust.add(BASE)
    assert trust.origin(archive(url))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://a.example",
        "https://a.example/",
        "https://a.example/xy",
        "https://a.example/X",
        "https://a.example/x.zip",
        "https://a.example/x%2Fy",
        "https://a.example/%78",
        "http://a.example/x",
        "ftp://a.example/x",
        "https://a.example:8443/x",
        "https://a.example:80/x",
        "https://a.example:0/x",
        "https://a.example:4４3/x",
        "https://a.example:443:443/x",
        "https://b.example/x",
        "https://a.example.evil.example/x",
        "https://sub.a.example/x",
        "https://a.example./x",
        "https://user@a.example/x",
        "https://a.example@evil.example/x",
        "https://a.example\\@evil.example/x",
        "https://evil.example/https://a.example/x",
        "https://evil.example#https://a.example/x",
        "https://a.example/x/../y",
        "https://a.example/x/..",
        "https://a.example/x/%2e%2e/y",
        "https://a.example/x/%2E./y",
        "https://a.example/x/.%252e/y",
        "https://a.example/x/..;/y",
        "https://a.example/x/..%2fy",
        "https://a.example/x/..%5cy",
        "https://a.example/x/./y",
        "https://a.example/x/y%0a",
        "https://a.example/x\n/y",
        "https://a.example/x /y",
        "https://a.example/x/\u202ey",
        "https://a.example/x?y",
        "https://a.example/x/y?z",
        "https://a.example/x/y#z",
        "https:/a.example/x",
        "//a.example/x",
        "a.example/x",
        f"{BASE}/{'y' * 5000}",
    ],
)
def test_nothing_else_is_trusted_with_it(trust: Trust, url: str) -> None:
    trust.add(BASE)
    assert not trust.origin(archive(url))


def test_the_kind_of_origin_makes_no_difference(trust: Trust) -> None:
    trust.add(f"well-known:{BASE}")
    assert [entry.value for entry in trust.entries()] == [BASE]
    assert trust.origin(Origin("index", BASE))


def test_a_host_of_other_letters_is_compared_to_the_letter(trust: Trust) -> None:
    """The Kelvin sign is a small k to Python, and to no one else."""
    trust.add("https://k.example")
    assert not trust.origin(archive("https://\u212a.example"))


def test_an_address_in_brackets(trust: Trust) -> None:
    trust.add("http://[::1]:80/x")
    assert trust.origin(archive("http://[::1]/x"))
    assert not trust.origin(archive("http://[::1]:8080/x"))
    assert not trust.origin(archive("http://[::2]/x"))


def test_a_query_is_trusted_to_the_letter(trust: Trust) -> None:
    trust.add(f"{BASE}?team=a")
    assert trust.origin(archive(f"{BASE}?team=a"))
    assert not trust.origin(archive(f"{BASE}?team=a/b"))
    assert not trust.origin(archive(f"{BASE}?team=ab"))
    assert not trust.origin(archive(BASE))


@pytest.mark.parametrize(
    "value",
    ["https://ada:secret@a.example/x", "https://a.example/x/../y", "https://", "https:///x", "://x",
     "https://a.example/%2e%2E", "ht tp://a.example", "https://a.example\\x"],
)  # fmt: skip
def test_only_a_plain_url_can_be_trusted(trust: Trust, value: str) -> None:
    with pytest.raises(ConfigError, match="write a plain URL"):
        trust.add(value)
    assert not os.path.exists(trust.path)


@given(st.text(alphabet="/.%2eExX;?#@:\\ ay", max_size=24))
@example("/../y")
@example("@evil.example")
def test_no_text_after_a_trusted_url_leads_out_of_it(rest: str) -> None:
    """What a browser would make of the URL lies below the trusted one, or it is not trusted."""
    from urllib.parse import unquote, urljoin, urlsplit

    url = BASE + rest
    plain = normal_url(url)
    if plain != BASE and not plain.startswith(f"{BASE}/"):
        return
    seen = urlsplit(urljoin(unquote(url), ""))
    assert (seen.scheme, seen.netloc) == ("https", "a.example")
    assert seen.path == "/x" or seen.path.startswith("/x/")
    assert ".." not in seen.path.split("/")


@given(st.text(max_size=40))
def test_the_normal_spelling_is_its_own(text: str) -> None:
    for url in (text, f"https://{text}", f"{BASE}/{text}"):
        once = normal_url(url)
        assert not once or normal_url(once) == once


# The file


def test_file_and_folder_are_private_and_nothing_is_left_beside_it(
    trust: Trust, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        trust.add(BASE)
    finally:
        os.umask(before)
    state = tmp_path / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in state.iterdir()} == {
        FILE: 0o600,
        f"{FILE}.lock": 0o600,
    }


def test_adding_twice_is_one_entry(trust: Trust) -> None:
    first = trust.add(BASE)
    assert trust.add("https://A.example:443/x/") == first
    assert trust.entries() == [first]


def test_removing_what_is_not_there(trust: Trust, tmp_path: Path) -> None:
    trust.add(BASE)
    assert trust.remove(f"{BASE}/y") is None
    assert trust.remove(str(tmp_path)) is None
    assert trust.remove("") is None
    assert trust.origin(archive(f"{BASE}/y"))


def test_the_entry_that_covers_a_value(trust: Trust, tmp_path: Path) -> None:
    origin, project = trust.add(BASE), trust.add(str(tmp_path))
    assert trust.covering(f"archive:{BASE}/y") == origin
    assert trust.covering(str(tmp_path / "a")) == project
    assert trust.covering("https://b.example") is None


def test_another_process_s_change_is_seen_at_once(trust: Trust) -> None:
    other = Trust(os.path.dirname(trust.path))
    assert not other.origin(archive(BASE))
    trust.add(BASE)
    assert other.origin(archive(BASE))
    trust.remove(BASE)
    assert not other.origin(archive(BASE))


def test_a_change_is_told_before_it_is_made(trust: Trust) -> None:
    told: list[tuple[TrustEntry, int]] = []

    def record(entry: TrustEntry) -> None:
        told.append((entry, len(trust.entries())))

    added = trust.add(BASE, record)
    trust.add(BASE, record)
    trust.remove(BASE, record)
    trust.remove(BASE, record)
    assert told == [(added, 0), (added, 1)]


def test_what_can_not_be_told_is_not_done(trust: Trust) -> None:
    def refuse(entry: TrustEntry) -> None:
        raise ConfigError("the log is full")

    with pytest.raises(ConfigError, match="the log is full"):
        trust.add(BASE, refuse)
    assert trust.entries() == []


PROJECT = {"kind": "project", "value": "/p", "time": 1}
DAMAGED = {
    "empty": "",
    "half": document(PROJECT)[:-3],
    "not text": b"\xff\xfe",
    "another thing": "[]",
    "another format": document(PROJECT, version=2),
    "no list": '{"version": 1}',
    "no entry": document(PROJECT, {"kind": "project"}),
    "a relative path": document({**PROJECT, "value": "p"}),
    "a path that climbs": document({**PROJECT, "value": "/p/../"}),
    "a url that climbs": document({**PROJECT, "kind": "origin", "value": f"{BASE}/../"}),
    "an empty url": document({**PROJECT, "kind": "origin", "value": ""}),
    "another kind": document({**PROJECT, "kind": "host"}),
    "nested": "[" * 100_000,
    "long": " " * (4 * 2**20) + document(PROJECT),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_trusts_nothing_and_is_left_as_it_is(
    trust: Trust, content: str | bytes
) -> None:
    write(trust, content)
    before = Path(trust.path).read_bytes()
    assert trust.entries() == []
    assert not trust.project("/p")
    [said] = trust.diagnostics
    assert (said.code, said.severity, said.path) == ("trust-unusable", "error", trust.path)
    assert "nothing is trusted" in said.message
    for change in (trust.add, trust.remove):
        with pytest.raises(ConfigError, match=r"trust\.json: .*move it away"):
            change(BASE)
    assert Path(trust.path).read_bytes() == before


@given(st.binary(max_size=200))
def test_any_bytes_are_a_file(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trust = Trust(folder)
        write(trust, content)
        assert trust.entries() == []
        assert len(trust.diagnostics) == 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_believed(trust: Trust, mode: int) -> None:
    write(trust, document({"kind": "origin", "value": BASE, "time": 1}), mode)
    assert not trust.origin(archive(BASE))
    assert "can be written by other users" in trust.diagnostics[0].message
    os.chmod(trust.path, 0o644)
    assert trust.origin(archive(BASE))
    assert trust.diagnostics == ()


@needs.root
def test_a_file_of_another_user_is_not_believed(trust: Trust) -> None:
    write(trust, document(PROJECT))
    os.chown(trust.path, 12345, 12345)
    assert not trust.project("/p")
    assert "belongs to another user" in trust.diagnostics[0].message


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_trusts_nothing(trust: Trust, make: Any) -> None:
    os.mkdir(os.path.dirname(trust.path))
    make(trust.path)
    assert trust.entries() == []
    assert "is not a file" in trust.diagnostics[0].message


def test_a_folder_that_can_not_be_written_is_told(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    assert trust.entries() == []
    with pytest.raises(ConfigError, match=r"trust\.json: cannot be written: .*set state_dir"):
        trust.add(BASE)


def test_a_killed_writer_leaves_a_whole_file(trust: Trust, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    names = [str(folder) for folder in folders]
    trust.add(BASE)
    for lines in (1, 2, 5):
        command = [sys.executable, "-c", ADDS, os.path.dirname(trust.path), *names]
        with warm.Popen[bytes](command, stdout=subprocess.PIPE) as child:
            assert child.stdout
            for _ in range(lines):
                child.stdout.readline()
            child.kill()
        assert trust.entries()[0].value == BASE
        assert {entry.value for entry in trust.entries()[1:]} <= set(names)
        assert trust.diagnostics == ()
    trust.add(names[0])
    assert sorted(os.listdir(os.path.dirname(trust.path))) == [FILE, f"{FILE}.lock"]


def test_a_reader_sees_the_old_file_or_the_new_one(trust: Trust, tmp_path: Path) -> None:
    trust.add(BASE)
    command = [sys.executable, "-c", ADDS, os.path.dirname(trust.path), str(tmp_path)]
    with warm.Popen[bytes](command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        for _ in range(20):
            child.stdout.readline()
            assert all(trust.origin(archive(BASE)) for _ in range(50))
        child.kill()


def test_many_processes_lose_nothing(trust: Trust, tmp_path: Path) -> None:
    code = "import sys; from skillbelt.trust import Trust\n"
    code += "for n in range(10): Trust(sys.argv[1]).add(f'https://{sys.argv[2]}.example/{n}')"
    state = os.path.dirname(trust.path)
    children = [warm.Popen[bytes]([sys.executable, "-c", code, state, name]) for name in "abcd"]
    assert [child.wait(150) for child in children] == [0] * 4
    wanted = {f"https://{name}.example/{number}" for name in "abcd" for number in range(10)}
    assert {entry.value for entry in trust.entries()} == wanted


# In the catalogue


def trusted(catalog: Catalog) -> dict[str, bool]:
    return {skill.name: skill.trusted for skill in catalog.discover()}


def test_a_trusted_project_s_skills_are(tree: Tree) -> None:
    """The next scan of the same catalogue knows, and so does one that has an index."""
    tree.skill("project/.agents/skills/pdf")
    trust = Trust(tree.settings().state_dir)
    catalog = tree.catalog(trust_project="ask")
    assert trusted(catalog) == {"pdf": False}
    trust.add(str(tree.project))
    assert catalog.refresh().changed == ("pdf",)
    assert trusted(catalog) == trusted(tree.catalog(trust_project="ask")) == {"pdf": True}
    trust.remove(str(tree.project))
    assert trusted(catalog) == trusted(tree.catalog(trust_project="ask")) == {"pdf": False}


def test_trust_of_a_part_is_not_trust_of_the_whole(tree: Tree) -> None:
    tree.git()
    tree.skill("project/.agents/skills/above")
    tree.skill("project/part/.agents/skills/below")
    Trust(tree.settings().state_dir).add(str(tree.path("project/part")))
    catalog = tree.catalog("project/part", trust_project="ask")
    assert trusted(catalog) == {"above": False, "below": True}


def test_a_link_out_of_a_trusted_project_is_not_read(tree: Tree) -> None:
    tree.skill("elsewhere/pdf")
    tree.path("project/.agents").mkdir()
    tree.path("project/.agents/skills").symlink_to(tree.path("elsewhere"))
    trust = Trust(tree.settings().state_dir)
    for folder in (tree.project, tree.path("elsewhere")):
        trust.add(str(folder))
        assert trusted(tree.catalog(trust_project="ask")) == {}


def test_a_trusted_archive_s_skills_are(tree: Tree) -> None:
    import zipfile

    with zipfile.ZipFile(tree.path("s.zip"), "w") as made:
        made.writestr("pdf/SKILL.md", "---\nname: pdf\ndescription: Reads.\n---\n")
    catalog = tree.catalog(paths=[str(tree.path("s.zip"))])
    assert trusted(catalog) == {"pdf": False}
    trust = Trust(tree.settings().state_dir)
    trust.add(str(catalog["pdf"].origin))
    assert trusted(catalog) == {"pdf": True}
    trust.remove(str(tree.path("s.zip")))
    assert trusted(catalog) == {"pdf": False}


def test_a_damaged_file_is_told_once_and_only_when_it_matters(tree: Tree) -> None:
    for client in (".agents", ".claude"):
        tree.skill(f"project/{client}/skills/pdf{client[1:]}")
    trust = Trust(tree.settings().state_dir)
    write(trust, "{")
    assert tree.catalog().diagnostics == ()
    catalog = tree.catalog(trust_project="ask")
    assert [d.code for d in catalog.diagnostics] == ["trust-unusable"]
    assert set(trusted(catalog).values()) == {False}


def test_a_project_can_not_bring_its_own_trust(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", 'state_dir = ".state"\n')
    with pytest.raises(ConfigError, match="SKILLBELT_STATE_DIR"):
        tree.settings()


@pytest.mark.parametrize("where", ["config", "environment", "argument"])
def test_the_user_may_say_where_it_is_written(tree: Tree, where: str) -> None:
    state, overrides = str(tree.path("mine")), {}
    match where:
        case "config":
            tree.write("home/.config/skillbelt/config.toml", f'state_dir = "{state}"\n')
        case "environment":
            tree.setenv("SKILLBELT_STATE_DIR", state)
        case "argument":
            overrides = {"state_dir": state}
    trust = Trust(load_settings(tree.project, overrides=overrides).state_dir)
    trust.add(BASE)
    assert trust.path == f"{state}/{FILE}"


def test_a_list_without_a_file_reads_no_json(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.skill("project/.agents/skills/pdf")
    monkeypatch.setattr("skillbelt.trust.read_json", None)
    assert [skill.trusted for skill in Catalog(tree.project, trust_project="ask").discover()] == [
        False
    ]
