"""vLLM's KV cache manager over the engine."""
