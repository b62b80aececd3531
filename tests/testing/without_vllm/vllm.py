"""With this folder first on PYTHONPATH, the environment has no vLLM."""

raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
