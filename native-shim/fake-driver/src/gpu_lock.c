/* The locks of a GPU's file: open-file-description locks on single bytes. */
#define _GNU_SOURCE
#include "gpu_file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

int gpu_lock_byte(int fd, int command, short type, size_t offset) {
    for (;;) {
        struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
        int answer = fcntl(fd, command, &range);
        if (answer == 0) {
            return command == F_OFD_GETLK ? range.l_type != F_UNLCK : 0;
        }
        if (errno != EINTR || command != F_OFD_SETLKW) {
            return -1;
        }
    }
}

size_t gpu_slot_offset(int slot) {
    return offsetof(struct gpu_layout, slots) + (size_t)slot * sizeof(struct slot);
}

/* F_OFD_GETLK does not report this descriptor's own lock. */
bool gpu_slot_alive(const gpu_file *gpu, int slot) {
    return gpu_lock_byte(gpu->fd, F_OFD_GETLK, F_WRLCK, gpu_slot_offset(slot)) != 0;
}

void gpu_schedule_lock(const gpu_file *gpu) {
    (void)gpu_lock_byte(gpu->fd, F_OFD_SETLKW, F_WRLCK, offsetof(struct gpu_layout, schedule));
}

void gpu_schedule_unlock(const gpu_file *gpu) {
    (void)gpu_lock_byte(gpu->fd, F_OFD_SETLK, F_UNLCK, offsetof(struct gpu_layout, schedule));
}

void gpu_reservation_lock(const gpu_file *gpu) {
    (void)gpu_lock_byte(gpu->fd, F_OFD_SETLKW, F_WRLCK, offsetof(struct gpu_layout, reservation));
}

void gpu_reservation_unlock(const gpu_file *gpu) {
    (void)gpu_lock_byte(gpu->fd, F_OFD_SETLK, F_UNLCK, offsetof(struct gpu_layout, reservation));
}
