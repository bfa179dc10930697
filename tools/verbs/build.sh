#!/usr/bin/env bash
# Build the User-Mode Linux kernel of `make test-verbs`, once, into the cache: six to fifteen minutes.
# Needs no root and installs nothing. Prints the folder. Exits with 77 and a reason where the machine cannot.
set -euo pipefail

main() {
    source "$(dirname "${BASH_SOURCE[0]}")/place.sh"
    if [ "${1:-}" = in ]; then
        build "$2"
        return
    fi
    mkdir -p "$verbs_cache"
    exec 9>"$verbs_cache/lock" # one build at a time: the second finds it done
    flock 9
    rm -rf "$verbs_cache"/build.*/ # of builds that were killed: with the lock nobody builds
    if [ ! -x "$verbs_place/linux" ]; then
        "$verbs_tools/check.sh" build
        echo "==> building a User-Mode Linux kernel, once: six to fifteen minutes; the log: $verbs_cache/build.log" >&2
        work=$(mktemp --directory "$verbs_cache/build.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # In a shell of its own: in a condition of this one it would go on after a command that fails.
        "$verbs_tools/build.sh" in "$work" >"$verbs_cache/build.log" 2>&1 9>&- ||
            { tail -n 20 "$verbs_cache/build.log" >&2; exit 1; }
    fi
    echo "$verbs_place"
}

build() {
    cd "$1"
    fetch "$verbs_source" flex bison m4 libsigsegv2 libibverbs-dev
    unpack_tools
    dpkg-deb --extract "$verbs_source"_*.deb source
    tar --extract --xz --file "source/usr/src/$verbs_source.tar.xz"
    make_kernel "$verbs_source"
    mkdir result result/include
    strip -o result/linux "$verbs_source/linux"
    cc -O1 -static "$verbs_tools/guest.c" -o result/guest
    cp --recursive tools/usr/include/infiniband result/include
    dpkg-deb --field "$verbs_source"_*.deb Version >result/version
    rm -rf "$verbs_place"
    mv result "$verbs_place" # whole or not at all
}

fetch() {
    apt-get download "$@" || { [ "$(id -u)" = 0 ] && apt-get update && apt-get download "$@"; }
}

# flex and bison look for their own parts under /usr unless they are told.
unpack_tools() {
    local package
    for package in flex bison m4 libsigsegv2 libibverbs-dev; do
        dpkg-deb --extract "${package}"_*.deb tools
    done
    export PATH=$PWD/tools/usr/bin:$PATH LD_LIBRARY_PATH=$PWD/tools/usr/lib/x86_64-linux-gnu
    export M4=$PWD/tools/usr/bin/m4 BISON_PKGDATADIR=$PWD/tools/usr/share/bison
}

make_kernel() {
    local source=$1
    # The floating-point state of hosts with AMX is larger than Linux 6.1 reserves: without this
    # the guest stops at once, because ptrace cannot set the registers (EFAULT).
    sed --in-place '/HOST_FP_SIZE/s/2696/12288/' "$source/arch/x86/um/user-offsets.c"
    grep --quiet 12288 "$source/arch/x86/um/user-offsets.c"
    make -C "$source" ARCH=um allnoconfig KCONFIG_ALLCONFIG="$verbs_tools/kernel.config"
    grep --quiet '^CONFIG_RDMA_RXE=y' "$source/.config"
    make -C "$source" ARCH=um --jobs "${JOBS:-$(nproc)}" linux
}

main "$@"
