"""KV-cache block manager for LLM inference servers, written in Rust, with vLLM's interface.

A :class:`KVCacheManager` shares a pool of blocks among requests and keeps blocks that later
requests can reuse. Describe the model with :class:`KVCacheGroupSpec` and :class:`KVCacheConfig`,
the retention with :class:`Policy`, and each request with :class:`Request`. Then look up, allocate
and free::

    manager = KVCacheManager(KVCacheConfig(1024, [KVCacheGroupSpec("full_attention", 16)]), 8192)
    request = Request("a", prompt_token_ids, block_hasher=BlockHasher(16))
    hit, num_hit_tokens, _ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, request.num_tokens - num_hit_tokens, num_hit_tokens, hit)
    manager.free(request)

Lengths and positions are in tokens, block ids and counts in blocks. Every error that kvoxide raises
on purpose is a :class:`KvoxideError`. The manager is then unchanged, except after a
:class:`PoisonedError`: it may be half changed, and refuses every further call.
"""

from kvoxide._broken_install import raiser

__all__ = [
    "DEFAULT_PIN_MIN_DROP_SIZE",
    "AllBlocksCleared",
    "BlockError",
    "BlockHashError",
    "BlockHasher",
    "BlockPool",
    "BlockRemoved",
    "BlockStored",
    "BusyError",
    "ConfigError",
    "DuplicateRequestError",
    "GroupDeclaration",
    "HostEvent",
    "HostMemory",
    "HostMemoryResult",
    "HostRequest",
    "HostStep",
    "HostStorePlan",
    "HostTier",
    "HostTransfer",
    "InstanceResult",
    "InternalError",
    "KVCacheBlock",
    "KVCacheBlockCopy",
    "KVCacheBlocks",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "KVCacheManager",
    "KvoxideError",
    "OutcomeReport",
    "PickleError",
    "PoisonedError",
    "Policy",
    "PrefixCacheStats",
    "Request",
    "RequestError",
    "RequestStatus",
    "Retention",
    "RetentionReport",
    "Serving",
    "ServingResult",
    "Simulation",
    "SimulationResult",
    "StepTime",
    "Trace",
    "TraceError",
    "UnknownRequestError",
    "UnsupportedGroupError",
    "__version__",
    "group_kinds",
]

try:
    from kvoxide._core import (
        DEFAULT_PIN_MIN_DROP_SIZE,
        AllBlocksCleared,
        BlockError,
        BlockHasher,
        BlockHashError,
        BlockPool,
        BlockRemoved,
        BlockStored,
        BusyError,
        ConfigError,
        DuplicateRequestError,
        GroupDeclaration,
        HostEvent,
        HostMemory,
        HostMemoryResult,
        HostRequest,
        HostStep,
        HostStorePlan,
        HostTier,
        HostTransfer,
        InstanceResult,
        InternalError,
        KVCacheBlock,
        KVCacheBlockCopy,
        KVCacheBlocks,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheManager,
        KvoxideError,
        OutcomeReport,
        PickleError,
        PoisonedError,
        Policy,
        PrefixCacheStats,
        Request,
        RequestError,
        RequestStatus,
        Retention,
        RetentionReport,
        Serving,
        ServingResult,
        Simulation,
        SimulationResult,
        StepTime,
        Trace,
        TraceError,
        UnknownRequestError,
        UnsupportedGroupError,
        __version__,
        group_kinds,
    )
except ImportError as error:
    globals()["__getattr__"] = raiser(__all__, error)
