"""Skills from every kind of source arrive the same way."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillbelt.discovery.sources.bounds import Deadline
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.errors import SourceError
from skillbelt.install.fetching import fetch_skills, open_source
from skillbelt.install.git import GitFetch, GitRepository
from skillbelt.install.source_syntax import parse_source
from skillbelt.install.values import SourceReference
from skillbelt.settings import Settings, load_settings
from tests.discovery.sources.mcp_server import serving as mcp_serving
from tests.discovery.sources.server import Reply, running
from tests.install.git_server import serving
from tests.install.repositories import BareRepository, git, skill_text

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    project = tmp_path / "project"
    project.mkdir()
    return load_settings(project=str(project), environ={"HOME": str(tmp_path)})


@pytest.fixture
def into(tmp_path: Path) -> str:
    (tmp_path / "into").mkdir()
    return str(tmp_path / "into")


def write_skill(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill_text(name))
    return folder


def zipped(files: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def tarred(files: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_a_folder_gives_its_skills_without_its_history(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    top = tmp_path / "source"
    write_skill(top / "skills/alpha", "alpha")
    write_skill(top / "skills/beta", "beta")
    (top / "skills/alpha/.git").mkdir()
    (top / "skills/alpha/.git/config").write_text("[core]\n")
    skills = fetch_skills(parse_source(str(top)), settings, into)
    assert [skill.name for skill in skills] == ["alpha", "beta"]
    assert os.listdir(skills[0].folder) == ["SKILL.md"]
    assert (skills[0].commit, skills[0].tree_sha) == ("", "")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret.txt", "../beta"])
def test_a_link_out_of_a_local_skill_is_refused_by_name(
    settings: Settings, into: str, tmp_path: Path, target: str
) -> None:
    top = tmp_path / "source"
    (write_skill(top / "skills/alpha", "alpha") / "leak").symlink_to(target)
    (top / "secret.txt").write_text("secret")
    with pytest.raises(SourceFailure, match="'leak' refused"):
        fetch_skills(parse_source(str(top)), settings, into)


def test_a_marketplace_cannot_name_a_folder_behind_a_link(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    write_skill(tmp_path / "private/skills/secret", "secret")
    top = tmp_path / "source"
    write_skill(top / "skills/alpha", "alpha")
    (top / "out").symlink_to(tmp_path / "private")
    marketplace(top / ".claude-plugin", "./out")
    source = open_source(parse_source(str(top)), settings, into)
    assert [skill.name for skill in source.found.skills] == ["alpha"]


def test_a_pipe_in_a_local_skill_is_refused(settings: Settings, into: str, tmp_path: Path) -> None:
    os.mkfifo(write_skill(tmp_path / "source", "alpha") / "pipe")
    with pytest.raises(SourceFailure, match="'pipe' is not a regular file"):
        fetch_skills(parse_source(str(tmp_path / "source")), settings, into)


def test_a_missing_folder_says_how_a_repository_is_written(settings: Settings, into: str) -> None:
    with pytest.raises(SourceFailure) as caught:
        fetch_skills(parse_source("./gone", folder="/nonexistent"), settings, into)
    assert "owner/repo" in caught.value.remedy


@pytest.mark.parametrize("name", ["alpha.skill", "alpha.zip", "alpha.tar", "alpha.tar.gz"])
def test_an_archive_of_this_machine_is_unpacked(
    settings: Settings, into: str, tmp_path: Path, name: str
) -> None:
    files = {"SKILL.md": skill_text("alpha"), "scripts/a.py": "print(1)\n"}
    data = tarred(files) if ".tar" in name else zipped(files)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (skill,) = fetch_skills(parse_source(str(tmp_path / name)), settings, into)
    assert (skill.name, skill.reference.kind) == ("alpha", "download")
    assert Path(skill.folder, "scripts/a.py").read_text() == "print(1)\n"


def test_an_archive_with_a_path_out_is_refused(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    data = zipped({"SKILL.md": skill_text("alpha"), "../evil": "x"})
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(SourceError, match="evil"):
        fetch_skills(parse_source(str(tmp_path / "a.zip")), settings, into)


def test_git_over_http_gives_only_the_files_that_are_asked_for(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    repository = BareRepository(tmp_path / "served/source.git")
    git(repository.folder, "config", "uploadpack.allowFilter", "true")
    big = {"SKILL.md": skill_text("big"), "big.bin": os.urandom(2**18).hex()}
    small = {"SKILL.md": skill_text("small"), "a.txt": "a"}
    commit = repository.commit({"skills": {"big": big, "small": small}})
    with serving(tmp_path / "served") as server:
        reference = parse_source(f"{server.url}/source.git#main@small")
        (skill,) = fetch_skills(reference, settings, into)
    assert (skill.name, skill.commit) == ("small", commit)
    assert sorted(os.listdir(skill.folder)) == ["SKILL.md", "a.txt"]
    size = sum(file.stat().st_size for file in Path(into).rglob("*.pack"))
    assert size < 2**17


def test_a_repository_that_moved_is_found_and_never_on_a_private_host_of_another_name(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    BareRepository(tmp_path / "served/new.git").commit({"SKILL.md": skill_text("alpha")})
    with serving(tmp_path / "served") as server:
        server.moved = {
            "/old.git": f"{server.url}/new.git",
            "/evil.git": f"{server.url.replace('127.0.0.1', '127.0.0.2')}/new.git",
        }
        (skill,) = fetch_skills(parse_source(f"{server.url}/old.git"), settings, into)
        assert skill.name == "alpha"
        assert skill.reference.url.endswith("/old.git")
        os.mkdir(f"{into}/more")
        with pytest.raises(SourceFailure, match="leads to this machine or network"):
            fetch_skills(parse_source(f"{server.url}/evil.git"), settings, f"{into}/more")


def test_a_server_that_always_speaks_of_another_hash_is_asked_twice(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    with serving(tmp_path) as server:
        server.error = "mismatched algorithms: client sha1; server sha256"
        with pytest.raises(SourceFailure, match="mismatched algorithms"):
            fetch_skills(parse_source(f"{server.url}/source.git"), settings, into)
    assert len(server.requests) <= 6


@pytest.mark.parametrize(
    "said",
    [
        "upload-pack: not our ref " + "1" * 40,
        "Server does not allow request for unadvertised object " + "1" * 40,
        "mismatched algorithms: client sha1; server sha256",
    ],
)
def test_a_server_that_takes_back_what_it_has_is_a_clear_failure(
    into: str, tmp_path: Path, said: str
) -> None:
    """As one does whose history was rewritten meanwhile."""
    repository = BareRepository(tmp_path / "served/source.git")
    repository.commit({"SKILL.md": skill_text("alpha")})
    with serving(tmp_path / "served") as server:
        url = f"{server.url}/source.git"
        fetched = GitRepository(into, GitFetch(url), Deadline(url, 500))
        fetched.fetch_commit()
        server.error = said
        with pytest.raises(SourceFailure, match=said[:20]):
            fetched.fetch_objects(["1" * 40])


def test_a_server_that_is_not_there_is_a_clear_failure(settings: Settings, into: str) -> None:
    with pytest.raises(SourceFailure) as caught:
        fetch_skills(parse_source("http://127.0.0.1:9/source.git"), settings, into)
    assert caught.value.code == "git-failed"


def test_offline_makes_no_request(settings: Settings, into: str) -> None:
    with pytest.raises(SourceFailure, match="offline"):
        fetch_skills(parse_source("owner/repo"), settings._replace(offline=True), into)


def test_a_published_list_gives_its_digests(settings: Settings, into: str) -> None:
    text = skill_text("alpha").encode()
    archive = zipped({"SKILL.md": skill_text("beta"), "a.txt": "1"})
    listed = [
        {"name": "alpha", "type": "skill-md", "description": "x", "url": "alpha/SKILL.md",
         "digest": digest_of(text)},
        {"name": "beta", "type": "archive", "description": "x", "url": "beta.zip",
         "digest": digest_of(archive)},
    ]  # fmt: skip
    base = "/.well-known/agent-skills"
    with running() as server:
        server.pages = {
            f"{base}/index.json": json.dumps({"$schema": SCHEMA, "skills": listed}).encode(),
            f"{base}/alpha/SKILL.md": text,
            f"{base}/beta.zip": archive,
        }
        skills = fetch_skills(parse_source(server.url), settings, into)
    assert {skill.name: skill.well_known_digest for skill in skills} == {
        "alpha": digest_of(text),
        "beta": digest_of(archive),
    }
    assert skills[0].reference.kind == "well-known"


def layout(folder: Path, layers: list[tuple[str, bytes]]) -> str:
    """Write an OCI layout with one manifest; return its digest."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes) -> dict[str, object]:
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
        return {"digest": digest_of(data), "size": len(data)}

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", **put(b"{}")},
            "layers": [{"mediaType": kind, **put(data)} for kind, data in layers],
        }
    ).encode()
    index = {"schemaVersion": 2, "manifests": [put(manifest)]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return digest_of(manifest)


LAYER = "application/vnd.agent.skill.content.v1.tar+gzip"


def test_an_oci_layout_gives_the_skill_of_its_layers(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    data = gzip.compress(tarred({"SKILL.md": skill_text("alpha"), "a.txt": "1"}))
    digest = layout(tmp_path / "layout", [(LAYER, data)])
    (skill,) = fetch_skills(parse_source(f"oci-layout:{tmp_path}/layout"), settings, into)
    assert (skill.name, skill.provenance) == ("alpha", {"digest": digest})


def test_a_layer_that_was_changed_is_refused(settings: Settings, into: str, tmp_path: Path) -> None:
    data = gzip.compress(tarred({"SKILL.md": skill_text("alpha")}))
    layout(tmp_path / "layout", [(LAYER, data)])
    blob = tmp_path / "layout/blobs/sha256" / hashlib.sha256(data).hexdigest()
    blob.write_bytes(gzip.compress(tarred({"SKILL.md": skill_text("evil")})))
    with pytest.raises(SourceFailure, match="has the digest"):
        fetch_skills(parse_source(f"oci-layout:{tmp_path}/layout"), settings, into)


def test_a_registry_asks_for_a_token_that_anyone_gets(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    data = gzip.compress(tarred({"SKILL.md": skill_text("alpha")}))
    digest = layout(tmp_path / "layout", [(LAYER, data)])
    blobs = tmp_path / "layout/blobs/sha256"
    with running() as server:
        host = server.url.removeprefix("http://")
        server.pages = {
            f"/v2/team/{'manifests' if digest in name else 'blobs'}/{name}": Reply(body)
            for body in (path.read_bytes() for path in blobs.iterdir())
            for name in (digest_of(body),)
        }
        server.pages["/v2/team/manifests/v1"] = (
            blobs / digest.removeprefix("sha256:")
        ).read_bytes()
        (skill,) = fetch_skills(parse_source(f"oci://{host}/team:v1"), settings, into)
        assert (skill.name, skill.provenance) == ("alpha", {"digest": digest})
        os.mkdir(f"{into}/more")
        server.pages["/v2/team/manifests/v2"] = Reply(
            status=401, headers={"WWW-Authenticate": f'Bearer realm="{server.url}/token"'}
        )
        server.pages["/token?service=&scope=repository%3Ateam%3Apull"] = b'{"token": "abc"}'
        with pytest.raises(SourceFailure, match="answered 401"):
            fetch_skills(parse_source(f"oci://{host}/team:v2"), settings, f"{into}/more")
        assert server.headers[-1]["authorization"] == "Bearer abc"


def test_clawhub_gives_an_archive(settings: Settings, into: str) -> None:
    with running() as server:
        server.pages["/download"] = zipped({"SKILL.md": skill_text("alpha"), "_meta.json": "{}"})
        reference = SourceReference(kind="clawhub", source="alpha", url=f"{server.url}/download")
        (skill,) = fetch_skills(reference, settings, into)
    assert skill.name == "alpha"
    assert str(skill.provenance["archiveDigest"]).startswith("sha256:")


def marketplace(folder: Path, source: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "name": "team",
        "owner": {"name": "x"},
        "plugins": [{"name": "tools", "source": source}],
    }
    (folder / "marketplace.json").write_text(json.dumps(document))


def test_a_plugin_of_a_marketplace_in_the_project(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    marketplace(project / ".claude-plugin", "./plugins/tools")
    write_skill(project / "plugins/tools/skills/alpha", "alpha")
    (skill,) = fetch_skills(parse_source("tools@team"), settings, into)
    assert (skill.name, skill.reference.kind) == ("alpha", "local")


def test_a_plugin_that_is_pinned_to_a_commit_elsewhere(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    repository = BareRepository(tmp_path / "plugin.git")
    first = repository.commit({"sub": {"skills": {"a": {"SKILL.md": skill_text("alpha")}}}})
    repository.commit({"README.md": "gone"}, parent=first)
    source = {"source": "git-subdir", "url": repository.url, "path": "./sub", "sha": first}
    marketplace(tmp_path / "project/.agents/plugins", source)
    (skill,) = fetch_skills(parse_source("tools@team"), settings, into)
    assert (skill.name, skill.commit, skill.skill_path) == ("alpha", first, "sub/skills/a/SKILL.md")


@pytest.mark.parametrize(
    "source",
    [
        "../outside",
        "/etc",
        {"source": "command", "command": "touch x"},
        {"source": "npm", "package": "x"},
        {"source": "url", "url": "ext::sh -c x"},
        {"source": "git-subdir", "url": "https://example.com/r.git", "path": "../x"},
        {"source": "github", "repo": "o/r", "sha": "abc"},
        {"source": "github", "repo": "--upload-pack=x"},
    ],
)
def test_a_plugin_that_leads_elsewhere_is_refused(
    settings: Settings, into: str, tmp_path: Path, source: object
) -> None:
    marketplace(tmp_path / "project/.claude-plugin", source)
    with pytest.raises(SourceError):
        open_source(parse_source("tools@team"), settings, into)


def test_an_unknown_marketplace_names_the_known_ones(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    marketplace(tmp_path / "project/.claude-plugin", "./x")
    with pytest.raises(SourceFailure, match=r"known: team"):
        open_source(parse_source("tools@other"), settings, into)


def test_a_wrong_name_says_what_the_source_has(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    write_skill(tmp_path / "source/skills/alpha", "alpha")
    source = open_source(parse_source(str(tmp_path / "source")), settings, into)
    with pytest.raises(SourceFailure, match="did you mean 'alpha'"):
        source.choose(["alpah"])


def test_an_mcp_server_gives_every_file_that_it_lists(settings: Settings, into: str) -> None:
    with mcp_serving() as server:
        server.add({"guide.md": b"The guide.\n", "scripts/say.py": b"print(1)\n"})
        (skill,) = fetch_skills(parse_source(f"{server.url}#docs"), settings, into)
    assert (skill.name, skill.reference.kind) == ("pdf", "mcp")
    top = Path(skill.folder)
    assert (top / "guide.md").read_text() == "The guide.\n"
    assert (top / "scripts/say.py").read_text() == "print(1)\n"
    assert (top / "SKILL.md").stat().st_size > 0


def test_the_token_and_the_command_of_a_server_come_from_the_settings(
    settings: Settings, into: str, tmp_path: Path
) -> None:
    with mcp_serving() as server:
        server.add({"guide.md": b"The guide.\n"})
        known = server.url.replace("://", "://hunter2@")
        mine = settings._replace(urls=(f"{known}#mine",))
        (skill,) = fetch_skills(parse_source(f"{server.url}#docs"), mine, into)
        assert server.headers[-1]["authorization"] == "Bearer hunter2"
    assert skill.skill_path.startswith("docs.")
    assert "hunter2" not in repr(skill)
    mine = settings._replace(mcp_commands=("own=/nonexistent/server",))
    for label, said in (("own", "/nonexistent/server"), ("other", "no command of that name")):
        (folder := tmp_path / label).mkdir()
        with pytest.raises(SourceError, match=said):
            fetch_skills(parse_source(f"mcp+stdio://{label}"), mine, str(folder))
