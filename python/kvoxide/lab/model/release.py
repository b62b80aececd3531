"""The release of vLLM whose planning of models this package reproduces."""

from typing import Final

RELEASE: Final = "0.33.0"
"""``kvoxide replay`` and ``plan`` answer as this release where vLLM itself is not asked."""
NEXT_STEP: Final = "Install vLLM so that kvoxide can ask it, or give --groups"
"""The end of messages about models that only vLLM knows."""
