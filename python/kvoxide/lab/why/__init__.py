"""``kvoxide why``: explains why the prompts of a recording were hit or not.

- :mod:`~kvoxide.lab.why.command` is the command
- :mod:`~kvoxide.lab.why.report` prints the explanation and writes it as JSON
- :mod:`~kvoxide.lab.why.summary` adds up outcomes and finds the largest losses
- :mod:`~kvoxide.lab.why.selection` selects requests by number or time
- :mod:`~kvoxide.lab.why.explained` reads a recording and replays the requests without outcomes
"""
