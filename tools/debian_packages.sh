#!/usr/bin/env bash
# Install the Debian packages named on the command line that are missing.
# As root, or with APT=1 through sudo; otherwise say what to type and go on:
# the tests and benchmarks that need them are skipped.
set -euo pipefail

missing=()
for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' ||
        missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=()
elif [ "${APT:-0}" = 1 ]; then
    as_root=(sudo)
else
    echo "==> not installed: ${missing[*]}; what needs them is skipped. To have them: APT=1 make test, or bench-setup"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "==> not installed, and no apt-get here: ${missing[*]}; what needs them is skipped"
    exit 0
fi
echo "==> Debian packages: ${missing[*]}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends)
"${install[@]}" "${missing[@]}" ||
    { "${as_root[@]}" apt-get update && "${install[@]}" "${missing[@]}"; } ||
    echo "==> could not install ${missing[*]}; what needs them is skipped"
