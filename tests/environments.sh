# What tests/run.sh keeps from run to run: environments of Python and what cargo built. To be
# sourced in the folder of the checkout.

cache=${KVOXIDE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvoxide}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# A title, below the time that the step before it took.
step() {
    end_step
    printf '\n== %s\n' "$*"
    current_step=$*
    step_started=$SECONDS
}

end_step() {
    [[ -z ${current_step:-} ]] || printf -- '-- %s: %d s\n' "$current_step" $((SECONDS - step_started))
    current_step=
}

# Builds kvoxide into $venv: a thin environment of this checkout over one of the cache, which
# stays as it is for every other checkout.
install_kvoxide() { # tools|vllm
    local base=$tools
    vllm_0_32=(VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1)
    if [[ $1 == vllm ]]; then
        step vLLM
        base=$(cached_venv vllm tests/requirements{,-vllm}.txt tests/vllm_env.sh)
        vllm_0_33=("${vllm_0_32[@]}" "PYTHONPATH=$base/vllm-0.33.0")
    fi
    step 'kvoxide, release build'
    venv=$PWD/target/test-venv
    "$base/bin/python" -m venv --clear --without-pip "$venv"
    site_packages "$base" >"$(site_packages "$venv")/base.pth"
    VIRTUAL_ENV=$venv "$base/bin/maturin" develop --locked --release
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
    path=$cache/$name-$key
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

fill_browser() {
    tests/browser.sh "$1" "$tools/bin/python"
}

fill_vllm() {
    tests/vllm_env.sh "$1"
}

# What shows pages in tests, for tests/package/test_page_in_browser.py.
find_browser() {
    step browser
    local folder
    folder=$(cached_venv browser tests/browser.sh <(grep ^playwright= tests/requirements.txt) /etc/os-release)
    export KVOXIDE_BROWSER=$folder/browser
}

# Where cargo builds: outside of the checkout, so that a new one need not build other people's
# crates again; one folder for each lock file and compiler, and for one run at a time.
enter_target_folder() {
    [[ -z ${CARGO_TARGET_DIR:-} ]] || return 0
    local key
    key=$(cat Cargo.lock <(rustc -vV) | sha256sum | cut -c 1-16)
    export CARGO_TARGET_DIR=$cache/target-$key
    mkdir -p "$CARGO_TARGET_DIR"
    exec {target_lock}>"$CARGO_TARGET_DIR.lock"
    flock --nonblock "$target_lock" || {
        echo "waiting for another run to leave $CARGO_TARGET_DIR"
        flock "$target_lock"
    }
    forget_other_checkout
}

# cargo tells by the time of a file whether it changed, and would take what another checkout at the
# same path left behind for what this one would build. It would also keep both.
forget_other_checkout() {
    local checkout ours=(--package=kvoxide-{core,replay,python,fuzzed})
    checkout=$(stat --format '%n %i %W' "$PWD")
    if [[ $(cat "$CARGO_TARGET_DIR/checkout" 2>/dev/null) != "$checkout" ]]; then
        cargo clean --quiet --locked "${ours[@]}"
        cargo clean --quiet --locked --release "${ours[@]}"
        echo "$checkout" >"$CARGO_TARGET_DIR/checkout"
    fi
}

leave_target_folder() {
    end_step
    [[ -z ${target_lock:-} ]] || exec {target_lock}>&-
}
