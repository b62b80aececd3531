"""Define the commands ``kvoxide replay``, ``experiment`` and ``formats``.

:mod:`kvoxide.cli` imports the module of a command when it is called. Nothing else imports this
room.
"""
