"""Where kvoxide says what it does inside vLLM."""

from typing import Any


class _LazyLogger:
    """vLLM's logger, which must not be imported with this module."""

    def __getattr__(self, name: str) -> Any:
        from vllm.logger import init_logger

        # vLLM shows what is logged below its own name.
        return getattr(init_logger("vllm.kvoxide"), name)


logger = _LazyLogger()
