"""Read the recordings of servers as traces."""

from kvoxide.lab.replay.input.recording.headers import Deployment
from kvoxide.lab.replay.input.recording.reading import (
    read_recording,
    recorded_deployment,
    recorded_files,
)

__all__ = ["Deployment", "read_recording", "recorded_deployment", "recorded_files"]
