"""Measures the calls that vLLM's connectors, routers and schedulers make on the manager, with
vLLM's manager and kvoxide's in turns.

Each module measures one such user and yields :class:`~benches.neighbours.measured.Measured` rows.
"""
