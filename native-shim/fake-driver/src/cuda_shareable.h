/*
 * Memory that another process can be given: a file without a name, whose head says what it is memory of. Whoever is
 * given the descriptor checks the head before it believes it; sealed against shrinking, since a mapping past the end of
 * a file is a SIGBUS.
 */
#ifndef ALIQUOT_FAKE_CUDA_SHAREABLE_H
#define ALIQUOT_FAKE_CUDA_SHAREABLE_H

#include "cuda_driver.h"

#include <sys/types.h>

enum shared_kind { SHARED_ALLOCATION = 1, SHARED_POOL, SHARED_LEGACY };

#define SHARED_NAME "aliquot-fake-gpu-memory"

/* The memory starts here, the head at 0. */
#define SHARED_START ((off_t)4096)

/* A file with so many bytes of zeros for memory of device; -1 if the host can't make one. */
int shared_create(enum shared_kind kind, const struct device *device, size_t bytes);

/* Makes it hold at least so many bytes of memory. */
bool shared_grow(int fd, size_t bytes);

/* Gives the host back what a part of it takes; it reads as zeros afterwards. */
void shared_drop(int fd, off_t offset, size_t bytes);

/*
 * A descriptor of the caller's own for what fd is, with the device that it is memory of and how much there is; -1 if
 * it isn't that kind of memory, or not of a device that this process sees (*device is NULL then).
 */
int shared_open(int fd, enum shared_kind kind, struct device **device, size_t *bytes, uint64_t *id);

/* Address space onto a part of it; NULL if there is none. */
void *shared_map(int fd, off_t offset, size_t bytes);

/* Tells one such file from all others of this machine, that of a process that reused the descriptor included. */
uint64_t shared_id(int fd);

#endif
