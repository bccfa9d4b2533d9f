/*
 * Memory behind a shareable handle: an anonymous file (memfd) whose header identifies the memory. A process that
 * receives the descriptor checks the header before it trusts the file. The file is sealed against shrinking, because an
 * access to a mapping past the end of a file raises SIGBUS.
 */
#ifndef ALIQUOT_FAKE_CUDA_SHAREABLE_H
#define ALIQUOT_FAKE_CUDA_SHAREABLE_H

#include "cuda_driver.h"

#include <sys/types.h>

enum shareable_kind { SHAREABLE_ALLOCATION = 1, SHAREABLE_POOL, SHAREABLE_IPC };

#define SHAREABLE_FILE_NAME "aliquot-fake-gpu-memory"

/* The memory starts here; the header is at offset 0. */
#define SHAREABLE_DATA_OFFSET ((off_t)4096)

/* Creates a file with that many zero bytes for memory of device; -1 if the host cannot create it. */
int shareable_create(enum shareable_kind kind, const struct device *device, size_t bytes);

/* Grows the file to hold at least that many bytes of memory. */
bool shareable_grow(int fd, size_t bytes);

/* Returns the host memory of a range to the host; the range reads as zeros afterwards. */
void shareable_punch_hole(int fd, off_t offset, size_t bytes);

/*
 * Duplicates the descriptor and returns the device and the size of the memory; -1 if the file is not memory of that
 * kind, or if this process does not see its device (*device is NULL then).
 */
int shareable_open(int fd, enum shareable_kind kind, struct device **device, size_t *bytes, uint64_t *id);

/* Maps a range of the file; NULL if there is no address space. */
void *shareable_map(int fd, off_t offset, size_t bytes);

/* An id that is unique on this machine, also if another process reuses the descriptor number. */
uint64_t shareable_id(int fd);

#endif
