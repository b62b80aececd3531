"""Compares kvoxide's plans of models with vLLM's own: the same groups, bytes per block and
blocks.

``configs`` are configurations with published sizes. ``asking`` lets vLLM build each model as
``kvoxide.lab.model.from_vllm`` does, and plan its cache. ``python -m tests.vllm.models`` records
its answers.
"""
