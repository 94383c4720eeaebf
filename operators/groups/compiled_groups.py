"""The groups of a family, compiled under a plan version: the SQL that makes and merges partials.

    pairs of a batch --> partials: one row per (group, route)          add up in any order
                             plus one per (group, route, sum of doubles, bin)
    partials of a closed group --> one row per query of the group      values that outputs read

A partial is the partial value of a group for one route, that is, for pairs with the same set of queries. So
each pair is added once, however many queries it belongs to. When a group is closed, each query adds up the
partials of its routes. Queries with intervals of equal length share partials. A partial is exact, and
partials can be added in any order. So values do not depend on batch boundaries, slices or the order of
arrival. Sums of whole numbers and decimals have 38 digits, and sums of doubles are kept as limbs
(``exact_sums``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.sql_text import quoted
from catalog.values.groups.grouping import COUNT_ALL, TUMBLE, Aggregate, Grouping, key_name
from catalog.values.plan import FamilyPlan
from catalog.values.routes.route_table import RouteTable
from operators.filters.expressions import evaluate_groups, evaluated, select_table
from operators.groups.exact_sums import Limbs, limbs, rounded_sums
from operators.kernels.keys import is_exact, join_key
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN

#: End time of groups without intervals, later than any watermark.
NEVER_US = 2**62

#: Columns that identify a partial together with the key columns: partials with equal values in all these
#: columns are added up.
_PLACE = (KEY, TS, "width", "route", "of", "bin")


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of aggregates: its SQL text, its type, and the functions that queries apply to it."""

    text: str
    type: str
    functions: frozenset[str]

    @property
    def summed(self) -> str | None:
        """Type of the exact partial sums, or None if no query needs sums or the argument is a double."""
        if self.type == "double" or not self.functions & {"sum", "avg"}:
            return None
        scale = self.type.removesuffix(")").rpartition(",")[2] if self.type.startswith("decimal") else "0"
        return f"DECIMAL(38,{scale})"

    @property
    def sums_doubles(self) -> bool:
        """Return whether sums of the argument are kept as limbs (``exact_sums``)."""
        return self.type == "double" and bool(self.functions & {"sum", "avg"})


@dataclass(frozen=True, eq=False)
class CompiledGroups:
    """Groups of a family.

    Attributes:
        queries: Grouping of each query, by query id.
        key: Key columns of side a.
        key_types: Common type of each key pair.
        carried_a: Columns of a that pairs contain.
        carried_b: Columns of b that pairs contain.
    """

    queries: Mapping[int, Grouping]
    key: tuple[str, ...]
    key_types: tuple[str, ...]
    carried_a: tuple[str, ...]
    carried_b: tuple[str, ...]

    @cached_property
    def arguments(self) -> Mapping[str, _Argument]:
        """Arguments of aggregates by digest."""
        found: dict[str, Aggregate] = {}
        functions: dict[str, set[str]] = {}
        for grouping in self.queries.values():
            for aggregate in grouping.aggregates:
                found[aggregate.digest] = aggregate
                functions.setdefault(aggregate.digest, set()).add(aggregate.function)
        return {
            digest: _Argument(found[digest].sql, found[digest].type, frozenset(functions[digest]))
            for digest in sorted(found)
        }

    def partials(self, pairs: pa.RecordBatch, routes: RouteTable) -> pa.RecordBatch:
        """Return the partials of a batch's pairs.

        Args:
            pairs: Pairs with the columns of a result file.
            routes: Routes of the pairs.
        """
        rows = self._evaluated(pairs)
        place, ids = routes.sets.listed().members()
        width = np.array([self.queries[i].width_us for i in ids.tolist()], dtype=np.int64)
        of_route = np.unique(np.stack([routes.numbers[place], width]), axis=1)
        widths = pa.table({"route": of_route[0], "width": of_route[1]})
        named = f'{quoted(KEY)}, "end" AS {quoted(TS)}, min(pos) AS {quoted(POS)}, max(us) AS newest'
        named = ", ".join([named, "width", "route", *(key_name(n) for n in range(len(self.key)))])
        values, parts = ["count(*) AS rows"], []
        for digest, argument in self.arguments.items():
            values.append(f"count(x_{digest}) AS n_{digest}")
            if argument.summed is not None:
                values.append(f"CAST(sum(x_{digest}) AS {argument.summed}) AS s_{digest}")
            values += [f"{f}(x_{digest}) AS {f}_{digest}" for f in ("min", "max") if f in argument.functions]
            if argument.sums_doubles:
                sums = ", ".join(f"CAST(sum(l{n}_{digest}) AS BIGINT) AS l{n}" for n in range(3))
                parts.append(
                    f"SELECT {named}, '{digest}' AS \"of\", b_{digest} AS bin, {sums} FROM p "
                    f"WHERE x_{digest} IS NOT NULL GROUP BY ALL"
                )
        none = "'' AS \"of\", CAST(-1 AS BIGINT) AS bin"
        main = f"SELECT {named}, {none}, {', '.join(values)} FROM p GROUP BY ALL"
        # DuckDB's remainder of a negative number is negative, and times before 1970 are negative.
        end = f"CASE WHEN width = 0 THEN {NEVER_US} ELSE us - (us % width + width) % width + width END"
        text = (
            f'WITH p AS (SELECT r.*, w.width, {end} AS "end" FROM pairs r JOIN widths w USING (route)) '
            f"SELECT * FROM ({' UNION ALL BY NAME '.join([main, *parts])}) ORDER BY {quoted(KEY)}"
        )
        return _one(select_table({"pairs": rows, "widths": widths}, text))

    def of_keys(self, part: pa.RecordBatch, keys: pa.Table, *, chosen: bool) -> pa.RecordBatch:
        """Return the partials of certain keys among the groups without intervals, or all other partials.

        Args:
            part: Partials.
            keys: The keys: ``_key`` and, for hashed keys, ``0``, ``1`` ...
            chosen: True: return the partials of the keys; False: return all other partials.
        """
        join = "SEMI" if chosen else "ANTI"
        equal = ["p._key = f._key"]
        if not is_exact(self.key_types):
            equal += [
                f'CAST(p.{key_name(n)} AS {kind}) IS NOT DISTINCT FROM f."{n}"'
                for n, kind in enumerate(self.key_types)
            ]
        condition = " AND ".join(equal)
        text = (
            f"SELECT p.* FROM part0 p {join} JOIN finished f ON p.width = 0 AND {condition} ORDER BY p._key"
        )
        return _one(select_table({**_named([part]), "finished": keys}, text))

    def merged(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Add up the partials of several batches; drop arguments that no query reads any more.

        Args:
            parts: Partials of this or an earlier plan version; at least one batch.
        """
        keys = [key_name(n) for n in range(len(self.key))]
        names = ", ".join(map(quoted, (*_PLACE, *keys)))
        text = (
            f"SELECT {names}, {self._sums()} FROM ({self._all(parts)}) "
            f"GROUP BY {names} ORDER BY {quoted(KEY)}"
        )
        return _one(select_table(_named(parts), text))

    def closed(self, parts: Sequence[pa.RecordBatch], routes: RouteTable) -> pa.Table:
        """Return the values of the groups of each query that satisfy the query's HAVING.

        Args:
            parts: All partials of the groups; at least one batch.
            routes: Routes of the partials; queries that are not in this family are ignored.

        Returns:
            Columns ``query``, ``_ts`` (end of the interval, or newest event time, µs), ``_pos``, and
            ``g_<name>`` for each value.
        """
        place, ids = routes.sets.listed().members()
        known = np.isin(ids, np.array(list(self.queries), dtype=np.int64))
        place, ids = place[known], ids[known]
        width = np.array([self.queries[i].width_us for i in ids.tolist()], dtype=np.int64)
        members = pa.table({"route": routes.numbers[place], "query": ids, "width": width})
        keys = [key_name(n) for n in range(len(self.key))]
        order = ", ".join([*map(quoted, ("query", TS)), *keys, '"of"', "bin"])
        text = (
            f'SELECT query, width, {quoted(TS)}, {", ".join(keys)}, "of", bin, {self._sums()} '
            f"FROM ({self._all(parts)}) JOIN members USING (route, width) "
            f'GROUP BY query, width, {quoted(TS)}, {", ".join(keys)}, "of", bin ORDER BY {order}'
        )
        sums = select_table({"members": members, **_named(parts)}, text)
        # The first row of each group has the group's values; its other rows are parts of sums of doubles.
        of = sums.column("of")
        main = pc.equal(of, "").to_numpy()
        group = np.cumsum(main) - 1
        groups = sums.filter(pa.array(main))
        for digest, argument in self.arguments.items():
            if argument.sums_doubles:
                own = pc.equal(of, digest).to_numpy()
                added = sums.filter(pa.array(own))
                bins, low, middle, high = (added.column(n).to_numpy() for n in ("bin", "l0", "l1", "l2"))
                total = rounded_sums(groups.num_rows, group[own], Limbs(bins, low, middle, high))
                groups = groups.append_column(f"s_{digest}", pa.array(total))
        values = [f"{name} AS g_{name}" for name in keys]
        start = f"CASE WHEN width > 0 THEN make_timestamp({quoted(TS)} - width) END"
        values += [f"{start} AS g_{TUMBLE}", f"rows AS g_{COUNT_ALL}"]
        for digest, argument in self.arguments.items():
            values += [
                f"{_value(function, digest, argument)} AS g_{function}_{digest}"
                for function in sorted(argument.functions)
            ]
        time = f"CASE WHEN width > 0 THEN {quoted(TS)} ELSE newest END AS {quoted(TS)}"
        text = f"SELECT query, {time}, {quoted(POS)}, {', '.join(values)} FROM groups"
        return self._having(select_table({"groups": groups}, text))

    def _having(self, groups: pa.Table) -> pa.Table:
        texts = sorted({grouping.having for grouping in self.queries.values() if grouping.having is not None})
        if not texts or not groups.num_rows:
            return groups
        query = groups.column("query").to_numpy()
        kept = np.ones(len(query), dtype=np.bool_)
        for text, passes in zip(
            texts, evaluate_groups(groups.drop_columns(["query", TS, POS]), texts), strict=True
        ):
            asking = [i for i, grouping in self.queries.items() if grouping.having == text]
            kept &= passes | ~np.isin(query, np.array(asking, dtype=np.int64))
        return groups.filter(pa.array(kept))

    def _evaluated(self, pairs: pa.RecordBatch) -> pa.Table:
        """Compute each pair's values from which partials are made: route, time, position, key, arguments."""
        a = {name: pairs.column(f"a_{name}") for name in self.carried_a}
        b = {name: pairs.column(f"b_{name}") for name in self.carried_b}
        key, _ = join_key(pa.table(a), self.key, self.key_types)
        texts = {digest: argument.text for digest, argument in self.arguments.items()}
        found = evaluated(a, b, pairs.num_rows, texts)
        columns = {
            "route": pairs.column("_route"),
            "us": pairs.column("_event_time").cast(pa.int64()),
            "pos": pairs.column("_pos_a"),
            KEY: pa.array(key),
        }
        columns |= {key_name(n): _one_zero(a[name]) for n, name in enumerate(self.key)}
        for digest, argument in self.arguments.items():
            values = _one_zero(found.column(digest))
            columns[f"x_{digest}"] = values
            if argument.sums_doubles:
                added = limbs(values.fill_null(0.0).to_numpy())
                for name, column in zip(("b", "l0", "l1", "l2"), added, strict=True):
                    columns[f"{name}_{digest}"] = pa.array(column)
        return pa.table(columns)

    def _sums(self) -> str:
        """Return the SQL columns that add up partials."""
        sums = [f"min({quoted(POS)}) AS {quoted(POS)}", "max(newest) AS newest"]
        sums.append("CAST(sum(rows) AS BIGINT) AS rows")
        for digest, argument in self.arguments.items():
            sums.append(f"CAST(sum(n_{digest}) AS BIGINT) AS n_{digest}")
            if argument.summed is not None:
                sums.append(f"CAST(sum(s_{digest}) AS {argument.summed}) AS s_{digest}")
            sums += [f"{f}({f}_{digest}) AS {f}_{digest}" for f in ("min", "max") if f in argument.functions]
        sums += [f"CAST(sum(l{n}) AS BIGINT) AS l{n}" for n in range(3)]
        return ", ".join(sums)

    def _all(self, parts: Sequence[pa.RecordBatch]) -> str:
        """Return a SELECT over all batches of partials; columns that a batch does not have are NULL."""
        empty = [f"CAST(NULL AS BIGINT) AS {name}" for name in ("rows", "l0", "l1", "l2")]
        for digest, argument in self.arguments.items():
            empty.append(f"CAST(NULL AS BIGINT) AS n_{digest}")
            if argument.summed is not None:
                empty.append(f"CAST(NULL AS {argument.summed}) AS s_{digest}")
            empty += [
                f"CAST(NULL AS {argument.type}) AS {f}_{digest}"
                for f in ("min", "max")
                if f in argument.functions
            ]
        texts = [f"SELECT {', '.join(empty)} WHERE false"]
        texts += [f"SELECT * FROM part{n}" for n in range(len(parts))]
        return " UNION ALL BY NAME ".join(texts)


def compile_groups(family: FamilyPlan) -> CompiledGroups | None:
    """Compile the groups of a family, or return None if its results are pairs."""
    if not family.has_groups:
        return None
    return CompiledGroups(
        queries={q.id: q.grouping for q in family.queries if q.grouping is not None},
        key=tuple(a for a, _ in family.key),
        key_types=family.key_types,
        carried_a=family.carried("a"),
        carried_b=family.carried("b"),
    )


def _value(function: str, digest: str, argument: _Argument) -> str:
    """Return the SQL of an aggregate; except for COUNT, it is NULL if all values of the argument are NULL."""
    if function == "count":
        return f"n_{digest}"
    if function in ("min", "max"):
        return f"{function}_{digest}"
    total = f"s_{digest}"
    if function == "avg":
        total = f"CAST({total} AS DOUBLE) / n_{digest}"
    elif argument.type in ("int", "bigint"):
        total = f"TRY_CAST({total} AS BIGINT)"
    return f"CASE WHEN n_{digest} > 0 THEN {total} END"


def _one_zero(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values with 0.0 in place of -0.0, since the two are equal and MIN could return either."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.equal(values, 0.0), pa.scalar(0.0, values.type), values)


def _named(parts: Sequence[pa.RecordBatch]) -> dict[str, pa.Table]:
    """Return partials as tables by the names that the SQL uses."""
    return {
        f"part{n}": pa.Table.from_batches([part.replace_schema_metadata(None)]).rename_columns(
            [name.removeprefix(COLUMN) for name in part.schema.names]
        )
        for n, part in enumerate(parts)
    }


def _one(table: pa.Table) -> pa.RecordBatch:
    """Return a table of partials as rows in the form of a segment."""
    batches = table.combine_chunks().to_batches()
    rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return rows.rename_columns([n if n in (KEY, TS, POS) else f"{COLUMN}{n}" for n in rows.schema.names])
