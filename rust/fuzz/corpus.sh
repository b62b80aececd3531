#!/usr/bin/env bash
# The corpora, one archive for each fuzz target:
#
#     rust/fuzz/corpus.sh unpack              corpus/TARGET.tar.gz to target/corpus/TARGET, for each
#     rust/fuzz/corpus.sh pack TARGET FOLDER  the files of a folder to corpus/TARGET.tar.gz
#
# The same files give the same archive.
set -euo pipefail

main() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    case ${1:-} in
        unpack) unpack "$here" ;;
        pack) pack "$3" "$here/corpus/$2.tar.gz" ;;
        *) sed -n '2,7s/^# \?//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
}

unpack() { # FUZZ_FOLDER
    local archive folder
    for archive in "$1"/corpus/*.tar.gz; do
        folder=$1/target/corpus/$(basename "$archive" .tar.gz)
        rm -rf "$folder"
        mkdir -p "$folder"
        tar -xzf "$archive" -C "$folder"
    done
}

pack() { # FOLDER ARCHIVE
    tar --sort=name --mtime=@0 --mode=644 --owner=0 --group=0 --numeric-owner -C "$1" -cf - \
        $(ls "$1") | gzip -9n >"$2"
}

main "$@"
