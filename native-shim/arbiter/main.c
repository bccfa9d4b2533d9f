/*
 * The arbiter as a program, which the node agent starts: aliquot-arbiter REGIONS AGENTS [FLOOR]
 *
 * REGIONS and AGENTS are folders with a file per container, named as its slot: its region and its agent's file. On the
 * standard input the node agent writes lists: a line per container and GPU, and a line with a point, which ends the
 * list. A list replaces the one before.
 *
 *     SLOT UUID CORES POLICY PRIORITY NVML
 *     slot-011 GPU-8f6e8f0c-0101-4a5b-9c3d-010101010101 30 elastic normal 41.5
 *
 * CORES are percent; POLICY is fixed, elastic or none, PRIORITY high, normal or low; NVML is the container's GPU time
 * in percent by NVML, or - if it is unknown. A malformed line is reported on the standard error and skipped. The end of
 * the input ends the program.
 *
 * Every 20 ms the program reads the GPU's entry of each region, and writes its words into the agent's files. A
 * container can write anything into its region, or truncate it, so the program never maps it, and compares the GPU's
 * UUID each time. No call here waits for a container: one with a lease on its region, or whose region is not in memory
 * or locked by a write of its own, has no work. The program finds a GPU in an agent's file by its UUID; it adds none.
 *
 * While a container of low priority has work on a GPU, the program also looks every millisecond at the containers of
 * high priority there, and takes the former's turn away. FLOOR is the percent of the GPU that such a one keeps over
 * 10 s (0 to 100, default 5).
 */
#include "aliquot/agent.h"
#include "aliquot/region.h"
#include "arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ENTRIES = 1024, SLOT_LENGTH = 64, LINE_LENGTH = 512 };

#define ACTIVE_NS INT64_C(40000000)           /* for which a launch, a wait or work in flight counts as active */
#define HELD_BACK_NS INT64_C(200000000)       /* for which a wait counts as recent */
#define CHECK_NS INT64_C(1000000000)          /* between checks whether a file was replaced */
#define LOOK_NS INT64_C(1000000)              /* between looks at containers of high priority */
#define IN_FLIGHT_MAX_NS UINT64_C(3000000000) /* the shim says at most 2 s, from a later time */
#define LONG_LAUNCH_NS UINT64_C(1000000000)   /* for which a launch that is too long for a turn counts */
#define CONFIRM_NS INT64_C(500000000)         /* shortest time after which NVML's figure is compared again */

/* A number that differs by more than its threshold is written at once, another one after the refresh time. */
#define GRANT_THRESHOLD 2000 /* millionths */
#define GRANT_REFRESH_MS 1000
#define ACTIVE_REFRESH_MS 40
#define BORROWED_REFRESH_MS 80
#define TURN_REFRESH_MS 36 /* every second period */

/* A file of a container. */
struct container_file {
    int fd;
    int index; /* of the GPU's entry; -1: not found */
    int64_t checked_at;
    ino_t inode;
};

/* A container and a GPU, and what was last read and written. */
struct entry {
    char slot[SLOT_LENGTH];
    uint8_t uuid[16];
    struct arbiter_container law;
    struct container_file region, agent;
    uint64_t gpu_time, busy, throttled;
    int64_t observed_at, waited_at, confirmed_at, looked_at; /* 0: never */
    uint64_t grant, active, borrowed, turn;                  /* words */
};

static int regions, agents;          /* the folders */
static uint32_t floor_percent = 5;   /* FLOOR */
static bool looking;                 /* on a GPU, a container of high priority may interrupt one of low priority */
static struct entry *entries, *list; /* by GPU, then by slot; the list that is being read */
static size_t count, list_count;
static struct arbiter_container gpu[MAX_ENTRIES]; /* the containers of one GPU */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void sleep_until(int64_t time) {
    struct timespec until = {.tv_sec = time / 1000000000, .tv_nsec = time % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

/* ---- files ---- */

static void close_file(struct container_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
    }
    *file = (struct container_file){.fd = -1, .index = -1};
}

/* Opens a container's file, or opens it again if another container has got the slot. False: there is none. */
static bool ensure_open(struct container_file *file, int folder, const char *slot, int flags, int64_t time) {
    struct stat status;
    if (file->checked_at != 0 && time - file->checked_at < CHECK_NS) {
        return file->fd >= 0;
    }
    if (fstatat(folder, slot, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
        close_file(file);
    } else if (file->fd < 0 || status.st_ino != file->inode) {
        close_file(file);
        file->fd = openat(folder, slot, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        file->inode = status.st_ino;
    }
    file->checked_at = time;
    return file->fd >= 0;
}

/* Reads an entry of the region. False: the region is too short, or the call would wait. A program that has work keeps
   the entry in memory, because it has it mapped. */
static bool read_region(const struct entry *entry, int index, struct aliquot_device *device) {
    off_t at = (off_t)(offsetof(struct aliquot_region, device) + (size_t)index * sizeof *device);
    struct iovec part = {.iov_base = device, .iov_len = sizeof *device};
    ssize_t got = preadv2(entry->region.fd, &part, 1, at, RWF_NOWAIT);
    if (got < 0 && errno == EOPNOTSUPP) { /* tmpfs, overlayfs */
        got = pread(entry->region.fd, device, sizeof *device, at);
    }
    return got == sizeof *device;
}

/* Reads the GPU's entry of the region; false if the region does not have one. */
static bool read_device(struct entry *entry, struct aliquot_device *device, int64_t time) {
    static const uint8_t unused[16];
    struct container_file *file = &entry->region;
    if (!ensure_open(file, regions, entry->slot, O_RDONLY, time)) {
        return false;
    }
    if (file->index >= 0 && read_region(entry, file->index, device) &&
        memcmp(device->uuid, entry->uuid, sizeof unused) == 0) {
        return true;
    }
    file->index = -1;
    for (int i = 0; i < ALIQUOT_REGION_DEVICES; i++) {
        if (!read_region(entry, i, device) || memcmp(device->uuid, unused, sizeof unused) == 0) {
            return false;
        }
        if (memcmp(device->uuid, entry->uuid, sizeof unused) == 0) {
            file->index = i;
            return true;
        }
    }
    return false;
}

static bool find_agent_entry(struct entry *entry, int64_t time) {
    struct aliquot_agent agent;
    int64_t checked_at = entry->agent.checked_at;
    if (!ensure_open(&entry->agent, agents, entry->slot, O_RDWR, time)) {
        return false;
    }
    bool look = entry->agent.index < 0 && entry->agent.checked_at != checked_at;
    if (look && pread(entry->agent.fd, &agent, sizeof agent, 0) == sizeof agent) {
        for (int i = 0; i < ALIQUOT_AGENT_DEVICES && entry->agent.index < 0; i++) {
            entry->agent.index = memcmp(agent.device[i].uuid, entry->uuid, sizeof entry->uuid) == 0 ? i : -1;
        }
    }
    return entry->agent.index >= 0;
}

/* Writes one word of the GPU's entry of the agent's file, if it has to be written. */
static void write_number(struct entry *entry, size_t offset, uint64_t *written, int64_t time, uint32_t number,
                         uint32_t threshold, uint64_t refresh_ms) {
    uint32_t before = ALIQUOT_GRANT_SHARE(*written);
    uint64_t ms = (uint64_t)time / 1000000;
    bool differs = number > before + threshold || before > number + threshold;
    if (!differs && ms - ALIQUOT_GRANT_MS(*written) < refresh_ms) {
        return;
    }
    uint64_t word = ALIQUOT_GRANT(ms, number);
    off_t at = (off_t)(offsetof(struct aliquot_agent, device) +
                       (size_t)entry->agent.index * sizeof(struct aliquot_agent_device) + offset);
    if (pwrite(entry->agent.fd, &word, sizeof word, at) == sizeof word) {
        *written = word;
    }
}

/* ---- a period ---- */

static bool has_work(const struct aliquot_device *device, int64_t time) {
    uint64_t flying = device->in_flight - (uint64_t)time;
    return flying > 0 && flying <= IN_FLIGHT_MAX_NS;
}

/* Whether it works is seen by its times alone: those of another clock, such as of a time namespace that the shim did
   not recognize, show no work, so that such a container has no turn and no one waits for it. */
static void observe(struct entry *entry, int64_t time) {
    struct arbiter_container *law = &entry->law;
    struct aliquot_device device;
    if (!read_device(entry, &device, time)) {
        law->active = law->held_back = false;
        law->used = law->busy = 0;
        entry->observed_at = 0;
        return;
    }
    bool first = entry->observed_at == 0;
    double elapsed = first ? 1e18 : (double)(time - entry->observed_at);
    law->used = (double)(device.gpu_time - entry->gpu_time) / elapsed;
    law->busy = (double)(device.busy - entry->busy + device.throttled - entry->throttled) / elapsed;
    entry->waited_at = !first && device.throttled != entry->throttled ? time : entry->waited_at;
    entry->gpu_time = device.gpu_time;
    entry->busy = device.busy;
    entry->throttled = device.throttled;
    entry->observed_at = time;
    bool launched = device.wanted != 0 && (uint64_t)time - device.wanted < (uint64_t)ACTIVE_NS;
    bool flying = (uint64_t)time - device.in_flight < (uint64_t)ACTIVE_NS || has_work(&device, time);
    law->long_launches = device.long_launch != 0 && (uint64_t)time - device.long_launch < LONG_LAUNCH_NS;
    law->queued = device.queued != 0 && (uint64_t)time - device.queued < 2 * (uint64_t)ARBITER_PERIOD_NS;
    law->active = launched || flying;
    law->held_back = law->active && entry->waited_at != 0 && time - entry->waited_at < HELD_BACK_NS;
}

static uint32_t units(double part) {
    return (uint32_t)(part * ALIQUOT_ROUND_UNITS + 0.5);
}

static void write_turn(struct entry *entry, int64_t time, bool gives_way) {
    struct arbiter_container *law = &entry->law;
    double seconds = entry->looked_at == 0 ? 0 : (double)(time - entry->looked_at) / 1e9;
    double length = arbiter_turn(law, gives_way, seconds);
    uint32_t begins = units(law->turn_begins), ends = units(law->turn_begins + length);
    entry->looked_at = time;
    uint32_t turn = ALIQUOT_TURN_WAITS | ALIQUOT_TURN(begins % ALIQUOT_ROUND_UNITS, ends - begins);
    uint32_t number = law->waits && arbiter_is_limited(law) ? turn : 0;
    if ((number != 0 || ALIQUOT_GRANT_SHARE(entry->turn) != 0) && find_agent_entry(entry, time)) {
        write_number(entry, offsetof(struct aliquot_agent_device, turn), &entry->turn, time, number, 0,
                     TURN_REFRESH_MS);
    }
}

/* others: containers beside this one that have work on the GPU. */
static void write_words(struct entry *entry, int64_t time, unsigned others) {
    if (!find_agent_entry(entry, time)) {
        return;
    }
    write_number(entry, offsetof(struct aliquot_agent_device, active), &entry->active, time, others + 1, 0,
                 ACTIVE_REFRESH_MS);
    if (arbiter_is_limited(&entry->law)) { /* else a container that gets a limit would begin with no share */
        write_number(entry, offsetof(struct aliquot_agent_device, borrowed), &entry->borrowed, time,
                     (uint32_t)(entry->law.borrowed * 1e6), GRANT_THRESHOLD, BORROWED_REFRESH_MS);
        write_number(entry, offsetof(struct aliquot_agent_device, grant), &entry->grant, time,
                     (uint32_t)(entry->law.own * 1e6), GRANT_THRESHOLD, GRANT_REFRESH_MS);
    }
}

/* The shim does not count what a container without a limit launches, so its region does not say when it has work. */
static bool may_be_active(const struct arbiter_container *container) {
    return container->active || !arbiter_is_limited(container);
}

/* Writes the turns of those of low priority, which may have to give way. */
static void look(struct entry *of_gpu, size_t containers, int64_t time) {
    bool preempted = false;
    for (size_t i = 0; i < containers; i++) {
        struct entry *entry = &of_gpu[i];
        struct aliquot_device device;
        if (entry->law.priority == ARBITER_HIGH) {
            bool works = read_device(entry, &device, time) && has_work(&device, time);
            double seconds = entry->looked_at == 0 ? 0 : (double)(time - entry->looked_at) / 1e9;
            preempted |= arbiter_preempts(&entry->law, works, seconds);
            entry->looked_at = time;
        }
    }
    for (size_t i = 0; i < containers; i++) {
        if (of_gpu[i].law.priority == ARBITER_LOW) {
            write_turn(&of_gpu[i], time, of_gpu[i].law.waits && preempted);
            looking |= of_gpu[i].law.waits && of_gpu[i].law.active;
        }
    }
}

/* Divides one GPU among its containers. */
static void divide(struct entry *of_gpu, size_t containers, int64_t time) {
    unsigned active = 0;
    for (size_t i = 0; i < containers; i++) {
        observe(&of_gpu[i], time);
        active += may_be_active(&of_gpu[i].law);
        gpu[i] = of_gpu[i].law;
    }
    arbiter_divide(gpu, containers);
    for (size_t i = 0; i < containers; i++) {
        of_gpu[i].law = gpu[i];
        write_words(&of_gpu[i], time, active - may_be_active(&gpu[i]));
    }
    look(of_gpu, containers, time);
    for (size_t i = 0; i < containers; i++) {
        if (gpu[i].priority != ARBITER_LOW) {
            write_turn(&of_gpu[i], time, false);
        }
    }
}

static void for_each_gpu(void (*act)(struct entry *, size_t, int64_t), int64_t time) {
    for (size_t first = 0, next; first < count; first = next) {
        next = first + 1;
        while (next < count && memcmp(entries[next].uuid, entries[first].uuid, sizeof entries[0].uuid) == 0) {
            next++;
        }
        act(&entries[first], next - first, time);
    }
}

/* ---- the node agent's lists ---- */

static int compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int gpus = memcmp(x->uuid, y->uuid, sizeof x->uuid);
    return gpus != 0 ? gpus : strcmp(x->slot, y->slot);
}

static bool is_slot(const char *slot) {
    static const char valid[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return slot[0] != '.' && slot[strspn(slot, valid)] == 0;
}

/* Index of a word among some, which end with NULL; -1: it is none of them. */
static int index_of(const char *word, const char *const *words) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static bool parse(const char *line, struct entry *entry) {
    static const char *const policies[] = {"fixed", "elastic", "none", NULL}; /* as in enum aliquot_policy */
    static const char *const priorities[] = {"low", "normal", "high", NULL};
    char uuid[64], policy[16], priority[16], nvml[32], *end = nvml;
    unsigned cores;
    int length = 0;
    *entry = (struct entry){.region = {.fd = -1, .index = -1}, .agent = {.fd = -1, .index = -1}};
    if (sscanf(line, "%63s %63s %3u %15s %15s %31s%n", entry->slot, uuid, &cores, policy, priority, nvml, &length) !=
            6 ||
        line[length] != 0 || cores > 100) {
        return false;
    }
    int which = index_of(policy, policies), urgency = index_of(priority, priorities);
    bool unknown = strcmp(nvml, "-") == 0;
    double percent = unknown ? -100 : strtod(nvml, &end);
    bool known = !unknown && percent >= 0 && percent <= 1000 && *end == 0;
    entry->law.cores = cores / 100.0;
    entry->law.policy = (enum aliquot_policy)which;
    entry->law.priority = (enum arbiter_priority)urgency;
    entry->law.floor = floor_percent / 100.0;
    entry->law.nvml_used = known && percent > 100 ? 1 : percent / 100;
    return is_slot(entry->slot) && which >= 0 && urgency >= 0 && (known || unknown) &&
           (strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0) &&
           aliquot_uuid_parse(uuid + 4, strlen(uuid + 4), entry->uuid);
}

/* Compares NVML's figure with the work that the container has said since the last time. */
static void confirm(struct entry *entry, int64_t time) {
    double elapsed = (double)(time - entry->confirmed_at);
    if (entry->confirmed_at == 0) {
        entry->confirmed_at = time;
    } else if (elapsed >= (double)CONFIRM_NS) {
        arbiter_confirm(&entry->law, elapsed / 1e9);
        entry->confirmed_at = time;
    }
}

/* Keeps what is known of a container that was in the last list, too. */
static void take_over(struct entry *entry, struct entry *before, int64_t time) {
    struct arbiter_container law = entry->law;
    *entry = *before;
    entry->law.cores = law.cores;
    entry->law.policy = law.policy;
    entry->law.priority = law.priority;
    entry->law.nvml_used = law.nvml_used;
    entry->law.on_several_gpus = law.on_several_gpus;
    before->region.fd = before->agent.fd = -1; /* the new entry has them */
    confirm(entry, time);
}

/* A slot is of one container, which may have several GPUs. */
static void find_those_on_several_gpus(void) {
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < list_count && !list[i].law.on_several_gpus; j++) {
            list[i].law.on_several_gpus = i != j && strcmp(list[i].slot, list[j].slot) == 0;
        }
    }
}

static void replace_list(int64_t time) {
    qsort(list, list_count, sizeof list[0], compare);
    size_t kept = 0;
    find_those_on_several_gpus();
    for (size_t i = 0; i < list_count; i++) {
        if (kept > 0 && compare(&list[i], &list[kept - 1]) == 0) {
            fprintf(stderr, "aliquot-arbiter: %s is twice in the list for one GPU\n", list[i].slot);
            continue;
        }
        list[kept] = list[i];
        struct entry *before = bsearch(&list[kept], entries, count, sizeof entries[0], compare);
        if (before != NULL) {
            take_over(&list[kept], before, time);
        }
        kept++;
    }
    for (size_t i = 0; i < count; i++) {
        close_file(&entries[i].region);
        close_file(&entries[i].agent);
    }
    struct entry *old = entries;
    entries = list;
    list = old;
    count = kept;
    list_count = 0;
}

static void read_line(const char *line, int64_t time) {
    if (strcmp(line, ".") == 0) {
        replace_list(time);
    } else if (list_count == MAX_ENTRIES) {
        fprintf(stderr, "aliquot-arbiter: the list has more than %d lines\n", MAX_ENTRIES);
    } else if (parse(line, &list[list_count])) {
        list_count++;
    } else {
        fprintf(stderr,
                "aliquot-arbiter: expected SLOT UUID CORES fixed|elastic|none high|normal|low NVML, found \"%.100s\"\n",
                line);
    }
}

/* Reads what the node agent has written. False: it has ended. */
static bool read_lists(int64_t time) {
    static char line[LINE_LENGTH];
    static size_t length;
    char text[4096];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 0) > 0) {
        ssize_t got = read(STDIN_FILENO, text, sizeof text);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            return false;
        }
        for (ssize_t i = 0; i < got; i++) {
            if (text[i] == '\n') {
                line[length] = 0;
                length = 0;
                read_line(line, time);
            } else if (length < LINE_LENGTH - 1) { /* a longer line is malformed without its end, too */
                line[length++] = text[i] == 0 ? '?' : text[i];
            }
        }
    }
    return true;
}

int main(int argument_count, char **arguments) {
    struct rlimit files;
    char *end = argument_count == 4 ? arguments[3] : "";
    floor_percent = argument_count == 4 ? (uint32_t)strtoul(arguments[3], &end, 10) : floor_percent;
    bool good = (argument_count == 3 || argument_count == 4) && *end == 0 && floor_percent <= 100;
    regions = good ? open(arguments[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    agents = good ? open(arguments[2], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    entries = calloc(MAX_ENTRIES, sizeof entries[0]);
    list = calloc(MAX_ENTRIES, sizeof list[0]);
    if (regions < 0 || agents < 0 || entries == NULL || list == NULL) {
        fprintf(stderr, "usage: aliquot-arbiter REGIONS AGENTS [FLOOR]\nexpected two folders and percent, found %s\n",
                good ? strerror(errno) : "other arguments");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int64_t next = now() + ARBITER_PERIOD_NS; read_lists(now()); next += ARBITER_PERIOD_NS) {
        for (int64_t at; looking && (at = now() + LOOK_NS) < next;) {
            sleep_until(at);
            for_each_gpu(look, now());
        }
        sleep_until(next);
        int64_t time = now();
        next = time - next > ARBITER_PERIOD_NS ? time : next; /* periods that were missed are not made up for */
        looking = false;
        for_each_gpu(divide, time);
    }
    return 0;
}
