"""The cost model of the State-Slice paper (VLDB 2006): rows held and comparisons per second.

The setting of its Equations 1-3 is two queries over streams A and B that both arrive at rate λ:

    Q1: A[W1] join B[W1]            Q2: σ(A)[W2] join B[W2]         0 < W1 < W2

    λ   rows per second of each stream       S_σ  fraction of A that passes σ
    W   window in seconds                    S_1  pairs that join, of all pairs looked at

Memory counts rows; the paper's C_m is rows times the size of a tuple, M_t. CPU counts comparisons per second:
a probe looks at every row of the opposite window (nested loops), a purge costs one comparison per arriving
row, a filter or router one per row or result that it judges, a union one per input that it merges. The
engine probes through an index instead and touches only pairs of equal key, about S_1 of those counted here.

Source: State-Slice §3 (Table 1; S_1 is its S with the sign of a join), §3.1, §3.2 and §4.3. Equation 2 is
missing from our copy of the text; ``pushdown_cost`` says what it is derived from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from catalog.values.plan import FamilyPlan
from catalog.values.query import UNBOUNDED_US
from planner.costs.cost import Terms

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class PaperCost:
    """Cost by term; costs of independent parts add up.

    Attributes:
        memory_rows: Rows held.
        probe_per_s: Comparisons of arriving rows with the rows of the opposite window.
        purge_per_s: Comparisons that find out which rows have left the window.
        filter_per_s: Evaluations of selections, on rows or on results; splitting a stream is one, too.
        route_per_s: Comparisons that decide which query a result belongs to.
        union_per_s: Comparisons that merge results in order.
    """

    memory_rows: float = 0.0
    probe_per_s: float = 0.0
    purge_per_s: float = 0.0
    filter_per_s: float = 0.0
    route_per_s: float = 0.0
    union_per_s: float = 0.0

    @property
    def cpu_comparisons_per_s(self) -> float:
        """All comparisons per second: the paper's C_p."""
        return self.probe_per_s + self.purge_per_s + self.filter_per_s + self.route_per_s + self.union_per_s

    def __add__(self, other: PaperCost) -> PaperCost:
        return PaperCost(*(x + y for x, y in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class TwoQueries:
    """The paper's two-query setting.

    Attributes:
        rate_per_s: λ, rows per second of each stream.
        w1_s: Window of Q1, seconds.
        w2_s: Window of Q2, seconds; at least ``w1_s``.
        filter_selectivity: S_σ of Q2's selection on A, 0 to 1.
        join_selectivity: S_1, 0 to 1.
    """

    rate_per_s: float
    w1_s: float
    w2_s: float
    filter_selectivity: float
    join_selectivity: float

    def __post_init__(self) -> None:
        if self.rate_per_s < 0:
            raise ValueError(f"rate_per_s is {self.rate_per_s}, but rows cannot come at a negative rate")
        if not 0 <= self.w1_s <= self.w2_s:
            raise ValueError(f"windows are {self.w1_s} s and {self.w2_s} s, but 0 <= w1_s <= w2_s must hold")
        for name, value in (("filter", self.filter_selectivity), ("join", self.join_selectivity)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name}_selectivity is {value}, but a fraction lies between 0 and 1")


def pullup_cost(setting: TwoQueries) -> PaperCost:
    """Return Equation 1: naive sharing with selection pull-up, one join of W2, then a router, then σ.

    Both streams are held for W2: C_m = 2 λ W2. CPU, term by term:

    - probe: λ rows of A per second look at the λ W2 rows held of B, and the reverse: 2 λ² W2
    - purge: each of the 2 λ arriving rows purges the opposite window: 2 λ
    - route: each of the 2 λ² W2 S_1 results is compared with W1 to see whether it is Q1's, too
    - filter: each result is judged by σ for Q2: 2 λ² W2 S_1

    Args:
        setting: Rates, windows, selectivities.

    Returns:
        The cost by term; its sum is C_p.

    >>> pullup_cost(TwoQueries(10, 6, 60, 0.5, 0.1)).cpu_comparisons_per_s
    14420.0

    Source: State-Slice §3.1, Equation 1.
    """
    rate, w2 = setting.rate_per_s, setting.w2_s
    results = 2 * rate**2 * w2 * setting.join_selectivity
    return PaperCost(
        memory_rows=2 * rate * w2,
        probe_per_s=2 * rate**2 * w2,
        purge_per_s=2 * rate,
        filter_per_s=results,
        route_per_s=results,
    )


def pushdown_cost(setting: TwoQueries) -> PaperCost:
    """Return Equation 2: stream partition with selection push-down.

    σ splits A into A1 (fails, only Q1 wants it) and A2 (passes, both do). Join 1 is A1[W1] with B[W1], join 2
    is A2[W2] with B[W2]; B is held by both. With S = S_σ:

    - memory: join 1 holds (1-S) λ W1 + λ W1, join 2 S λ W2 + λ W2: (2-S) λ W1 + (1+S) λ W2
    - split: σ judges every row of A: λ
    - probe: join 1 has two directions of (1-S) λ times λ W1: 2 (1-S) λ² W1; join 2 likewise 2 S λ² W2
    - purge: both joins see all of B and their part of A: (1-S) λ + λ + S λ + λ = 3 λ
    - route: each result of join 2 is compared with W1 to see whether it is Q1's, too: 2 S λ² W2 S_1
    - union: Q1 merges join 1's 2 (1-S) λ² W1 S_1 results with the 2 S λ² W1 S_1 that the router sends
      it: 2 λ² W1 S_1

    Args:
        setting: Rates, windows, selectivities.

    Returns:
        The cost by term (the split counts as ``filter_per_s``); its sum is C_p.

    Source: State-Slice §3.2, Equation 2. Our copy of the text lacks the formula and has what each of its
        items stands for: two of C_m, six of C_p, in the order above. Equation 4 has C_m and the four items in
        λ² as denominators, and the tests compare them. It leaves out items linear in λ, so the split (λ) and
        the purge (3 λ) follow from the description alone.
    """
    rate, w1, w2 = setting.rate_per_s, setting.w1_s, setting.w2_s
    sigma, join = setting.filter_selectivity, setting.join_selectivity
    return PaperCost(
        memory_rows=(2 - sigma) * rate * w1 + (1 + sigma) * rate * w2,
        probe_per_s=2 * (1 - sigma) * rate**2 * w1 + 2 * sigma * rate**2 * w2,
        purge_per_s=3 * rate,
        filter_per_s=rate,
        route_per_s=2 * sigma * rate**2 * w2 * join,
        union_per_s=2 * rate**2 * w1 * join,
    )


def state_slice_cost(setting: TwoQueries) -> PaperCost:
    """Return Equation 3: the state-slice chain [0, W1), [W1, W2) with σ between the slices.

    Rows of A that fail σ are dropped when they leave slice 1. With S = S_σ and D = W2 - W1:

    - memory: slice 1 holds 2 λ W1, slice 2 S λ D of A and λ D of B: 2 λ W1 + (1+S) λ D
    - probe: slice 1 2 λ² W1; in slice 2 S λ males of A meet λ D of B and λ males of B meet S λ D: 2 S λ² D
    - purge: 2 λ arriving rows in each of two slices: 4 λ, although only S λ rows of A reach slice 2
    - filter: σ judges every row of A between the slices, λ, and σ' judges every result of slice 1
      for Q2, 2 λ² W1 S_1
    - union: Q2 merges by the punctuations that the males of the last slice are, one per input row: 2 λ

    Args:
        setting: Rates, windows, selectivities.

    Returns:
        The cost by term; its sum is C_p.

    Source: State-Slice §4.3, Equation 3.
    """
    rate, w1, beyond = setting.rate_per_s, setting.w1_s, setting.w2_s - setting.w1_s
    sigma = setting.filter_selectivity
    return PaperCost(
        memory_rows=2 * rate * w1 + (1 + sigma) * rate * beyond,
        probe_per_s=2 * rate**2 * w1 + 2 * sigma * rate**2 * beyond,
        purge_per_s=4 * rate,
        filter_per_s=rate + 2 * rate**2 * w1 * setting.join_selectivity,
        union_per_s=2 * rate,
    )


@dataclass(frozen=True, slots=True)
class JoinLoad:
    """Load of one query that has a join of its own.

    Attributes:
        rate_a_per_s: Rows per second of a, before its filter.
        rate_b_per_s: The same of b.
        w_a_s: Window on a, seconds; ``math.inf`` for unbounded.
        w_b_s: Window on b.
        selectivity_a: Fraction of a that passes the query's filter; None for no filter.
        selectivity_b: The same of b.
        join_selectivity: Fraction of the pairs looked at that join; counts only with a residual.
        residual: Whether each joined pair is judged by a residual predicate.
    """

    rate_a_per_s: float
    rate_b_per_s: float
    w_a_s: float
    w_b_s: float
    selectivity_a: float | None = None
    selectivity_b: float | None = None
    join_selectivity: float = 0.0
    residual: bool = False


def unshared_cost(loads: Iterable[JoinLoad]) -> PaperCost:
    """Return the cost of queries that have a join each, with their filters before the join.

    The sum over queries of Equation 1's terms for one query with windows W_A, W_B and effective rates
    λ_A' = λ_A S_A, λ_B' = λ_B S_B, without router and union, which nothing shared needs:

    - memory: λ_A' W_A + λ_B' W_B
    - probe: λ_B' rows per second look at λ_A' W_A, λ_A' at λ_B' W_B: λ_A' λ_B' (W_A + W_B)
    - purge: λ_A' + λ_B'
    - filter: λ_A and λ_B where there is a filter, and every joined pair where there is a residual

    With W_A = W_B = W, equal rates and no filter this is 2 λ W rows, 2 λ² W + 2 λ comparisons: Equation 1
    before its router.

    Args:
        loads: One per query.

    Returns:
        The sum by term.

    Source: ours, from the terms of State-Slice §3.1, Equation 1. The paper draws plans without sharing
        (Figure 2) and gives no cost for them.
    """
    total = PaperCost()
    for load in loads:
        total += _join_cost(load)
    return total


def _join_cost(load: JoinLoad) -> PaperCost:
    rate_a = load.rate_a_per_s * (1.0 if load.selectivity_a is None else load.selectivity_a)
    rate_b = load.rate_b_per_s * (1.0 if load.selectivity_b is None else load.selectivity_b)
    held_a, held_b = _rows_in(rate_a, load.w_a_s), _rows_in(rate_b, load.w_b_s)
    probe = (rate_b * held_a if rate_b else 0.0) + (rate_a * held_b if rate_a else 0.0)
    judged = (0.0 if load.selectivity_a is None else load.rate_a_per_s) + (
        0.0 if load.selectivity_b is None else load.rate_b_per_s
    )
    if load.residual and load.join_selectivity:
        judged += probe * load.join_selectivity
    return PaperCost(
        memory_rows=held_a + held_b, probe_per_s=probe, purge_per_s=rate_a + rate_b, filter_per_s=judged
    )


def _rows_in(rate_per_s: float, window_s: float) -> float:
    """Return rate times window; nothing arrives in an unbounded window of a silent stream."""
    return rate_per_s * window_s if rate_per_s else 0.0


def loads_of_family(
    family: FamilyPlan,
    rate_per_s: Mapping[int, float],
    selectivity_a: Mapping[int, float],
    selectivity_b: Mapping[int, float],
    *,
    join_selectivity: float = 0.0,
    horizon_s: float = math.inf,
) -> tuple[JoinLoad, ...]:
    """Return the load of each query of a family, to ask what it would cost unshared.

    Args:
        family: The planned family.
        rate_per_s: Rows per second of event time, by stream id.
        selectivity_a: Fraction of a's rows that pass, by lineage bit.
        selectivity_b: The same for b.
        join_selectivity: Fraction of pairs that join.
        horizon_s: Seconds of event time there are: no window holds more than has come.

    Returns:
        One load per query, in the order of the family's queries.
    """

    def seconds(window_us: int) -> float:
        return min(math.inf if window_us >= UNBOUNDED_US else window_us / _US_PER_S, horizon_s)

    return tuple(
        JoinLoad(
            rate_a_per_s=rate_per_s[family.stream_a],
            rate_b_per_s=rate_per_s[family.stream_b],
            w_a_s=seconds(q.w_a_us),
            w_b_s=seconds(q.w_b_us),
            selectivity_a=None if q.filter_a is None else selectivity_a[q.filter_a],
            selectivity_b=None if q.filter_b is None else selectivity_b[q.filter_b],
            join_selectivity=join_selectivity,
            residual=q.residual is not None,
        )
        for q in family.queries
    )


def merge_difference(
    rate_per_s: float, widths_s: Sequence[float], join_selectivity: float, *, c_sys: float = 0.0
) -> Terms:
    """Return the cost of a merged slice less that of the slices it replaces, without selections.

    With k slices of widths that sum to ΔW, both sides together:

    - route: each of the 2 λ² ΔW S_1 results is compared with each of the k-1 windows that end inside: more
    - purge: 2 λ arriving rows purge k-1 slices fewer: less
    - system: 2 λ rows pass k-1 operators fewer, C_sys each: less

    Probing and memory are the same: each male meets the same rows. Slices that begin at 0 save besides one
    union for each query that ends in them beyond the first (``PaperModel`` counts it).

    Source: State-Slice §5.2, the difference of Figure 13 (a) and (b), with the sign turned and
        λ_A = λ_B = λ. For slices i to j the paper prints C_sys (j-i+1), all operators of (a). We differ: (b)
        has one operator as well, and by the paper the overhead is proportional to their number, so here it is
        C_sys (j-i).
    """
    inner = len(widths_s) - 1
    return Terms(
        purge=-2 * rate_per_s * inner,
        route=2 * rate_per_s**2 * sum(widths_s) * join_selectivity * inner,
        system=-2 * rate_per_s * c_sys * inner,
    )
