"""The tests, grouped by what they need.

:mod:`.package` needs no vLLM, :mod:`.vllm` both releases, and :mod:`.engine` the engine that runs
models. :mod:`.proof` compares, soaks and plants errors, in short here and at length by itself.
:mod:`.testing` has the code that they share. The folder that belongs on the path is the parent of
this one: ``tests.vllm`` must not be found as ``vllm``.
"""
