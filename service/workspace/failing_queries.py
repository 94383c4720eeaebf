"""Pauses queries with an expression that cannot be evaluated, so that all other queries continue.

worker: ExpressionFailed ── trace ── engine: which queries have it? ── pause them, with the reason
                                            └── the current batch begins again, under the new plan
"""

from __future__ import annotations

from catalog.steps import steps
from catalog.values.change import PauseQuery
from catalog.values.query import Query
from operators.errors import expression_digest
from service.planning.changes import changing
from service.planning.versions import Versions


def pause_failing(versions: Versions, digest: str, reason: str) -> tuple[str, ...]:
    """Pause the running queries that contain a given expression.

    Args:
        versions: Plans and logs the new version.
        digest: Digest of the expression (``operators.errors.expression_digest``).
        reason: Reason for the pause, shown to users.

    Returns:
        Names of the paused queries; empty if no running query has the expression.
    """
    running = [record.query for record in versions.store.queries.running()]
    failing = [query.name for query in running if digest in _digests(query)]
    if not failing:
        return ()
    with changing(versions, [PauseQuery(name, reason) for name in failing], actor="engine"):
        return tuple(failing)


def _digests(query: Query) -> frozenset[str]:
    texts = [text for step in steps(query) for text in (step.a.filter, step.b.filter, step.residual)]
    if query.grouping is not None:
        texts += [query.grouping.having, *(each.sql for each in query.grouping.aggregates)]
    return frozenset(expression_digest(text) for text in texts if text is not None)
