"""Select the requests to explain: by number, or by the time at which they arrived."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

import numpy as np

from kvoxide._core import ConfigError
from kvoxide.lab.why.explained import Explained

_OFFSET: Final = re.compile(
    r"\+?(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d+)?)s)?"
)
_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0)
_HOUR: Final = 3_600.0


@dataclass(frozen=True)
class Moment:
    """A moment as given on the command line: seconds after the recording began, a time of day, or a
    date and time."""

    text: str
    value: float | time | datetime

    @classmethod
    def parse(cls, text: str) -> "Moment":
        """Read a moment. Raises :class:`~kvoxide.ConfigError`."""
        offset = _OFFSET.fullmatch(text)
        if offset is not None and any(offset.groups()):
            numbers = (float(number or 0) for number in offset.groups())
            return cls(text, sum(n * unit for n, unit in zip(numbers, _UNITS, strict=True)))
        for read in (_time_of_day, _date):
            try:
                return cls(text, read(text))
            except (ValueError, OverflowError):
                continue
        raise ConfigError(
            f"{text!r} is no time. Write seconds, minutes or hours after the begin, such as 90s or "
            "1h30m. Or write a time in UTC, such as 14:30 or 2026-11-29T14:30"
        )

    def since_epoch(self, began: float) -> float:
        """Return the moment in seconds since the epoch. A time of day is the first one after the
        recording began."""
        match self.value:
            case datetime():
                return self.value.timestamp()
            case time():
                begin = datetime.fromtimestamp(began, UTC)
                moment = datetime.combine(begin.date(), self.value, UTC)
                # The minute in which the recording began counts as a part of it.
                if moment < begin.replace(second=0, microsecond=0):
                    moment += timedelta(days=1)
                return moment.timestamp()
            case _:
                return began + self.value


@dataclass(frozen=True)
class Selection:
    """The requests to explain. All if nothing is given."""

    request: int | None = None
    begin: Moment | None = None
    end: Moment | None = None
    hour: Moment | None = None

    def of(self, explained: Explained) -> Explained:
        """Return the requests that are selected. Raises :class:`~kvoxide.ConfigError` if there are
        none."""
        if self.request is not None:
            return _by_number(explained, self.request)
        low, high = self._bounds(explained.began)
        if low >= high:
            raise ConfigError(
                f"the span is empty: it begins at {shown(low)} and ends at {shown(high)}. Give a "
                "later --to"
            )
        selected = explained.only((explained.arrivals >= low) & (explained.arrivals < high))
        if not len(selected):
            raise ConfigError(
                f"{explained.name}: no request arrived in this span. The recording has requests "
                f"from {shown(explained.arrivals[0])} to {shown(explained.arrivals[-1])}"
            )
        return selected

    def _bounds(self, began: float) -> tuple[float, float]:
        if self.hour is not None:
            low = self.hour.since_epoch(began)
            return low, low + _HOUR
        low = -np.inf if self.begin is None else self.begin.since_epoch(began)
        high = np.inf if self.end is None else self.end.since_epoch(began)
        return low, high


def shown(seconds: float) -> str:
    """Return a time since the epoch as a date and time in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s after 1970"


def _by_number(explained: Explained, number: int) -> Explained:
    selected = explained.only(explained.numbers == number)
    if not len(selected):
        raise ConfigError(
            f"{explained.name}: there is no request {number}. The recording has "
            f"{len(explained):,} requests, with numbers from {explained.numbers.min()} to "
            f"{explained.numbers.max()}"
        )
    return selected


def _time_of_day(text: str) -> time:
    parsed = time.fromisoformat(f"{text}:00" if re.fullmatch(r"\d{1,2}", text) else text)
    if parsed.tzinfo is not None:
        raise ValueError(text)
    return parsed


def _date(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
