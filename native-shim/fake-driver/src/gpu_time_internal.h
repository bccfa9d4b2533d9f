/* What gpu_file.c and gpu_time.c know of each other, and nobody else. */
#ifndef ALIQUOT_FAKE_GPU_TIME_INTERNAL_H
#define ALIQUOT_FAKE_GPU_TIME_INTERNAL_H

#include "gpu_time.h"

#include <pthread.h>
#include <stdatomic.h>

/* A piece of work in a ring, one cache line. Written by its process before `tail` covers it, then by who plays. */
struct gpu_entry {
    uint64_t arrival;
    _Atomic uint64_t ns; /* with jitter; of a gate: when it was opened, 0 while it is closed */
    uint64_t total;      /* ns of its queue's work up to and with this, for predictions */
    uint64_t after[2];
    _Atomic uint64_t done; /* when it was over; 0: it isn't */
    uint64_t next;         /* number of the next work in its queue; 0: none known */
    uint16_t sms;
    uint8_t queue;
    uint8_t flags;
    int32_t priority;
};
_Static_assert(sizeof(struct gpu_entry) == 64, "an entry is a cache line");

/* One queue of a process: its unfinished work is the chain of entries from head to last. */
struct gpu_queue {
    uint64_t head, last; /* numbers of work; head 0: empty */
    uint64_t started;    /* the head's number once it runs */
    uint64_t finish;     /* the service at which it is over */
};

struct gpu_process_time {
    _Atomic uint64_t tail;     /* the latest work; written by the process alone */
    _Atomic uint64_t frontier; /* the oldest work that isn't over, or tail + 1 */
    uint64_t seen;             /* the latest work that is in its queue */
    uint64_t busy;             /* bit set: that queue isn't empty */
    uint64_t service;          /* ns for which the process has had the GPU; while it has it, see struct gpu_turn */
    uint64_t unused[3];
    struct gpu_queue queues[GPU_QUEUES];
    struct gpu_usage usage[GPU_USAGE_PERIODS];
};

/* Whose turn it is, at what time. */
struct gpu_turn {
    uint64_t clock; /* what happened up to here has been played */
    uint64_t ready; /* when the switch to this process is over */
    uint64_t slice_end;
    uint64_t service; /* of the process whose turn it is */
    uint32_t process; /* slot + 1; 0: nobody's */
    uint32_t latest;  /* who had the turn last, slot + 1 */
};

struct gpu_area {
    uint64_t lock; /* whoever holds the lock on its first byte plays */
    uint64_t unused[7];
    _Atomic uint64_t active[GPU_SLOTS / 64]; /* bit set: that process may have unfinished work */
    _Atomic uint32_t current;                /* which of the turns holds */
    uint32_t unused2[15];
    struct gpu_turn turns[2];
    struct gpu_usage usage[GPU_USAGE_PERIODS];
    struct gpu_process_time processes[GPU_SLOTS];
    struct gpu_entry rings[GPU_SLOTS][GPU_QUEUE_LENGTH];
};

/* The part of this process. */
struct gpu_own_time {
    pthread_mutex_t put_mutex;  /* before play_mutex */
    pthread_mutex_t play_mutex; /* file locks don't keep threads apart */
    int slot;                   /* -1: not attached. Changes under both */
    uint64_t tail;              /* the latest work's number, over all slots that the process has had */
    uint64_t random;            /* 0: no jitter */
    uint64_t latency;           /* ns, on the average */
    uint64_t totals[GPU_QUEUES];
    struct gpu_mark *marks[GPU_QUEUE_LENGTH];
};

struct layout;

struct gpu_file {
    int fd;
    int slot; /* -1: not attached */
    pthread_mutex_t mutex;
    struct layout *map;
    struct gpu_identity identity;
    struct gpu_area *area;
    struct gpu_own_time time;
};

/* gpu_file.c's: the area's lock, and whether a process lives. */
void gpu_area_lock(const gpu_file *gpu);
void gpu_area_unlock(const gpu_file *gpu);
bool gpu_slot_alive(const gpu_file *gpu, int slot);

/* gpu_time.c's: with the GPU's file, with a slot taken, and before it is given back. */
void gpu_time_open(gpu_file *gpu);
void gpu_time_close(gpu_file *gpu);
void gpu_time_attach(gpu_file *gpu, int slot);
void gpu_time_detach(gpu_file *gpu);

#endif
