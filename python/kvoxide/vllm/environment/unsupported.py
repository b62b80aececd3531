"""The error of ``KVOXIDE=require``."""


class UnsupportedError(RuntimeError):
    """``KVOXIDE=require``, and this vLLM, this configuration or a change of the manager at run time
    is beyond what kvoxide supports."""
