/* Hooks of all functions that start work on a GPU, and of those that record events around it. */
#include "compute/launch.h"

#include "compute/compute.h"
#include "compute/cost.h"
#include "compute/gcra.h"
#include "compute/measure.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "driver/lookup.h"
#include "memory/graph.h"
#include "os/os.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define LIMITS_CHECK_MASK 63 /* launches between checks of the limit file, less 1 */
#define ADVANCE_NS 50000     /* of GPU time, charged in advance by a thread */
/* Minimum time for which a thread is throttled. It then launches several kernels in a row, so that the latency of
   reaching the GPU weighs less against the length of their batch. */
#define THROTTLE_MIN_NS 1000000
#define SLEEP_MAX_NS 10000000   /* shares change */
#define SLEEP_PENDING_NS 500000 /* pending batches may return part of their charge */
/* Collectives (compute.h). */
#define STEP_DEBT_NS INT64_C(200000000)            /* time by which a step may exceed the share */
#define COLLECTIVE_WAIT_MAX_NS INT64_C(100000000)  /* longest wait of a collective, unless the debt is larger */
#define COLLECTIVE_DEBT_MAX_NS INT64_C(1000000000) /* than this */
#define STEP_MAX_NS INT64_C(1000000000)            /* without a collective or another GPU, a thread is not in a step */
#define STEP_WAIT_MAX_NS INT64_C(100000000)        /* then the first launch of a step waits like any other */

static __thread struct {
    int device;
    uint64_t credit; /* ns of GPU time charged in advance on that device */
    unsigned launches;
    uint64_t charged;          /* ns of GPU time, for all launches */
    uint64_t charged_at_event; /* charged, when the last timing event was recorded */
    bool in_span;              /* that event began a span */
    bool has_waited;           /* for the GPU, since its last launch */
    /* Where kernels may wait for peers on other GPUs (compute.h). */
    bool in_steps, begins_step;    /* the thread works in steps; a collective was launched, so a step is over */
    int64_t in_steps_at;           /* when that was last seen */
    uint32_t devices, last_device; /* bit set: the thread launches there, or launched last */
} thread_advance __attribute__((tls_model("initial-exec")));

/* Whether launches are limited. Checks the limit file now and then. */
static inline bool is_throttling_active(void) {
    int state = __atomic_load_n(&aliquot_account_compute, __ATOMIC_RELAXED);
    if (__builtin_expect((++thread_advance.launches & LIMITS_CHECK_MASK) == 0 || state == ALIQUOT_COMPUTE_UNKNOWN, 0)) {
        state = aliquot_compute_refresh();
    }
    return state == ALIQUOT_COMPUTE_LIMITED;
}

/* How a launch is held back. */
struct hold {
    int64_t debt;     /* time by which what was charged may exceed the burst */
    int64_t least;    /* time for which to sleep, if at all */
    uint32_t devices; /* bit set: the thread waits for room there as well */
};

/* Charges a launch. */
static bool try_charge(const struct aliquot_launch *launch, uint64_t ns, const struct hold *hold, int64_t *until) {
    for (uint32_t devices = hold->devices; devices != 0; devices &= devices - 1) {
        if (!aliquot_compute_try_charge(__builtin_ctz(devices), 0, hold->debt, until)) {
            return false;
        }
    }
    return aliquot_compute_try_charge(launch->device, ns, hold->debt, until);
}

/* Decides how to hold back a launch where kernels may wait for peers on other GPUs (compute.h). */
static __attribute__((noinline)) void hold_in_step(const struct aliquot_launch *launch, struct hold *hold) {
    int64_t now = aliquot_os_clock_coarse();
    if (now - thread_advance.in_steps_at > STEP_MAX_NS) {
        thread_advance.in_steps = false;
        thread_advance.devices = 0;
    }
    uint32_t device = UINT32_C(1) << launch->device, devices = thread_advance.devices | device;
    if (launch->waits || device != thread_advance.last_device) {
        thread_advance.in_steps_at = now;
    }
    bool back = device != thread_advance.last_device && device == (devices & -devices);
    bool begins = !launch->waits && (thread_advance.begins_step || back);
    thread_advance.devices = devices;
    thread_advance.last_device = device;
    thread_advance.begins_step = launch->waits || (thread_advance.begins_step && !begins);
    thread_advance.in_steps |= launch->waits || devices != device;
    if (begins || !thread_advance.in_steps) {
        hold->debt = -ALIQUOT_GCRA_BURST_NS;
        hold->least = 0;
        hold->devices = devices;
    } else {
        hold->debt = STEP_DEBT_NS;
    }
}

/* Whether a collective has waited long enough. Not if it is long itself, much is owed, or much work is unfinished. */
static bool may_owe(const struct aliquot_launch *launch, int64_t waited) {
    int64_t until;
    return launch->waits && waited >= COLLECTIVE_WAIT_MAX_NS && launch->charged < COLLECTIVE_WAIT_MAX_NS &&
           aliquot_compute_try_charge(launch->device, 0, COLLECTIVE_DEBT_MAX_NS, &until);
}

/* Charges ns of GPU time, and sleeps until the share allows it. True: the thread was throttled. */
static __attribute__((noinline)) bool throttle(const struct aliquot_launch *launch, uint64_t ns) {
    int64_t until = 0;
    /* In its turn, a container has so little in flight that the GPU must not wait for it. */
    struct hold hold = {.least = aliquot_compute_has_little_in_flight(launch->device) ? 0 : THROTTLE_MIN_NS};
    if (launch->waits || thread_advance.in_steps || aliquot_account_computes_on_several()) {
        hold_in_step(launch, &hold);
    }
    if (try_charge(launch, ns, &hold, &until)) {
        return false;
    }
    int saved = errno;
    int64_t start = aliquot_os_clock(), now = start;
    aliquot_batch_pause();
    bool unfinished = aliquot_measure_poll(launch->context);
    bool owes;
    if (hold.debt == 0 && aliquot_compute_launches_in_bursts(launch->device)) {
        hold.debt = -ALIQUOT_GCRA_BURST_NS;
    }
    if (unfinished && (!thread_advance.has_waited || aliquot_batch_two_are_unfinished())) {
        aliquot_compute_record_queued(launch->device);
    }
    while (!(owes = (now - start >= ALIQUOT_GCRA_WAIT_MAX_NS && !aliquot_compute_waits_for_turn(launch->device)) ||
                    may_owe(launch, now - start)) &&
           (now - start < hold.least || !try_charge(launch, ns, &hold, &until))) {
        if (now - start >= STEP_WAIT_MAX_NS && hold.debt < 0) {
            hold.debt = 0; /* threads that keep less in reserve would keep this one waiting */
        }
        int64_t longest = now + (unfinished ? SLEEP_PENDING_NS : SLEEP_MAX_NS);
        int64_t wake = until > start + hold.least ? until : start + hold.least;
        aliquot_os_sleep_until(wake > now && wake < longest ? wake : longest);
        unfinished = aliquot_measure_poll(launch->context);
        aliquot_compute_refresh();
        now = aliquot_os_clock();
    }
    if (owes) {
        aliquot_compute_adjust(launch->device, (int64_t)ns); /* launch now, and charge it as debt */
    }
    aliquot_compute_add_throttled(launch->device, now - start);
    errno = saved;
    return true;
}

/* Charges a launch. Small launches share an advance, so that most of them cost almost nothing. The rest of an
   advance is never lost: with 20 us kernels that would be a fifth of the share. */
static inline __attribute__((always_inline)) bool charge_with_advance(const struct aliquot_launch *launch) {
    thread_advance.charged += launch->charged;
    bool in_credit = thread_advance.device == launch->device && thread_advance.credit >= launch->charged;
    if (in_credit && !launch->waits && !thread_advance.begins_step) {
        thread_advance.credit -= launch->charged;
        return false;
    }
    if (launch->charged >= ADVANCE_NS / 2) {
        return throttle(launch, launch->charged);
    }
    bool throttled = throttle(launch, ADVANCE_NS);
    if (thread_advance.device != launch->device && thread_advance.credit > 0) {
        aliquot_compute_adjust(thread_advance.device, -(int64_t)thread_advance.credit);
        thread_advance.credit = 0;
    }
    thread_advance.device = launch->device;
    thread_advance.credit += ADVANCE_NS - launch->charged;
    return throttled;
}

void aliquot_launch_wait_begins(void) {
    aliquot_batch_pause();
    thread_advance.has_waited = true;
}

void aliquot_launch_charge(CUcontext context, int device, uint64_t nanoseconds) {
    const struct aliquot_launch work = {.context = context, .device = device, .charged = nanoseconds};
    charge_with_advance(&work);
}

/* NCCL's kernels, by the name of their function (ncclDevKernel_..., before 2.19 ncclKernel_...), if the driver tells it
   (12.3). */
static __attribute__((noinline, cold)) bool is_named_collective(struct aliquot_cost *cost, const void *handle) {
    const char *name = NULL;
    bool waits = aliquot_real.cuFuncGetName != NULL &&
                 aliquot_real.cuFuncGetName(&name, (CUfunction)(uintptr_t)handle) == CUDA_SUCCESS && name != NULL &&
                 strstr(name, "nccl") != NULL && strstr(name, "Kernel") != NULL;
    aliquot_cost_set_waits(cost, waits ? ALIQUOT_WAITS : ALIQUOT_WAITS_NOT);
    return waits;
}

static inline bool waits_for_peers(struct aliquot_cost *cost, const void *handle) {
    enum aliquot_cost_waits waits = aliquot_cost_waits(cost);
    return __builtin_expect(waits != ALIQUOT_WAITS_NOT, 0) &&
           (waits == ALIQUOT_WAITS || is_named_collective(cost, handle));
}

/* Charges a launch before it is forwarded, and throttles it if needed. False: the launch is not limited, so
   end_launch() must not be called. */
static bool charge_launch(struct aliquot_launch *launch, enum aliquot_cost_kind kind, const void *handle,
                          uint64_t blocks, CUstream stream) {
    if (aliquot_capture_may_include(stream)) {
        return false;
    }
    if (aliquot_device_of_current(&launch->context, &launch->device) != CUDA_SUCCESS ||
        !aliquot_account_is_compute_limited(launch->device)) {
        return false;
    }
    launch->stream = stream;
    launch->cost = aliquot_cost_of(kind, handle, blocks);
    launch->charged = aliquot_cost_next(launch->cost);
    launch->waits = waits_for_peers(launch->cost, handle);
    if (launch->waits) {
        aliquot_batch_end_own(stream);
    }
    bool throttled = charge_with_advance(launch);
    thread_advance.has_waited = false;
    aliquot_batch_begin(launch, throttled);
    return true;
}

/* After the launch. Returns its result. */
static CUresult end_launch(const struct aliquot_launch *launch, CUresult result) {
    if (result != CUDA_SUCCESS) {
        aliquot_compute_adjust(launch->device, -(int64_t)launch->charged);
    }
    aliquot_batch_launched(launch, result == CUDA_SUCCESS);
    return result;
}

static uint64_t blocks_of(unsigned int x, unsigned int y, unsigned int z) {
    return (uint64_t)x * y * z;
}

/* Kernels that are part of a collective tell it with NCCL's attribute (2.17 and later, compute capability 9 and later).
 */
static enum aliquot_cost_kind kind_of(const CUlaunchConfig *config) {
    for (unsigned i = 0; config != NULL && config->attrs != NULL && i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN &&
            config->attrs[i].value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
            return ALIQUOT_COST_COLLECTIVE;
        }
    }
    return ALIQUOT_COST_KERNEL;
}

#define KIND_KERNEL ALIQUOT_COST_KERNEL
#define KIND_KERNEL_EX kind_of(config)
#define KIND_GRAPH ALIQUOT_COST_GRAPH

/* Forwards to the driver. For graphs, first reserves the memory that they allocate. */
#define CALL_KERNEL(symbol, arguments, handle, stream) aliquot_real.symbol arguments
#define CALL_KERNEL_EX CALL_KERNEL
#define CALL_GRAPH(symbol, arguments, handle, stream) aliquot_graph_launch(aliquot_real.symbol, handle, stream)

/* Hook of one launch function. */
#define LAUNCH(symbol, parameters, arguments, kind, handle, blocks, stream)                                            \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        struct aliquot_launch launch;                                                                                  \
        return __builtin_expect(is_throttling_active(), 0) &&                                                          \
                       charge_launch(&launch, KIND_##kind, handle, blocks, stream)                                     \
                   ? end_launch(&launch, CALL_##kind(symbol, arguments, handle, stream))                               \
                   : CALL_##kind(symbol, arguments, handle, stream);                                                   \
    }

/* Most functions have a variant for per-thread default streams. */
#define LAUNCHES(symbol, parameters, arguments, kind, handle, blocks, stream)                                          \
    LAUNCH(symbol, parameters, arguments, kind, handle, blocks, stream)                                                \
    LAUNCH(symbol##_ptsz, parameters, arguments, kind, handle, blocks, aliquot_per_thread(stream))

LAUNCHES(cuLaunchKernel,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,
          void **extra),
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra), KERNEL,
         function, blocks_of(grid_x, grid_y, grid_z), stream)

LAUNCHES(cuLaunchCooperativeKernel,
         (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
          unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters),
         (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters), KERNEL,
         function, blocks_of(grid_x, grid_y, grid_z), stream)

/* The driver refuses a NULL configuration. */
LAUNCHES(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
         (config, function, parameters, extra), KERNEL_EX, function,
         config == NULL ? 0 : blocks_of(config->gridDimX, config->gridDimY, config->gridDimZ),
         config == NULL ? NULL : config->hStream)

LAUNCHES(cuGraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream), GRAPH, graph, 0, stream)

/* Functions from before CUDA 4: the grid of cuLaunch is one block, and only the last takes a stream. */
LAUNCH(cuLaunch, (CUfunction function), (function), KERNEL, function, 1, NULL)

LAUNCH(cuLaunchGrid, (CUfunction function, int width, int height), (function, width, height), KERNEL, function,
       blocks_of((unsigned int)width, (unsigned int)height, 1), NULL)

LAUNCH(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
       (function, width, height, stream), KERNEL, function, blocks_of((unsigned int)width, (unsigned int)height, 1),
       stream)

/* Launches one kernel on each of several GPUs, which wait for each other. Charged to the current device, since the
   other devices are known only through their streams. Deprecated since CUDA 11.3. */
LAUNCH(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * launches, unsigned int count, unsigned int flags),
       (launches, count, flags), KERNEL, launches == NULL || count == 0 ? NULL : launches[0].function,
       launches == NULL || count == 0 ? 0 : blocks_of(launches[0].gridDimX, launches[0].gridDimY, launches[0].gridDimZ),
       launches == NULL || count == 0 ? NULL : launches[0].hStream)

/* ---- timing events (compute.h) ---- */

/* Whether the event, just recorded, has a time. */
static bool is_timing_event(CUevent event) {
    float ms;
    if (aliquot_real.cuEventElapsedTime == NULL) {
        return false;
    }
    int mode =
        atomic_load_explicit(&aliquot_open_captures, memory_order_relaxed) > 0 ? aliquot_capture_relax_mode() : -1;
    CUresult result = aliquot_real.cuEventElapsedTime(&ms, event, event);
    aliquot_capture_restore_mode(mode);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
}

static __attribute__((noinline)) void wait_for_room(CUcontext context, int device) {
    int saved = errno;
    int64_t start = aliquot_os_clock(), now = start;
    aliquot_batch_pause();
    while (now - start < ALIQUOT_GCRA_WAIT_MAX_NS && aliquot_compute_room(device) < ALIQUOT_GCRA_BURST_NS) {
        bool unfinished = aliquot_measure_poll(context);
        aliquot_os_sleep_until(now + (unfinished ? SLEEP_PENDING_NS : THROTTLE_MIN_NS));
        aliquot_compute_refresh();
        now = aliquot_os_clock();
    }
    aliquot_compute_add_throttled(device, now - start);
    errno = saved;
}

/* Timing events come in pairs: of two with launches in between, for which there was room, the second ends a span. */
static bool begins_a_span(void) {
    uint64_t charged = thread_advance.charged - thread_advance.charged_at_event;
    bool begins = !thread_advance.in_span || charged == 0 || charged > ALIQUOT_GCRA_BURST_NS;
    thread_advance.charged_at_event = thread_advance.charged;
    thread_advance.in_span = begins;
    return begins;
}

/* Waits if an event that was recorded on a stream begins a span and little room is left. True: it must be recorded
   again. */
static bool wait_before_span(CUevent event, CUstream recorded_on) {
    CUcontext context;
    int device;
    if (!is_throttling_active() || aliquot_capture_may_include(recorded_on) ||
        aliquot_device_of_current(&context, &device) != CUDA_SUCCESS || !aliquot_account_is_compute_limited(device) ||
        !is_timing_event(event) || !begins_a_span() || aliquot_compute_room(device) >= ALIQUOT_GCRA_BURST_NS / 2) {
        return false;
    }
    wait_for_room(context, device);
    return true;
}

#define RECORD(symbol, parameters, arguments, recorded_on)                                                             \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        CUresult result = aliquot_real.symbol arguments;                                                               \
        return result == CUDA_SUCCESS && wait_before_span(event, recorded_on) ? aliquot_real.symbol arguments          \
                                                                              : result;                                \
    }
#define RECORDS(symbol, parameters, arguments)                                                                         \
    RECORD(symbol, parameters, arguments, stream)                                                                      \
    RECORD(symbol##_ptsz, parameters, arguments, aliquot_per_thread(stream))

RECORDS(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
RECORDS(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))

/* ---- streams ---- */

#define DESTROY_STREAM(symbol)                                                                                         \
    CUresult symbol(CUstream stream) {                                                                                 \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        aliquot_batch_forget_stream(stream);                                                                           \
        return aliquot_real.symbol(stream);                                                                            \
    }

DESTROY_STREAM(cuStreamDestroy)
DESTROY_STREAM(cuStreamDestroy_v2)
