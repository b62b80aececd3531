"""Import first: skips a test module where vLLM 0.33.0 is not what ``import vllm`` finds."""

import pytest

RELEASE = "0.33.0"
HOW_TO_INSTALL = "tests/vllm_env.sh VENV installs it in VENV/vllm-0.33.0, for PYTHONPATH"

_vllm = pytest.importorskip("vllm", reason=f"vLLM {RELEASE} is not installed; {HOW_TO_INSTALL}")
if _vllm.__version__ != RELEASE:
    pytest.skip(
        f"vLLM is {_vllm.__version__}, not {RELEASE}; {HOW_TO_INSTALL}", allow_module_level=True
    )
