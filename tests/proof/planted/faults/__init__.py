"""The errors, grouped by the part of vLLM that they are in."""

from . import blocks, coordinators, groups, hashes, managers, states

FAULTS = {
    fault.name: fault
    for module in (managers, coordinators, groups, states, blocks, hashes)
    for faults in module.AREAS
    for fault in faults.all
}

__all__ = ["FAULTS"]
