"""Hit share over a quantity, one curve per policy: what the tables and the plots both show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvoxide.replay.policies import UNLIMITED
from kvoxide.replay.runner import Outcome


@dataclass(frozen=True)
class HitShares:
    """Hit shares (0 to 1) per policy, in the order of ``xs``; ``x_name`` says what those are."""

    x_name: str
    xs: list[int]
    by_policy: dict[str, list[float]]


def over_pool_size(outcomes: Sequence[Outcome]) -> HitShares:
    """Hit share over the pool size in blocks; the unlimited pool's is the same for all sizes."""
    sizes = sorted({o.run.blocks for o in outcomes if o.run.blocks is not None})
    shares = {(o.run.policy.name, o.run.blocks): o.hit_share for o in outcomes}
    names = dict.fromkeys(o.run.policy.name for o in outcomes)
    by_policy = {
        name: [shares[name, None if name == UNLIMITED else size] for size in sizes]
        for name in names
    }
    return HitShares("pool size in blocks", sizes, by_policy)


def over_quantity(
    outcomes: Sequence[Outcome], quantity: Callable[[Outcome], int], x_name: str
) -> HitShares:
    """Hit share over ``quantity``, which every policy and the unlimited pool have runs for."""
    xs = list(dict.fromkeys(map(quantity, outcomes)))
    by_policy: dict[str, list[float]] = {}
    for outcome in outcomes:
        shares = by_policy.setdefault(outcome.run.policy.name, [0.0] * len(xs))
        shares[xs.index(quantity(outcome))] = outcome.hit_share
    return HitShares(x_name, xs, by_policy)
