"""Comparisons that can run at length. :mod:`.sameness` compares with vLLM's manager, and
:mod:`.scheduler` runs vLLM's scheduler over both managers. :mod:`.planted` shows which errors a
verification finds, and :mod:`.mutations` which errors the core's tests catch. :mod:`.soak` measures
memory. :mod:`.conformance` runs vLLM's own tests.

The ``test_*.py`` in these folders are a short run of each.
"""
