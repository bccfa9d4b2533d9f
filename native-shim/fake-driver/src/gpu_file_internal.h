/* The layout of a GPU's file, its locks (gpu_lock.c), and what else of gpu_file.c other files of this folder call. */
#ifndef ALIQUOT_FAKE_GPU_FILE_INTERNAL_H
#define ALIQUOT_FAKE_GPU_FILE_INTERNAL_H

#include "gpu_health.h"
#include "gpu_mig.h"
#include "gpu_time_internal.h"

#include <stddef.h>

/* What gpu_health.h describes. Clients read it without a lock; its writer holds the reservation lock. */
struct gpu_health_record {
    _Atomic uint32_t xid;
    _Atomic uint32_t states;
    _Atomic uint32_t recovery;
    _Atomic uint32_t remapped_rows;
    _Atomic uint32_t volatile_errors;
    _Atomic uint32_t aggregate_errors;
    _Atomic uint64_t events;
    _Atomic uint32_t event_xids[GPU_KEPT_EVENTS]; /* event n at n % GPU_KEPT_EVENTS */
};

struct file_header {
    uint64_t magic;
    uint64_t file_bytes;
    struct gpu_identity identity;
    uint64_t checksum; /* of all fields above */
};

/* One slot per process, a cache line. Only its owner writes it, but other processes zero `used` of a dead owner. */
struct slot {
    _Atomic uint64_t used;
    _Atomic uint64_t pid;
    _Atomic uint64_t pid_namespace;
    _Atomic uint64_t start_time;
    _Atomic uint64_t mount_id;
    uint64_t unused[3];
};

struct gpu_layout {
    struct file_header header;
    unsigned char padding1[1024 - sizeof(struct file_header)];
    struct gpu_instance instance; /* zero in the file of a card, as in files of earlier versions */
    _Atomic uint32_t instances;   /* that the card ever had */
    unsigned char padding3[1024 - sizeof(struct gpu_instance) - sizeof(uint32_t)];
    uint64_t unused;      /* the XID in files of earlier versions */
    uint64_t reservation; /* the process that holds the lock on its first byte may reserve memory */
    struct gpu_health_record health;
    struct gpu_collective_starts collectives; /* none in files of earlier versions */
    unsigned char
        padding2[2048 - 2 * sizeof(uint64_t) - sizeof(struct gpu_health_record) - sizeof(struct gpu_collective_starts)];
    struct slot slots[GPU_SLOTS];
    struct gpu_schedule schedule;
};

_Static_assert(sizeof(struct slot) == 64, "a slot is a cache line");
_Static_assert(offsetof(struct gpu_layout, instance) == 1024, "the file's layout is fixed");
_Static_assert(offsetof(struct gpu_layout, health) == 2064, "the file's layout is fixed");
_Static_assert(offsetof(struct gpu_layout, slots) == 4096, "the file's layout is fixed");
_Static_assert(sizeof(struct gpu_identity) == 48 + 64 + 16 + 16 + 24 + GPU_MAX_PER_NODE,
               "the checksum covers it, so it has no padding");
_Static_assert(offsetof(struct gpu_layout, schedule) % 4096 == 0, "the file's layout is fixed");

struct gpu_file {
    int fd;
    int slot; /* -1: not attached */
    pthread_mutex_t mutex;
    struct gpu_layout *map;
    struct gpu_identity identity;
    struct gpu_instance instance; /* its card is empty: a card itself */
    struct gpu_health_record *health;
    struct gpu_schedule *schedule;
    struct gpu_collective_starts *collectives;
    struct gpu_submitter submitter;
};

/* fcntl() with a lock on one byte. With F_OFD_GETLK it returns whether another descriptor holds one. */
int gpu_lock_byte(int fd, int command, short type, size_t offset);
size_t gpu_slot_offset(int slot);

/* Locks the schedule against other processes; threads of one process need simulation_mutex as well. */
void gpu_schedule_lock(const gpu_file *gpu);
void gpu_schedule_unlock(const gpu_file *gpu);

/* While this process holds the lock, no process attaches or reserves memory. Threads need gpu_file.mutex as well. */
void gpu_reservation_lock(const gpu_file *gpu);
void gpu_reservation_unlock(const gpu_file *gpu);

/* Creates the file of an instance, as gpu_create creates that of a card. */
enum gpu_create gpu_create_instance(const char *directory, const struct gpu_identity *identity,
                                    const struct gpu_instance *instance, char error[GPU_ERROR_LENGTH]);

/* Counts the instances that a card ever had: the number of the next one, from 1. */
uint32_t gpu_next_instance(gpu_file *card);

/* Whether another process owns the slot. */
bool gpu_slot_alive(const gpu_file *gpu, int slot);

#endif
