"""Makes random calls of vLLM's ``CPUOffloadingManager`` and of kvoxide's, and compares them call by
call. :mod:`.scenario` configures both, :mod:`.operations` has the calls, and :mod:`.traffic` draws
them. :mod:`.world` runs them on both :mod:`.sides`, and :mod:`.playing` finds and shrinks
differences."""

from .playing import main, play_random, play_recorded

__all__ = ["main", "play_random", "play_recorded"]
