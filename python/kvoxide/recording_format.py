"""The format of recordings of a server's traffic, for their writer and their player.

A recording is a folder of gzip files of JSON lines. The first line of each file is a header, an
object that has :data:`FORMAT_FIELD`; all files of one scheduler have the same
:data:`RECORDING_FIELD`, and within them equal ids are equal blocks. :data:`PART_FIELD` numbers the
files of a kind from 0. A file of requests has these lines in the order in which things happened:

- a request, written when it ends
- ``{"schedule": [...]}``: a number of steps in which each running request computed one token; a
  step as ``[[request, tokens(, tokens before)], ...]``, which names the requests that differ from
  that; ``{"preempted": request}``, which the next step preempts
- ``{"running": [[request, tokens], ...]}``: what runs where a later file begins
- ``{"reset": "idle" | "preempting", "timestamp": milliseconds}``: the prefix cache was emptied
- ``{"end": ...}``: nothing is left to write (see :data:`ENDS`); more lines may follow
"""

from typing import Final

FORMAT: Final = 2
FORMATS: Final = (1, 2)
"""The formats that are read. Format 1 has requests alone."""
FORMAT_FIELD: Final = "kvoxide_recording"
RECORDING_FIELD: Final = "recording"
PART_FIELD: Final = "part"

REQUESTS: Final = "requests"
STEPS: Final = "steps"

ENDS: Final = ("idle", "closed", "failed")
"""The scheduler had nothing to do; it was shut down; the recording failed (``reason``)."""


def pattern(kind: str) -> str:
    """Return the names of the files of a kind, :data:`REQUESTS` or :data:`STEPS`, plain ones
    too."""
    return f"{kind}-*.jsonl*"


def file_name(kind: str, rank: int, pid: int, number: int) -> str:
    """Return the name of one file of the scheduler of data-parallel rank ``rank`` in process
    ``pid``."""
    return f"{kind}-{rank}-{pid}-{number:04}.jsonl.gz"
