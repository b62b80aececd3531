"""Runs vLLM's own scheduler over vLLM's manager and over kvoxide's, on the same requests, step by
step.

Run ``python -m tests.proof.scheduler --help``. A difference is printed with the seed of its plan
and the number of its step. Together they reproduce it.
"""
