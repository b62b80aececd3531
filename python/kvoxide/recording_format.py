"""The format of recordings of a server's traffic, for their writer and their player.

A folder of gzip files of JSON lines. The first line of each is a header, an object that has
:data:`FORMAT_FIELD`; all files of one scheduler have the same :data:`RECORDING_FIELD`, and within
them equal ids are equal blocks.
"""

from typing import Final

FORMAT: Final = 1
FORMAT_FIELD: Final = "kvoxide_recording"
RECORDING_FIELD: Final = "recording"

REQUESTS: Final = "requests"
STEPS: Final = "steps"


def pattern(kind: str) -> str:
    """The names of the files of a kind, :data:`REQUESTS` or :data:`STEPS`, plain ones too."""
    return f"{kind}-*.jsonl*"


def file_name(kind: str, rank: int, pid: int, number: int) -> str:
    """The name of one file of the scheduler of data-parallel rank ``rank`` in process ``pid``."""
    return f"{kind}-{rank}-{pid}-{number:04}.jsonl.gz"
