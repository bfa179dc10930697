#!/usr/bin/env bash
# miri, AddressSanitizer and ThreadSanitizer over the crates: `make sanitize`, or `bash tools/sanitize.sh miri`.
# Each part says what it runs and what it leaves out. Not 0 where one found something.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
CARGO="${CARGO:-cargo}"
TARGET="$(rustc -vV | sed -n 's/^host: //p')"
FEATURES=(--features "forebay-executor/${SQLITE:-bundled-sqlite}")
export CARGO_INCREMENTAL=0 FOREBAY_MUTATION_S="${FOREBAY_MUTATION_S:-2}"
failed=()

# step NAME COMMAND...: run it, say how long it took, and go on whatever comes of it.
step() {
	local name=$1 began=$SECONDS
	shift
	printf '\n==> %s: %s\n' "$name" "$*"
	"$@" && status=0 || status=$?
	printf '==> %s: exit %s after %s s\n' "$name" "$status" "$((SECONDS - began))"
	[ "$status" = 0 ] || failed+=("$name")
}

# components NAME...: of the nightly toolchain; without them the part fails, and says so at the end.
components() {
	step "components $*" rustup component add --toolchain nightly "$@"
	[ "$status" = 0 ]
}

nightly() {
	"$CARGO" +nightly --version >/dev/null 2>&1 && return
	rustup toolchain install nightly --profile minimal --component miri --component rust-src
}

miri() {
	echo '==> miri: what decides without a socket, in every crate; left out: system calls that miri has not, which the'
	echo '    tests say beside `cfg_attr(miri, ignore)`, and the executor, whose store is C.'
	components miri rust-src || return
	local -x MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-no-short-fd-operations}"
	local -x PROPTEST_CASES="${PROPTEST_CASES:-3}" RUSTFLAGS=''
	local run=("$CARGO" +nightly miri test --locked --target-dir target/sanitize-miri)
	step 'miri base' "${run[@]}" -p forebay-base --test queue
	step 'miri base slots' "${run[@]}" -p forebay-base --lib -- slots:: time::
	step 'miri memory' "${run[@]}" -p forebay-memory --lib -- heap:: shelf:: blocks::
	step 'miri blockio' "${run[@]}" -p forebay-blockio --lib -- checksum:: flight:: lane:: overlap::
	step 'miri pool' "${run[@]}" -p forebay-pool --lib -- wire:: word:: machine:: fuzzing::
	step 'miri transport' "${run[@]}" -p forebay-transport --lib -- frame:: decoder:: preface:: outbox:: call:: inbox:: \
		items:: credit:: life:: sys::buffer:: sys::filling:: messages::named:: fuzzing::tests::mutated_frames \
		fuzzing::tests::mutated_prefaces fuzzing::tests::mutated_tables
	step 'miri tensor' "${run[@]}" -p forebay-tensor --lib -- wire:: names:: handshake:: inbox:: outbox:: \
		tests::takers tests::sends tests::torn tests::grant
	step 'miri verbs' "${run[@]}" -p forebay-verbs --lib -- wire:: fuzzing::
}

address() {
	echo '==> address: every test of every crate; left out: the million steps of the simulation, which has no unsafe code.'
	echo '    crates/python has no tests in Rust: its buffers are tested from Python, whose allocator no sanitizer follows.'
	echo '    Leaks are not looked for: memory that a kernel or a device may still write is leaked on purpose.'
	local -x RUSTFLAGS='-Zsanitizer=address' ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
	step 'address' "$CARGO" +nightly test --locked --no-fail-fast "${FEATURES[@]}" --target "$TARGET" \
		--target-dir target/sanitize-address --lib --bins --tests -- --skip a_million_steps
}

thread() {
	echo '==> thread: the tests in which threads meet; left out: everything else, C libraries, which are not built anew, and'
	echo '    the executor, whose threads meet in queues of forebay-base and in SQLite.'
	components rust-src || return
	mkdir -p target
	# Callers may name one place of their memory for two reads, and tests do: what the kernel writes there is theirs.
	# A test looks at a shard's memory once the answer has come over a socket, which ThreadSanitizer does not follow.
	printf 'race:%s\n' forebay_blockio::sys::transfer::Transfer stream::sys::Memory >target/sanitize-races.txt
	local -x TSAN_OPTIONS="suppressions=$PWD/target/sanitize-races.txt" RUSTFLAGS='-Zsanitizer=thread'
	local run=("$CARGO" +nightly test --locked --no-fail-fast -Zbuild-std --target "$TARGET" --target-dir target/sanitize-thread)
	# One test at a time: where one test unmaps a region or a ring and another maps one at that address, the lock that
	# orders the uses of each does not order these, and ThreadSanitizer does not see the system calls, which rustix makes.
	step 'thread memory' "${run[@]}" -p forebay-memory --test model -- --test-threads 1
	step 'thread blockio' "${run[@]}" -p forebay-blockio --test engines -- --test-threads 1
	step 'thread transport' "${run[@]}" -p forebay-transport --test connection
	step 'thread pool' "${run[@]}" -p forebay-pool --lib --tests
	step 'thread tensor' "${run[@]}" -p forebay-tensor --test stream
}

# Without a nightly: fewer errors are found, and none between threads.
memcheck() {
	command -v valgrind >/dev/null || { echo 'no nightly toolchain and no valgrind: install one of them'; exit 2; }
	echo '==> no nightly toolchain: valgrind over the tests of memory, transport and blockio; miri and threads are left out.'
	export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='valgrind --quiet --error-exitcode=9'
	step 'valgrind' "$CARGO" test --locked --no-fail-fast --target "$TARGET" --target-dir target/sanitize-valgrind \
		-p forebay-memory -p forebay-transport -p forebay-blockio --lib
}

if nightly; then
	for part in "${@:-miri address thread}"; do
		for each in $part; do "$each"; done
	done
else
	memcheck
fi
if [ "${#failed[@]}" = 0 ]; then echo '==> sanitize: nothing was found'; else echo "==> sanitize: failed: ${failed[*]}"; fi
[ "${#failed[@]}" = 0 ]
