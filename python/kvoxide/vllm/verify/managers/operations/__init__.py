"""What is done to the managers, as data.

:mod:`.requests` is a scheduler's work, :mod:`.pool` that of other holders of blocks,
:mod:`.inside` what only vLLM's interface offers, :mod:`.surface` the pool's own attributes,
:mod:`.wrapped` methods and fields that other code replaces.
They are made of the calls in :mod:`.calls`; :mod:`.operation` is what they have in common.
"""

from kvoxide.vllm.verify.managers.operations.operation import Operation, operation_from_json

__all__ = ["Operation", "operation_from_json"]
