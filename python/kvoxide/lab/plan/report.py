"""Shows the results of a search, as a table and as a JSON value."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvoxide._core import KvoxideError, __version__
from kvoxide.lab.output.tables import Column, print_table
from kvoxide.lab.plan.candidate import Candidate, Refusal, gib
from kvoxide.lab.plan.search import Found, Search
from kvoxide.lab.plan.target import Target
from kvoxide.lab.plan.uncertainty import Uncertainty
from kvoxide.lab.plan.verdict import Verdict, cheapest, ranked, shortfall
from kvoxide.lab.replay.input import TraceFile
from kvoxide.lab.replay.results import (
    hits_text,
    host_settings_record,
    serving_settings_record,
    size_note,
    trace_record,
)
from kvoxide.lab.replay.serving import StepFit
from kvoxide.lab.replay.setup import ServedModel


class UnmetTargetsError(KvoxideError):
    """No combination meets all targets. The message says how far the best one is from them."""


class CannotTellError(KvoxideError):
    """Fitted step times are too inexact to tell whether targets are met."""

    exit_status = 3


@dataclass(frozen=True)
class Report:
    """The results of a search. Times are in seconds. ``refusals`` are memories that were left
    out."""

    search: Search
    found: Found
    trace_file: TraceFile
    served: ServedModel
    refusals: tuple[Refusal, ...]
    fit: StepFit | None
    run_seconds: float

    def require_met(self) -> None:
        """Raise an error unless a combination meets all targets.

        The error is :class:`UnmetTargetsError`, or :class:`CannotTellError` if the error of step
        times leaves the answer open. If the search did not end, raise its failure.
        """
        if self.found.failure is not None:
            raise self.found.failure
        best = ranked(self.found.verdicts)[0]
        if best.is_open:
            raise CannotTellError(
                "cannot tell whether a combination meets all targets. The fitted step times have a"
                f" median error of {self.search.uncertainty.error:.1%}. Record more of the server's"
                " traffic, or give --step-time"
            )
        if not best.is_met:
            raise UnmetTargetsError(
                f"no combination meets all targets; the closest is {best.candidate.title}:"
                f" {shortfall(best)}"
            )

    def print(self) -> None:
        """Print the table, best first, and the conclusion."""
        verdicts = ranked(self.found.verdicts)
        print_table(self._title, _keys(verdicts), _columns(self.search.targets, verdicts))
        print("\n".join(self._summary()))

    def record(self) -> dict[str, Any]:
        """Return everything as a JSON value. Figures are in seconds, shares and tokens per
        second."""
        verdicts = ranked(self.found.verdicts)
        return {
            "kvoxide": __version__,
            "settings": self._settings_record(),
            "trace": trace_record(self.trace_file),
            "timing": {
                "read_seconds": self.trace_file.read_seconds,
                "run_seconds": self.run_seconds,
            },
            "is_complete": self.found.failure is None,
            "combinations": len(self.search.candidates),
            "played": self.found.num_played,
            "cheapest": [_candidate_record(v.candidate) for v in cheapest(verdicts)],
            "verdicts": [_verdict_record(verdict) for verdict in verdicts],
        }

    @property
    def _title(self) -> str:
        trace, workload = self.trace_file.trace, self.search.workload
        hosts = (candidate.host for candidate in self.search.candidates)
        hits = hits_text(self.served.plan.hit_tokens or None, self.served.groups, hosts)
        return (
            f"{self.trace_file.name}: {len(trace):,} requests, {trace.num_prompt_tokens:,} prompt"
            f" tokens, {trace.num_output_tokens:,} output tokens; format {trace.format}\n"
            f"{self.served.title}\n"
            f"{hits}; concurrency {workload.concurrency:,};"
            f" {workload.max_batched_tokens:,} tokens per step; targets"
            f" {', '.join(target.text for target in self.search.targets)}"
        )

    def _summary(self) -> list[str]:
        found, search = self.found, self.search
        lines = [f"cheapest: {verdict.candidate.title}" for verdict in cheapest(found.verdicts)]
        for refusal in self.refusals:
            lines.append(f"{gib(refusal.memory)} is left out: {refusal.reason}")
        num_all, num_same = len(search.candidates), len(found.verdicts) - found.num_played
        lines += [*self._length_notes(), *self._host_notes()]
        combinations = "combination" if num_all == 1 else "combinations"
        counts = [f"{num_all:,} {combinations}, {found.num_played:,} tried"]
        if num_same:
            counts.append(f"{num_same:,} equal to one with less memory that had spare memory (=)")
        if num_left := num_all - len(found.verdicts):
            counts.append(f"{num_left:,} {'not tried' if found.failure else 'cost more'}")
        if self.fit is not None:
            lines.append(self.fit.text)
            lines.append(_effect(search.uncertainty))
        lines.append(f"{', '.join(counts)}; {self.run_seconds:.2f} s")
        return lines

    def _length_notes(self) -> Iterator[str]:
        """Yield how many prompts a server would refuse, if any."""
        longest = self.served.plan.max_model_len
        result = self.found.verdicts[0].result
        num_refused = int((result.per_request[:, 0] >= longest).sum())
        if num_refused:
            prompts = "prompt has" if num_refused == 1 else "prompts have"
            yield (
                f"{num_refused:,} {prompts} {longest:,} tokens (max_model_len) or more. A server"
                " refuses them; here they were played"
            )

    def _host_notes(self) -> list[str]:
        """Return why sizes of CPU memory bring little under vLLM's policies, one sentence for each
        size and pool."""
        notes = {}
        for verdict in self.found.verdicts:
            candidate, host = verdict.candidate, verdict.candidate.host
            if host is None:
                continue
            longest = int(verdict.result.per_request[:, 0].max(initial=0))
            note = size_note(host, candidate.blocks, longest, self.search.workload.groups)
            if note is not None:
                size = host.name.rpartition(" ")[0]
                notes[host.memory.num_chunks, candidate.blocks] = (
                    f"{gib(candidate.memory)} on each GPU, CPU memory {size}: {note}"
                )
        return [note for _, note in sorted(notes.items())]

    def _settings_record(self) -> dict[str, Any]:
        search, workload = self.search, self.search.workload
        serving = serving_settings_record(search.time.timed(1, None), self.fit) or {}
        one_each = ("instances", "router", "weights")
        return {
            "targets": [target.text for target in search.targets],
            "model": self.served.record(),
            "left_out": [asdict(refusal) for refusal in self.refusals],
            "concurrency": workload.concurrency,
            "max_batched_tokens": workload.max_batched_tokens,
            "all": search.plays_all,
            "relative_error_of_times": search.uncertainty.error,
            "serving": {name: value for name, value in serving.items() if name not in one_each},
        }


def _effect(uncertainty: Uncertainty) -> str:
    if uncertainty.is_too_large:
        return (
            "with this error, targets of time cannot be judged; record more of the server's"
            " traffic, or give --step-time"
        )
    return "this median error is subtracted from the margins of times"


def _met(verdict: Verdict) -> str:
    return "yes" if verdict.is_met else "cannot tell" if verdict.is_open else "no"


def _keys(verdicts: Sequence[Verdict]) -> list[Column]:
    candidates = [verdict.candidate for verdict in verdicts]
    hosts = ["-" if candidate.host is None else candidate.host.name for candidate in candidates]
    has_hosts = any(candidate.host for candidate in candidates)
    return [
        Column("met", [_met(verdict) for verdict in verdicts], is_name=True),
        Column("GPUs", [f"{candidate.gpus:,}" for candidate in candidates]),
        Column("memory\nper GPU", [gib(candidate.memory) for candidate in candidates]),
        *([Column("CPU\nmemory", hosts, is_name=True)] if has_hosts else []),
        Column("instances", [f"{candidate.instances:,}" for candidate in candidates]),
        Column("router", [candidate.router for candidate in candidates], is_name=True),
        Column("policy", [candidate.policy.name for candidate in candidates], is_name=True),
        Column("", ["=" if verdict.same_as else "" for verdict in verdicts], is_name=True),
    ]


def _columns(targets: Sequence[Target], verdicts: Sequence[Verdict]) -> list[Column]:
    columns = []
    for which, target in enumerate(targets):
        values = [verdict.figures[which] for verdict in verdicts]
        shown = ["-" if value is None else target.metric.show(value) for value in values]
        margins = [verdict.margins[which] for verdict in verdicts]
        columns.append(Column(target.name, shown))
        columns.append(Column("margin", ["-" if m is None else f"{m:+.1%}" for m in margins]))
    if any(verdict.loaded_share is not None for verdict in verdicts):
        shares = [verdict.loaded_share for verdict in verdicts]
        columns.append(Column("hit on\nCPU", ["-" if s is None else f"{s:.2%}" for s in shares]))
    if any(verdict.num_rejected for verdict in verdicts):
        columns.append(Column("rejected", [f"{verdict.num_rejected:,}" for verdict in verdicts]))
    return columns


def _candidate_record(candidate: Candidate) -> dict[str, Any]:
    return {
        "gpus": candidate.gpus,
        "memory": candidate.memory,
        "blocks": candidate.blocks,
        "instances": candidate.instances,
        "router": None if candidate.instances == 1 else candidate.router,
        "policy": candidate.policy.name,
        **({} if candidate.host is None else {"host_memory": host_settings_record(candidate.host)}),
    }


def _verdict_record(verdict: Verdict) -> dict[str, Any]:
    parts = zip(verdict.targets, verdict.figures, verdict.margins, strict=True)
    same_as = verdict.same_as
    return {
        **_candidate_record(verdict.candidate),
        "is_met": None if verdict.is_open else verdict.is_met,
        "rejected_requests": verdict.num_rejected,
        **({} if verdict.loaded_share is None else {"loaded_share": verdict.loaded_share}),
        "same_as_memory": same_as and same_as.memory,
        **({} if same_as is None or same_as.host is None else {"same_as_host": same_as.host.name}),
        "figures": {
            target.name: {"value": value, "margin": margin} for target, value, margin in parts
        },
    }
