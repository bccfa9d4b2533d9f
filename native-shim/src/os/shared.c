#include "os/shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define DECISION_LOCK_TIMEOUT_NS 1000000000
#define LOCK_POLL_NS 50000
#define PIN_SIZE 4096
#define CLAIM_ATTEMPTS 3 /* another process may hold the lock of a free slot briefly while it zeroes charges */

/* Guards the following, and is held while locks are probed: two threads that probe through one open file description
   could both acquire the same dead slot. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * The region is kept open by mappings only. Programs close descriptors that they did not open (daemons do), and then
 * reuse their numbers. A mapping keeps its open file description alive, and with it the description's locks (Linux
 * releases OFD locks in __fput, after the last reference). So the lock on this process's slot belongs to the
 * description behind lock_pin, a mapping that has no other purpose.
 *
 * On overlayfs a mapping refers to the file of the upper layer instead, and the lock disappears with the descriptor.
 * Then the descriptor stays open in lock_fd. If the program closes it, the next reap acquires the lock again.
 */
static struct aliquot_region *region;
static void *lock_pin;
static int lock_fd = -1; /* -1: lock_pin keeps the lock */
static bool is_file;
static char region_path[1024];
static struct aliquot_os_file region_file;
static int decision_fd = -1; /* while this process decides, which takes up to seconds: without the mutex */
static atomic_int slot = -1;

/* One thread of this process decides at a time. Acquired before the other mutex, and not for a fork. */
static pthread_mutex_t deciding = PTHREAD_MUTEX_INITIALIZER;

static bool fail_with(char *error, const char *reason) {
    snprintf(error, ALIQUOT_SHARED_ERROR, "%s", reason);
    return false;
}

static void repair_header(struct aliquot_header *header) {
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
    /* Concurrent repairs write the same constants, in any order. */
    const size_t constants = offsetof(struct aliquot_header, reserved0);
    if (memcmp(header, &right, constants) != 0) {
        memcpy(header, &right, constants);
    }
}

static bool map_file(int fd, char *error) {
    if (aliquot_os_stat_fd(fd, &region_file) != 0 || !region_file.regular) {
        return fail_with(error, "is not a regular file");
    }
    if (region_file.size < ALIQUOT_REGION_SIZE && aliquot_os_extend(fd, ALIQUOT_REGION_SIZE) != 0) {
        return fail_with(error, "is too short and cannot be extended");
    }
    region = aliquot_os_map(fd, ALIQUOT_REGION_SIZE);
    if (region == NULL) {
        return fail_with(error, "cannot be mapped");
    }
    if (region->header.magic == ALIQUOT_REGION_MAGIC && region->header.version != ALIQUOT_REGION_VERSION) {
        return fail_with(error, "has another version than this library, which needs 1");
    }
    repair_header(&region->header);
    return true;
}

static bool open_file(const char *path, const struct aliquot_os_file *expected, char *error) {
    size_t length = strlen(path);
    if (length >= sizeof region_path) {
        return fail_with(error, "has a path that is too long");
    }
    memcpy(region_path, path, length + 1);
    int fd = aliquot_os_open(path, expected, true);
    if (fd < 0) {
        return fail_with(error, errno == EACCES || errno == EPERM || errno == EROFS
                                    ? "cannot be written by this user; expected mode 0666"
                                : errno == ESTALE ? "is another file than when the program started"
                                                  : "cannot be opened");
    }
    bool mapped = map_file(fd, error);
    aliquot_os_close(fd);
    return mapped;
}

/* Opens the mapped file again, with a new open file description. -1: its path now names another file or none. */
static int reopen_region(void) {
    return is_file ? aliquot_os_open(region_path, &region_file, true) : -1;
}

static void unmap_all(void) {
    if (region != NULL) {
        aliquot_os_unmap(region, ALIQUOT_REGION_SIZE);
        region = NULL;
    }
    if (lock_pin != NULL) {
        aliquot_os_unmap(lock_pin, PIN_SIZE);
        lock_pin = NULL;
    }
    if (lock_fd >= 0 &&
        aliquot_os_is_file(lock_fd, &region_file)) { /* else the program has closed it, and perhaps reused the number */
        aliquot_os_close(lock_fd);
    }
    lock_fd = -1;
    atomic_store(&slot, -1);
}

bool aliquot_shared_open(const char *path, const struct aliquot_os_file *expected, char error[ALIQUOT_SHARED_ERROR]) {
    pthread_mutex_lock(&mutex);
    bool opened = true;
    is_file = path != NULL;
    if (is_file) {
        opened = open_file(path, expected, error);
    } else {
        region = aliquot_os_map(-1, ALIQUOT_REGION_SIZE);
        opened = region != NULL || fail_with(error, "out of memory");
    }
    if (!opened) {
        unmap_all();
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

static void store_zero(uint64_t *field) {
    __atomic_store_n(field, 0, __ATOMIC_SEQ_CST);
}

/* Zeroes what a dead process left. The totals of the GPU and the container stay. */
static void zero_charges(int process) {
    for (int device = 0; device < ALIQUOT_REGION_DEVICES; device++) {
        struct aliquot_charge *charge = &region->charge[device][process];
        store_zero(&charge->word);
        store_zero(&charge->context_bytes);
        store_zero(&charge->peak);
        store_zero(&charge->gpu_time);
        for (size_t i = 0; i < ALIQUOT_HISTORY; i++) {
            store_zero(&charge->history[i]);
        }
    }
}

/* Writes the owner of a slot. The PID comes last: while it is 0, the owner is unknown. */
static void register_owner(int process) {
    struct aliquot_process *owner = &region->process[process];
    __atomic_store_n(&owner->pid, 0, __ATOMIC_SEQ_CST);
    zero_charges(process);
    __atomic_store_n(&owner->started, aliquot_os_time(), __ATOMIC_SEQ_CST);
    __atomic_store_n(&owner->pid, aliquot_os_pid(), __ATOMIC_SEQ_CST);
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

/* Locks the first slot without a living owner, from `first` to `last`, through fd. -1: there is none. */
static int lock_slot(int fd, int first, int last) {
    for (int i = first; i <= last; i++) {
        if (aliquot_os_lock(fd, ALIQUOT_REGION_PROCESS_LOCK(i))) {
            return i;
        }
    }
    return -1;
}

/* Whether the lock on the slot exists, seen through another open file description. */
static bool is_slot_locked(int process) {
    int fd = reopen_region();
    bool locked = fd >= 0 && aliquot_os_is_locked(fd, ALIQUOT_REGION_PROCESS_LOCK(process));
    if (fd >= 0) {
        aliquot_os_close(fd);
    }
    return locked;
}

/* Locks a slot of the region by a mapping. *kept: the lock has outlived its descriptor. */
static int lock_slot_by_mapping(bool *kept) {
    int fd = reopen_region();
    int locked = fd < 0 ? -1 : lock_slot(fd, 0, ALIQUOT_REGION_PROCESSES - 1);
    lock_pin = locked < 0 ? NULL : aliquot_os_map(fd, PIN_SIZE);
    if (fd >= 0) {
        aliquot_os_close(fd);
    }
    *kept = lock_pin == NULL || is_slot_locked(locked);
    return lock_pin == NULL ? -1 : locked;
}

/* Locks the first free slot from `first` to `last` by a descriptor that stays open. -1: there is none. */
static int lock_slot_by_descriptor(int first, int last) {
    int fd = reopen_region();
    int locked = fd < 0 ? -1 : lock_slot(fd, first, last);
    if (locked >= 0) {
        lock_fd = aliquot_os_move_high(fd);
    } else if (fd >= 0) {
        aliquot_os_close(fd);
    }
    return locked;
}

static int claim_slot(void) {
    bool kept = true;
    int claimed = is_file ? lock_slot_by_mapping(&kept) : 0;
    if (!kept) {
        aliquot_os_unmap(lock_pin, PIN_SIZE);
        lock_pin = NULL;
        claimed = lock_slot_by_descriptor(0, ALIQUOT_REGION_PROCESSES - 1);
    }
    if (claimed >= 0) {
        register_owner(claimed);
        raise_high_water((uint32_t)claimed + 1); /* before the slot holds anything */
    }
    return claimed;
}

int aliquot_shared_slot_if_any(void) {
    return atomic_load_explicit(&slot, memory_order_acquire);
}

/* Requires the mutex. Unless the region could not be opened. */
static void report_full(void) {
    static bool reported;
    char line[160];
    int fd = reopen_region();
    if (fd < 0) {
        return;
    }
    aliquot_os_close(fd);
    __atomic_store_n(&region->header.process_refused_ms, (uint64_t)aliquot_os_clock() / 1000000, __ATOMIC_RELAXED);
    if (!reported) {
        reported = true;
        snprintf(line, sizeof line,
                 "aliquot: %d processes of this container hold GPU memory, as many as can; another one gets "
                 "CUDA_ERROR_OUT_OF_MEMORY\n",
                 ALIQUOT_REGION_PROCESSES);
        aliquot_os_write_stderr(line);
    }
}

int aliquot_shared_slot(void) {
    int own_slot = aliquot_shared_slot_if_any();
    if (own_slot >= 0) {
        return own_slot;
    }
    int saved = errno;
    pthread_mutex_lock(&mutex);
    own_slot = atomic_load(&slot);
    for (int round = 0; own_slot < 0 && round < CLAIM_ATTEMPTS; round++) {
        if (round > 0) {
            aliquot_os_sleep(LOCK_POLL_NS);
        }
        own_slot = claim_slot();
        atomic_store_explicit(&slot, own_slot, memory_order_release);
    }
    if (own_slot < 0) {
        report_full();
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
    return own_slot;
}

uint32_t aliquot_shared_high_water(void) {
    uint32_t high_water = __atomic_load_n(&region->header.process_high_water, __ATOMIC_SEQ_CST);
    return high_water < ALIQUOT_REGION_PROCESSES ? high_water : ALIQUOT_REGION_PROCESSES;
}

/* Acquires the lock on this process's slot again if the program has closed lock_fd, whose number is not ours then. */
static void regain_lock(int fd) {
    int own_slot = atomic_load(&slot);
    if (own_slot >= 0 && lock_fd >= 0 && !aliquot_os_is_locked(fd, ALIQUOT_REGION_PROCESS_LOCK(own_slot))) {
        lock_slot_by_descriptor(own_slot, own_slot);
    }
}

/* Uses fd, whose description holds none of this process's locks. */
static void reap_dead_slots(int fd) {
    int own_slot = atomic_load(&slot);
    int high_water = (int)aliquot_shared_high_water();
    regain_lock(fd);
    for (int i = 0; i < high_water; i++) {
        if (i != own_slot && has_charges(i) && aliquot_os_lock(fd, ALIQUOT_REGION_PROCESS_LOCK(i))) {
            zero_charges(i);
            aliquot_os_unlock(fd, ALIQUOT_REGION_PROCESS_LOCK(i));
        }
    }
}

void aliquot_shared_reap(void) {
    int saved = errno;
    pthread_mutex_lock(&mutex);
    int fd = reopen_region();
    if (fd >= 0) {
        reap_dead_slots(fd);
        aliquot_os_close(fd);
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

static size_t find_live_slots(int fd, uint16_t slots[ALIQUOT_REGION_PROCESSES]) {
    size_t count = 0;
    int high_water = (int)aliquot_shared_high_water();
    for (int i = 0; i < high_water; i++) {
        if (aliquot_os_is_locked(fd, ALIQUOT_REGION_PROCESS_LOCK(i))) {
            slots[count++] = (uint16_t)i;
        }
    }
    return count;
}

size_t aliquot_shared_live_slots(uint16_t slots[ALIQUOT_REGION_PROCESSES]) {
    int saved = errno;
    size_t count = 0;
    pthread_mutex_lock(&mutex);
    int fd = reopen_region();
    if (fd >= 0) {
        count = find_live_slots(fd, slots);
        aliquot_os_close(fd);
    } else if (atomic_load(&slot) >= 0) {
        slots[count++] = (uint16_t)atomic_load(&slot); /* other processes cannot be tested */
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
    return count;
}

void aliquot_shared_begin_decision(void) {
    int saved = errno;
    pthread_mutex_lock(&deciding);
    pthread_mutex_lock(&mutex);
    decision_fd = reopen_region();
    pthread_mutex_unlock(&mutex);
    int64_t deadline = aliquot_os_clock() + DECISION_LOCK_TIMEOUT_NS;
    while (decision_fd >= 0 && !aliquot_os_lock(decision_fd, ALIQUOT_REGION_DECISION_LOCK) &&
           aliquot_os_clock() < deadline) {
        aliquot_os_sleep(LOCK_POLL_NS);
    }
    if (decision_fd >= 0) {
        pthread_mutex_lock(&mutex);
        reap_dead_slots(decision_fd);
        pthread_mutex_unlock(&mutex);
    }
    errno = saved;
}

void aliquot_shared_end_decision(void) {
    int saved = errno;
    pthread_mutex_lock(&mutex);
    if (decision_fd >= 0) {
        aliquot_os_unlock(decision_fd, ALIQUOT_REGION_DECISION_LOCK); /* a child may have the descriptor, too */
        aliquot_os_close(decision_fd);
        decision_fd = -1;
    }
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&deciding);
    errno = saved;
}

void aliquot_shared_before_fork(void) {
    pthread_mutex_lock(&mutex);
}

void aliquot_shared_after_fork_in_parent(void) {
    pthread_mutex_unlock(&mutex);
}

void aliquot_shared_after_fork_in_child(void) {
    /* The child's mappings would keep the parent's lock alive. */
    unmap_all();
    if (decision_fd >= 0) {
        aliquot_os_close(decision_fd);
        decision_fd = -1;
    }
    deciding = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* a thread of the parent may have held it */
    pthread_mutex_unlock(&mutex);
}
