"""CPU-Opt's savings against C_sys, at the paper's own rates.

How much CPU-Opt can save depends on what an operator costs: the probes, most of the sum, are the same in
every chain. The paper does not say what C_sys its engine had, so the figure is counted for several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.bench.paper.comparisons import Point, percents, points
from tests.bench.paper.many_queries import MEM_OPT, many_query_settings
from tests.bench.paper.measure import Measurement, Shape, measure
from tests.bench.paper.plans import plan_of
from tests.bench.paper.setting import Setting
from tests.bench.reports import table

#: Comparisons per row and operator.
C_SYS = (0.5, 2.0, 5.0, 20.0)


def system_overhead_settings() -> Iterator[Setting]:
    """Yield the settings of Figure 19 at the paper's own rates."""
    return many_query_settings(1.0)


def measure_system_overhead(setting: Setting, shape: Shape) -> list[Measurement]:
    """Measure Mem-Opt, and the chain that CPU-Opt chooses at each C_sys."""
    plans = {_name(c): plan_of(setting, "cpu-opt", shape.batch_s, c) for c in C_SYS}
    return measure(setting, {MEM_OPT: plan_of(setting, "mem-opt", shape.batch_s)} | plans, shape)


def system_overhead_verdict(rows: Sequence[Measurement]) -> str:
    """Return what came out, as one sentence."""
    skewed = [p for p in points(rows) if p.setting.distribution != "uniform"]
    parts = [f"{percents([_saving(p, c) for p in skewed])} at C_sys = {c:g}" for c in C_SYS]
    more = sum(_saving(p, c) < -0.001 for p in points(rows) for c in C_SYS)
    return (
        f"**CPU-Opt in comparisons, skewed windows, at the paper's rates**: {', '.join(parts)} fewer than "
        f"Mem-Opt; more in {more} of {len(points(rows)) * len(C_SYS)} (uniform ones included)."
    )


def system_overhead_section(rows: Sequence[Measurement]) -> str:
    """Return the report's section."""
    grouped: dict[tuple[str, int], list[Point]] = {}
    for p in points(rows):
        grouped.setdefault((p.setting.distribution, p.setting.queries), []).append(p)
    lines = [
        [distribution, str(queries), *(percents([_saving(p, c) for p in chosen]) for c in C_SYS)]
        for (distribution, queries), chosen in grouped.items()
    ]
    header = ["windows", "queries", *(f"C_sys = {c:g}" for c in C_SYS)]
    return f"""### Comparisons and C_sys

How much CPU-Opt can save depends on what an operator costs beside its comparisons: probes are the same in
every chain and grow with λ². At the paper's own rates (20 and 80 rows/s, not multiplied; with and without
selection), comparisons counted, C_sys per row and operator included, fewer than Mem-Opt:

{table(header, lines)}"""


def _name(c_sys: float) -> str:
    return f"cpu-opt (C_sys = {c_sys:g})"


def _saving(point: Point, c_sys: float) -> float:
    return point.saving(lambda m: m.with_c_sys(c_sys), _name(c_sys), MEM_OPT)
