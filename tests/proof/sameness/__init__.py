"""Drives vLLM's own KVCacheManager and kvoxide's with the same traffic; compares them at each call.

``python -m tests.proof.sameness --help`` runs it at length. Top down: :mod:`.runner` plays one
:mod:`.scenario`, :mod:`.traffic` draws its :mod:`.operations`, :mod:`.world` does them to the two
:mod:`.sides` and compares what comes of it; :mod:`.shrink` makes a difference small enough to read.
"""
