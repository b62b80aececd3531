"""Import this first: it skips a test module if ``import vllm`` does not find the newest release."""

import pytest

from tests.testing.vllm_releases import NEWEST

RELEASE = NEWEST
HOW_TO_INSTALL = f"tests/vllm_env.sh VENV installs it in VENV/vllm-{NEWEST}, for PYTHONPATH"

_vllm = pytest.importorskip("vllm", reason=f"vLLM {RELEASE} is not installed; {HOW_TO_INSTALL}")
if _vllm.__version__ != RELEASE:
    pytest.skip(
        f"vLLM is {_vllm.__version__}, not {RELEASE}; {HOW_TO_INSTALL}", allow_module_level=True
    )
