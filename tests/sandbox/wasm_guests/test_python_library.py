from __future__ import annotations

from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.wasm_guests.running import said, script

# What is left out on purpose, or does not exist there.
USED = """
argparse array ast base64 binascii bisect calendar cmath collections concurrent.futures
configparser contextlib copy csv dataclasses datetime decimal difflib email.message enum fnmatch
fractions functools glob gzip hashlib heapq hmac html.parser http.client inspect io ipaddress
itertools json logging math mimetypes operator os pathlib pickle pprint queue random re secrets
shlex shutil statistics string struct tempfile textwrap threading time tomllib traceback
types typing unicodedata unittest urllib.request uuid warnings xml.etree.ElementTree zipfile zlib
""".split()  # noqa: SIM905


def test_the_library_is_there(sandbox: WasmSandbox, place: Place) -> None:
    code = f"import importlib\nfor name in {USED}: importlib.import_module(name)\nprint('all')"
    assert said(script(sandbox, place, {}, "python3", "-c", code)) == "all\n"


def test_what_the_library_imports_late_is_there(sandbox: WasmSandbox, place: Place) -> None:
    code = (
        "import datetime; print(datetime.datetime.strptime('2020-01-02', '%Y-%m-%d').day,"
        " 'ä'.encode('latin-1'), 'a'.encode('idna'), b'x\\xe9'.decode('cp1252'))"
    )
    assert said(script(sandbox, place, {}, "python3", "-c", code)) == "2 b'\\xe4' b'a' xé\n"


def test_warnings_are_shown_as_usual(sandbox: WasmSandbox, place: Place) -> None:
    """Neither those that an interpreter hides, nor fewer."""
    code = "import warnings; warnings.warn('told'); warnings.warn('hidden', ResourceWarning)"
    outcome = script(sandbox, place, {}, "python3", "-c", code)
    assert b"UserWarning: told" in outcome.stderr.data
    assert b"hidden" not in outcome.stderr.data
