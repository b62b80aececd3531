"""Code that tests of several folders share.

:mod:`.paths` has places in this checkout. :mod:`.small` creates managers and requests that can be
worked out by hand, :mod:`.small_world` the same with vLLM's classes. :mod:`.traces` has small
traces and the command that replays them, and :mod:`.bad_input` the rows of tests/bad_input.md.
:mod:`.vllm_environments` finds the vLLM releases. :mod:`.engine_folder` makes a release that runs
models on a CPU. :mod:`.processes` starts programs and ends all of their processes.
"""
