"""The rules that hold the repository together: module order, public names, sizes, start-up."""

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
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import skillbelt
import skillbelt.errors
import skillbelt.values

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "skillbelt"
MAX_LINES = 1000
# Extras that are not in `all`: without a wheel for every platform, or a framework that only who
# uses it wants. All are tested.
NOT_EVERYWHERE = ("google-adk", "langchain", "openai-agents")
MAX_IMPORT_CPU_SECONDS = 0.15

# A module may import only from those above it. A package counts as one; inside it there may be no
# circle. Names of parts that do not exist yet hold their place.
ORDER = [
    "errors", "values", "private", "paths", "sensitive", "reach", "locks", "owners", "trust",
    "settings", "lines", "events", "chain", "audit", "text", "hosts", "roots", "sources", "quick",
    "strict", "repair", "fields", "parse", "head", "skill", "rules", "keys", "references",
    "entries", "check", "mend", "fixes", "sarif", "manifest", "foreign", "fingerprint", "index",
    "scan", "watch", "search", "catalog", "store", "packages", "shell", "wrappers", "permission",
    "capabilities", "spelling", "policy", "rulebook", "ledger", "board", "desk", "disclose",
    "sections", "excerpt", "files", "storage", "arguments", "load", "gate", "session",
    "materialize", "tracing", "commands", "dependencies", "lockfiles", "indexes", "fetching",
    "shelves", "installers", "environments", "trees", "sizes", "cleanup", "workspace", "staging",
    "artifacts", "inputs", "globs", "collect", "guests", "wasm_hosts", "sandbox", "room",
    "redact", "facts", "run", "exact", "consent", "provisions", "job", "workbench", "execute",
    "background", "testing", "build", "definitions", "tools", "running", "answers", "handlers",
    "turns", "shelf", "threads", "conversation", "runtime", "agent", "integrations", "serve",
    "cli", "__main__",
]  # fmt: skip

# Tests of the whole rather than of one module; `acceptance_remote` is a part of `acceptance`.
WHOLE = [
    "acceptance",
    "architecture",
    "benchmarks",
    "docs",
    "endurance",
    "examples",
    "fuzz",
    "hostile",
    "init",
    "public_interface",
]

AT_IMPORT = ("yaml", "httpx2", "rich", "sqlite3", "json", "asyncio", "dataclasses", "threading")
AT_LIST = ("wasmtime", "mcp", "httpx2", "rich", "yaml")

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
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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
    """`skillbelt.parse.split` -> `parse`; a bare public name -> the empty name."""
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts)


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
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_from_above_itself(module: str) -> None:
    top = module.partition(".")[0]
    assert top in ORDER, f"{module}: give it a place in ORDER and in design/layout.md"
    for line, target in edges(module):
        above = target.partition(".")[0]
        where = f"{MODULES[module]}:{line}"
        assert target, f"{where}: import the module that has the name, not the package"
        assert above == top or ORDER.index(above) < ORDER.index(top), f"{where}: imports {target}"


def test_no_circle_of_imports() -> None:
    graph = {module: {target for _, target in edges(module)} - {module} for module in MODULES}
    order = list(TopologicalSorter(graph).static_order())
    assert set(MODULES) <= set(order)


def test_the_order_is_the_one_in_the_design() -> None:
    text = (ROOT / "design" / "layout.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert listed == [name for name in ORDER if name in listed]
    assert {module.partition(".")[0] for module in MODULES} <= set(listed)


def bound_names() -> set[str]:
    """The names of skillbelt that `skillbelt/__init__.py` imports, lazily or not, or defines."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text("utf-8"))):
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


@pytest.mark.parametrize("name", skillbelt.__all__)
def test_every_exported_name_is_documented_and_tested(name: str) -> None:
    documented = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert re.search(rf"`{re.escape(name)}\b", documented), f"docs/api.md does not explain {name}"
    word = re.compile(rf"\b{re.escape(name)}\b")
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert any(word.search(path.read_text("utf-8")) for path in tests), f"no test uses {name}"


def test_no_file_passes_the_line_limit() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("src", "tests", "benchmarks", "scripts", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text("utf-8").splitlines())) > MAX_LINES
    }
    assert long == {}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_test(module: str) -> None:
    package, _, name = module.rpartition(".")
    path = MODULES[module]
    if module == "__main__":  # one line, run by the tests of the command line
        name = "cli"
    if path.name == "__init__.py":
        if len(ast.parse(path.read_text("utf-8")).body) <= 1:
            return
        wanted = [f"{module}/test_{name}.py", f"test_{name}.py"]
    else:
        wanted = [f"{package.replace('.', '/')}/test_{name}.py".lstrip("/")]
    assert any((ROOT / "tests" / one).is_file() for one in wanted), f"write tests/{wanted[0]}"


def test_every_test_is_of_a_module() -> None:
    """`test_parse_properties.py` is a second test of `parse`."""
    strays = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        package = ".".join(path.parent.relative_to(ROOT / "tests").parts)
        name = path.stem.removeprefix("test_")
        subjects = [m.removeprefix(f"{package}.") for m in MODULES if m.startswith(package)] + WHOLE
        if not any(f"{name}_".startswith(f"{known}_") for known in subjects):
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []


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


def test_importing_the_package_takes_little_processor_time() -> None:
    code = """
import os
start = os.times()
import skillbelt
end = os.times()
print(end.user - start.user + end.system - start.system)
"""
    assert min(float(python(code).stdout) for _ in range(5)) < MAX_IMPORT_CPU_SECONDS


def test_a_warm_list_imports_nothing_heavy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "skills", project / ".agents" / "skills")
    code = "import sys; from skillbelt.cli import main; sys.exit(main())"
    command = [sys.executable, "-X", "importtime", "-c", code, "list", "--project", str(project)]
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "csv-report" in done.stdout
    imported = set(re.findall(r"^import time:.*\|\s+([\w.]+)$", done.stderr, re.MULTILINE))
    assert "skillbelt.cli" in imported
    assert not set(AT_LIST) & {name.partition(".")[0] for name in imported}


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
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
    assert wanted | {normal(one) for one in groups["dev"]} <= locked("dev.txt")
    assert locked("all.txt") <= locked("dev.txt")


def test_the_extra_all_holds_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = dict(project["project"]["optional-dependencies"])
    [everything] = extras.pop("all")
    for name in NOT_EVERYWHERE:
        del extras[name]
    assert everything == f"skillbelt[{','.join(sorted(extras))}]"
