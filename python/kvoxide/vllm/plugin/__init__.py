"""How kvoxide gets into a vLLM process: the functions that vLLM calls, and their decisions.

A server starts in these steps:

1. vLLM loads the entry points of the group ``vllm.general_plugins`` and calls ``register()`` in
   ``entry_point``, in every process.
2. ``register()`` checks the settings. It asks ``on_import`` to call functions as soon as vLLM has
   imported its modules, for metrics too. ``_take_over()`` then sets ``KVCacheManager.__new__`` to
   ``_dispatch()``.
3. vLLM's scheduler constructs its manager, so ``_dispatch()`` calls ``build_manager()`` in
   ``decision``.
4. ``build_manager()`` checks, in this order: the compiled module; vLLM's code, by fingerprint or
   certificate; code that other plugins replaced (runtime patches); the scheduler's class; the
   groups; a trial engine with a small pool; the kinds of groups that the certificate covers.
5. ``constructed()`` runs the constructor of kvoxide's manager, and ``announcement`` describes it in
   the log. If a check or the constructor fails, ``fall_back()`` logs the reason, and vLLM's own
   manager is constructed.
6. After ``Scheduler.__init__``, ``_guard()`` checks that no other plugin put its own manager there.
   ``standstill`` then watches the scheduler for requests that it does not admit.
7. While the server runs, nothing falls back. If other code changes something that the engine does
   not read, :mod:`kvoxide.vllm.adapter.switch` switches to vLLM's own objects.

Other outcomes: ``KVOXIDE=off`` ends step 2 at once. ``require`` makes each fallback an error.
``shadow`` constructs both managers, and vLLM's decides. A policy that the model cannot have raises
:class:`~kvoxide.vllm.environment.SettingsError`.

The plugin takes over five constructions:

- The manager (``decision``).
- The manager of the CPU offload cache, the offloading connector and the simple connector
  (``host``).
- The scheduler, which is only checked (``_guard()``).

It also replaces the function that makes request hashers (``hashing``).

This package loads without vLLM and without the compiled module.
"""

from kvoxide.vllm.environment import UnsupportedError
from kvoxide.vllm.plugin.entry_point import foreign_manager_reason, foreign_reason, register

__all__ = ["UnsupportedError", "foreign_manager_reason", "foreign_reason", "register"]
