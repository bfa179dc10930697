#!/usr/bin/env bash
# Say whether this machine can do verbs tests: check.sh build|run. Exits with 77 and the reason where it cannot.
set -euo pipefail

main() {
    source "$(dirname "${BASH_SOURCE[0]}")/place.sh"
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "the guest is a kernel for Linux on x86-64, this is $(uname -s) on $(uname -m)"
    can_trace || skip "ptrace is refused here (a container without it, or kernel.yama.ptrace_scope = 3)"
    "can_$1"
}

can_build() {
    local program free_mib
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "no apt: the kernel's source is Debian's package $verbs_source"
    apt-cache show "$verbs_source" >/dev/null 2>&1 || [ "$(id -u)" = 0 ] || skip "apt knows no $verbs_source (apt-get update may help)"
    for program in gcc make bc xz strip flock; do
        command -v "$program" >/dev/null || skip "no $program, which building the kernel needs"
    done
    free_mib=$(df --output=avail --block-size=1M "$verbs_cache" | tail -n 1 | tr -d " ")
    [ "$free_mib" -ge 3072 ] || skip "no space: $free_mib MiB free in $verbs_cache, building needs 3072"
}

can_run() {
    [ -x "$verbs_place/linux" ] || skip "the guest's kernel is not built: make test-verbs builds it (six to fifteen minutes, once)"
    PATH=$PATH:/usr/sbin:/sbin
    command -v rdma >/dev/null || skip "no rdma program: Debian's package iproute2 has it"
    case $(ldconfig -p) in
    *libibverbs.so.1*) ;;
    *) skip "no libibverbs.so.1: Debian's package libibverbs1 has it" ;;
    esac
    [ -e /etc/libibverbs.d/rxe.driver ] || skip "libibverbs has no provider for Soft-RoCE (no /etc/libibverbs.d/rxe.driver): Debian's package ibverbs-providers has it"
}

can_trace() {
    python3 - <<'PYTHON'
import ctypes, os, sys
child = os.fork()
if child == 0:
    os._exit(1 if ctypes.CDLL(None).ptrace(0, 0, 0, 0) else 0)  # PTRACE_TRACEME
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
PYTHON
}

skip() {
    echo "skipped: $1" >&2
    exit 77
}

main "$1"
