"""Parse the option that says where runs are done."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from kvoxide._core import ConfigError
from kvoxide._install_hints import with_extra
from kvoxide.lab.replay.run.execution.interface import Executor
from kvoxide.lab.replay.run.execution.local import Local

_RAY: Final = "ray"
_ADDRESS: Final = re.compile(r"(?:ray://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(?P<port>\d{1,5})")
_MAX_PORT: Final = 65_535


@dataclass(frozen=True)
class Place:
    """A Ray cluster.

    ``address`` is ``ray://HOST:PORT`` for a cluster's client server, ``HOST:PORT`` for the cluster
    that this machine is a node of; None for the one that Ray finds or starts here.
    """

    address: str | None


def parse_place(text: str) -> Place:
    """Read ``ray``, ``ray://HOST:PORT`` or ``HOST:PORT``.

    Raises :class:`~kvoxide._core.ConfigError` for anything else, and where Ray is not installed.
    """
    match = _ADDRESS.fullmatch(text)
    if text != _RAY and (match is None or not 0 < int(match["port"]) <= _MAX_PORT):
        raise ConfigError(
            f"{text!r} is not the address of a cluster; write ray, ray://HOST:PORT or HOST:PORT"
        )
    if find_spec("ray") is None:
        raise ConfigError(f"a cluster needs Ray; {with_extra('ray')}")
    return Place(None if text == _RAY else text)


@contextmanager
def executor_at(place: Place | None) -> Iterator[Executor]:
    """The executor of a place, None for this machine, which is left with the block.

    Raises :class:`~kvoxide.lab.replay.run.execution.Incomplete` if a cluster cannot be joined.
    """
    if place is None:
        yield Local()
        return
    # Ray takes a second to import, and need not be there.
    from kvoxide.lab.replay.run.execution.cluster import joined
    from kvoxide.lab.replay.run.execution.on_ray import OnRay

    with joined(place.address) as cluster:
        yield OnRay(cluster)
