"""Runs vLLM's own scheduler and offloading connector twice: with vLLM's methods and with kvoxide's.

:mod:`.scenario` configures both sides. :mod:`.memory` has the content of the blocks of a GPU.
:mod:`.worker` has the simulated workers, whose transfers copy and check that content. :mod:`.world`
is one side. :mod:`.comparison` has the traffic of both sides and compares them.
``python -m tests.proof.connector --help`` runs them at length.
"""
