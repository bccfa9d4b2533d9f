/*
 * The structure behind gpu_file, and the functions of gpu_file.c that only gpu_time.c and
 * gpu_health.c call.
 */
#ifndef ALIQUOT_FAKE_GPU_FILE_INTERNAL_H
#define ALIQUOT_FAKE_GPU_FILE_INTERNAL_H

#include "gpu_health.h"
#include "gpu_mig.h"
#include "gpu_time_internal.h"

struct gpu_layout;

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
