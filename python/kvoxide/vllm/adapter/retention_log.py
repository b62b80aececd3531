"""One line a minute in the server's log, what adaptive retention came to, and one of an hour in
which vLLM's order, with every tail kept, would have hit more."""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from kvoxide import RetentionReport
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.environment import logger

SECONDS: Final = 60.0
HOUR: Final = 3600.0
# Shares of prompt tokens that are nearer to each other than the estimate's error.
MARGIN: Final = 0.03
# vLLM's own interval, 0 unless it is set, keeps fewer tails.
_DEFAULT: Final = "vLLM's order with every tail kept"


def log_every_minute(
    engine: VllmManager, new_step_starts: Callable[[], None]
) -> Callable[[], None]:
    """``new_step_starts`` that reads the clock once, and logs a line where a minute has gone by in
    which requests were admitted."""
    minute_log = _MinuteLog(engine)
    due = monotonic() + SECONDS

    def new_step_starts_and_log() -> None:
        nonlocal due
        new_step_starts()
        if (now := monotonic()) >= due:
            due = now + SECONDS
            minute_log.log(now)

    return new_step_starts_and_log


class _MinuteLog:
    """Tells what changed between two reports of an engine with adaptive retention."""

    def __init__(self, engine: VllmManager) -> None:
        self._engine = engine
        self._logged = engine.retention_report()
        self._logged_at = monotonic()
        self._hour = deque([(self._logged_at, self._logged)])

    def log(self, now: float) -> None:
        """Log the line, unless no request was admitted since the last one."""
        report = None if self._engine.is_replaced else self._engine.retention_report()
        if (
            self._logged is None
            or report is None
            or report.prompt_tokens == self._logged.prompt_tokens
        ):
            return
        logger.info("%s", describe(self._logged, report, now - self._logged_at))
        self._logged, self._logged_at = report, now
        self._hour.append((now, report))
        self._warn_after_hour(now, report)

    def _warn_after_hour(self, now: float, report: RetentionReport) -> None:
        """Warn where the default policy would have hit more since an hour ago, then begin anew."""
        began_at, began = self._hour[0]
        if now - began_at < HOUR or began is None:
            return
        if (warning := missed_hits_warning(began, report)) is not None:
            logger.warning("%s", warning)
            self._hour.clear()
            self._hour.append((now, report))
        while len(self._hour) > 1 and now - self._hour[1][0] >= HOUR:
            self._hour.popleft()


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
        f"{after.scoring_function} order in force",
    ]
    if sampled := after.sampled_blocks - before.sampled_blocks:
        kept = {
            function: _share(blocks - before.sampled_kept[function], sampled)
            for function, blocks in after.sampled_kept.items()
        }
        about = "at most" if after.is_default_hit_a_limit else "about"
        default = _share(_default_hits(before, after), prompt_tokens)
        parts.append(f"{_DEFAULT} would have hit {about} {default}")
        parts.append(
            f"of {sampled} sampled blocks asked for, recency order (vLLM's) would have kept "
            f"{kept['recency']}, frequency {kept['frequency']}, hazard {kept['hazard']}"
        )
    return "; ".join(parts)


def missed_hits_warning(before: RetentionReport, after: RetentionReport) -> str | None:
    """What to say of an hour, from its first report to its last, in which the default policy would
    have hit more; None of any other."""
    prompt_tokens = after.prompt_tokens - before.prompt_tokens
    hits = after.hit_tokens - before.hit_tokens
    default = _default_hits(before, after)
    if after.is_default_hit_a_limit or default - hits <= MARGIN * prompt_tokens:
        return None
    return (
        f"adaptive retention hit {_share(hits, prompt_tokens)} of the prompt tokens of the last "
        f"hour, {_DEFAULT} would have hit about {_share(default, prompt_tokens)}: compare "
        "with a server without KVOXIDE_POLICY=adaptive, or replay a recording (KVOXIDE_RECORD)"
    )


def _default_hits(before: RetentionReport, after: RetentionReport) -> int:
    """Tokens; the estimate of a short time may be off by more than there is."""
    more = after.default_hit_tokens - before.default_hit_tokens
    return max(0, min(more, after.prompt_tokens - before.prompt_tokens))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"
