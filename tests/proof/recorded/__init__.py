"""Replays of recordings hit what vLLM's own scheduler counted, on random servers."""
