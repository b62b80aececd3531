"""Import this first: it skips a test module if ``import vllm`` does not find vLLM 0.33.0."""

import pytest

RELEASE = "0.33.0"
HOW_TO_INSTALL = "tests/vllm_env.sh VENV installs it in VENV/vllm-0.33.0, for PYTHONPATH"

_vllm = pytest.importorskip("vllm", reason=f"vLLM {RELEASE} is not installed; {HOW_TO_INSTALL}")
if _vllm.__version__ != RELEASE:
    pytest.skip(
        f"vLLM is {_vllm.__version__}, not {RELEASE}; {HOW_TO_INSTALL}", allow_module_level=True
    )
