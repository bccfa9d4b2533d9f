#include "account.h"

#include "os.h"
#include "shared.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define TRIES 3
#define BACK_OFF 20000          /* ns, doubled from try to try */
#define SETTLING_WAIT 500000000 /* ns: how long to wait, before a refusal, for others to decide */
#define SETTLING_POLL 20000     /* ns */

struct device {
    /* What this process holds, and is reserving. Private, so that nothing written into the region can make a process
       hold more than the limit by itself. */
    _Alignas(64) _Atomic uint64_t own;
    _Alignas(64) _Atomic uint64_t limit;
    struct aliquot_charge *charges; /* in the region, by process slot */
    struct aliquot_device *region;
    atomic_uint cores, policy;
    uint8_t uuid[16];
};

static struct device devices[ALIQUOT_LIMITS_MOST_VGPUS];
static atomic_int device_count;

static int find(const uint8_t uuid[16]) {
    int count = atomic_load_explicit(&device_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        if (memcmp(devices[i].uuid, uuid, sizeof devices[i].uuid) == 0) {
            return i;
        }
    }
    return -1;
}

static void take_over(struct device *device, const struct aliquot_vgpu *vgpu) {
    atomic_store(&device->limit, vgpu->memory);
    atomic_store(&device->cores, vgpu->cores);
    atomic_store(&device->policy, (unsigned)vgpu->policy);
}

static bool add(const struct aliquot_vgpu *vgpu, char *error) {
    int place = aliquot_shared_device(vgpu->uuid);
    int count = atomic_load(&device_count);
    if (place < 0 || count == ALIQUOT_LIMITS_MOST_VGPUS) {
        snprintf(error, ALIQUOT_LIMITS_ERROR, "a GPU has no place in the state file, which has room for %d",
                 ALIQUOT_REGION_DEVICES);
        return false;
    }
    struct device *device = &devices[count];
    memcpy(device->uuid, vgpu->uuid, sizeof device->uuid);
    device->region = &aliquot_shared_region()->device[place];
    device->charges = aliquot_shared_region()->charge[place];
    atomic_store(&device->own, 0);
    take_over(device, vgpu);
    atomic_store_explicit(&device_count, count + 1, memory_order_release);
    return true;
}

bool aliquot_account_limits(const struct aliquot_limits *limits, char error[ALIQUOT_LIMITS_ERROR]) {
    for (size_t i = 0; i < limits->count; i++) {
        int known = find(limits->vgpu[i].uuid);
        if (known >= 0) {
            take_over(&devices[known], &limits->vgpu[i]);
        } else if (!add(&limits->vgpu[i], error)) {
            return false;
        }
    }
    int count = atomic_load(&device_count);
    for (int device = 0; device < count; device++) {
        bool named = false;
        for (size_t i = 0; i < limits->count; i++) {
            named |= memcmp(devices[device].uuid, limits->vgpu[i].uuid, sizeof devices[device].uuid) == 0;
        }
        if (!named) {
            atomic_store(&devices[device].limit, 0);
        }
    }
    return true;
}

int aliquot_account_device(const uint8_t uuid[16]) {
    return find(uuid);
}

struct aliquot_share aliquot_account_vgpu(int number) {
    struct device *device = &devices[number];
    return (struct aliquot_share){
        .cores = atomic_load_explicit(&device->cores, memory_order_relaxed),
        .policy = (enum aliquot_policy)atomic_load_explicit(&device->policy, memory_order_relaxed),
        .region = device->region,
        .charges = device->charges,
    };
}

uint64_t aliquot_account_limit(int device) {
    return atomic_load_explicit(&devices[device].limit, memory_order_relaxed);
}

struct sum {
    uint64_t bytes;
    uint64_t undecided; /* threads */
};

#define NOBODY (-1)

/* Of all process slots but one. No overflow: 512 times 52 bits. */
static struct sum sum_without(const struct device *device, int slot) {
    struct sum sum = {0, 0};
    int high_water = (int)aliquot_shared_high_water();
    for (int i = 0; i < high_water; i++) {
        if (i != slot) {
            uint64_t word = __atomic_load_n(&device->charges[i].word, __ATOMIC_SEQ_CST);
            sum.bytes += word & ALIQUOT_CHARGE_BYTES;
            sum.undecided += word / ALIQUOT_CHARGE_UNDECIDED;
        }
    }
    return sum;
}

uint64_t aliquot_account_used(int device) {
    int mine = aliquot_shared_slot_if_any();
    return atomic_load(&devices[device].own) + sum_without(&devices[device], mine).bytes;
}

static bool try_reserve(struct device *device, int mine, uint64_t bytes) {
    uint64_t *word = &device->charges[mine].word;
    uint64_t own = atomic_fetch_add(&device->own, bytes) + bytes;
    __atomic_fetch_add(word, bytes + ALIQUOT_CHARGE_UNDECIDED, __ATOMIC_SEQ_CST);
    if (own + sum_without(device, mine).bytes <= atomic_load_explicit(&device->limit, memory_order_relaxed)) {
        __atomic_fetch_sub(word, ALIQUOT_CHARGE_UNDECIDED, __ATOMIC_SEQ_CST);
        return true;
    }
    __atomic_fetch_sub(word, bytes + ALIQUOT_CHARGE_UNDECIDED, __ATOMIC_SEQ_CST);
    atomic_fetch_sub(&device->own, bytes);
    return false;
}

/* Whether the words are what everybody has decided to keep. Read twice: a charge that moves from a word not read yet to
   one already read, or back, would be missed or counted twice. Our own word too is read here and not own, since only in
   the word bytes and undecided threads change together. */
static bool is_settled(const struct device *device, uint64_t *bytes) {
    struct sum first = sum_without(device, NOBODY);
    struct sum second = sum_without(device, NOBODY);
    *bytes = second.bytes;
    return first.undecided == 0 && second.undecided == 0 && first.bytes == second.bytes;
}

/* Alone, or after waiting for that long enough. What is undecided may be about to go, and is no reason to refuse. */
static bool decide(struct device *device, int mine, uint64_t bytes) {
    int64_t deadline = aliquot_os_clock() + SETTLING_WAIT;
    do {
        uint64_t settled = 0;
        if (try_reserve(device, mine, bytes)) {
            return true;
        }
        if (is_settled(device, &settled) && settled + bytes > atomic_load(&device->limit)) {
            return false;
        }
        aliquot_os_sleep(SETTLING_POLL);
    } while (aliquot_os_clock() < deadline);
    return false;
}

static bool reserve_slowly(struct device *device, int mine, uint64_t bytes) {
    int saved = errno;
    bool reserved = false;
    for (int i = 0; i < TRIES && !reserved; i++) {
        aliquot_shared_reap();
        reserved = try_reserve(device, mine, bytes);
        if (!reserved && sum_without(device, NOBODY).undecided == 0) {
            break; /* nobody to give way to: go and decide */
        }
        if (!reserved) {
            aliquot_os_sleep(BACK_OFF << i);
        }
    }
    if (!reserved) {
        aliquot_shared_decide_begin();
        reserved = decide(device, mine, bytes);
        aliquot_shared_decide_end();
    }
    errno = saved;
    return reserved;
}

bool aliquot_account_reserve(int number, uint64_t bytes) {
    struct device *device = &devices[number];
    int mine = aliquot_shared_slot();
    if (mine < 0 || bytes > aliquot_account_limit(number)) {
        return false; /* could never fit; also keeps the sums from overflowing */
    }
    return try_reserve(device, mine, bytes) || reserve_slowly(device, mine, bytes);
}

void aliquot_account_release(int number, uint64_t bytes) {
    struct device *device = &devices[number];
    __atomic_fetch_sub(&device->charges[aliquot_shared_slot_if_any()].word, bytes, __ATOMIC_SEQ_CST);
    atomic_fetch_sub(&device->own, bytes);
}

void aliquot_account_reset(void) {
    atomic_store(&device_count, 0);
}
