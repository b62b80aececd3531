"""The operations on the managers, as data.

:mod:`.requests` has a scheduler's work, :mod:`.pool` the work of other holders of blocks, and
:mod:`.inside` calls that only vLLM's interface has. :mod:`.surface` uses the pool's own attributes.
:mod:`.wrapped` replaces methods and fields, as other code may. All of them use the calls in
:mod:`.calls`. :mod:`.operation` has their common base.
"""

from kvoxide.lab.verify.managers.operations.operation import Operation, operation_from_json

__all__ = ["Operation", "operation_from_json"]
