"""`NamedTuple`, made in a tenth of the time.

`typing.NamedTuple` compiles every annotation and a constructor for each class: 0.25 ms, and a
command imports 150 of them. Modules that most commands import take it from here. For a type checker
it is that of `typing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from functools import cache
    from operator import itemgetter
    from types import FunctionType

    try:
        from _collections import _tuplegetter as getter
    except ImportError:

        def getter(index, text):
            """Return a property for one field."""
            return property(itemgetter(index), doc=text)

    class _RecordType(type):
        """The type of a class with fields: a tuple with names."""

        def __new__(cls, name, bases, namespace):
            """Make the class; a class derived from one with fields has the same fields."""
            if bases[0] is tuple or hasattr(bases[0], "_fields"):
                return super().__new__(cls, name, bases, namespace)
            if "__annotate_func__" in namespace:  # Python 3.14 knows no fields then
                raise TypeError(f"{name}: its module needs `from __future__ import annotations`")
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one that has one")
            namespace.update(
                {field: getter(index, "") for index, field in enumerate(fields)},
                __slots__=(),
                __match_args__=fields,
                __new__=_constructor(fields, defaults, namespace),
                _fields=fields,
                _field_defaults=defaults,
            )
            return super().__new__(cls, name, bases, namespace)

    def _constructor(fields, defaults, namespace):
        code = _code(len(fields)).replace(co_varnames=("_cls", *fields), co_name="__new__")
        made = FunctionType(code, _NAMES, "__new__", tuple(defaults.values()))
        made.__annotations__ = namespace.get("__annotations__", {})
        made.__qualname__ = f"{namespace['__qualname__']}.__new__"
        return made

    _new = tuple.__new__
    _NAMES = {"_new": _new, "__builtins__": {}}

    @cache
    def _code(count):
        """Return the code of a constructor with so many fields, whose names are replaced."""
        names = "".join(f"_{number}, " for number in range(count))
        return eval(f"lambda _cls, {names}: _new(_cls, ({names}))", {}).__code__

    class NamedTuple(tuple, metaclass=_RecordType):
        """The base of classes with fields, as `typing.NamedTuple` is."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            """Return a record of values; a constructor of a subclass is not called."""
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            """Return a copy with some fields changed."""
            fields = self._fields
            made = self._make(map(changes.pop, fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        __replace__ = _replace  # `copy.replace` of Python 3.13 calls it

        def _asdict(self):
            """Return the fields by their names."""
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            """Return the text that makes an equal record."""
            pairs = zip(self._fields, self, strict=True)
            shown = ", ".join(f"{name}={value!r}" for name, value in pairs)
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            """Return what pickle and copy call the class with."""
            return tuple(self)
