#!/usr/bin/env bash
# Puts a headless Chromium into a folder, for the tests of pages:
#
#     tests/browser.sh FOLDER PYTHON
#
# FOLDER/browser starts it. It is the build that PYTHON's Playwright downloads; where that cannot be
# had, or lacks libraries of this machine, it is Debian's package with all that it depends on,
# unpacked into the folder by tests/debian.sh.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
python=$2

main() {
    from_playwright || from_debian || fail
    "$folder/browser" --version
}

from_playwright() {
    export PLAYWRIGHT_BROWSERS_PATH=$folder/playwright
    timeout 600 "$python" -m playwright install --only-shell chromium >"$folder/playwright.log" 2>&1 || return 1
    local program
    program=$(find "$PLAYWRIGHT_BROWSERS_PATH" -type f \( -name chrome-headless-shell -o -name headless_shell \))
    start_with "$program"
}

from_debian() {
    local root=$folder/root
    tests/debian.sh "$folder" whole chromium-headless-shell fonts-dejavu-core || return 1
    start_with "$root/usr/lib/chromium/chromium-headless-shell" \
        FONTCONFIG_SYSROOT="$root" LD_LIBRARY_PATH="$(library_folders "$root")"
}

library_folders() { # ROOT
    find "$1/lib" "$1/usr/lib" -name '*.so*' -path '*-linux-gnu*' -printf '%h\n' | sort -u | paste -sd :
}

# Writes FOLDER/browser, and tells whether it starts.
start_with() { # PROGRAM [NAME=VALUE...]
    local program=$1
    shift
    printf '#!/bin/sh\nexec env' >"$folder/browser"
    printf ' %q' "$@" "$program" >>"$folder/browser"
    printf ' "$@"\n' >>"$folder/browser"
    chmod +x "$folder/browser"
    "$folder/browser" --version >/dev/null 2>&1
}

fail() {
    cat >&2 <<END
tests/browser.sh: no headless Chromium could be had for the tests of pages, neither from Playwright's
download site nor as a Debian package; playwright.log and debian.log in $folder say why.
If only libraries are missing, 'playwright install-deps chromium' installs them, as root. Without the
network, put a program that starts a Chromium at $folder/browser and 'touch $folder/.complete'.
END
    exit 1
}

main
