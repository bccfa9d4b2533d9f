#define _GNU_SOURCE
#include "cuda_shareable.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* From <linux/memfd.h> and <linux/fcntl.h>; the C library's headers may be older. */
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#define MFD_ALLOW_SEALING 2u
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#endif

#define SHAREABLE_MAGIC UINT64_C(0x314d454d51494c41) /* "ALIQMEM1" */

struct shareable_header {
    uint64_t magic;
    uint64_t kind;
    uint64_t id;
    char uuid[48]; /* of the GPU */
};

int shareable_create(enum shareable_kind kind, const struct device *device, size_t bytes) {
    static uint64_t last_id;
    struct timespec now;
    /* memfd_create() needs glibc 2.27. */
    int fd = (int)syscall(SYS_memfd_create, SHAREABLE_FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct shareable_header header = {.magic = SHAREABLE_MAGIC, .kind = kind};
    header.id =
        ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) ^ (uint64_t)getpid() << 40 ^ ++last_id << 32;
    if (device != NULL) {
        memcpy(header.uuid, device->identity->uuid, sizeof header.uuid);
    }
    if (pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header && shareable_grow(fd, bytes) &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
        return fd;
    }
    close(fd);
    return -1;
}

bool shareable_grow(int fd, size_t bytes) {
    return ftruncate(fd, SHAREABLE_DATA_OFFSET + (off_t)bytes) == 0;
}

void shareable_punch_hole(int fd, off_t offset, size_t bytes) {
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
}

static bool read_header(int fd, struct shareable_header *header) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
           pread(fd, header, sizeof *header, 0) == (ssize_t)sizeof *header && header->magic == SHAREABLE_MAGIC &&
           memchr(header->uuid, '\0', sizeof header->uuid) != NULL;
}

int shareable_open(int fd, enum shareable_kind kind, struct device **device, size_t *bytes, uint64_t *id) {
    struct shareable_header header;
    *device = NULL;
    off_t end = read_header(fd, &header) ? lseek(fd, 0, SEEK_END) : -1;
    if (end < SHAREABLE_DATA_OFFSET || header.kind != (uint64_t)kind) {
        return -1;
    }
    for (size_t i = 0; i < device_count() && *device == NULL; i++) {
        if (strcmp(device_from_ordinal((CUdevice)i)->identity->uuid, header.uuid) == 0) {
            *device = device_from_ordinal((CUdevice)i);
        }
    }
    *bytes = (size_t)(end - SHAREABLE_DATA_OFFSET);
    *id = header.id;
    return *device != NULL ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

void *shareable_map(int fd, off_t offset, size_t bytes) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (start == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(start, bytes, MADV_DONTFORK);
    return start;
}

uint64_t shareable_id(int fd) {
    struct shareable_header header;
    return read_header(fd, &header) ? header.id : 0;
}
