"""Plants errors in vLLM's own code, one at a time, each in place of a function of vLLM's.

:mod:`.faults` has the errors that ``kvoxide verify`` must find. :mod:`.host_tier` and
:mod:`.host_connector` have errors for the proof's own comparisons. :mod:`.looks` has the search for
each kind. ``python -m tests.proof.planted`` prints how many calls or steps find each.
"""
