"""What only the project's own proof compares: :mod:`.kvoxide` is the standalone manager,
:mod:`.adaptive` are the standalone one and the adapter with adaptive retention, for want of
vLLM's."""

from .adaptive import AdaptiveAdapterDriver, AdaptiveKvoxideDriver
from .kvoxide import KvoxideDriver, make_group

__all__ = ["AdaptiveAdapterDriver", "AdaptiveKvoxideDriver", "KvoxideDriver", "make_group"]
