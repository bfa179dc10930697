#!/usr/bin/env bash
# Look the dependencies up in the databases of known vulnerabilities: cargo-audit for Rust, pip-audit for Python.
# Runs what is installed (cargo install --locked cargo-audit; .venv/bin/pip install pip-audit) and says what is not, or
# what reaches no database; fails on a vulnerability.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

out_of_reach="fetch.* advisory database|could not be audited|Connection|resolve|timed out"
status=0

# audit NAME COMMAND...
audit() {
    local name=$1 said code=0
    shift
    said=$("$@" 2>&1) || code=$?
    if [ "$code" = 0 ] && ! grep --quiet --extended-regexp "$out_of_reach" <<<"$said"; then
        echo "==> $name: nothing known"
    elif grep --quiet --extended-regexp "GHSA-|CVE-|RUSTSEC-|PYSEC-" <<<"$said"; then
        printf '%s\n==> %s: vulnerable\n' "$said" "$name"
        status=1
    elif grep --quiet --extended-regexp "$out_of_reach" <<<"$said"; then
        echo "==> $name: no database is in reach of this machine; nothing was looked up"
    else
        printf '%s\n==> %s: exit %s\n' "$said" "$name" "$code"
        status=1
    fi
}

if cargo audit --version >/dev/null 2>&1; then
    audit cargo-audit cargo audit --quiet
else
    echo "==> cargo-audit is not installed; to have it: cargo install --locked cargo-audit"
fi
if [ -x .venv/bin/pip-audit ]; then
    audit pip-audit timeout 120 .venv/bin/pip-audit --skip-editable --progress-spinner off
else
    echo "==> pip-audit is not installed; to have it: .venv/bin/pip install pip-audit"
fi
exit "$status"
