"""The paper's cost model for any kind of join: comparisons per second, summed over slices and terms.

Cost of a slice of side a; for a slice of side b, swap a and b. λ_b' is the rate of males of b that enter the
join, λ_b'' is the rate of males of b that can serve a query of the slice, and R is the number of rows of a
that the slice holds:

    probe    λ_b'' R              nested loops: every male is compared with every row held
    purge    λ_b'                 each male purges once per slice, even if no query there needs it: see Eq. 3
    filter   rows that move on to a slice with another filter, and rows that enter a first slice with a filter
             + pairs times the selections to test on them: selections of queries that reach the slice, except
             selections that all rows of the slice have passed
    route    pairs times the windows that end inside the slice (merged slices, §5.2)
    union    λ_b' per query whose window ends in the slice, unless it is the first slice: males of a query's
             last slice are the punctuations by which its union merges
    system   C_sys λ_b'           §5.2

Costs outside the slices: splitting a stream costs one comparison per row and distinct filter. The filters of
a query's own join cost one comparison per row. Merging the pairs of several joins for a query costs one
comparison per pair.

How Equations 1-3 follow, for Q1: A[W1] join B[W1] and Q2: σ(A)[W2] join B[W2], rates λ, S = S_σ and
D = W2 - W1:

    Eq. 1, one slice per side of W2, unfiltered: probe 2 λ λ W2; purge 2 λ; pairs 2 λ² W2 S_1, each compared
        with W1 (route) and tested with σ for Q2 (filter).
    Eq. 2, joins p1 (rows that fail σ, W1, males (1-S) λ and λ) and p2 (rows that pass, W2, males S λ and λ):
        probe 2 (1-S) λ² W1 + 2 S λ² W2; purge (1-S) λ + λ + S λ + λ = 3 λ; split λ (filter); p2's pairs
        2 S λ² W2 S_1 compared with W1 (route); Q1's pairs from both joins, 2 λ² W1 S_1, merged (union).
    Eq. 3, slices [0, W1), [W1, W2): the second holds S λ D of A and λ D of B, probed by λ and S λ males:
        probe 2 λ² W1 + 2 S λ² D. The paper charges 4 λ for purging, λ per slice and side, although only S λ
        rows of A reach the second slice. σ is tested on the rows of A that leave slice 1, λ. σ' is tested for
        Q2 on the pairs of slice 1, 2 λ² W1 S_1; all pairs of slice 2 have passed it already (filter). Q2
        alone has two slices: union 2 λ.

Extensions of the paper: both sides have their own windows, rates and filters. A selection is counted once per
pair and distinct filter, up to the largest window of the queries with this filter. A residual costs one
comparison per pair on which it is tested. §6.2 has no formula. It says that a slice merged across a selection
holds and probes more rows, which the terms above count.

Differences from §5.2: merging k slices saves the overhead of k - 1 operators, but the paper prints k
(``merge_difference`` in ``tests/planner/costs/paper.py``). Merging the first slices saves unions: a query
whose slices are merged into one slice needs no union, as in Equation 1. The paper says that the costs of
unions stay the same.

Source: State-Slice (VLDB 2006) §3.1 Eq. 1, §3.2 Eq. 2 (as ``tests/planner/costs/paper.py`` derives it), §4.3
    Eq. 3, §5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.costs.cost import JoinInput, SliceLoad, Terms, VerdictLoad


@dataclass(frozen=True, slots=True)
class PaperModel:
    """The paper's cost model, which prices loads in comparisons per second.

    Attributes:
        c_sys: The paper's C_sys: system overhead of an operator, in comparisons per row that passes it.
    """

    c_sys: float = 0.0

    def __post_init__(self) -> None:
        if not self.c_sys >= 0:
            raise ValueError(f"c_sys is {self.c_sys}, but must not be negative")

    def slice_terms(self, load: SliceLoad) -> Terms:
        """Return the cost of a slice."""
        return Terms(
            probe=load.candidates_per_s,
            purge=load.chain_males_per_s,
            route=load.matches_per_s * load.boundaries,
            union=load.unions * load.chain_males_per_s,
            filter=load.judged_per_s + load.judged_results_per_s,
            system=self.c_sys * load.chain_males_per_s,
        )

    def input_terms(self, load: JoinInput) -> Terms:
        """Return the cost of a family's work before and after its slices."""
        return Terms(filter=load.split_per_s + load.private_filters_per_s, union=load.merged_per_s)

    def verdict_terms(self, load: VerdictLoad) -> Terms:
        """Return the cost of the verdicts on rows: one comparison for each verdict and one for each mark."""
        return Terms(purge=load.verdicts_per_s, route=load.marks_per_s)
