#!/usr/bin/env bash
# Unpacks Debian packages into FOLDER/root:
#
#     tests/debian.sh FOLDER alone PACKAGE...    these packages only
#     tests/debian.sh FOLDER whole PACKAGE...    with all that they depend on
#
# It needs no permission, and installs nothing on the machine. apt-get has a state of its own in which
# nothing is installed, so that all libraries come along. libc does not, because it belongs to the
# machine's loader. FOLDER/debian.log has the output of apt-get.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
scope=$2
packages=("${@:3}")

main() {
    local root=$folder/root apt=$folder/apt package
    if [[ ! -x $(command -v apt-get) || ! -x $(command -v dpkg-deb) ]]; then
        echo 'This machine has no apt-get or no dpkg-deb.' >"$folder/debian.log"
        return 1
    fi
    mkdir -p "$root" "$apt"/{state/lists/partial,cache/archives/partial}
    fetch update
    cd "$apt/cache/archives"
    case $scope in
        alone) fetch download "${packages[@]}" ;;
        whole) fetch install --yes --download-only "${packages[@]}" ;;
    esac
    for package in *.deb; do
        [[ $package == libc6_* ]] || dpkg-deb --extract "$package" "$root"
    done
    rm -r "$apt"
}

fetch() {
    timeout 600 apt-get -qq --no-install-recommends -o Dir::State="$folder/apt/state" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt/cache" -o Debug::NoLocking=1 \
        -o APT::Sandbox::User= "$@" >>"$folder/debian.log" 2>&1
}

main
