"""Queries whose expression cannot be evaluated leave the plan, so that the others go on.

worker: ExpressionFailed ── trace ── engine: which queries have it? ── pause them, with the reason
                                            └── the batch in hand is begun again, under the new plan
"""

from __future__ import annotations

from catalog.steps import steps
from catalog.values.change import PauseQuery
from catalog.values.query import Query
from operators.errors import expression_digest
from service.planning.changes import apply_changes, several
from service.planning.versions import Versions


def pause_failing(versions: Versions, digest: str, reason: str) -> tuple[str, ...]:
    """Pause the queries that have an expression.

    Args:
        versions: Takes the new version.
        digest: Which expression (``operators.errors.expression_digest``).
        reason: What people are told.

    Returns:
        Their names; none if no query that runs has it.
    """
    running = [record.query for record in versions.store.queries.running()]
    failing = [query.name for query in running if digest in _digests(query)]
    if failing:
        apply_changes(versions, several([PauseQuery(name, reason) for name in failing]), actor="engine")
    return tuple(failing)


def _digests(query: Query) -> frozenset[str]:
    texts = [text for step in steps(query) for text in (step.a.filter, step.b.filter, step.residual)]
    if query.grouping is not None:
        texts += [query.grouping.having, *(each.sql for each in query.grouping.aggregates)]
    return frozenset(expression_digest(text) for text in texts if text is not None)
