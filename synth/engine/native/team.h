/* Threads that run one function together and meet at barriers: those that PyTorch has, as two sets
 * of threads that wait by spinning would take each other's cores. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "vectors.h"

#define MAX_THREADS 256
#define SPINS 4000 /* at a barrier, before the core is offered to others */

typedef struct {
    void *bytes;
    size_t size;
} Buffer;

typedef struct {
    int index;
    Buffer input, row, scores, tile; /* this thread's own scratch memory */
} Thread;

/* Two functions of the OpenMP library that PyTorch has loaded: GOMP_parallel and omp_get_thread_num,
 * and omp_get_num_threads, as fewer threads may come than are asked for. */
static struct {
    void (*start)(void (*)(void *), void *, unsigned, unsigned);
    int (*index)(void), (*count)(void);
} openmp;

static struct {
    atomic_int size, arrived, next, out_of_memory;
    atomic_uint passed; /* barriers; it may begin anew */
    void (*work)(Thread *, void *);
    void *argument;
    Thread threads[MAX_THREADS];
} team;

static pthread_mutex_t one_job = PTHREAD_MUTEX_INITIALIZER;

/* Return room for so many bytes, or NULL; the content is lost when it grows. */
static void *reserve(Buffer *buffer, size_t size) {
    if (size > buffer->size) {
        free(buffer->bytes);
        size_t padded = (size + 4095) / 4096 * 4096;
        buffer->bytes = aligned_alloc(64, padded);
        buffer->size = buffer->bytes ? padded : 0;
        if (buffer->bytes) memset(buffer->bytes, 0, padded);
        else atomic_store(&team.out_of_memory, 1);
    }
    return buffer->bytes;
}

/* Wait for all threads of the job. Whoever comes last opens a new count of pieces. */
static void meet(void) {
    unsigned passed = atomic_load_explicit(&team.passed, memory_order_acquire);
    int size = atomic_load_explicit(&team.size, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team.arrived, 1, memory_order_acq_rel) + 1 == size) {
        atomic_store_explicit(&team.arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team.next, 0, memory_order_relaxed);
        atomic_store_explicit(&team.passed, passed + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&team.passed, memory_order_acquire) == passed; spins++) {
        if (spins < SPINS) _mm_pause();
        else sched_yield();
    }
}

/* Take the next `count` of the pieces that the threads share until they meet. */
ALWAYS int take(int count) {
    return atomic_fetch_add_explicit(&team.next, count, memory_order_relaxed);
}

static void take_part(void *unused) {
    (void)unused;
    int index = openmp.index ? openmp.index() : 0;
    atomic_store_explicit(&team.size, openmp.count ? openmp.count() : 1, memory_order_relaxed);
    team.threads[index].index = index;
    team.work(&team.threads[index], team.argument);
}

/* Let so many threads do the work together; return 0, or 1 where memory ran out. */
static int run_together(void (*work)(Thread *, void *), void *argument, int threads) {
    pthread_mutex_lock(&one_job);
    team.work = work;
    team.argument = argument;
    atomic_store(&team.out_of_memory, 0);
    atomic_store(&team.arrived, 0);
    atomic_store(&team.next, 0);
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads < 2 || !openmp.start) {
        atomic_store(&team.size, 1);
        work(&team.threads[0], argument);
    } else
        openmp.start(take_part, NULL, (unsigned)threads, 0);
    int failed = atomic_load(&team.out_of_memory);
    pthread_mutex_unlock(&one_job);
    return failed;
}
