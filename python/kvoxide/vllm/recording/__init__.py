"""``KVOXIDE_RECORD=DIR``: the traffic of a server, written down so that it can be played again.

vLLM's scheduler tells of each request that ends and of each step
(:mod:`~kvoxide.vllm.recording.hooks`) to a recorder (:mod:`~kvoxide.vllm.recording.recorder`),
whose thread makes lines (:mod:`~kvoxide.vllm.recording.lines`) below a header
(:mod:`~kvoxide.vllm.recording.header`) in files (:mod:`~kvoxide.vllm.recording.files`). Whichever
manager the scheduler has, nothing in it is touched.
"""

from kvoxide.vllm.recording.hooks import take_over

__all__ = ["take_over"]
