#!/usr/bin/env bash
# Builds a file for publication and checks it:
#
#     tests/wheel.sh [PYTHON...]          default: python3.11 python3.12 python3.13
#
# PLATFORM is manylinux, musllinux, macos or sdist, and MACHINE the processor, x86_64 or aarch64; by
# default, this machine's. Linux wheels can be built for both processors. A wheel that runs on this
# machine is tested in a new environment of each interpreter: on Linux the tests of the Python API, of
# bad input, of replays and of plans, and then its commands outside of the checkout; on macOS, a replay.
#
# The file is in target/wheel. The script needs Rust, rustup for targets that are not installed, and a
# package registry. It takes four minutes, and four more for each interpreter. PYTHON chooses the
# interpreter of the build tools.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source=$PWD/target/wheel-source
out=$PWD/target/wheel
tools=$PWD/target/wheel-tools
on_ray=tests/package/replay/test_replay_on_ray.py
export PIP_DISABLE_PIP_VERSION_CHECK=1

main() {
    platform=${PLATFORM:-$(this_platform)}
    machine=${MACHINE:-$(this_machine)}
    local interpreters=("$@") python
    [[ $# -gt 0 ]] || interpreters=(python3.11 python3.12 python3.13)
    install_tools
    copy_source
    rm -rf "$out"
    if [[ $platform == sdist ]]; then
        build_sdist
        return
    fi
    choose_target
    build
    clean
    audit
    if [[ $platform/$machine != "$(this_platform)/$(this_machine)" ]]; then
        echo 'This machine cannot run the wheel, so it is not tested.'
        return
    fi
    for python in "${interpreters[@]}"; do
        run_tests "$python"
    done
}

this_platform() {
    if [[ $(uname) == Darwin ]]; then echo macos; else echo manylinux; fi
}

this_machine() {
    uname -m | sed s/arm64/aarch64/
}

step() {
    printf '\n== %s\n' "$*"
}

install_tools() {
    step 'build tools'
    "${PYTHON:-python3}" -m venv --clear "$tools"
    "$tools/bin/python" -m pip install --quiet -r tests/requirements-wheel.txt
    PATH=$tools/bin:$PATH
}

# The files that git knows, with links in the README that work on a package page.
copy_source() {
    step 'copy of the sources'
    python -m tests.wheel.licences --check
    rm -rf "$source"
    mkdir -p "$source"
    git ls-files -z | tar --null --files-from - --create --file - | tar --extract --file - --directory "$source"
    python -m tests.wheel.readme "$source"
}

build_sdist() {
    step 'source distribution'
    (cd "$source" && maturin sdist --out "$out")
    twine check --strict "$out"/*
    step 'installation from it'
    python -m venv --clear "$PWD/target/wheel-env"
    "$PWD/target/wheel-env/bin/python" -m pip install --quiet "$out"/*.tar.gz
    try_import "$PWD/target/wheel-env"
}

choose_target() {
    case $platform in
        # The oldest glibc that Rust itself supports. zig links against its symbols.
        manylinux) target=$machine-unknown-linux-gnu options=(--zig --compatibility manylinux2014) ;;
        musllinux) target=$machine-unknown-linux-musl options=(--zig --compatibility musllinux_1_2) ;;
        macos) target=$machine-apple-darwin options=(--compatibility pypi) ;;
        *) fail "there is no platform $platform, but manylinux, musllinux, macos and sdist" ;;
    esac
    [[ -d $(rustc --print target-libdir --target "$target") ]] || rustup target add "$target"
}

# Messages of panics have paths of source files. They get the paths of this machine otherwise.
build() {
    step "wheel for $platform, $machine"
    local crates=${CARGO_HOME:-$HOME/.cargo}/registry/src sysroot separator=$'\x1f'
    sysroot=$(rustc --print sysroot)
    (
        cd "$source"
        export CARGO_TARGET_DIR=$out-build
        export CARGO_ENCODED_RUSTFLAGS=--remap-path-prefix=$source=kvoxide
        CARGO_ENCODED_RUSTFLAGS+=$separator--remap-path-prefix=$sysroot=rust
        for index in "$crates"/*; do
            CARGO_ENCODED_RUSTFLAGS+=$separator--remap-path-prefix=$index=crates
        done
        maturin build --profile wheel --locked --target "$target" "${options[@]}" --out "$out"
    )
}

# Rewrites the SBOM, and looks for paths of this machine in every file of the wheel.
clean() {
    step 'paths of this machine'
    local folder=$PWD/target/wheel-unpacked found
    rm -rf "$folder"
    wheel unpack --dest "$folder" "$out"/*.whl
    python -m tests.wheel.sbom "$folder"/* "$source"
    if found=$(grep --recursive --files-with-matches --fixed-strings -e "$PWD/" -e "$HOME/" "$folder"); then
        fail "these files have paths of this machine: $found"
    fi
    [[ -f $(echo "$folder"/*/*.dist-info/licenses/THIRD_PARTY_LICENSES.txt) ]] \
        || fail 'the wheel lacks THIRD_PARTY_LICENSES.txt'
    rm "$out"/*.whl
    wheel pack --dest-dir "$out" "$folder"/*
    wheel=$(echo "$out"/*.whl)
    ls -l "$wheel" "$folder"/*/kvoxide/_core*.so
}

# maturin has checked the tag itself. These tools come from other projects.
# On a machine with glibc, auditwheel takes glibc's libc.so, a text, for musl's. So it looks for
# libraries in an empty folder, and libc.so must be the only one that the wheel needs.
audit_musl() {
    local report none=target/no-libraries
    mkdir -p "$none"
    report=$(auditwheel show --ldpaths "$none" "$wheel")
    echo "$report"
    [[ $(grep '": null' <<<"$report") =~ ^\ *\"libc.so\":\ null$ ]] ||
        fail 'the wheel needs other libraries than libc.so'
}

audit() {
    step 'twine, abi3audit'
    twine check --strict "$wheel"
    abi3audit --strict --verbose "$wheel"
    [[ $platform != macos ]] || return 0
    step auditwheel
    local report tag=manylinux_2_17_$machine
    if [[ $platform == musllinux ]]; then
        audit_musl
        return
    fi
    report=$(auditwheel show "$wheel")
    echo "$report"
    [[ $report == *"$tag"* ]] || fail "auditwheel does not find the tag $tag"
}

run_tests() { # PYTHON
    step "tests with $("$1" --version)"
    local venv=$PWD/target/wheel-env
    "$1" -m venv --clear "$venv"
    if [[ $platform == macos ]]; then
        "$venv/bin/python" -m pip install --quiet -c tests/requirements.txt "${wheel}[cli]"
        try_import "$venv"
        "$venv/bin/kvoxide" replay sample --requests 60
        return
    fi
    "$venv/bin/python" -m pip install --quiet -c tests/requirements.txt "${wheel}[html,ray]" pytest
    "$venv/bin/kvoxide" --version
    try_import "$venv"
    local pytest=("$venv/bin/python" -m pytest -q -p no:cacheprovider)
    "${pytest[@]}" tests/package/{api,replay,plan,test_bad_input.py} --ignore "$on_ray"
    # These run in a process of their own, as in tests/run.sh.
    GRPC_ENABLE_FORK_SUPPORT=0 timeout 600 "${pytest[@]}" "$on_ray"
    try_commands "$venv"
}

try_import() { # VENV
    "$1/bin/python" -c 'import kvoxide, sys; sys.exit(not kvoxide.__file__.startswith(sys.prefix))' \
        || fail 'this is not the kvoxide that was built'
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
