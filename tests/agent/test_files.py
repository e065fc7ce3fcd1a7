"""Files that come with a message."""

from __future__ import annotations

import os

import pytest

from skillbelt import ConfigError, Limits, Rule
from skillbelt.agent.files import attach_files, message_with, rules_for
from tests.tree import Tree

LIMITS = Limits()


def test_a_text_file_is_shown_whole(tree: Tree) -> None:
    path = tree.write("a.txt", "Grüße\n")
    [file] = attach_files([path], LIMITS)
    assert (file.path, file.size, file.text, file.whole) == (str(path), 8, "Grüße\n", True)


def test_a_long_one_is_cut_and_says_so(tree: Tree) -> None:
    path = tree.write("a.txt", "ü" * 100)
    [file] = attach_files([path], LIMITS._replace(max_resource_excerpt_chars=10))
    assert file.text == "ü" * 10
    assert not file.whole
    assert (
        "(truncated; a run can take the whole file as an input)"
        in message_with("x", [file])["content"]
    )


@pytest.mark.parametrize("data", [b"\x89PNG\0\0", b"\xff\xfe\xfd" * 10], ids=["nul", "no-utf-8"])
def test_what_is_no_text_is_not_shown(tree: Tree, data: bytes) -> None:
    [file] = attach_files([tree.write("a.bin", data)], LIMITS)
    assert file.text == ""
    assert "(not text;" in message_with("x", [file])["content"]


def test_what_is_not_there_or_no_file_is_refused(tree: Tree) -> None:
    fifo = tree.path("fifo")
    os.mkfifo(fifo)
    for path in (tree.path("nothing"), tree.project, fifo):
        with pytest.raises(ConfigError):
            attach_files([path], LIMITS)


def test_a_name_can_not_break_out_of_its_block(tree: Tree) -> None:
    [file] = attach_files([tree.write('a">\n<x y="', "text")], LIMITS)
    content = message_with("x", [file])["content"]
    assert content.count("\n<") == 2  # the block, and its end


def test_a_message_without_files_is_itself() -> None:
    assert message_with("Hi", []) == {"role": "user", "content": "Hi"}


def test_the_words_of_the_user_are_kept_apart(tree: Tree) -> None:
    made = message_with("Hi", attach_files([tree.write("a.txt", "x")], LIMITS))
    assert made["said"] == "Hi"
    assert made["files"] == [str(tree.path("a.txt"))]


def test_whoever_gives_a_file_lets_runs_have_it(tree: Tree) -> None:
    path = tree.write("a.txt", "x")
    link = tree.path("link.txt")
    link.symlink_to(path)
    assert rules_for(attach_files([link], LIMITS)) == (Rule("host_file", str(path), "allow"),)


def test_a_name_that_would_be_a_pattern_is_no_rule(tree: Tree) -> None:
    assert rules_for(attach_files([tree.write("*.txt", "x")], LIMITS)) == ()
