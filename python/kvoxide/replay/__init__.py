"""The ``kvoxide`` command: traces in, tables, plots and JSON out.

The scheduler model and every decision are Rust's (:class:`kvoxide._core.Simulation`); the modules
here read traces, start simulations on all cores and show what came of them.
"""
