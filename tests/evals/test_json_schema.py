"""The small checker of schemas agrees with a whole one, or says that it does not know."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.evals.json_schema import UnknownKeyword, find_faults
from tests.examples import examples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=6,
)
SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(
                ["object", "array", "string", "number", "integer", "boolean", "null",
                 ["string", "null"]]
            ),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "minProperties": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "required": st.lists(st.sampled_from("xy"), max_size=2),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("xy"), inner),
            "additionalProperties": inner,
            "items": inner,
            "not": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=examples(400))
@given(VALUES, SCHEMAS)
def test_the_same_as_a_whole_checker(value: object, schema: object) -> None:
    whole = jsonschema.Draft202012Validator(schema)  # type: ignore[arg-type]
    assert (not find_faults(value, schema)) == whole.is_valid(value)


def test_references_and_patterns() -> None:
    schema = {"$ref": "#/$defs/word", "$defs": {"word": {"type": "string", "pattern": "^a+$"}}}
    assert find_faults("aaa", schema) == []
    assert find_faults("b", schema) == ["$: does not match the pattern"]


def test_a_fault_names_its_place() -> None:
    schema = {"properties": {"rows": {"items": {"type": "integer"}}}}
    assert find_faults({"rows": [1, "x"]}, schema) == ["$.rows[1]: is not of type integer"]


@pytest.mark.parametrize(
    "schema",
    [
        {"dependentSchemas": {}},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"type": "text"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"},
        {"pattern": "(a+)+$"},
    ],
)
def test_what_cannot_be_decided_is_not_passed(schema: object) -> None:
    with pytest.raises(UnknownKeyword):
        find_faults("a" * 60 + "!", schema)


def test_a_number_too_large_for_a_float_is_a_fault() -> None:
    assert find_faults(10**400, {"maximum": 5})


@pytest.mark.long
@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({}, {"required": [[1]]}),
        ({"a": 1}, {"allOf": [{"$ref": "#/$defs/a"}] * 9_000,
                    "$defs": {"a": {"required": ["a"] * 9_000}}}),
        (list(range(9_000)), {"allOf": [{"$ref": "#/$defs/a"}] * 9_000,
                              "$defs": {"a": {"uniqueItems": True}}}),
        ([["a" * 30]] * 99, {"items": {"items": {"pattern": "(a+)+b"}}}),
    ],
)  # fmt: skip
def test_a_schema_that_takes_too_long_is_not_decided(value: object, schema: object) -> None:
    with pytest.raises(UnknownKeyword):
        find_faults(value, schema)


def test_many_values_are_compared_with_many_choices() -> None:
    choices = [*range(2, 50_000), 1]
    assert find_faults([1] * 50_000, {"items": {"enum": choices}}) == []
