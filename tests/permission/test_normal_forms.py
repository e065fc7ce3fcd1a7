"""The normal form of hosts and paths, in requests and in rules."""

from __future__ import annotations

import pytest

from skillbelt.permission.normal_forms import host_pattern, host_text, path_pattern, path_texts
from skillbelt.permission.rules import UNCLEAR


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("https://Example.com:443/a?b#c", "example.com"),
        ("http://example.com:80", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("example.com.:8443", "example.com:8443"),
        ("domain:example.com", "example.com"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("[::1]", "[::1]"),
        ("[0:0:0:0:0:0:0:1]:8080", "[::1]:8080"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("*.example.com", "*.example.com"),
    ],
)
def test_a_host_has_one_spelling(written: str, text: str) -> None:
    assert host_text(written) == text
    if "//" not in written and not written.startswith("domain:"):
        assert host_pattern(written) == text


@pytest.mark.parametrize(
    "written",
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "me@example.com", "a b", "", "..",
     "example.com\\@evil.org", "example.com:99999", "ex*mple.com", "[::1", "fe80::1%eth0"],
)  # fmt: skip
def test_what_is_no_host_is_unclear(written: str) -> None:
    assert host_text(written) == UNCLEAR + written


@pytest.mark.parametrize("pattern", ["127.1", "2130706433", "a b", "https://example.com/x"])
def test_a_pattern_that_can_match_no_host_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"host|address|port"):
        host_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [("*", "*"), ("*.COM", "*.com"), ("Api-?.Example.com", "api-?.example.com"), ("*:22", "*:22")],
)
def test_a_pattern_keeps_its_wildcards(pattern: str, plain: str) -> None:
    assert host_pattern(pattern) == plain


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("/srv/a", "/srv/a"),
        ("//srv//a/", "/srv/a"),
        ("/srv/./b/../a", "/srv/a"),
        ("~", "/home/me"),
        ("~/a", "/home/me/a"),
        ("$HOME/a", "/home/me/a"),
        ("${HOME}/a", "/home/me/a"),
        ("a", "/project/a"),
        ("../a", "/a"),
    ],
)
def test_a_path_has_one_spelling(written: str, text: str) -> None:
    assert path_texts(written, "/home/me", "/project") == (text,)


@pytest.mark.parametrize("written", ["~root/a", "$X/a", "/a/${X}", "/a/$(x)", "a\0b"])
def test_what_only_a_shell_could_read_is_unclear(written: str) -> None:
    assert path_texts(written, "/home/me", "/project") == (UNCLEAR + written,)


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("~/.ssh/**", "/home/me/.ssh/**"),
        ("$HOME/x", "/home/me/x"),
        ("//srv//a/../b/*.txt", "/srv/b/*.txt"),
        ("/srv/a/", "/srv/a"),
        ("/*", "/*"),
        ("*", "*"),
        ("*/.env", "*/.env"),
    ],
)
def test_a_pattern_of_paths_has_the_same_spelling(pattern: str, plain: str) -> None:
    assert path_pattern(pattern, "/home/me") == plain
