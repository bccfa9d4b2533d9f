/* The shim's interface to the operating system. Nothing here allocates memory from the heap. The functions may
   change errno. */
#ifndef ALIQUOT_OS_H
#define ALIQUOT_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks an invariant of the shim's own state that would be violated silently: a wrong share, bytes never released. The
   sanitizer and fuzzer builds of the tests define ALIQUOT_INVARIANTS: a false condition ends the process with a line
   that names it. The library does not evaluate the condition, so it must have no effects. What other processes can
   write, such as the region, is no invariant but input. */
#ifdef ALIQUOT_INVARIANTS
#include <assert.h>
#define ALIQUOT_INVARIANT(condition) assert(condition)
#else
#define ALIQUOT_INVARIANT(condition) ((void)sizeof(condition))
#endif

/* Identity of a file, and when it was changed: a difference means that the file was replaced or rewritten. */
struct aliquot_os_file {
    uint64_t device;
    uint64_t inode;
    int64_t size; /* bytes */
    int64_t changed_seconds;
    int64_t changed_nanoseconds;
    bool regular;
};

/* Follows symbolic links. Returns 0 or an errno value. */
int aliquot_os_stat(const char *path, struct aliquot_os_file *file);
int aliquot_os_stat_fd(int fd, struct aliquot_os_file *file);

/* Whether the descriptor is of that file, whatever its content. */
bool aliquot_os_is_file(int fd, const struct aliquot_os_file *expected);

/* Returns a close-on-exec descriptor, or -1 and errno. Never blocks on a FIFO. ESTALE: the path does not lead to the
   expected file (NULL: any). */
int aliquot_os_open(const char *path, const struct aliquot_os_file *expected, bool writable);

/* Opens a file of the expected folder for reading, in the same way. It must be on the folder's file system. */
int aliquot_os_open_in(const char *folder, const struct aliquot_os_file *expected, const char *name);
void aliquot_os_close(int fd);

/* Moves a descriptor to a high number, where programs rarely look, and closes the old one. Without room there it
   returns the same descriptor. */
int aliquot_os_move_high(int fd);

/* Reads up to size bytes, fewer only at the end of the file. Returns their number, or -1 and errno. */
long aliquot_os_read(int fd, char *buffer, size_t size);

/* Extends the file to at least size bytes, all of them allocated on disk. Returns 0 or an errno value. */
int aliquot_os_extend(int fd, size_t size);

/* Maps a file shared, or with fd -1 private zeroed memory. NULL on failure. */
void *aliquot_os_map(int fd, size_t size);
void *aliquot_os_map_readonly(int fd, size_t size); /* a file */
void aliquot_os_unmap(void *address, size_t size);

/* Acquires without waiting, or releases, an exclusive OFD lock on one byte. False: another open file description
   holds it. */
bool aliquot_os_lock(int fd, int64_t offset);
void aliquot_os_unlock(int fd, int64_t offset);

/* Whether an open file description other than fd's holds such a lock. */
bool aliquot_os_is_locked(int fd, int64_t offset);

/* The node's CLOCK_MONOTONIC in nanoseconds, also in a time namespace. The coarse clock is cheap, and exact to a timer
   tick (1 to 10 ms). */
int64_t aliquot_os_clock_coarse(void);
int64_t aliquot_os_clock(void);

/* Finds out, before the first look at a clock, what the clocks of this process's time namespace are ahead. Where the
   kernel does not say it, such as without /proc, they are taken for the node's. */
void aliquot_os_find_clock_offset(void);

/* Sleeps for a time or until a time of aliquot_os_clock(), or less if a signal arrives. Not a cancellation point. */
void aliquot_os_sleep(int64_t nanoseconds);
void aliquot_os_sleep_until(int64_t time);

/* CLOCK_REALTIME in microseconds since 1970. */
uint64_t aliquot_os_time(void);

/* The calling thread, and whether a thread of this process still exists. */
int aliquot_os_thread(void);
bool aliquot_os_has_thread(int thread);

/* PID of this process in its own PID namespace. */
uint32_t aliquot_os_pid(void);

/* Sets this thread's blocked signals (bit n - 1: signal n). Returns the previous ones. */
uint64_t aliquot_os_block_signals(uint64_t blocked);

/* Appends the text to a file, which it creates if needed, with a single write. */
void aliquot_os_append(const char *path, const char *text);

/* Writes the line to standard error with a single write. */
void aliquot_os_write_stderr(const char *line);

/* strcmp() == 0, without a call that a program may define (see aliquot_os_find_symbol). */
bool aliquot_os_equals(const char *one, const char *other);

/* Address of a function of the C library, or of libdl, which before glibc 2.34 not every process has loaded; NULL:
   none. Calls nothing that a program may define: it runs in dlsym, also while a sanitizer's runtime has defined strcmp
   and does not know the real one yet. */
void *aliquot_os_find_symbol(const char *symbol);

#endif
