"""Compares measured numbers with their baseline, and finds the ones that are worse than allowed."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvoxide.lab.output.tables import Column, print_table

from .baseline import Values


@dataclass(frozen=True)
class Line:
    """One number, then and now. ``slowdown`` is how much slower it became: 0.3 is 30 % slower."""

    layout: str
    operation: str
    before: float | None
    now: float | None
    slowdown: float | None

    def is_bad(self, margin: float) -> bool:
        """Return whether it became slower by more than ``margin``, or whether one of the numbers is
        missing."""
        return self.slowdown is None or self.slowdown > margin


def compare(before: Values, now: Values, *, more_is_better: bool) -> list[Line]:
    """Return a line for each number that is in ``before`` or ``now``."""
    return [
        _line(
            layout,
            operation,
            _get(before, layout, operation),
            _get(now, layout, operation),
            more_is_better,
        )
        for layout, operation in _keys(before, now)
    ]


def _line(
    layout: str, operation: str, before: float | None, now: float | None, more_is_better: bool
) -> Line:
    if before is None or now is None:
        return Line(layout, operation, before, now, None)
    slowdown = before / now - 1 if more_is_better else now / before - 1
    return Line(layout, operation, before, now, slowdown)


def _keys(*all_values: Values) -> Iterator[tuple[str, str]]:
    keys = ((la, op) for values in all_values for la, of in values.items() for op in of)
    yield from dict.fromkeys(keys)


def _get(values: Values, layout: str, operation: str) -> float | None:
    return values.get(layout, {}).get(operation)


def print_verdict(
    title: str, lines: list[Line], margin: float, *, before: str = "baseline"
) -> None:
    """Print all lines, and mark the bad ones."""
    print_table(
        title,
        [
            Column("layout", [line.layout for line in lines], is_name=True),
            Column("operation", [line.operation for line in lines], is_name=True),
        ],
        [
            Column(before, [_number(line.before) for line in lines]),
            Column("now", [_number(line.now) for line in lines]),
            Column("slower by", [_share(line.slowdown) for line in lines]),
            Column("", ["SLOWER" if line.is_bad(margin) else "" for line in lines]),
        ],
    )


def _number(value: float | None) -> str:
    if value is None:
        return "missing"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
