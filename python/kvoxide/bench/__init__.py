"""Measures how long the manager's calls take, compared with vLLM's own in one process.

:mod:`~kvoxide.bench.rows` names the measurements, :mod:`~kvoxide.bench.traffic` makes the calls,
:mod:`~kvoxide.bench.clock` times them, and :mod:`~kvoxide.bench.sides` has the managers. ``kvoxide
bench`` and the regression gate in ``benches`` use this package.
"""
