"""Runs vLLM's own tests on kvoxide's manager. Every test that passes on vLLM's has to pass.

``python -m tests.proof.conformance FOLDER``, with a folder of vLLM's sources, runs them.
``constructions.py`` is the pytest plugin that notes which manager each test constructed. It is
loaded by its own name, because vLLM's tests are a package ``tests`` too.
"""
