"""Workloads as data, for tests: one description gives the CQL text, the DuckDB text and the workload file.

The oracle must not lean on the parser it checks, so nothing here imports the planner. A description is
built by hand or by ``tests.workloads``; ``QuerySpec.cql`` writes it as a user would, in one of the forms of
the design's section 5, and ``sql`` writes its predicates for the oracle.

    StreamSpec  QuerySpec(left: SideSpec, right: SideSpec, key, residual, outputs)  Step
                     |
        cql() -> CQL text          sql(expr, ...) -> DuckDB text        document() -> WORKLOAD.yaml
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from catalog.values.plan import Strategy

SideName = Literal["l", "r"]
Backfill = Literal["none", "state"]
#: What a query gives of its matches (``catalog.values.query``).
Kind = Literal["inner", "outer", "semi", "anti"]
#: How a query is written; each form fixes how windows are said.
Form = Literal["range", "join", "trailing", "between", "within", "istream"]

SECOND_US = 1_000_000
NOW_US = 1


@dataclass(frozen=True, slots=True)
class Col:
    """A column of the left or right stream of a query."""

    side: SideName
    name: str


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal."""

    value: bool | int | float | str | Decimal | dt.date | dt.datetime | None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function: ``=``, ``and``, ``between``, ``in``, ``isnull``, ``/``, ``upper``, ..."""

    op: str
    args: tuple[Expr, ...]


Expr = Col | Lit | Call

_INFIX = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "and", "or", "like"}


def call(op: str, *args: Expr) -> Call:
    """Return the call of ``op`` on ``args``."""
    return Call(op, args)


def columns_of(expr: Expr) -> Iterator[Col]:
    """Yield every column reference in ``expr``, left to right."""
    if isinstance(expr, Col):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from columns_of(arg)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return str(value)


def text(expr: Expr, prefix: Mapping[SideName, str], *, guarded: bool) -> str:
    """Return ``expr`` as SQL.

    Args:
        expr: The expression.
        prefix: What to write before a column of each side, such as ``{"l": "a.", "r": "b."}``.
        guarded: True for the oracle: what would raise in DuckDB is NULL, as the design says. False for
            CQL, where that is the engine's duty.
    """
    if isinstance(expr, Col):
        return prefix[expr.side] + expr.name
    if isinstance(expr, Lit):
        return _literal(expr.value)
    args = [text(a, prefix, guarded=guarded) for a in expr.args]
    if expr.op in _INFIX:
        infix = f"({args[0]} {expr.op.upper()} {args[1]})"
        return f"TRY({infix})" if guarded and expr.op in "+-*" else infix
    match expr.op:
        case "/":
            return f"({args[0]} / NULLIF({args[1]}, 0))" if guarded else f"({args[0]} / {args[1]})"
        case "not":
            return f"(NOT {args[0]})"
        case "isnull":
            return f"({args[0]} IS NULL)"
        case "notnull":
            return f"({args[0]} IS NOT NULL)"
        case "between":
            return f"({args[0]} BETWEEN {args[1]} AND {args[2]})"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case name:
            return f"{name.upper()}({', '.join(args)})"


def duration(us: int) -> str:
    """Return ``us`` as CQL writes a window: the largest unit that divides it."""
    for unit, size in (("MINUTE", 60 * SECOND_US), ("SECOND", SECOND_US), ("MILLISECOND", 1000)):
        if us % size == 0:
            return f"{us // size} {unit}{'S' if us // size != 1 else ''}"
    return f"{us} MICROSECONDS"


@dataclass(frozen=True, slots=True)
class SideSpec:
    """One stream of a query.

    Attributes:
        stream: Stream name.
        alias: Alias in the query.
        window_us: W of this side; None is unbounded, ``NOW_US`` is [NOW].
        filters: Conjuncts over this side alone.
    """

    stream: str
    alias: str
    window_us: int | None
    filters: tuple[Expr, ...] = ()

    def bracket(self) -> str:
        """Return the CQL window in brackets."""
        if self.window_us is None:
            return "[RANGE UNBOUNDED]"
        if self.window_us == NOW_US:
            return "[NOW]"
        return f"[RANGE {duration(self.window_us)}]"


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One window join.

    Attributes:
        name: Query name.
        left: The stream written first.
        right: The stream written second.
        key: Equi-join columns as (left, right).
        residual: Conjuncts over both sides.
        outputs: (name, expression) in select-list order.
        backfill: Whether held rows take part.
        form: How it is written. ``between`` and ``within`` have inclusive bounds, W - 1 µs.
        event_times: Event-time column of the left and right stream (``between`` names them).
        kind: What it gives of its matches. Filters of sides that are preserved by an outer or anti join drop
            rows; what a match is besides is the other side's filters and the residual, which may read one
            side alone.
        preserved: Sides whose rows are judged for absence.
    """

    name: str
    left: SideSpec
    right: SideSpec
    key: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, Expr], ...]
    residual: tuple[Expr, ...] = ()
    backfill: Backfill = "none"
    form: Form = "range"
    event_times: tuple[str, str] = ("ts", "ts")
    kind: Kind = "inner"
    preserved: tuple[SideName, ...] = ()

    def side(self, side: SideName) -> SideSpec:
        """Return the left or right side."""
        return self.left if side == "l" else self.right

    def needed(self, side: SideName) -> frozenset[str]:
        """Return the columns of one side that outputs, residual and filters read."""
        exprs = [e for _, e in self.outputs] + [*self.residual, *self.left.filters, *self.right.filters]
        return frozenset(c.name for e in exprs for c in columns_of(e) if c.side == side)

    def _prefix(self) -> dict[SideName, str]:
        return {"l": self.left.alias + ".", "r": self.right.alias + "."}

    def _bounds(self) -> tuple[int, int]:
        """Return the inclusive bounds (before, after) of the right event time around the left one."""
        if self.left.window_us is None or self.right.window_us is None:
            raise ValueError(f"form {self.form} needs bounded windows")
        return self.right.window_us - 1, self.left.window_us - 1

    def cql(self) -> str:
        """Return the query in CQL."""
        prefix = self._prefix()

        def say(expr: Expr) -> str:
            return text(expr, prefix, guarded=False)

        left, right = self.left, self.right
        select = "SELECT " + ", ".join(f"{say(e)} AS {name}" for name, e in self.outputs)
        keys = [f"{prefix['l']}{x} = {prefix['r']}{y}" for x, y in self.key]
        residual = [say(e) for e in self.residual]
        if self.kind != "inner":
            return self._asked(select, keys, residual, say)
        filters = [say(e) for e in (*left.filters, *right.filters)]
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        plain = f"{left.stream} AS {left.alias}", f"{right.stream} {right.alias}"
        ranged = (
            f"{left.stream} {left.bracket()} AS {left.alias}",
            f"{right.stream} {right.bracket()} {right.alias}",
        )
        match self.form:
            case "range" | "istream":
                query = f"{select} FROM {', '.join(ranged)} WHERE {' AND '.join(keys + filters + residual)}"
                return f"ISTREAM({query})" if self.form == "istream" else query
            case "join":
                return f"{select} FROM {' JOIN '.join(ranged)} ON {' AND '.join(keys + residual)}{where}"
            case "trailing":
                if left.window_us is None or left.window_us != right.window_us:
                    raise ValueError("a trailing WINDOW needs equal, bounded windows")
                conjuncts = " AND ".join(keys + filters + residual)
                return f"{select} FROM {', '.join(plain)} WHERE {conjuncts} WINDOW {duration(left.window_us)}"
            case "between":
                before, after = self._bounds()
                ts_l, ts_r = prefix["l"] + self.event_times[0], prefix["r"] + self.event_times[1]
                window = f"{ts_r} BETWEEN {ts_l} - {_interval(before)} AND {ts_l} + {_interval(after)}"
                conjuncts = " AND ".join([*keys, window, *residual])
                return f"{select} FROM {' JOIN '.join(plain)} ON {conjuncts}{where}"
            case "within":
                before, after = self._bounds()
                within = f"WITHIN ({duration(before)}, {duration(after)})"
                return (
                    f"{select} FROM {' JOIN '.join(plain)} {within} ON {' AND '.join(keys + residual)}{where}"
                )

    def _asked(self, select: str, keys: list[str], residual: list[str], say: Callable[[Expr], str]) -> str:
        """Return an outer, semi or anti join; in some forms as EXISTS where it can be."""
        on, where = [*keys, *residual], list[str]()
        for side, spec in (("l", self.left), ("r", self.right)):
            (where if side in self.preserved else on).extend(say(e) for e in spec.filters)
        if where and len(self.preserved) == 2:
            raise ValueError("a filter of a FULL JOIN makes it one of another kind")
        ranged = self.form in ("range", "istream", "join")
        left, right = (
            f"{spec.stream}{f' {spec.bracket()}' if ranged else ''} {spec.alias}"
            for spec in (self.left, self.right)
        )
        end = ""
        if self.form == "trailing":
            end = f" WINDOW {duration(self.left.window_us or 0)}"
        elif self.form == "between":
            before, after = self._bounds()
            ts_l, ts_r = (
                self.left.alias + "." + self.event_times[0],
                self.right.alias + "." + self.event_times[1],
            )
            on.append(f"{ts_r} BETWEEN {ts_l} - {_interval(before)} AND {ts_l} + {_interval(after)}")
        elif self.form == "within":
            before, after = self._bounds()
            right += f" WITHIN ({duration(before)}, {duration(after)})"
        matches = " AND ".join(on)
        if self.kind in ("semi", "anti") and self.preserved == ("l",) and self.form in ("range", "istream"):
            exists = f"{'NOT ' if self.kind == 'anti' else ''}EXISTS (SELECT 1 FROM {right} WHERE {matches})"
            query = f"{select} FROM {left} WHERE {' AND '.join([exists, *where])}"
        else:
            word = {("l",): "LEFT", ("r",): "RIGHT", ("l", "r"): "FULL"}[self.preserved]
            word += {"outer": "", "semi": " SEMI", "anti": " ANTI"}[self.kind]
            after_join = f" WHERE {' AND '.join(where)}" if where else ""
            query = f"{select} FROM {left} {word} JOIN {right} ON {matches}{after_join}{end}"
        return f"ISTREAM({query})" if self.form == "istream" else query


def _interval(us: int) -> str:
    amount, unit = duration(us).split()
    return f"INTERVAL '{amount}' {unit.rstrip('S')}"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream of Parquet files.

    Attributes:
        name: Stream name.
        columns: Canonical type by column name, in order.
        event_time: Event-time column.
        lateness_us: L.
        path: Directory of its files.
        max_files_per_batch: Files admitted per batch, in name order.
    """

    name: str
    columns: Mapping[str, str]
    event_time: str
    lateness_us: int
    path: str
    max_files_per_batch: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A change of plan at a batch boundary: exactly one of the attributes besides ``at_batch``.

    Attributes:
        at_batch: Batch before which it takes effect.
        add: A query that comes.
        remove: Name of one that goes for good.
        migrate: Strategy to go over to.
        update: What its name means from now on; held rows take part, but for ``backfill: none``.
        pause: Name of one that leaves the plan for a while.
        resume: Name of one that comes back; held rows take part.
    """

    at_batch: int
    add: QuerySpec | None = None
    remove: str | None = None
    migrate: Strategy | None = None
    update: QuerySpec | None = None
    pause: str | None = None
    resume: str | None = None

    def document(self) -> dict[str, object]:
        """Return the step as plain values, for YAML."""
        at: dict[str, object] = {"at_batch": self.at_batch}
        if self.add is not None:
            return at | {"add": _entry(self.add)}
        if self.update is not None:
            return at | {"update": _entry(self.update, usual="state")}
        if self.migrate is not None:
            return at | {"migrate": {"strategy": self.migrate}}
        names = {"remove": self.remove, "pause": self.pause, "resume": self.resume}
        return at | {action: name for action, name in names.items() if name is not None}


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Streams, the queries of batch 0 and the script.

    Attributes:
        streams: In the order in which they get their ids.
        queries: In force from batch 0 on.
        script: Changes, ascending by batch.
        seed: Seed it was made from, for the report.
        strategy: Objective in force from batch 0 on; no result depends on it.
    """

    streams: tuple[StreamSpec, ...]
    queries: tuple[QuerySpec, ...]
    script: tuple[Step, ...] = ()
    seed: int = 0
    strategy: Strategy = "mem-opt"

    def strategies(self) -> tuple[Strategy, ...]:
        """Return the objectives in force one after the other."""
        return (self.strategy, *(s.migrate for s in self.script if s.migrate is not None))

    def stream(self, name: str) -> StreamSpec:
        """Return the stream of that name."""
        return next(s for s in self.streams if s.name == name)

    def all_queries(self) -> tuple[QuerySpec, ...]:
        """Return the first queries and every one that a step brings."""
        brought = [s.add or s.update for s in self.script]
        return self.queries + tuple(query for query in brought if query is not None)

    def document(self) -> dict[str, object]:
        """Return the workload file as plain values, for YAML."""
        streams = [
            {
                "name": s.name,
                "columns": dict(s.columns),
                "event_time": s.event_time,
                "lateness": _short(s.lateness_us),
                "source": {
                    "type": "files",
                    "format": "parquet",
                    "path": s.path,
                    "max_files_per_batch": s.max_files_per_batch,
                },
            }
            for s in self.streams
        ]
        queries = [_entry(q) for q in self.queries]
        script = [step.document() for step in self.script]
        return {"streams": streams, "queries": queries, "strategy": self.strategy} | (
            {"script": script} if script else {}
        )


def _entry(query: QuerySpec, usual: Backfill = "none") -> dict[str, str]:
    entry = {"name": query.name, "cql": query.cql()}
    return entry | {"backfill": query.backfill} if query.backfill != usual else entry


def _short(us: int) -> str:
    return f"{us // SECOND_US}s" if us % SECOND_US == 0 else f"{us // 1000}ms"
