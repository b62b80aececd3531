"""Checks on random servers that replays of their recordings hit what vLLM's own scheduler
counted."""
