#!/usr/bin/env bash
# Builds the wheel for publication and audits it. In a new environment of each interpreter, it runs the
# tests of the Python API, of bad input, of replays and of plans with the wheel, and then its commands
# outside of the checkout:
#
#     tests/wheel.sh [PYTHON...]          default: python3.11 python3.12 python3.13
#
# The wheel stays in target/wheel. The script needs Rust with the target's standard library and a
# package registry. It takes four minutes, and four more for each interpreter. PYTHON chooses the
# interpreter of the build tools.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The oldest glibc that Rust itself supports.
platform=manylinux2014
out=$PWD/target/wheel
tools=$PWD/target/wheel-tools
on_ray=tests/package/replay/test_replay_on_ray.py
export PIP_DISABLE_PIP_VERSION_CHECK=1

main() {
    local interpreters=("$@")
    [[ $# -gt 0 ]] || interpreters=(python3.11 python3.12 python3.13)
    install_tools
    build
    audit
    local python
    for python in "${interpreters[@]}"; do
        run_tests "$python"
    done
}

step() {
    printf '\n== %s\n' "$*"
}

install_tools() {
    step 'build tools'
    "${PYTHON:-python3}" -m venv --clear "$tools"
    "$tools/bin/python" -m pip install --quiet -r tests/requirements-wheel.txt
}

build() {
    step "wheel for $platform"
    rm -rf "$out"
    PATH=$tools/bin:$PATH maturin build --release --locked --zig --compatibility "$platform" --out "$out"
    wheel=$(echo "$out"/*.whl)
}

# maturin has checked the tag itself. These two tools come from other projects.
audit() {
    step auditwheel
    local report
    report=$("$tools/bin/auditwheel" show "$wheel")
    echo "$report"
    [[ $report == *'platform tag:'*manylinux_2_17_x86_64* ]] || fail 'the tag is not reached'
    step abi3audit
    "$tools/bin/abi3audit" --strict --verbose "$wheel"
}

run_tests() { # PYTHON
    step "tests with $("$1" --version)"
    local venv=$PWD/target/wheel-env
    "$1" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet -c tests/requirements.txt "$wheel[html,ray]" pytest
    "$venv/bin/kvoxide" --version
    "$venv/bin/python" -c 'import kvoxide, sys; sys.exit(not kvoxide.__file__.startswith(sys.prefix))' \
        || fail 'this is not the kvoxide of the wheel'
    local pytest=("$venv/bin/python" -m pytest -q -p no:cacheprovider)
    "${pytest[@]}" tests/package/{api,replay,plan,test_bad_input.py} --ignore "$on_ray"
    # These run in a process of their own, as in tests/run.sh.
    GRPC_ENABLE_FORK_SUPPORT=0 timeout 600 "${pytest[@]}" "$on_ray"
    try_commands "$venv"
}

# Outside of a checkout, checks the data, the page's assets, and the program that --on starts workers
# with.
try_commands() { # VENV
    step 'commands of the installed package'
    local kvoxide=$1/bin/kvoxide folder model=$PWD/tests/vllm/models/configs/qwen3-8b.json
    folder=$(mktemp --directory)
    (
        cd "$folder"
        "$kvoxide" replay sample --requests 60 --quiet --json here.json --html page.html
        RAY_ADDRESS=local "$kvoxide" replay sample --requests 60 --quiet --json there.json --on ray
        "$kvoxide" plan sample --requests 60 --model "$model" --max-model-len 32768 --memory 20GiB \
            --instances 1 --target 'hit_share>1%'
        "$1/bin/python" - <<'EOF'
import importlib.resources, json, re
from pathlib import Path

def counts(name):
    results = json.loads(Path(name).read_bytes())["results"]
    return [(each["policy"], each["hit_tokens"], each["evictions"]) for each in results]

package = importlib.resources.files("kvoxide")
assert (package / "py.typed").is_file() and (package / "_core.pyi").is_file()
assert len(counts("here.json")) == 2 and counts("here.json") == counts("there.json")
page = Path("page.html").read_text(encoding="utf-8")
assert len(page) > 1_000_000 and "plotly" in page and not re.search(r"<(script|link)[^>]+https?:", page)
EOF
    )
    rm -r "$folder"
}

fail() {
    echo "tests/wheel.sh: $*" >&2
    exit 1
}

main "$@"
