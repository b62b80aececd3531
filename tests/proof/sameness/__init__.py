"""vLLM's own KVCacheManager and kvoxide's under the same traffic, compared at each call.

``python -m tests.proof.sameness --help`` runs it at length. The traffic is that of
:mod:`kvoxide.vllm.verify.managers`; :mod:`.sides` are the managers that only this compares.
"""
