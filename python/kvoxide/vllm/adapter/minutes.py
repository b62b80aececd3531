"""One line a minute in the server's log: what adaptive retention came to."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from kvoxide import RetentionReport
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.environment import logger

SECONDS: Final = 60.0


def telling_each_minute(
    engine: VllmManager, new_step_starts: Callable[[], None]
) -> Callable[[], None]:
    """``new_step_starts`` that reads the clock once, and logs a line where a minute has gone by in
    which requests were admitted."""
    minutes = _Minutes(engine)
    due = monotonic() + SECONDS

    def telling() -> None:
        nonlocal due
        new_step_starts()
        if (now := monotonic()) >= due:
            due = now + SECONDS
            minutes.tell(now)

    return telling


class _Minutes:
    """Tells what changed between two reports of an engine with adaptive retention."""

    def __init__(self, engine: VllmManager) -> None:
        self._engine = engine
        self._told = engine.retention_report()
        self._told_at = monotonic()

    def tell(self, now: float) -> None:
        """Log the line, unless no request was admitted since the last one."""
        report = self._engine.retention_report()
        if self._told is None or report is None or report.prompt_tokens == self._told.prompt_tokens:
            return
        logger.info("%s", describe(self._told, report, now - self._told_at))
        self._told, self._told_at = report, now


def describe(before: RetentionReport, after: RetentionReport, seconds: float) -> str:
    """What happened in the time between two reports of one engine."""
    prompt_tokens = after.prompt_tokens - before.prompt_tokens
    parts = [
        f"adaptive retention, last {seconds:.0f} s: "
        f"{_share(after.hit_tokens - before.hit_tokens, prompt_tokens)} of {prompt_tokens} prompt "
        f"tokens hit, {_share(after.hit_answer_tokens - before.hit_answer_tokens, prompt_tokens)} "
        "on answers",
        f"evicted {after.evicted_full_blocks - before.evicted_full_blocks} full blocks, "
        f"{after.evicted_tail_blocks - before.evicted_tail_blocks} of windows and states",
        f"{after.ordering} order in force",
    ]
    if sampled := after.sampled_blocks - before.sampled_blocks:
        kept = {
            ordering: _share(blocks - before.sampled_kept[ordering], sampled)
            for ordering, blocks in after.sampled_kept.items()
        }
        parts.append(
            f"of {sampled} sampled blocks asked for, recency order (vLLM's) would have kept "
            f"{kept['recency']}, frequency {kept['frequency']}, hazard {kept['hazard']}"
        )
    return "; ".join(parts)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"
