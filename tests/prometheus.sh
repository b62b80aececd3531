#!/usr/bin/env bash
# Puts Prometheus into a folder, for the tests of alerts and dashboards:
#
#     tests/prometheus.sh FOLDER
#
# FOLDER/prometheus and FOLDER/promtool start it. They are Debian's, which need nothing but libc.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)

if ! tests/debian.sh "$folder" alone prometheus || ! "$folder/root/usr/bin/promtool" --version; then
    cat >&2 <<END
tests/prometheus.sh: Prometheus could not be fetched as a Debian package; debian.log in $folder says
why. Without the network, put the programs prometheus and promtool into $folder
and 'touch $folder/.complete'.
END
    exit 1
fi
ln -s root/usr/bin/{prometheus,promtool} "$folder"
