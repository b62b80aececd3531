"""Plan the runs of a comparison, and check that groups, policies and pools go together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import click

from kvoxide._core import (
    ConfigError,
    Trace,
)
from kvoxide.lab.replay.input import EVERY_TAIL, UNLIMITED, Host, NamedPolicy, parse_policy
from kvoxide.lab.replay.run.outcome import Run
from kvoxide.lab.replay.run.workload import Workload


def plan_runs(
    workload: Workload,
    policies: Sequence[NamedPolicy],
    pool_sizes: Sequence[int],
    hosts: Sequence[Host | None] = (None,),
) -> list[Run]:
    """Every policy in every pool (sizes in blocks) with every CPU memory, and the pool that never
    evicts. For each size of CPU memory there is also one pool of both sizes."""
    runs = []
    for policy in policies:
        for host in hosts:
            runs += [Run(workload, policy, blocks, host) for blocks in pool_sizes]
        found = (host for host in hosts if host is not None)
        by_size = {host.memory.num_chunks: host.without_policy() for host in found}
        for host in by_size.values():
            runs += [Run(workload, policy, blocks, host, is_joined=True) for blocks in pool_sizes]
    # In a pool that never evicts, the most is hit if every tail is kept.
    unlimited = replace(parse_policy(EVERY_TAIL), name=UNLIMITED)
    runs.append(Run(workload, unlimited, None))
    for _ in runs:
        workload.trace.add_user()
    return runs


def playable_policies(runs: Iterable[Run]) -> tuple[tuple[NamedPolicy, ...], tuple[str, ...]]:
    """Returns the policies of runs that go together with all their groups and pools, and why the
    others are left out, which lines on standard error say too.

    Raises :class:`~kvoxide._core.ConfigError` if no policy is left.
    """
    policies: dict[str, NamedPolicy] = {}
    refused: dict[str, ConfigError] = {}
    for run in runs:
        policies[run.policy.name] = run.policy
        try:
            check_run(run)
        except ConfigError as error:
            refused.setdefault(run.policy.name, error)
    playable = tuple(policy for name, policy in policies.items() if name not in refused)
    if refused and not playable:
        raise next(iter(refused.values()))
    left_out = tuple(f"{why}; this policy is left out" for why in refused.values())
    for why in left_out:
        click.echo(why, err=True)
    return playable, left_out


def check_run(run: Run) -> None:
    """Find out whether groups, policy and pool go together, by a run of one token.

    Raises :class:`~kvoxide._core.ConfigError` that names the policy.
    """
    trace = Trace()
    trace.start_part(instance=0)
    trace.push_prompt([0], 1, arrival=0.0)
    try:
        run.simulation(trace).run()
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"policy {run.policy.name!r}: {error}") from error
