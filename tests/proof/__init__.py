"""What can be run at length: :mod:`.sameness` with vLLM's manager, :mod:`.scheduler` with its
scheduler over both managers, :mod:`.planted` for what a verification sees, :mod:`.soak` for memory,
:mod:`.mutations` for the tests of the core, :mod:`.conformance` with vLLM's own tests.

The ``test_*.py`` in here are a short run of each.
"""
