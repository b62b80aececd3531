"""Adaptive retention, which vLLM does not have: the adapter and the standalone manager decide the
same, and no invariant breaks."""

import os
from unittest import mock

from kvoxide import _core
from kvoxide.vllm.verify.managers.scenarios import Scenario
from kvoxide.vllm.verify.managers.sides import AdapterDriver

from .kvoxide import KvoxideDriver


class AdaptiveAdapterDriver(AdapterDriver):
    """As the environment asks for it. Every call is checked where ``KVOXIDE_CHECK`` is not set."""

    def __init__(self, scenario: Scenario) -> None:
        check = os.environ.get("KVOXIDE_CHECK", "1")
        with mock.patch.dict(os.environ, KVOXIDE_POLICY="adaptive", KVOXIDE_CHECK=check):
            super().__init__(scenario)


class AdaptiveKvoxideDriver(KvoxideDriver):
    def policy_of(self, scenario: Scenario) -> _core.Policy:
        return _core.Policy(retention="adaptive")
