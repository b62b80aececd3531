"""Block hashes of random requests that grow: the engine's hasher beside vLLM's own.

:mod:`~kvoxide.vllm.verify.hashers.drawing` draws the requests.
"""
