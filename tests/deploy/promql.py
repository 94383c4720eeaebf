"""Metrics and labels as the service exports them, and expressions of PromQL held against them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

from catalog.values.counters.batch_counters import CpuCounters, StreamCounters
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.query import Output
from catalog.values.sink import FilesSink
from planner.build.build_plan import build_plan
from service.config.settings import Settings
from service.workspace.workspace import Workspace
from tests.builders import EMPTY_BATCH
from tests.service.pairs import add_query, open_store

#: Labels that Prometheus gives to each series of a target.
OF_PROMETHEUS = frozenset({"job", "instance"})
#: Grafana's variables, and values that they may have.
_VARIABLES = {"$__rate_interval": "1m", "$instance": ".+"}
_KEEP_LABELS = ("topk", "bottomk")

Labels = frozenset[str]


def exported_metrics(directory: Path) -> dict[str, Labels]:
    """Return the labels of each metric of a service with streams, a query, a sink and a batch, but no engine.

    ``up``, which Prometheus makes itself, is among them.
    """
    workspace = Workspace(Settings().for_data_dir(directory))
    workspace.open()
    try:
        _fill_catalog(directory)
        workspace.plans.price()  # which the engine does, in a thread
        text = workspace.metrics("running", ingest=True).decode()
    finally:
        workspace.close_catalog()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {"up": OF_PROMETHEUS} | {sample.name: OF_PROMETHEUS | set(sample.labels) for sample in samples}


def _fill_catalog(directory: Path) -> None:
    with open_store(directory) as store:
        query = add_query(store, "q", [Output("k", 'a."k"', "bigint")])
        streams = {stream.id: stream for stream in store.streams.all()}
        store.control_log.append(plan=build_plan((query,), streams))
        store.sinks.set(query.id, FilesSink("alerts"))
        store.streams.add(replace(next(iter(streams.values())), name="capped", state_cap_mb=100))
        store.batches.commit(
            replace(
                EMPTY_BATCH,
                batch=0,
                epoch=store.lease.epoch(),
                streams=(StreamCounters(1, 10, 2, 1, 5_000_000, 6_000_000),),
                slices=(SliceCounters("f", "a", 1, rows=7, bytes=100, segments=2),),
                query_rows=((query.id, 4),),
                started_at_us=1_000_000,
                committed_at_us=1_500_000,
                cpu=CpuCounters(250_000, 125_000),
            )
        )


def labels_of(expression: str, exported: Mapping[str, Labels]) -> Labels:
    """Return the labels of what an expression gives.

    Raises:
        ValueError: It is no PromQL, names a metric or label that is not exported, or matches series that
            have different labels and therefore never match.
    """
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    return _labels(promql_parser.parse(expression), exported) or frozenset()


def shown_labels(text: str) -> Labels:
    """Return the labels that a legend or an annotation shows.

    >>> sorted(shown_labels("{{ $labels.query }} of {{type}}: {{ $value | humanize }}"))
    ['query', 'type']
    """
    return frozenset(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))


def _labels(node: promql_parser.Expr, exported: Mapping[str, Labels]) -> Labels | None:
    """Return the labels of a vector, None of a number."""
    match node:
        case promql_parser.VectorSelector():
            if node.name not in exported:
                raise ValueError(f"{node.name} is not exported")
            _check(frozenset(m.name for m in node.matchers.matchers), exported[node.name], node)
            return exported[node.name]
        case promql_parser.MatrixSelector():
            return _labels(node.vector_selector, exported)
        case promql_parser.AggregateExpr():
            inner = _labels(node.expr, exported) or frozenset()
            if node.modifier is None:
                return inner if str(node.op) in _KEEP_LABELS else frozenset()
            kept = frozenset(node.modifier.labels)
            _check(kept, inner, node)
            return kept
        case promql_parser.BinaryExpr():
            return _labels_of_both(node, _labels(node.lhs, exported), _labels(node.rhs, exported))
        case promql_parser.Call():
            of_arguments = [_labels(argument, exported) for argument in node.args]
            return next((labels for labels in of_arguments if labels is not None), None)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            return _labels(node.expr, exported)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return None
        case _:
            raise ValueError(f"{node}: {type(node).__name__} is not expected in deploy/")


def _labels_of_both(
    node: promql_parser.BinaryExpr, left: Labels | None, right: Labels | None
) -> Labels | None:
    if left is None or right is None:
        return right if left is None else left
    if node.modifier is not None and node.modifier.matching is not None:
        on = frozenset(node.modifier.matching.labels)
        _check(on, left & right, node)
        return left if str(node.op) in ("and", "unless") else on
    if left != right:
        raise ValueError(f"{node}: labels {sorted(left)} never match {sorted(right)}")
    return left


def _check(asked: Labels, there: Labels, node: object) -> None:
    if not asked <= there:
        raise ValueError(f"{node}: there are no labels {sorted(asked - there)}")
