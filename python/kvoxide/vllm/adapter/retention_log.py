"""Logs the figures of adaptive retention each minute, and warns after an hour of fewer hits than
vLLM's default would have had."""

from collections import deque
from time import monotonic
from typing import Final

from kvoxide import RetentionReport
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.environment import logger

SECONDS: Final = 60.0
HOUR: Final = 3600.0
# Shares of prompt tokens that are nearer to each other than the estimate's error.
MARGIN: Final = 0.03


class MinuteLog:
    """Logs the changes between two reports of an engine with adaptive retention."""

    def __init__(self, engine: VllmManager) -> None:
        """Begin the first minute."""
        self._engine = engine
        self._logged = engine.retention_report()
        self._logged_at = monotonic()
        self._hour = deque([(self._logged_at, self._logged)])

    def end_minute(self, now: float) -> None:
        """Log the line, unless no request was admitted since the last one."""
        before = self._logged
        report = None if self._engine.is_replaced else self._engine.retention_report()
        if before is None or report is None or report.prompt_tokens == before.prompt_tokens:
            return
        _log_minute(before, report, now - self._logged_at)
        self._logged, self._logged_at = report, now
        self._hour.append((now, report))
        self._warn_after_hour(now, report)

    def _warn_after_hour(self, now: float, report: RetentionReport) -> None:
        """Warn if the default policy would have hit more since an hour ago, then begin anew."""
        began_at, began = self._hour[0]
        if now - began_at < HOUR or began is None:
            return
        if _hits_fewer(began, report):
            _warn_of_hour(began, report)
            self._hour.clear()
            self._hour.append((now, report))
        while len(self._hour) > 1 and now - self._hour[1][0] >= HOUR:
            self._hour.popleft()


def _log_minute(before: RetentionReport, after: RetentionReport, seconds: float) -> None:
    prompt_tokens = after.prompt_tokens - before.prompt_tokens
    sampled = after.sampled_blocks - before.sampled_blocks
    kept = {
        name: _share(blocks - before.sampled_kept[name], sampled)
        for name, blocks in after.sampled_kept.items()
    }
    logger.info(
        "kvoxide: adaptive retention: seconds=%.0f prompt_tokens=%d hit_rate=%s "
        "answer_hit_rate=%s evicted_full_blocks=%d evicted_tail_blocks=%d scoring_function=%s "
        "default_hit_rate=%s default_hit_rate_is_limit=%s sampled_blocks=%d "
        "recency_kept_rate=%s frequency_kept_rate=%s hazard_kept_rate=%s",
        seconds,
        prompt_tokens,
        _share(after.hit_tokens - before.hit_tokens, prompt_tokens),
        _share(after.hit_answer_tokens - before.hit_answer_tokens, prompt_tokens),
        after.evicted_full_blocks - before.evicted_full_blocks,
        after.evicted_tail_blocks - before.evicted_tail_blocks,
        after.scoring_function,
        # The estimate comes from sampled blocks.
        _share(_default_hits(before, after), prompt_tokens if sampled else 0),
        str(after.is_default_hit_a_limit).lower(),
        sampled,
        kept["recency"],
        kept["frequency"],
        kept["hazard"],
    )


def _hits_fewer(before: RetentionReport, after: RetentionReport) -> bool:
    """Return whether the default policy would have hit more in the time between two reports, by
    more than the error of the estimate."""
    margin = MARGIN * (after.prompt_tokens - before.prompt_tokens)
    hits = after.hit_tokens - before.hit_tokens
    return not after.is_default_hit_a_limit and _default_hits(before, after) - hits > margin


def _warn_of_hour(before: RetentionReport, after: RetentionReport) -> None:
    prompt_tokens = after.prompt_tokens - before.prompt_tokens
    logger.warning(
        "kvoxide: in the last hour, adaptive retention had fewer cache hits than vLLM's default is "
        "estimated to have: hit_rate=%s default_hit_rate=%s. Compare with a server without "
        "KVOXIDE_POLICY=adaptive, or replay a recording (KVOXIDE_RECORD).",
        _share(after.hit_tokens - before.hit_tokens, prompt_tokens),
        _share(_default_hits(before, after), prompt_tokens),
    )


def _default_hits(before: RetentionReport, after: RetentionReport) -> int:
    """Return the estimate in tokens. In a short time its error may be larger than all tokens, so it
    is limited to them."""
    more = after.default_hit_tokens - before.default_hit_tokens
    return max(0, min(more, after.prompt_tokens - before.prompt_tokens))


def _share(part: int, whole: int) -> str:
    """Return a share from 0 to 1; ``unknown`` without a whole."""
    return f"{part / whole:.3f}" if whole else "unknown"
