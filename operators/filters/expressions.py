"""SQL expressions over Arrow rows, evaluated by DuckDB.

The planner supplies filters, residual predicates and select lists as DuckDB SQL. The tests' independent
oracle also evaluates expressions with DuckDB, so an expression has the same meaning everywhere. The planner
emits only SQL that returns NULL where an expression fails on a value.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from catalog.sql_text import quoted
from operators.errors import ExpressionFailed
from operators.filters.limits import FAILURES, TIME_LIMIT_S, limits

#: Memory that DuckDB may use in one evaluation, in addition to the rows of the batch, which Arrow holds.
MEMORY_LIMIT: Final = "1GB"

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Number = TypeVar("Number", np.bool_, np.uint64)


def evaluate_filters(table: pa.Table, predicates: Sequence[str]) -> list[Bools]:
    """Evaluate predicates over the rows of a table, whose columns are named without a prefix.

    Args:
        table: n rows of one stream.
        predicates: Predicates as DuckDB SQL.

    Returns:
        One bool[n] per predicate; NULL counts as False.
    """
    return _evaluate(table, predicates, '"rows"')


def evaluate_residuals(
    a: Mapping[str, pa.Array], b: Mapping[str, pa.Array], rows: int, predicates: Sequence[str]
) -> list[Bools]:
    """Evaluate predicates over pairs, whose columns are named ``a."c"`` and ``b."c"``.

    Args:
        a: Columns of the rows of a, length n each.
        b: Columns of the rows of b, length n each.
        rows: Number of pairs, n.
        predicates: Predicates as DuckDB SQL.

    Returns:
        One bool[n] per predicate; NULL counts as False.
    """
    table, source = _pairs(a, b, rows)
    return _evaluate(table, predicates, source)


def evaluate_groups(values: pa.Table, predicates: Sequence[str]) -> list[Bools]:
    """Evaluate predicates over groups, whose values are named ``g."name"``.

    Args:
        values: n groups, columns ``g_<name>``.
        predicates: Predicates as DuckDB SQL.

    Returns:
        One bool[n] per predicate; NULL counts as False.
    """
    names = [name.removeprefix("g_") for name in values.column_names]
    return _evaluate(values, predicates, f'(SELECT {struct_sql("g", names)} AS g FROM "rows")')


def _pairs(a: Mapping[str, pa.Array], b: Mapping[str, pa.Array], rows: int) -> tuple[pa.Table, str]:
    """Return pairs as a table, and the SQL source that selects both rows of each pair as STRUCTs."""
    arrays: dict[str, pa.Array] = {"_n": pa.nulls(rows, pa.int8())}
    arrays |= {f"a_{name}": values for name, values in a.items()}
    arrays |= {f"b_{name}": values for name, values in b.items()}
    source = f'(SELECT {struct_sql("a", a)} AS a, {struct_sql("b", b)} AS b FROM "rows")'
    return pa.table(arrays), source


def struct_sql(side: str, columns: Mapping[str, object] | Sequence[str]) -> str:
    """Return the SQL that packs columns ``<side>_<c>`` into one STRUCT, so that ``a."c"`` resolves.

    >>> struct_sql("a", ["ts"])
    'struct_pack("ts" := "a_ts")'
    """
    fields = [f"{quoted(name)} := {quoted(f'{side}_{name}')}" for name in columns]
    return "struct_pack(" + ", ".join(fields or ['"_none" := NULL']) + ")"


def _evaluate(table: pa.Table, predicates: Sequence[str], source: str) -> list[Bools]:
    texts = [f"coalesce(({text}), false)" for text in predicates]
    return select_values(table, texts, predicates, source, np.bool_)


def select_values(
    table: pa.Table, texts: Sequence[str], predicates: Sequence[str], source: str, kind: type[Number]
) -> list[np.ndarray[tuple[int], np.dtype[Number]]]:
    """Evaluate SQL expressions whose values are never NULL.

    Args:
        table: n rows, which the SQL names ``"rows"``.
        texts: Expressions as DuckDB SQL.
        predicates: The predicates inside the expressions; a predicate that fails is named in the error.
        source: Table expression from which the values are selected.
        kind: Type of all values.

    Returns:
        An array kind[n] for each expression.

    Raises:
        ExpressionFailed: A predicate takes too much time or memory (``filters.limits``).
    """
    if not texts:
        return []
    if not table.num_rows:
        return [np.zeros(0, dtype=kind) for _ in texts]
    columns = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    try:
        with _limited(table, TIME_LIMIT_S * len(predicates)) as cursor:
            answer = cursor.execute(f"SELECT {columns} FROM {source}").fetchnumpy()
    except FAILURES as error:
        raise _failed(table, predicates, source, error) from error
    return [np.asarray(answer[f"c{i}"], dtype=kind) for i in range(len(texts))]


def select_table(tables: Mapping[str, pa.Table], text: str) -> pa.Table:
    """Return the result of a SELECT over Arrow tables; the SQL must not contain users' expressions.

    Args:
        tables: Tables by the names that the SELECT uses.
        text: The SELECT.
    """
    with closing(_connection().cursor()) as cursor:
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.sql(text).to_arrow_table()


def evaluated(
    a: Mapping[str, pa.Array], b: Mapping[str, pa.Array], rows: int, texts: Mapping[str, str]
) -> pa.Table:
    """Evaluate expressions over pairs, whose columns are named ``a."c"`` and ``b."c"``.

    Args:
        a: Columns of the rows of a, length n each.
        b: Columns of the rows of b, length n each.
        rows: Number of pairs, n, at least 1.
        texts: Expressions as DuckDB SQL, by the name of their result column.

    Returns:
        A column of n values for each expression.

    Raises:
        ExpressionFailed: An expression takes too much time or memory (``filters.limits``).
    """
    if not texts:
        return pa.table({})
    table, source = _pairs(a, b, rows)
    columns = ", ".join(f"({text}) AS {quoted(name)}" for name, text in texts.items())
    try:
        with _limited(table, TIME_LIMIT_S * len(texts)) as cursor:
            return cursor.sql(f"SELECT {columns} FROM {source}").to_arrow_table()
    except FAILURES as error:
        raise _failed(table, list(texts.values()), source, error) from error


@contextmanager
def _limited(table: pa.Table, seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a cursor over rows, with limits on time and memory."""
    with closing(_connection().cursor()) as cursor, limits().limited(cursor, seconds):
        cursor.register("rows", table)
        yield cursor


def _failed(table: pa.Table, predicates: Sequence[str], source: str, error: Exception) -> Exception:
    """Return an error that names the first predicate that alone reaches a limit, or else the given error."""
    for text in predicates:
        try:
            with _limited(table, TIME_LIMIT_S) as cursor:
                cursor.execute(f"SELECT count({text}) FROM {source}").fetchall()
        except duckdb.InterruptException:
            return ExpressionFailed(text, f"takes more than {TIME_LIMIT_S:g} s for {table.num_rows:,} rows")
        except (duckdb.OutOfMemoryException, MemoryError):
            return ExpressionFailed(text, "takes too much memory")
    return error


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    """Open the worker process's in-memory database, with one thread, because Spark runs a task per core."""
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": MEMORY_LIMIT,
            # Expressions cannot use files, the network or settings, even if the planner fails to reject them.
            "enable_external_access": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "lock_configuration": True,
        }
    )
