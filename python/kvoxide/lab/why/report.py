"""Print an explanation, or turn it into JSON values."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
import numpy as np

from kvoxide.lab.output.tables import Column, print_table
from kvoxide.lab.why.explained import Explained
from kvoxide.lab.why.selection import shown
from kvoxide.lab.why.summary import Total, each, hours, most_lost, total
from kvoxide.outcomes import FIRST_TIME, OUTCOMES, Outcome

_NOTHING_AVOIDABLE: Final = "No token was computed for a reason that a setting avoids."


def print_report(explained: Explained, num_most_lost: int) -> None:
    """Print all requests together, then by hour, then the requests that lost most."""
    whole = total(explained)
    _print_outcomes(_title(explained, whole), whole, explained.unknown)
    click.echo(_advice(whole))
    by_hour = hours(explained)
    if len(by_hour) > 1:
        click.echo()
        _print_totals("By hour:", "hour (UTC)", [(shown(at)[:16], t) for at, t in by_hour])
    if len(explained) > 1:
        _print_most_lost(explained, num_most_lost)


def print_requests(explained: Explained) -> None:
    """Print each request on its own."""
    for index, one in enumerate(each(explained)):
        title = f"{_name(explained, index)}, arrived {shown(explained.arrivals[index])} UTC"
        source = _source(explained.only(np.array([index])))
        _print_outcomes(
            f"{title}; {_counted(one.prompt_tokens, 'prompt token')}; {source}",
            one,
            explained.unknown,
        )
        click.echo(_advice(one))


def record(explained: Explained, num_most_lost: int) -> dict[str, Any]:
    """Return the explanation as JSON values. Times are in seconds since the epoch."""
    whole = total(explained)
    lost = most_lost(explained, num_most_lost)
    return {
        "recording": explained.name,
        "recorded_requests": int(explained.is_recorded.sum()),
        "computed_requests": int((~explained.is_recorded).sum()),
        "unknown_outcomes": [outcome.name for outcome in _unknown(explained)],
        "notes": list(explained.notes),
        "first_arrival": float(explained.arrivals[0]),
        "last_arrival": float(explained.arrivals[-1]),
        **_total_record(whole),
        "hours": [{"begin": begin, **_total_record(part)} for begin, part in hours(explained)],
        "most_lost": request_records(lost),
    }


def request_records(explained: Explained) -> list[dict[str, Any]]:
    """Return each request as JSON values."""
    return [
        {
            "server": int(explained.servers[index]),
            "request": int(explained.numbers[index]),
            "arrival": float(explained.arrivals[index]),
            "is_recorded": bool(explained.is_recorded[index]),
            **_total_record(one),
        }
        for index, one in enumerate(each(explained))
    ]


def _total_record(part: Total) -> dict[str, Any]:
    found = part.largest
    return {
        "requests": part.num_requests,
        "prompt_tokens": part.prompt_tokens,
        "outcomes": part.counts,
        "largest_avoidable": None if found is None else _largest_record(part, *found),
    }


def _largest_record(part: Total, outcome: Outcome, tokens: int) -> dict[str, Any]:
    return {
        "outcome": outcome.name,
        "tokens": tokens,
        "share": part.share(tokens),
        "advice": outcome.advice,
        "settings": list(outcome.settings),
    }


def _unknown(explained: Explained) -> Sequence[Outcome]:
    return () if explained.is_recorded.all() else explained.unknown


def _title(explained: Explained, whole: Total) -> str:
    first, last = shown(explained.arrivals[0]), shown(explained.arrivals[-1])
    num_requests = _counted(whole.num_requests, "request")
    num_tokens = _counted(whole.prompt_tokens, "prompt token")
    return f"{num_requests}, {num_tokens}, arrived {first} to {last} UTC; {_source(explained)}"


def _source(explained: Explained) -> str:
    num_recorded = int(explained.is_recorded.sum())
    if num_recorded == len(explained):
        return "outcomes recorded by the server"
    if num_recorded == 0:
        return "outcomes computed by a replay"
    return (
        f"outcomes of {_counted(num_recorded, 'request')} recorded by the server, of "
        f"{len(explained) - num_recorded:,} computed by a replay"
    )


def _print_outcomes(title: str, part: Total, unknown: Sequence[Outcome]) -> None:
    is_unknown = {outcome for outcome in unknown if not part.counts[outcome.name]}
    cells = [part.counts[outcome.name] for outcome in OUTCOMES]
    names = [outcome.name for outcome in OUTCOMES]
    tokens = _cells(is_unknown, [f"{count:,}" for count in cells])
    shares = _cells(is_unknown, [f"{part.share(count):.1%}" for count in cells])
    keys = [Column("outcome", names, is_name=True)]
    meanings = [outcome.meaning for outcome in OUTCOMES]
    columns = [Column("tokens", tokens), Column("share", shares)]
    print_table(title, keys, [*columns, Column("meaning", meanings, is_name=True)])
    if is_unknown:
        listed = ", ".join(outcome.name for outcome in OUTCOMES if outcome in is_unknown)
        click.echo(f"A recording does not show {listed}. {_COUNTED_AS}")


_COUNTED_AS: Final = (
    "Hits on answers count as hit_gpu, loaded tokens as computed, and tokens of another salt or "
    f"adapter as {FIRST_TIME.name}."
)


def _cells(is_unknown: set[Outcome], texts: list[str]) -> list[str]:
    pairs = zip(OUTCOMES, texts, strict=True)
    return ["unknown" if outcome in is_unknown else text for outcome, text in pairs]


def _advice(part: Total) -> str:
    found = part.largest
    if found is None:
        return _NOTHING_AVOIDABLE
    outcome, tokens = found
    return (
        f"Largest avoidable reason: {outcome.name}, {_counted(tokens, 'token')} "
        f"({part.share(tokens):.1%} of "
        f"the prompts). {outcome.advice}"
    )


def _print_totals(title: str, key: str, parts: Sequence[tuple[str, Total]]) -> None:
    columns = [Column(name, [cell(part) for _, part in parts]) for name, cell in _FIGURES.items()]
    largest = Column("largest avoidable reason", [_largest(p) for _, p in parts], is_name=True)
    print_table(
        title, [Column(key, [name for name, _ in parts], is_name=True)], [*columns, largest]
    )


_FIGURES: Final[dict[str, Callable[[Total], str]]] = {
    "requests": lambda it: f"{it.num_requests:,}",
    "prompt tokens": lambda it: f"{it.prompt_tokens:,}",
    "hit": lambda it: f"{it.share(it.hit_tokens):.1%}",
    "first time": lambda it: f"{it.share(it.counts[FIRST_TIME.name]):.1%}",
    "avoidable": lambda it: f"{it.share(it.avoidable_tokens):.1%}",
}


def _largest(part: Total) -> str:
    found = part.largest
    return "-" if found is None else f"{found[0].name} {part.share(found[1]):.1%}"


def _print_most_lost(explained: Explained, count: int) -> None:
    lost = most_lost(explained, count)
    if not len(lost):
        return
    click.echo()
    names = [_name(lost, index) for index in range(len(lost))]
    arrived = [shown(at) for at in lost.arrivals]
    parts = each(lost)
    print_table(
        "The requests that lost most:",
        [Column("request", names, is_name=True)],
        [
            Column("arrived (UTC)", arrived),
            Column("prompt tokens", [f"{part.prompt_tokens:,}" for part in parts]),
            Column("hit", [f"{part.hit_tokens:,}" for part in parts]),
            Column("avoidable", [f"{part.avoidable_tokens:,}" for part in parts]),
            Column("largest avoidable reason", [_largest(part) for part in parts], is_name=True),
        ],
    )


def _name(explained: Explained, index: int) -> str:
    number = f"request {explained.numbers[index]}"
    return f"server {explained.servers[index]}, {number}" if explained.is_of_several else number


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
