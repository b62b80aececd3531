"""Drives vLLM's own KVCacheManager and kvoxide's with the same traffic; compares them at each call.

``python -m tests.proof.sameness --help`` runs it at length. Top down: :mod:`.runner` plays one
scenario, :mod:`.traffic` draws its operations, :mod:`.request_operations` and
:mod:`.pool_operations` say what each one does, :mod:`.world` compares the two sides, which are in
:mod:`.vllm_driver` and :mod:`.kvoxide_driver`.
"""
