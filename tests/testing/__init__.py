"""What tests of several folders share.

:mod:`.paths` are places in this checkout; :mod:`.small` makes managers and requests that can be
worked out by hand, :mod:`.small_world` the same with vLLM's classes; :mod:`.traces` are small
traces and the command that replays them, :mod:`.bad_input` the rows of tests/bad_input.md;
:mod:`.vllm_environments` finds the vLLM releases, :mod:`.processes` starts programs and leaves
nothing of them behind.
"""
