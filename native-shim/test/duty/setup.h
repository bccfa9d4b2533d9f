/* What `duty` and `ranks` share: simulated GPUs, containers on them, processes in virtual time, and options. */
#ifndef ALIQUOT_DUTY_SETUP_H
#define ALIQUOT_DUTY_SETUP_H

#include "gpu_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PATH_LENGTH = 512 };

/* An option of the command line, which sets one of these. The last of an array has no name. */
struct setup_option {
    const char *name;
    bool *flag;
    const char **text;
    int *integer;
    double *number;
    double min, max; /* of a number */
};

/* Prints a message and ends the process with status 2. */
_Noreturn void setup_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

double setup_number(const char *text, double min, double max);

/* Sets what the command line says from the first option on; prints `help` and ends the process if that is wrong. */
void setup_parse(const struct setup_option *options, const char *help, char **arguments);

/* Creates a temporary folder with simulated GPUs. What this process starts finds them, and shares a virtual clock,
   which begins to run when `participants` processes have joined. */
void setup_create(char folder[PATH_LENGTH], int gpus, int participants, int seed);

void setup_remove(const char *folder);

/* The UUID of one of the folder's GPUs, in memory that the next call overwrites. */
const char *setup_uuid(int gpu);

/* Memory that all processes of a measurement share, at first zeros. */
void *setup_share(const char *folder, size_t size);

/* Creates a container in the folder: vgpu-NAME with its limits, regions/NAME, and agents/NAME with the limits' GPUs. */
void setup_container(const char *folder, const char *name, const char *limits);

/* Starts this program again, as `PROGRAM ROLE FOLDER OPTION...`; in a container, with the shim, unless that is NULL. */
pid_t setup_start(const char *folder, const char *role, const char *container);

/* Starts the arbiter of the folder's containers, which reads its lists from `input`. floor: its FLOOR, or NULL. */
pid_t setup_start_arbiter(const char *folder, const char *floor, int input);

/* The slot of a process on a GPU; -1: it does not use the GPU. */
int setup_slot_of(gpu_file *gpu, pid_t pid);

/* Kills a process that was started; 0: none. */
void setup_stop(pid_t process);

#endif
