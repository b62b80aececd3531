"""``kvoxide plan``: the cheapest way to serve a trace within targets.

``target`` says what is asked for, ``candidate`` what could be bought and what it costs,
``verdict`` how far one is from the targets, ``room`` when a larger pool cannot matter,
``search`` plays what can matter with the runs of :mod:`kvoxide.replay`, and ``report`` shows what
came of it.
"""
