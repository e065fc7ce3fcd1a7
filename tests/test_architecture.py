"""The rules that hold the repository together: the order of rooms, public names, start-up."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import skillbelt
import skillbelt.errors
import skillbelt.values
from tests.source_code import SOURCE, statements

ROOT = Path(__file__).parents[1]

MAX_LINES = 1000
# Extras that are not in `all`: without a wheel for every platform, or a framework that only who
# uses it wants. All are tested.
NOT_EVERYWHERE = ("google-adk", "langchain", "openai-agents", "ray")

# A room may import only from rooms before it. Inside a room modules may know each other, without
# circles. A module at the top is a room of its own.
ORDER = [
    "errors", "records", "late", "values", "text", "untrusted_json", "hosts", "launchers",
    "events", "tracing", "metrics", "files",
    "trust", "source_rules",
    "settings",
    "format", "check",
    "search", "store", "discovery", "objects", "artifacts", "scan", "permission", "disclosure",
    "sandbox", "running", "install", "fleet", "conversation", "tools", "runtime", "agent", "evals",
    "integrations", "serving", "mcp", "testing", "console",
    "cli", "__main__",
]  # fmt: skip

AT_IMPORT = ("yaml", "httpx2", "rich", "sqlite3", "json", "asyncio", "dataclasses", "threading")
# Packages, hints for a command that failed, WASM, and what these import.
AT_RUN = (
    "ssl", "http.client", "email", "logging", "dataclasses", "concurrent", "tomllib", "difflib",
    "platform", "skillbelt.running.provide_packages", "skillbelt.running.programs.hints",
    "skillbelt.running.packages.javascript_imports", "skillbelt.sandbox.wasm.sandbox",
)  # fmt: skip
TO_INSTALL = (
    "ssl", "http.client", "urllib.request", "html.parser", "tomllib",
    "skillbelt.running.packages.building", "skillbelt.running.packages.index_pages",
    "skillbelt.running.packages.installers", "skillbelt.running.packages.lockfiles",
)  # fmt: skip
AT_LIST = ("wasmtime", "mcp", "httpx2", "rich", "yaml")
# What only some skills, sources and stores need.
AT_ADD = (
    "ctypes", "sqlite3", "datetime", "random", "shlex", "base64", "zlib",
    "skillbelt.running", "skillbelt.install.signatures", "skillbelt.format.yaml_repair",
)  # fmt: skip

# Written in pieces, so that this file does not name them either.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("anaconda", "org"),
    )
)


def modules() -> dict[str, Path]:
    """Every module of the package by its name below `skillbelt`; a package by its own name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts != ("__init__",):
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


def imports(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """Each module of skillbelt that the file imports anywhere in it, with the line."""
    for node in statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "skillbelt" and name != "skillbelt.__version__":
                yield node.lineno, module_of(name)


def absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def module_of(name: str) -> str:
    """`skillbelt.format.frontmatter.split` -> `parse`; a bare public name -> the empty name."""
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts)


@cache
def edges(module: str) -> list[tuple[int, str]]:
    path = MODULES[module]
    inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return list(imports(path, f"skillbelt.{inside}".rstrip(".")))


def python(code: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )


def test_modules_import_only_from_earlier_rooms() -> None:
    found = []
    for module in MODULES:
        top = module.partition(".")[0]
        assert top in ORDER, f"{module}: give it a place in ORDER and in design/layout.md"
        for line, target in edges(module):
            above = target.partition(".")[0]
            where = f"{MODULES[module]}:{line}"
            assert target, f"{where}: import the module that has the name, not the package"
            if above != top and ORDER.index(above) > ORDER.index(top):
                found.append(f"{where}: imports {target}")
    assert not found


def test_no_circle_of_imports() -> None:
    graph = {module: {target for _, target in edges(module)} - {module} for module in MODULES}
    order = list(TopologicalSorter(graph).static_order())
    assert set(MODULES) <= set(order)


def test_the_order_is_the_one_in_the_design() -> None:
    text = (ROOT / "design" / "layout.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert listed == [name for name in ORDER if name != "__main__"]
    assert {module.partition(".")[0] for module in MODULES} == set(ORDER)


def bound_names() -> set[str]:
    """The names of skillbelt that `skillbelt/__init__.py` imports, lazily or not, or defines."""
    names: set[str] = set()
    for node in statements(ast.parse((SOURCE / "__init__.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skillbelt"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


def own_classes(module: object) -> set[str]:
    found = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    home = vars(module)["__name__"]
    return {name for name, value in found.items() if value.__module__ == home and name[0] != "_"}


def test_every_public_name_is_exported() -> None:
    wanted = bound_names() | own_classes(skillbelt.errors) | own_classes(skillbelt.values)
    assert wanted <= set(skillbelt.__all__)


def test_every_exported_name_exists_and_is_sorted() -> None:
    assert list(skillbelt.__all__) == sorted(set(skillbelt.__all__))
    for name in skillbelt.__all__:
        assert getattr(skillbelt, name) is not None


def test_every_exported_name_is_documented_and_tested() -> None:
    pages = [ROOT / "docs" / "reference" / name for name in ("api.md", "errors.md")]
    documented = {word for page in pages for word in re.findall(r"`(\w+)", page.read_text("utf-8"))}
    assert set(skillbelt.__all__) <= documented, "docs/reference does not explain each"
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    used = {word for path in tests for word in re.findall(r"\w+", path.read_text("utf-8"))}
    assert set(skillbelt.__all__) <= used, "no test uses each"


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    passed_over = pytestconfig.getini("norecursedirs")
    tests = [file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")]
    folders = {part for file in tests for part in file.parts}
    assert [name for name in folders for one in passed_over if fnmatch(name, one)] == []


def test_importing_the_package_loads_nothing_heavy_and_starts_nothing() -> None:
    code = """
import sys
before = set(sys.modules)
import skillbelt
print(*sorted(set(sys.modules) - before))
print(len(sys._current_frames()))
"""
    loaded, threads = python(code, "-S", PYTHONPATH=str(ROOT / "src")).stdout.splitlines()
    assert not set(AT_IMPORT) & {name.partition(".")[0] for name in loaded.split()}
    assert threads == "1"


def test_importing_the_package_takes_less_than_importing_asyncio() -> None:
    """In processor time, the least of five; it is less than a tenth where nothing else runs."""

    def least(module: str) -> float:
        code = f"import time\nimport {module}\nprint(time.process_time())"
        return min(float(python(code).stdout) for _ in range(5))

    assert least("skillbelt") < least("asyncio")


def test_a_warm_list_imports_nothing_heavy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "skills", project / ".agents" / "skills")
    code = "import sys; from skillbelt.cli import main; sys.exit(main())"
    command = [sys.executable, "-X", "importtime", "-c", code, "list", "--project", str(project)]
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "csv-report" in done.stdout
    imported = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", done.stderr, re.MULTILINE))
    assert "skillbelt.cli" in imported
    assert not set(AT_LIST) & {name.partition(".")[0] for name in imported}


def test_add_imports_nothing_that_a_plain_skill_does_not_need(tmp_path: Path) -> None:
    source, project, home = (tmp_path / name for name in ("source", "project", "home"))
    (source / "plain" / "scripts").mkdir(parents=True)
    (source / "plain" / "SKILL.md").write_text(
        "---\nname: plain\ndescription: A plain skill. Use when testing.\n---\n\n# Plain\n"
    )
    (source / "plain" / "scripts" / "a.py").write_text("print(1)\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        given = ["-c", "user.name=test", "-c", "user.email=test@example.com", *words]
        subprocess.run(["git", *given], cwd=source, check=True, capture_output=True)
    project.mkdir()
    words = ["add", source.as_uri(), "--skill", "plain", "--yes", "-q"]
    code = """
import sys
from skillbelt.cli import main
assert main(sys.argv[1:]) == 0
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--project", str(project)],
        env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (project / ".agents" / "skills" / "plain" / "SKILL.md").is_file()
    assert not set(AT_ADD) & set(done.stdout.split())


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("needs a git checkout: git clone the repository")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_tracked_file_names_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in tracked()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]
    assert found == []


def test_no_lock_with_registries_is_tracked() -> None:
    assert [path for path in tracked() if path.name == "uv.lock"] == []


def normal(requirement: str) -> str:
    name = re.split(r"[\s\[<>=!~;]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> set[str]:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert all("==" in entry.splitlines()[0] for entry in entries)
    return {normal(entry) for entry in entries}


def test_the_locks_hold_every_dependency_with_its_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    for name in NOT_EVERYWHERE:
        del extras[name]
    lists = [project["project"]["dependencies"], groups["build"], *extras.values()]
    wanted = {normal(one) for names in lists for one in names} - {"skillbelt"}
    assert wanted <= locked("all.txt")
    tools = [one for one in (*groups["dev"], *groups["site"]) if isinstance(one, str)]
    assert wanted | {normal(one) for one in tools} <= locked("dev.txt")
    assert locked("all.txt") <= locked("dev.txt")


def test_the_extra_all_holds_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = dict(project["project"]["optional-dependencies"])
    [everything] = extras.pop("all")
    for name in NOT_EVERYWHERE:
        del extras[name]
    assert everything == f"skillbelt[{','.join(sorted(extras))}]"


# Read JSON that they or `json.dumps` beside them wrote, or more strictly than JSON is: programs
# that run alone above or inside a command, where nothing of ours can be imported, the attacks, and
# the part of YAML that is JSON too.
OWN_JSON = {
    "format/yaml_fast.py", "running/programs/provided.py", "sandbox/inside/container.py",
    "sandbox/inside/portable_launch.py", "sandbox/inside/launch.py", "sandbox/wasm/worker.py",
    "testing/prelude.py", "untrusted_json.py",
}  # fmt: skip


def test_one_function_reads_untrusted_json() -> None:
    pattern = re.compile(r"\bjson\.loads?\(|\bJSONDecoder\b|raw_decode")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    }
    assert found == OWN_JSON


def test_packages_that_are_installed_are_found_without_what_installs_them() -> None:
    code = "import sys, skillbelt.running.provide_packages; print(*sys.modules)"
    loaded = python(code, "-S", PYTHONPATH=str(ROOT / "src")).stdout.split()
    assert not set(TO_INSTALL) & set(loaded)


def test_what_carries_out_a_run_imports_nothing_that_few_runs_need() -> None:
    code = "import sys, skillbelt.running.workbench; print(*sys.modules)"
    loaded = python(code, "-S", PYTHONPATH=str(ROOT / "src")).stdout.split()
    assert not set(AT_RUN) & set(loaded)
