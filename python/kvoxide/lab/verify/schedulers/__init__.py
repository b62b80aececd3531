"""Runs vLLM's own scheduler over vLLM's manager and over kvoxide's, on the same requests, step by
step.

A :mod:`~kvoxide.lab.verify.schedulers.plan` has a model's groups and a server's settings.
:mod:`~kvoxide.lab.verify.schedulers.comparison` runs two schedulers of one plan. Each is a
:mod:`~kvoxide.lab.verify.schedulers.side`.
"""
