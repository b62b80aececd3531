"""Prepares kvoxide for a release of vLLM.

``python -m tests.release VERSION`` installs the release (:mod:`.install`), prints what changed
in the code that kvoxide re-implements or relies on (:mod:`.changes`, :mod:`.sources`), runs the
checks (:mod:`.checks`) and says what is left to do (:mod:`.left`).
docs/how-to/add-a-vllm-release.md walks through it.
"""
