"""Times whole steps of vLLM's own scheduler with its own offloading connector, with vLLM's block
manager and with kvoxide's.

``python -m benches.scheduler_steps LAYOUT`` runs both in turns. In the order of its layers: each
module imports only modules above it.

- ``sizes``: the sizes of a run.
- ``phases``: the names of the phases, and the figures of one phase.
- ``server``: vLLM's scheduler and connector, and a simulated worker.
- ``traffic``: the requests of each phase.
- ``side``: the process of one side.
- ``turns``: both processes, phase by phase.
"""
