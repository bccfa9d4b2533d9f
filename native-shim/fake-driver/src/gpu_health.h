/*
 * The health of a simulated GPU: what aliquot-fake-driver makes of it and NVML reports.
 *
 * It lies in the GPU's file, in a part that is zero in files of earlier versions; zero is the state of a healthy GPU. A
 * change takes the lock under which processes attach and reserve memory, so a GPU in use is told apart from a free one
 * reliably. A reader takes no lock.
 */
#ifndef ALIQUOT_FAKE_GPU_HEALTH_H
#define ALIQUOT_FAKE_GPU_HEALTH_H

#include "gpu_file.h"

enum {
    GPU_XID_FELL_OFF_BUS = 79, /* https://docs.nvidia.com/deploy/xid-errors: "GPU has fallen off the bus" */
    GPU_MAX_XID = 1000,
    GPU_KEPT_EVENTS = 64, /* XID events that a slow reader can still read */
};

/* The states of gpu_health.states that are either on or off. */
enum {
    GPU_LOST = 1,           /* it has fallen off the bus */
    GPU_REMOVED = 2,        /* it is not in the machine */
    GPU_HOT = 4,            /* the hardware slows it down because of its temperature */
    GPU_POWER_BRAKE = 8,    /* the hardware slows it down because of the power supply */
    GPU_UUID_HIDDEN = 16,   /* NVML does not tell its UUID */
    GPU_REMAP_PENDING = 32, /* a remapped row takes effect at the next reset */
    GPU_REMAP_FAILED = 64,  /* a row could not be remapped */
    GPU_MIG_ON = 128,       /* the card is in MIG mode */
    GPU_MIG_PENDING = 256,  /* the card will be in MIG mode after its next reset */
    GPU_EXCLUSIVE = 512,    /* its compute mode allows one process at a time */
    GPU_MPS = 1024,         /* its processes are clients of an MPS server */
};

/* nvmlDeviceGpuRecoveryAction_t of nvml.h, 570 and later */
enum gpu_recovery {
    GPU_RECOVERY_NONE = 0,
    GPU_RECOVERY_RESET = 1,
    GPU_RECOVERY_REBOOT = 2,
    GPU_RECOVERY_DRAIN_P2P = 3,
    GPU_RECOVERY_DRAIN_AND_RESET = 4,
};

struct gpu_health {
    uint32_t xid;    /* the last XID since the GPU was reset or healed; 0: none */
    uint32_t states; /* GPU_LOST and so on */
    enum gpu_recovery recovery;
    uint32_t remapped_rows;    /* after uncorrectable errors, pending ones included */
    uint32_t volatile_errors;  /* uncorrectable ECC errors since the last reset */
    uint32_t aggregate_errors; /* uncorrectable ECC errors since the GPU was made or healed */
};

struct gpu_health gpu_health(const gpu_file *gpu);

/* Whether NVML and CUDA cannot reach the GPU. */
bool gpu_is_lost(const gpu_file *gpu);

/* Raises an XID event, and gives the GPU the state that a GPU has after that XID. */
void gpu_raise_xid(gpu_file *gpu, uint32_t xid);

/* The number of XID events so far, from 0. */
uint64_t gpu_xid_events(const gpu_file *gpu);

/* The XID of an event by its number, from 1 to gpu_xid_events; only the latest GPU_KEPT_EVENTS are kept. */
uint32_t gpu_xid_event(const gpu_file *gpu, uint64_t number);

void gpu_set_recovery(gpu_file *gpu, enum gpu_recovery action);
void gpu_set_state(gpu_file *gpu, uint32_t state, bool on);

/*
 * Resets the GPU: clears its volatile ECC errors, its XID and its recovery action, applies pending remappings, and
 * brings a lost GPU back. A failed remapping stays failed. Returns false and sets error to a sentence if a process
 * uses the GPU or if the GPU is removed.
 */
bool gpu_reset(gpu_file *gpu, char error[GPU_ERROR_LENGTH]);

/* Makes the GPU a healthy one that never failed. Events that a client has not read yet and its MIG mode stay. */
void gpu_heal(gpu_file *gpu);

#endif
