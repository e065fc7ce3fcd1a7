"""Read what the user typed as a source of skills. Nothing here reads a file or the network.

The syntaxes of `skills` 1.7.4 come in its order of tests. It looks for `github.com/` anywhere in
the text; here the host of a URL decides, so that no other host can pass for a known one.
"""

from __future__ import annotations

import os
import re
from typing import NoReturn
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from skillbelt.discovery.sources.address import (
    ARCHIVE_ENDINGS,
    MCP,
    MCP_COMMAND,
    expand_home,
    is_label,
)
from skillbelt.discovery.sources.failure import SourceFailure, redact
from skillbelt.errors import PathEscape
from skillbelt.files.contain import check_relative
from skillbelt.install.values import SourceKind, SourceReference
from skillbelt.records import NamedTuple
from skillbelt.settings import process_environment
from skillbelt.text import Lazy

MAX_SOURCE_CHARS = 4096
OCI_LAYOUT = "oci-layout:"
PACKED_ENDINGS = ARCHIVE_ENDINGS
GITHUB = "github.com"
_GITLAB = "gitlab.com"
_OCI = "oci://"
_CLAWHUB = "clawhub:"
_ALIASES = {
    "coinbase/agentWallet": "coinbase/agentic-wallet-skills",
    "vercel-labs/vercel-skills": "vercel-labs/agent-skills",
}
_ARTIFACT_HOSTS = (
    "raw.githubusercontent.com",
    "codeload.github.com",
    "objects.githubusercontent.com",
)
_GITHUB_ARTIFACT = Lazy(r"/[^/]+/[^/]+/(?:archive/|raw/|releases/(?:download/|latest/download/))")
_GITLAB_ARTIFACT = Lazy(r"/-/(?:archive|raw)/")
_GITLAB_TREE = Lazy(r"/(.+?)/-/tree/([^/]+)(?:/(.+))?")
_GITHUB_REPO = Lazy(r"/[^/]+/[^/]+(?:\.git)?(?:/tree/[^/]+(?:/.*)?)?/?")
_GITLAB_REPO = Lazy(r"/.+?/[^/]+(?:\.git)?(?:/-/tree/[^/]+(?:/.*)?)?/?")
_AZURE_REF = Lazy(r"(?:GB|GT)(.+)", re.IGNORECASE)
_AT_SKILL = Lazy(r"([^/]+)/([^/@]+)@(.+)")
_SHORTHAND = Lazy(r"([^/]+)/([^/]+?)(?:/(.+?))?/?")
_DRIVE = Lazy(r"[a-zA-Z]:[/\\]")
_SCP = Lazy(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*:[^:].*")
_SERVER = Lazy(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_REPOSITORY_PART = Lazy(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_PLUGIN = Lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}@[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SLUG = Lazy(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:/[A-Za-z0-9][A-Za-z0-9_-]*)?")
_VERSION = Lazy(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
_OCI_NAME = Lazy(
    r"[A-Za-z0-9.\-\[\]:]+(?::[0-9]+)?/[a-z0-9._/-]+(?::[A-Za-z0-9_][A-Za-z0-9._-]*)?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
# A ref goes to git as an argument and into a lock; the rules of `git check-ref-format`, in short.
_REF = Lazy(r"(?!-)(?!.*(?:\.\.|@\{|//))[^\x00-\x20\x7f~^:?*\[\\]+(?<![./])")
# Names of a query that hold a secret: tokens of forges and registries, signed addresses of clouds.
_SECRET_NAME = Lazy(
    r"(?:.*[_.-])?(?:[a-z]*token|(?:api|access|secret)?key|sig|signature|secret|auth|authorization"
    r"|pass|passwd|password|pwd|credentials?|jwt)",
    re.IGNORECASE,
)
_GIT_SCHEMES = ("ssh", "git+ssh", "git", "file", "http", "https")


class _Fragment(NamedTuple):
    """The part after the `#` of a git source: a ref, and the name of a skill."""

    text: str
    ref: str = ""
    skill: str = ""


def parse_typed(text: str, *, folder: str = "") -> SourceReference:
    """Return what a user typed, as `parse_source` does; `owner/repo` is on the host of GH_HOST."""
    host = process_environment().get("GH_HOST", "").strip().lower() or GITHUB
    if host != GITHUB and not _SERVER.fullmatch(host):
        remedy = "set it to a name such as git.example.com, or unset it"
        _refuse("GH_HOST", f"{host[:100]!r} is not the name of a host", remedy)
    return parse_source(text, folder=folder, github_host=host)


def parse_source(text: str, *, folder: str = "", github_host: str = GITHUB) -> SourceReference:
    """Return what the text names; raise SourceFailure for an invalid source.

    A relative path begins at `folder`. `github_host` is the host that `owner/repo` is on.
    """
    typed = text
    text = _check_text(text)
    _check_query(text)
    found = (
        _parse_ours(text, folder)
        or _parse_path(text, folder)
        or _parse_git(_split_fragment(text, github_host), github_host)
    )
    return found._replace(typed=redact(typed.strip()))


def check_ref(ref: str, source: str) -> str:
    """Return the name of a branch, a tag or a commit; raise SourceFailure for an invalid name."""
    if ref and (len(ref) > 255 or not _REF.fullmatch(ref)):
        _refuse(source, f"{ref[:100]!r} is not a branch, a tag or a commit", "fix the ref")
    return ref


def _check_text(text: str) -> str:
    text = text.strip()
    if not text:
        _refuse("source", "it is empty", "give a path, owner/repo or an address")
    if len(text) > MAX_SOURCE_CHARS:
        _refuse(text[:100], "it is too long", "give a shorter address")
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        _refuse("source", "it holds a control character", "type the address again")
    if text.startswith("-"):
        _refuse(text[:100], "a source cannot begin with '-'", "write a path as ./-name")
    return text


# --- syntaxes that `skills` does not have --------------------------------------------------------


def _parse_ours(text: str, folder: str) -> SourceReference | None:
    lowered = text.lower()
    if lowered.startswith((*MCP, MCP_COMMAND)):
        return _parse_server(text)
    if lowered.startswith(_OCI):
        return _parse_registry(text[len(_OCI) :], text)
    if lowered.startswith(OCI_LAYOUT):
        path, _, ref = text[len(OCI_LAYOUT) :].partition("#")
        place = os.path.normpath(os.path.join(folder, expand_home(path)))
        url = f"{OCI_LAYOUT}{place}"
        return SourceReference(kind="oci", source=url, url=url, ref=ref)
    if lowered.startswith(_CLAWHUB):
        return _parse_clawhub(text[len(_CLAWHUB) :], text)
    if _PLUGIN.fullmatch(text):
        plugin, _, marketplace = text.partition("@")
        return SourceReference(kind="marketplace", source=text, url=marketplace, subpath=plugin)
    return None


def _parse_server(text: str) -> SourceReference:
    """Return an MCP server. Its command and its token are in the settings alone.

    A source may come from a lock or a marketplace, which must not start a program here; and it is
    written into a lock, which is shared.
    """
    if text.lower().startswith(MCP_COMMAND):
        name = text[len(MCP_COMMAND) :]
        if not is_label(name):
            label = name.partition("?")[0]
            label = label if is_label(label) else "NAME"
            _refuse(
                f"{MCP_COMMAND}{label}",
                "a source names no command",
                f"write {label}=COMMAND into mcp_commands of your settings, and give "
                f"{MCP_COMMAND}{label}",
            )
    elif (parts := _split_url(text)) is None or "@" in parts.netloc:
        remedy = (
            "write the address with its token into urls of your settings, and leave it out here"
        )
        _refuse(text, "an address with a token would end up in the lock", remedy)
    return SourceReference(kind="mcp", source=text.partition("#")[0], url=text)


def _parse_registry(name: str, text: str) -> SourceReference:
    if not _OCI_NAME.fullmatch(name) or ".." in name:
        _refuse(
            text, "is not a reference to a registry", "write oci://HOST/NAME:TAG or @sha256:DIGEST"
        )
    return SourceReference(kind="oci", source=text, url=text)


def _parse_clawhub(name: str, text: str) -> SourceReference:
    slug, _, version = name.partition("@")
    if not _SLUG.fullmatch(slug) or (version and not _VERSION.fullmatch(version)):
        _refuse(text, "is not a skill of ClawHub", "write clawhub:SLUG or clawhub:SLUG@VERSION")
    return SourceReference(kind="clawhub", source=slug, url=f"{_CLAWHUB}{slug}", ref=version)


# --- folders and archives on this machine --------------------------------------------------------


def _parse_path(text: str, folder: str) -> SourceReference | None:
    # No owner and no host begins with a dot, so `.agents/skills` is a folder too.
    local = text.startswith(("/", ".", "~/")) or text == "~"
    if not local and not _DRIVE.match(text):
        return None
    path = os.path.normpath(os.path.join(folder or os.getcwd(), expand_home(text)))
    if path.lower().endswith(PACKED_ENDINGS):
        return SourceReference(kind="download", source=path, url=path)
    return SourceReference(kind="local", source=path, url=path)


# --- repositories and sites, in the order of `skills` --------------------------------------------


def _split_fragment(text: str, github_host: str) -> _Fragment:
    before, mark, fragment = text.partition("#")
    if not mark or not fragment or not _may_have_ref(before, github_host):
        return _Fragment(text)
    ref, _, skill = fragment.partition("@")
    return _Fragment(before, unquote(ref), unquote(skill))


def _may_have_ref(text: str, github_host: str) -> bool:
    if text.startswith(("github:", "gitlab:", "git@", "file://")):
        return True
    parts = _split_url(text)
    if parts is None:
        return ":" not in text and not text.startswith((".", "/")) and "/" in text
    path = parts.path
    if parts.scheme in ("http", "https"):
        if _read_host(parts) in (GITHUB, github_host):
            return bool(_GITHUB_REPO.fullmatch(path))
        if _read_host(parts) == _GITLAB:
            return bool(_GITLAB_REPO.fullmatch(path))
        if "_git" in path.split("/")[:-1]:
            return True
    return parts.scheme in _GIT_SCHEMES and bool(re.search(r"\.git(?:$|/)", path, re.IGNORECASE))


def _parse_git(given: _Fragment, github_host: str) -> SourceReference:
    text = _ALIASES.get(given.text, given.text)
    if text.startswith("github:"):
        text = text.removeprefix("github:")
    elif text.startswith("gitlab:"):
        text = f"https://{_GITLAB}/{text.removeprefix('gitlab:')}"
    elif text.startswith((f"{GITHUB}/", f"www.{GITHUB}/", f"{_GITLAB}/")):
        text = f"https://{text}"
    parts = _split_url(text)
    if parts is None:
        found = _parse_shorthand(text, github_host) or _parse_scp(text)
    elif parts.scheme in ("http", "https"):
        found = _parse_web(text, parts, github_host)
    else:
        found = _parse_other_scheme(text, parts)
    ref, skill = found.ref or given.ref, given.skill or found.skill
    return found._replace(ref=check_ref(ref, redact(given.text)), skill=skill)


def _parse_web(text: str, parts: SplitResult, github_host: str) -> SourceReference:
    host, path = _read_host(parts), parts.path
    if host in _ARTIFACT_HOSTS or (host == GITHUB and _GITHUB_ARTIFACT.match(path)):
        return _parse_download(text)
    if host == _GITLAB and _GITLAB_ARTIFACT.search(path):
        return _parse_download(text)
    on_github = host in (GITHUB, f"www.{GITHUB}", github_host)
    if on_github and (found := _parse_github(text, parts)):
        return found
    if tree := _GITLAB_TREE.fullmatch(path):
        return _make_repository(parts, tree[1], ref=tree[2], subpath=tree[3] or "", kind="gitlab")
    if host == _GITLAB and "/" in path.strip("/"):
        return _make_repository(parts, path.strip("/"), kind="gitlab")
    if azure := _parse_azure(text, parts):
        return azure
    _check_credentials(text, parts)
    if path.endswith(".git"):
        return SourceReference(kind="git", source=text, url=text)
    if path.lower().endswith((*PACKED_ENDINGS, ".md")):
        return _parse_download(text)
    return SourceReference(kind="well-known", source=host.removeprefix("www."), url=text)


def _parse_github(text: str, parts: SplitResult) -> SourceReference | None:
    """Return a repository of GitHub or of the user's GitHub server, with the folder of a tree."""
    names = [name for name in parts.path.split("/") if name]
    if len(names) < 2:
        return None
    host = _read_host(parts)
    ours = GITHUB if host.removeprefix("www.") == GITHUB else host
    ref = names[3] if len(names) > 3 and names[2] == "tree" else ""
    subpath = "/".join(names[4:]) if ref else ""
    return _make_github(names[0], names[1], ours, text)._replace(
        ref=unquote(ref), subpath=_check_subpath(subpath, text)
    )


def _make_github(owner: str, name: str, host: str, text: str) -> SourceReference:
    name = name.removesuffix(".git")
    if not (_REPOSITORY_PART.fullmatch(owner) and _REPOSITORY_PART.fullmatch(name)):
        _refuse(text, "is not a repository", "write owner/repo")
    if ".." in (owner, name) or "." in (owner, name):
        _refuse(text, "is not a repository", "write owner/repo")
    url = f"https://{host}/{owner}/{name}.git"
    if host != GITHUB:
        return SourceReference(kind="git", source=url, url=url)
    return SourceReference(kind="github", source=f"{owner}/{name}", url=url)


def _make_repository(
    parts: SplitResult, path: str, *, kind: SourceKind, ref: str = "", subpath: str = ""
) -> SourceReference:
    netloc = parts.netloc.rpartition("@")[2]
    path = _check_subpath(path.removesuffix("/").removesuffix(".git"), parts.geturl())
    url = f"{parts.scheme}://{netloc}/{path}.git"
    subpath = _check_subpath(subpath, parts.geturl())
    return SourceReference(kind=kind, source=url, url=url, ref=unquote(ref), subpath=subpath)


def _parse_azure(text: str, parts: SplitResult) -> SourceReference | None:
    names = [name for name in parts.path.split("/") if name]
    if "_git" not in names[:-1]:
        return None
    at = names.index("_git")
    repository = names[at + 1].removesuffix(".git")
    if not repository:
        return None
    path = "/".join(quote(unquote(name), safe="") for name in (*names[:at], "_git", repository))
    url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{path}"
    query = parse_qs(parts.query)
    version = _AZURE_REF.fullmatch(query.get("version", [""])[0])
    subpath = _check_subpath(query.get("path", [""])[0].lstrip("/"), text)
    ref = version[1] if version else ""
    return SourceReference(kind="git", source=url, url=url, ref=ref, subpath=subpath)


def _parse_shorthand(text: str, github_host: str) -> SourceReference | None:
    if ":" in text or text.startswith((".", "/")):
        return None
    if match := _AT_SKILL.fullmatch(text):
        return _make_github(match[1], match[2], github_host, text)._replace(skill=match[3])
    if match := _SHORTHAND.fullmatch(text):
        subpath = _check_subpath(match[3] or "", text)
        return _make_github(match[1], match[2], github_host, text)._replace(subpath=subpath)
    return None


def _parse_scp(text: str) -> SourceReference:
    if "::" in text or not _SCP.fullmatch(text):
        reason = "is not a path, a repository or an address"
        _refuse(text, reason, "write ./folder, owner/repo or https://…; `skillbelt add --help`")
    return SourceReference(kind="git", source=text, url=text)


def _parse_other_scheme(text: str, parts: SplitResult) -> SourceReference:
    if parts.scheme not in _GIT_SCHEMES:
        remedy = "use https, ssh or file, or an address that `skillbelt add --help` lists"
        _refuse(text, f"{parts.scheme}: is not a protocol for fetching skills", remedy)
    if parts.scheme == "file":
        return _parse_file(text, parts)
    _check_credentials(text, parts)
    if not parts.hostname or parts.hostname.startswith("-"):
        _refuse(text, "has no host", "fix the address")
    return SourceReference(kind="git", source=text, url=text)


def _parse_file(text: str, parts: SplitResult) -> SourceReference:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        _refuse(text, "is not on this machine", "write it as file:///absolute/path")
    if "%00" in parts.path or ".." in unquote(parts.path).split("/"):
        _refuse(text, "leads elsewhere than it says", "write the absolute path without `..`")
    if parts.path.lower().endswith(PACKED_ENDINGS):
        path = unquote(parts.path)
        return SourceReference(kind="download", source=path, url=path)
    url = f"file://{parts.path}"
    return SourceReference(kind="git", source=url, url=url)


def _parse_download(text: str) -> SourceReference:
    parts = urlsplit(text)
    _check_credentials(text, parts)
    return SourceReference(kind="download", source=text, url=text)


# --- parts of an address -------------------------------------------------------------------------


def _split_url(text: str) -> SplitResult | None:
    """Split a text with a scheme and two slashes; None for any other."""
    scheme, mark, _ = text.partition("://")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        _refuse(text, f"is not an address: {error}", "fix the address")
    if parts.scheme in ("http", "https") and not parts.hostname:
        _refuse(text, "has no host", "fix the address")
    if " " in text or "\\" in text:
        _refuse(text, "holds a space or a backslash", "fix the address")
    return parts


def _read_host(parts: SplitResult) -> str:
    """Return the host, with the port if there is one."""
    host = (parts.hostname or "").lower()
    return f"{host}:{parts.port}" if parts.port else host


def _check_credentials(text: str, parts: SplitResult) -> None:
    # They would be written into the lock, which is committed and shared.
    secret = parts.password is not None or (parts.scheme in ("http", "https") and parts.username)
    if secret:
        remedy = "leave them out; git asks your credential helper, see `git help credentials`"
        _refuse(text, "an address with a password or a token would end up in the lock", remedy)


def _check_query(text: str) -> None:
    """Refuse an address with a secret in its query, without a word of the query."""
    if text.lower().startswith(MCP_COMMAND) or "://" not in text:
        return
    address, _, query = text.partition("#")[0].partition("?")
    for part in query.replace(";", "&").split("&") if query else ():
        name = unquote(part.partition("=")[0])
        if _SECRET_NAME.fullmatch(name):
            _refuse(
                address,
                f"the part {name[:40]!r} of its query is a secret, which would end up in the lock",
                "leave it out, or download the archive yourself and give the file",
            )


def _check_subpath(subpath: str, text: str) -> str:
    path = unquote(subpath).strip("/") if "%" in subpath else subpath.strip("/")
    if not path:
        return ""
    try:
        return check_relative(path, redact(text))
    except PathEscape as error:
        raise SourceFailure(
            text, str(error), code="source-syntax", remedy="give a folder inside the source"
        ) from error


def _refuse(source: str, reason: str, remedy: str) -> NoReturn:
    raise SourceFailure(source, reason, code="source-syntax", remedy=remedy)
