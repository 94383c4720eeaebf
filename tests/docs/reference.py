"""The tables of types, casts and functions on the page about semantics, from what the planner accepts."""

from __future__ import annotations

from itertools import groupby

from catalog.columns.arrow_types import canonical_type
from catalog.errors import SluiceError
from planner.bind.bind import bind
from planner.expressions.calls import known_functions
from planner.expressions.functions import FUNCTIONS, Function
from tests.builders import a_stream

#: Types, and what their columns hold.
TYPES = {
    "boolean": "true or false",
    "int": "whole number of 32 bits",
    "bigint": "whole number of 64 bits",
    "double": "64-bit floating-point number, also NaN and infinities",
    "decimal(10,2)": "exact number: up to 38 digits in all, here 10, of which 2 are after the point",
    "string": "Unicode text",
    "date": "calendar date",
    "timestamp": "microseconds, in UTC; the years 1 to 9999 for event times",
}
#: Other spellings of the types.
SPELLINGS = {
    "boolean": "bool logical",
    "int": "integer int4 int32 smallint int2 int16 short tinyint int1 int8 byte",
    "bigint": "long int64",
    "double": "float real float4 float8 float32 float64",
    "decimal(10,2)": "numeric(10,2) dec(10,2)",
    "string": "text varchar varchar(20) char str utf8 character",
    "date": "date32",
    "timestamp": "timestamptz datetime timestamp_ntz timestamp_ltz timestamp(6)",
}
#: Functions whose result depends on the types of their arguments: call, type of the result.
BY_TYPE = {
    "abs": ("abs(number)", "type of the argument; of an int: bigint"),
    "ceil": ("ceil(number)", "type of the argument; of a decimal: the same without digits after the point"),
    "ceiling": ("ceiling(number)", "as ceil"),
    "floor": ("floor(number)", "as ceil"),
    "round": ("round(number [, digits])", "type of the argument; of a decimal: with as many digits"),
    "mod": ("mod(number, number)", "as `%`"),
    "if": ("if(condition, value, value)", "common type of both values"),
    "iif": ("iif(condition, value, value)", "as if"),
    "nullif": ("nullif(value, value)", "type of the first"),
    "replace": ("replace(text, part, new)", "string"),
}
_KINDS = {
    "double": "number",
    "string": "text",
    "any": "value",
    "alike": "value",
    "bigint": "whole number",
    "integer": "whole number",
    "timestamp": "time",
    "unit": "'unit'",
    "count": "count",
    "pattern": "'pattern'",
    "group": "group",
}


def type_table() -> str:
    """Return the types with the spellings that are accepted for each."""
    rows = []
    for name, holds in TYPES.items():
        spellings = SPELLINGS[name].split()
        assert {canonical_type(text) for text in spellings} == {name}
        rows.append(f"| `{name}` | {holds} | {', '.join(f'`{text}`' for text in spellings)} |")
    return "\n".join(["| type | values | also written |", "| --- | --- | --- |", *rows])


def cast_table() -> str:
    """Return which types can be cast to which."""
    rows = [
        f"| `{source}` | {' | '.join('yes' if can_be_cast(source, target) else '–' for target in TYPES)} |"
        for source in TYPES
    ]
    head = " | ".join(f"`{name}`" for name in TYPES)
    return "\n".join([f"| from, to | {head} |", "| --- |" + " :-: |" * len(TYPES), *rows])


def can_be_cast(source: str, target: str) -> bool:
    """Return whether the planner accepts the cast of a column."""
    streams = {
        name: a_stream(number, columns=(("ts", "timestamp"), ("k", "bigint"), ("x", source)), name=name)
        for number, name in enumerate("AB", start=1)
    }
    window = "[RANGE 1 MINUTE]"
    text = f"SELECT CAST(A.x AS {target}) AS x FROM A {window}, B {window} WHERE A.k = B.k"
    try:
        bind(text, streams, name="q", query_id=1)
    except SluiceError:
        return False
    return True


def function_table() -> str:
    """Return the functions with their arguments and results; those that are alike share a row."""

    def alike(item: tuple[str, Function]) -> tuple[object, ...]:
        function = item[1]
        return function.takes, function.gives, function.optional, function.repeats

    rows = []
    for _, group in groupby(FUNCTIONS.items(), key=alike):
        found = list(group)
        names, function = [name.lower() for name, _ in found], found[0][1]
        gives = "common type of the arguments" if function.gives == "common" else function.gives
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {_arguments(function)} | {gives} |")
    rows += [f"| `{name}` | `{call}` | {gives} |" for name, (call, gives) in BY_TYPE.items()]
    missing = (
        {name.lower() for name in known_functions()} - {name.lower() for name in FUNCTIONS} - set(BY_TYPE)
    )
    assert not missing, f"describe {missing} in BY_TYPE"
    return "\n".join(["| functions | arguments | result |", "| --- | --- | --- |", *rows])


def _arguments(function: Function) -> str:
    kinds = [_KINDS.get(kind, kind) for kind in function.takes]
    first = len(kinds) - function.optional
    shown = [*kinds[:first], *(f"[{kind}]" for kind in kinds[first:]), *(["..."] if function.repeats else [])]
    return f"`({', '.join(shown)})`"
