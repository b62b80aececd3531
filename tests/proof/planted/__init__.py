"""Errors in vLLM's own code, one at a time, each put in place of a function of vLLM's.

:mod:`.faults` are those that ``kvoxide verify`` has to see, :mod:`.host_tier` and
:mod:`.host_connector` those of the proof's own comparisons, and :mod:`.looks` how each kind is
looked for. ``python -m tests.proof.planted`` prints how many calls or steps see each.
"""
