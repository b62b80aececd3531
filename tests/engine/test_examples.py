"""The programs in ``examples`` that need a server print what their docstrings say, and the steps of
``docs/start/first-server.md`` answer as the page says. They share one server."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testing import doc_pages
from tests.testing.examples import (
    EXAMPLES,
    documented_command,
    documented_output,
    documented_variables,
    run_example,
    with_path,
)
from tests.testing.paths import DOCS
from tests.testing.vllm_releases import NEWEST

from .jobs import BLOCK_SIZE
from .processes import engine_environment
from .server import START_TIMEOUT, STOP_TIMEOUT, free_ports, write_metadata

ON_A_CPU = ("--dtype", "float32", "--enforce-eager", "--distributed-executor-backend", "uni")
# The command `vllm` of the newest release. Its process is preloaded, because imports take long.
VLLM = f"""#!{sys.executable}
import os, signal, sys
from tests.testing import preloaded
command = ["-m", "tests.engine.serve_forking", *sys.argv[1:]]
server = preloaded.start(command, dict(os.environ), files=(0, 1, 2))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: server.send_signal(signal.Signals(number)))
sys.exit(server.wait())
"""
LAST_LINE = documented_output("serve.py").splitlines()[-1]


def install_vllm(folder: Path) -> None:
    folder.mkdir()
    (folder / "vllm").write_text(VLLM)
    (folder / "vllm").chmod(0o755)


@pytest.fixture(scope="module")
def environment(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    commands = tmp_path_factory.mktemp("examples") / "bin"
    install_vllm(commands)
    write_metadata(models)
    variables = documented_variables("serve.py") | {
        "PORT": str(free_ports(1)),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    return with_path(engine_environment("require", NEWEST, models) | variables, commands)


@pytest.fixture(scope="module")
def url(environment: dict[str, str]) -> str:
    return f"http://127.0.0.1:{environment['PORT']}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def serve(environment: dict[str, str], models: Path, folder: Path) -> Iterator[Path]:
    """Run ``serve.py`` until it says how to stop it. Return the file with its output."""
    _, *options = documented_command("serve.py")
    program = [sys.executable, str(EXAMPLES / "serve.py"), str(models / "llama")]
    output = folder / "serve.txt"
    # A shell lets programs in the background ignore the signal, and so would the server.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*program, *options, *ON_A_CPU], cwd=folder, env=environment, stdout=stream
        )
    try:
        wait_for(output, process)
        yield output
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_TIMEOUT) == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()


def wait_for(output: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_TIMEOUT
    log = output.with_name("server.log")
    while LAST_LINE not in output.read_text():
        assert process.poll() is None, log.read_text()[-5000:]
        assert time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.2)


def test_serve_prints_its_documented_output(serve: Path, url: str) -> None:
    assert serve.read_text().replace(url, "http://127.0.0.1:8000") == documented_output("serve.py")


# The recording has the requests of serve.py too, but none of priorities.py, which comes later.
@pytest.mark.usefixtures("serve")
@pytest.mark.parametrize("name", ["record_and_replay.py", "priorities.py"])
def test_client_prints_its_documented_output(
    name: str, url: str, environment: dict[str, str], folder: Path
) -> None:
    _, *arguments = documented_command(name)
    printed = run_example(name, [url, *arguments], folder, environment)
    assert printed == documented_output(name)


# The page's commands, with the model, the address and the length of a prompt that this server has.
PAGE = DOCS / "start/first-server.md"
MODEL_OF_PAGE, ADDRESS_OF_PAGE, FACTS_OF_PAGE = "Qwen/Qwen3-0.6B", "localhost:8000", "range(200)"
FACTS = "range(100)"


# This comes last, because its prompt takes blocks from the pool.
@pytest.mark.skipif(shutil.which("curl") is None, reason="the steps of the page run curl")
@pytest.mark.usefixtures("serve")
def test_the_second_prompt_of_the_first_server_is_cached_as_the_page_says(
    url: str, models: Path, environment: dict[str, str], folder: Path
) -> None:
    send, send_again = (fence.text for fence in doc_pages.fences(PAGE) if "curl" in fence.text)
    assert FACTS_OF_PAGE in send
    own = {
        MODEL_OF_PAGE: str(models / "llama"),
        ADDRESS_OF_PAGE: url.removeprefix("http://"),
        FACTS_OF_PAGE: FACTS,
    }
    first, again = (answer_of(script, own, folder, environment) for script in (send, send_again))
    said = '"cached_tokens":0'
    assert f"`{said}`" in PAGE.read_text("utf-8")
    assert said in first
    assert "at most one block smaller than `prompt_tokens`" in PAGE.read_text("utf-8")
    usage = json.loads(again)["usage"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < computed <= BLOCK_SIZE < usage["prompt_tokens"]


def answer_of(script: str, own: dict[str, str], folder: Path, environment: dict[str, str]) -> str:
    """Return the output of a script of a page, with this test's ``own`` values."""
    for on_page, here in own.items():
        script = script.replace(on_page, here)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
