"""What the settings demand of skills that are installed: signers, sources, age."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.install.content_store import store_folder
from skillbelt.install.entries import install_request
from skillbelt.install.sign import SigningMeans, sign_skill, write_signature
from skillbelt.install.values import LockEntry
from skillbelt.settings import load_settings
from skillbelt.source_rules import matches_source, parse_signer
from tests.install.desk import InstallDesk
from tests.install.signing import Keypair, make_key
from tests.tree import Done, Tree

USER = "home/.config/skillbelt/config.toml"
PROJECT = "project/skillbelt.toml"


class PolicyDesk(InstallDesk):
    """A project, a repository with two skills, and keys."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.mine = make_key(tree.root, "mine")
        self.other = make_key(tree.root, "other")

    def sign(self, pair: Keypair, name: str = "alpha") -> None:
        folder = str(self.work / "skills" / name)
        means = SigningMeans(key=str(pair.private))
        write_signature(sign_skill(folder, means, lambda: b""))
        self.commit()

    def demand(self, rule: str, *pairs: Keypair, file: str = USER, more: str = "") -> None:
        signers = [f"file://{self.work}/** key {pair.public}" for pair in pairs]
        text = f'signatures = "{rule}"\ntrusted_signers = {json.dumps(signers)}\n{more}'
        self.tree.write(file, text)

    def add(self, *words: str, name: str = "alpha") -> Done:
        return self.run("add", self.url, "--skill", name, "--yes", "--json", *words)

    def entry(self, name: str = "alpha") -> Any:
        return self.document()["skills"][name]

    def forget(self) -> None:
        """Make it another machine: nothing is installed, fetched or remembered."""
        shutil.rmtree(self.base / ".agents")
        shutil.rmtree(store_folder(self.settings))
        shutil.rmtree(os.path.join(self.settings.state_dir, "install"))


@pytest.fixture
def desk(tree: Tree) -> PolicyDesk:
    return PolicyDesk(tree)


def refusal(done: Done) -> tuple[int, str, str]:
    (one,) = done.document["refused"]
    assert set(one) == {"name", "code", "message", "remedy"}
    return done.exit_code, one["code"], one["remedy"]


# --- signers -------------------------------------------------------------------------------------


def test_a_signed_skill_is_installed_and_the_lock_has_its_signer(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.mine)
    done = desk.add()
    assert done.exit_code == 0, done.stdout
    signer = desk.entry()["provenance"]["signer"]
    assert (signer["method"], signer["identity"][:7]) == ("key", "sha256:")
    assert "unsigned" not in desk.entry()
    verified = desk.run("verify", "--json")
    assert (verified.exit_code, verified.document["skills"][0]["signer"]) == (0, signer)


def test_an_unsigned_skill_is_refused_with_the_command_that_accepts_it(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    code, kind, remedy = refusal(desk.add())
    assert (code, kind) == (4, "unsigned")
    command = f"skillbelt add {desk.url} --skill alpha --allow-unsigned"
    assert f"`{command}` accepts it" in remedy
    assert not desk.installed("alpha").exists()
    assert desk.run(*command.split()[1:], "--yes").exit_code == 0
    assert desk.entry()["unsigned"] is True
    assert desk.run("verify").exit_code == 0


@pytest.mark.parametrize(
    ("signs", "kind"), [("other", "unknown-signer"), ("tampered", "bad-signature")]
)
def test_a_signature_by_another_or_over_other_files_is_refused(
    desk: PolicyDesk, signs: str, kind: str
) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.other if signs == "other" else desk.mine)
    if signs == "tampered":
        desk.write("alpha", "scripts/run.sh", "echo evil\n")
        desk.commit()
    assert refusal(desk.add())[:2] == (4, kind)
    accepted = desk.add("--allow-unsigned")
    assert accepted.exit_code == (0 if signs == "other" else 4)


def test_a_skill_that_is_refused_does_not_hold_up_the_others(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.mine, "beta")
    done = desk.run("add", desk.url, "--all", "--yes", "--json")
    assert (done.exit_code, refusal(done)[1]) == (3, "unsigned")
    assert desk.installed("beta").exists()


def test_warn_installs_and_says_so_and_the_lock_records_it(desk: PolicyDesk) -> None:
    desk.demand("warn", desk.mine)
    done = desk.run("add", desk.url, "--skill", "alpha", "--yes")
    assert (done.exit_code, "WARNING    it is not signed" in done.stderr) == (0, True)
    assert desk.entry()["unsigned"] is True


def test_off_looks_at_no_signature(desk: PolicyDesk) -> None:
    desk.write("alpha", "skill.oms.sig", "not one")
    desk.commit()
    assert desk.add().exit_code == 0
    assert "unsigned" not in desk.entry()


def test_an_update_by_another_signer_is_refused_until_it_is_accepted(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine, desk.other)
    desk.sign(desk.mine)
    desk.add()
    before = desk.entry()
    desk.write("alpha", "scripts/run.sh", "echo two\n")
    desk.sign(desk.other)
    code, kind, remedy = refusal(desk.run("update", "--yes", "--json"))
    assert (code, kind) == (4, "signer-changed")
    assert "`skillbelt update alpha --allow-signer-change` accepts it" in remedy
    assert desk.entry() == before
    assert desk.installed("alpha", "scripts/run.sh").read_text() == "echo one\n"
    assert desk.run("update", "alpha", "--allow-signer-change", "--yes").exit_code == 0
    assert desk.entry()["provenance"]["signer"] != before["provenance"]["signer"]


@pytest.mark.parametrize("rule", ["off", "warn"])
def test_a_signer_that_is_recorded_may_not_vanish_whatever_the_rule_is(
    desk: PolicyDesk, rule: str
) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.mine)
    desk.add()
    desk.demand(rule, desk.mine)
    (desk.work / "skills/alpha/skill.oms.sig").unlink()
    desk.commit()
    assert refusal(desk.run("update", "--yes", "--json"))[:2] == (4, "signer-changed")
    assert refusal(desk.add())[:2] == (4, "signer-changed")


def test_an_update_by_the_same_signer_shows_what_is_new(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.mine)
    desk.add()
    desk.write("alpha", "scripts/more.py", "print(1)\n")
    desk.write("alpha", "requirements.txt", "requests\n")
    desk.sign(desk.mine)
    done = desk.run("update", "--yes")
    assert done.exit_code == 0, done.stderr
    for line in ("signed", "added", "new scripts  scripts/more.py", "new packages requests"):
        assert line in done.stderr


def test_an_update_says_what_its_text_and_code_can_do_now(desk: PolicyDesk) -> None:
    desk.add()
    desk.write("alpha", "scripts/more.sh", "#!/bin/sh\ncurl https://api.example.net/x\n")
    desk.commit()
    done = desk.run("update", "--yes")
    assert done.exit_code == 0, done.stderr
    assert "  new          it can reach api.example.net; start curl.\n" in done.stderr


def test_sync_of_a_locked_skill_verifies_it_too(desk: PolicyDesk) -> None:
    desk.add()
    desk.add(name="beta")
    desk.forget()
    desk.demand("require", desk.mine)
    done = desk.run("sync", "--frozen", "--yes", "--json")
    assert done.exit_code == 4
    assert [one["code"] for one in done.document["refused"]] == ["unsigned", "unsigned"]
    assert "`skillbelt sync --allow-unsigned` accepts it" in done.document["refused"][0]["remedy"]
    assert not desk.installed("alpha").exists()
    assert desk.run("sync", "--frozen", "--yes", "--allow-unsigned").exit_code == 0
    assert desk.run("verify").exit_code == 0


def test_a_lock_that_says_unsigned_does_not_loosen_what_the_user_demands(
    desk: PolicyDesk,
) -> None:
    desk.demand("warn")
    desk.add()
    assert desk.entry()["unsigned"] is True
    desk.forget()
    desk.demand("require")
    assert refusal(desk.run("sync", "--frozen", "--yes", "--json"))[:2] == (4, "unsigned")


def test_a_lock_that_says_unsigned_counts_for_what_its_own_project_demands(
    desk: PolicyDesk,
) -> None:
    desk.demand("require", file=PROJECT)
    desk.add("--allow-unsigned")
    desk.forget()
    assert desk.run("sync", "--frozen", "--yes").exit_code == 0
    assert desk.run("verify").exit_code == 0


def test_verify_names_an_installed_skill_that_the_policy_would_refuse(desk: PolicyDesk) -> None:
    desk.add()
    assert desk.run("verify").exit_code == 0
    desk.demand("require", desk.mine)
    done = desk.run("verify", "--json")
    assert done.exit_code == 4
    assert [(one["kind"], one["name"]) for one in done.document["drift"]] == [("policy", "alpha")]
    assert done.document["skills"][0]["verified"] is False


@pytest.mark.parametrize("option", ["--check", "--frozen", "--dry-run"])
def test_sync_refuses_an_installed_skill_that_the_policy_forbids(
    desk: PolicyDesk, option: str
) -> None:
    desk.add()
    assert desk.run("sync", option).exit_code == 0
    desk.demand("require", desk.mine)
    done = desk.run("sync", option, "--json")
    assert (done.exit_code, [one["code"] for one in done.document["refused"]]) == (4, ["policy"])
    assert "is not signed" in done.document["refused"][0]["message"]


def test_a_difference_of_files_is_told_from_what_the_policy_forbids(desk: PolicyDesk) -> None:
    desk.add()
    desk.installed("alpha", "scripts/run.sh").write_text("echo edited\n")
    assert [desk.run(*words).exit_code for words in (("sync", "--check"), ("verify",))] == [2, 2]


def test_another_machine_without_signers_installs_what_is_locked(desk: PolicyDesk) -> None:
    """The lock pins the content; who signed it is not known here, and nothing demands it."""
    desk.demand("require", desk.mine)
    desk.sign(desk.mine)
    desk.add()
    desk.forget()
    desk.tree.path(USER).unlink()
    assert desk.run("sync", "--frozen", "--yes").exit_code == 0


def test_adopting_an_edit_drops_the_signer_of_what_was_there(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    desk.sign(desk.mine)
    desk.add()
    desk.installed("alpha", "SKILL.md").write_text("---\nname: alpha\ndescription: e\n---\n")
    desk.run("sync", "--adopt", "--yes")
    assert "provenance" not in desk.entry()


# --- what a project may say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "theirs", "counts"),
    [
        ("off", "require", "require"),
        ("require", "off", "require"),
        ("require", "warn", "require"),
        ("warn", "require", "require"),
    ],
)
def test_of_two_rules_the_stricter_counts(tree: Tree, own: str, theirs: str, counts: str) -> None:
    tree.write(USER, f'signatures = "{own}"\nmin_age_days = {len(own)}\n')
    tree.write(PROJECT, f'signatures = "{theirs}"\nmin_age_days = {len(theirs)}\n')
    settings = load_settings(tree.project)
    assert settings.signatures == counts
    assert settings.min_age_days == max(len(own), len(theirs))


def test_a_signer_of_the_project_does_not_make_up_for_one_of_the_user(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine)
    desk.demand("require", desk.other, file=PROJECT)
    desk.sign(desk.other)
    assert refusal(desk.add())[:2] == (4, "unknown-signer")
    desk.sign(desk.mine)
    assert refusal(desk.add())[:2] == (4, "unknown-signer")


def test_a_project_demands_its_own_signers_of_a_user_who_demands_none(desk: PolicyDesk) -> None:
    desk.demand("require", desk.mine, file=PROJECT)
    assert refusal(desk.add())[:2] == (4, "unsigned")
    desk.sign(desk.mine)
    assert desk.add().exit_code == 0


def test_a_signer_that_cannot_be_read_names_the_file_and_the_line(tree: Tree) -> None:
    tree.write(USER, 'signatures = "warn"\ntrusted_signers = ["acme/* sigstore a@example.com"]\n')
    with pytest.raises(ConfigError, match=r"config\.toml:2: trusted_signers: .* no issuer=URL"):
        load_settings(tree.project)


# --- sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [USER, PROJECT])
def test_a_source_that_is_not_allowed_is_not_even_fetched(desk: PolicyDesk, file: str) -> None:
    path = desk.tree.write(file, 'allowed_sources = ["acme/*"]\n')
    desk.work.rename(desk.work.with_name("gone"))
    code, kind, remedy = refusal(desk.add())
    assert (code, kind) == (4, "source-not-allowed")
    assert str(path) in remedy


def test_both_the_user_and_the_project_must_allow_a_source(desk: PolicyDesk) -> None:
    allowed = json.dumps([f"file://{desk.work}/**"])
    desk.tree.write(USER, f"allowed_sources = {allowed}\n")
    assert desk.add().exit_code == 0
    desk.tree.write(PROJECT, 'allowed_sources = ["acme/*"]\n')
    assert refusal(desk.run("update", "--yes", "--json"))[:2] == (4, "source-not-allowed")
    desk.forget()
    assert refusal(desk.run("sync", "--yes", "--json"))[:2] == (4, "source-not-allowed")


def test_a_lock_cannot_name_an_allowed_source_and_lead_to_another(desk: PolicyDesk) -> None:
    desk.add()
    desk.edit_entry("alpha", source="acme/skills", sourceType="github")
    desk.tree.write(USER, 'allowed_sources = ["acme/*"]\n')
    desk.forget()
    assert refusal(desk.run("sync", "--yes", "--json"))[:2] == (4, "source-not-allowed")


def test_the_question_names_the_address_behind_a_name_of_the_lock() -> None:
    entry = LockEntry(name="a", source="acme/skills", source_type="github")
    assert install_request([entry]).summary.endswith("from acme/skills")
    usual = entry._replace(source_url="https://github.com/acme/skills.git")
    assert install_request([usual]).summary.endswith("from acme/skills")
    other = entry._replace(source_url="https://evil.example/acme/skills.git")
    summary = install_request([other]).summary
    assert summary.endswith("from acme/skills (https://evil.example/acme/skills.git)")


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("acme/*", "https://github.com/Acme/Skills.git", True),
        ("acme/*", "https://github.com/acme-evil/skills.git", False),
        ("acme/*", "https://gitlab.com/acme/skills.git", False),
        ("acme/*", "https://github.com:444/acme/skills.git", False),
        ("acme/*", "http://github.com/acme/skills.git", False),
        ("gitlab:acme/**", "https://gitlab.com/acme/team/skills.git", True),
        ("https://git.example.com/acme/**", "https://git.example.com/acme/a/b.git", True),
        ("https://git.example.com/acme/**", "https://git.example.com/acme/../evil/b.git", False),
        ("https://git.example.com/acme/**", "https://git.example.com/acme/%2e%2e/evil", False),
        ("https://git.example.com/**", "https://git.example.com@evil.example/x", False),
        ("https://git.example.com/**", "https://evil.example/https://git.example.com/x", False),
        ("https://*.example.com/**", "https://evil.example/.example.com/x", False),
        ("https://*.example.com/**", "https://evil.example?.example.com/x", False),
        ("https://*.example.com/**", "https://evil.example#.example.com/x", False),
        ("https://git.example.com/**", "https://GIT.example.com/x", True),
        ("git@github.com:acme/*", "git@github.com:acme/skills.git", True),
        ("clawhub:*", "clawhub:pdf", True),
        ("./vendor/**", "/p/vendor/pdf", True),
        ("./vendor/**", "/p/vendor/../other", False),
        ("**", "anything", True),
    ],
)
def test_a_pattern_covers_what_is_opened(pattern: str, url: str, matches: bool) -> None:
    assert matches_source(pattern, url, "/p") is matches


@given(owner=st.from_regex(r"[a-z0-9-]{1,10}", fullmatch=True), rest=st.text(max_size=20))
def test_a_pattern_of_one_owner_covers_no_other(owner: str, rest: str) -> None:
    url = f"https://github.com/{owner}{rest}"
    if matches_source("acme/*", url, "/p"):
        assert url.lower().startswith("https://github.com/acme/")


@given(text=st.text(max_size=60))
def test_any_text_is_a_signer_or_refused_with_a_reason(text: str) -> None:
    try:
        assert parse_signer(text).method in ("key", "certificate", "sigstore")
    except ValueError as error:
        assert str(error)


# --- age -----------------------------------------------------------------------------------------


def pretend_seen(desk: PolicyDesk, days: float) -> None:
    """Let this machine have seen all that it knows some days earlier."""
    path = Path(desk.settings.state_dir) / "install" / "contents.json"
    then = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    notes = {digest: {"seen": then} for digest in json.loads(path.read_text())}
    path.write_text(json.dumps(notes))


def test_a_content_must_be_known_here_for_some_days(desk: PolicyDesk) -> None:
    """The date of the commit does not make it older: its author wrote it."""
    desk.tree.write(USER, "min_age_days = 3\n")
    assert refusal(desk.add())[:2] == (4, "too-new")
    pretend_seen(desk, 2.9)
    assert refusal(desk.add())[:2] == (4, "too-new")
    pretend_seen(desk, 3.1)
    # The commit of the test is younger than that, and this is believed.
    assert refusal(desk.add())[:2] == (4, "too-new")


def test_an_old_commit_that_is_known_for_long_is_installed(
    desk: PolicyDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
    desk.write("alpha", "x.md", "x")
    desk.commit()
    desk.tree.write(USER, "min_age_days = 3\n")
    assert refusal(desk.add())[:2] == (4, "too-new")
    pretend_seen(desk, 3.1)
    done = desk.add()
    assert done.exit_code == 0, done.stdout
    assert desk.entry()["provenance"]["firstSeen"]


def test_the_time_in_a_lock_counts_for_its_own_project_alone(
    desk: PolicyDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
    desk.write("alpha", "x.md", "x")
    desk.commit()
    desk.add()
    seen = {"committedAt": "2020-01-01T00:00:00Z", "firstSeen": "2020-01-02T00:00:00Z"}
    desk.edit_entry("alpha", provenance=seen)
    desk.forget()
    desk.tree.write(USER, "min_age_days = 3\n")
    assert refusal(desk.run("sync", "--yes", "--json"))[:2] == (4, "too-new")
    desk.tree.path(USER).unlink()
    desk.tree.write(PROJECT, "min_age_days = 3\n")
    assert desk.run("sync", "--frozen", "--yes").exit_code == 0


def test_outdated_begins_to_count_and_installs_nothing(desk: PolicyDesk) -> None:
    desk.add()
    desk.tree.write(USER, "min_age_days = 3\n")
    desk.write("alpha", "scripts/run.sh", "echo two\n")
    desk.commit()
    assert [one["name"] for one in desk.run("outdated", "--json").document["outdated"]] == ["alpha"]
    assert len(json.loads(contents(desk).read_text())) == 1
    assert refusal(desk.run("update", "--yes", "--json"))[:2] == (4, "too-new")


def contents(desk: PolicyDesk) -> Path:
    return Path(desk.settings.state_dir) / "install" / "contents.json"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sha256:x": 1}', '{"a": {"seen": "never"}}'])
def test_a_broken_note_of_what_was_seen_makes_everything_new(desk: PolicyDesk, text: str) -> None:
    desk.tree.write(USER, "min_age_days = 3\n")
    desk.add()
    contents(desk).write_text(text)
    assert refusal(desk.add())[:2] == (4, "too-new")


# --- the level of the scan -----------------------------------------------------------------------

_ASKED = "crontab -l | { cat; echo '* * * * * /tmp/x'; } | crontab -\n"


def levels(desk: PolicyDesk, own: str, theirs: str = "") -> None:
    desk.tree.write(USER, f'scan_refuses = "{own}"\n' if own else "")
    desk.tree.write(PROJECT, f'scan_refuses = "{theirs}"\n' if theirs else "")


def level_of(desk: PolicyDesk) -> str:
    """Give `alpha` a script that the scan would ask about, and return what the scan says."""
    desk.write("alpha", "scripts/send.sh", _ASKED)
    desk.commit()
    done = desk.run("scan", str(desk.work / "skills" / "alpha"), "--json")
    return str(done.document["skills"][0]["level"])


def test_a_skill_is_refused_from_the_demanded_level_of_the_scan_on(desk: PolicyDesk) -> None:
    assert level_of(desk) == "ask"
    levels(desk, "ask")
    code, kind, remedy = refusal(desk.add())
    assert (code, kind) == (4, "scan-level")
    assert "skillbelt scan" in remedy
    assert "--accept" in remedy
    levels(desk, "block")
    assert desk.add().exit_code == 0
    assert desk.entry()["scan"]["level"] == "ask"


@pytest.mark.parametrize(
    ("own", "theirs", "code"), [("", "ask", 4), ("ask", "block", 4), ("note", "ask", 4)]
)
def test_a_project_may_demand_a_stricter_level_and_never_a_looser_one(
    desk: PolicyDesk, own: str, theirs: str, code: int
) -> None:
    level_of(desk)
    levels(desk, own, theirs)
    assert desk.add().exit_code == code
    wanted = own if own == "note" else "ask"
    assert load_settings(desk.tree.project).scan_refuses == wanted


def test_what_a_person_accepted_by_a_scan_is_installed_at_a_stricter_level(
    desk: PolicyDesk,
) -> None:
    level_of(desk)
    levels(desk, "ask")
    folder = str(desk.work / "skills" / "alpha")
    found = desk.run("scan", folder, "--json").document["skills"][0]["findings"]
    rules = [one["rule"] for one in found if one["kind"] == "ask"]
    words = [word for rule in rules for word in ("--accept", rule)]
    desk.run("scan", folder, *words, "--reason", "our own host")
    assert desk.add().exit_code == 0
    assert desk.entry()["scan"]["accepted"]


def test_verify_and_sync_scan_what_is_installed_where_a_level_is_demanded(
    desk: PolicyDesk,
) -> None:
    level_of(desk)
    desk.add()
    assert desk.run("verify").exit_code == 0
    levels(desk, "", "ask")
    assert desk.run("verify").exit_code == 4
    assert desk.run("sync", "--check").exit_code == 4
    desk.forget()
    done = desk.run("sync", "--frozen", "--yes", "--json")
    assert refusal(done)[:2] == (4, "scan-level")
    assert not desk.installed("alpha").exists()


@pytest.mark.parametrize("command", ["add", "update", "sync"])
def test_what_accepts_a_finding_is_about_the_version_that_comes(
    desk: PolicyDesk, command: str
) -> None:
    levels(desk, "block")
    assert desk.run("add", desk.url, "--all", "--yes").exit_code == 0
    for name in ("alpha", "beta"):
        desk.write(name, "scripts/send.sh", _ASKED)
    desk.commit()
    words = (
        ["add", desk.url, "--skill", "alpha", "--yes"] if command == "add" else ["update", "--yes"]
    )
    if command == "sync":
        assert desk.run(*words).exit_code == 0
        for name in ("alpha", "beta"):
            shutil.rmtree(desk.installed(name))
        words = ["sync", "--yes"]
    levels(desk, "ask")
    remedies = {
        one["name"]: one["remedy"] for one in desk.run(*words, "--json").document["refused"]
    }
    assert "alpha" in remedies
    typed = shlex.split(remedies["alpha"].rpartition("; `skillbelt ")[2].partition("`")[0])
    assert desk.run(*typed).exit_code == 0
    done = desk.run(*words, "--json").document
    assert "alpha" in [one["name"] for one in done["changes"]]
    assert [one["name"] for one in done["refused"]] == ["beta"][: len(remedies) - 1]
