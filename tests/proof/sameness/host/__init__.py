"""Random calls of vLLM's ``CPUOffloadingManager`` and of kvoxide's, compared call by call:
:mod:`.scenario` is how both are made, :mod:`.operations` what is called, :mod:`.traffic` draws it,
:mod:`.world` runs it on both :mod:`.sides`, and :mod:`.playing` finds and shrinks differences."""

from .playing import main, play_random, play_recorded

__all__ = ["main", "play_random", "play_recorded"]
