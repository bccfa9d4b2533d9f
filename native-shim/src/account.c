#include "account.h"

#include "lock.h"
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
    /* What this process holds; private, so that nothing written into the region can make a process hold more than the
       limit by itself. Changed under the lock, and the process's word with it: its threads decide one at a time, so
       that one barrier is all that an allocation pays. */
    _Alignas(64) struct aliquot_lock lock;
    uint32_t undecided; /* threads between aliquot_account_reserve_undecided() and decided() */
    _Atomic uint64_t own;
    _Atomic uint64_t limit, context;
    atomic_uint cores, policy;
    struct aliquot_charge *charges; /* in the region, by process slot */
    struct aliquot_device *region;
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
    atomic_store(&device->context, vgpu->context);
    atomic_store(&device->cores, vgpu->cores);
    atomic_store(&device->policy, (unsigned)vgpu->policy);
}

static bool take_in(const struct aliquot_vgpu *vgpu, char *error) {
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
    device->undecided = 0;
    aliquot_unlock(&device->lock); /* a fork may have come while a thread had it */
    take_over(device, vgpu);
    atomic_store_explicit(&device_count, count + 1, memory_order_release);
    return true;
}

bool aliquot_account_limits(const struct aliquot_limits *limits, char error[ALIQUOT_LIMITS_ERROR]) {
    for (size_t i = 0; i < limits->count; i++) {
        int known = find(limits->vgpu[i].uuid);
        if (known >= 0) {
            take_over(&devices[known], &limits->vgpu[i]);
        } else if (!take_in(&limits->vgpu[i], error)) {
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
        .context = atomic_load_explicit(&device->context, memory_order_relaxed),
        .region = device->region,
        .charges = device->charges,
    };
}

uint64_t aliquot_account_limit(int device) {
    return atomic_load_explicit(&devices[device].limit, memory_order_relaxed);
}

static uint64_t bytes_in(const struct aliquot_charge *charge) {
    return __atomic_load_n(&charge->word, __ATOMIC_SEQ_CST) & ALIQUOT_CHARGE_BYTES;
}

/* What other processes hold, and what nobody can say who holds. No overflow: 513 times 52 bits. */
static uint64_t others(const struct device *device, int mine) {
    int high_water = (int)aliquot_shared_high_water();
    uint64_t sum = __atomic_load_n(&device->region->unattributed, __ATOMIC_RELAXED) & ALIQUOT_CHARGE_BYTES;
    int before = mine < 0 || mine > high_water ? high_water : mine;
    for (int i = 0; i < before; i++) {
        sum += bytes_in(&device->charges[i]);
    }
    for (int i = before + 1; i < high_water; i++) {
        sum += bytes_in(&device->charges[i]);
    }
    return sum;
}

uint64_t aliquot_account_used(int device) {
    int mine = aliquot_shared_slot_if_any();
    return atomic_load(&devices[device].own) + others(&devices[device], mine);
}

static uint64_t word_of(const struct device *device, uint64_t own) {
    return (own & ALIQUOT_CHARGE_BYTES) + device->undecided * ALIQUOT_CHARGE_UNDECIDED;
}

/* With the lock. Without a barrier: giving way late harms nobody. */
static void set_own(struct device *device, struct aliquot_charge *charge, uint64_t own) {
    atomic_store_explicit(&device->own, own, memory_order_relaxed);
    __atomic_store_n(&charge->word, word_of(device, own), __ATOMIC_RELEASE);
    if (own > __atomic_load_n(&charge->peak, __ATOMIC_RELAXED)) {
        __atomic_store_n(&charge->peak, own, __ATOMIC_RELAXED);
    }
}

/* undecided: 1 for a thread that stays so. Told in the same word as the bytes. */
static bool try_reserve(struct device *device, int mine, uint64_t bytes, uint32_t undecided) {
    struct aliquot_charge *charge = &device->charges[mine];
    aliquot_lock(&device->lock);
    uint64_t held = atomic_load_explicit(&device->own, memory_order_relaxed), own = held + bytes;
    /* The barrier: everybody's words are read after ours is there to be read. */
    __atomic_exchange_n(&charge->word, word_of(device, own) + ALIQUOT_CHARGE_UNDECIDED, __ATOMIC_SEQ_CST);
    bool fits = own + others(device, mine) <= atomic_load_explicit(&device->limit, memory_order_relaxed);
    device->undecided += fits ? undecided : 0;
    set_own(device, charge, fits ? own : held);
    aliquot_unlock(&device->lock);
    return fits;
}

struct sum {
    uint64_t bytes;
    uint64_t undecided; /* threads */
};

static struct sum sum_of_all(const struct device *device) {
    struct sum sum = {__atomic_load_n(&device->region->unattributed, __ATOMIC_RELAXED) & ALIQUOT_CHARGE_BYTES, 0};
    int high_water = (int)aliquot_shared_high_water();
    for (int i = 0; i < high_water; i++) {
        uint64_t word = __atomic_load_n(&device->charges[i].word, __ATOMIC_SEQ_CST);
        sum.bytes += word & ALIQUOT_CHARGE_BYTES;
        sum.undecided += word / ALIQUOT_CHARGE_UNDECIDED;
    }
    return sum;
}

/* Whether the words are what everybody has decided to keep. Read twice: a charge that moves from a word not read yet to
   one already read, or back, would be missed or counted twice. Our own word too is read here and not own, since only in
   the word bytes and undecided threads change together. */
static bool is_settled(const struct device *device, uint64_t *bytes) {
    struct sum first = sum_of_all(device);
    struct sum second = sum_of_all(device);
    *bytes = second.bytes;
    return first.undecided == 0 && second.undecided == 0 && first.bytes == second.bytes;
}

/* Alone, or after waiting for that long enough. What is undecided may be about to go, and is no reason to refuse. */
static bool decide(struct device *device, int mine, uint64_t bytes, uint32_t undecided) {
    int64_t deadline = aliquot_os_clock() + SETTLING_WAIT;
    do {
        uint64_t settled = 0;
        if (try_reserve(device, mine, bytes, undecided)) {
            return true;
        }
        if (is_settled(device, &settled) && settled + bytes > atomic_load(&device->limit)) {
            return false;
        }
        aliquot_os_sleep(SETTLING_POLL);
    } while (aliquot_os_clock() < deadline);
    return false;
}

static bool reserve_slowly(struct device *device, int mine, uint64_t bytes, uint32_t undecided) {
    int saved = errno;
    bool reserved = false;
    for (int i = 0; i < TRIES && !reserved; i++) {
        aliquot_shared_reap();
        reserved = try_reserve(device, mine, bytes, undecided);
        if (!reserved && sum_of_all(device).undecided == 0) {
            break; /* nobody to give way to: go and decide */
        }
        if (!reserved) {
            aliquot_os_sleep(BACK_OFF << i);
        }
    }
    if (!reserved) {
        aliquot_shared_decide_begin();
        reserved = decide(device, mine, bytes, undecided);
        aliquot_shared_decide_end();
    }
    errno = saved;
    return reserved;
}

static bool reserve(int number, uint64_t bytes, uint32_t undecided) {
    struct device *device = &devices[number];
    int mine = aliquot_shared_slot();
    if (mine < 0 || bytes > aliquot_account_limit(number)) {
        return false; /* could never fit; also keeps the sums from overflowing */
    }
    return try_reserve(device, mine, bytes, undecided) || reserve_slowly(device, mine, bytes, undecided);
}

bool aliquot_account_reserve(int device, uint64_t bytes) {
    return reserve(device, bytes, 0);
}

bool aliquot_account_reserve_undecided(int device, uint64_t bytes) {
    return reserve(device, bytes, 1);
}

bool aliquot_account_may_fit(int device, uint64_t bytes) {
    struct sum sum = sum_of_all(&devices[device]);
    return sum.undecided > 0 || sum.bytes + bytes <= aliquot_account_limit(device);
}

static void add(struct device *device, uint64_t bytes, uint32_t undecided) {
    aliquot_lock(&device->lock);
    device->undecided += undecided;
    set_own(device, &device->charges[aliquot_shared_slot_if_any()],
            atomic_load_explicit(&device->own, memory_order_relaxed) + bytes);
    aliquot_unlock(&device->lock);
}

void aliquot_account_release(int device, uint64_t bytes) {
    add(&devices[device], -bytes, 0);
}

void aliquot_account_force(int device, uint64_t bytes) {
    add(&devices[device], bytes, 0);
}

void aliquot_account_decided(int device) {
    add(&devices[device], 0, (uint32_t)-1);
}

void aliquot_account_context(int device, uint64_t bytes) {
    __atomic_store_n(&devices[device].charges[aliquot_shared_slot_if_any()].context, bytes, __ATOMIC_RELAXED);
}

void aliquot_account_reset(void) {
    atomic_store(&device_count, 0);
}
