"""The laboratory: everything that works without a running server.

- :mod:`~kvoxide.lab.verify` compares kvoxide with the installed vLLM
- :mod:`~kvoxide.lab.plan` sizes a deployment, with the runs of ``replay``
- :mod:`~kvoxide.lab.bench` measures the manager's speed
- :mod:`~kvoxide.lab.replay` plays traces
- :mod:`~kvoxide.lab.model` computes the KV cache groups and blocks of a model
- :mod:`~kvoxide.lab.options` and :mod:`~kvoxide.lab.output` are used by all commands

The laboratory imports the part of kvoxide that runs in servers (:mod:`kvoxide` and
:mod:`kvoxide.vllm`). That part never imports the laboratory: a test checks it.
"""
