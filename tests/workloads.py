"""Random workloads: one seed gives streams, files, queries and script, written to a directory.

What varies: 2-3 streams, all key types and multi-column keys, NULL keys, skew, duplicate rows, equal
timestamps, disorder within and beyond the lateness, streams that lag, streams with more or fewer files per
batch, empty files, rows without event time; asymmetric, [NOW] and unbounded windows; filters shared between
queries, residuals, self-joins, several families; queries that come and go, with and without backfill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from catalog.values.plan import Strategy
from tests.oracle import FamilySide, UndecidedError, check_columns, replay
from tests.random_streams import KEYS, cut_into_files, random_table
from tests.workload_spec import (
    NOW_US,
    SECOND_US,
    Col,
    Expr,
    Form,
    Kind,
    Lit,
    QuerySpec,
    SideName,
    SideSpec,
    Step,
    StreamSpec,
    WorkloadSpec,
    call,
    columns_of,
)


def _filter_pool(rng: np.random.Generator, side: SideName) -> list[Expr]:
    """Return a few filters of one side; queries share them."""
    v, n, txt, flag, big = (Col(side, c) for c in ("v", "n", "txt", "flag", "k_big"))
    low = float(np.round(rng.random() * 0.5, 2))
    pool = [
        call("<", v, Lit(low + 0.3)),
        call(">=", v, Lit(low)),
        call("between", v, Lit(low), Lit(low + 0.4)),
        call("in", n, Lit(1), Lit(2), Lit(7)),
        call("or", call("<", n, Lit(3)), flag),
        call("not", call("and", flag, call(">", n, Lit(0)))),
        call("like", txt, Lit("a%")),
        call("isnull", txt),
        call("and", call("notnull", v), call("<>", txt, Lit("b"))),
        call(">", call("/", v, n), Lit(0.05)),
        call("=", call("upper", txt), Lit("ABC")),
        call(">", call("+", big, Lit(1)), Lit(3)),
        call("=", call("coalesce", n, Lit(0)), Lit(0)),
        call(">", call("length", txt), Lit(1)),
        flag,
    ]
    return [pool[i] for i in rng.choice(len(pool), size=3, replace=False)]


def _residuals(rng: np.random.Generator) -> tuple[Expr, ...]:
    if rng.random() < 0.6:
        return ()
    pool: list[Expr] = [
        call("<", Col("l", "n"), Col("r", "n")),
        call("<", call("+", Col("l", "v"), Col("r", "v")), Lit(1.1)),
        call("<>", Col("l", "txt"), Col("r", "txt")),
        call(">", call("/", Col("l", "v"), Col("r", "v")), Lit(0.9)),
        call("<", call("abs", call("-", Col("l", "v"), Col("r", "v"))), Lit(0.5)),
        call("or", Col("l", "flag"), call("isnull", Col("r", "v"))),
    ]
    return tuple(pool[i] for i in rng.choice(len(pool), size=int(rng.integers(1, 3)), replace=False))


def _outputs(rng: np.random.Generator, columns: Sequence[str], wide: bool) -> tuple[tuple[str, Expr], ...]:
    outputs: list[tuple[str, Expr]] = [("lid", Col("l", "id")), ("rid", Col("r", "id"))]
    sides: tuple[SideName, SideName] = ("l", "r")
    for side in sides:
        taken = len(columns) if wide else int(rng.integers(0, len(columns)))
        for name in rng.permutation(list(columns))[:taken]:
            outputs.append((f"{side}_{name}", Col(side, str(name))))
    if rng.random() < 0.4:
        outputs.append(("total", call("+", Col("l", "v"), Col("r", "v"))))
    if rng.random() < 0.3:
        outputs.append(("loud", call("upper", Col("r", "txt"))))
    order = rng.permutation(len(outputs))
    return tuple(outputs[i] for i in order)


def _window(rng: np.random.Generator, span_us: int) -> int | None:
    kind = rng.random()
    if kind < 0.08:
        return NOW_US
    if kind < 0.14:
        return None
    return int(rng.choice([1, 2, 5, 12, 25, 60])) * max(span_us // 100_000, 1) * 1000


#: Left and right stream, and key columns as (left, right).
Family = tuple[StreamSpec, StreamSpec, tuple[tuple[str, str], ...]]
#: Filters by stream and side, of which queries take some.
FilterPools = dict[tuple[str, SideName], list[Expr]]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a random workload is, about.

    Attributes:
        rows: Rows per stream.
        queries: Queries in all.
        steps: How many of them come by script.
        max_pairs: Bound on the results of one query.
        files: Fewest and most files per stream.
        absence: Share of outer, semi and anti joins among the queries.
    """

    rows: int = 400
    queries: int = 6
    steps: int = 3
    max_pairs: int = 8000
    files: tuple[int, int] = (3, 8)
    absence: float = 0


class Maker:
    """Makes one workload from one seed.

    Args:
        seed: The only source of randomness.
        directory: Where the streams' files will be.
        size: How large it is to be.
        wide: Every query keeps every column, so that the design decides every backfill.
    """

    def __init__(self, seed: int, directory: Path, size: Size, *, wide: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.directory = directory
        self.size = size
        self.span_us = int(self.rng.choice([10, 100, 3600])) * SECOND_US
        self.wide = bool(self.rng.random() < 0.6) or wide
        self.streams: list[StreamSpec] = []
        self.files: dict[str, list[pa.Table]] = {}

    def make(self) -> WorkloadSpec:
        """Make streams, files, queries and a script in which queries come and go."""
        queries, steps = self.size.queries, self.size.steps
        families, pools = self.streams_and_families()
        made = [self.query(f"q{i + 1}", families, pools) for i in range(queries)]
        spec = WorkloadSpec(tuple(self.streams), tuple(made[: max(1, queries - steps)]), seed=self.seed)
        return self._scripted(spec, made[max(1, queries - steps) :])

    def streams_and_families(self) -> tuple[list[Family], FilterPools]:
        """Make the streams and their files; return the families of queries and their filters."""
        rng = self.rng
        for name in "ABC"[: int(rng.integers(2, 4))]:
            self._add_stream(name)
        families = [self._family() for _ in range(int(rng.integers(1, 4)))]
        return families, {(s.name, side): _filter_pool(rng, side) for s in self.streams for side in _SIDES}

    def _add_stream(self, name: str) -> None:
        rng = self.rng
        columns = {"ts": "timestamp", "id": "bigint"}
        columns |= {k: kind for k, (kind, _) in KEYS.items()}
        if rng.random() < 0.5:
            columns["k_dec"] = "decimal(12,3)"
        columns |= {"v": "double", "n": "int", "txt": "string", "flag": "boolean"}
        lateness = int(rng.choice([0, 10, 50, 200])) * (self.span_us // 1_000_000) * 1000
        path = self.directory / "data" / name
        spec = StreamSpec(name, columns, "ts", lateness, str(path), int(rng.choice([1, 1, 1, 2, 3])))
        lag = int(rng.choice([0, 0, 0, self.span_us // 4, self.span_us // 2]))
        rows = int(self.size.rows * rng.uniform(0.5, 1.2))
        table = random_table(rng, spec, rows, self.span_us, lag)
        self.files[name] = cut_into_files(
            rng, table, int(rng.integers(self.size.files[0], self.size.files[1] + 1))
        )
        self.streams.append(spec)

    def _family(self) -> Family:
        rng = self.rng
        left, right = (self.streams[int(i)] for i in rng.integers(0, len(self.streams), 2))
        if left is right and rng.random() < 0.6:  # self-joins, but not everywhere
            left, right = self.streams[0], self.streams[1]
        names = [str(x) for x in rng.permutation(list(KEYS))]
        key = [(x, x) for x in names[: int(rng.choice([1, 1, 1, 2, 3]))]]
        if rng.random() < 0.2:
            key[0] = ("k_int", "k_big")
        if key == [("k_flag", "k_flag")] and rng.random() < 0.7:
            key = [*key, ("k_big", "k_big")]
        return left, right, tuple(dict.fromkeys(key))

    def query(self, name: str, families: Sequence[Family], pools: FilterPools) -> QuerySpec:
        """Make a query of one of the families."""
        rng = self.rng
        left, right, key = families[int(rng.integers(len(families)))]
        if left is not right and rng.random() < 0.3:  # the same family, written the other way round
            left, right, key = right, left, tuple((y, x) for x, y in key)
        w_l, w_r = self._windows(left, right, key)
        filters = self._filters(left.name, right.name, pools)
        columns = [c for c in left.columns if c != "id"]
        query = QuerySpec(
            name=name,
            left=SideSpec(left.name, "x", w_l, filters[0]),
            right=SideSpec(right.name, "y", w_r, filters[1]),
            key=key,
            outputs=_outputs(rng, columns, self.wide),
            residual=_residuals(rng),
        )
        if self.size.absence and rng.random() < self.size.absence:
            query = self._asking(query, pools)
        return replace(query, form=self._form(query))

    def _asking(self, query: QuerySpec, pools: FilterPools) -> QuerySpec:
        """Make an outer, semi or anti join of an inner one; ON may have a condition on the kept side."""
        rng = self.rng
        kinds: list[Kind] = ["outer", "outer", "semi", "anti"]
        kind = kinds[int(rng.integers(len(kinds)))]
        kept = [("l",), ("r",), ("l", "r")][int(rng.integers(3 if kind == "outer" else 2))]
        outputs, left, right, residual = query.outputs, query.left, query.right, query.residual
        if kind in ("semi", "anti"):
            outputs = tuple((n, e) for n, e in outputs if all(c.side in kept for c in columns_of(e)))
        if len(kept) == 2:
            residual = (*residual, *left.filters, *right.filters)
            left, right = replace(left, filters=()), replace(right, filters=())
        elif kind != "semi" and rng.random() < 0.4:
            side = kept[0]
            residual = (*residual, pools[(query.side(side).stream, side)][0])
        return replace(
            query, kind=kind, preserved=kept, outputs=outputs, left=left, right=right, residual=residual
        )

    def revised(self, query: QuerySpec, pools: FilterPools) -> QuerySpec:
        """Make another query of the same name, family and columns: windows, filters and residual are new."""
        left, right = (next(s for s in self.streams if s.name == query.side(x).stream) for x in _SIDES)
        w_l, w_r = self._windows(left, right, query.key)
        filters = self._filters(left.name, right.name, pools)
        if len(query.preserved) == 2:  # in WHERE they would make another join of it
            filters = [(), ()]
        revised = replace(
            query,
            left=replace(query.left, window_us=w_l, filters=filters[0]),
            right=replace(query.right, window_us=w_r, filters=filters[1]),
            residual=_residuals(self.rng),
            backfill="state" if self.rng.random() < 0.85 else "none",
        )
        return replace(revised, form=self._form(revised))

    def _windows(
        self, left: StreamSpec, right: StreamSpec, key: tuple[tuple[str, str], ...]
    ) -> tuple[int | None, int | None]:
        w_l = _window(self.rng, self.span_us)
        w_r = w_l if self.rng.random() < 0.5 else _window(self.rng, self.span_us)
        return self._bounded(left, right, key, w_l, w_r)

    def _filters(self, left: str, right: str, pools: FilterPools) -> list[tuple[Expr, ...]]:
        rng = self.rng
        return [
            tuple(f for f in pools[(name, side)] if rng.random() < 0.3) if rng.random() < 0.7 else ()
            for name, side in zip((left, right), _SIDES, strict=True)
        ]

    def _form(self, query: QuerySpec) -> Form:
        forms: list[Form] = ["range", "join", "istream"]
        w_l, w_r = query.left.window_us, query.right.window_us
        if w_l is not None and w_r is not None:
            if w_l == w_r and w_l > NOW_US:
                forms.append("trailing")
            forms += ["between", "within"]
        return forms[int(self.rng.integers(len(forms)))]

    def _bounded(
        self,
        left: StreamSpec,
        right: StreamSpec,
        key: tuple[tuple[str, str], ...],
        w_l: int | None,
        w_r: int | None,
    ) -> tuple[int | None, int | None]:
        """Shrink or widen windows until the pairs of equal key inside them are some, but not too many."""
        counts = []
        for spec, columns in ((left, [x for x, _ in key]), (right, [y for _, y in key])):
            table = pa.concat_tables(self.files[spec.name])
            rows = zip(*(table[c].to_pylist() for c in columns), strict=True)
            counts.append(Counter(tuple(str(v) for v in r) for r in rows if None not in r))
        pairs = sum(c * counts[1][k] for k, c in counts[0].items())
        while True:
            share = (
                sum(min(w if w is not None else self.span_us, self.span_us) for w in (w_l, w_r))
                / self.span_us
            )
            if pairs * min(share, 1.0) <= self.size.max_pairs or share < 1e-4:
                return w_l, w_r
            w_l, w_r = (self._halved(w) for w in (w_l, w_r))

    def _halved(self, window: int | None) -> int:
        return self.span_us // 2 if window is None else max(window // 2000 * 1000, NOW_US)

    def _scripted(self, spec: WorkloadSpec, later: Sequence[QuerySpec]) -> WorkloadSpec:
        """Add the script: later queries come, some leave, all before the input of the first queries ends."""
        rng = self.rng
        last = replay(spec, self.files).batches - 1
        steps: list[Step] = []
        if last < 1:
            return replace(spec, queries=spec.queries + tuple(later))
        came = {q.name: 0 for q in spec.queries}
        for query in later:
            at = int(rng.integers(1, max(2, last * 3 // 4 + 1)))
            came[query.name] = at
            backfill = "state" if rng.random() < 0.6 else "none"
            steps.append(Step(at, add=replace(query, backfill="state" if backfill == "state" else "none")))
        for name, at in came.items():
            if at < last and rng.random() < 0.3:
                steps.append(Step(int(rng.integers(at + 1, last + 1)), remove=name))
        steps.sort(key=lambda s: s.at_batch)
        return self._decided(replace(spec, script=tuple(steps)))

    def _decided(self, spec: WorkloadSpec) -> WorkloadSpec:
        """Take the backfill from queries whose columns the state may not have kept."""
        sides: tuple[FamilySide, FamilySide] = ("a", "b")
        history = replay(spec, self.files)
        undecided = set()
        for life in history.lives:
            for side in sides:
                try:
                    check_columns(history, life, side)
                except UndecidedError:
                    undecided.add(life.query.name)
        script = tuple(
            replace(s, add=replace(s.add, backfill="none"))
            if s.add is not None and s.add.name in undecided
            else s
            for s in spec.script
        )
        return replace(spec, script=script)


_SIDES: tuple[SideName, SideName] = ("l", "r")
_DEFAULT_SIZE = Size()


def make_workload(
    seed: int, directory: Path, size: Size = _DEFAULT_SIZE, strategies: Sequence[Strategy] = ("mem-opt",)
) -> tuple[WorkloadSpec, dict[str, list[pa.Table]]]:
    """Make a random workload and write its files and ``WORKLOAD.yaml``.

    Args:
        seed: The only source of randomness.
        directory: Where to write.
        size: How large it is to be.
        strategies: Objectives to run it under, one after the other, changed at random batches.

    Returns:
        The description and each stream's tables in file order.
    """
    maker = Maker(seed, directory, size)
    spec = _under(maker.make(), maker.files, strategies)
    write_workload(spec, maker.files, directory)
    return spec, maker.files


def _under(
    spec: WorkloadSpec, files: dict[str, list[pa.Table]], strategies: Sequence[Strategy]
) -> WorkloadSpec:
    """Begin with the first objective and go over to the others, in order, at batches drawn apart."""
    rng = np.random.default_rng([spec.seed, len(strategies)])  # the workload stays that of its seed
    last = replay(spec, files).batches - 1
    at = np.sort(rng.integers(1, max(2, last + 1), size=len(strategies) - 1))
    changes = [Step(int(n), migrate=s) for n, s in zip(at, strategies[1:], strict=True)] if last else []
    script = sorted([*spec.script, *changes], key=lambda step: step.at_batch)
    return replace(spec, strategy=strategies[0], script=tuple(script))


def write_workload(spec: WorkloadSpec, files: dict[str, list[pa.Table]], directory: Path) -> Path:
    """Write a workload's Parquet files and ``WORKLOAD.yaml``; return the latter's path."""
    for stream in spec.streams:
        Path(stream.path).mkdir(parents=True, exist_ok=True)
        for name, table in _named(files[stream.name]):
            pq.write_table(table, Path(stream.path) / name)
    path = directory / "WORKLOAD.yaml"
    path.write_text(yaml.safe_dump(spec.document(), sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def _named(tables: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    for i, table in enumerate(tables):
        yield f"part-{i:05d}.parquet", table
