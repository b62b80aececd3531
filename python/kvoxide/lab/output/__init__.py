"""The output of all commands of the laboratory.

- :mod:`~kvoxide.lab.output.options` defines the options that name result files
- :mod:`~kvoxide.lab.output.files` writes result files
- :mod:`~kvoxide.lab.output.figures` creates and saves plots
- :mod:`~kvoxide.lab.output.colours` has the colours of plots and pages
- :mod:`~kvoxide.lab.output.tables` prints tables
"""
