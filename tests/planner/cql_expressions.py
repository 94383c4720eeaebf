"""Random CQL expressions over stream A of ``cql_streams``, by type (Hypothesis strategies)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Text = SearchStrategy[str]


def _filled(pattern: str, *parts: Text) -> Text:
    return st.tuples(*parts).map(lambda values: pattern.format(*values))


def _any_of(choices: list[Text]) -> Text:
    return st.deferred(lambda: st.one_of(choices))


_COUNT = st.integers(0, 12).map(str)
_UNIT = st.sampled_from(["year", "month", "week", "day", "hour", "minute", "second", "microsecond"])
_INTEGER_LITERAL = st.sampled_from(
    ["0", "1", "-1", "7", "2147483647", "-2147483648", "3000000000", "9223372036854775807"]
)
_NUMBER_LITERAL = st.sampled_from(
    ["0.0", "0.5", "-1.25", "1e3", "1e308", "-1e-320", "123456789.123456789", "0.00"]
)
_TEXT_LITERAL = st.sampled_from(
    ["''", "'a'", "'Ab%'", "'%'", "'_b%'", "'12'", "'it''s'", "'日本'", "'2013-01-31'"]
)
_TIME_LITERAL = st.sampled_from(
    ["'2013-01-31'", "'2013-01-31 06:00'", "'0001-01-01'", "'9999-12-31T23:59:59.999999Z'"]
)

_leaf_integer = st.one_of(st.sampled_from(["i", "j", "n"]), _INTEGER_LITERAL)
_leaf_number = st.one_of(_leaf_integer, st.sampled_from(["v", "w", "m", "p", "q", "NULL"]), _NUMBER_LITERAL)

INTEGER: Text = st.recursive(
    _leaf_integer,
    lambda x: st.one_of(
        _filled("({} {} {})", x, st.sampled_from(["+", "-", "*", "//", "%"]), x),
        _filled("-({})", x),
        _filled("abs({})", x),
        _filled("coalesce({}, {})", x, x),
        _filled("CASE WHEN f THEN {} ELSE {} END", x, x),
        _filled("nullif({}, {})", x, x),
        st.sampled_from(
            ["length(s)", "strpos(s, t)", "hour(ts)", "date_diff('second', ts, u)", "d - e", "epoch_us(u)"]
        ),
        st.sampled_from(
            ["CAST(s AS INT)", "CAST(v AS BIGINT)", "CAST(q AS INT)", "n::int", "CAST(f AS INT)"]
        ),
    ),
    max_leaves=6,
)
NUMBER: Text = st.recursive(
    st.one_of(_leaf_number, INTEGER),
    lambda x: st.one_of(
        _filled("({} {} {})", x, st.sampled_from(["+", "-", "/", "%"]), x),
        _filled("(CAST({} AS DOUBLE) * {})", x, x),
        _filled("(m * {})", _leaf_integer),
        _filled(
            "{}({})",
            st.sampled_from(["abs", "floor", "ceil", "round", "sqrt", "ln", "exp", "sin", "sign"]),
            x,
        ),
        _filled("round({}, {})", x, _COUNT),
        _filled("pow({}, {})", x, x),
        _filled("greatest({}, {})", x, x),
        _filled("CAST({} AS {})", x, st.sampled_from(["DOUBLE", "DECIMAL(9,3)", "INT", "DECIMAL(38,20)"])),
    ),
    max_leaves=6,
)
TEXT: Text = st.recursive(
    st.one_of(st.sampled_from(["s", "t"]), _TEXT_LITERAL),
    lambda x: st.one_of(
        _filled("({} || {})", x, x),
        _filled("{}({})", st.sampled_from(["upper", "lower", "trim", "reverse"]), x),
        _filled("substr({}, {}, {})", x, INTEGER, INTEGER),
        _filled("{}({}, {})", st.sampled_from(["left", "right"]), x, INTEGER),
        _filled("replace({}, {}, {})", x, x, x),
        _filled("split_part({}, {}, {})", x, x, INTEGER),
        _filled("lpad({}, {}, {})", x, _COUNT, x),
        _filled("CAST({} AS VARCHAR)", NUMBER),
        _filled("coalesce({}, {})", x, x),
    ),
    max_leaves=5,
)
TIME: Text = st.recursive(
    st.sampled_from(["ts", "u", "d", "e", "CAST(s AS TIMESTAMP)", "CAST(t AS DATE)", "make_timestamp(n)"]),
    lambda x: st.one_of(
        _filled(
            "({} {} INTERVAL '{}' {})",
            x,
            st.sampled_from("+-"),
            st.sampled_from(["1", "90", "50000"]),
            _UNIT,
        ),
        _filled("date_trunc('{}', {})", _UNIT, x),
        _filled("(ts + {} * INTERVAL '1' DAY)", st.sampled_from(["i", "j", "2"])),
        _filled("CAST({} AS {})", x, st.sampled_from(["DATE", "TIMESTAMP"])),
    ),
    max_leaves=4,
)
_COMPARE = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])

CONDITION: Text = st.recursive(
    st.one_of(
        st.sampled_from(["f", "g", "TRUE", "FALSE"]),
        _filled("{} {} {}", NUMBER, _COMPARE, NUMBER),
        _filled("{} {} {}", TEXT, _COMPARE, TEXT),
        _filled("{} {} {}", TIME, _COMPARE, st.one_of(TIME, _TIME_LITERAL)),
        _filled("{} BETWEEN {} AND {}", NUMBER, NUMBER, NUMBER),
        _filled("{} BETWEEN {} AND {}", TIME, _TIME_LITERAL, TIME),
        _filled(
            "{} {} ({}, {}, {})", NUMBER, st.sampled_from(["IN", "NOT IN"]), NUMBER, NUMBER, _leaf_number
        ),
        _filled("{} IN ({}, {})", TEXT, TEXT, _TEXT_LITERAL),
        _filled("{} IN ({}, {})", TIME, TIME, _TIME_LITERAL),
        _filled("{} {} {}", TEXT, st.sampled_from(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]), TEXT),
        _filled("({}) IS {}NULL", st.one_of(NUMBER, TEXT, TIME), st.sampled_from(["", "NOT "])),
        _filled("CAST({} AS BOOLEAN)", st.one_of(NUMBER, TEXT)),
        _filled("(ts - u) {} INTERVAL '5' MINUTE", st.sampled_from(["<", ">="])),
    ),
    lambda x: st.one_of(
        _filled("({} AND {})", x, x),
        _filled("({} OR {})", x, x),
        _filled("NOT ({})", x),
        _filled("({}) IS {}", x, st.sampled_from(["TRUE", "NOT FALSE", "NULL"])),
    ),
    max_leaves=4,
)
ANY = st.one_of(INTEGER, NUMBER, TEXT, TIME, CONDITION)
