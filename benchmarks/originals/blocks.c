// Counts bytes and calls that a process asks of malloc and of Python's three allocators; preloaded.
// Rust's allocations are among malloc's, because the core uses the system's allocator.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic unsigned long bytes_asked;
static _Atomic unsigned long calls;

static void count(size_t bytes) {
    bytes_asked += bytes;
    calls++;
}

void *malloc(size_t bytes) {
    count(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t many, size_t bytes) {
    count(many * bytes);
    return __libc_calloc(many, bytes);
}

void *realloc(void *old, size_t bytes) {
    count(bytes);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count(bytes);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **made, size_t alignment, size_t bytes) {
    count(bytes);
    *made = __libc_memalign(alignment, bytes);
    return *made ? 0 : ENOMEM;
}

// As PyMemAllocatorEx of Python's memory.h. Of small objects Python asks malloc for whole arenas,
// so that they are counted here and not there.
struct allocator {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
};

enum { DOMAINS = 3 };  // raw, mem, obj
static struct allocator before[DOMAINS];

static void *python_malloc(void *context, size_t bytes) {
    struct allocator *own = context;
    count(bytes);
    return own->malloc(own->context, bytes);
}

static void *python_calloc(void *context, size_t many, size_t bytes) {
    struct allocator *own = context;
    count(many * bytes);
    return own->calloc(own->context, many, bytes);
}

static void *python_realloc(void *context, void *old, size_t bytes) {
    struct allocator *own = context;
    count(bytes);
    return own->realloc(own->context, old, bytes);
}

static void python_free(void *context, void *old) {
    struct allocator *own = context;
    own->free(own->context, old);
}

// Put a counter before each of Python's allocators; returns 0, or -1 where there is no Python.
int count_python(void) {
    void (*get)(int, struct allocator *) = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    void (*set)(int, struct allocator *) = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    if (!get || !set)
        return -1;
    for (int domain = 0; domain < DOMAINS; domain++) {
        get(domain, &before[domain]);
        struct allocator counting = {&before[domain], python_malloc, python_calloc,
                                     python_realloc, python_free};
        set(domain, &counting);
    }
    return 0;
}

unsigned long count_of_bytes(void) { return bytes_asked; }

unsigned long count_of_calls(void) { return calls; }
