/*
 * The reference arbiter as a program: aliquot-arbiter GPU-UUID LIMITS,REGION,AGENT,PIDS...
 *
 * Each container is one argument: its limit file, its region, its agent's file, and a file with the process IDs of its
 * processes, one per line, as in a cgroup's cgroup.procs. The program reads the regions and writes the grants into the
 * agent's files every 20 ms, and reads the processes' utilization from NVML every second. A container can write
 * anything into its region; this affects only how much the arbiter takes that container to demand.
 */
#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "arbiter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONTAINERS = 64, MAX_SAMPLES = 1024, DIVISION_NS = 20000000, DIVISIONS_PER_TRIM = 50 };

#define ACTIVE_FOR UINT64_C(40000000)   /* ns for which a launch, a wait or work in flight counts as active */
#define RECENT UINT64_C(200000000)      /* ns during which a wait counts as recent */
#define GRANT_THRESHOLD 2000            /* a share that differs by more, in millionths, is written at once */
#define GRANT_REFRESH_MS UINT64_C(1000) /* an unchanged grant is written again after this time, ... */
#define BORROWED_REFRESH_MS UINT64_C(80)
#define ACTIVE_REFRESH_MS UINT64_C(40) /* ... and an unchanged number of active containers after this */

/* As in nvml.h. */
typedef struct {
    unsigned int pid;
    unsigned long long time; /* us */
    unsigned int sm, memory, encoder, decoder;
} utilization_sample;

/* The files of a container, and what the program last read from its region and wrote to its agent's file. */
struct container_files {
    const char *limits, *region, *agent, *pids;
    int fd;
    int agent_fd;
    int agent_index;  /* of the GPU in the agent's file; -1: it has no entry yet */
    int device_index; /* of the GPU in the region; -1: the region does not have it yet */
    uint64_t gpu_time, busy, throttled, waited_at, grant, active, borrowed;
    uint64_t gpu_time_at_trim;
};

static uint8_t uuid[16];
static struct arbiter_container containers[MAX_CONTAINERS];
static struct container_files files[MAX_CONTAINERS];
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
    int fd = open(files[i].limits, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0) {
        close(fd);
    }
    if (length < 0 || !aliquot_limits_parse(text, (size_t)length, &limits, error)) {
        return; /* the last valid limits stay in force */
    }
    containers[i].cores = 0;
    containers[i].priority = ARBITER_NORMAL;
    for (size_t j = 0; j < limits.count; j++) {
        if (memcmp(limits.vgpu[j].uuid, uuid, sizeof uuid) == 0) {
            containers[i].cores = limits.vgpu[j].cores / 100.0;
            containers[i].policy = limits.vgpu[j].policy;
        }
    }
}

/* Reads the GPU's entry of the region; false if the region does not have one yet. */
static bool read_device(struct container_files *file, struct aliquot_device *device) {
    if (file->fd < 0) {
        file->fd = open(file->region, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    }
    for (int i = 0; file->fd >= 0 && file->device_index < 0 && i < ALIQUOT_REGION_DEVICES; i++) {
        off_t at = (off_t)(offsetof(struct aliquot_region, device) + (size_t)i * sizeof *device);
        if (pread(file->fd, device, sizeof *device, at) == sizeof *device &&
            memcmp(device->uuid, uuid, sizeof uuid) == 0) {
            file->device_index = i;
        }
    }
    off_t at = (off_t)(offsetof(struct aliquot_region, device) + (size_t)file->device_index * sizeof *device);
    return file->device_index >= 0 && pread(file->fd, device, sizeof *device, at) == sizeof *device;
}

static void observe(size_t i, uint64_t time) {
    struct container_files *file = &files[i];
    struct aliquot_device device;
    if (!read_device(file, &device)) {
        containers[i].active = containers[i].held_back = false;
        containers[i].used = 0;
        return;
    }
    uint64_t increase = device.gpu_time - file->gpu_time;
    containers[i].used = (double)increase / DIVISION_NS;
    containers[i].nvml_used = -1;
    containers[i].busy = (double)(device.busy - file->busy + device.throttled - file->throttled) / DIVISION_NS;
    file->busy = device.busy;
    if (device.throttled != file->throttled) {
        file->waited_at = time;
    }
    file->gpu_time = device.gpu_time;
    file->throttled = device.throttled;
    bool waited = file->waited_at != 0 && time - file->waited_at < ACTIVE_FOR;
    containers[i].active = waited || (device.wanted != 0 && time - device.wanted < ACTIVE_FOR) ||
                           (device.in_flight != 0 && (int64_t)(time - device.in_flight) < (int64_t)ACTIVE_FOR);
    containers[i].held_back = containers[i].active && file->waited_at != 0 && time - file->waited_at < RECENT;
}

/* Finds the GPU's entry in the agent's file. False: there is none. */
static bool find_agent_entry(struct container_files *file) {
    uint8_t found[16];
    if (file->agent_fd < 0) {
        file->agent_fd = open(file->agent, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    for (int i = 0; file->agent_fd >= 0 && file->agent_index < 0 && i < ALIQUOT_AGENT_DEVICES; i++) {
        off_t at = (off_t)(offsetof(struct aliquot_agent, device) + (size_t)i * sizeof(struct aliquot_agent_device));
        bool read = pread(file->agent_fd, found, sizeof found, at) == sizeof found;
        if (read && memcmp(found, uuid, sizeof uuid) == 0) {
            file->agent_index = i;
        }
    }
    return file->agent_index >= 0;
}

/* Writes one of the arbiter's words of the GPU's entry of the agent's file. */
static void write_word(const struct container_files *file, size_t offset, uint64_t word) {
    off_t at = (off_t)(offsetof(struct aliquot_agent, device) +
                       (size_t)file->agent_index * sizeof(struct aliquot_agent_device) + offset);
    if (pwrite(file->agent_fd, &word, sizeof word, at) != sizeof word) {
        fprintf(stderr, "aliquot-arbiter: cannot write %s\n", file->agent);
    }
}

/* Writes a word whose number has changed by more than the threshold, or which is older than the refresh time. */
static void write_number(const struct container_files *file, size_t offset, uint64_t *written, uint64_t ms,
                         uint32_t number, uint32_t threshold, uint64_t refresh_ms) {
    uint32_t before = ALIQUOT_GRANT_SHARE(*written);
    bool differs = number > before + threshold || before > number + threshold;
    if (differs || ms - ALIQUOT_GRANT_MS(*written) >= refresh_ms) {
        *written = ALIQUOT_GRANT(ms, number);
        write_word(file, offset, *written);
    }
}

/* active: all containers that have work. */
static void write_words(size_t i, uint64_t time, uint32_t active) {
    struct container_files *file = &files[i];
    uint64_t ms = time / 1000000;
    if (!find_agent_entry(file)) {
        return;
    }
    write_number(file, offsetof(struct aliquot_agent_device, active), &file->active, ms, active + !containers[i].active,
                 0, ACTIVE_REFRESH_MS);
    write_number(file, offsetof(struct aliquot_agent_device, borrowed), &file->borrowed, ms,
                 (uint32_t)(containers[i].borrowed * 1e6), GRANT_THRESHOLD, BORROWED_REFRESH_MS);
    write_number(file, offsetof(struct aliquot_agent_device, grant), &file->grant, ms,
                 (uint32_t)(containers[i].own * 1e6), GRANT_THRESHOLD, GRANT_REFRESH_MS);
}

static bool has_pid(const struct container_files *file, unsigned pid) {
    FILE *pids = fopen(file->pids, "re");
    unsigned found = 0;
    bool has = false;
    while (pids != NULL && !has && fscanf(pids, "%u", &found) == 1) {
        has = found == pid;
    }
    if (pids != NULL) {
        fclose(pids);
    }
    return has;
}

/* NVML also returns invalid samples (Syllo/nvtop#110). */
static bool is_valid_sample(const utilization_sample *sample, unsigned long long since) {
    return sample->sm <= 100 && sample->time > since;
}

/* What sample i adds to the utilization of a container (NULL: of all processes). The samples of one process are
   averaged. Negative if the process is not in the container. */
static double sample_share(const struct container_files *file, const utilization_sample *samples, unsigned sample_count,
                           unsigned i) {
    unsigned same_process = 0;
    for (unsigned j = 0; j < sample_count; j++) {
        same_process += samples[j].pid == samples[i].pid;
    }
    return file == NULL || has_pid(file, samples[i].pid) ? samples[i].sm / 100.0 / same_process : -1;
}

/* Utilization of a container (NULL: of all processes) by NVML's samples, as a fraction; negative without a sample. */
static double nvml_share(const struct container_files *file, const utilization_sample *samples, unsigned sample_count) {
    double sum = -1;
    for (unsigned i = 0; i < sample_count; i++) {
        double share = sample_share(file, samples, sample_count, i);
        sum = share < 0 ? sum : sum < 0 ? share : sum + share;
    }
    return sum;
}

static void trim_all(void) {
    static utilization_sample samples[MAX_SAMPLES];
    static unsigned long long since;
    unsigned returned = MAX_SAMPLES, valid = 0;
    bool success = process_utilization != NULL && process_utilization(gpu, samples, &returned, since) == 0;
    unsigned long long latest = since;
    for (unsigned i = 0; success && i < returned && i < MAX_SAMPLES; i++) {
        if (is_valid_sample(&samples[i], since)) {
            latest = samples[i].time > latest ? samples[i].time : latest;
            samples[valid++] = samples[i];
        }
    }
    since = latest;
    /* Time slices of processes do not overlap, so a sum above 1 is an artifact of sampling. */
    double total = nvml_share(NULL, samples, valid), scale = total > 1 ? 1 / total : 1;
    for (size_t i = 0; i < count; i++) {
        double accounted =
            (double)(files[i].gpu_time - files[i].gpu_time_at_trim) / ((double)DIVISION_NS * DIVISIONS_PER_TRIM);
        arbiter_trim(&containers[i], nvml_share(&files[i], samples, valid) * scale, accounted);
        files[i].gpu_time_at_trim = files[i].gpu_time;
        read_limits(i);
    }
}

static void open_nvml(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        library == NULL ? NULL : (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
    if (init == NULL || find == NULL || init() != 0 || find(name, &gpu) != 0) {
        fprintf(stderr, "aliquot-arbiter: NVML is not available or does not know the GPU; shares are not trimmed\n");
        return;
    }
    process_utilization = (int (*)(void *, utilization_sample *, unsigned *, unsigned long long))dlsym(
        library, "nvmlDeviceGetProcessUtilization");
}

int main(int argument_count, char **arguments) {
    bool valid = argument_count > 2 && strncmp(arguments[1], "GPU-", 4) == 0 &&
                 aliquot_uuid_parse(arguments[1] + 4, strlen(arguments[1] + 4), uuid);
    for (int i = 2; valid && i < argument_count; i++) {
        struct container_files *file = &files[count];
        file->limits = strtok(arguments[i], ",");
        file->region = strtok(NULL, ",");
        file->agent = strtok(NULL, ",");
        file->pids = strtok(NULL, ",");
        file->fd = file->device_index = file->agent_fd = file->agent_index = -1;
        valid = file->pids != NULL && ++count < MAX_CONTAINERS;
    }
    if (!valid) {
        fprintf(stderr, "usage: aliquot-arbiter GPU-UUID LIMITS,REGION,AGENT,PIDS...\n");
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
            observe(i, time);
            active += containers[i].active;
        }
        arbiter_divide(containers, count);
        for (size_t i = 0; i < count; i++) {
            write_words(i, time, active);
        }
        if (divisions % DIVISIONS_PER_TRIM == 0) {
            trim_all();
        }
    }
}
