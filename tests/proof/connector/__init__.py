"""vLLM's own scheduler and offloading connector twice: through vLLM's methods and kvoxide's.

:mod:`.scenario` is how both sides are configured, :mod:`.memory` what the blocks of a GPU hold,
:mod:`.worker` the made workers whose transfers copy and check that, :mod:`.world` one side, and
:mod:`.comparison` the traffic of both and what is compared. ``python -m tests.proof.connector
--help`` runs them at length.
"""
