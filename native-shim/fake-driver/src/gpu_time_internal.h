/* The simulation's state: the part in the GPU's file, the part of this process, and what gpu_file.c calls. */
#ifndef ALIQUOT_FAKE_GPU_TIME_INTERNAL_H
#define ALIQUOT_FAKE_GPU_TIME_INTERNAL_H

#include "gpu_time.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * A work item in a ring, one cache line. Its process writes it before `tail` covers it; after that the process that
 * runs the simulation writes it.
 */
struct gpu_entry {
    uint64_t arrival;
    _Atomic uint64_t ns; /* with jitter; of a gate: when it was opened, 0 while it is closed */
    uint64_t total;      /* ns of all work of its queue up to and including this item, for predictions */
    uint64_t after[2];
    _Atomic uint64_t done; /* when it completed; 0: not yet */
    uint64_t next;         /* number of the next work item in its queue; 0: none known */
    uint16_t sms;
    uint8_t queue;
    uint8_t flags;
    int32_t priority;
};
_Static_assert(sizeof(struct gpu_entry) == 64, "an entry is a cache line");

/* One queue of a process: its incomplete work is the chain of entries from head to last. */
struct gpu_queue {
    uint64_t head, last; /* work numbers; head 0: empty */
    uint64_t started;    /* the head's number once the head runs */
    uint64_t finish;     /* the value of service at which the head completes */
};

struct gpu_process_schedule {
    _Atomic uint64_t tail;     /* the latest work; only the process writes it */
    _Atomic uint64_t frontier; /* the oldest incomplete work, or tail + 1 */
    uint64_t seen;             /* the latest work that is in its queue */
    uint64_t busy;             /* bit set: that queue is not empty */
    uint64_t service;          /* ns of GPU time that the process has had; during its turn see struct gpu_turn */
    uint64_t busy_ns;          /* with a kernel running, since the process took the slot */
    uint64_t work_ns;          /* of its kernels that have completed, times the multiprocessors that they occupied */
    uint64_t unused;
    struct gpu_queue queues[GPU_QUEUES];
    struct gpu_usage usage[GPU_USAGE_PERIODS];
};

/* The process that has the GPU, and the time that the simulation has reached. */
struct gpu_turn {
    uint64_t clock; /* all events up to this time are simulated */
    uint64_t ready; /* when the switch to this process is complete */
    uint64_t slice_end;
    uint64_t service; /* of the process that has the turn */
    uint32_t process; /* slot + 1; 0: no process has the turn */
    uint32_t latest;  /* the process that had the turn last, slot + 1 */
};

struct gpu_schedule {
    uint64_t lock;    /* the process that holds the lock on its first byte runs the simulation */
    uint64_t busy_ns; /* with a kernel running, since the file was made */
    uint64_t unused[6];
    _Atomic uint64_t active[GPU_SLOTS / 64]; /* bit set: that process may have incomplete work */
    _Atomic uint32_t current;                /* index of the valid turn */
    uint32_t unused2[15];
    struct gpu_turn turns[2];
    struct gpu_usage usage[GPU_USAGE_PERIODS];
    struct gpu_process_schedule processes[GPU_SLOTS];
    struct gpu_entry rings[GPU_SLOTS][GPU_QUEUE_LENGTH];
};

enum { GPU_KEPT_STARTS = 64 };

/* The collectives whose kernels have started on a GPU, for the simulation of their peers. The newest are kept. Written
   with the schedule locked. */
struct gpu_collective_starts {
    _Atomic uint64_t count;
    struct {
        _Atomic uint64_t name, at; /* start n at n % GPU_KEPT_STARTS */
    } starts[GPU_KEPT_STARTS];
};

/* The submission state of this process. */
struct gpu_submitter {
    pthread_mutex_t submit_mutex;     /* taken before simulation_mutex */
    pthread_mutex_t simulation_mutex; /* file locks do not exclude threads of one process */
    int slot;                         /* -1: not attached. Changes under both mutexes */
    uint64_t tail;                    /* the latest work's number, over all slots that the process has had */
    uint64_t random;                  /* 0: no jitter */
    uint64_t latency;                 /* mean, in ns */
    uint64_t totals[GPU_QUEUES];
    struct gpu_completion *completions[GPU_QUEUE_LENGTH];
};

/* Called when the GPU's file is opened and closed, before it is closed in a forked child, after a slot is taken, and
   before it is returned. */
void gpu_time_open(gpu_file *gpu);
void gpu_time_close(gpu_file *gpu);
void gpu_time_forget_in_child(void);
void gpu_time_attach(gpu_file *gpu, int slot);
void gpu_time_detach(gpu_file *gpu);

#endif
