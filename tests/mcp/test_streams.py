"""Standard input and output are taken away while a server uses them."""

from __future__ import annotations

from tests.tree import Tree


def test_others_read_nothing_and_write_elsewhere_until_it_is_given_back(tree: Tree) -> None:
    code = """
import os, subprocess, sys
from skillbelt.mcp.streams import taken
with taken() as wire:
    os.write(wire.write, b"message\\n")
    print("stray", flush=True)
    subprocess.run(["echo", "child"], check=True)
    print(repr(sys.stdin.read()), flush=True)
print("after", flush=True)
"""
    done = tree.python("-c", code)
    assert done.exit_code == 0
    assert done.stdout == "message\nafter\n"
    assert done.stderr == "stray\nchild\n''\n"


def test_it_needs_nothing_of_the_extra(tree: Tree) -> None:
    code = "import sys, skillbelt.mcp.streams; print([m for m in sys.modules if m[:3] == 'mcp'])"
    assert tree.python("-c", code).stdout == "[]\n"
