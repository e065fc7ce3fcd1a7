"""The known fields of a frontmatter: brought to their types, and the name made safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from skillbelt.format.yaml_fast import TEXT_KEYS, Lazy
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic, Frontmatter, Requirements


class Named(NamedTuple):
    """A skill's id, safe as a path and a shell word, and its name as it was written."""

    id: str
    title: str
    diagnostics: tuple[Diagnostic, ...] = ()


# --- types ---------------------------------------------------------------------------------------

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_TOOL = Lazy(r"(?:[^\s,(]|\((?:[^()]|\([^()]*\))*\)?)+")


def _as_flag(value: object) -> bool | None:
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _TRUE else False if word in _FALSE else None


def _as_words(value: object, separate: Callable[[str], list[str]]) -> list[str] | None:
    if isinstance(value, str):
        return separate(value)
    if not isinstance(value, list) or any(isinstance(item, dict | list) for item in value):
        return None
    return [str(item).strip() for item in value if item is not None and str(item).strip()]


def _as_tools(value: object) -> list[str] | None:
    return _as_words(value, _TOOL.findall)


def _as_names(value: object) -> list[str] | None:
    return _as_words(
        value, lambda text: [part for item in text.split(",") if (part := item.strip())]
    )


def _as_mapping(value: object) -> dict[str, object] | None:
    return value if isinstance(value, dict) else None


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return "; ".join(str(item) for item in value if item is not None)
    return None


_Kind = tuple[Callable[[object], object], str]
_TEXT: _Kind = (_as_text, "text")
_KINDS: dict[str, _Kind] = {
    **dict.fromkeys(TEXT_KEYS, _TEXT),
    **dict.fromkeys(("allowed-tools", "disallowed-tools"), (_as_tools, "a list of tools")),
    **dict.fromkeys(("arguments", "paths"), (_as_names, "a list")),
    **dict.fromkeys(("metadata", "hooks"), (_as_mapping, "a mapping")),
    **dict.fromkeys(
        ("disable-model-invocation", "user-invocable", "user-invokable", "background"),
        (_as_flag, "true or false"),
    ),
}
_KINDS.update({key.replace("-", "_"): kind for key, kind in list(_KINDS.items())})
_ALIASES = {"user_invokable": "user_invocable"}


def settle(fields: dict[str, object], path: str) -> tuple[Diagnostic, ...]:
    """Brings known fields to their types in place, and reports what is wrong with them."""
    notes: list[Diagnostic] = []
    for key, value in fields.items():
        kind = _KINDS.get(key)
        if kind and value is not None and not (kind is _TEXT and type(value) is str):
            _bring(fields, key, value, path, notes)
    if not fields.get("description"):
        message = "there is no description, so no model is told of this skill"
        remedy = "add `description: what it does and when to use it`"
        notes.append(
            Diagnostic(
                code="description-missing",
                severity="error",
                path=path,
                line=1,
                message=message,
                remedy=remedy,
            )
        )
    return tuple(notes)


def _bring(
    fields: dict[str, object], key: str, value: object, path: str, notes: list[Diagnostic]
) -> None:
    convert, wanted = _KINDS[key]
    typed = convert(value)
    if typed is not None:
        fields[key] = typed
    if typed is None or (isinstance(typed, str) and not isinstance(value, str)):
        message = f"{key} is not {wanted}" + (" and is ignored" if typed is None else "")
        notes.append(
            Diagnostic(
                code="field-type",
                severity="warning",
                path=path,
                line=None,
                message=message,
                remedy=f"write {wanted}",
            )
        )


def to_frontmatter(fields: Mapping[str, object]) -> Frontmatter:
    """The known fields by type; what is unknown, or of the wrong type, verbatim in `extra`."""
    known: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, value in fields.items():
        kind = _KINDS.get(key)
        typed = kind[0](value) if kind else None
        name = key.replace("-", "_")
        name = _ALIASES.get(name, name)
        if typed is None:
            if value is not None or not kind:
                extra[key] = value
        elif name not in known or "-" in key:
            known[name] = tuple(typed) if isinstance(typed, list) else typed
    return Frontmatter(**known, extra=extra)  # type: ignore[arg-type]


_REQUIRING = ("openclaw", "clawdbot", "moltbot")  # one client under its three names
_NEEDS = {"bins": "bins", "anyBins": "any_bins", "env": "env", "config": "config"}


def requirements(frontmatter: Frontmatter) -> Requirements:
    """What the metadata says the skill needs; what is not a list of words says nothing."""
    for client in _REQUIRING:
        says = frontmatter.metadata.get(client)
        if isinstance(says, dict):
            needs = says.get("requires")
            listed = needs if isinstance(needs, dict) else {}
            found = {name: _needed(listed.get(key)) for key, name in _NEEDS.items()}
            return Requirements(**found, os=_needed(says.get("os")))
    return Requirements()


def _needed(value: object) -> tuple[str, ...]:
    return tuple(_as_names(value) or ())


# --- names ---------------------------------------------------------------------------------------

_MAX_NAME = 128
_SAFE = Lazy(rf"[^\W_][\w.-]{{0,{_MAX_NAME - 1}}}\Z")
_UNSAFE_RUN = Lazy(r"[^\w.-]+")


def skill_name(fields: Mapping[str, object], folder: str, path: str = "") -> Named:
    """The id and the title of a skill, with a diagnostic where the two or the folder differ."""
    written = fields.get("name")
    title = written.strip() if isinstance(written, str) else ""
    wanted = _normal(title or folder)
    name = wanted if _SAFE.match(wanted) else _folder_id(folder)
    if name == title == folder:
        return Named(name, name)
    if name == (title or folder):
        return Named(name, name, _other_folder(title, folder, path))
    shown = shorten(one_line(title or folder), 80)
    message = f"{shown!r} is not a safe name; it is called {name!r}"
    remedy = "use letters, digits, `-`, `_` and `.`, without blanks"
    note = Diagnostic(
        code="name-unsafe", severity="warning", path=path, line=None, message=message, remedy=remedy
    )
    return Named(name, title or folder, (note,))


def _other_folder(title: str, folder: str, path: str) -> tuple[Diagnostic, ...]:
    if not title or not folder:
        return ()
    message = f"the name {title!r} differs from the folder's, {shorten(one_line(folder), 80)!r}"
    remedy = "give both the same name"
    return (
        Diagnostic(
            code="name-folder",
            severity="info",
            path=path,
            line=None,
            message=message,
            remedy=remedy,
        ),
    )


def _folder_id(folder: str) -> str:
    name = _normal(folder)
    if _SAFE.match(name):
        return name
    slug = _UNSAFE_RUN.sub("-", name).strip("-._")[:_MAX_NAME].rstrip("-._")
    return slug if _SAFE.match(slug) else "skill"


def _normal(text: str) -> str:
    if text.isascii():
        return text
    from unicodedata import normalize

    return normalize("NFC", text)
