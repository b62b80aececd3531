"""Sends the same random traffic through two KV cache managers, and compares them after each call.

From the top down: :mod:`~kvoxide.lab.verify.managers.runner` plays one scenario of
:mod:`~kvoxide.lab.verify.managers.scenarios`. :mod:`~kvoxide.lab.verify.managers.traffic` draws
its :mod:`~kvoxide.lab.verify.managers.operations`. :mod:`~kvoxide.lab.verify.managers.world` runs
them on the two :mod:`~kvoxide.lab.verify.managers.sides` and compares the results.
:mod:`~kvoxide.lab.verify.managers.shrink` makes a difference small enough to read.
"""
