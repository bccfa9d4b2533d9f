/*
 * Time on a simulated GPU: which work runs when, and how long it takes.
 *
 * Each process writes its work into its own ring in the GPU's file, with the time of submission; a launch costs nothing
 * more. There is no background process. A caller that needs a result (a query, a wait, a launch into a full ring, NVML)
 * first advances the simulation to the present, for all processes, from the entries in the rings and under a short
 * lock. The work of a process whose slot has lost its lock is discarded by the next simulation step.
 *
 * The model follows NVIDIA GPUs without MPS:
 * - Processes take turns. A turn lasts GPU_SLICE_NS while other processes have runnable work, and ends at once when the
 *   process has none. A switch between processes costs what gpu_profile.h says, 5 us by default. No work of a process
 *   advances outside its turn, events included, so the times that events measure contain the turns of other processes.
 * - A process has GPU_QUEUES queues. Work within a queue is ordered; work in different queues is ordered only by
 *   `after` and GPU_WORK_BARRIER. Work starts in order of priority, then age, when its process has the turn, its queue
 *   and its dependencies allow it, and enough multiprocessors are free. While a work item waits for multiprocessors,
 *   only work that needs none may overtake it.
 * - Where the profile says how many warps keep a multiprocessor busy, kernels of one process also overlap on the same
 *   multiprocessors, up to RESIDENT_WARPS on each. Each uses its part p of the instruction slots at random, so together
 *   they use 1 - (1 - p1) (1 - p2) ..., and a kernel that starts beside others takes longer in proportion.
 * - Work that occupies multiprocessors takes its time plus or minus JITTER_PERCENT, from a generator that
 *   ALIQUOT_FAKE_SEED seeds (a number; 0: no jitter).
 * - A kernel of a collective waits on the GPU for its peers' kernels on other GPUs, as NCCL's kernels do: it keeps its
 *   multiprocessors and its process's turns meanwhile. A process that advances one of the GPUs must have the others
 *   open; what it cannot see has not started. A GPU on which a kernel waits is never more than GPU_AHEAD_NS ahead of
 *   its peers, and learns of their starts that late at most.
 * - Work reaches the GPU ALIQUOT_FAKE_LATENCY us after its submission, on average: exponentially distributed by the
 *   same generator, or constant where the generator is off. Without the variable, work reaches the GPU at once.
 */
#ifndef ALIQUOT_FAKE_GPU_TIME_H
#define ALIQUOT_FAKE_GPU_TIME_H

#include "gpu_file.h"

enum {
    GPU_QUEUES = 64, /* GPU_WORK_BARRIER applies to the first GPU_BARRIER_QUEUES */
    GPU_BARRIER_QUEUES = 32,
    GPU_QUEUE_LENGTH = 1024, /* incomplete work items of a process, in all its queues together */
    GPU_SLICE_NS = 2000000,
    GPU_AHEAD_NS = 10000,
    GPU_USAGE_PERIODS = 128,         /* length of the usage history */
    GPU_USAGE_PERIOD_NS = 166666667, /* NVML's sample period: "between 1 second and 1/6 second" (nvmlUtilization_t) */
};

#define GPU_MAX_WORK_NS (UINT64_C(1000000000) * 86400)

enum {
    /* Starts when all earlier work of the process in the first GPU_BARRIER_QUEUES queues is complete. */
    GPU_WORK_BARRIER = 1,
    /* Completes when gpu_open_gate is called for it, and takes no time. */
    GPU_WORK_GATE = 2,
    /* Needs one of the two copy engines: each runs at most one work item of a process at a time. */
    GPU_WORK_COPIES_IN = 4,
    GPU_WORK_COPIES_OUT = 8,
    /* Starts when all earlier work of the process that occupies multiprocessors is complete, in whatever queue. */
    GPU_WORK_AFTER_KERNELS = 16,
    /* Is part of a collective: after[0] is the collective's name (gpu_collective). From its start it occupies its
       multiprocessors until the kernels of all ranks have started, and then for its ns. */
    GPU_WORK_COLLECTIVE = 32,
};

/* The name of a collective of that many ranks (1 .. 255), each on a GPU of its own. No two collectives on the node may
   have the same number. */
static inline uint64_t gpu_collective(uint64_t number, unsigned ranks) {
    return number << 8 | (ranks & 255);
}

/* A work item: a kernel, a copy, an event, a whole graph. */
struct gpu_work {
    uint64_t ns;    /* duration with the GPU to itself; 0: completes as soon as it may start */
    uint32_t sms;   /* multiprocessors that it occupies, at most as many as the GPU has; 0: none */
    unsigned queue; /* 0 .. GPU_QUEUES - 1 */
    unsigned flags; /* GPU_WORK_... */
    int priority;   /* lower goes first */
    /* Numbers of earlier work of this process on this GPU that must complete first; 0: none. */
    uint64_t after[2];
};

/*
 * The completion time of one work item, kept after the item's ring entry is reused. It lies in the caller's memory and
 * must not move. The caller calls gpu_drop_completion before it reuses or frees that memory.
 */
struct gpu_completion {
    uint64_t number; /* of the work; 0: none */
    uint64_t at;     /* when it completed, once that is known; 0 until then */
};

/* CLOCK_MONOTONIC in ns, the clock of all times in this header. */
uint64_t gpu_now(void);

/*
 * Appends work to its queue and returns its number, which is larger than all earlier ones; completion may be NULL.
 * Never waits and makes no system call. The process must be attached and the queue must have space; only one thread may
 * submit at a time.
 */
uint64_t gpu_submit(gpu_file *gpu, const struct gpu_work *work, struct gpu_completion *completion);

/* Whether that many items (at most GPU_QUEUE_LENGTH) can be submitted now; false when the process is not attached. */
bool gpu_has_queue_space(gpu_file *gpu, unsigned items);

/* Sleeps until there may be queue space. The caller holds no lock and checks again. */
void gpu_wait_for_queue_space(gpu_file *gpu, unsigned items);

/* Whether the work of that number is complete. Number 0 is, and so is all work from before the last gpu_attach. */
bool gpu_is_done(gpu_file *gpu, uint64_t number);

/* 0 if the work is complete; otherwise a time in the future before which it cannot complete. */
uint64_t gpu_earliest_completion(gpu_file *gpu, uint64_t number);

/* Sleeps until a time, or until a signal arrives. */
void gpu_sleep_until(uint64_t when);

/* Sleeps until the work is complete. The caller holds no lock. */
void gpu_wait(gpu_file *gpu, uint64_t number);

/* Whether the work of the completion is complete; if so, sets completion->at. */
bool gpu_poll_completion(gpu_file *gpu, struct gpu_completion *completion);
void gpu_drop_completion(gpu_file *gpu, struct gpu_completion *completion);

/* Completes the work of that number, which was submitted with GPU_WORK_GATE. */
void gpu_open_gate(gpu_file *gpu, uint64_t number);

/* How long the GPU, or one process on it, was busy in one GPU_USAGE_PERIOD_NS. */
struct gpu_usage {
    uint64_t period;     /* number of the period, from time 0; it ends at (period + 1) * GPU_USAGE_PERIOD_NS */
    uint32_t busy_ns;    /* with a kernel running */
    uint32_t copying_ns; /* with a copy running */
};

/*
 * Advances the simulation and copies the history of the process in `slot`, or of the GPU for slot -1, newest complete
 * period first; returns the number of periods. Idle periods may be missing.
 */
size_t gpu_usage_history(gpu_file *gpu, int slot, struct gpu_usage *history, size_t max);

/* When the GPU's kernel of a collective started; 0 if it has not, or at least 64 others have started since. */
uint64_t gpu_collective_start(const gpu_file *gpu, uint64_t name);

/*
 * Advances the simulation and returns how long a kernel ran: of the process in `slot` since it took the slot, or on the
 * GPU since its file was made for slot -1. The sum over all processes that the GPU ever had is that of the GPU.
 */
uint64_t gpu_busy_ns(gpu_file *gpu, int slot);

/*
 * Advances the simulation and returns the work that the process in `slot` has completed: the durations of its kernels,
 * each times the part of the GPU's multiprocessors that it occupied.
 */
uint64_t gpu_work_ns(gpu_file *gpu, int slot);

#endif
