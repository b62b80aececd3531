"""A clock for tests."""


class Clock:
    """A clock that only a test moves. It counts how often it is read."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.num_reads = 0

    def __call__(self) -> float:
        self.num_reads += 1
        return self.now
