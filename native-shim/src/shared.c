#include "shared.h"

#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define DECISION_WAIT 200000000 /* ns */
#define DECISION_POLL 50000     /* ns */
#define CLAIM_ROUNDS 3          /* a reaper may hold a free slot's lock for a moment */

/* Guards everything below, and is held by whoever probes locks: two threads that probe through one open file
   description would both be given the same dead slot. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct aliquot_region *region;
static bool is_file;
/* Two open file descriptions, so that a probe conflicts with the lock on our own slot too. */
static int owner_fd = -1; /* holds our slot's lock as long as we live */
static int probe_fd = -1;
static atomic_int slot = -1;

static bool refuse(char *error, const char *reason) {
    snprintf(error, ALIQUOT_SHARED_ERROR, "%s", reason);
    return false;
}

static void put_right_header(struct aliquot_header *header) {
    const struct aliquot_header right = {
        .magic = ALIQUOT_REGION_MAGIC,
        .version = ALIQUOT_REGION_VERSION,
        .header_size = sizeof(struct aliquot_header),
        .total_size = ALIQUOT_REGION_SIZE,
        .device_count = ALIQUOT_REGION_DEVICES,
        .process_count = ALIQUOT_REGION_PROCESSES,
        .device_size = sizeof(struct aliquot_device),
        .process_size = sizeof(struct aliquot_process),
        .charge_size = sizeof(struct aliquot_charge),
    };
    /* Others may be doing the same: all write the same constants, and nothing below depends on their order. */
    const size_t constants = offsetof(struct aliquot_header, reserved0);
    if (memcmp(header, &right, constants) != 0) {
        memcpy(header, &right, constants);
    }
}

static bool open_file(const char *path, char *error) {
    struct aliquot_os_file file;
    owner_fd = aliquot_os_open(path, true);
    probe_fd = aliquot_os_open(path, true);
    if (owner_fd < 0 || probe_fd < 0) {
        return refuse(error, errno == EACCES || errno == EPERM || errno == EROFS
                                 ? "can't be written by this user; expected mode 0666"
                                 : "can't be opened");
    }
    if (aliquot_os_stat_fd(owner_fd, &file) != 0 || !file.regular) {
        return refuse(error, "is not a regular file");
    }
    if (file.size < ALIQUOT_REGION_SIZE && aliquot_os_extend(owner_fd, ALIQUOT_REGION_SIZE) != 0) {
        return refuse(error, "is too short and can't be extended");
    }
    region = aliquot_os_map(owner_fd, ALIQUOT_REGION_SIZE);
    if (region == NULL) {
        return refuse(error, "can't be mapped");
    }
    if (region->header.magic == ALIQUOT_REGION_MAGIC && region->header.version != ALIQUOT_REGION_VERSION) {
        return refuse(error, "has another version than this library's, which is 1");
    }
    put_right_header(&region->header);
    return true;
}

static void close_all(void) {
    if (region != NULL) {
        aliquot_os_unmap(region, ALIQUOT_REGION_SIZE);
        region = NULL;
    }
    if (owner_fd >= 0) {
        aliquot_os_close(owner_fd);
        owner_fd = -1;
    }
    if (probe_fd >= 0) {
        aliquot_os_close(probe_fd);
        probe_fd = -1;
    }
    atomic_store(&slot, -1);
}

bool aliquot_shared_open(const char *path, char error[ALIQUOT_SHARED_ERROR]) {
    pthread_mutex_lock(&mutex);
    bool opened = true;
    is_file = path != NULL;
    if (is_file) {
        opened = open_file(path, error);
    } else {
        region = aliquot_os_map(-1, ALIQUOT_REGION_SIZE);
        opened = region != NULL || refuse(error, "there is no memory for it");
    }
    if (!opened) {
        close_all();
    }
    pthread_mutex_unlock(&mutex);
    return opened;
}

struct aliquot_region *aliquot_shared_region(void) {
    return region;
}

static bool claim_half(uint64_t *half, uint64_t wanted) {
    uint64_t found = 0;
    return __atomic_compare_exchange_n(half, &found, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
           found == wanted;
}

int aliquot_shared_device(const uint8_t uuid[16]) {
    uint64_t half[2];
    memcpy(half, uuid, sizeof half);
    if (half[0] == 0 || half[1] == 0) {
        return -1;
    }
    for (int i = 0; i < ALIQUOT_REGION_DEVICES; i++) {
        struct aliquot_device *device = &region->device[i];
        if (claim_half(&device->uuid_half[0], half[0]) && claim_half(&device->uuid_half[1], half[1])) {
            return i;
        }
    }
    return -1;
}

static void zero_charges(int process) {
    for (int device = 0; device < ALIQUOT_REGION_DEVICES; device++) {
        __atomic_store_n(&region->charge[device][process].word, 0, __ATOMIC_SEQ_CST);
    }
}

static bool has_charges(int process) {
    uint64_t any = 0;
    for (int device = 0; device < ALIQUOT_REGION_DEVICES; device++) {
        any |= __atomic_load_n(&region->charge[device][process].word, __ATOMIC_RELAXED);
    }
    return any != 0;
}

static void raise_high_water(uint32_t wanted) {
    uint32_t found = __atomic_load_n(&region->header.process_high_water, __ATOMIC_SEQ_CST);
    while (found < wanted && !__atomic_compare_exchange_n(&region->header.process_high_water, &found, wanted, false,
                                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static int claim_slot(void) {
    for (int i = 0; i < ALIQUOT_REGION_PROCESSES; i++) {
        if (!is_file || aliquot_os_lock(owner_fd, ALIQUOT_REGION_PROCESS_LOCK(i))) {
            zero_charges(i);
            raise_high_water((uint32_t)i + 1); /* before there is anything to see in it */
            return i;
        }
    }
    return -1;
}

int aliquot_shared_slot_if_any(void) {
    return atomic_load_explicit(&slot, memory_order_acquire);
}

int aliquot_shared_slot(void) {
    int mine = aliquot_shared_slot_if_any();
    if (mine >= 0) {
        return mine;
    }
    int saved = errno;
    pthread_mutex_lock(&mutex);
    mine = atomic_load(&slot);
    for (int round = 0; mine < 0 && round < CLAIM_ROUNDS; round++) {
        if (round > 0) {
            aliquot_os_sleep(DECISION_POLL);
        }
        mine = claim_slot();
        atomic_store_explicit(&slot, mine, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
    return mine;
}

uint32_t aliquot_shared_high_water(void) {
    uint32_t high_water = __atomic_load_n(&region->header.process_high_water, __ATOMIC_SEQ_CST);
    return high_water < ALIQUOT_REGION_PROCESSES ? high_water : ALIQUOT_REGION_PROCESSES;
}

static void reap(void) {
    int mine = atomic_load(&slot);
    int high_water = (int)aliquot_shared_high_water();
    for (int i = 0; is_file && i < high_water; i++) {
        if (i != mine && has_charges(i) && aliquot_os_lock(probe_fd, ALIQUOT_REGION_PROCESS_LOCK(i))) {
            zero_charges(i);
            aliquot_os_unlock(probe_fd, ALIQUOT_REGION_PROCESS_LOCK(i));
        }
    }
}

void aliquot_shared_reap(void) {
    int saved = errno;
    pthread_mutex_lock(&mutex);
    reap();
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

bool aliquot_shared_decide_begin(void) {
    int saved = errno;
    pthread_mutex_lock(&mutex);
    bool begun = !is_file;
    int64_t deadline = aliquot_os_clock() + DECISION_WAIT;
    while (is_file && !(begun = aliquot_os_lock(probe_fd, ALIQUOT_REGION_DECISION_LOCK)) &&
           aliquot_os_clock() < deadline) {
        aliquot_os_sleep(DECISION_POLL);
    }
    reap();
    errno = saved;
    return begun;
}

void aliquot_shared_decide_end(bool begun) {
    int saved = errno;
    if (begun && is_file) {
        aliquot_os_unlock(probe_fd, ALIQUOT_REGION_DECISION_LOCK);
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

void aliquot_shared_before_fork(void) {
    pthread_mutex_lock(&mutex);
}

void aliquot_shared_after_fork_in_parent(void) {
    pthread_mutex_unlock(&mutex);
}

void aliquot_shared_after_fork_in_child(void) {
    /* Closing drops no lock of the parent's, whose descriptors refer to the same open file descriptions. */
    close_all();
    pthread_mutex_unlock(&mutex);
}
