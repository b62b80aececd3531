"""``kvoxide verify``: sends random traffic to kvoxide and to the installed vLLM's own classes, and
compares them.

:mod:`~kvoxide.lab.verify.process` starts a process of its own. That process
(:mod:`~kvoxide.lab.verify.__main__`) checks that it compares with vLLM's own code
(:mod:`~kvoxide.lab.verify.reference`). Then it runs a :mod:`~kvoxide.lab.verify.verification` and
prints the result. There are three suites: the :mod:`~kvoxide.lab.verify.managers`, vLLM's
:mod:`~kvoxide.lab.verify.schedulers` over them, and the :mod:`~kvoxide.lab.verify.hashers` of
blocks. The project's own proof plays the same traffic at length.
"""

from kvoxide.lab.verify.process import verify

__all__ = ["verify"]
