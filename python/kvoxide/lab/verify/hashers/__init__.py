"""Block hashes of random requests that grow: compares the engine's hasher with vLLM's own.

:mod:`~kvoxide.lab.verify.hashers.drawing` draws the requests.
"""
