"""Serves requests by the million and looks whether the process grows.

``python -m tests.proof.soak manager`` sends them through kvoxide's manager for vLLM, ``python -m
tests.proof.soak engine`` through a running engine on the CPU. Top down: :mod:`.manager_soak` and
:mod:`.engine_soak` are the two, :mod:`.scheduler` plays vLLM's scheduler for the first,
:mod:`.memory` measures and judges, :mod:`.prompts` draws what is served.
"""
