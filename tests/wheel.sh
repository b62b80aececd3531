#!/usr/bin/env bash
# Builds the wheel that is published, audits it, and runs the tests of the Python API, of bad input
# and of replays with it in a new environment of each interpreter:
#
#     tests/wheel.sh [PYTHON...]          default: python3.11 python3.12 python3.13
#
# The wheel is left in target/wheel. Needs Rust with the target's standard library and a package
# registry; takes two to three minutes, and half a minute for each interpreter. PYTHON chooses the
# interpreter that the build tools run on.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The oldest glibc that Rust itself supports.
platform=manylinux2014
out=$PWD/target/wheel
tools=$PWD/target/wheel-tools
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

# maturin has checked the tag by itself; these two are written by others.
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
    "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/package/api tests/package/bad_input tests/package/replay
}

fail() {
    echo "tests/wheel.sh: $*" >&2
    exit 1
}

main "$@"
