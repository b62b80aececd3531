"""What needs no vLLM: the Python API, bad input, replays, ``kvoxide bench``, and of the plugin what
can be told without one."""
