"""Runs vLLM's own scheduler over vLLM's manager and over kvoxide's, on the same requests, step by
step.

A :mod:`~kvoxide.vllm.verify.schedulers.plan` has a model's groups and a server's settings.
:mod:`~kvoxide.vllm.verify.schedulers.comparison` runs two schedulers of one plan. Each is a
:mod:`~kvoxide.vllm.verify.schedulers.side`.
"""
