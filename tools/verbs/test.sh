#!/usr/bin/env bash
# Run the tests of RDMA verbs in the guest: test.sh always builds the guest's kernel first where it is not there,
# test.sh if-built goes without. Says why and ends well where this machine cannot do it.
set -euo pipefail

main() {
    source "$(dirname "${BASH_SOURCE[0]}")/place.sh"
    cd "$verbs_tools/../.."
    [ "$1" = if-built ] || possible "$verbs_tools/build.sh"
    possible "$verbs_tools/check.sh" run
    export FOREBAY_VERBS_INCLUDE=$verbs_place/include # structures are held to this header
    cargo_test --lib verbs::
    local program
    program=$(program_of_tests)
    echo "==> verbs in User-Mode Linux $(cat "$verbs_place/version")"
    SECONDS=0
    "$verbs_tools/run.sh" -t 120 -- "$program" --ignored --nocapture --test-threads 1
    echo "==> verbs: $SECONDS s from the guest's start to its end"
}

# 77 stands for a machine that cannot, whose reason has been told.
possible() {
    local code=0
    "$@" || code=$?
    [ "$code" != 77 ] || { echo "==> the tests of verbs are not run"; exit 0; }
    [ "$code" = 0 ] || exit "$code"
}

cargo_test() {
    ${CARGO:-cargo} test --locked --package forebay-tensor "$@"
}

program_of_tests() {
    cargo_test --test verbs --no-run --message-format json | python3 -c '
import json, sys
built = [json.loads(line) for line in sys.stdin]
print(*[each["executable"] for each in built if each.get("executable") and each["target"]["name"] == "verbs"])'
}

main "$1"
