// One ring that several threads share: a lock around the submissions, a thread that reaps.
//
// The shape that ours is held against: clients fill the submission queue under a mutex, enter, and
// sleep; one completion thread takes a completion at a time, counts those of each client's batch
// and wakes the client after the last. Buffers and the file are registered, as ours are, so that
// the shape alone differs. The clients' batches together stay below the depth, so nobody waits for
// room.
//
// shared_ring FILE CLIENTS BATCH WARM_UP_S SECONDS: random blocks; prints reads, seconds, CPU seconds.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, CLIENTS_MAX = 64 };
static const uint64_t STOP = UINT64_MAX;

struct client {
    pthread_t thread;
    uint32_t number;
    sem_t done;
    atomic_uint pending;
    uint64_t reads;
};

static struct {
    int descriptor;
    pthread_mutex_t lock;
    uint32_t mask;
    atomic_uint *tail;
    struct io_uring_sqe *entries;
    atomic_uint *completed_head, *completed_tail;
    uint32_t completed_mask;
    struct io_uring_cqe *completed;
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint8_t *blocks;
static uint32_t batch;
static uint64_t file_blocks;
static struct client clients[CLIENTS_MAX];
static _Atomic double until;  // when the clients stop
static pthread_barrier_t phase;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static long enter(uint32_t submit, uint32_t wait) {
    uint32_t flags = wait ? IORING_ENTER_GETEVENTS : 0;
    return syscall(SYS_io_uring_enter, ring.descriptor, submit, wait, flags, NULL, 0);
}

static void *mapped(size_t bytes, uint64_t offset) {
    int flags = MAP_SHARED | MAP_POPULATE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, ring.descriptor, (off_t)offset);
    if (at == MAP_FAILED) fail("mmap of the ring");
    return at;
}

static void make_ring(uint32_t entries) {
    struct io_uring_params set = {0};
    ring.descriptor = (int)syscall(SYS_io_uring_setup, entries, &set);
    if (ring.descriptor < 0) fail("io_uring_setup");
    size_t bytes = set.cq_off.cqes + set.cq_entries * sizeof(struct io_uring_cqe);
    size_t indices = set.sq_off.array + set.sq_entries * sizeof(uint32_t);
    uint8_t *rings = mapped(bytes > indices ? bytes : indices, IORING_OFF_SQ_RING);
    ring.entries = mapped(set.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.mask = set.sq_entries - 1;
    ring.tail = (atomic_uint *)(rings + set.sq_off.tail);
    for (uint32_t at = 0; at < set.sq_entries; at++)
        ((uint32_t *)(rings + set.sq_off.array))[at] = at;
    ring.completed_head = (atomic_uint *)(rings + set.cq_off.head);
    ring.completed_tail = (atomic_uint *)(rings + set.cq_off.tail);
    ring.completed_mask = set.cq_entries - 1;
    ring.completed = (struct io_uring_cqe *)(rings + set.cq_off.cqes);
}

static void know(int file, size_t bytes) {
    struct iovec whole = {blocks, bytes};
    if (syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, &whole, 1) < 0)
        fail("registering the buffers");
    if (syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_FILES, &file, 1) < 0)
        fail("registering the file");
}

static void submit(const struct io_uring_sqe *reads, uint32_t count) {
    pthread_mutex_lock(&ring.lock);
    uint32_t tail = atomic_load_explicit(ring.tail, memory_order_relaxed);
    for (uint32_t at = 0; at < count; at++) ring.entries[(tail + at) & ring.mask] = reads[at];
    atomic_store_explicit(ring.tail, tail + count, memory_order_release);
    long taken = enter(count, 0);
    pthread_mutex_unlock(&ring.lock);
    if (taken != (long)count) fail("io_uring_enter took too few");
}

static void *reap(void *unused) {
    for (;;) {
        if (enter(0, 1) < 0 && errno != EINTR) fail("io_uring_enter");
        uint32_t head = atomic_load_explicit(ring.completed_head, memory_order_relaxed);
        while (head != atomic_load_explicit(ring.completed_tail, memory_order_acquire)) {
            struct io_uring_cqe found = ring.completed[head & ring.completed_mask];
            atomic_store_explicit(ring.completed_head, ++head, memory_order_release);
            if (found.user_data == STOP) return unused;
            if (found.res != BLOCK_BYTES) fail("a read was short");
            struct client *client = &clients[found.user_data >> 32];
            if (atomic_fetch_sub(&client->pending, 1) == 1) sem_post(&client->done);
        }
    }
}

static uint64_t next(uint64_t *state) {  // xorshift64
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void *read_batches(void *argument) {
    struct client *client = argument;
    uint64_t state = 88172645463325252ULL + client->number;
    uint8_t *mine = blocks + (size_t)client->number * batch * BLOCK_BYTES;
    struct io_uring_sqe *reads = calloc(batch, sizeof *reads);
    if (reads == NULL) fail("calloc");
    for (int part = 0; part < 2; part++) {  // the warm-up, then what is timed
        client->reads = 0;
        pthread_barrier_wait(&phase);
        do {
            for (uint32_t at = 0; at < batch; at++)
                reads[at] = (struct io_uring_sqe){
                    .opcode = IORING_OP_READ_FIXED,
                    .flags = IOSQE_FIXED_FILE,
                    .off = next(&state) % file_blocks * BLOCK_BYTES,
                    .addr = (uintptr_t)(mine + (size_t)at * BLOCK_BYTES),
                    .len = BLOCK_BYTES,
                    .user_data = (uint64_t)client->number << 32 | at,
                };
            atomic_store(&client->pending, batch);
            submit(reads, batch);
            while (sem_wait(&client->done) < 0) continue;
            client->reads += batch;
        } while (now() < until);
        uint64_t number;  // each block begins with its own
        memcpy(&number, mine, sizeof number);
        if (number != reads[0].off / BLOCK_BYTES) fail("another block was read");
        pthread_barrier_wait(&phase);
    }
    free(reads);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    int file = open(arguments[1], O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) < 0) fail(arguments[1]);
    uint32_t number_of_clients = (uint32_t)atoi(arguments[2]);
    batch = (uint32_t)atoi(arguments[3]);
    if (number_of_clients < 1 || number_of_clients > CLIENTS_MAX || batch < 1) return 2;
    file_blocks = (uint64_t)about.st_size / BLOCK_BYTES;
    size_t bytes = (size_t)number_of_clients * batch * BLOCK_BYTES;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (blocks == MAP_FAILED) fail("mmap of the buffers");
    make_ring(batch * number_of_clients);
    know(file, bytes);

    pthread_t reaper;
    pthread_create(&reaper, NULL, reap, NULL);
    pthread_barrier_init(&phase, NULL, number_of_clients + 1);
    for (uint32_t at = 0; at < number_of_clients; at++) {
        clients[at].number = at;
        sem_init(&clients[at].done, 0, 0);
        pthread_create(&clients[at].thread, NULL, read_batches, &clients[at]);
    }
    double started = 0, cpu_before = 0;
    for (int part = 0; part < 2; part++) {
        started = now(), cpu_before = cpu();
        until = started + atof(arguments[4 + part]);
        pthread_barrier_wait(&phase);
        pthread_barrier_wait(&phase);
    }
    double took = now() - started, cpu_took = cpu() - cpu_before;
    uint64_t reads = 0;
    for (uint32_t at = 0; at < number_of_clients; at++) {
        pthread_join(clients[at].thread, NULL);
        reads += clients[at].reads;
    }
    struct io_uring_sqe stop = {.opcode = IORING_OP_NOP, .user_data = STOP};
    submit(&stop, 1);
    pthread_join(reaper, NULL);
    printf("%llu %.6f %.6f\n", (unsigned long long)reads, took, cpu_took);
    return 0;
}
