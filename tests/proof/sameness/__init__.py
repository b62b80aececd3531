"""Compares vLLM's own KVCacheManager and kvoxide's under the same traffic, at each call.

``python -m tests.proof.sameness --help`` runs it at length. :mod:`kvoxide.lab.verify.managers`
draws the traffic. :mod:`.sides` has the managers that only this package compares.
"""
