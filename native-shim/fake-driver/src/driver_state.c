#define _GNU_SOURCE
#include "driver_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3156524451494c41) /* "ALIQDRV1" */

struct driver_file {
    uint64_t magic;
    uint64_t created; /* ns of the wall clock; tells two files apart (fstat needs a newer glibc) */
    _Atomic uint32_t states;
    _Atomic uint32_t loads;
    _Atomic uint32_t current; /* the valid version, modulo 2; the other one is written first */
    uint32_t unused;
    char versions[2][DRIVER_VERSION_LENGTH]; /* empty: that of the build */
};

_Static_assert(sizeof(struct driver_file) == 32 + 2 * DRIVER_VERSION_LENGTH, "the file's layout is fixed");

/* Whether the file is valid; if so, sets created. */
static bool is_valid(int fd, uint64_t *created) {
    uint64_t header[2];
    if (lseek(fd, 0, SEEK_END) != (off_t)sizeof(struct driver_file) ||
        pread(fd, header, sizeof header, 0) != (ssize_t)sizeof header || header[0] != MAGIC) {
        return false;
    }
    *created = header[1];
    return true;
}

/* Writes a new state into the file. The magic number comes last and makes it valid. */
static bool write_new(int fd) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct driver_file fresh = {.created = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec};
    const uint64_t magic = MAGIC;
    return ftruncate(fd, 0) == 0 && pwrite(fd, &fresh, sizeof fresh, 0) == (ssize_t)sizeof fresh &&
           fchmod(fd, 0644) == 0 && pwrite(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic;
}

static int open_file(const char *directory, int flags) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/" GPU_DRIVER_FILE, directory);
    if (length > 0 && (size_t)length < sizeof path) {
        return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    }
    errno = ENAMETOOLONG;
    return -1;
}

struct driver_file *driver_open(const char *directory, char error[DRIVER_ERROR_LENGTH]) {
    int fd = open_file(directory, O_RDWR | O_CREAT);
    struct driver_file *file = MAP_FAILED;
    /* The file is repaired in place and never replaced, because other processes have it mapped. */
    uint64_t created;
    if (fd >= 0 && (is_valid(fd, &created) || write_new(fd))) {
        file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (file == MAP_FAILED) {
        snprintf(error, DRIVER_ERROR_LENGTH, "cannot open the driver's state in %.300s: %s", directory,
                 strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return file != MAP_FAILED ? file : NULL;
}

void driver_close(struct driver_file *file) {
    munmap(file, sizeof *file);
}

const struct driver_file *driver_map(const char *directory) {
    static const struct driver_file *mapped;
    uint64_t created;
    int fd = open_file(directory, O_RDONLY);
    if (fd < 0) {
        return NULL;
    }
    bool valid = is_valid(fd, &created);
    if (valid && (mapped == NULL || mapped->created != created)) {
        const struct driver_file *file = mmap(NULL, sizeof *file, PROT_READ, MAP_SHARED, fd, 0);
        mapped = file != MAP_FAILED ? file : NULL;
    }
    close(fd);
    return valid ? mapped : NULL;
}

struct driver_state driver_state(const struct driver_file *file) {
    struct driver_state state = {.version = FAKE_DRIVER_VERSION};
    if (file == NULL) {
        return state;
    }
    state.states = atomic_load(&file->states);
    state.loads = atomic_load(&file->loads);
    const char *version = file->versions[atomic_load(&file->current) % 2];
    if (version[0] != '\0') {
        snprintf(state.version, sizeof state.version, "%.*s", DRIVER_VERSION_LENGTH - 1, version);
    }
    return state;
}

void driver_set(struct driver_file *file, uint32_t state, bool on) {
    uint32_t before = on ? atomic_fetch_or(&file->states, state) : atomic_fetch_and(&file->states, ~state);
    if (state == DRIVER_UNLOADED && !on && (before & DRIVER_UNLOADED) != 0) {
        atomic_fetch_add(&file->loads, 1);
    }
}

void driver_set_version(struct driver_file *file, const char *version) {
    uint32_t next = atomic_load(&file->current) + 1;
    char *text = file->versions[next % 2];
    memset(text, 0, DRIVER_VERSION_LENGTH);
    snprintf(text, DRIVER_VERSION_LENGTH, "%s", version);
    atomic_store(&file->current, next);
}
