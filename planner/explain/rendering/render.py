"""A plan as text, Mermaid flowchart, DOT graph, and JSON document of ``GET /plan``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from catalog.steps import is_intermediate, stream_names
from catalog.values.plan import ALL_BUCKETS, FamilyPlan, JoinPlan, Plan, PlannedQuery, Slice
from catalog.values.query import UNBOUNDED_US, Clock, join_name
from planner.explain.cost_document import family_costs, rounded, slice_costs
from planner.explain.explain import FamilyReport
from planner.explain.rendering.plan_graph import (
    Edge,
    Node,
    NodeKind,
    feeding_slices,
    lazy_notes,
    one_chain,
    plan_graph,
)
from planner.families.families import (
    SIDES,
    SideName,
    clocks_document,
    side_chain,
    side_filter,
    side_filters,
    side_stream,
    side_window_us,
)
from planner.families.texts.display import (
    FamilyText,
    band_text,
    display_interval,
    family_text,
    memory_text,
    partition_text,
    placement_text,
    resting_text,
)
from planner.probes.asked_probe import probe_text

_MERMAID_SHAPES: Mapping[NodeKind, tuple[str, str]] = {
    "stream": ("[/", "/]"),
    "slice": ("[", "]"),
    "union": ("((", "))"),
    "query": ("([", "])"),
}
_DOT_SHAPES: Mapping[NodeKind, str] = {
    "stream": "cds",
    "slice": "box",
    "union": "circle",
    "query": "oval",
}

_NO_REPORTS: Mapping[str, FamilyReport] = MappingProxyType({})


def render_family(family: FamilyPlan, text: FamilyText, names: Mapping[int, str] | None = None) -> str:
    """Return one family as text.

    Args:
        family: The family.
        text: Texts of the family's key, sides and filters.
        names: Query names, by id, that replace the names in the plan; None replaces no name.

    Returns:
        Lines without a final line break.
    """
    return "\n".join(
        _text_of_family(family, text, {q.id: q.name for q in family.queries} | dict(names or {}))
    )


def _text_of_family(family: FamilyPlan, text: FamilyText, names: Mapping[int, str]) -> Iterator[str]:
    strategy = "" if family.strategy == "mem-opt" else family.strategy
    searched = probe_text(family.probe) if family.probe.has_rings else ""
    parts = [f"family {text.title}", strategy, placement_text(family, text.labels), searched]
    parts += [memory_text(family.memory), resting_text(family)]
    yield "  ".join(filter(None, parts))
    if family.band is not None:
        share = "" if family.band_share is None else f"  {family.band_share:.3g} of all pairs of a sample"
        yield f"  {band_text(family.band, text.labels)}{share}"
    asked: dict[str, list[str]] = {}
    for query in family.queries if family.judges_absence else ():
        asked.setdefault(join_name(query.kind, query.preserved), []).append(names[query.id])
    yield from (f"  {kind} joins {' '.join(members)}" for kind, members in sorted(asked.items()))
    for join in family.joins:
        if len(family.joins) == 1:
            yield from _text_of_join(family, join, text, names, "  ")
            continue
        head = f"  join {join.id}"
        if join.partition is not None:
            label = text.labels[join.partition.side]
            head += f"  rows of {label} {partition_text(join.partition, names)}"
        yield head
        yield from _text_of_join(family, join, text, names, "    ")


def _text_of_join(
    family: FamilyPlan, join: JoinPlan, text: FamilyText, names: Mapping[int, str], indent: str
) -> Iterator[str]:
    keeps = {side: [_keep(text, side, s) for s in side_chain(join, side)] for side in SIDES}
    if one_chain(family, join):
        both = [[f"keep {k}" for k in pair if k] for pair in zip(keeps["a"], keeps["b"], strict=True)]
        notes = lazy_notes(family, join, SIDES, text)
        served = _queries_of_slices(family, join, "a", names)
        yield from _text_of_chain(join.chain_a, family.clock_a, served, _with_notes(both, notes), indent)
        return
    for side in SIDES:
        yield f"{indent}chain of {text.labels[side]}"
        own = [[f"keep {k}"] if k else [] for k in keeps[side]]
        notes = lazy_notes(family, join, (side,), text)
        served = _queries_of_slices(family, join, side, names)
        chain, clock = side_chain(join, side), family.clock(side)
        yield from _text_of_chain(chain, clock, served, _with_notes(own, notes), f"{indent}  ")


def _with_notes(remarks: list[list[str]], notes: tuple[str, ...]) -> list[list[str]]:
    return [[*own, note] if note else own for own, note in zip(remarks, notes, strict=True)]


def _queries_of_slices(
    family: FamilyPlan, join: JoinPlan, side: SideName, names: Mapping[int, str]
) -> list[list[str]]:
    """Return, for each slice, the names of the queries whose windows reach into it, in order of their ids."""
    reached = family.slices_reached(join, side)
    slices = range(1, len(side_chain(join, side)) + 1)
    return [[names[query.id] for query, last in reached if last >= number] for number in slices]


def _text_of_chain(
    chain: tuple[Slice, ...],
    clock: Clock,
    served: list[list[str]],
    remarks: list[list[str]],
    indent: str,
) -> Iterator[str]:
    heads = [f"slice {n} {display_interval(s, clock)}" for n, s in enumerate(chain, start=1)]
    width = max(map(len, heads))
    for head, some, own in zip(heads, served, remarks, strict=True):
        queries = "queries " + (" ".join(some) or "none")
        yield indent + "  ".join([head.ljust(width), queries, *own])


def render_mermaid(plan: Plan, reports: Mapping[str, FamilyReport] = _NO_REPORTS) -> str:
    """Return the plan graph as a Mermaid flowchart.

    Args:
        plan: The plan.
        reports: Cost reports by family id; without reports, the graph does not show expected rows.

    Returns:
        Lines without a final line break.
    """
    graph = plan_graph(plan, reports)
    lines = ["flowchart LR"]
    lines += [f"  {_mermaid_node(n)}" for n in graph.nodes if n.group == 0]
    for group, title in enumerate(graph.groups, start=1):
        lines.append(f"  subgraph f{group}[{_mermaid_text(title)}]")
        lines += [f"    {_mermaid_node(n)}" for n in graph.nodes if n.group == group]
        lines.append("  end")
    lines += [f"  {_mermaid_edge(e)}" for e in graph.edges]
    return "\n".join(lines)


def _mermaid_node(node: Node) -> str:
    left, right = _MERMAID_SHAPES[node.kind]
    return f"{node.id}{left}{_mermaid_text(node.label)}{right}"


def _mermaid_edge(edge: Edge) -> str:
    arrow = "-.->" if edge.probe else "-->"
    label = f"|{_mermaid_text(edge.label)}|" if edge.label else ""
    return f"{edge.source} {arrow}{label} {edge.target}"


def _mermaid_text(text: str) -> str:
    """Quote a label: Mermaid reads # as the start of an entity, and labels as HTML."""
    for char, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("&", "#amp;")):
        text = text.replace(char, entity)
    return '"' + text.replace("\n", " ") + '"'


def render_dot(plan: Plan, reports: Mapping[str, FamilyReport] = _NO_REPORTS) -> str:
    """Return the plan graph in Graphviz DOT.

    Args:
        plan: The plan.
        reports: Cost reports by family id; without reports, the graph does not show expected rows.

    Returns:
        Lines without a final line break.
    """
    graph = plan_graph(plan, reports)
    lines = ["digraph plan {", "  rankdir=LR;"]
    lines += [f"  {_dot_node(n)}" for n in graph.nodes if n.group == 0]
    for group, title in enumerate(graph.groups, start=1):
        lines += [f"  subgraph cluster_f{group} {{", f"    label={_dot_text(title)};"]
        lines += [f"    {_dot_node(n)}" for n in graph.nodes if n.group == group]
        lines.append("  }")
    lines += [f"  {_dot_edge(e)}" for e in graph.edges]
    return "\n".join([*lines, "}"])


def _dot_node(node: Node) -> str:
    return f"{node.id} [shape={_DOT_SHAPES[node.kind]}, label={_dot_text(node.label)}];"


def _dot_edge(edge: Edge) -> str:
    attributes = [f"label={_dot_text(edge.label)}"] if edge.label else []
    attributes += ["style=dashed"] if edge.probe else []
    return f"{edge.source} -> {edge.target}" + (f" [{', '.join(attributes)}]" if attributes else "") + ";"


def _dot_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def plan_document(plan: Plan, reports: Mapping[str, FamilyReport] | None = None) -> dict[str, Any]:
    """Return the plan as the JSON document of ``GET /plan``.

    Args:
        plan: The plan.
        reports: Costs of families, by family id; families without a report are shown without costs.

    Returns:
        Only JSON values (hence ``Any``). Windows are µs, or None if unbounded; slices count from 1.
        ``unions`` gives for each query the slices of each side that make its pairs: pairs with
        d = T_b - T_a >= 0 are made in a's slices. For a family with one join, ``chains`` are also given
        outside ``joins``, and ``unions`` name no join. ``replication`` gives the number of buckets that share
        the rows of a key, or None for all buckets: for every key, and separately for heavy keys. A heavy key
        is named by its int64 code, as text, because a double may not hold the code. ``closed_by`` of
        ``punctuations`` names the streams that close keys of the family. ``decided_early`` names the streams
        for whose rows it is known early that they have no partner: in the batch in which the other stream
        closes their key, before their window has passed.
    """
    streams = stream_names(plan)
    known = {} if reports is None else reports
    return {
        "version": plan.version,
        "strategy": plan.strategy,
        "streams": [{"id": s.id, "name": s.name} for s in plan.streams],
        "families": [
            _family_document(f, family_text(f, streams), streams, _closing(f, plan), known.get(f.id))
            for f in plan.families
        ],
    }


def closing_text(family: FamilyPlan, plan: Plan) -> Iterator[str]:
    """Yield a line on the streams that close keys, and a line on the streams whose rows closings decide."""
    closing = _closing(family, plan)
    streams = stream_names(plan)
    if closing:
        yield f"keys closed by {', '.join(_names(family, closing, streams))}"
    if early := _decided_early(family, closing):
        yield f"closings decide which rows of {', '.join(_names(family, early, streams))} have no partner"


def _closing(family: FamilyPlan, plan: Plan) -> list[SideName]:
    """Return the sides of a family whose streams close its keys."""
    if not family.key or (family.clock_a, family.clock_b) != ("time", "time"):
        return []
    by_id = {stream.id: stream for stream in plan.streams}
    keys = dict(zip(SIDES, zip(*family.key, strict=True), strict=True))
    closing = {side: by_id.get(side_stream(family, side)) for side in SIDES}
    return [side for side, stream in closing.items() if stream and stream.closes_keys(frozenset(keys[side]))]


def _decided_early(family: FamilyPlan, closing: Sequence[SideName]) -> list[SideName]:
    """Return the sides whose rows are known to have no partner once the other side closes their key."""
    judged = {side for query in family.queries for side in query.preserved}
    return [side for side, other in (("a", "b"), ("b", "a")) if side in judged and other in closing]


def _names(family: FamilyPlan, sides: Sequence[SideName], streams: Mapping[int, str]) -> list[str]:
    return list(dict.fromkeys(streams[side_stream(family, side)] for side in sides))


def _family_document(
    family: FamilyPlan,
    text: FamilyText,
    streams: Mapping[int, str],
    closing: Sequence[SideName],
    report: FamilyReport | None,
) -> dict[str, Any]:
    stored = {"a": family.columns_a, "b": family.columns_b}
    joins = [join_document(family, join, text, report) for join in family.joins]
    document = {
        "id": family.id,
        "title": text.title,
        "strategy": family.strategy,
        "streams": {
            side: {
                "id": side_stream(family, side),
                "name": streams[side_stream(family, side)],
                "stored_columns": list(stored[side]),
            }
            for side in SIDES
        },
        "key": [
            {"a": of_a, "b": of_b, "type": key_type}
            for (of_a, of_b), key_type in zip(family.key, family.key_types, strict=True)
        ],
        "filters": {
            side: [
                {
                    "bit": f.bit,
                    "text": text.filter(side, f.bit),
                    "sql": f.sql,
                    "columns": list(f.columns),
                }
                for f in side_filters(family, side).values()
            ]
            for side in SIDES
        },
        "replication": {
            "every": _fragments(family.replication.every),
            "heavy": [{"key": str(k), "fragments": _fragments(f)} for k, f in family.replication.heavy],
        },
        "probe": probe_text(family.probe),
        "lead": _lead_document(family, text),
        "punctuations": {
            "purge": family.punctuations.purge_text,
            "propagate": family.punctuations.propagate_text,
            "closed_by": _names(family, closing, streams),
            "decided_early": _names(family, _decided_early(family, closing), streams),
        },
        "memory": family.memory.strategy,
        "rests": family.rests if is_intermediate(family.stream_a) else None,
        "joins": joins,
        "queries": _query_documents(family, text),
        "unions": _union_documents(family),
    }
    if len(joins) == 1:
        document["chains"] = joins[0]["chains"]
    if report is not None:
        document |= family_costs(report)
    return document


def _lead_document(family: FamilyPlan, text: FamilyText) -> dict[str, Any] | None:
    """Return the band by which a family without a key finds its pairs, or None if it has no band."""
    if family.band is None:
        return None
    share = None if family.band_share is None else rounded(family.band_share)
    return {"condition": band_text(family.band, text.labels).removeprefix("pairs with "), "share": share}


def join_document(
    family: FamilyPlan, join: JoinPlan, text: FamilyText, report: FamilyReport | None = None
) -> dict[str, Any]:
    """Return one join of a family as JSON values.

    Args:
        family: The family.
        join: The join, of any strategy.
        text: Texts of the family's key, sides and filters.
        report: Cost of the family, or None to show no cost.
    """
    names = {q.id: q.name for q in family.queries}
    partition = join.partition
    return {
        "id": join.id,
        "queries": [names[i] for i in join.queries],
        "partition": None
        if partition is None
        else {
            "side": partition.side,
            "one_of": [names[i] for i in partition.one_of],
            "none_of": [names[i] for i in partition.none_of],
        },
        "selections_pulled_up": join.pulled_up,
        "chains": {side: _chain_document(family, join, side, text, names, report) for side in SIDES},
    }


def _chain_document(
    family: FamilyPlan,
    join: JoinPlan,
    side: SideName,
    text: FamilyText,
    names: Mapping[int, str],
    report: FamilyReport | None,
) -> list[dict[str, Any]]:
    return [
        {
            "slice": n,
            "window": display_interval(s, family.clock(side)),
            "w_start_us": s.w_start_us,
            "w_end_us": _bounded(s.w_end_us),
            "queries": served,
            "keep": _keep(text, side, s),
            "keep_bits": None if s.keep is None else list(s.keep),
            "lazy_end": lazy,
        }
        | ({} if report is None else {"cost": slice_costs(report, join, side, s)})
        for n, (s, served, lazy) in enumerate(
            zip(
                side_chain(join, side),
                _queries_of_slices(family, join, side, names),
                family.lazy_ends(join, side),
                strict=True,
            ),
            start=1,
        )
    ]


def _union_documents(family: FamilyPlan) -> list[dict[str, Any]]:
    def slices(join: JoinPlan, query: PlannedQuery) -> dict[str, list[int]]:
        return {
            side: list(feeding_slices(side_chain(join, side), side_window_us(query, side))) for side in SIDES
        }

    if len(family.joins) == 1:
        return [{"query": q.name, "slices": slices(family.joins[0], q)} for q in family.queries]
    return [
        {
            "query": q.name,
            "joins": [{"join": j.id, "slices": slices(j, q)} for j in family.joins if q.id in j.queries],
        }
        for q in family.queries
    ]


def _query_documents(family: FamilyPlan, text: FamilyText) -> list[dict[str, Any]]:
    return [
        {
            "id": q.id,
            "name": q.name,
            "join": join_name(q.kind, q.preserved),
            "window_us": {side: _bounded(side_window_us(q, side)) for side in SIDES},
            "filter": {side: text.filter(side, side_filter(q, side)) for side in SIDES},
            "residual": None if q.residual is None else text.residual(q.residual),
            "columns": [{"name": o.name, "type": o.type} for o in q.outputs],
            "since_version": q.since_version,
            "backfill": q.backfill,
        }
        | clocks_document(family)
        for q in family.queries
    ]


def _keep(text: FamilyText, side: SideName, piece: Slice) -> str | None:
    return None if piece.keep is None else text.keep(side, piece.keep)


def _fragments(fragments: int) -> int | None:
    return None if fragments == ALL_BUCKETS else fragments


def _bounded(window: int) -> int | None:
    """Return a window, or None if it is unbounded: most JSON readers would round the number for unbounded."""
    return None if window >= UNBOUNDED_US else window
