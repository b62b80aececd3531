"""Sends the same random traffic through two KV cache managers, and compares them after each call.

From the top down: :mod:`~kvoxide.vllm.verify.managers.runner` plays one scenario of
:mod:`~kvoxide.vllm.verify.managers.scenarios`. :mod:`~kvoxide.vllm.verify.managers.traffic` draws
its :mod:`~kvoxide.vllm.verify.managers.operations`. :mod:`~kvoxide.vllm.verify.managers.world` runs
them on the two :mod:`~kvoxide.vllm.verify.managers.sides` and compares the results.
:mod:`~kvoxide.vllm.verify.managers.shrink` makes a difference small enough to read.
"""
