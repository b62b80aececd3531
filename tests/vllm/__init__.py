"""Tests of the plugin, the adapter, the shadow and the doctor in each vLLM release.

``inside_*.py`` run with a release. :mod:`.test_in_vllm` starts each in a process of its own,
because the plugin changes vLLM's class permanently.
"""
