"""Records behave as those of `typing.NamedTuple`; late modules and types as imported ones."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import skillbelt
from skillbelt import Store
from skillbelt.late import Late, made_once
from skillbelt.records import NamedTuple
from tests.desks import until

SOURCE = Path(skillbelt.__file__).parent


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    label: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y


class Labelled(Point):
    """A point with a method of its own."""

    def shout(self) -> str:
        return f"{self.label}!"


class Checked(Point):
    """A point whose constructor takes its fields in another order, and checks them."""

    __slots__ = ()

    def __new__(cls, y: int, x: int) -> typing.Self:
        if x < 0:
            raise ValueError("below zero")
        return super().__new__(cls, x, y)


class Known(typing.NamedTuple):
    """The same by the standard library."""

    x: int
    y: int = 2
    label: str | None = None


POINT, KNOWN = Point(1, label="a"), Known(1, label="a")


def test_a_record_is_a_tuple_with_names() -> None:
    assert (POINT.x, POINT.y, POINT.label, POINT.sum) == (1, 2, "a", 3)
    assert tuple(POINT) == (1, 2, "a") == tuple(KNOWN)
    assert hash(POINT) == hash(KNOWN)


@pytest.mark.parametrize("name", ["_fields", "_field_defaults", "__match_args__", "__slots__"])
def test_a_record_has_the_attributes_of_a_named_tuple(name: str) -> None:
    assert getattr(Point, name) == getattr(Known, name)


def test_a_record_is_shown_replaced_and_listed_by_its_names() -> None:
    assert repr(POINT) == "Point(x=1, y=2, label='a')"
    assert tuple(POINT._replace(y=5)) == KNOWN._replace(y=5)
    assert POINT._asdict() == KNOWN._asdict()
    assert Point._make([1, 2, "a"]) == POINT


def test_a_record_has_the_signature_and_the_types_of_its_fields() -> None:
    assert str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2, label: 'str | None' = None)"
    assert typing.get_type_hints(Point) == typing.get_type_hints(Known)


def test_a_record_is_copied_and_pickled() -> None:
    assert copy.deepcopy(POINT) == POINT
    loaded = pickle.loads(pickle.dumps(POINT))
    assert (type(loaded), loaded) == (Point, POINT)


def test_a_class_below_a_record_has_its_fields() -> None:
    assert Labelled(1, label="a").shout() == "a!"


def test_a_constructor_of_a_subclass_is_not_called_for_a_change() -> None:
    made = Checked(5, 6)
    assert made._asdict() == {"x": 6, "y": 5, "label": None}
    changed = made._replace(label="b")
    assert (type(changed), changed._asdict()) == (Checked, {"x": 6, "y": 5, "label": "b"})
    assert Checked._make([-1, 2, "a"]).x == -1
    with pytest.raises(TypeError, match="Expected 3 arguments, got 2"):
        Point._make([1, 2])


def test_a_record_is_matched_by_position() -> None:
    match POINT:
        case Point(x, _, label):
            assert (x, label) == (1, "a")


def test_every_module_with_records_keeps_annotations_as_text() -> None:
    """Python 3.14 gives a class no annotations before it is made, unless they are text."""
    texts = {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    made = [path for path, text in texts.items() if "skillbelt.records import NamedTuple" in text]
    assert made
    future = "from __future__ import annotations\n"
    assert [path for path in made if future not in texts[path]] == []


def test_annotations_that_are_not_known_yet_are_an_error() -> None:
    kind: typing.Any = type(NamedTuple)
    with pytest.raises(TypeError, match="from __future__ import annotations"):
        kind("Late", (NamedTuple,), {"__annotate_func__": None})


def test_a_record_is_copied_with_changes_by_the_copy_module() -> None:
    point: typing.Any = Point(1)
    assert point.__replace__(x=3) == Point(3)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        POINT.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        POINT.other = 2  # type: ignore[attr-defined]


def test_a_record_takes_its_fields_alone() -> None:
    make: typing.Any = Point
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        make()
    with pytest.raises(TypeError):
        make(1, 2, "a", "b")
    with pytest.raises(ValueError, match="unexpected field names"):
        make._replace(POINT, other=1)


def test_a_field_without_a_default_does_not_follow_one_with_it() -> None:
    with pytest.raises(TypeError, match="Wrong: a field without a default follows one"):

        class Wrong(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]


def test_a_late_module_is_imported_when_it_is_used() -> None:
    code = (
        "import sys; from skillbelt.late import Late; late = Late('colorsys');"
        "before = 'colorsys' in sys.modules; late.ONE_THIRD;"
        "print(before, 'colorsys' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_late_module_has_the_attributes_of_the_module() -> None:
    late = Late("json")
    assert late.dumps is __import__("json").dumps
    with pytest.raises(AttributeError, match="no_such_name"):
        late.no_such_name  # noqa: B018


def test_a_store_can_be_extended_as_a_protocol() -> None:
    class Counted(Store, typing.Protocol):
        count: int

    assert Store in Counted.__mro__


def test_a_value_that_many_threads_want_is_made_once() -> None:
    inside, made = threading.Event(), list[object]()

    class Shared:
        @made_once
        def value(self) -> object:
            made.append(object())
            inside.wait(150)
            return made[-1]

    shared = Shared()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: shared.value)
        second = pool.submit(lambda: shared.value)
        until(lambda: bool(made))
        inside.set()
    assert first.result() is second.result() is shared.value
    assert len(made) == 1


def test_one_owner_does_not_wait_for_the_value_of_another() -> None:
    begun, made_other = threading.Event(), threading.Event()
    order: list[str] = []

    class Engine:
        def __init__(self, name: str) -> None:
            self.name = name

        @made_once
        def client(self) -> str:
            if self.name == "slow":
                begun.set()
                made_other.wait(150)
            order.append(self.name)
            return self.name

    slow, quick = Engine("slow"), Engine("quick")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: slow.client)
        assert begun.wait(150)
        assert quick.client == "quick"
        made_other.set()
        assert waiting.result() == "slow"
    assert order == ["quick", "slow"]
    assert vars(slow) == {"name": "slow", "client": "slow"}
