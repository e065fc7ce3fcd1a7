"""The package of a module: the shipped table, and names that are not in it."""

from __future__ import annotations

import re
import sys
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.permission.packages import Kind, normal
from skillbelt.running.packages.known_packages import PackageName, package_for


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("PIL.Image", "pillow"), ("cv2", "opencv-python-headless"), ("yaml", "pyyaml"),
        ("bs4", "beautifulsoup4"), ("docx", "python-docx"), ("pptx.util", "python-pptx"),
        ("fitz", "pymupdf"), ("sklearn.svm", "scikit-learn"), ("dotenv", "python-dotenv"),
        ("git", "gitpython"), ("Crypto.Cipher", "pycryptodome"), ("skimage", "scikit-image"),
        ("google.generativeai", "google-generativeai"), ("google.genai.types", "google-genai"),
        ("google.cloud.storage", "google-cloud-storage"), ("google.protobuf", "protobuf"),
        ("serial", "pyserial"), ("dateutil.parser", "python-dateutil"), ("jwt", "pyjwt"),
        ("magic", "python-magic"), ("attr", "attrs"), ("OpenSSL", "pyopenssl"), ("usb", "pyusb"),
        ("gi.repository", "pygobject"), ("mpl_toolkits.mplot3d", "matplotlib"),
        ("requests", "requests"), ("numpy", "numpy"), ("azure.identity", "azure-identity"),
    ],
)  # fmt: skip
def test_a_module_has_another_name_than_its_package(module: str, package: str) -> None:
    found = package_for(module)
    assert found is not None
    assert (found.name, found.known) == (package, True)


@pytest.mark.parametrize(
    "module",
    ["os", "os.path", "json", "tomllib", "tkinter", "win32com.client", "AppKit", "bpy", "google",
     "azure", "utils", "config", "src", ".sibling", "..up", "", "a-b", "-r", "--index-url", "a b",
     "x;y", "_private", "a" * 300, "\x00", "пакет", "a/b", "https://x"],
)  # fmt: skip
def test_no_package_is_named_for_what_none_has(module: str) -> None:
    assert package_for(module) is None


def test_a_name_that_the_table_lacks_is_a_guess() -> None:
    assert package_for("reqeusts") == PackageName("reqeusts", known=False)
    assert package_for("Acme_Tool.sub") == PackageName("acme-tool", known=False)


@pytest.mark.parametrize(
    ("module", "package"),
    [("docx", "docx"), ("lodash/get", "lodash"), ("@anthropic-ai/sdk/x", "@anthropic-ai/sdk"),
     ("npm:chalk@5", "chalk"), ("npm:@octokit/rest@20/x", "@octokit/rest")],
)  # fmt: skip
def test_a_module_of_node_names_its_package(module: str, package: str) -> None:
    assert package_for(module, "node") == PackageName(package, known=True)


@pytest.mark.parametrize(
    "module",
    ["fs", "fs/promises", "node:test", "bun:sqlite", "./x", "../x", "/x", "#x", "@/x", "~/x",
     "https://x/y", "-g", "--registry=x", "UPPER", "a b", "", "vscode", "@scope", "file:x"],
)  # fmt: skip
def test_no_package_is_named_for_what_node_has_or_cannot_name(module: str) -> None:
    assert package_for(module, "node") is None


@given(st.text(max_size=60), st.sampled_from(["python", "node"]))
def test_what_is_named_is_always_the_name_of_a_package(module: str, kind: Kind) -> None:
    found = package_for(module, kind)
    if found is not None:
        assert re.fullmatch(r"(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", found.name)
        assert kind == "node" or found.name == normal("python", found.name)


def test_the_tables_are_in_order() -> None:
    for name in ("python_modules.txt", "node_packages.txt"):
        text = files("skillbelt.running.packages").joinpath(name).read_text("utf-8")
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        assert len({words[0] for words in lines}) == len(lines) > 1000
        packages = {package for words in lines for package in words[1:] or words}
        shape = r"-|(@[a-z0-9-]+/)?[a-z0-9][a-z0-9._-]*"
        assert not [one for one in packages if not re.fullmatch(shape, one, re.IGNORECASE)]
        named = {words[0] for words in lines if words[1:] != ["-"]}
        assert name.startswith("node") or named & sys.stdlib_module_names <= {"distutils"}
