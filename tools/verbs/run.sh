#!/usr/bin/env bash
# Run a command as root of a User-Mode Linux guest that has the RDMA device rxe0 and control groups of version 2, over
# the host's files, which it sees read-only with memory on top. Gives back the command's output and exit code; 125 where
# the guest died or took too long.
# usage: run.sh [-m MIB] [-t SECONDS] -- COMMAND [ARGUMENT...]
# The guest starts in the caller's folder with the caller's FOREBAY_* variables. Needs no root; see check.sh.
set -uo pipefail

main() {
    source "$(dirname "${BASH_SOURCE[0]}")/place.sh"
    local memory_mib=1024 seconds=120
    while [ $# -gt 0 ]; do
        case $1 in
        -m) memory_mib=$2; shift 2 ;;
        -t) seconds=$2; shift 2 ;;
        --) shift; break ;;
        *) echo "usage: run.sh [-m MIB] [-t SECONDS] -- COMMAND [ARGUMENT...]" >&2; exit 2 ;;
        esac
    done
    "$verbs_tools/check.sh" run || exit $?
    share=$(mktemp --directory "${TMPDIR:-/tmp}/forebay-verbs.XXXXXX")
    trap 'rm -rf "$share"' EXIT
    head --bytes 64 /dev/urandom >"$share/seed"
    write_init
    write_guest "$@"
    boot "$memory_mib" "$seconds"
    give_back
}

# Process 1: a root that can be written, then the command in it, then the power off.
write_init() {
    cat >"$share/init" <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root; mkdir -p share
mount -t proc proc proc; mount -t sysfs sys sys; mount -t devtmpfs dev dev
mkdir -p dev/pts dev/shm; mount -t devpts pts dev/pts; mount -t tmpfs shm dev/shm; mount -t tmpfs run run
mount -t hostfs none share -o $share
chroot . $verbs_place/guest seed <share/seed
chroot . /bin/bash /share/guest
echo \$? >share/code; sync
$verbs_place/guest halt
INIT
    chmod +x "$share/init"
}

# rxe sits on a dummy network device: what one end sends, the other end of the same device receives.
write_guest() {
    {
        echo 'ip link set lo up'
        echo 'mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 125'
        # As systemd leaves them: on for the root's children.
        echo 'echo +memory +cpu +pids >/sys/fs/cgroup/cgroup.subtree_control || exit 125'
        echo 'ip link add rdma0 type dummy; ip addr add 10.78.0.1/24 dev rdma0; ip link set rdma0 mtu 9000 up'
        echo 'rdma link add rxe0 type rxe netdev rdma0 || exit 125'
        echo 'ulimit -l unlimited'
        # Else each process loads the drivers of all devices that there are: 433 ms instead of 81 until it has opened rxe0.
        echo '[ ! -d /etc/libibverbs.d ] || { mount -t tmpfs drivers /etc/libibverbs.d; echo "driver rxe" >/etc/libibverbs.d/rxe.driver; }'
        export -p | grep -E '^declare -x FOREBAY_'
        printf 'export PATH=%q\n' "$PATH"
        printf 'cd %q || exit 125\n' "$PWD"
        printf '%q ' "$@"
        echo '>/share/out 2>/share/err </dev/null'
    } >"$share/guest"
}

boot() {
    local image
    image=$(memory_folder "$1") || { echo "no folder with $1 MiB that programs may be mapped from" >&2; exit 125; }
    # Below HOME the kernel keeps a control folder.
    HOME=$share TMPDIR=$image timeout --kill-after 5 "$2" "$verbs_place/linux" "mem=${1}M" \
        rootfstype=hostfs rootflags=/ ro "init=$share/init" con=null con0=fd:0,fd:1 quiet panic=-1 \
        >"$share/console" 2>&1 </dev/null
    ended=$?
}

# The guest's memory is a file that is mapped with the right to execute.
memory_folder() {
    local folder
    for folder in /dev/shm "${TMPDIR:-/tmp}" "$verbs_cache"; do
        findmnt --noheadings --output OPTIONS --target "$folder" | grep --quiet noexec && continue
        [ "$(df --output=avail --block-size=1M "$folder" | tail -n 1)" -gt "$1" ] && { echo "$folder"; return 0; }
    done
    return 1
}

give_back() {
    cat "$share/out" 2>/dev/null
    cat "$share/err" >&2 2>/dev/null
    if [ -f "$share/code" ]; then
        ended=$(cat "$share/code")
        [ "$ended" != 125 ] || tail -n 30 "$share/console" >&2
        exit "$ended"
    fi
    if [ "$ended" = 124 ]; then
        echo "the guest took too long" >&2
    else
        echo "the guest died ($ended):" >&2
        tail -n 30 "$share/console" >&2
    fi
    exit 125
}

main "$@"
