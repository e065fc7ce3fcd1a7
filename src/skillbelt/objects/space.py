"""The object store of a deployment: skills that all tenants share, and a space for each tenant.

    packages/wheels, archives/...   files of packages, by the hashes that locks name
    skills/...                   skills, by the digest that approvals are bound to
    deleted/<digits>             a mark for each conversation that was deleted, for other machines
    tenants/<digits>/...         of one `app` and `user`: files, trees, snapshots of workspaces

Each space has its own blobs. So a tenant neither finds out what another one has, nor reads what
another one wrote under a name. Skills are shared: their digest identifies their content.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from skillbelt.errors import ConfigError, ObjectError, PathEscape
from skillbelt.files.contain import READ_FOLDER
from skillbelt.files.manifest import LocalFiles, is_complete
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree import SkillTree, TreeRules
from skillbelt.objects.blobs import SKILL_SECONDS, TENANTS, Blobs, digits_of, tenant_prefix
from skillbelt.objects.cache import kept_folder
from skillbelt.objects.pack import PackRules, pack_tree, put_list
from skillbelt.objects.remote import open_once, open_store
from skillbelt.objects.tree import StoredTree, TreeKind, TreeLimits
from skillbelt.objects.unpack import Give, read_tree, unpack_tree

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from skillbelt.format.skill import Skill
    from skillbelt.settings import Settings
    from skillbelt.store.protocol import SessionKey

_LIMITS = TreeLimits()
_EVERYTHING = TreeRules(left_out=frozenset(), exact=True)
_SKILLS, _PACKAGES, _DELETED = "skills", "packages", "deleted"
_SURE_SECONDS = 600.0  # for this long, a skill that was seen in the store is not checked again


class ObjectSpace(Blobs):
    """Files and folders by digest, in a separate space."""

    def put_tree(self, folder: str, *, limits: TreeLimits = _LIMITS) -> str:
        """Store a folder as it is: files with modes and times, links, empty folders.

        Return its digest. ObjectError for a folder that cannot be read, or exceeds the limits.
        """
        rules = _EVERYTHING._replace(most=limits.max_entries)
        with _open_tree(folder, "", rules) as tree:
            packed = pack_tree(self, tree, PackRules(folder, "exact", limits))
        return put_list(self, packed.tree)

    def has_tree(self, digest: str) -> bool:
        """Whether a tree is listed under that digest."""
        return bool(self.copies("trees", digits_of(digest)))

    def get_tree(
        self,
        digest: str,
        into: str,
        *,
        limits: TreeLimits = _LIMITS,
        kind: TreeKind = "exact",
        give: Give | None = None,
    ) -> StoredTree:
        """Write the tree to a folder that does not exist yet, complete or not at all.

        Raises ObjectMissing, ObjectDamaged, ObjectsAway, or ObjectError when it cannot be written.
        """
        tree = read_tree(self, digest, kind, limits)
        aside = f"{into}.new-{os.urandom(8).hex()}"
        try:
            os.mkdir(aside, 0o700)
            handle = os.open(aside, READ_FOLDER)
            try:
                unpack_tree(self, tree, handle, give)
            finally:
                os.close(handle)
            os.rename(aside, into)
        except BaseException as error:
            with suppress(OSError):
                remove_tree(aside)
            if isinstance(error, OSError):
                raise ObjectError(f"{into} cannot be written: {error.strerror}") from error
            raise
        return tree


class Objects:
    """The object store of a deployment. Thread-safe."""

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        self._store, self._prefix = store, prefix.strip("/")
        self.skills, self.packages = self._space(_SKILLS), self._space(_PACKAGES)
        self.deleted = self._space(_DELETED)
        self._sure: dict[str, float] = {}

    @classmethod
    def from_url(cls, url: str, **config: Any) -> Objects:
        """Open the store at `s3://bucket/prefix` or the like; `config` is obstore's for it."""
        return cls(open_store(url, **config))

    @classmethod
    def from_settings(cls, settings: Settings) -> Objects:
        """Open the store that the setting `objects` names; ConfigError if it names none."""
        if not settings.objects:
            raise ConfigError(
                "this needs an object store: set `objects` to a URL such as s3://bucket/prefix"
            )
        return cls(open_once(settings.objects))

    def tenant(self, key: SessionKey) -> ObjectSpace:
        """Return the space of the key's `app` and `user`."""
        return self._space(tenant_prefix(key))

    def spaces(self) -> Iterator[ObjectSpace]:
        """Yield the space of skills, and that of each tenant with data."""
        yield self.skills
        whole = Blobs(self._store, self._prefix)
        for folder in whole.folders(TENANTS):
            yield self._space(folder)

    def _space(self, name: str) -> ObjectSpace:
        return ObjectSpace(self._store, f"{self._prefix}/{name}")

    # Skills

    def put_skill(self, skill: Skill) -> str:
        """Store the files of a skill; return its digest, which is `skill.files.digest()`.

        ObjectError for a skill that cannot be run: it has no files, or the digest does not cover
        all of them.
        """
        digest = skill.files.digest()
        if time.monotonic() - self._sure.get(digest, -_SURE_SECONDS) < _SURE_SECONDS:
            return digest
        if not os.path.isabs(skill.location):
            raise ObjectError(f"skill {skill.name!r} was made from text and has no files to keep")
        if not is_complete(digest):
            raise ObjectError(
                f"skill {skill.name!r} cannot be kept: its hash does not cover all of its files; "
                "`skillbelt check` says which are in the way"
            )
        self.keep_folder(digest, skill.files.whole_folder, what=f"skill {skill.name!r}")
        return digest

    def keep_folder(self, digest: str, find: Callable[[], tuple[str, str]], *, what: str) -> None:
        """Store the skill of that digest, unless it is there; `find` returns its folder and fence.

        ObjectError when the folder has another digest.
        """
        if time.monotonic() - self._sure.get(digest, -_SURE_SECONDS) < _SURE_SECONDS:
            return
        known = self.skills.copies("trees", digits_of(digest))
        if not known or known[0].age > SKILL_SECONDS / 2:
            folder, fence = find()
            if self.put_folder(folder, fence, what=what) != digest:
                raise ObjectError(
                    f"{what} changed while it was put into the object store; try again"
                )
        self._sure[digest] = time.monotonic()

    def put_folder(self, folder: str, fence: str = "", *, what: str = "") -> str:
        """Store the skill in a folder; return its digest."""
        with _open_tree(folder, fence, TreeRules()) as tree:
            packed = pack_tree(self.skills, tree, PackRules(what or folder, "skill"))
        return put_list(self.skills, packed.tree)

    def get_skill(self, digest: str, into: str) -> None:
        """Write the files of a skill to a new folder; ObjectError unless they have the digest."""
        self.skills.get_tree(digest, into, kind="skill")

    @contextmanager
    def skill_folder(self, digest: str, cache_dir: str, name: str) -> Iterator[str]:
        """Yield a folder of that name with the files of a skill, from the cache if it is there.

        The cache does not remove it before the end of the block. The files are hashed again
        whenever the entries of the folder changed.
        """
        digits = digits_of(digest)
        folder = os.path.join(cache_dir, "objects", "skills")

        def is_whole(path: str) -> bool:
            return LocalFiles(path).digest() == digest

        def fetch(path: str) -> None:
            self.get_skill(digest, path)

        with kept_folder(folder, digits, name, fetch=fetch, is_whole=is_whole) as path:
            yield path


@contextmanager
def _open_tree(folder: str, fence: str, rules: TreeRules) -> Iterator[SkillTree]:
    try:
        tree = SkillTree(folder, fence, rules)
    except (OSError, PathEscape) as error:
        reason = getattr(error, "strerror", "") or error
        raise ObjectError(f"{folder} cannot be read: {reason}") from error
    with tree:
        yield tree
