"""Combinations that can be bought: memory, instances, a router and a policy, and their cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from kvoxide._core import ConfigError
from kvoxide.lab.replay.input import Host, NamedPolicy
from kvoxide.lab.replay.setup import Router, ServedModel

ONE_INSTANCE: Final[Router] = ("round-robin", {})

Cost: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Candidate:
    """A combination. ``gpus`` counts the GPUs of all instances. ``memory`` is in bytes per GPU.
    ``blocks`` is the number of blocks in each instance. ``router`` is the user's text, "-" for one
    instance. ``host`` is the CPU memory of each instance, or None."""

    gpus: int
    memory: int
    blocks: int
    instances: int
    router: str
    routing: Router
    policy: NamedPolicy
    host: Host | None = None

    @property
    def host_bytes(self) -> int:
        """The CPU memory of each instance in bytes."""
        return 0 if self.host is None else self.host.num_bytes

    @property
    def cost(self) -> Cost:
        """The number of GPUs, then the memory of each, then the CPU memory: a smaller tuple costs
        less."""
        return (self.gpus, self.memory, self.host_bytes)

    @property
    def but_memory(self) -> tuple[int, str, str, str]:
        """Everything but the GPU memory. Candidates with an equal value differ in it alone."""
        host = "" if self.host is None else self.host.name
        return (self.instances, self.router, self.policy.name, host)

    @property
    def but_host_memory(self) -> tuple[int, int, str, str, str]:
        """Everything but the size of the CPU memory. Candidates with an equal value differ in it
        alone."""
        order = "" if self.host is None else self.host.memory.eviction_policy
        return (self.memory, self.instances, self.router, self.policy.name, order)

    @property
    def title(self) -> str:
        """The combination in words."""
        instances = "1 instance"
        if self.instances > 1:
            instances = f"{self.instances} instances with router {self.router}"
        host = "" if self.host is None else f", CPU memory {self.host.name}"
        return f"{instances}, {gib(self.memory)} on each GPU, {self.policy.name}{host}"


def candidates(
    pools: Sequence[tuple[int, int]],
    instances: Sequence[int],
    routers: Sequence[tuple[str, Router]],
    policies: Sequence[NamedPolicy],
    gpus_per_instance: int,
    hosts: Sequence[Host | None] = (None,),
) -> list[Candidate]:
    """Return all combinations, the cheapest first. ``pools`` pairs memories in bytes with the
    blocks that each holds. A single instance has no router. ``hosts`` are the CPU memories of an
    instance, None for none."""
    one: Sequence[tuple[str, Router]] = [("-", ONE_INSTANCE)]
    found = [
        Candidate(gpus_per_instance * count, memory, blocks, count, name, routing, policy, host)
        for count, (memory, blocks) in product(instances, pools)
        for name, routing in (routers if count > 1 else one)
        for policy in policies
        for host in hosts
    ]
    # The sort is stable: of the same cost, combinations that the user named first come first.
    return sorted(found, key=lambda candidate: candidate.cost)


@dataclass(frozen=True)
class Refusal:
    """A memory in bytes with which vLLM would not start, and why."""

    memory: int
    reason: str


def pools_of(served: ServedModel) -> tuple[list[tuple[int, int]], tuple[Refusal, ...]]:
    """Return the memories of a model in bytes with the blocks that each holds, and the memories
    with which vLLM would not start. Raises :class:`~kvoxide._core.ConfigError` if vLLM would start
    with none of them."""
    pools, refusals = [], []
    for memory in served.memories:
        try:
            pools.append((memory, served.plan.num_blocks(memory)))
        except ConfigError as error:
            if memory == served.memories[-1] and not pools:
                raise
            refusals.append(Refusal(memory, str(error)))
    return pools, tuple(refusals)


def gpus_of(served: ServedModel) -> int:
    """Return how many GPUs one instance has."""
    deployment = served.plan.deployment
    return deployment.tensor_parallel * deployment.pipeline_parallel


def gib(memory: int) -> str:
    """Return bytes as GiB in words."""
    return f"{memory / 2**30:,.2f}".rstrip("0").rstrip(".") + " GiB"
