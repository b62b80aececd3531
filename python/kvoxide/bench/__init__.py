"""How long the manager's calls take, side by side with vLLM's own in one process.

:mod:`~kvoxide.bench.rows` names what is measured, :mod:`~kvoxide.bench.traffic` makes the calls,
:mod:`~kvoxide.bench.clock` times them, :mod:`~kvoxide.bench.sides` are the managers.
``kvoxide bench`` and the regression gate in ``benches`` are two users of it.
"""
