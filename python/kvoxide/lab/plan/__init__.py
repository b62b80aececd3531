"""``kvoxide plan``: the cheapest way to serve a trace within targets.

``target`` reads the targets. ``candidate`` lists the combinations that can be bought, with their
cost. ``verdict`` measures how far a candidate is from the targets. ``spare_capacity`` decides when
a larger pool cannot matter. ``search`` plays the candidates that can matter, with the runs of
:mod:`kvoxide.lab.replay`. ``report`` shows the results.
"""
