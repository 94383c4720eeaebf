"""``sluice plan WORKLOAD.yaml``: the plan in force from batch 0, without a catalog and without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from planner.build_plan import build_plan
from planner.render import plan_document, render_dot, render_mermaid, render_text
from service.workload import bind_workload, load_workload


def plan_text(path: Path, form: str) -> str:
    """Return the plan of a workload file.

    Args:
        path: The file. Plan changes of its script are checked, but not planned.
        form: ``text``, ``json``, ``mermaid`` or ``dot``.

    Raises:
        InvalidInput: The file or a query in it cannot be meant.
    """
    workload = load_workload(path)
    streams, bound = bind_workload(workload)
    plan = build_plan(
        [bound[query.path] for query in workload.queries],
        {stream.id: stream for stream in streams},
        strategy=workload.strategy,
    )
    if form == "json":
        return json.dumps(plan_document(plan), indent=2)
    if form == "mermaid":
        return render_mermaid(plan)
    if form == "dot":
        return render_dot(plan)
    return render_text(plan)
