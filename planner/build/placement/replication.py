"""Number of buckets over which the rows of each key spread (fragment-and-replicate).

    hash        one bucket per key                            suits many keys
    replicate   all buckets for every key                     does not depend on statistics
    auto        more buckets for keys with more work          suits few or skewed keys

``auto`` predicts the work of each bucket, placing the keys by the hash that the job uses:

    work of a key in each of its f buckets  =  (stored rows + pairs) / f  +  male copies of all its rows

The last term is the cost of replication. The work of a key in one bucket is limited to a fraction of a
bucket's mean work. Several limits are tried, from no limit down to 1/32 of the mean; the limit that leaves
the hottest bucket the least work is chosen. All keys that are not frequent are assumed to spread evenly over
the buckets.

The State-Slice paper does not replicate, but its male (probing) and female (stored) copies of a row (§4.2)
make replication possible; see ``operators.kernels.fragments``.

With every setting, the number of buckets of a key (its fragments) only grows with new plan versions
(``catalog.values.plan.Replication``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from catalog.steps import is_exchanged, is_intermediate, makers
from catalog.values.plan import ALL_BUCKETS, FamilyPlan, Partitioning, Plan, Replication
from catalog.values.stream import Stream
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.rates import FamilyRates, Floats
from planner.errors import UnsupportedCql
from planner.families.families import SIDES, Family, family_streams, is_theta, side_window_us

HASHED = Replication()

#: Nothing is replicated if the hottest bucket has at most this many times the mean work. A lower limit would
#: add copies only to even out random differences.
EVEN = 1.2
#: Limits that are tried for the work of one key in one bucket, as fractions of a bucket's mean work.
PARTS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
#: More copies are chosen only if they reduce the work of the hottest bucket by more than this factor.
WORTH = 1.05
#: CPU seconds of a row in the bucket that stores it, of a male copy in each bucket, and of a pair with three
#: columns.
_ROW_S = SHIPPED.per_inserted_row
_COPY_S = SHIPPED.per_packed_row
_PAIR_S = SHIPPED.per_match + SHIPPED.per_result + 3 * SHIPPED.per_result_value

_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


def asked_replication(
    partitioning: Partitioning, family: Family, rates: FamilyRates, *, choose: bool
) -> Replication:
    """Return the replication that a user or the planner requests.

    Args:
        partitioning: The partitioning setting: ``hash``, ``replicate`` or ``auto``.
        family: The family.
        rates: Known or assumed rates of the family.
        choose: Whether the planner may choose under ``auto``; otherwise it requests one bucket per key.
    """
    if family.spreads:
        return Replication(ALL_BUCKETS)
    if any(q.kind != "inner" or q.grouping is not None for q in family.queries):
        # One bucket must have all partners of a row, to aggregate them or to find that the row has none.
        return HASHED
    if partitioning == "replicate" or is_theta(family.id):
        return Replication(ALL_BUCKETS)  # without a key any row may join any other
    return chosen_replication(family, rates) if partitioning == "auto" and choose else HASHED


def chosen_replication(family: Family | FamilyPlan, rates: FamilyRates) -> Replication:
    """Return the number of buckets of each key that balances the work of the buckets.

    Args:
        family: The family.
        rates: Known or assumed rates of the family; if no key is frequent, each key has one bucket.
    """
    work = KeyWork.of(family, rates)
    hashed = np.ones(len(rates.frequent), dtype=np.int64)
    even_s = float(work.loads(hashed).mean())
    if work.loads(hashed).max() <= EVEN * even_s:
        return HASHED
    tried = [hashed]
    tried += [
        np.clip(np.ceil(work.shared / (part * even_s)), 1, rates.buckets).astype(np.int64) for part in PARTS
    ]
    hottest = [float(work.loads(fragments).max()) for fragments in tried]
    # The choices are ordered by their number of copies, so the first sufficient one has the fewest.
    fragments = next(f for f, load in zip(tried, hottest, strict=True) if load <= WORTH * min(hottest))
    heavy = [(k.key, int(f)) for k, f in zip(rates.frequent, fragments, strict=True) if f > 1]
    return Replication(1, tuple(sorted(heavy)))


def predicted_imbalance(family: Family | FamilyPlan, rates: FamilyRates, replication: Replication) -> float:
    """Return the predicted work of the hottest bucket divided by the mean; 1 if no keys are known."""
    given = dict(replication.heavy)
    fragments = [min(given.get(k.key, replication.every), rates.buckets) for k in rates.frequent]
    loads = KeyWork.of(family, rates).loads(np.array(fragments, dtype=np.int64))
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class KeyWork:
    """Predicted CPU seconds, per second of event time, of each frequent key and of all other keys together.

    Attributes:
        rest_s: CPU seconds of all keys that are not frequent, per bucket.
        home: int64[m], first bucket of each frequent key.
        shared: float64[m], CPU seconds of each frequent key that are divided among its buckets.
        copies: float64[m], CPU seconds of each frequent key that each of its buckets repeats.
        buckets: Number of buckets.
    """

    rest_s: float
    home: _Ints
    shared: Floats
    copies: Floats
    buckets: int

    @classmethod
    def of(cls, family: Family | FamilyPlan, rates: FamilyRates) -> KeyWork:
        """Return the predicted work of a family's keys."""
        queries = family.queries
        passing_a = rates.a.rate.value * rates.a.passing_any([q.filter_a for q in queries])
        passing_b = rates.b.rate.value * rates.b.passing_any([q.filter_b for q in queries])
        window_s = sum(rates.seconds(max(side_window_us(q, side) for q in queries), side) for side in SIDES)
        a = np.array([passing_a * key.share_a for key in rates.frequent])
        b = np.array([passing_b * key.share_b for key in rates.frequent])
        all_pairs = passing_a * passing_b * window_s * rates.join_selectivity.value
        rest_pairs = max(all_pairs - float((a * b).sum()) * window_s, 0.0)
        rest_rows = max(passing_a + passing_b - float((a + b).sum()), 0.0)
        return cls(
            rest_s=(rest_rows * (_ROW_S + _COPY_S) + rest_pairs * _PAIR_S) / rates.buckets,
            home=np.array([key.hash % rates.buckets for key in rates.frequent], dtype=np.int64),
            shared=(a + b) * _ROW_S + a * b * window_s * _PAIR_S,
            copies=(a + b) * _COPY_S,
            buckets=rates.buckets,
        )

    def loads(self, fragments: _Ints) -> Floats:
        """Return the CPU seconds of each bucket per second of event time, float64[buckets].

        Args:
            fragments: int64[m], number of buckets of each frequent key.
        """
        loads = np.full(self.buckets, self.rest_s)
        key = np.repeat(np.arange(len(fragments)), fragments)
        nth = np.arange(len(key)) - np.repeat(np.cumsum(fragments) - fragments, fragments)
        np.add.at(loads, (self.home[key] + nth) % self.buckets, (self.shared / fragments + self.copies)[key])
        return loads


def former_replications(previous: Plan | None) -> Mapping[str, Replication]:
    """Return the replications of the previous plan, by family id; hashed families may be missing."""
    return {} if previous is None else previous.replications()


def departed_replications(
    former: Mapping[str, Replication], present: Collection[str], streams: Collection[Stream]
) -> tuple[tuple[str, Replication], ...]:
    """Return the replications of families without queries, kept in case these families return.

    Args:
        former: Replications of the previous plan, by family id (``former_replications``).
        present: Ids of the families that have queries.
        streams: Streams of the plan; a family over a stream that is not among them cannot come back, so its
            replication is not kept.
    """
    flowing = {stream.id for stream in streams}
    return tuple(
        (family, former[family])
        for family in sorted(former)
        if family not in present and flowing.issuperset(family_streams(family))
    )


def refuse_spread_pairs(families: Sequence[FamilyPlan]) -> None:
    """Refuse a step that joins pairs with pairs, if rows of one key are in several buckets.

    Pairs stay in the bucket that makes them, so some pairs with equal keys would not meet.

    Args:
        families: Families of the next plan.

    Raises:
        UnsupportedCql: A step of the plan joins pairs with pairs, and rows of one key are in several buckets.
    """
    for family, _ in spread_pairs(families):
        raise UnsupportedCql(
            f'query "{family.queries[0].name}" joins pairs with pairs, and rows of a key are in several '
            "buckets",
            detail="A key that has spread over several buckets stays spread, so some pairs would not meet.",
            hint="Leave TREE out, or name a tree that adds one stream after the other: "
            "TREE (((a, b), c), d).",
        )


def spread_pairs(families: Sequence[FamilyPlan]) -> Iterator[tuple[FamilyPlan, FamilyPlan]]:
    """Yield each family that joins pairs with pairs, although rows of one key are in several buckets.

    The second family of each tuple spreads the rows of a key over several buckets. It is the first family
    itself, or a family that passes its pairs to the first family without an exchange between buckets.
    """
    joining = [family for family in families if is_intermediate(family.stream_b)]
    made_in = makers(families) if joining else {}
    for family in joining:
        staying = [made_in[i] for i in (family.stream_a, family.stream_b) if not is_exchanged(i)]
        yield from ((family, each) for each in (family, *staying) if each.replication.replicates)
