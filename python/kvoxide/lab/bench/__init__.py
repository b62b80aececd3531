"""Measures how long the manager's calls take, compared with vLLM's own in one process.

:mod:`~kvoxide.lab.bench.rows` names the measurements, :mod:`~kvoxide.lab.bench.traffic` makes the
calls, :mod:`~kvoxide.lab.bench.clock` times them, and :mod:`~kvoxide.lab.bench.sides` has the
managers. ``kvoxide bench`` and the regression gate in ``benches`` use this package.
"""
