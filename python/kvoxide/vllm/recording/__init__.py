"""``KVOXIDE_RECORD=DIR``: records the traffic of a server, so that it can be played again.

Wrapped methods of vLLM's scheduler (:mod:`~kvoxide.vllm.recording.hooks`) report each step and each
ended request to a recorder (:mod:`~kvoxide.vllm.recording.recorder`). Its thread writes lines
(:mod:`~kvoxide.vllm.recording.lines`) below a header (:mod:`~kvoxide.vllm.recording.header`) into
files (:mod:`~kvoxide.vllm.recording.files`). It works with any manager and changes nothing in it.
"""

from kvoxide.vllm.recording.hooks import take_over

__all__ = ["take_over"]
