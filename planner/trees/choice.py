"""Choice of the order in which a query joins its streams: the order with the lowest estimated cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catalog.values.calibration import Calibration
from catalog.values.plan import Plan
from catalog.values.query import Query
from catalog.values.statistics import Profile
from planner.bind.keys.step_keys import Joining, JoinShape
from planner.trees.join_order import JoinOrder
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates, pair_queries
from planner.trees.orders import best_orders


@dataclass(frozen=True, slots=True)
class RankedOrders:
    """Orders of one query, the chosen one first.

    Attributes:
        shape: Shape of the query.
        orders: The cheapest orders, best first.
    """

    shape: JoinShape
    orders: tuple[JoinOrder, ...]


@dataclass(slots=True)
class OrderChoice:
    """Chooser of join orders (``planner.bind.keys.step_keys.ChooseOrder``) that remembers the last ranking.

    Attributes:
        profile: Returns the known statistics of the streams, filters and keys of given queries.
        constants: Calibrated constants of the machine.
        previous: Current plan, whose steps a query can share, or None if there is no plan.
        last: Orders of the last query, or None before the first query.
    """

    profile: Callable[[Sequence[Query]], Profile]
    constants: Calibration
    previous: Plan | None = None
    last: RankedOrders | None = field(default=None, init=False)

    def __call__(self, shape: JoinShape) -> Joining:
        """Return the cheapest order in which the streams can be joined."""
        rates = OrderRates.of(shape, self.profile(pair_queries(shape)))
        self.last = RankedOrders(shape, best_orders(OrderCosts(rates, self.constants, self.previous)))
        return self.last.orders[0].joining
