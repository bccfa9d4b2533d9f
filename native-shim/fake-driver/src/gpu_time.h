/*
 * Time on a make-believe GPU: what runs when, and how long it takes.
 *
 * Each process writes its work into a ring of its own in the GPU's file, with the time at which it did so; that is all
 * a launch costs. Nothing happens by itself: whoever wants to know (a query, a wait, a launch into a full ring, NVML)
 * plays the GPU forward to the present first, under a short lock, for all processes, from what stands in the rings. The
 * work of a process whose slot lost its lock is gone when the next one looks.
 *
 * The model, after how NVIDIA's GPUs behave without MPS:
 * - Processes take turns. A turn lasts GPU_SLICE_NS while others have work that could run, and ends at once when the
 *   process has none; going from one process to another costs GPU_SWITCH_NS. Nothing of a process moves out of turn,
 *   marks (events) included, so what they measure contains the others' turns.
 * - A process has GPU_QUEUES queues: order within, none between them but what `after` and GPU_WORK_BARRIER ask for.
 *   Work starts in order of priority, then age, when its turn, its queue and its dependencies allow and as many
 *   multiprocessors as it fills are free; nothing overtakes work that waits for multiprocessors but what needs none.
 * - Work that fills multiprocessors takes its time give or take JITTER_PERCENT, by a generator that ALIQUOT_FAKE_SEED
 *   seeds (a number; 0: no jitter).
 * - Work reaches the GPU ALIQUOT_FAKE_LATENCY us after it is put, on the average: exponentially distributed by the same
 *   generator, or always so many where that is off. Without it, at once.
 */
#ifndef ALIQUOT_FAKE_GPU_TIME_H
#define ALIQUOT_FAKE_GPU_TIME_H

#include "gpu_file.h"

enum {
    GPU_QUEUES = 64, /* the first GPU_BARRIER_QUEUES are the ones that GPU_WORK_BARRIER is about */
    GPU_BARRIER_QUEUES = 32,
    GPU_QUEUE_LENGTH = 1024, /* pieces of work of a process that are not over, in all its queues */
    GPU_SLICE_NS = 2000000,
    GPU_SWITCH_NS = 5000,
    GPU_USAGE_PERIODS = 128,         /* that are remembered */
    GPU_USAGE_PERIOD_NS = 166666667, /* NVML's sample period: "between 1 second and 1/6 second" (nvmlUtilization_t) */
};

#define GPU_MAX_WORK_NS (UINT64_C(1000000000) * 86400)

enum {
    /* Starts when all earlier work of the process in the first GPU_BARRIER_QUEUES queues is over. */
    GPU_WORK_BARRIER = 1,
    /* Is over when gpu_open_gate says so, and takes no time. */
    GPU_WORK_GATE = 2,
    /* Needs one of the two copy engines: at most one piece of work of a process is in each. */
    GPU_WORK_COPIES_IN = 4,
    GPU_WORK_COPIES_OUT = 8,
};

/* A piece of work: a kernel, a copy, a mark, a graph as a whole. */
struct gpu_work {
    uint64_t ns;       /* how long it takes with the GPU to itself; 0: over as soon as it may start */
    uint32_t sms;      /* multiprocessors that it fills, at most as many as there are; 0: none */
    unsigned queue;    /* 0 .. GPU_QUEUES - 1 */
    unsigned flags;    /* GPU_WORK_... */
    int priority;      /* lower goes first */
    uint64_t after[2]; /* numbers of earlier work of this process on this GPU that must be over first; 0: none */
};

/*
 * Remembers when a piece of work was over, however long ago. Lies in the caller's memory, must not move, and is let go
 * of by gpu_forget before it is used for something else or freed.
 */
struct gpu_mark {
    uint64_t number; /* of the work; 0: none */
    uint64_t at;     /* when it was over, once that is known; 0 until then */
};

/* CLOCK_MONOTONIC in ns. All times here are such. */
uint64_t gpu_now(void);

/*
 * Puts work behind what its queue holds and returns its number, which is larger than all before; mark may be NULL.
 * Never waits and makes no system call. Only by an attached process, one thread at a time, and only with room.
 */
uint64_t gpu_put(gpu_file *gpu, const struct gpu_work *work, struct gpu_mark *mark);

/* Whether so many pieces (at most GPU_QUEUE_LENGTH) can be put now; false when the process isn't attached. */
bool gpu_has_room(gpu_file *gpu, unsigned pieces);

/* Sleeps until there may be room. The caller holds no lock and looks again. */
void gpu_wait_for_room(gpu_file *gpu, unsigned pieces);

/* Whether the work of that number is over. 0, and what the process put before it last attached, is. */
bool gpu_is_done(gpu_file *gpu, uint64_t number);

/* 0 if it is; else a time before which it cannot be, in the future. */
uint64_t gpu_earliest(gpu_file *gpu, uint64_t number);

/* Sleeps until a time, or less when a signal comes. */
void gpu_sleep_until(uint64_t when);

/* Sleeps until the work is over. The caller holds no lock. */
void gpu_wait(gpu_file *gpu, uint64_t number);

/* Whether marked work is over; then mark->at says since when. */
bool gpu_look(gpu_file *gpu, struct gpu_mark *mark);
void gpu_forget(gpu_file *gpu, struct gpu_mark *mark);

/* Ends the work of that number, put with GPU_WORK_GATE. */
void gpu_open_gate(gpu_file *gpu, uint64_t number);

/* How busy the GPU was, or one process kept it, in one GPU_USAGE_PERIOD_NS. */
struct gpu_usage {
    uint64_t period;     /* which: counted from time 0; it ends at (period + 1) * GPU_USAGE_PERIOD_NS */
    uint32_t busy_ns;    /* with a kernel running */
    uint32_t copying_ns; /* with a copy running */
};

/*
 * Plays the GPU forward and copies the history of process number `slot`, or with -1 that of the GPU, newest complete
 * period first; returns how many. Periods in which nothing ran may be missing.
 */
size_t gpu_usage_history(gpu_file *gpu, int slot, struct gpu_usage *history, size_t max);

#endif
