/* Preloaded into a program: records by how many us each sleep until a time ended late. */
#include "late_sleep.h"

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *rest) {
    static uint32_t *late_us;
    if (late_us == NULL) {
        late_us = mmap(NULL, LATE_SLEEP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, LATE_SLEEP_FILE, 0);
    }
    long result = syscall(SYS_clock_nanosleep, clock, flags, until, rest);
    struct timespec now;
    clock_gettime(clock, &now);
    int64_t late = (now.tv_sec - until->tv_sec) * 1000000 + (now.tv_nsec - until->tv_nsec) / 1000;
    if (late_us != MAP_FAILED && late_us[0] < LATE_SLEEP_SIZE / sizeof late_us[0] - 1) {
        late_us[++late_us[0]] = late > 0 ? (uint32_t)late : 0;
    }
    return result == 0 ? 0 : -1;
}
