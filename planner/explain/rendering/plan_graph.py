"""The plan as a graph of streams, slices, unions and queries, from which Mermaid and DOT are rendered.

stream A ─┐
          ├─ slice 1 [0s, 10s) ── slice 2 [10s, 30s)      rows move on as they age, filtered
stream B ─┘        │      └──────────┐     │
                union (1)         union (1, 2)            State-Slice, VLDB 2006, §4.2
                   │                  │
                   q1                q2

Pairs that a family passes to a next step (``catalog.steps``) are drawn as the box of a stream, to which an
arrow leads. A family with several joins (stream partition, no sharing) has one such chain per join.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from catalog.steps import is_exchanged, is_intermediate, made_by, stream_names, taken_intermediates
from catalog.values.plan import SHARED_JOIN, FamilyPlan, JoinPlan, Plan, PlannedQuery, Slice
from catalog.values.query import join_name
from planner.explain.expected_rows import expected_rows_text
from planner.explain.explain import FamilyReport
from planner.families.families import SIDES, SideName, side_chain, side_filter, side_window_us
from planner.families.texts.display import (
    FamilyText,
    display_interval,
    family_text,
    memory_text,
    partition_text,
    placement_text,
    resting_text,
)
from planner.probes.asked_probe import probe_text

#: Maximum number of filters in a label, because long labels hide the graph. The plan as text and as JSON has
#: all filters.
_LABEL_FILTERS = 4

NodeKind = Literal["stream", "slice", "union", "query"]


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the graph.

    Attributes:
        id: Identifier, unique in the graph, of letters, digits and underscores.
        kind: Kind of object that the box shows.
        label: Text in the box.
        group: Number of the object's family, from 1; 0 for streams, which families share.
    """

    id: str
    kind: NodeKind
    label: str
    group: int


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow of the graph.

    Attributes:
        source: Id of the node where the arrow starts.
        target: Id of the node where the arrow ends.
        label: Filter that rows or results pass on the way; empty if there is no filter.
        probe: Whether rows only look for partners in the target and are not stored there.
    """

    source: str
    target: str
    label: str = ""
    probe: bool = False


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """Nodes, edges, and the titles of the families in the plan's order."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    groups: tuple[str, ...]


def plan_graph(plan: Plan, reports: Mapping[str, FamilyReport]) -> PlanGraph:
    """Draw a plan: every slice, the path of rows through the slices, and the union of each query.

    Args:
        plan: The plan.
        reports: Cost reports by family id; for joins without windows the graph shows the rows that they are
            expected to hold.
    """
    streams = stream_names(plan)
    taken = taken_intermediates(plan.families)
    used = sorted({i for f in plan.families for i in (f.stream_a, f.stream_b)})
    nodes = [Node(_stream(i), "stream", streams[i], 0) for i in used]
    edges: list[Edge] = []
    titles = []
    for group, family in enumerate(plan.families, start=1):
        text = family_text(family, streams)
        drawing = _FamilyDrawing(family, group, text, made_by(family, taken))
        nodes += drawing.nodes()
        edges += drawing.edges()
        searched = probe_text(family.probe) if family.probe.has_rings else ""
        parts = [text.title, placement_text(family, text.labels), searched, memory_text(family.memory)]
        parts.append(resting_text(family))
        parts.append(expected_rows_text(reports[family.id], text) if family.id in reports else "")
        titles.append("  ".join(filter(None, parts)))
    return PlanGraph(tuple(nodes), tuple(edges), tuple(titles))


def _stream(stream_id: int) -> str:
    """Return the node id of a stream."""
    return f"d{-stream_id}" if is_intermediate(stream_id) else f"s{stream_id}"


def one_chain(family: FamilyPlan, join: JoinPlan) -> bool:
    """Return whether both sides can be drawn as one chain: their slices have equal boundaries and queries."""
    a, b = ([piece.w_end_us for piece in side_chain(join, side)] for side in SIDES)
    if family.clock_a != family.clock_b:
        return False
    return a == b and family.slices_reached(join, "a") == family.slices_reached(join, "b")


def lazy_notes(
    family: FamilyPlan, join: JoinPlan, sides: Sequence[SideName], text: FamilyText
) -> tuple[str, ...]:
    """Return for each slice of a chain a note if its end is lazy (``FamilyPlan.lazy_ends``), otherwise "".

    Args:
        family: The family.
        join: One of the family's joins.
        sides: Side of the chain, or both sides if they are drawn as one chain.
        text: Texts of the family's key, sides and filters.
    """
    notes = []
    for lazy in zip(*(family.lazy_ends(join, side) for side in sides), strict=True):
        of = "" if all(lazy) else f" of {text.labels[sides[lazy.index(True)]]}" if any(lazy) else None
        notes.append("" if of is None else f"lazy end{of}")
    return tuple(notes)


def feeding_slices(chain: Sequence[Slice], window: int) -> tuple[int, ...]:
    """Return the numbers, from 1, of the slices whose union is the result for a window.

    Args:
        chain: Slices of one side.
        window: The query's window on this side, µs.
    """
    return tuple(n for n, s in enumerate(chain, start=1) if s.w_start_us < window)


@dataclass(frozen=True, slots=True)
class _FamilyDrawing:
    family: FamilyPlan
    group: int
    text: FamilyText
    made: tuple[int, ...]

    def nodes(self) -> list[Node]:
        nodes = [node for join in self.family.joins for node in self._slices(join)]
        nodes += [self._node(f"u{n}", "union", "union") for n in range(1, len(self._unions()) + 1)]
        nodes += [self._node(f"q{q.id}", "query", self._asked(q)) for q in self.family.queries]
        return nodes

    def edges(self) -> list[Edge]:
        edges = [edge for join in self.family.joins for edge in self._moves(join)]
        for n, (slices, members) in enumerate(self._unions().items(), start=1):
            edges += [Edge(self._id(s), self._id(f"u{n}")) for s in slices]
            edges += [Edge(self._id(f"u{n}"), self._id(f"q{q.id}"), self._conditions(q)) for q in members]
        handing = [q for q in self.family.queries if q.hands_on]
        for made in self.made:
            label = "exchange, one batch later" if is_exchanged(made) else ""
            edges += [Edge(self._id(f"q{q.id}"), _stream(made), label) for q in handing]
        return edges

    def _slices(self, join: JoinPlan) -> list[Node]:
        """Return the slices of a join; labels start with the id of the join if there are several joins."""
        before = f"{join.id}: " if len(self.family.joins) > 1 else ""
        if one_chain(self.family, join):
            clock = self.family.clock_a
            return [
                self._node(
                    self._slice(join, "ab", n),
                    "slice",
                    " ".join(filter(None, [f"{before}slice {n} {display_interval(piece, clock)}", note])),
                )
                for n, (piece, note) in enumerate(
                    zip(join.chain_a, lazy_notes(self.family, join, SIDES, self.text), strict=True), start=1
                )
            ]
        nodes = []
        for side in SIDES:
            label = self.text.labels[side]
            notes = lazy_notes(self.family, join, (side,), self.text)
            for n, (piece, note) in enumerate(zip(side_chain(join, side), notes, strict=True), start=1):
                text = f"{before}slice {n} of {label} {display_interval(piece, self.family.clock(side))}"
                node = self._slice(join, side, n)
                nodes.append(self._node(node, "slice", " ".join(filter(None, [text, note]))))
        return nodes

    def _moves(self, join: JoinPlan) -> list[Edge]:
        """Return the edges by which rows move into a join and through its slices."""
        a, b = _stream(self.family.stream_a), _stream(self.family.stream_b)
        edges = []
        if one_chain(self.family, join):
            first = self._id(self._slice(join, "ab", 1))
            edges.append(Edge(a, first, self._entry(join, "a")))
            edges.append(Edge(b, first, self._entry(join, "b")))
            for n in range(2, len(join.chain_a) + 1):
                label = ", ".join(k for side in SIDES if (k := self._keep(join, side, n)))
                edges.append(
                    Edge(
                        self._id(self._slice(join, "ab", n - 1)), self._id(self._slice(join, "ab", n)), label
                    )
                )
            return edges
        for side, own, other in zip(SIDES, (a, b), (b, a), strict=True):
            names = [self._id(self._slice(join, side, n + 1)) for n in range(len(side_chain(join, side)))]
            edges.append(Edge(own, names[0], self._entry(join, side)))
            edges.append(Edge(other, names[0], "probe", probe=True))
            for n, (source, target) in enumerate(itertools.pairwise(names), start=2):
                edges.append(Edge(source, target, self._keep(join, side, n)))
        return edges

    def _unions(self) -> dict[tuple[str, ...], list[PlannedQuery]]:
        """Return the queries of each distinct union, by the slices whose pairs it merges."""
        unions: dict[tuple[str, ...], list[PlannedQuery]] = {}
        for query in self.family.queries:
            slices: tuple[str, ...] = ()
            for join in self.family.joins:
                if query.id not in join.queries:
                    continue
                sides: tuple[SideName, ...] = ("a",) if one_chain(self.family, join) else SIDES
                slices += tuple(
                    self._slice(join, "ab" if one_chain(self.family, join) else side, n)
                    for side in sides
                    for n in feeding_slices(side_chain(join, side), side_window_us(query, side))
                )
            unions.setdefault(slices, []).append(query)
        return unions

    def _asked(self, query: PlannedQuery) -> str:
        """Return a query's name, and its kind of join if it is not an inner join."""
        named = f", {join_name(query.kind, query.preserved)}" if query.kind != "inner" else ""
        return f"{query.name}{named}{', a step' if query.hands_on else ''}"

    def _conditions(self, query: PlannedQuery) -> str:
        """Return the query's own filters and residual, which are applied to the results of its union."""
        parts = [self.text.filter(side, side_filter(query, side)) for side in SIDES]
        if query.residual is not None:
            parts.append(self.text.residual(query.residual))
        return ", ".join(part for part in parts if part is not None)

    def _entry(self, join: JoinPlan, side: SideName) -> str:
        """Return the condition to enter a join: the first slice's filter and the join's class of rows."""
        parts = [self._keep(join, side, 1)]
        if join.partition is not None and join.partition.side == side:
            parts.append(partition_text(join.partition, {q.id: q.name for q in self.family.queries}))
        return ", ".join(part for part in parts if part)

    def _keep(self, join: JoinPlan, side: SideName, number: int) -> str:
        keep = side_chain(join, side)[number - 1].keep
        if keep is None:
            return ""
        shown = self.text.keep(side, keep[:_LABEL_FILTERS])
        return shown if len(keep) <= _LABEL_FILTERS else f"{shown} OR {len(keep) - _LABEL_FILTERS} more"

    def _node(self, name: str, kind: NodeKind, label: str) -> Node:
        return Node(self._id(name), kind, label, self.group)

    def _slice(self, join: JoinPlan, chain: str, number: int) -> str:
        """Return a slice's name, which has the join's id unless all queries share the join."""
        own = "" if join.id == SHARED_JOIN else f"{join.id}_"
        return f"{own}{chain}{number}"

    def _id(self, name: str) -> str:
        return f"f{self.group}_{name}"
