"""``KVOXIDE=shadow``: vLLM's manager decides, kvoxide's runs beside it, and what differed is played
again.

:mod:`~kvoxide.vllm.shadow.shadow` is the manager that a server gets then,
:mod:`~kvoxide.vllm.shadow.recording` what it writes down, :mod:`~kvoxide.vllm.shadow.replaying`
reads and plays that file, and :mod:`~kvoxide.vllm.shadow.engine_player` does so where there is no
vLLM.
"""
