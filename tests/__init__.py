"""The tests, by what they need.

:mod:`.package` needs no vLLM, :mod:`.vllm` both releases, :mod:`.engine` the engine that runs
models; :mod:`.proof` compares, soaks and plants errors, in short here and at length by itself.
:mod:`.testing` is what they share. The folder that belongs on the path is the one above this one:
``tests.vllm`` must not be found as ``vllm``.
"""
