"""Errors in vLLM's own code, one at a time, that ``kvoxide verify`` has to see.

:mod:`.faults` are the errors, each put in place of a function of vLLM's for the time of one
verification. ``python -m tests.proof.planted`` prints how many calls are needed to see each.
"""
