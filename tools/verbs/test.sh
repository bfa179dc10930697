#!/usr/bin/env bash
# Run the tests of RDMA verbs in the guest, and those of limits, which want control groups of version 2 that may be
# written: test.sh always builds the guest's kernel first where it is not there, and fails with the reason where this
# machine cannot run them; test.sh if-built says the reason and ends well.
set -euo pipefail

main() {
    source "$(dirname "${BASH_SOURCE[0]}")/place.sh"
    cd "$verbs_tools/../.."
    may_skip=$1
    [ "$may_skip" = if-built ] || possible "$verbs_tools/build.sh"
    possible "$verbs_tools/check.sh" run
    export FOREBAY_VERBS_INCLUDE=$verbs_place/include # structures are held to this header
    cargo_test --lib -- --include-ignored --skip fuzzing::
    local program
    program=$(program_of_tests)
    echo "==> verbs in User-Mode Linux $(cat "$verbs_place/version")"
    SECONDS=0
    # A guest has one processor: those of Python's tests have another guest, beside this one.
    local told code=0
    told=$(mktemp)
    trap 'rm -f "$told"' EXIT
    python_tests >"$told" 2>&1 &
    "$verbs_tools/run.sh" -t 120 -- "$program" --ignored --nocapture --test-threads 1 || code=$?
    wait $! || code=$?
    cat "$told"
    echo "==> verbs: $SECONDS s from the guests' start to their end" # `make node` holds it to its bound
    limit_tests || code=$?
    exit "$code"
}

# TensorServer and TensorClient, each in a process, where the package and its tests' packages are installed.
# Last, `forebay doctor`, whose test takes the device's interface down.
python_tests() {
    in_guest -t 120 -- tests/tensor/fabric/test_verbs.py tests/cli/test_doctor_guest.py
}

# Services and servers that reach their limits: most hosts have no controllers for them in a tree of version 2.
limit_tests() {
    in_guest -m 3072 -t 500 -- --timeout 240 tests/pool/service/test_limits.py tests/executor/server/test_oom.py \
        tests/executor/server/test_server_memory.py
}

# in_guest GUEST_OPTION... -- PYTEST_ARGUMENT...
in_guest() {
    local python=${PYTHON:-.venv/bin/python} options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    if ! "$python" -c 'import forebay._core, numpy, pytest' 2>/dev/null; then
        echo "==> not tested: $*; $python has not the package, numpy and pytest (make test-python installs them)"
        [ "$may_skip" = if-built ] # asked for, it is a failure
        return
    fi
    # Plugins that these tests do not use take a second to load there.
    "$verbs_tools/run.sh" "${options[@]}" -- env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "$python" -B -m pytest --quiet \
        -p pytest_timeout -p no:cacheprovider "$@"
}

# 77 stands for a machine that cannot, whose reason has been told.
possible() {
    local code=0
    "$@" || code=$?
    if [ "$code" = 77 ]; then
        echo "==> the tests of verbs are not run"
        [ "$may_skip" = if-built ] && exit 0
    fi
    [ "$code" = 0 ] || exit "$code"
}

cargo_test() {
    ${CARGO:-cargo} test --locked --package forebay-verbs "$@"
}

program_of_tests() {
    cargo_test --test verbs --no-run --message-format json | python3 -c '
import json, sys
built = [json.loads(line) for line in sys.stdin]
print(*[each["executable"] for each in built if each.get("executable") and each["target"]["name"] == "verbs"])'
}

main "$1"
