"""``kvoxide verify``: sends random traffic to kvoxide and to the installed vLLM's own classes, and
compares them.

:mod:`~kvoxide.vllm.verify.process` starts a process of its own. That process
(:mod:`~kvoxide.vllm.verify.__main__`) checks that it compares with vLLM's own code
(:mod:`~kvoxide.vllm.verify.reference`). Then it runs a :mod:`~kvoxide.vllm.verify.verification` and
prints the result. There are three suites: the :mod:`~kvoxide.vllm.verify.managers`, vLLM's
:mod:`~kvoxide.vllm.verify.schedulers` over them, and the :mod:`~kvoxide.vllm.verify.hashers` of
blocks. The project's own proof plays the same traffic at length.
"""

from kvoxide.vllm.verify.process import verify

__all__ = ["verify"]
