"""Options and variables of vLLM that the docs name. tests/vllm looks for each in vLLM itself."""

from typing import Final

OPTIONS: Final = {
    "--disable-log-stats",
    "--enable-prompt-tokens-details",
    "--gpu-memory-utilization",
    "--kv-cache-memory-bytes",
    "--kv-cache-metrics",
    "--kv-offloading-size",
    "--kv-transfer-config",
    "--max-model-len",
    "--num-gpu-blocks-override",
    "--prefix-cache-retention-interval",
    "--prefix-caching-hash-algo",
    "--prefix-match-unit",
    "--scheduler-cls",
    "--scheduling-policy",
    "--shutdown-timeout",
}
VARIABLES: Final = {
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
    "VLLM_LOGGING_LEVEL",
    "VLLM_PLUGINS",
    "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY",
    "VLLM_USE_SIMPLE_KV_OFFLOAD",
}
