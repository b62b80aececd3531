"""Serves millions of requests, and checks whether the process grows.

``python -m tests.proof.soak manager`` sends them through kvoxide's manager for vLLM,
``python -m tests.proof.soak engine`` through a running engine on the CPU. :mod:`.manager_soak` and
:mod:`.engine_soak` are these two programs. :mod:`.scheduler` plays vLLM's scheduler for the first.
:mod:`.memory` measures and judges, and :mod:`.prompts` draws the prompts.
"""
