"""The commands ``kvoxide replay``, ``experiment`` and ``formats``: traces in, results out.

All decisions and the scheduler model are in Rust (:class:`kvoxide._core.Simulation`). The code here
has seven rooms. A room is a package, and the names in its ``__init__.py`` are its door: other code
imports from the door only. Rooms import only from rooms further down in this list:

- :mod:`~kvoxide.lab.replay.cli`: the commands
- :mod:`~kvoxide.lab.replay.page`: the page of ``--html``
- :mod:`~kvoxide.lab.replay.results`: tables, plots, JSON values, and the files that contain them
- :mod:`~kvoxide.lab.replay.run`: simulations, here or on a Ray cluster, and their outcomes
- :mod:`~kvoxide.lab.replay.setup`: options and the settings that they become
- :mod:`~kvoxide.lab.replay.serving`: step times, fits and routers
- :mod:`~kvoxide.lab.replay.input`: traces, recordings, groups and policies
"""
