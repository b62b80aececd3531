"""Tests that need no vLLM: the Python API, bad input, replays, ``kvoxide bench``, and the parts of
the plugin that can be tested without it."""
