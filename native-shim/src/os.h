/* All that the shim asks of the operating system. Nothing here allocates; errno is the caller's to keep. */
#ifndef ALIQUOT_OS_H
#define ALIQUOT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tells that a file has been replaced or rewritten. */
struct aliquot_os_file {
    uint64_t device;
    uint64_t inode;
    int64_t size; /* bytes */
    int64_t modified_seconds;
    int64_t modified_nanoseconds;
    int64_t changed_seconds;
    int64_t changed_nanoseconds;
    bool regular;
};

/* 0 or an errno value; symbolic links are followed. */
int aliquot_os_stat(const char *path, struct aliquot_os_file *file);
int aliquot_os_stat_fd(int fd, struct aliquot_os_file *file);

/* A close-on-exec descriptor, or -1 and errno; never blocks on a FIFO. */
int aliquot_os_open(const char *path, bool writable);
void aliquot_os_close(int fd);

/* Reads until the end or until size bytes are there. The number read, or -1 and errno. */
long aliquot_os_read(int fd, char *buffer, size_t size);

/* Makes the file at least size bytes long, all of them allocated. 0 or an errno value. */
int aliquot_os_extend(int fd, size_t size);

/* Shared memory of a file, or private memory of zeros with fd -1. NULL: there is none. */
void *aliquot_os_map(int fd, size_t size);
void aliquot_os_unmap(void *address, size_t size);

/* Takes, without waiting, or drops an exclusive OFD lock on one byte. False: another open file description has it. */
bool aliquot_os_lock(int fd, int64_t offset);
void aliquot_os_unlock(int fd, int64_t offset);

/* Whether another open file description than fd's has such a lock. */
bool aliquot_os_is_locked(int fd, int64_t offset);

/* Monotonic, in nanoseconds; coarse to a timer tick (1 to 10 ms) and cheap. */
int64_t aliquot_os_clock_coarse(void);
int64_t aliquot_os_clock(void);
void aliquot_os_sleep(int64_t nanoseconds);

/* Until a time of aliquot_os_clock(), or a little less if a signal comes. No cancellation point. */
void aliquot_os_sleep_until(int64_t time);

/* Since 1970, in microseconds. */
uint64_t aliquot_os_time(void);

/* This process, as its own PID namespace numbers it. */
uint32_t aliquot_os_pid(void);

/* Sets this thread's blocked signals (bit n - 1: signal n) and says which were. */
uint64_t aliquot_os_block_signals(uint64_t blocked);

/* One write to standard error. */
void aliquot_os_write_stderr(const char *line);

/* A definition of symbol in the first loaded library whose SONAME is one of the sonames (NULL-terminated), in the order
   of the names; NULL: none. Needs nothing of libdl, which before glibc 2.34 not every process has loaded. */
void *aliquot_os_find_symbol(const char *const sonames[], const char *symbol);

#endif
