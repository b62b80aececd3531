"""A KV connector whose answers about requests a test chooses. Its loads never complete by
themselves."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

Answer = tuple[int | None, bool]

NOTHING: Answer = (0, False)
LATER: Answer = (None, False)


class StuckConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """``answers`` has the answer for each request by its id, with nothing for all others.
    ``sending`` has the ids of requests whose blocks are still read after they ended."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.sending: set[str] = set()
        self.num_queries = 0

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return False

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    @property
    def role(self) -> Any:
        raise NotImplementedError

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Answer:
        self.num_queries += 1
        return self.answers.get(request.request_id, NOTHING)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return ()

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        pass

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return request.request_id in self.sending, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return self.request_finished(request, block_ids)

    def start_load_kv(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def wait_for_save(self) -> None:
        raise NotImplementedError
