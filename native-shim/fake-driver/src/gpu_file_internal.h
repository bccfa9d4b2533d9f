/* The structure behind gpu_file, and the functions of gpu_file.c that only gpu_time.c calls. */
#ifndef ALIQUOT_FAKE_GPU_FILE_INTERNAL_H
#define ALIQUOT_FAKE_GPU_FILE_INTERNAL_H

#include "gpu_time_internal.h"

struct gpu_layout;

struct gpu_file {
    int fd;
    int slot; /* -1: not attached */
    pthread_mutex_t mutex;
    struct gpu_layout *map;
    struct gpu_identity identity;
    struct gpu_schedule *schedule;
    struct gpu_submitter submitter;
};

/* Locks the schedule against other processes; threads of one process need simulation_mutex as well. */
void gpu_schedule_lock(const gpu_file *gpu);
void gpu_schedule_unlock(const gpu_file *gpu);

/* Whether another process owns the slot. */
bool gpu_slot_alive(const gpu_file *gpu, int slot);

#endif
