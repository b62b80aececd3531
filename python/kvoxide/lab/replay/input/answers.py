"""Whether the outputs of a trace come back in later prompts, and the option that makes them."""

from dataclasses import replace

from kvoxide._core import Trace, TraceError
from kvoxide.lab.replay.input.trace_file import TraceFile, TraceFileError

_OPTION = "--answers-return"


def with_answers(file: TraceFile, *, are_returned: bool) -> TraceFile:
    """The trace with a note on its answers; with ``are_returned``, they are taken from the prompts
    of follow-ups. Raises :class:`TraceFileError` where no line names a conversation."""
    trace = file.trace
    if not are_returned:
        return replace(file, answers_note=_note(trace))
    if trace.has_answers:
        note = f"the trace already says which answers come back; {_OPTION} changes nothing"
        return replace(file, answers_note=note)
    try:
        found = trace.return_answers()
    except TraceError as error:
        raise TraceFileError(
            f"{file.name}: {_OPTION} infers answers from the next prompt of a conversation, but no"
            " line names its conversation. Give each line a session_id, or a chat_id and a"
            " parent_chat_id"
        ) from error
    note = (
        f"answers of {found:,} of {len(trace):,} requests come back in a later prompt."
        f" The other {len(trace) - found:,} have no later prompt that contains the answer"
    )
    return replace(file, returned_answers=found, answers_note=note)


def _note(trace: Trace) -> str | None:
    """That answers do not come back, unless they do or nothing asks for one."""
    follow_ups = trace.num_follow_ups
    if trace.has_answers or follow_ups == 0 or len(trace) == 1 or not trace.num_output_tokens:
        return None
    condition = "" if follow_ups else " of lines with a session_id"
    return (
        "no answer comes back in this trace: without output_hash_ids, generated tokens are unique."
        f" {_OPTION} infers the answers{condition} from later prompts"
    )
