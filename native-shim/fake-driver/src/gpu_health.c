#include "gpu_health.h"
#include "gpu_file_internal.h"

#include <stdio.h>

/* What an XID does to a GPU beyond its event. */
struct xid_effect {
    uint32_t xid;
    enum gpu_recovery recovery;
    uint32_t states;
    uint8_t uncorrectable_errors, remapped_rows;
};

/*
 * Modeled on the descriptions in https://docs.nvidia.com/deploy/xid-errors. The recovery actions are a *model*: which
 * one a driver reports depends on its version and on the GPU.
 */
static const struct xid_effect effects[] = {
    {.xid = 48, .recovery = GPU_RECOVERY_RESET, .uncorrectable_errors = 1}, /* double bit ECC error */
    {.xid = 63, .recovery = GPU_RECOVERY_DRAIN_AND_RESET, .states = GPU_REMAP_PENDING, .remapped_rows = 1},
    {.xid = 64, .recovery = GPU_RECOVERY_RESET, .states = GPU_REMAP_FAILED},
    {.xid = 74, .recovery = GPU_RECOVERY_RESET}, /* NVLink error */
    {.xid = GPU_XID_FELL_OFF_BUS, .recovery = GPU_RECOVERY_RESET, .states = GPU_LOST},
    {.xid = 94, .recovery = GPU_RECOVERY_NONE, .uncorrectable_errors = 1},  /* contained memory error */
    {.xid = 95, .recovery = GPU_RECOVERY_RESET, .uncorrectable_errors = 1}, /* uncontained memory error */
    {.xid = 119, .recovery = GPU_RECOVERY_RESET},                           /* GSP RPC timeout */
    {.xid = 154, .recovery = GPU_RECOVERY_RESET},                           /* recovery action changed */
};

static void begin_change(gpu_file *gpu) {
    pthread_mutex_lock(&gpu->mutex);
    gpu_reservation_lock(gpu);
}

static void end_change(gpu_file *gpu) {
    gpu_reservation_unlock(gpu);
    pthread_mutex_unlock(&gpu->mutex);
}

struct gpu_health gpu_health(const gpu_file *gpu) {
    struct gpu_health_record *record = gpu->health;
    uint32_t recovery = atomic_load(&record->recovery);
    return (struct gpu_health){
        .xid = atomic_load(&record->xid),
        .states = atomic_load(&record->states),
        /* Containers can write the file. */
        .recovery = recovery <= GPU_RECOVERY_DRAIN_AND_RESET ? (enum gpu_recovery)recovery : GPU_RECOVERY_NONE,
        .remapped_rows = atomic_load(&record->remapped_rows),
        .volatile_errors = atomic_load(&record->volatile_errors),
        .aggregate_errors = atomic_load(&record->aggregate_errors),
    };
}

bool gpu_is_lost(const gpu_file *gpu) {
    return (atomic_load(&gpu->health->states) & (GPU_LOST | GPU_REMOVED)) != 0;
}

uint64_t gpu_xid_events(const gpu_file *gpu) {
    return atomic_load(&gpu->health->events);
}

uint32_t gpu_xid_event(const gpu_file *gpu, uint64_t number) {
    return atomic_load(&gpu->health->event_xids[number % GPU_KEPT_EVENTS]);
}

void gpu_raise_xid(gpu_file *gpu, uint32_t xid) {
    struct gpu_health_record *record = gpu->health;
    begin_change(gpu);
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++) {
        if (effects[i].xid != xid) {
            continue;
        }
        atomic_fetch_or(&record->states, effects[i].states);
        atomic_fetch_add(&record->remapped_rows, effects[i].remapped_rows);
        atomic_fetch_add(&record->volatile_errors, effects[i].uncorrectable_errors);
        atomic_fetch_add(&record->aggregate_errors, effects[i].uncorrectable_errors);
        if (effects[i].recovery != GPU_RECOVERY_NONE) {
            atomic_store(&record->recovery, (uint32_t)effects[i].recovery);
        }
    }
    atomic_store(&record->xid, xid);
    uint64_t number = atomic_load(&record->events) + 1;
    atomic_store(&record->event_xids[number % GPU_KEPT_EVENTS], xid);
    atomic_store(&record->events, number); /* last: a client that sees the event sees its effects */
    end_change(gpu);
}

void gpu_set_recovery(gpu_file *gpu, enum gpu_recovery action) {
    begin_change(gpu);
    atomic_store(&gpu->health->recovery, (uint32_t)action);
    end_change(gpu);
}

void gpu_set_state(gpu_file *gpu, uint32_t state, bool on) {
    begin_change(gpu);
    if (on) {
        atomic_fetch_or(&gpu->health->states, state);
    } else {
        atomic_fetch_and(&gpu->health->states, ~state);
    }
    end_change(gpu);
}

bool gpu_reset(gpu_file *gpu, char error[GPU_ERROR_LENGTH]) {
    struct gpu_health_record *record = gpu->health;
    unsigned users = 0;
    begin_change(gpu);
    for (int i = 0; i < GPU_SLOTS; i++) {
        users += i == gpu->slot || gpu_slot_alive(gpu, i);
    }
    bool removed = (atomic_load(&record->states) & GPU_REMOVED) != 0;
    if (removed) {
        snprintf(error, GPU_ERROR_LENGTH, "%s is removed; insert it before a reset", gpu->identity.uuid);
    } else if (users != 0) {
        snprintf(error, GPU_ERROR_LENGTH, "%s is in use by %u process%s; a GPU can be reset when no process uses it",
                 gpu->identity.uuid, users, users == 1 ? "" : "es");
    } else {
        atomic_fetch_and(&record->states, ~(uint32_t)(GPU_LOST | GPU_REMAP_PENDING));
        atomic_store(&record->volatile_errors, 0);
        atomic_store(&record->recovery, GPU_RECOVERY_NONE);
        atomic_store(&record->xid, 0);
    }
    end_change(gpu);
    return !removed && users == 0;
}

void gpu_heal(gpu_file *gpu) {
    struct gpu_health_record *record = gpu->health;
    begin_change(gpu);
    atomic_fetch_and(&record->states, GPU_MIG_ON | GPU_MIG_PENDING);
    atomic_store(&record->recovery, GPU_RECOVERY_NONE);
    atomic_store(&record->xid, 0);
    atomic_store(&record->remapped_rows, 0);
    atomic_store(&record->volatile_errors, 0);
    atomic_store(&record->aggregate_errors, 0);
    end_change(gpu);
}
