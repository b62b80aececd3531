"""Says how to install kvoxide again, or with more packages. The commands are true for a checkout;
a wheel and a package index take the same words in place of the dot."""

from typing import Final

REINSTALL: Final = "reinstall kvoxide, for example `pip install --force-reinstall .` in a checkout"


def with_extra(extra: str) -> str:
    """Return how to install kvoxide with the packages of an extra."""
    return (
        f"install kvoxide with its extra {extra!r}, for example `pip install '.[{extra}]'` in a"
        " checkout"
    )
