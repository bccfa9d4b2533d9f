/*
 * The state of the simulated driver as a whole, in the file GPU_DRIVER_FILE beside the files of the GPUs. The installer
 * creates the file, aliquot-fake-driver changes it in place, and containers have it mounted read-only. A driver without
 * the file is loaded and has the version with which its libraries were built.
 */
#ifndef ALIQUOT_FAKE_DRIVER_STATE_H
#define ALIQUOT_FAKE_DRIVER_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Hidden, because programs and people list the directory to see the GPUs. */
#define GPU_DRIVER_FILE ".driver"

enum { DRIVER_VERSION_LENGTH = 64, DRIVER_ERROR_LENGTH = 512 };

/* The states that are either on or off. */
enum {
    DRIVER_UNLOADED = 1,                 /* the kernel module is not loaded */
    DRIVER_MISMATCH = 2,                 /* the kernel module has another version than the libraries */
    DRIVER_HANGS = 4,                    /* calls that reach a GPU do not return */
    DRIVER_WITHOUT_RECOVERY_ACTIONS = 8, /* the driver is older than NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
};

struct driver_state {
    uint32_t states;
    uint32_t loads; /* how often the kernel module was loaded again */
    char version[DRIVER_VERSION_LENGTH];
};

struct driver_file;

/*
 * Maps the state of the driver whose GPUs are in that directory, to change it. Creates the file, or repairs it, if
 * necessary; returns NULL and sets error to a sentence if that fails.
 */
struct driver_file *driver_open(const char *directory, char error[DRIVER_ERROR_LENGTH]);
void driver_close(struct driver_file *file);

/*
 * Maps the state of the driver whose GPUs are in that directory, to read it; NULL if there is no valid file. The
 * mapping stays until the process ends, because a call that hangs reads it after another thread's nvmlShutdown. Calls
 * must not run at the same time.
 */
const struct driver_file *driver_map(const char *directory);

/* The state; file may be NULL. */
struct driver_state driver_state(const struct driver_file *file);

/* Changes a state that driver_open returned. */
void driver_set(struct driver_file *file, uint32_t state, bool on);
void driver_set_version(struct driver_file *file, const char *version);

#endif
