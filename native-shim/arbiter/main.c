/*
 * The reference arbiter as a program: aliquot-arbiter GPU-UUID LIMITS,REGION,PIDS...
 *
 * One argument per container: its limit file, its region, and a file with its processes' ids, one a line, as a cgroup's
 * cgroup.procs. It looks into the regions every 20 ms and writes grants, and asks NVML each second which process used
 * how much. It believes nothing that a container writes but how much that container wants.
 */
#include "aliquot/region.h"
#include "arbiter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONTAINERS = 64, MOST_SAMPLES = 1024, DIVISION_NS = 20000000, DIVISIONS_PER_TRIM = 50 };

#define LATELY UINT64_C(200000000) /* ns for which a wait or a launch counts */
#define USED_OVER 5                /* divisions over which use is averaged */
#define NEW_GRANT 2000             /* millionths by which a share must differ to be written at once */
#define GRANT_LASTS UINT64_C(1000) /* ms after which it is written again in any case */

/* As in nvml.h. */
typedef struct {
    unsigned int pid;
    unsigned long long time; /* us */
    unsigned int sm, memory, encoder, decoder;
} utilization_sample;

struct watched {
    const char *limits, *region, *pids;
    int fd;
    int place; /* of the GPU in the region; -1: not there yet */
    uint64_t gpu_time, throttled, waited_at, grant;
    uint64_t trimmed_at; /* gpu_time when it was last trimmed */
};

static uint8_t uuid[16];
static struct arbiter_container containers[MOST_CONTAINERS];
static struct watched watched[MOST_CONTAINERS];
static size_t count;
static void *gpu; /* NVML's handle */
static int (*process_utilization)(void *, utilization_sample *, unsigned *, unsigned long long);

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t time) {
    struct timespec until = {.tv_sec = (time_t)(time / 1000000000), .tv_nsec = (long)(time % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

static void read_limits(size_t i) {
    static char text[ALIQUOT_LIMITS_TEXT_MAX + 1];
    char error[ALIQUOT_LIMITS_ERROR];
    struct aliquot_limits limits;
    int fd = open(watched[i].limits, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0) {
        close(fd);
    }
    if (length < 0 || !aliquot_limits_parse(text, (size_t)length, &limits, error)) {
        return; /* as it was */
    }
    containers[i].cores = 0;
    for (size_t j = 0; j < limits.count; j++) {
        if (memcmp(limits.vgpu[j].uuid, uuid, sizeof uuid) == 0) {
            containers[i].cores = limits.vgpu[j].cores / 100.0;
            containers[i].policy = limits.vgpu[j].policy;
        }
    }
}

static bool read_device(struct watched *container, struct aliquot_device *device) {
    if (container->fd < 0) {
        container->fd = open(container->region, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    for (int i = 0; container->fd >= 0 && container->place < 0 && i < ALIQUOT_REGION_DEVICES; i++) {
        off_t at = (off_t)(offsetof(struct aliquot_region, device) + (size_t)i * sizeof *device);
        if (pread(container->fd, device, sizeof *device, at) == sizeof *device &&
            memcmp(device->uuid, uuid, sizeof uuid) == 0) {
            container->place = i;
        }
    }
    off_t at = (off_t)(offsetof(struct aliquot_region, device) + (size_t)container->place * sizeof *device);
    return container->place >= 0 && pread(container->fd, device, sizeof *device, at) == sizeof *device;
}

static void look(size_t i, uint64_t time) {
    struct watched *container = &watched[i];
    struct aliquot_device device;
    if (!read_device(container, &device)) {
        containers[i].wants = containers[i].held_back = false;
        return;
    }
    uint64_t grown = device.gpu_time - container->gpu_time;
    double used = grown > DIVISION_NS * UINT64_C(50) ? 0 : (double)grown / DIVISION_NS;
    containers[i].used += (used - containers[i].used) / USED_OVER;
    if (device.throttled != container->throttled) {
        container->waited_at = time;
    }
    container->gpu_time = device.gpu_time;
    container->throttled = device.throttled;
    containers[i].wants = device.wanted != 0 && time - device.wanted < LATELY;
    containers[i].held_back = containers[i].wants && container->waited_at != 0 && time - container->waited_at < LATELY;
}

static void write_at(const struct watched *container, size_t offset, const void *value, size_t size) {
    off_t at = (off_t)(offsetof(struct aliquot_region, device) +
                       (size_t)container->place * sizeof(struct aliquot_device) + offset);
    if (pwrite(container->fd, value, size, at) != (ssize_t)size) {
        fprintf(stderr, "aliquot-arbiter: %s can't be written\n", container->region);
    }
}

static void grant(size_t i, uint64_t time, uint32_t active) {
    struct watched *container = &watched[i];
    uint32_t share = (uint32_t)(containers[i].share * 1e6), before = ALIQUOT_GRANT_SHARE(container->grant);
    uint64_t ms = time / 1000000;
    bool differs = share > before + NEW_GRANT || before > share + NEW_GRANT;
    if (container->place < 0 || share == 0 || (!differs && ms - ALIQUOT_GRANT_MS(container->grant) < GRANT_LASTS)) {
        return;
    }
    container->grant = ALIQUOT_GRANT(ms, share);
    write_at(container, offsetof(struct aliquot_device, active), &active, sizeof active);
    write_at(container, offsetof(struct aliquot_device, grant), &container->grant, sizeof container->grant);
}

static bool has_pid(const struct watched *container, unsigned pid) {
    FILE *file = fopen(container->pids, "re");
    unsigned found = 0;
    bool has = false;
    while (file != NULL && !has && fscanf(file, "%u", &found) == 1) {
        has = found == pid;
    }
    if (file != NULL) {
        fclose(file);
    }
    return has;
}

/* Garbage comes, too (Syllo/nvtop#110). */
static bool is_sample(const utilization_sample *sample, unsigned long long since) {
    return sample->sm <= 100 && sample->time > since;
}

/* A sample's part of the GPU, if it is of one of these processes, which may have several of them; else negative. */
static double part_of(const struct watched *container, const utilization_sample *samples, unsigned got, unsigned i) {
    unsigned same = 0;
    for (unsigned j = 0; j < got; j++) {
        same += samples[j].pid == samples[i].pid;
    }
    return container == NULL || has_pid(container, samples[i].pid) ? samples[i].sm / 100.0 / same : -1;
}

/* What NVML saw of a container, or with NULL of all, since the last time; negative: nothing. */
static double seen_of(const struct watched *container, const utilization_sample *samples, unsigned got) {
    double seen = -1;
    for (unsigned i = 0; i < got; i++) {
        double part = part_of(container, samples, got, i);
        seen = part < 0 ? seen : seen < 0 ? part : seen + part;
    }
    return seen;
}

static void trim_all(void) {
    static utilization_sample samples[MOST_SAMPLES];
    static unsigned long long since;
    unsigned got = MOST_SAMPLES, kept = 0;
    bool heard = process_utilization != NULL && process_utilization(gpu, samples, &got, since) == 0;
    unsigned long long latest = since;
    for (unsigned i = 0; heard && i < got && i < MOST_SAMPLES; i++) {
        if (is_sample(&samples[i], since)) {
            latest = samples[i].time > latest ? samples[i].time : latest;
            samples[kept++] = samples[i];
        }
    }
    since = latest;
    double all = seen_of(NULL, samples, kept), scale = all > 1 ? 1 / all : 1; /* processes' turns don't overlap */
    for (size_t i = 0; i < count; i++) {
        double booked =
            (double)(watched[i].gpu_time - watched[i].trimmed_at) / ((double)DIVISION_NS * DIVISIONS_PER_TRIM);
        arbiter_trim(&containers[i], seen_of(&watched[i], samples, kept) * scale, booked);
        watched[i].trimmed_at = watched[i].gpu_time;
        read_limits(i);
    }
}

static void open_nvml(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        library == NULL ? NULL : (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
    if (init == NULL || find == NULL || init() != 0 || find(name, &gpu) != 0) {
        fprintf(stderr, "aliquot-arbiter: no NVML, or no such GPU: shares are not trimmed\n");
        return;
    }
    process_utilization = (int (*)(void *, utilization_sample *, unsigned *, unsigned long long))dlsym(
        library, "nvmlDeviceGetProcessUtilization");
}

int main(int argument_count, char **arguments) {
    bool known = argument_count > 2 && strncmp(arguments[1], "GPU-", 4) == 0 &&
                 aliquot_uuid_parse(arguments[1] + 4, strlen(arguments[1] + 4), uuid);
    for (int i = 2; known && i < argument_count; i++) {
        struct watched *container = &watched[count];
        container->limits = strtok(arguments[i], ",");
        container->region = strtok(NULL, ",");
        container->pids = strtok(NULL, ",");
        container->fd = container->place = -1;
        known = container->pids != NULL && ++count < MOST_CONTAINERS;
    }
    if (!known) {
        fprintf(stderr, "usage: aliquot-arbiter GPU-UUID LIMITS,REGION,PIDS...\n");
        return 2;
    }
    open_nvml(arguments[1]);
    for (size_t i = 0; i < count; i++) {
        read_limits(i);
    }
    uint64_t time = now();
    for (unsigned divisions = 1;; divisions++) {
        uint32_t active = 0;
        sleep_until(time += DIVISION_NS);
        for (size_t i = 0; i < count; i++) {
            look(i, time);
            active += containers[i].wants;
        }
        arbiter_divide(containers, count);
        for (size_t i = 0; i < count; i++) {
            grant(i, time, active);
        }
        if (divisions % DIVISIONS_PER_TRIM == 0) {
            trim_all();
        }
    }
}
