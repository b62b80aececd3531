"""The format of recordings of a server's traffic, for code that writes or plays them.

A recording is a folder of gzip files of JSON lines. The first line of each file is a header, an
object that has :data:`FORMAT_FIELD`. All files of one scheduler have the same
:data:`RECORDING_FIELD`; within them, equal ids mean equal blocks. :data:`PART_FIELD` numbers the
files of a kind from 0. A file of requests has these lines, in the order of events:

- a request, written when it ends
- ``{"schedule": [...]}``, whose entries are of three kinds. A number counts steps in which each
  running request computed one token. A step ``[[request, tokens(, tokens before)], ...]`` names the
  requests that differ from that. ``{"preempted": request}`` names a request that the next step
  preempts.
- ``{"running": [[request, tokens], ...]}``: the requests that run when a later file begins
- ``{"reset": "idle" | "preempting", "timestamp": milliseconds}``: the prefix cache was emptied.
  It was not with ``"failed"``. With ``"host"``, CPU memory was emptied.
- ``{"end": ...}``: nothing is left to write (see :data:`ENDS`); more lines may follow
"""

from typing import Final

FORMAT: Final = 2
FORMATS: Final = (1, 2)
"""The formats that kvoxide reads. Format 1 has requests alone."""
FORMAT_FIELD: Final = "kvoxide_recording"
RECORDING_FIELD: Final = "recording"
PART_FIELD: Final = "part"

REQUESTS: Final = "requests"
STEPS: Final = "steps"

ENDS: Final = ("idle", "closed", "failed")
"""The scheduler had nothing to do; it was shut down; the recording failed (``reason``)."""


def pattern(kind: str) -> str:
    """Return the glob pattern of the files of a kind, :data:`REQUESTS` or :data:`STEPS`. It matches
    uncompressed files too."""
    return f"{kind}-*.jsonl*"


def file_name(kind: str, rank: int, pid: int, number: int) -> str:
    """Return the name of one file of the scheduler of data-parallel rank ``rank`` in process
    ``pid``."""
    return f"{kind}-{rank}-{pid}-{number:04}.jsonl.gz"
