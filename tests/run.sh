#!/usr/bin/env bash
# Tests of kvoxide. It stops at the first that fails. CONTRIBUTING.md says what to run for which change.
#
#     tests/run.sh lint                          format, licences, the project's own files; builds nothing
#     tests/run.sh core                          format, lint, and the tests of every decision; a minute
#     tests/run.sh package [PYTEST OPTION...]    types, and the package without vLLM
#     tests/run.sh vllm [PYTEST OPTION...]       the adapter in vLLM, and vLLM's engine
#     tests/run.sh proof [PYTEST OPTION...]      the same traffic through vLLM's manager and kvoxide's
#     tests/run.sh docs                          the site of docs, and the tests of its pages
#     tests/run.sh speed                         instructions of hot paths, and speed compared with vLLM
#     tests/run.sh quick [PYTEST ARGUMENT...]    all tests that need no vLLM
#     tests/run.sh [PYTEST ARGUMENT...]          every test; a change has to pass them
#     tests/run.sh long [PART...]                hours: see tests/long.sh
#
# It needs Rust, Python 3.11 or later and a package registry. Installed packages and cargo's build
# results stay in $KVOXIDE_CACHE (default: kvoxide in the user's cache folder) for the next run. vLLM is
# 7 GB of it. PYTHON chooses the interpreter.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PYTHON=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Hundreds of processes import kvoxide and these tests. Compiled once, that takes half the time.
unset PYTHONDONTWRITEBYTECODE
source tests/environments.sh

main() {
    case ${1:-} in
        lint | core | package | vllm | proof | docs | speed | quick) "$@" ;;
        long) shift; source tests/long.sh; long "$@" ;;
        *) whole "$@" ;;
    esac
}

lint() {
    check_format
    check_project
    supply_chain
    end_step
}

core() {
    check_format
    enter_target_folder
    rust_tests --package kvoxide-core --package kvoxide-fuzzed
    end_step
}

package() {
    build tools
    find_browser
    find_prometheus
    check_types
    check_stubs
    [[ $# -gt 0 ]] || ray_apart
    run_pytest tests/package "$@"
}

vllm() {
    build vllm
    run_pytest_beside_vllm tests/vllm tests/engine "$@"
}

proof() {
    build vllm
    run_pytest_beside_vllm tests/proof "$@"
}

docs() {
    build tools
    build_site
    run_pytest tests/package/docs tests/package/api/test_{docs,style}.py tests/package/test_site.py
}

speed() {
    build vllm
    measure_speed
}

quick() {
    check_sources
    build tools
    find_browser
    find_prometheus
    check_types
    check_stubs
    [[ $# -gt 0 ]] || count_instructions
    run_pytest "$@"
}

whole() {
    check_format
    enter_target_folder
    # The linker of the release build uses one core for a minute or two, so the other one is free.
    start_beside rust_tests_and_types
    check_project
    supply_chain
    build vllm
    check_stubs
    build_site
    find_browser
    find_prometheus
    end_beside
    leave_target_folder
    if [[ $# -gt 0 ]]; then
        run_pytest_beside_vllm "$@"
        return
    fi
    start_beside small_steps
    compare_speed
    run_pytest_beside_vllm --ignore "$on_ray"
    wait_beside
}

# No type depends on the build.
rust_tests_and_types() {
    rust_tests --workspace
    check_types
    end_step
}

# The number of instructions does not depend on other load, and Ray mostly waits.
small_steps() {
    count_instructions
    ray_cluster
}

# Runs a step at the same time as others. Its output is printed when they have ended.
start_beside() { # FUNCTION ARGUMENT...
    end_step
    log_beside=$(mktemp)
    "$@" >"$log_beside" 2>&1 &
    beside=$!
}

end_beside() {
    local passed=true
    step 'what ran beside, to its end'
    wait "$beside" || passed=false
    cat "$log_beside"
    rm "$log_beside"
    $passed
}

# Prints nothing if the step passed, so that pytest's closing line stays the last.
wait_beside() {
    wait "$beside" || end_beside
    rm "$log_beside"
}

check_sources() {
    check_format
    check_project
    supply_chain
    enter_target_folder
    rust_tests --workspace
}

check_format() {
    step rustfmt
    cargo fmt --all --check
    step ruff
    find_tools
    "$tools/bin/ruff" check
    "$tools/bin/ruff" format --check
}

# The files that GitHub, PyPI, Docker and Grafana read: against their published schemas, and workflows
# for what could give a stranger the project's rights. All of it works without the network.
check_project() {
    step 'project files'
    local bin forms=.github/ISSUE_TEMPLATE
    bin=$(find_supply)
    against vendor.github-workflows .github/workflows/*.yml
    against custom.github-workflows-require-timeout .github/workflows/*.yml
    against vendor.github-actions .github/actions/*/action.yml
    against vendor.github-issue-config "$forms/config.yml"
    against vendor.github-issue-forms "$forms"/{bug,difference,unsupported_vllm}.yml
    against vendor.dependabot .github/dependabot.yml
    against vendor.citation-file-format CITATION.cff
    against vendor.compose-spec deploy/compose/compose.yaml
    "$bin/python" -m tests.testing.grafana deploy/grafana/*.json
    "$bin/zizmor" --offline --quiet --no-progress .github
    VALIDATE_PYPROJECT_NO_NETWORK=1 "$bin/validate-pyproject" pyproject.toml
}

against() { # SCHEMA FILE...
    "$bin/check-jsonschema" --builtin-schema "$@"
}

find_supply() {
    echo "$(cached_venv supply tests/requirements-supply.txt)/bin"
}

# Licences, sources and double versions of crates. Vulnerabilities need the network: see
# docs/reference/dependencies.md.
supply_chain() {
    step 'cargo deny'
    local allow=(-A license-not-encountered -A license-exception-not-encountered -A unmatched-skip)
    local deny
    deny=$(find_supply)/cargo-deny
    for manifest in Cargo.toml rust/fuzz/Cargo.toml; do
        "$deny" --locked --manifest-path "$manifest" --config deny.toml \
            check "${allow[@]}" bans licenses sources
    done
    "$PYTHON" -m tests.wheel.licences --check
}

# A crate that Python loads as a module has no test binary of its own.
rust_tests() { # CRATES...
    step clippy
    cargo clippy --locked "$@" --lib --tests --examples -- -D warnings
    step 'Rust tests'
    [[ $1 != --workspace ]] || set -- "$@" --exclude kvoxide-python
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --locked "$@"
    else
        cargo test --locked --all-targets "$@"
    fi
    cargo test --locked --doc --quiet "$@"
    end_step
}

find_tools() {
    tools=$(cached_venv tools tests/requirements.txt)
}

build() { # tools|vllm
    find_tools
    enter_target_folder
    install_kvoxide "$1"
}

check_types() {
    step mypy
    MYPY_CACHE_DIR=$cache/mypy "$tools/bin/mypy" --strict
}

check_stubs() {
    step 'stubs of the compiled module'
    MYPY_CACHE_DIR=$cache/mypy-of-stubs MYPYPATH=python "$venv/bin/python" -m mypy.stubtest \
        --mypy-config-file pyproject.toml --allowlist tests/stubtest_allowlist.txt \
        kvoxide._core kvoxide._core_vllm
}

# Writes target/site. Anything that mkdocs warns of is an error. Nothing comes from the network.
build_site() {
    step 'site of docs'
    local packages
    packages=$(site_packages "$(cached_venv docs tests/requirements-docs.txt)")
    NO_MKDOCS_2_WARNING=1 PYTHONPATH=$packages "$venv/bin/python" -m mkdocs build --quiet
    end_step
}

# The number of instructions does not depend on other load. So one core counts instructions while
# another one measures times.
measure_speed() {
    start_beside count_instructions
    compare_speed
    end_beside
    end_step
}

count_instructions() {
    step 'instructions of hot paths'
    "$venv/bin/python" -m benches.gate counts
    end_step
}

compare_speed() {
    step 'speed beside vLLM'
    # These bounds are loose and hold under other load. python -m benches.gate has tight bounds, for a
    # machine with a baseline of its own.
    env "${newest_vllm[@]}" "$venv/bin/python" -m pytest benches/test_manager_speed.py
}

run_pytest() { # PYTEST ARGUMENT...
    leave_target_folder
    [[ $# -gt 0 ]] || ray_apart
    step pytest
    exec "$venv/bin/python" -m pytest "${all_but_ray[@]}" "$@"
}

# On two cores, runs two processes at a time; a comparison of engines runs two as well.
# tests/testing/parallel.py decides which of them runs which test.
run_pytest_beside_vllm() { # PYTEST ARGUMENT...
    leave_target_folder
    step pytest
    env "${newest_vllm[@]}" "$venv/bin/python" -m pytest \
        --numprocesses "$(processes)" "$@"
}

# These tests have a process of their own. Processes that Ray has started keep the pipes of a crashed
# worker open, and pytest-xdist would wait for them for ever.
on_ray=tests/package/replay/test_replay_on_ray.py
all_but_ray=()
ray_apart() {
    leave_target_folder
    ray_cluster
    all_but_ray=(--ignore "$on_ray")
}

ray_cluster() {
    step 'Ray cluster'
    GRPC_ENABLE_FORK_SUPPORT=0 timeout 600 "$venv/bin/python" -m pytest "$on_ray"
    end_step
}

processes() {
    local cores
    cores=$(nproc)
    echo $((cores < 4 ? cores : 4))
}

main "$@"
