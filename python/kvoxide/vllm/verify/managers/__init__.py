"""The same random traffic through two KV cache managers, compared after each call.

Top down: :mod:`~kvoxide.vllm.verify.managers.runner` plays one scenario of
:mod:`~kvoxide.vllm.verify.managers.scenarios`, :mod:`~kvoxide.vllm.verify.managers.traffic` draws
its :mod:`~kvoxide.vllm.verify.managers.operations`, :mod:`~kvoxide.vllm.verify.managers.world` does
them to the two :mod:`~kvoxide.vllm.verify.managers.sides` and compares what comes of it;
:mod:`~kvoxide.vllm.verify.managers.shrink` makes a difference small enough to read.
"""
