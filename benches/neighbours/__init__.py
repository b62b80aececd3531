"""What vLLM's neighbours of the manager (connectors, routers, schedulers) see of it, and how fast:
stock and kvoxide in turns.

Each module measures one neighbour and yields :class:`~benches.neighbours.measured.Measured` rows.
"""
