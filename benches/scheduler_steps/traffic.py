"""The requests of each phase, and the checks that the phase happened."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from benches.scheduler_steps.phases import PhaseError, Step
from benches.scheduler_steps.server import Server, random_prompt
from benches.scheduler_steps.sizes import Sizes

PROMPT: Final = "prompt"
OTHER: Final = "other"
_ANSWER: Final = 3
_MOST_STEPS_OF_A_LOAD: Final = 20
_MOST_PROMPTS_TO_FILL: Final = 10
_SETTLE: Final = 3

Phases = Iterator[tuple[str, list[Step]]]


class Traffic:
    """The requests of a run on one side."""

    def __init__(self, server: Server, sizes: Sizes) -> None:
        """Set what is run, and where."""
        self._server = server
        self._sizes = sizes

    def phases(self) -> Phases:
        """Yield each phase with its steps, in the order of :data:`~.phases.PHASES`."""
        self._start_decoding()
        yield "decode", self._server.steps(self._sizes.steps)
        yield from self._computed()
        yield from self._hit_on_gpu()
        yield from self._waiting()
        if self._sizes.connector != "none":
            yield "chunk-full", self._chunks_with_full_host()

    def _start_decoding(self) -> None:
        length = self._sizes.decoding_prompt
        started = [
            self._server.add(f"decoding {index}", random_prompt(f"decoding {index}", length))
            for index in range(self._sizes.decoding)
        ]
        while not all(request.num_output_tokens for request in started):
            self._server.step()
        self._server.steps(_SETTLE)

    def _computed(self) -> Phases:
        request = self._add(PROMPT, "computed", _ANSWER)
        yield "chunk", self._middle(self._prefill(request))
        yield "end", self._end(request)

    def _hit_on_gpu(self) -> Phases:
        request = self._add(PROMPT, "hit")
        step = self._server.step()
        self._require_computed(request, "on the GPU")
        yield "admission", [step]
        self._server.steps(_SETTLE)
        steps = self._server.steps(self._sizes.steps)
        if not all(request.request_id in step.tokens for step in steps):
            raise PhaseError("the long request was not scheduled in every step")
        yield "decode-next-to", steps
        self._server.evict(request)

    def _waiting(self) -> Phases:
        self._server.steps(_SETTLE)
        held = self._server.hold_all_but(self._sizes.blocks_to_decode)
        missing = self._add(OTHER, "missing")
        yield "wait-miss", self._wait(missing)
        self._server.abort(missing)
        if self._sizes.connector == "none":
            self._server.release(held)
            return
        stored = self._add(PROMPT, "stored", _ANSWER)
        yield "wait-hit", self._wait(stored)
        self._server.release(held)
        yield "load", self._load(stored)
        self._end(stored)

    def _add(self, prompt: str, name: str, *max_tokens: int) -> Any:
        return self._server.add(name, random_prompt(prompt, self._sizes.prompt_tokens), *max_tokens)

    def _prefill(
        self, request: Any, is_measured: Callable[[], bool] = lambda: True
    ) -> list[Step | None]:
        """Make steps up to the first token of output. A step that is not measured is None."""
        steps: list[Step | None] = []
        while not request.num_output_tokens:
            wanted = is_measured()
            step = self._server.step()
            if request.request_id not in step.tokens:
                raise PhaseError("a step had no chunk of the long prompt")
            steps.append(step if wanted else None)
        return steps

    def _middle(self, steps: list[Step | None]) -> list[Step]:
        """Return the measured steps without the first and last, which have other work too."""
        middle = [step for step in steps[1:-1] if step is not None]
        if not middle:
            raise PhaseError(
                f"no chunk between the first and the last of {len(steps)}"
                " was measured; increase --tokens"
            )
        return middle

    def _end(self, request: Any) -> list[Step]:
        step = self._server.step()
        while not request.is_finished():
            step = self._server.step()
        return [step, self._server.step()]

    def _wait(self, request: Any) -> list[Step]:
        steps = self._server.steps(self._sizes.steps)
        scheduled = sum(request.request_id in step.tokens for step in steps)
        if scheduled or request.num_computed_tokens or request.is_finished():
            raise PhaseError("the long prompt was admitted, although the GPU had no room")
        if len(steps[-1].tokens) != self._sizes.decoding:
            raise PhaseError("not every short request was decoded while the long prompt waited")
        return steps

    def _load(self, request: Any) -> list[Step]:
        steps: list[Step] = []
        is_loaded = False
        while not request.num_output_tokens and len(steps) < _MOST_STEPS_OF_A_LOAD:
            steps.append(self._server.step())
            jobs = self._server.output.kv_connector_metadata.load_jobs.values()
            is_loaded |= any(job.req_id == request.request_id for job in jobs)
            if request.request_id in steps[-1].tokens:
                self._require_computed(request, "in CPU memory")
        if not (is_loaded and request.num_output_tokens):
            raise PhaseError("the long prompt was not loaded from CPU memory")
        return steps

    def _require_computed(self, request: Any, place: str) -> None:
        """Raise an exception if the last step did not begin with most of the prompt computed."""
        begun = {
            new.req_id: new.num_computed_tokens for new in self._server.output.scheduled_new_reqs
        }
        hit = begun.get(request.request_id, 0)
        if 2 * hit < self._sizes.tokens:
            raise PhaseError(f"only {hit} tokens of the long prompt were a hit {place}")

    def _chunks_with_full_host(self) -> list[Step]:
        """Compute prompts until most chunks of one evict blocks in CPU memory."""
        for number in range(_MOST_PROMPTS_TO_FILL):
            request = self._add(f"{OTHER} {number}", f"filling {number}", _ANSWER)
            steps = self._prefill(request, lambda: self._server.is_host_full)
            self._end(request)
            if 2 * sum(step is not None for step in steps) >= len(steps):
                return self._middle(steps)
        raise PhaseError(f"{_MOST_PROMPTS_TO_FILL} long prompts did not fill CPU memory")
