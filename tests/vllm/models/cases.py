"""The models that are planned, and how they are served."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent


def name_of(config: Path) -> str:
    """Return the model's name."""
    return config.name.removesuffix(".json")


def _lines(file: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the content of each line."""
    for line in (HERE / file).read_text().splitlines():
        yield from json.loads(line).items()


def _unpacked(into: Path) -> list[Path]:
    """Return the configurations of ``configs.jsonl``, which has a ``config.json`` in each line, and
    of ``published.jsonl``, which has the files of a published model in each line."""
    models = {name: {"config.json": config} for name, config in _lines("configs.jsonl")}
    models |= _lines("published.jsonl")
    for name, files in models.items():
        if files.keys() == {"config.json"}:
            (into / f"{name}.json").write_text(json.dumps(files["config.json"]))
            continue
        (into / name).mkdir()
        for file, content in files.items():
            (into / name / file).write_text(json.dumps(content))
    return list(into.iterdir())


_FOLDER = TemporaryDirectory(prefix="kvoxide-configs-")
# Each is a file, or a folder if there is more than a configuration.
CONFIGS = sorted([*(HERE / "configs").iterdir(), *_unpacked(Path(_FOLDER.name))], key=name_of)
BY_NAME = {name_of(path): path for path in CONFIGS}
ANSWERS = HERE / "vllm_answers.json"
MEMORIES = tuple(gib * 2**30 for gib in (16, 60, 141))
MAX_BATCHED_TOKENS = 2048

SERVED: tuple[dict[str, Any], ...] = (
    {},
    {"tensor_parallel": 8},
    {"cache_dtype": "fp8"},
    {"tensor_parallel": 2, "block_size": 64},
    {"pipeline_parallel": 3},
)
# For each kind of grouping, a model that vLLM builds within seconds.
SAMPLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama-3.1-8b", {"tensor_parallel": 2, "block_size": 64}),
    ("gemma-3-1b", {}),
    ("gemma-4-e4b", {"cache_dtype": "fp8"}),
    ("gpt-oss-120b", {"tensor_parallel": 8}),
    ("llama-4-scout", {}),
    ("deepseek-v3.2", {"cache_dtype": "fp8"}),
    ("deepseek-v4-flash", {}),
    ("qwen3-next-80b-a3b", {"tensor_parallel": 8}),
    ("nemotron-h-8b", {"pipeline_parallel": 3}),
    ("kimi-linear-48b-a3b", {"tensor_parallel": 8}),
)


@dataclass(frozen=True)
class Case:
    """A configuration, by its name, and the options of its server."""

    model: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    cache_dtype: str = "auto"
    block_size: int | None = None

    @property
    def config(self) -> Path:
        return BY_NAME[self.model]

    @property
    def served(self) -> dict[str, Any]:
        """The arguments of :class:`kvoxide.lab.model.Deployment`."""
        return {name: value for name, value in asdict(self).items() if name != "model"}


def all_cases() -> list[Case]:
    return [Case(name_of(path), **served) for path in CONFIGS for served in SERVED]


def sample() -> list[Case]:
    return [Case(model, **served) for model, served in SAMPLE]


def recorded() -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield vLLM's answer to each case. It has ``refused`` if vLLM raised an error."""
    for row in json.loads(ANSWERS.read_text()):
        yield Case(**row["case"]), row["answer"]
