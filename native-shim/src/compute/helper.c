#include "compute/helper.h"

#include "compute/measure.h"
#include "compute/report.h"
#include "driver/capture.h"
#include "driver/lookup.h"
#include "os/fork.h"
#include "os/os.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define INTERVAL_NS INT64_C(5000000) /* between polls while no other process uses the GPU */
#define LINGER_NS INT64_C(100000000) /* after the last work the thread polls, and probes often, for so long */
#define END_NS INT64_C(2000000000)   /* at exit, longest wait for the end of the thread */

enum { NONE, RUNNING, IMPOSSIBLE };
static atomic_int helper_state;
static atomic_int helper_thread; /* the last one; 0: none yet */
static atomic_bool exiting;      /* no helper thread is started any more */

/* Random interval from 3/4 to 5/4 of the given one: even intervals could synchronize with the time slices that the
   probes detect. xorshift32 (Marsaglia, 2003). */
static int64_t jittered(int64_t interval) {
    static uint32_t random = 2463534242; /* used by the single helper thread only */
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return interval * 3 / 4 + interval / 2 * (int64_t)(random >> 16) / 65536;
}

static void *helper_main(void *unused) {
    int64_t now = aliquot_os_clock(), worked = now, shared = now - LINGER_NS;
    struct aliquot_measure_polled polled = {false, false};
    atomic_store(&helper_thread, aliquot_os_thread());
    aliquot_capture_relax_mode();
    while (!atomic_load(&exiting)) {
        /* Also between batches: if probes started late in each batch, they would rarely see its beginning, which is
           in the process's own time slice, and would overestimate the others. */
        aliquot_os_sleep_until(now +
                               jittered(now - shared < LINGER_NS ? ALIQUOT_HELPER_PROBE_INTERVAL_NS : INTERVAL_NS));
        now = aliquot_os_clock();
        polled = aliquot_measure_poll_all();
        worked = polled.pending_batches ? now : worked;
        shared = polled.shared ? now : shared;
        if (now - worked < LINGER_NS) {
            continue;
        }
        atomic_store(&helper_state, NONE);
        int none = NONE;
        if (!aliquot_measure_poll_all().pending_batches ||
            !atomic_compare_exchange_strong(&helper_state, &none, RUNNING)) {
            return unused;
        }
        worked = now;
    }
    atomic_store(&helper_state, IMPOSSIBLE);
    return unused;
}

/* Looked up, not linked: before glibc 2.34 it is in libpthread, which a CUDA program has loaded, but not every
   process. */
typedef int pthread_create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* In the C library for handlers of atexit(), which is linked statically. */
int __cxa_atexit(void (*handler)(void *), void *argument, void *library);

/* Ends the helper thread when the process exits. The driver's handler runs later, because it was registered earlier,
   and calls into a driver that has been torn down crash. The thread is detached, and so is not joined but watched. */
static void end_helper(void *unused) {
    (void)unused;
    int saved = errno;
    int64_t deadline = aliquot_os_clock() + END_NS;
    atomic_store(&exiting, true);
    while (aliquot_os_clock() < deadline &&
           (atomic_load(&helper_state) == RUNNING ||
            (atomic_load(&helper_thread) != 0 && aliquot_os_has_thread(atomic_load(&helper_thread))))) {
        aliquot_os_sleep(50000);
    }
    aliquot_report_write();
    errno = saved;
}

void aliquot_helper_start(void) {
    static atomic_flag end_registered = ATOMIC_FLAG_INIT; /* a forked child inherits the registration */
    int none = NONE;
    if (atomic_load_explicit(&helper_state, memory_order_relaxed) != NONE ||
        !atomic_compare_exchange_strong(&helper_state, &none, RUNNING)) {
        return;
    }
    if (atomic_load(&exiting) ||
        (!atomic_flag_test_and_set(&end_registered) && __cxa_atexit(end_helper, NULL, NULL) != 0)) {
        atomic_store(&helper_state, IMPOSSIBLE);
        return;
    }
    pthread_create_function *create = (pthread_create_function *)aliquot_lookup_global("pthread_create");
    pthread_attr_t attributes;
    pthread_t thread;
    if (create == NULL || pthread_attr_init(&attributes) != 0) {
        atomic_store(&helper_state, IMPOSSIBLE);
        return; /* launches check the batches instead */
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    uint64_t before = aliquot_os_block_signals(~UINT64_C(0)); /* the new thread inherits the mask */
    bool created = create(&thread, &attributes, helper_main, NULL) == 0;
    aliquot_os_block_signals(before);
    pthread_attr_destroy(&attributes);
    if (!created) {
        atomic_store(&helper_state, NONE);
    }
}

/* A forked child has no helper thread. */
static void reset_helper(void) {
    atomic_store(&helper_state, NONE);
    atomic_store(&helper_thread, 0);
}

ALIQUOT_AFTER_FORK(reset_helper);
