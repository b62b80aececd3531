"""First on PYTHONPATH, this is an environment without vLLM."""

raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
