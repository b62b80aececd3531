"""``python -m kvoxide.lab.verify``: the process of a verification."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvoxide.lab.verify.process import DIFFERS, INTERRUPTED, NOT_VERIFIED, VERIFIED
from kvoxide.lab.verify.suite import HarnessError, NotVerifiedError

if TYPE_CHECKING:
    from kvoxide.lab.verify.suite import FirstDifference
    from kvoxide.lab.verify.verification import Verification

_PREFIXES: Final = ("KVOXIDE", "VLLM_PIN_", "VLLM_PREFIX_CACHE_")
_SECONDS_BETWEEN_LINES: Final = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Verify, or play a recorded difference again. Return the exit code."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _replay(given.replay) if given.replay else _verify(given.seconds, given.seed)
    except KeyboardInterrupt:
        _say("Not verified: the run was interrupted. No certificate was written.")
        return INTERRUPTED
    except HarnessError as error:
        _say(f"Not verified: the test traffic does not work with this vLLM: {error}")
    except NotVerifiedError as error:
        _say(f"Not verified: {error}")
    except Exception as error:
        _say("".join(traceback.format_exception(error)).rstrip())
        _say(
            "Not verified: the test traffic does not work with this vLLM "
            f"({type(error).__name__}: {error})"
        )
    return NOT_VERIFIED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", type=Path, default=None)
    return parser


def _verify(seconds: float, seed: int | None) -> int:
    _prepare()
    from kvoxide.lab.verify import reference
    from kvoxide.lab.verify.verification import Verification
    from kvoxide.vllm.environment import recognise
    from kvoxide.vllm.environment.releases import installed_version

    _check_folder()
    run = Verification(time.time_ns() // 1_000_000 % 2**32 if seed is None else seed)
    rules = recognise().release.version
    print(f"vLLM {installed_version()}; kvoxide follows the rules of vLLM {rules}; seed {run.seed}")
    start = time.monotonic()
    found = run.run(seconds, _ProgressLine(run, seconds))
    if found is not None:
        return _say_difference(found, run)
    reference.require_vllms_code()
    if run.too_little:
        raise NotVerifiedError(
            f"too few calls of {', '.join(run.too_little)} in {seconds:g} s; increase --seconds"
        )
    if not run.kinds:
        raise NotVerifiedError(
            f"no kind of group had enough calls in {seconds:g} s; increase --seconds"
        )
    _certify(run, rules, time.monotonic() - start)
    return VERIFIED


def _check_folder() -> None:
    """Check before the traffic that its certificate can be written."""
    from kvoxide.vllm.environment import certificates

    try:
        certificates.check_writable()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotVerifiedError(
            f"the certificate cannot be written to {_folder_name()}: {reason}; set "
            f"{certificates.FOLDER_VARIABLE} to a writable folder, here and for the server"
        ) from None


def _folder_name() -> str:
    from kvoxide.vllm.environment import certificates

    try:
        return str(certificates.folder())
    except RuntimeError:
        return "the home folder"


def _prepare() -> None:
    """Prepare this process like a server's, but without kvoxide's takeovers."""
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        if name != "KVOXIDE_CERTIFICATES":
            del os.environ[name]
    os.environ["KVOXIDE"] = "off"
    from kvoxide.vllm.environment import shadow_reasons

    if reasons := shadow_reasons():
        raise NotVerifiedError("; ".join(reasons))
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    # The verification imports the modules that plugins may have changed.
    from kvoxide.lab.verify import reference, verification  # noqa: F401

    reference.require_vllms_code()


def _certify(run: "Verification", rules: str, seconds: float) -> None:
    from kvoxide._core import __version__
    from kvoxide.vllm.environment import certificates
    from kvoxide.vllm.environment.releases import installed_version

    certificate = certificates.Certificate(
        identity=certificates.current_identity(),
        vllm=str(installed_version()),
        kvoxide=__version__,
        release=rules,
        kinds=run.kinds,
        calls={name: covered.calls for name, covered in run.covered.items()},
        seconds=round(seconds, 1),
        seed=run.seed,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    try:
        path = certificate.write()
    except OSError as error:
        raise NotVerifiedError(
            f"no call differs, but the certificate cannot be written to {certificates.folder()}: "
            f"{error.strerror}; set {certificates.FOLDER_VARIABLE} to a writable folder, here and "
            "for the server"
        ) from None
    print(f"Verified: {certificate.num_calls:,} calls do not differ ({_calls_by_suite(run)})")
    print(f"  kinds of groups: {', '.join(certificate.kinds)}")
    print(f"  certificate: {path}")


def _say_difference(found: "FirstDifference", run: "Verification") -> int:
    from kvoxide.lab.verify.verification import SUITES

    print(f"Call {run.num_calls:,} differs (seed {run.seed}; compared: {_calls_by_suite(run)})")
    shrunk = SUITES[found.document["part"]].shrunk(found)
    _print_answers(shrunk)
    handle, path = tempfile.mkstemp(prefix="kvoxide-difference-", suffix=".json")
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(shrunk.document, file, indent=1)
    print(f"To play it again, run: kvoxide verify --replay {path}")
    return DIFFERS


def _replay(path: Path) -> int:
    _prepare()
    from kvoxide.lab.verify.verification import SUITES

    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        # Differences that the project recorded are differences of managers.
        suite = SUITES[document.get("part", "managers")]
        found = suite.play_again(document)
    except OSError as error:
        raise NotVerifiedError(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotVerifiedError(
            f"{path} is not a file that `kvoxide verify` wrote ({type(error).__name__}: {error})"
        ) from None
    if found is None:
        print(f"{path}: the call does not differ here")
        return VERIFIED
    _print_answers(found)
    return DIFFERS


def _print_answers(found: "FirstDifference") -> None:
    print(found.call)
    print(f"  vLLM:    {json.dumps(found.vllm)}")
    print(f"  kvoxide: {json.dumps(found.kvoxide)}")


def _calls_by_suite(run: "Verification") -> str:
    return ", ".join(f"{covered.calls:,} of {name}" for name, covered in run.covered.items())


class _ProgressLine:
    """Prints from time to time how far a verification is."""

    def __init__(self, run: "Verification", seconds: float) -> None:
        self._run = run
        self._seconds = seconds
        self._start = self._last = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            _say(f"{now - self._start:.0f} of {self._seconds:g} s, {self._run.num_calls:,} calls")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
