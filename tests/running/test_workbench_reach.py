"""The reach of a run beyond its workspace: the network, and the packages it declares."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillbelt import Answer, PermissionDenied, Rule
from skillbelt.cli.asking import describe_request
from skillbelt.errors import RunRefused
from skillbelt.running import provide_packages
from skillbelt.running.call import RunCall
from skillbelt.running.following import Watch
from skillbelt.running.questions import another
from tests import needs
from tests.bench import KEY, ME, Bench
from tests.bounds import bounds
from tests.discovery.sources.server import Reply, running
from tests.registries import publish, source, wheel
from tests.running.test_packages_environments import GREET
from tests.sandbox.proxied import plain_server
from tests.tree import Tree

pytestmark = needs.linux


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


# --- the network ---------------------------------------------------------------------------------

FETCH = (
    'python3 -c "import urllib.request as u, sys\n'
    'print(u.urlopen(sys.argv[1], timeout=20).read().decode())" '
)


PROXY = 'u.urlsplit(os.environ["http_proxy"]).netloc.split(":")'


def test_without_a_declared_host_there_is_no_network(echo: Bench) -> None:
    with running() as server:
        server.pages["/"] = b"reached"
        assert echo.run(FETCH + server.url).exit_code == 1
        assert server.requests == []


def test_a_declared_host_is_reached_once_it_is_allowed(echo: Bench) -> None:
    with running() as server:
        server.pages["/"] = b"reached"
        host = server.url.removeprefix("http://")
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        bench = echo.make((Rule("run", "*", "allow"), Rule("network", "*", "ask")))
        result = echo.run(FETCH + server.url, bench=bench)
        assert (result.stdout, result.hosts) == ("reached\n", (host,))
        (request,) = (one.request for one in echo.asked)
        assert (request.type, request.patterns) == ("network", (host,))
        assert request.summary == f"let the skill echo reach {host}"
        assert echo.events("run")[0]["hosts"] == [host]


def test_a_name_with_a_private_address_is_not_reached_though_it_is_allowed(
    echo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr("skillbelt.hosts.socket.getaddrinfo", lambda *_, **__: found)
    with running() as server:
        server.pages["/"] = b"reached"
        url = server.url.replace("127.0.0.1", "private.invalid")
        host = url.removeprefix("http://")
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        result = echo.run(FETCH + url)
        assert (result.exit_code, result.hosts, server.requests) == (1, (), [])
        assert "403" in result.stderr
        said = "refused: private.invalid has the address 127.0.0.1, which is this machine"
        assert said in result.warnings


def test_this_machine_is_not_opened_by_its_name_and_nobody_is_asked(echo: Bench) -> None:
    with running() as server:
        host = server.url.removeprefix("http://").replace("127.0.0.1", "localhost")
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        result = echo.run(f"{FETCH}http://{host}")
        assert (result.exit_code, result.hosts, server.requests) == (1, (), [])
        assert [text for text in result.warnings if "it is this machine" in text]
        assert [one.request.type for one in echo.asked if one.request.type == "network"] == []


@pytest.mark.parametrize(("command", "told"), [("false", 1), ("true", 0)])
def test_a_tool_that_opens_no_host_is_told_when_a_command_fails(
    echo: Bench, command: str, told: int
) -> None:
    echo.tree.skill(echo.skill, allowed_tools="WebFetch")
    said = [text for text in echo.run(command).warnings if "WebFetch opens no host" in text]
    assert len(said) == told


def test_what_a_run_may_send_and_receive_is_bounded_by_the_settings(echo: Bench) -> None:
    with running() as server:
        server.pages["/"] = b"x" * 200_000
        host = server.url.removeprefix("http://")
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        rules = (Rule("run", "*", "allow"), Rule("network", host, "allow"))
        result = echo.run(FETCH + server.url, bench=echo.make(rules, max_network_bytes=100_000))
        assert (result.hosts, result.limits_hit) == ((host,), ("max_network_bytes",))
        assert len(result.stdout) < 200_000


def test_a_connection_that_is_open_to_the_end_is_told(echo: Bench) -> None:
    over = threading.Event()

    def hold(_: socket.socket) -> None:
        over.wait(30)

    with plain_server(hold) as port:
        host = f"127.0.0.1:{port}"
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        bench = echo.make((Rule("run", "*", "allow"), Rule("network", host, "allow")))
        tunnel = f'http.client.HTTPConnection(*p); c.set_tunnel("{host}"); c.connect()'
        code = f"import http.client, os, urllib.parse as u\np = {PROXY}\nc = {tunnel}"
        result = echo.run(("python3", "-c", code), bench=bench)
        over.set()
    assert (result.stderr, result.hosts) == ("", (host,))


def test_a_host_that_is_denied_is_not_reached_and_the_command_runs_without(echo: Bench) -> None:
    with running() as server:
        server.pages["/"] = b"reached"
        host = server.url.removeprefix("http://")
        echo.tree.skill(echo.skill, allowed_tools=f"WebFetch(domain:{host})")
        bench = echo.make((Rule("run", "*", "allow"), Rule("network", "*", "deny")))
        result = echo.run(f"echo ran; {FETCH}{server.url}", bench=bench)
        assert (result.stdout, result.hosts, server.requests) == ("ran\n", (), [])


# --- packages ------------------------------------------------------------------------------------

SCRIPT = "# /// script\n# dependencies = ['greet']\n# ///\nimport greet\nprint(greet.word)\n"


@pytest.fixture
def packages(echo: Bench) -> Bench:
    folder = echo.tree.path("packages")
    folder.mkdir()
    wheel(folder, "greet", GREET)
    echo.write("scripts/a.py", SCRIPT)
    for name, value in (
        ("NO_INDEX", 1),
        ("FIND_LINKS", folder),
    ):
        echo.tree.setenv(f"UV_{name}", value)
    return echo


def test_what_a_script_declares_is_installed_once_it_is_allowed(packages: Bench) -> None:
    bench = packages.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    said: list[str] = []
    bench._progress = said.append
    result = packages.run("python3 scripts/a.py", bench=bench)
    assert (result.stdout, result.stderr) == ("hello\n", "")
    (request,) = (one.request for one in packages.asked)
    (text,) = request.patterns
    assert (request.type, text.partition(":")[0]) == ("install", "greet==1.0 sha256")
    assert (request.always, request.metadata["packages"]) == ((text,), [text])
    assert request.summary == (
        "install 1 Python package: greet (from scripts/a.py) for the skill echo; "
        "in all 1: greet==1.0"
    )
    assert text in describe_request(request)[0]
    assert packages.run("python3 scripts/a.py", bench=bench).stdout == "hello\n"
    assert len([text for text in said if text.startswith("installing")]) == 1


@pytest.mark.parametrize(
    "command",
    [
        "python3 scripts/a.py > out/a.txt; cat out/a.txt",
        "echo x | python3 scripts/a.py 2>&1",
        "cd scripts && python3 a.py",
        'bash -c "python3 scripts/a.py"',
        "X=1 python3 ./scripts/a.py",
    ],
)
def test_they_are_there_however_the_script_is_started(packages: Bench, command: str) -> None:
    assert packages.run(command).stdout == "hello\n"


def test_they_are_there_for_a_script_with_a_blank_in_its_name(packages: Bench) -> None:
    packages.write("scripts/my script.py", SCRIPT)
    assert packages.run('cd scripts && python3 "my script.py"').stdout == "hello\n"


@needs.npm
@pytest.mark.parametrize(
    "sandbox",
    ["bubblewrap", *(pytest.param(name, marks=pytest.mark.long) for name in ("landlock", "none"))],
)
def test_packages_for_node_are_found_by_import_and_by_require(echo: Bench, sandbox: str) -> None:
    bench = echo.make(sandbox=sandbox)
    echo.write("package.json", '{"dependencies": {"greet": "^1.3.0"}}')
    echo.write("scripts/a.mjs", "import greet from 'greet'; console.log(greet());")
    echo.write("scripts/b.cjs", "console.log(require('greet')());")
    with running() as server:
        echo.tree.setenv("npm_config_registry", server.url)
        publish(server, "greet", "exit 1")
        assert echo.run("node scripts/b.cjs", bench=bench).stdout == "hello\n"
    result = echo.run("node scripts/a.mjs", bench=bench)
    assert (result.stdout, result.stderr) == ("hello\n", "")
    if sandbox == "bubblewrap":  # where packages can be mounted, a path of the skill leads there
        listed = echo.run("ls node_modules; node -p 'require(\"./node_modules/greet\")()'")
        assert listed.stdout == "greet\nhello\n"
    echo.write("scripts/c.mjs", "import 'no-such-thing';")
    said = echo.run("node scripts/c.mjs", bench=bench, install=False).stderr
    assert "Cannot find package 'no-such-thing' imported from" in said


@pytest.mark.long
@needs.npm
def test_tsx_of_a_package_starts_in_a_run_with_a_network(echo: Bench) -> None:
    """There it may not listen at a socket; node loads what it would have loaded."""
    echo.write("package.json", '{"dependencies": {"tsx": "^1.3.0"}}')
    echo.write("scripts/a.mjs", "console.log(globalThis.loaded * 7);")
    files = {"dist/loader.mjs": "globalThis.loaded = 6", "cli.js": "#!/bin/sh\necho the program\n"}
    with running() as server:
        echo.tree.setenv("npm_config_registry", server.url)
        publish(server, "tsx", about={"bin": {"tsx": "cli.js"}}, files=files)
        echo.tree.skill(echo.skill, allowed_tools="WebFetch(domain:example.com)")
        result = echo.run("tsx scripts/a.mjs", bench=echo.make())
    assert (result.stdout, result.stderr) == ("42\n", "")


def test_a_script_elsewhere_brings_no_packages(packages: Bench) -> None:
    packages.tree.write("a.py", SCRIPT)
    result = packages.run(f"python3 {packages.tree.path('a.py')}; ls $VIRTUAL_ENV/bin")
    assert result.exit_code != 0
    assert [one.request.type for one in packages.asked] == []


def test_what_is_installed_can_not_be_written_by_the_command(packages: Bench) -> None:
    result = packages.run("python3 scripts/a.py && touch $VIRTUAL_ENV/x")
    assert (result.stdout, result.exit_code) == ("hello\n", 1)


def test_an_installation_that_takes_too_long_is_ended(packages: Bench) -> None:
    slow = packages.tree.write("slow/uv", "#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    packages.tree.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    bounds(install_timeout_seconds=0.3)
    bench = packages.make()
    with pytest.raises(RunRefused, match=r"not done after 0\.3 s"):
        packages.run("python3 scripts/a.py", bench=bench)


def test_what_comes_with_a_package_is_asked_for_and_an_answer_covers_no_more(
    packages: Bench,
) -> None:
    folder = packages.tree.path("packages")
    wheel(folder, "inner-one", {})
    wheel(folder, "greet", GREET, ["Inner_One"])
    bench = packages.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    assert packages.run("python3 scripts/a.py", bench=bench).stdout == "hello\n"
    (request,) = (one.request for one in packages.asked)
    names = [text.partition(" ")[0] for text in request.patterns]
    assert names == ["greet==1.0", "inner-one==1.0"]
    assert all(text in describe_request(request)[0] for text in request.patterns)
    # "always" for this list is not one for a part of it, nor for the same with another file.
    assert bench.gate.ledger.remember(request)
    assert bench.gate.ledger.covering(request)
    part = request.patterns[:1]
    fewer = another(request, "install", part, summary="", facts={"packages": list(part)})
    assert not bench.gate.ledger.covering(fewer)


@pytest.mark.parametrize("spelled", ["Inner_One", "inner.one", "inner-one==1.*", "INNER*"])
def test_a_package_is_denied_however_it_is_spelled_and_whoever_brings_it(
    packages: Bench, spelled: str
) -> None:
    folder = packages.tree.path("packages")
    wheel(folder, "inner-one", {})
    wheel(folder, "greet", GREET, ["inner_one"])
    rules = (Rule("*", "*", "allow"), Rule("install", spelled, "deny"))
    with pytest.raises(PermissionDenied, match=r"inner-one==1\.0"):
        packages.run("python3 scripts/a.py", bench=packages.make(rules))


def test_what_is_denied_by_its_name_is_not_looked_for(packages: Bench) -> None:
    rules = (Rule("*", "*", "allow"), Rule("install", "Greet", "deny"))
    shutil.rmtree(packages.tree.path("packages"))
    with pytest.raises(PermissionDenied, match="greet"):
        packages.run("python3 scripts/a.py", bench=packages.make(rules))


def test_no_program_of_a_package_stands_before_one_of_the_system(packages: Bench) -> None:
    entry = "[console_scripts]\nls = greet:main\ngreet-me = greet:main\n"
    files = {**GREET, "greet-1.0.dist-info/entry_points.txt": entry}
    wheel(packages.tree.path("packages"), "greet", files)
    packages.write("requirements.txt", "greet\n")
    result = packages.run("command -v ls python3; greet-me; ls SKILL.md")
    system, python, said, listed = result.stdout.splitlines()
    assert (system, said, listed) == ("/usr/bin/ls", "hello", "SKILL.md")
    assert python.endswith("/interpreter/python3")


def test_no_folder_that_a_run_can_write_is_on_the_path(packages: Bench) -> None:
    packages.write("requirements.txt", "greet\n")
    code = "import os; print([p for p in os.environ['PATH'].split(':') if os.access(p, os.W_OK)])"
    packages.run(
        "mkdir -p .venv/bin && printf '#!/bin/sh\necho evil' > .venv/bin/ls; chmod +x .venv/bin/ls"
    )
    result = packages.run(("python3", "-c", code))
    assert (result.stdout, result.stderr) == ("[]\n", "")
    assert packages.run("ls SKILL.md").stdout == "SKILL.md\n"


@needs.npm
def test_neither_a_configuration_nor_a_program_of_a_skill_leads_npm_astray(echo: Bench) -> None:
    echo.write("package.json", '{"dependencies": {"greet": "^1.3.0"}}')
    echo.write("scripts/b.cjs", "console.log(require('greet')());")
    with running() as server, running() as other:
        echo.write(".npmrc", f"registry={other.url}\ngit=./evil.sh\n")
        echo.tree.setenv("npm_config_registry", server.url)
        publish(other, "greet")
        script = '#!/bin/sh\nexec node "$@"\n'
        about = {"bin": {"node": "evil.sh", "greet": "index.js"}}
        publish(server, "greet", about=about, files={"evil.sh": script})
        result = echo.run("node scripts/b.cjs; command -v node")
        assert (result.stdout, result.stderr) == ("hello\n/usr/bin/node\n", "")
        assert other.requests == []


def test_nothing_is_installed_or_run_that_is_refused(packages: Bench) -> None:
    bench = packages.make((Rule("run", "*", "allow"), Rule("install", "*", "deny")))
    with pytest.raises(PermissionDenied, match="greet"):
        packages.run("python3 scripts/a.py", bench=bench)
    assert packages.events("run") == []


def test_packages_that_nobody_uses_are_cleared_away_and_that_is_said(packages: Bench) -> None:
    """Those of a run that goes on stay."""
    bench = packages.make(max_packages_bytes=0)
    with pytest.raises(RunRefused, match="max_packages_bytes"):
        packages.run("python3 scripts/a.py", bench=bench)
    packages.run("python3 scripts/a.py", bench=packages.make())
    said: list[str] = []
    bench._progress = said.append
    wait = "python3 scripts/a.py; until test -e work/go; do sleep 0.01; done; python3 scripts/a.py"
    heard = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call, skill = RunCall(wait), packages.belt.get_skill("echo")
        # It declares the needs of the script, for any command.
        packages.write("requirements.txt", "greet\n")
        watch = Watch(lambda *_: heard.set())
        done = pool.submit(packages.make().run, skill, call, ME, watch)
        assert heard.wait(150)
        in_use = bench.tidy(now=True)
        with bench.workspace(KEY) as workspace:
            Path(workspace.path, "work", "go").touch()
        assert done.result(150).stdout == "hello\n" * 2
    assert in_use == []
    (gone,) = bench.tidy(now=True)
    assert gone.reason == "size"
    assert said == [f"cleared away {gone.name} (size): {gone.size_bytes:,} bytes"]
    assert packages.run("python3 scripts/a.py", bench=packages.make()).stdout == "hello\n"


# --- packages that nothing declares --------------------------------------------------------------


@pytest.fixture
def guesses(packages: Bench) -> Bench:
    """A script that imports what the index has and what it does not have."""
    folder = packages.tree.path("packages")
    wheel(folder, "scrapy", {"scrapy.py": "word = 'known'\n"})
    packages.write("scripts/a.py", "import greet\nprint(greet.word)\n")
    packages.write("scripts/b.py", "import scrapy\nprint(scrapy.word)\n")
    return packages


def test_what_a_script_imports_is_asked_for_and_marked(guesses: Bench) -> None:
    bench = guesses.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    result = guesses.run("python3 scripts/a.py", bench=bench)
    assert (result.stdout, result.warnings) == ("hello\n", ())
    (request,) = (one.request for one in guesses.asked)
    assert request.summary == (
        "install 1 Python package: greet (not declared by the skill; guessed from its imports); "
        "of these greet by the name of the import alone: no known package, so check that it is "
        "what the skill means for the skill echo; in all 1: greet==1.0"
    )
    assert request.metadata["guessed"] == ["greet"]
    assert request.metadata["no_known_package"] == ["greet"]
    shown = describe_request(request)[0]
    assert "guessed" in shown and "no known package" in shown
    assert request.hash.startswith("sha256:")  # another skill is another question


def test_a_general_rule_allows_a_known_package_and_no_guess(guesses: Bench) -> None:
    bench = guesses.make((Rule("run", "*", "allow"), Rule("install", "*", "allow")))
    assert guesses.run("python3 scripts/b.py", bench=bench).stdout == "known\n"
    result = guesses.run("python3 scripts/a.py", bench=bench)
    assert "No module named 'greet'" in result.stderr
    (said,) = (text for text in result.warnings if "greet" in text)
    assert said == (
        "not provided: greet (not declared): it is not a known package, and the rule '*' is "
        "too general for a guess; allow greet itself, or run with --with greet"
    )
    own = guesses.make((Rule("run", "*", "allow"), Rule("install", "greet", "allow")))
    assert guesses.run("python3 scripts/a.py", bench=own).stdout == "hello\n"
    assert guesses.asked == []


def test_a_guess_that_is_refused_leaves_the_run(guesses: Bench) -> None:
    bench = guesses.make((Rule("run", "*", "allow"), Rule("install", "scrapy", "deny")))
    result = guesses.run("python3 scripts/b.py", bench=bench)
    assert "No module named 'scrapy'" in result.stderr
    assert any("the rule 'scrapy' denies it" in text for text in result.warnings)


def test_a_guess_that_no_index_has_spoils_no_other(guesses: Bench) -> None:
    source = "import scrapy\ntry:\n import nobody_has_this\nexcept ImportError:\n pass\n"
    guesses.write("scripts/b.py", f"{source}print(scrapy.word)\n")
    bench = guesses.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    for _ in range(2):  # the second time it is known and not tried again
        said: list[str] = []
        bench._progress = said.append
        result = guesses.run("python3 scripts/b.py", bench=bench)
        assert result.stdout == "known\n"
        (text,) = (one for one in result.warnings if "nobody-has-this" in one)
        assert text.startswith("not provided: nobody-has-this (not declared): ")
    assert not [one for one in said if one.startswith("resolving")]


def test_packages_can_be_named_or_left_out_for_one_run(guesses: Bench) -> None:
    guesses.write("scripts/c.py", "m = __import__('gr' + 'eet')\nprint(m.word)\n")
    assert guesses.run("python3 scripts/c.py", packages=("greet",)).stdout == "hello\n"
    result = guesses.run("python3 scripts/b.py", install=False)
    assert "No module named 'scrapy'" in result.stderr
    assert result.warnings == ()


# --- declared packages that cannot be had --------------------------------------------------------


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ("from-source==1.0", "it has no wheel for this machine"),
        ("nobody-has-this>=2", "no such package in the index"),
        ("scrapy==7", "there is no version of scrapy==7"),
        ("needy", "depend"),
    ],
)
def test_what_is_declared_and_not_imported_spoils_no_run(
    guesses: Bench, lacking: str, why: str
) -> None:
    folder = guesses.tree.path("packages")
    source(folder, "from-source", "raise SystemExit(1)")
    wheel(folder, "needy", {}, ["greet>7"])
    wheel(folder, "plugin", {"plugin.py": "word = 'found without an import'\n"})
    guesses.write("requirements.txt", f"greet\n{lacking}\nplugin\n")
    guesses.write("scripts/helper.py", "import greet\nword = greet.word\n")
    code = "import helper\nprint(helper.word)\nprint(__import__('plug' + 'in').word)\n"
    guesses.write("scripts/a.py", code)
    for _ in range(2):  # the second time it is known and not tried again
        said: list[str] = []
        bench = guesses.make()
        bench._progress = said.append
        result = guesses.run("python3 scripts/a.py", bench=bench)
        assert result.stdout == "hello\nfound without an import\n"
        (text,) = result.warnings
        start = f"not provided: {lacking} (declared, but not imported by what runs): "
        assert text.startswith(start) and why in text
    assert not [one for one in said if one.startswith("resolving")]


@pytest.mark.parametrize("imports", ["import nobody_has_this", "import scrapy, greet"])
def test_what_is_declared_and_imported_is_there_or_the_run_is_refused(
    guesses: Bench, imports: str
) -> None:
    guesses.write("requirements.txt", "greet\nscrapy==7\nnobody-has-this\n")
    guesses.write("scripts/a.py", f"{imports}\n")
    with pytest.raises(RunRefused, match=r"run without packages \(--no-install\)$"):
        guesses.run("python3 scripts/a.py")
    assert guesses.events("run") == []


def test_a_declared_package_that_a_script_can_do_without_is_left_out(guesses: Bench) -> None:
    guesses.write("requirements.txt", "greet\nscrapy==7\n")
    code = "import greet\ntry:\n import scrapy\nexcept ImportError:\n print(greet.word)\n"
    guesses.write("scripts/a.py", code)
    result = guesses.run("python3 scripts/a.py")
    assert result.stdout == "hello\n"
    (text,) = result.warnings
    assert text.startswith(
        "not provided: scrapy==7 (declared, but imported only where the script can go on without "
        "it): "
    )


def test_what_a_user_names_is_never_left_out(guesses: Bench) -> None:
    guesses.write("requirements.txt", "scrapy==7\n")
    with pytest.raises(RunRefused, match="scrapy==7"):
        guesses.run("python3 scripts/a.py", packages=("scrapy==7",))


@pytest.mark.long
@needs.npm
def test_a_package_for_node_that_is_not_imported_spoils_no_run(echo: Bench) -> None:
    echo.write("package.json", '{"dependencies": {"greet": "^1.3.0", "nobody-has-this": "*"}}')
    echo.write("scripts/b.cjs", "console.log(require('greet')());")
    with running() as server:
        echo.tree.setenv("npm_config_registry", server.url)
        publish(server, "greet")
        result = echo.run("node scripts/b.cjs")
    assert result.stdout == "hello\n"
    (text,) = result.warnings
    assert "nobody-has-this@* (declared, but not imported" in text and "no such package" in text


@pytest.mark.long
@needs.npm
def test_an_index_that_fails_for_a_package_that_is_not_imported_spoils_no_run(echo: Bench) -> None:
    """It is asked for again by the next run, since the index may be well again."""
    echo.write("package.json", '{"dependencies": {"greet": "^1.3.0", "locked": "*"}}')
    echo.write("scripts/b.cjs", "console.log(require('greet')());")
    with running() as server:
        echo.tree.setenv("npm_config_registry", server.url)
        publish(server, "greet")
        server.pages["/locked"] = Reply(b"", 403)
        result = echo.run("node scripts/b.cjs")
        assert result.stdout == "hello\n"
        (text,) = result.warnings
        assert "locked@* (declared, but not imported" in text and "answered 403 for it" in text
        publish(server, "locked")
        again = echo.run("node scripts/b.cjs")
    assert (again.stdout, again.warnings) == ("hello\n", ())


# --- packages that are built from source ---------------------------------------------------------


@pytest.fixture
def built(packages: Bench) -> Bench:
    """A script that imports what has only a source distribution."""
    source(packages.tree.path("packages"), "from-source")
    packages.write("requirements.txt", "greet\nfrom-source\n")
    packages.write("scripts/a.py", "import greet, from_source\nprint(from_source.word)\n")
    return packages


def test_a_package_without_a_wheel_is_asked_for_and_built(built: Bench) -> None:
    bench = built.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    result = built.run("python3 scripts/a.py", bench=bench)
    assert (result.stdout, result.warnings) == ("built from-source\n", ())
    (request,) = (one.request for one in built.asked)
    assert "; from-source==1.0 is built from source, in the sandbox: " in request.summary
    assert "build tools come from the index too" in request.summary
    assert str(request.metadata["built_from_source"]).startswith("['from-source==1.0 sha256:")
    said: list[str] = []
    bench._progress = said.append
    assert built.run("python3 scripts/a.py", bench=bench).stdout == "built from-source\n"
    assert not [one for one in said if one.startswith(("resolving", "installing"))]


@pytest.mark.long
def test_a_package_that_has_a_wheel_by_now_is_no_longer_built(
    built: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = built.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    assert built.run("python3 scripts/a.py", bench=bench).stdout == "built from-source\n"
    wheel(built.tree.path("packages"), "from-source", {"from_source.py": "word = 'the wheel'\n"})
    assert built.run("python3 scripts/a.py", bench=bench).stdout == "built from-source\n"
    monkeypatch.setattr(provide_packages, "_BUILT_SECONDS", 0.0)
    assert built.run("python3 scripts/a.py", bench=bench).stdout == "the wheel\n"


def test_nothing_is_built_before_it_is_allowed(built: Bench) -> None:
    """The build would fail, and so would finding out what the package needs."""
    source(built.tree.path("packages"), "from-source", "raise SystemExit('the build ran')")
    rules = (Rule("run", "*", "allow"), Rule("install", "*", "ask"))
    bench = built.make(rules, lambda _: Answer("reject"))
    with pytest.raises(PermissionDenied, match="from-source"):
        built.run("python3 scripts/a.py", bench=bench)
    with pytest.raises(RunRefused, match="the build ran"):
        built.run("python3 scripts/a.py", bench=built.make(rules))


def test_only_a_rule_that_names_a_package_allows_its_build(built: Bench) -> None:
    general = (Rule("run", "*", "allow"), Rule("install", "*", "allow"))
    with pytest.raises(
        RunRefused, match="the rule '\\*' is too general for that; allow from-source"
    ):
        built.run("python3 scripts/a.py", bench=built.make(general))
    named = (*general, Rule("install", "From_Source", "allow"))
    result = built.run("python3 scripts/a.py", bench=built.make(named))
    assert result.stdout == "built from-source\n"
    assert built.asked == []


@pytest.mark.long
def test_what_a_built_package_needs_is_asked_for_too(built: Bench) -> None:
    folder = built.tree.path("packages")
    wheel(folder, "inner", {"inner.py": ""})
    source(folder, "from-source", needs=["inner"])
    bench = built.make((Rule("run", "*", "allow"), Rule("install", "*", "ask")))
    assert built.run("python3 scripts/a.py", bench=bench).stdout == "built from-source\n"
    first, second = (one.request for one in built.asked)
    assert "inner==1.0" not in first.summary and "inner==1.0" in second.summary


# --- where packages are named --------------------------------------------------------------------

FINDS_GREET = ("python3", "-c", "print(__import__('gr' + 'eet').word)")


def test_a_call_of_the_library_names_packages(packages: Bench) -> None:
    packages.make()
    result = packages.belt.run_sync("echo", FINDS_GREET, packages=["greet>=1"])
    assert (result.stdout, result.stderr) == ("hello\n", "")


def test_the_settings_name_packages_for_a_skill(packages: Bench) -> None:
    config = packages.tree.home / ".config" / "skillbelt" / "config.toml"
    packages.tree.write(config, '[skills.echo]\npackages = ["greet>=1"]\n')
    packages.make()
    result = packages.belt.run_sync("echo", FINDS_GREET)
    assert (result.stdout, result.stderr) == ("hello\n", "")


def test_a_changed_skill_is_asked_for_again(packages: Bench) -> None:
    rules = (Rule("run", "*", "allow"), Rule("install", "*", "ask"))
    for text, asked in (("", 1), ("", 1), ("# changed\n", 2)):
        packages.write("references/a.md", text)
        bench = packages.make(rules, lambda _: Answer("always"))
        assert packages.run("python3 scripts/a.py", bench=bench).stdout == "hello\n"
        assert len(packages.asked) == asked
