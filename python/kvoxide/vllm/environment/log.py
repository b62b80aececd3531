"""kvoxide's logger inside vLLM, and the messages that several modules log.

``docs/reference/log-messages.md`` lists all messages.
"""

from typing import Any, Final

_CALLER: Final = 2

SHADOW_PARTS: Final = {
    "manager": "the KV cache",
    "host": "the offloading connector and the CPU offload cache",
}
"""The parts of a server that shadow mode compares: the label of their metrics, and their name in
the log."""


class _LazyLogger:
    """vLLM's logger, which must not be imported with this module."""

    def __getattr__(self, name: str) -> Any:
        from vllm.logger import init_logger

        # vLLM shows what is logged below its own name.
        return getattr(init_logger("vllm.kvoxide"), name)


logger = _LazyLogger()


def log_active(part: str, details: str) -> None:
    """Log that kvoxide provides ``part`` of a server."""
    from kvoxide._core import __version__

    logger.info(
        "kvoxide: active for %s, version %s: %s", part, __version__, details, stacklevel=_CALLER
    )


def log_not_active(part: str, used: str, reason: str) -> None:
    """Log that ``used`` provides ``part`` of a server, and why kvoxide does not."""
    logger.warning(
        "kvoxide: not active for %s; %s is used. Reason: %s. Run `kvoxide doctor` for details.",
        part,
        used,
        reason,
        stacklevel=_CALLER,
    )


def log_switched(part: str, reason: str, variable: str, remark: str = "") -> None:
    """Log that vLLM's own code provides ``part`` of a server from now on. ``variable`` is the one
    that switches kvoxide off for this part."""
    logger.warning(
        "kvoxide: switched %s to vLLM's own code, in the same state%s. Serving continues. Reason: "
        "other code uses it in a way that kvoxide does not support: %s. Set %s=off to start with "
        "vLLM's own code.",
        part,
        remark,
        reason,
        variable,
        stacklevel=_CALLER,
    )


def log_shadow_on(part: str, remark: str) -> None:
    """Log that kvoxide's code gets the calls of ``part`` of a server too."""
    from kvoxide._core import __version__

    logger.info(
        "kvoxide: shadow mode is on for %s, version %s. vLLM decides; kvoxide's answers are "
        "compared with vLLM's.%s",
        part,
        __version__,
        remark,
        stacklevel=_CALLER,
    )


def log_shadow_agrees(part: str, num_calls: int) -> None:
    """Log that kvoxide's answers about ``part`` of a server equal vLLM's until now."""
    logger.info(
        "kvoxide: shadow mode compared %d calls of %s: no difference.",
        num_calls,
        part,
        stacklevel=_CALLER,
    )


def log_shadow_agreed(part: str, num_calls: int) -> None:
    """Log at the end of a server that kvoxide's answers about ``part`` equalled vLLM's."""
    logger.info(
        "kvoxide: shadow mode ends with the server. It compared %d calls of %s: no difference.",
        num_calls,
        part,
        stacklevel=_CALLER,
    )


def log_shadow_agreed_until_killed(part: str, num_calls: int) -> None:
    """Log the same for an engine that was killed, with the calls that it had reported."""
    logger.info(
        "kvoxide: shadow mode ends with the server. It compared at least %d calls of %s: no "
        "difference.",
        num_calls,
        part,
        stacklevel=_CALLER,
    )


def log_shadow_difference(part: str, place: str, answers: tuple[str, str], next_step: str) -> None:
    """Log the first difference between vLLM's answer and kvoxide's, which ends the shadow mode."""
    logger.error(
        "kvoxide: shadow mode found a difference and ended for %s; vLLM continues alone. "
        "Place: %s. vLLM: %s. kvoxide: %s. %s",
        part,
        place,
        *answers,
        next_step,
        stacklevel=_CALLER,
    )


def log_recording_off(folder: object, reason: object) -> None:
    """Log that the traffic of a server is not recorded, or no longer."""
    logger.warning(
        "kvoxide: recording to %s is off; the server continues. Reason: %s. Correct this and "
        "restart the server to record.",
        folder,
        reason,
        stacklevel=_CALLER,
    )


def log_metrics_off(part: str, reason: str) -> None:
    """Log that some of kvoxide's metrics are missing from now on."""
    logger.warning(
        "kvoxide: metrics of %s are off in this process; the server continues. Reason: %s. Please "
        "report this error.",
        part,
        reason,
        stacklevel=_CALLER,
    )


def log_malformed_hint(reason: str) -> None:
    """Log that a hint of a request cannot be used. The compiled module logs each result once for a
    server."""
    logger.warning(
        "kvoxide: ignoring a malformed hint of a request: %s. Correct the client's values. Further "
        "malformed hints are ignored without a warning.",
        reason,
    )


def log_unknown_hint(reason: str) -> None:
    """Log that a hint has a type or a version that this kvoxide does not know."""
    logger.info(
        "kvoxide: ignoring a hint of an unknown type or version: %s. Further unknown hints are "
        "ignored without a message.",
        reason,
    )


def log_expired_hint(reason: str) -> None:
    """Log that the time to live of a hint was over when the request arrived."""
    logger.info(
        "kvoxide: ignoring a hint that has expired: %s. Further expired hints are ignored without "
        "a message.",
        reason,
    )


def log_clipped_hint(reason: str) -> None:
    """Log that a request keeps less than it asks for."""
    logger.info(
        "kvoxide: a request keeps fewer blocks than its hint asks for: %s. Further hints are "
        "clipped without a message.",
        reason,
    )


def log_switched_off_hints() -> None:
    """Log that a request gives a hint, but the server ignores all hints."""
    logger.info(
        "kvoxide: ignoring the priorities and hints of all requests, because KVOXIDE_PRIORITY is "
        "off. Unset it to allow them."
    )


def log_decides_together(num_chunks: int) -> None:
    """Log that GPU and CPU memory decide together which blocks to keep."""
    logger.info(
        "kvoxide: GPU and CPU memory decide together which blocks to keep, with %d blocks of CPU "
        "memory (KVOXIDE_HOST_POLICY=adaptive). eviction_policy, store_threshold and "
        "offload_prompt_only have no effect.",
        num_chunks,
        stacklevel=_CALLER,
    )


def log_decides_not_together(reason: str) -> None:
    """Log that GPU and CPU memory cannot decide together."""
    logger.warning(
        "kvoxide: KVOXIDE_HOST_POLICY=adaptive has no effect. CPU memory keeps the policy of "
        "vLLM's configuration. Reason: %s.",
        reason,
        stacklevel=_CALLER,
    )


def log_decides_alone(reason: str) -> None:
    """Log that GPU and CPU memory no longer decide together."""
    logger.warning(
        "kvoxide: GPU and CPU memory no longer decide together which blocks to keep. Serving "
        "continues. Reason: %s. Restart the server to decide together again.",
        reason,
        stacklevel=_CALLER,
    )
