"""Find the skills of a source, as `skills` 1.7.4 does, and in the plugins that it does not know.

A SKILL.md at the top is the only skill. Otherwise the folders that hold skills by custom are
searched, then those that a marketplace or a plugin declares; and only if there is nothing in them,
every folder down to five levels. Of two skills with one name the one counts whose folder has that
name and is where skills are by custom, otherwise the first. (`skills` always takes the first.) So
one skill is found by its folder, without a look at all others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from skillbelt.discovery.sources.bounds import Refusal
from skillbelt.format.bounds import MAX_FRONTMATTER_BYTES
from skillbelt.format.frontmatter import parse
from skillbelt.install.names import folder_name, lock_name, name_fault
from skillbelt.install.source_tree import SourceTree, join, read_file
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.untrusted_json import read_json
from skillbelt.values import SKILL_FILE

LOCK_NAME = "skills-lock.json"
MAX_MANIFEST_BYTES = 4 * 2**20
MAX_SKILL_FILE_BYTES = 8 * 2**20
# A frontmatter whose name can be read without reading YAML: first, plain, on one line, and no other
# key is written so that it could be a second one. The names of most skills are like that.
_PLAIN_NAME = Lazy(
    rb"---\n(?:description: [^\n\"'>|&*!{\[#%@`][^\n]*\n)?"
    rb"name: ([a-z0-9][a-z0-9-]{0,63})\n(?![ \t])"
    rb"(?:(?!name[ \t]*:)[A-Za-z][\w-]*:[^\n]*\n|[ \t-][^\n]*\n|\n)*?---[ \t]*\n"
)
_SKIPPED = frozenset(("node_modules", ".git", "dist", "build", "__pycache__"))
_DEEP = 3
_MAX_DEPTH = 5
# The folders of clients in a project, as `skills` 1.7.4 lists them.
CLIENT_FOLDERS = tuple(
    f".{name}/skills"
    for name in (
        "agents", "claude", "cline", "codebuddy", "codex", "commandcode", "continue", "factory",
        "github", "goose", "grok", "iflow", "junie", "kilo", "kilocode", "kimchi", "kiro",
        "minimax", "mux", "neovate", "opencode", "openhands", "pi", "posit/assistant", "qoder",
        "roo", "trae", "windsurf", "zcode", "zencoder",
    )
)  # fmt: skip
_CUSTOM = ("skills", "skills/.curated", "skills/.experimental", "skills/.system", *CLIENT_FOLDERS)
CLAUDE_MARKETPLACE = ".claude-plugin/marketplace.json"
CODEX_MARKETPLACE = ".agents/plugins/marketplace.json"
_CLAUDE_PLUGIN = ".claude-plugin/plugin.json"
_CODEX_PLUGIN = ".codex-plugin/plugin.json"


class FoundSkill(NamedTuple):
    """A skill of a source: its name, its folder in the source, and the plugin that declares it.

    The name is the one that a lock has, as its author wrote it.
    """

    name: str
    folder: str
    description: str
    plugin: str = ""
    internal: bool = False

    @property
    def skill_path(self) -> str:
        """The path of its SKILL.md in the source."""
        return join(self.folder, SKILL_FILE)


class SkippedSkill(NamedTuple):
    """A SKILL.md that is not a valid skill, and why."""

    path: str
    reason: str


class SourceSkills(NamedTuple):
    """The skills of a source in the order in which they were found."""

    skills: tuple[FoundSkill, ...]
    skipped: tuple[SkippedSkill, ...] = ()


def find_skills(
    tree: SourceTree,
    subpath: str = "",
    *,
    internal: bool = False,
    whole: bool = False,
    wanted: Iterable[str] = (),
) -> SourceSkills:
    """Return the skills below a folder of the source.

    `internal` includes those that mark themselves as internal. `whole` searches every folder, also
    beside a SKILL.md at the top. With `wanted` names, skills that have none of them may be missing,
    as long as each name is found.
    """
    typed = tuple(wanted)
    names = frozenset(name.casefold() for name in typed)
    if names and "*" not in names:
        search = _Search(tree, subpath, internal, names)
        if not whole and search.find_direct(typed):
            return SourceSkills(tuple(search.found.values()), tuple(search.skipped))
        search = _Search(tree, subpath, internal, names)
        search.run(whole)
        skills = tuple(search.found.values())
        if all(choose_skills(skills, [name]) for name in names):
            return SourceSkills(skills, tuple(search.skipped))
    search = _Search(tree, subpath, internal)
    search.run(whole)
    return SourceSkills(tuple(search.found.values()), tuple(search.skipped))


def read_skill(tree: SourceTree, folder: str) -> FoundSkill | SkippedSkill:
    """Return the skill in a folder of the source, or why its SKILL.md is not valid."""
    path = join(folder, SKILL_FILE)
    try:
        data = read_file(tree, path, MAX_SKILL_FILE_BYTES)[: 2 * MAX_FRONTMATTER_BYTES]
    except Refusal as error:
        return SkippedSkill(path, str(error))
    return _parse_skill(data, folder, path)


def _parse_skill(data: bytes, folder: str, path: str) -> FoundSkill | SkippedSkill:
    fields = parse(data, path=path, folder=posixpath.basename(folder), derive=False).fields
    written, description = _text(fields, "name"), _text(fields, "description")
    if not written or not description:
        lacking = "description" if written else "name"
        return SkippedSkill(path, f"its frontmatter has no {lacking}")
    name = lock_name(written)
    if fault := name_fault(name):
        shown = shorten(one_line(name), 80)
        return SkippedSkill(path, f"its name {shown!r} {fault}; its author must choose another")
    metadata = fields.get("metadata")
    internal = isinstance(metadata, dict) and str(metadata.get("internal")).lower() == "true"
    return FoundSkill(
        name=name,
        folder=folder,
        description=one_line(description),
        internal=internal,
    )


def _join_name(folder: str, name: str) -> str:
    """Join a folder and an entry name of the tree."""
    return f"{folder}/{name}" if folder else name


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value.strip() if isinstance(value, str) else ""


class _Search:
    def __init__(
        self,
        tree: SourceTree,
        subpath: str,
        internal: bool,
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        self._tree, self._top, self._internal = tree, join(subpath), internal
        self._wanted = wanted
        self._read: set[str] = set()
        self.found: dict[str, FoundSkill] = {}
        self.skipped: list[SkippedSkill] = []
        self._locked = frozenset(_locked_names(tree))
        self._plugins = _Plugins(tree, self._top)

    def run(self, whole: bool) -> None:
        if self._holds_skill(self._top):
            self._add(self._top)
            if self.found and not whole:
                return
        places = list(dict.fromkeys(self._find_candidates()))
        self._add_all(places)
        if whole or not (self.found or (places and self._wanted)):
            self._add_all(list(self._walk_all(self._top, 0)))

    def find_direct(self, names: Sequence[str]) -> bool:
        """Look for skills in folders of their names; return whether that found all of them."""
        if self._holds_skill(self._top):
            return False
        for name in names:
            if name_fault(name):
                return False
            for folder in (_join_name(place, name) for place in self._list_places()):
                if self._holds_skill(folder):
                    self._add(folder)
                    if folder in (one.folder for one in self.found.values() if one.name == name):
                        break
            else:
                return False
        return True

    def _add_all(self, places: Sequence[str]) -> None:
        """Add the skills of these folders, in this order."""
        self._tree.prepare(_join_name(place, SKILL_FILE) for place in places)
        for place in places:
            if not self._wanted or self._may_be_wanted(place):
                self._add(place)

    def _may_be_wanted(self, folder: str) -> bool:
        """Whether the skill of a folder may have a wanted name, without parsing its YAML."""
        try:
            data = read_file(self._tree, _join_name(folder, SKILL_FILE), MAX_SKILL_FILE_BYTES)
        except Refusal:
            return True
        plain = _PLAIN_NAME.match(data)
        return plain is None or plain[1].decode() in self._wanted

    def _find_candidates(self) -> Iterator[str]:
        """Yield the folders with a SKILL.md in the conventional and the declared places."""
        self._tree.list_all()
        custom = frozenset(join(self._top, place) for place in _CUSTOM)
        for place in self._list_places():
            yield from self._walk(place, _DEEP if place in custom else 1)

    def _list_places(self) -> Sequence[str]:
        """Return the folders that hold skills by convention or by declaration."""
        custom = (join(self._top, place) for place in _CUSTOM)
        return (self._top, *custom, *self._plugins.places)

    def _walk(self, folder: str, deepest: int, depth: int = 1) -> Iterator[str]:
        for item in self._tree.items(folder):
            if item.kind != "folder":
                continue
            child = _join_name(folder, item.name)
            if self._holds_skill(child):
                yield child
            elif depth < deepest and item.name not in _SKIPPED:
                yield from self._walk(child, deepest, depth + 1)

    def _walk_all(self, folder: str, depth: int) -> Iterator[str]:
        if depth > _MAX_DEPTH:
            return
        if self._holds_skill(folder):
            yield folder
        for item in self._tree.items(folder):
            if item.kind == "folder" and item.name not in _SKIPPED:
                yield from self._walk_all(_join_name(folder, item.name), depth + 1)

    def _holds_skill(self, folder: str) -> bool:
        return self._tree.is_file(_join_name(folder, SKILL_FILE))

    def _add(self, folder: str) -> None:
        if folder in self._read:
            return
        self._read.add(folder)
        skill = read_skill(self._tree, folder)
        if isinstance(skill, SkippedSkill):
            self.skipped.append(skill)
        elif skill.internal and not self._internal:
            self.skipped.append(SkippedSkill(skill.skill_path, "it is internal to its project"))
        elif not self._is_installed(skill):
            self._take_skill(skill._replace(plugin=self._plugins.name_of(folder)))

    def _take_skill(self, skill: FoundSkill) -> None:
        """Add a skill; of two with one name, the one in the folder of that name."""
        first = self.found.get(skill.name)
        if first is None:
            self.found[skill.name] = skill
            return
        if self._is_direct(skill) and not self._is_direct(first):
            self.found[skill.name], skill, first = skill, first, skill
        reason = f"{first.skill_path!r} has the same name {skill.name!r}"
        self.skipped.append(SkippedSkill(skill.skill_path, reason))

    def _is_direct(self, skill: FoundSkill) -> bool:
        parent, _, last = skill.folder.rpartition("/")
        return last == skill.name and parent in self._list_places()

    def _is_installed(self, skill: FoundSkill) -> bool:
        """Whether the lock of the source lists it: the source installed it from elsewhere."""
        if not self._locked:
            return False
        if not any(f"{skill.folder}/".startswith(f"{place}/") for place in CLIENT_FOLDERS):
            return False
        names = (skill.name, posixpath.basename(skill.folder))
        return any(_normalize_name(name) in self._locked for name in names)


def _normalize_name(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.lower())


def _locked_names(tree: SourceTree) -> Iterator[str]:
    document = read_manifest(tree, LOCK_NAME)
    entries = document.get("skills") if isinstance(document, dict) else None
    if isinstance(entries, dict):
        yield from map(_normalize_name, entries)


def read_manifest(tree: SourceTree, path: str) -> Any:
    """Return a JSON document of the source; None if it is missing or not valid."""
    if not tree.is_file(path):
        return None
    try:
        return read_json(read_file(tree, path, MAX_MANIFEST_BYTES))
    except (ValueError, Refusal):
        return None


class _Plugins:
    """The folders that marketplaces and plugins declare, and the plugin of each skill."""

    def __init__(self, tree: SourceTree, top: str) -> None:
        self._top = top
        self._names: dict[str, str] = {}
        found: list[str] = []
        found += self._claude_marketplace(read_manifest(tree, join(top, CLAUDE_MARKETPLACE)))
        found += self._plugin(top, read_manifest(tree, join(top, _CLAUDE_PLUGIN)))
        found += self._codex_marketplace(tree, read_manifest(tree, join(top, CODEX_MARKETPLACE)))
        found += self._plugin(top, read_manifest(tree, join(top, _CODEX_PLUGIN)))
        self.places = tuple(dict.fromkeys(found))

    def name_of(self, folder: str) -> str:
        return self._names.get(folder, "")

    def _claude_marketplace(self, document: Any) -> Iterator[str]:
        if not isinstance(document, dict):
            return
        metadata = document.get("metadata")
        root = metadata.get("pluginRoot", "./") if isinstance(metadata, dict) else "./"
        plugins = document.get("plugins")
        if not _is_relative(root) or not isinstance(plugins, list):
            return
        for plugin in plugins:
            source = plugin.get("source", "./") if isinstance(plugin, dict) else None
            if _is_relative(source) and (place := self._resolve_inside(root, source)) is not None:
                yield from self._plugin(place, plugin)

    def _codex_marketplace(self, tree: SourceTree, document: Any) -> Iterator[str]:
        plugins = document.get("plugins") if isinstance(document, dict) else None
        for plugin in plugins if isinstance(plugins, list) else ():
            source = plugin.get("source") if isinstance(plugin, dict) else None
            if isinstance(source, dict) and source.get("source") == "local":
                source = source.get("path")
            place = self._resolve_inside(source) if _is_relative(source) else None
            if place is not None:
                declared = read_manifest(tree, join(place, _CODEX_PLUGIN))
                own = declared if isinstance(declared, dict) else {}
                yield from self._plugin(place, {"name": plugin.get("name"), **own})

    def _plugin(self, base: str, document: Any) -> Iterator[str]:
        """Yield the folders above the skills that a plugin names, then its `skills` folder."""
        if not isinstance(document, dict):
            return
        name, skills = document.get("name"), document.get("skills")
        named = [skills] if isinstance(skills, str) else skills
        for path in named if isinstance(named, list) else ():
            place = self._resolve_inside(path, base=base) if _is_relative(path) else None
            if place is None:
                continue
            yield posixpath.dirname(place)
            if isinstance(skills, str):
                yield place
            if isinstance(name, str):
                self._names[place] = one_line(name)
        yield join(base, "skills")

    def _resolve_inside(self, *paths: str, base: str | None = None) -> str | None:
        """Resolve relative paths to a folder; None if they lead out of the source."""
        start = self._top if base is None else base
        joined = posixpath.normpath(posixpath.join(start or ".", *paths))
        if joined.startswith(("..", "/")):
            return None
        place = join(joined)
        outside = self._top and place != self._top and not place.startswith(f"{self._top}/")
        return None if outside else place


def _is_relative(path: Any) -> TypeGuard[str]:
    return isinstance(path, str) and path.startswith("./") and "\0" not in path


def choose_skills(skills: Iterable[FoundSkill], names: Iterable[str]) -> list[FoundSkill]:
    """Return the skills with these names; `*` means all.

    Where none has a name exactly, it may be written in another case, or be that of the folder that
    the skill is installed in.
    """
    known, chosen = tuple(skills), set[str]()
    for wanted in names:
        if wanted == "*":
            return list(known)
        folded = wanted.casefold()
        same = [one.name for one in known if one.name == wanted]
        like = same or [one.name for one in known if one.name.casefold() == folded]
        chosen.update(like or [one.name for one in known if folder_name(one.name) == folded])
    return [skill for skill in known if skill.name in chosen]
