#!/bin/sh
# The compiler of our own crates while coverage is measured. With the counters relocated, %c in LLVM_PROFILE_FILE has
# them mapped from the file: what a process counted before a SIGKILL is there.
exec "$@" -C instrument-coverage -C llvm-args=-runtime-counter-relocation
