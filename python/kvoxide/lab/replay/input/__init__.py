"""Read what is played: traces, recordings of servers, KV cache groups and policies.

``reader`` reads a trace from a file, a recording, standard input or the package. ``containers`` and
``columnar`` turn files of other kinds into lines. ``recording`` reads the folders that servers
recorded. ``groups`` and ``policies`` parse the texts of options. ``host`` is the
CPU memory of a run.
"""

from kvoxide.lab.replay.input.groups import (
    KINDS,
    PRESETS,
    Groups,
    groups_text,
    parse_groups,
    preset_groups,
)
from kvoxide.lab.replay.input.host import Host, memory_text
from kvoxide.lab.replay.input.policies import (
    CLAIRVOYANT,
    DEFAULT_POLICY,
    EVERY_TAIL,
    UNLIMITED,
    NamedPolicy,
    check_names_differ,
    parse_policy,
)
from kvoxide.lab.replay.input.reader import SAMPLE, read_deployment, read_trace
from kvoxide.lab.replay.input.recording import Deployment
from kvoxide.lab.replay.input.step_files import read_steps
from kvoxide.lab.replay.input.trace_file import NotRecordedError, TraceFile

__all__ = [
    "CLAIRVOYANT",
    "DEFAULT_POLICY",
    "EVERY_TAIL",
    "KINDS",
    "PRESETS",
    "SAMPLE",
    "UNLIMITED",
    "Deployment",
    "Groups",
    "Host",
    "NamedPolicy",
    "NotRecordedError",
    "TraceFile",
    "check_names_differ",
    "groups_text",
    "memory_text",
    "parse_groups",
    "parse_policy",
    "preset_groups",
    "read_deployment",
    "read_steps",
    "read_trace",
]
