// Counts what a process asks of malloc and of Python's three allocators; preloaded into it.
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

static _Atomic unsigned long malloc_calls;
static _Atomic unsigned long python_calls;
static _Atomic unsigned long object_calls;

void *malloc(size_t bytes) {
    malloc_calls++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    malloc_calls++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    malloc_calls++;
    return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    malloc_calls++;
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    malloc_calls++;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **made, size_t alignment, size_t bytes) {
    malloc_calls++;
    *made = __libc_memalign(alignment, bytes);
    return *made ? 0 : ENOMEM;
}

// As PyMemAllocatorEx of Python's memory.h.
struct allocator {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
};

enum { DOMAINS = 3, OBJECTS = 2 };  // raw, mem, obj
static struct allocator before[DOMAINS];

static void count_call(const struct allocator *own) {
    python_calls++;
    if (own == &before[OBJECTS])
        object_calls++;
}

static void *python_malloc(void *context, size_t bytes) {
    struct allocator *own = context;
    count_call(own);
    return own->malloc(own->context, bytes);
}

static void *python_calloc(void *context, size_t count, size_t bytes) {
    struct allocator *own = context;
    count_call(own);
    return own->calloc(own->context, count, bytes);
}

static void *python_realloc(void *context, void *old, size_t bytes) {
    struct allocator *own = context;
    count_call(own);
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

unsigned long count_of_malloc(void) { return malloc_calls; }

unsigned long count_of_python(void) { return python_calls; }

unsigned long count_of_objects(void) { return object_calls; }
