"""Read the recordings of servers as traces."""

from kvoxide.replay.input.recording.headers import Deployment
from kvoxide.replay.input.recording.reading import (
    read_recording,
    recorded_deployment,
    recorded_files,
)

__all__ = ["Deployment", "read_recording", "recorded_deployment", "recorded_files"]
