"""After how many closings the stored rows of a side are searched for dead ones, whose key is closed.

Until a search removes them, rows of the other side (males) are compared with dead rows, too:

    dead rows   rn |      /|      /|
                   |    /  |    /  |
                   |  /    |  /    |
                   |/      |/      |
                   +-------n------2n-->  closings

Let λ_p closings and λ_m males come per second, r stored rows die with each closing, and a search cost c_scan
for each of |S| stored rows. With a search after every n closings, searches cost c_scan |S| λ_p / n per
second, and r (n - 1) / 2 dead rows on average cost c_probe λ_m each. The sum is least at

    n = sqrt(2 c_scan |S| λ_p / (c_probe λ_m r))

Both rates are counted over the same time, so counts take their places. If males are merged with segments, a
male costs the same for each segment, however many rows it has. Then c_probe is that cost for all segments,
divided by |S|.
"""

from __future__ import annotations

from math import inf, sqrt

from catalog.values.policies.punctuation_policy import PurgePrices

#: A segment is rewritten if at least one in this many of its rows is dead.
WORTH_A_REWRITE = 4
#: Stored rows are searched after at least this many closings, since a search costs time for no rows, too.
LEAST_CLOSINGS = 16


def closings_until_search(
    prices: PurgePrices, rows: int, segments: int, closings: int, males: int, killed: float
) -> float:
    """Return the number of closings after which to search the rows of a side.

    This is the smaller of two numbers: the one above, and the number of closings after which enough rows may
    be dead for segments to be rewritten. Dead rows also take memory.

    Args:
        prices: Calibrated prices.
        rows: Stored rows of the side.
        segments: Segments in which they are.
        closings: Closings since the last search.
        males: Rows of the other side since then.
        killed: Stored rows that die with a closing, more than 0.
    """
    if not rows:
        return LEAST_CLOSINGS
    probing = (prices.per_probed_row + prices.per_probed_segment * segments / rows) * males * killed
    cheapest = sqrt(2 * prices.per_searched_row * rows * closings / probing) if probing else inf
    return max(LEAST_CLOSINGS, min(cheapest, rows / (WORTH_A_REWRITE * killed)))
