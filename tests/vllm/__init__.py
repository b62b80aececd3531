"""The plugin, the adapter, the shadow and the doctor in each vLLM release.

``inside_*.py`` run with a release, each in a process of its own, which :mod:`.test_in_vllm` starts:
the plugin changes vLLM's class for good.
"""
