"""Models of a few hundred kilobytes, with weights that are random but always the same.

Their weights are so large that attention matters: a block with wrong contents changes the tokens.
vLLM's own dummy weights would not show this.
"""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

VOCABULARY = 512
FIRST_ORDINARY_TOKEN = 3
WINDOW = 64
MAX_POSITIONS = 2048

HIDDEN_SIZE = 64

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.5,
    "dtype": "float32",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

SLOW = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}


def write_models(root: Path) -> None:
    """Write ``llama``, its drafts ``draft`` (its first layer) and ``eagle``, and ``gemma``."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import_module("torch").manual_seed(0)
    llama = write_llama(root / "llama")
    draft = write_draft(root / "draft", llama)
    write_eagle(root / "eagle", draft)
    write_gemma(root / "gemma")
    for name in ("llama", "gemma"):
        write_tokenizer(root / name)


def write_llama(path: Path) -> Any:
    llama = llama_model(num_hidden_layers=2)
    llama.save_pretrained(path)
    return llama


def write_slow_llama(path: Path) -> None:
    """Write a model whose steps take longer than the work around them in a server."""
    llama_model(num_hidden_layers=4, **SLOW).save_pretrained(path)
    write_tokenizer(path)


def write_slow_gemma(path: Path) -> None:
    write_gemma(path, **SLOW)
    write_tokenizer(path)


def write_draft(path: Path, llama: Any) -> Any:
    draft = llama_model(num_hidden_layers=1)
    draft.load_state_dict(llama.state_dict(), strict=False)
    draft.save_pretrained(path)
    return draft


def llama_model(num_hidden_layers: int, **sizes: int) -> Any:
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(num_hidden_layers=num_hidden_layers, **(COMMON | sizes))
    return transformers.LlamaForCausalLM(config)


def write_eagle(path: Path, draft: Any) -> None:
    """Write a draft head whose first projection passes the token's embedding and drops the rest."""
    torch = import_module("torch")
    prefix = "model."
    weights = {
        name.removeprefix(prefix): tensor.clone()
        for name, tensor in draft.state_dict().items()
        if name.startswith(prefix + "layers.") and "input_layernorm" not in name
    }
    weights["fc.weight"] = torch.eye(HIDDEN_SIZE, 2 * HIDDEN_SIZE)
    path.mkdir()
    draft.config.save_pretrained(path)
    import_module("safetensors.torch").save_file(weights, path / "model.safetensors")


def write_gemma(path: Path, **sizes: int) -> None:
    transformers = import_module("transformers")
    settings = {"num_hidden_layers": 6, "sliding_window": WINDOW, **(COMMON | sizes)}
    config = transformers.Gemma3TextConfig(**settings)
    gemma = transformers.Gemma3ForCausalLM(config)
    # Input and output share their embeddings. Large ones would make each token predict itself.
    gemma.model.embed_tokens.weight.data *= 0.02
    gemma.save_pretrained(path)


def write_tokenizer(path: Path) -> None:
    """Write a tokenizer with one word per token, ``t0`` to ``t511``. Servers need a tokenizer even
    for token ids."""
    tokenizers = import_module("tokenizers")
    words = {f"t{token}": token for token in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "t2", "pad_token": "t0"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
