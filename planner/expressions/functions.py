"""The scalar functions of CQL: arguments, result type, and DuckDB text, which never raises an error.

In a text, ``{0}``, ``{1}``, ... are the arguments. ``TRY`` is used if a value can make DuckDB raise an error
(checked with DuckDB 2.0, which returns NaN and infinities for undefined logarithms and roots). Functions
whose result depends on when or where they run are missing, because a repeated batch must give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function.

    Attributes:
        takes: Kind of each argument: a column type, or ``number``, ``exact`` (integer or decimal),
            ``integer``, ``time`` (date or timestamp), ``any``, ``alike`` (any, of one common type),
            or a literal: ``unit`` (of time), ``count`` (whole number >= 0), ``pattern`` (regular expression),
            ``group`` (number of a group in a regular expression, 0 to 9).
        gives: Type of the result. ``first`` is the type of the first argument, ``common`` the common type of
            all arguments.
        sql: DuckDB text. ``{args}`` is replaced by all arguments, separated by commas.
        optional: Number of arguments at the end that may be omitted.
        repeats: Whether more arguments of the last kind may follow.
    """

    takes: tuple[str, ...]
    gives: str
    sql: str
    optional: int = 0
    repeats: bool = False


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _double(name: str) -> Function:
    return Function(("double",), "double", f"TRY({name}({{0}}))")


def _text(sql: str, *more: str, gives: str = "string", optional: int = 0) -> Function:
    return Function(("string", *more), gives, sql, optional)


def _part(unit: str) -> Function:
    return Function(("time",), "bigint", f"date_part('{unit}', {{0}})")


_LENGTH = _text("length({0})", gives="bigint")
_SUBSTR = _text("TRY(substr({args}))", "integer", "integer", optional=1)
_STARTS = _text("starts_with({0}, {1})", "string", gives="boolean")
_ENDS = _text("ends_with({0}, {1})", "string", gives="boolean")
_POSITION = _text("strpos({0}, {1})", "string", gives="bigint")
_MATCHES = _text("regexp_matches({0}, {1})", "pattern", gives="boolean")
_COALESCE = Function(("alike",), "common", "coalesce({args})", repeats=True)
_POWER = Function(("double", "double"), "double", "TRY(pow({0}, {1}))")
_LOG10 = _double("log10")
_TRUNC = Function(("unit", "timestamp"), "timestamp", "TRY(date_trunc({0}, {1}))")
_DIFF = Function(("unit", "timestamp", "timestamp"), "bigint", "TRY(date_diff({0}, {1}, {2}))")

#: Functions by upper-case name. ROUND, MOD, CEIL, FLOOR, ABS, REPLACE, IF and NULLIF are in
#: ``expressions.calls``.
FUNCTIONS: dict[str, Function] = {
    # numbers
    "SQRT": _double("sqrt"),
    "CBRT": _double("cbrt"),
    "EXP": _double("exp"),
    "LN": _double("ln"),
    "LOG": _LOG10,
    "LOG10": _LOG10,
    "LOG2": _double("log2"),
    "SIN": _double("sin"),
    "COS": _double("cos"),
    "TAN": _double("tan"),
    "ASIN": _double("asin"),
    "ACOS": _double("acos"),
    "ATAN": _double("atan"),
    "ATAN2": Function(("double", "double"), "double", "TRY(atan2({0}, {1}))"),
    "DEGREES": _double("degrees"),
    "RADIANS": _double("radians"),
    "PI": Function((), "double", "pi()"),
    "POW": _POWER,
    "POWER": _POWER,
    "SIGN": Function(("number",), "int", "TRY_CAST(sign({0}) AS INTEGER)"),
    "ISNAN": Function(("double",), "boolean", "isnan({0})"),
    "ISINF": Function(("double",), "boolean", "isinf({0})"),
    "ISFINITE": Function(("double",), "boolean", "isfinite({0})"),
    # any type
    "COALESCE": _COALESCE,
    "IFNULL": _COALESCE,
    "NVL": _COALESCE,
    "GREATEST": Function(("alike",), "common", "greatest({args})", repeats=True),
    "LEAST": Function(("alike",), "common", "least({args})", repeats=True),
    # text
    "UPPER": _text("upper({0})"),
    "UCASE": _text("upper({0})"),
    "LOWER": _text("lower({0})"),
    "LCASE": _text("lower({0})"),
    "LENGTH": _LENGTH,
    "LEN": _LENGTH,
    "CHAR_LENGTH": _LENGTH,
    "CHARACTER_LENGTH": _LENGTH,
    "SUBSTR": _SUBSTR,
    "SUBSTRING": _SUBSTR,
    "TRIM": _text("trim({args})", "string", optional=1),
    "LTRIM": _text("ltrim({args})", "string", optional=1),
    "RTRIM": _text("rtrim({args})", "string", optional=1),
    "REVERSE": _text("reverse({0})"),
    "LEFT": _text('TRY("left"({0}, {1}))', "integer"),
    "RIGHT": _text('TRY("right"({0}, {1}))', "integer"),
    "LPAD": _text("TRY(lpad({0}, {1}, {2}))", "count", "string"),
    "RPAD": _text("TRY(rpad({0}, {1}, {2}))", "count", "string"),
    "SPLIT_PART": _text("TRY(split_part({0}, {1}, {2}))", "string", "integer"),
    "CONCAT": Function(("any",), "string", "concat({args})", repeats=True),
    "STARTS_WITH": _STARTS,
    "STARTSWITH": _STARTS,
    "ENDS_WITH": _ENDS,
    "ENDSWITH": _ENDS,
    "CONTAINS": _text("contains({0}, {1})", "string", gives="boolean"),
    "STRPOS": _POSITION,
    "INSTR": _POSITION,
    "REGEXP_MATCHES": _MATCHES,
    "REGEXP_LIKE": _MATCHES,
    "REGEXP_EXTRACT": _text("regexp_extract({args})", "pattern", "group", optional=1),
    # time
    "DATE_TRUNC": _TRUNC,
    "DATE_DIFF": _DIFF,
    "DATEDIFF": _DIFF,
    "EPOCH": Function(("timestamp",), "double", "TRY(epoch({0}))"),
    "EPOCH_MS": Function(("timestamp",), "bigint", "TRY(epoch_ms({0}))"),
    "EPOCH_US": Function(("timestamp",), "bigint", "TRY(epoch_us({0}))"),
    "MAKE_TIMESTAMP": Function(("bigint",), "timestamp", "TRY(make_timestamp({0}))"),
    **{
        unit.upper(): _part(unit)
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    },
    "DAYOFWEEK": _part("dow"),
    "DAYOFYEAR": _part("doy"),
    "DAYOFMONTH": _part("day"),
}

#: Units of EXTRACT and of functions that take a unit, by each spelling that is accepted.
UNITS: dict[str, str] = {
    **{u: u for u in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    **{u: u for u in ("millisecond", "microsecond", "dow", "isodow", "doy", "epoch")},
    "dayofweek": "dow",
    "day_of_week": "dow",
    "dayofweekiso": "isodow",
    "dayofyear": "doy",
    "day_of_year": "doy",
    "milliseconds": "millisecond",
    "microseconds": "microsecond",
}

#: Units that only EXTRACT supports.
EXTRACT_ONLY = frozenset({"dow", "isodow", "doy", "epoch"})

#: Names of aggregate and window functions, which get an error text of their own.
AGGREGATES = _names(
    """ANY_VALUE APPROX_COUNT_DISTINCT APPROX_DISTINCT ARG_MAX ARG_MIN ARRAY_AGG AVG BIT_AND BIT_OR BOOL_AND
    BOOL_OR CORR COUNT COUNT_IF COVAR_POP COVAR_SAMP FIRST FIRST_VALUE LAG LAST LAST_VALUE LEAD LIST LISTAGG
    MAX MEAN MEDIAN MIN MODE NTILE PERCENTILE QUANTILE RANK DENSE_RANK ROW_NUMBER STDDEV STDDEV_POP
    STDDEV_SAMP STRING_AGG SUM VARIANCE VAR_POP VAR_SAMP"""
)

#: Functions whose result can differ when the same batch is repeated.
NOT_REPEATABLE = _names(
    """CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP GEN_RANDOM_UUID GETDATE LOCALTIME LOCALTIMESTAMP NOW RAND
    RANDOM TODAY UUID UNIX_TIMESTAMP"""
)

#: Hints for functions of other systems, which CQL does not have.
INSTEAD: dict[str, str] = {
    "ANY": "Write x IN (1, 2, 3).",
    "DATE_ADD": "Write ts + INTERVAL '5' MINUTE.",
    "DATE_SUB": "Write ts - INTERVAL '5' MINUTE.",
    "TIMESTAMPADD": "Write ts + INTERVAL '5' MINUTE.",
    "TIMESTAMPDIFF": "Write date_diff('second', earlier, later).",
    "UNIX_SECONDS": "Write epoch(ts).",
    "TO_TIMESTAMP": "Write CAST(text AS TIMESTAMP), or make_timestamp(microseconds).",
    "TO_DATE": "Write CAST(text AS DATE).",
    "DATE_PART": "Write EXTRACT(hour FROM ts).",
    "TUMBLE": "Write a window after the stream: [RANGE 5 MINUTES].",
    "HOP": "Write a window after the stream: [RANGE 5 MINUTES].",
}
