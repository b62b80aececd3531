"""Logs the figures of adaptive retention each minute, and warns after an hour of fewer hits than
vLLM's default would have had."""

from collections import deque
from time import monotonic
from typing import Final, NamedTuple

from kvoxide import RetentionReport
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.environment import logger

SECONDS: Final = 60.0
HOUR: Final = 3600.0
# Shares of prompt tokens that are nearer to each other than the estimate's error.
MARGIN: Final = 0.03


class _Sample(NamedTuple):
    """A report, its time, and the tokens that were loaded from CPU memory until then."""

    time: float
    report: RetentionReport
    num_loaded_tokens: int


class MinuteLog:
    """Logs the changes between two reports of an engine with adaptive retention."""

    def __init__(self, engine: VllmManager) -> None:
        """Begin the first minute."""
        self._engine = engine
        self._logged = self._sample(monotonic())
        self._hour = deque([self._logged])

    def end_minute(self, now: float) -> None:
        """Log the line, unless no request was admitted since the last one."""
        before, after = self._logged, self._sample(now)
        if before is None or after is None:
            return
        if after.report.prompt_tokens == before.report.prompt_tokens:
            return
        _log_minute(before.report, after.report, now - before.time)
        self._logged = after
        self._hour.append(after)
        self._warn_after_hour(after)

    def _sample(self, now: float) -> _Sample | None:
        report = None if self._engine.is_replaced else self._engine.retention_report()
        if report is None:
            return None
        outcomes = self._engine.outcome_report()
        loaded = 0 if outcomes is None else outcomes.outcomes["hit_host"]
        return _Sample(now, report, loaded)

    def _warn_after_hour(self, after: _Sample) -> None:
        """Warn if the default policy would have hit more since an hour ago, then begin anew."""
        began = self._hour[0]
        if began is None or after.time - began.time < HOUR:
            return
        if _hits_fewer(began, after):
            _warn_of_hour(began, after)
            self._hour.clear()
            self._hour.append(after)
        while len(self._hour) > 1 and self._is_hour_old(self._hour[1], after):
            self._hour.popleft()

    @staticmethod
    def _is_hour_old(sample: _Sample | None, now: _Sample) -> bool:
        return sample is not None and now.time - sample.time >= HOUR


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


def _hits_fewer(before: _Sample, after: _Sample) -> bool:
    """Return whether the default policy would have hit more in the time between two samples, by
    more than the error of the estimate.

    Tokens that were loaded from CPU memory count as hits. Unless CPU memory decides with
    ``adaptive`` too, the estimate has only hits on the GPU, so the default would have hit at least
    as much as it says.
    """
    old, new = before.report, after.report
    if new.is_default_hit_a_limit:
        return False
    margin = MARGIN * (new.prompt_tokens - old.prompt_tokens)
    return _default_hits(old, new) - _num_hits(before, after) > margin


def _num_hits(before: _Sample, after: _Sample) -> int:
    loaded = after.num_loaded_tokens - before.num_loaded_tokens
    return after.report.hit_tokens - before.report.hit_tokens + loaded


def _warn_of_hour(before: _Sample, after: _Sample) -> None:
    old, new = before.report, after.report
    prompt_tokens = new.prompt_tokens - old.prompt_tokens
    logger.warning(
        "kvoxide: in the last hour, adaptive retention had fewer cache hits than vLLM's default is "
        "estimated to have: hit_rate=%s default_hit_rate=%s. Compare with a server without "
        "KVOXIDE_POLICY=adaptive, or replay a recording (KVOXIDE_RECORD).",
        _share(_num_hits(before, after), prompt_tokens),
        _share(_default_hits(old, new), prompt_tokens),
    )


def _default_hits(before: RetentionReport, after: RetentionReport) -> int:
    """Return the estimate in tokens. In a short time its error may be larger than all tokens, so it
    is limited to them."""
    more = after.default_hit_tokens - before.default_hit_tokens
    return max(0, min(more, after.prompt_tokens - before.prompt_tokens))


def _share(part: int, whole: int) -> str:
    """Return a share from 0 to 1; ``unknown`` without a whole."""
    return f"{part / whole:.3f}" if whole else "unknown"
