"""DuckDB SQL that reads a query's results out of the shared pairs.

    result files of the family          one row per joined pair: _route, order columns, a_<c>, b_<c>
      -> rows on the query's routes     _route IN (...)
      -> a and b as STRUCTs             so that the expressions of the select list resolve (or g: a group)
      -> the select list                each output cast to its declared type, plus _event_time

A file may have rows of other batches, too: old batches are merged into larger files, whose row groups record
their batches. Files of one family may have been written under different plans with different columns. Every
read therefore starts from an empty relation with all columns that the query can name: a column that no file
has is NULL, with its type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from catalog.sql_text import quoted, text_literal
from catalog.values.query import PUNCTUATION_OUTPUT, UNBOUNDED_US, Output, Query
from catalog.values.stream import Stream
from operators.filters.expressions import struct_sql

#: Columns of every result file, in addition to ``a_<column>`` and ``b_<column>``.
PAIR_COLUMNS = {
    "_route": "BIGINT",
    "_plan_version": "INTEGER",
    "_batch": "BIGINT",
    "_event_time": "TIMESTAMP",
    "_pos_a": "BIGINT",
    "_pos_b": "BIGINT",
}

#: Sort order of a query's results; no two results of a query are equal in all these columns.
RESULT_ORDER = ("_batch", "_event_time", "_pos_a", "_pos_b")


def pairs_sql(
    stream_a: Stream,
    stream_b: Stream,
    files: Sequence[str],
    batches: Collection[int] | None = None,
    queries: Iterable[Query] = (),
) -> str:
    """Return SQL text for a relation of joined pairs, or of groups.

    Args:
        stream_a: Stream of side a.
        stream_b: Stream of side b.
        files: Paths of Parquet result files of one family; without paths the relation is empty.
        batches: Batches to read, together with all batches in between, or None for all batches.
        queries: Queries of the family; their groupings determine the value columns.

    Returns:
        A SELECT with every column of both streams, or every value of the groups, even if no file has it.
    """
    columns = dict(PAIR_COLUMNS)
    groups = [query for query in queries if query.grouping is not None]
    for query in groups:
        columns |= {f"g_{name}": kind for name, kind in _values(query, stream_a).items()}
    for side, stream in () if groups else (("a", stream_a), ("b", stream_b)):
        columns |= {f"{side}_{column.name}": column.type for column in stream.columns}
    template = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in columns.items())
    empty = f"SELECT {template} WHERE false"
    if not files:
        return empty
    paths = ", ".join(text_literal(path) for path in files)
    wanted = f" WHERE _batch BETWEEN {min(batches)} AND {max(batches)}" if batches else ""
    return f"{empty} UNION ALL BY NAME SELECT * FROM read_parquet([{paths}], union_by_name = true){wanted}"


def results_sql(query: Query, pairs: str, routes: str, *, besides: Sequence[str] = ("_event_time",)) -> str:
    """Return SQL for a query's results, unordered; the order columns are columns of the alias ``r``.

    Args:
        query: The query.
        pairs: Relation of the family's pairs: SQL text in brackets, or a view's name.
        routes: Operand of ``_route IN``: numbers, or a SELECT. Must not be empty.
        besides: Order columns appended to the select list.

    Returns:
        A SELECT to which ``ORDER BY`` over ``order_sql()`` and LIMIT can be added.
    """
    outputs = [f"{_value_sql(query, output)} AS {quoted(output.name)}" for output in query.outputs]
    outputs += [f'r."{name}" AS "{name}"' for name in besides]
    order = ", ".join(_event_time_sql(query) if name == "_event_time" else name for name in RESULT_ORDER)
    if query.grouping is not None:
        names = query.grouping.values([""] * len(query.key))
        structs = f"{struct_sql('g', list(names))} AS g"
    else:
        structs = f"{struct_sql('a', query.a.columns)} AS a, {struct_sql('b', query.b.columns)} AS b"
    return (
        f"SELECT {', '.join(outputs)} "
        f"FROM (SELECT {order}, {structs} FROM {pairs} AS p WHERE _route IN ({routes})) AS r"
    )


def _value_sql(query: Query, output: Output) -> str:
    """Return SQL for a result column; it is NULL in result punctuations, which have no event time."""
    value = f"TRY_CAST(({output.sql}) AS {output.type})"
    if not query.announces or output.name == PUNCTUATION_OUTPUT:
        return value
    return f'CASE WHEN r."_event_time" IS NOT NULL THEN {value} END'


def _values(query: Query, stream_a: Stream) -> dict[str, str]:
    """Return the types of a query's group values, by name."""
    types = {column.name: column.type for column in stream_a.columns}
    assert query.grouping is not None, "only queries with GROUP BY have group values"
    return query.grouping.values([types[a] for a, _ in query.key])


def _event_time_sql(query: Query) -> str:
    """Return SQL for a result's event time; for a row without a match, its own event time plus the window.

    A row without a match is stored once for all queries, with its own event time, and each query adds its
    window. An unbounded window adds nothing: there, a row is returned only if its key was closed.
    """
    if query.kind not in ("outer", "anti"):
        return "_event_time"
    cases = [
        f"WHEN {partner} IS NULL THEN _event_time + to_microseconds({side.window_us})"
        for side, partner in ((query.a, "_pos_b"), (query.b, "_pos_a"))
        if side.window_us < UNBOUNDED_US
    ]
    if not cases:
        return "_event_time"
    return f"CASE {' '.join(cases)} ELSE _event_time END AS _event_time"


def order_sql() -> str:
    """Return the sort keys of ``results_sql``, qualified because an output may have the same name."""
    return ", ".join(f'r."{name}"' for name in RESULT_ORDER)
