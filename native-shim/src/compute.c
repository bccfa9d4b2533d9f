#include "compute.h"

#include "account.h"
#include "config.h"
#include "gcra.h"
#include "os.h"
#include "shared.h"
#include "usage.h"

#include <stdatomic.h>

#define POLL INT64_C(250000)              /* ns between looks at whether the GPU has caught up */
#define WANTED_STEP UINT64_C(1000000)     /* ns: how exactly the region says when a launch last came */
#define COMPANY_LASTS INT64_C(1000000000) /* ns after which a peer that charged nothing counts as gone */

struct device {
    _Atomic uint32_t share; /* millionths of the GPU; 0: no limit */
    atomic_int policy;
    struct aliquot_device *shared; /* in the region */
    struct aliquot_charge *charges;
    /* By the same law as the region's word, of this process alone. */
    _Alignas(64) uint64_t own;
    _Alignas(64) _Atomic int64_t unfinished;
    _Atomic uint64_t own_used;
    /* GPU time of the container's other processes, when it was last seen to grow. */
    _Atomic int64_t others_used;
    _Atomic int64_t others_seen;
};

static struct device devices[ALIQUOT_LIMITS_MOST_VGPUS];
int aliquot_compute_state = ALIQUOT_COMPUTE_UNKNOWN;

static void set_state(int state) {
    __atomic_store_n(&aliquot_compute_state, state, __ATOMIC_RELEASE);
}

void aliquot_compute_limits(const struct aliquot_limits *limits) {
    bool limited = false;
    for (size_t i = 0; i < limits->count; i++) {
        const struct aliquot_vgpu *vgpu = &limits->vgpu[i];
        int number = aliquot_account_device(vgpu->uuid);
        int place = aliquot_shared_device(vgpu->uuid);
        if (number < 0 || place < 0) {
            continue;
        }
        struct device *device = &devices[number];
        bool none = vgpu->cores == 0 || vgpu->policy == ALIQUOT_POLICY_NONE;
        if (device->shared == NULL) { /* it stays; other threads read it */
            device->shared = &aliquot_shared_region()->device[place];
            device->charges = aliquot_shared_region()->charge[place];
        }
        atomic_store_explicit(&device->policy, (int)vgpu->policy, memory_order_relaxed);
        atomic_store_explicit(&device->share, none ? 0 : vgpu->cores * (ALIQUOT_LAW_WHOLE / 100), memory_order_release);
        limited |= !none;
    }
    set_state(limited ? ALIQUOT_COMPUTE_LIMITED : ALIQUOT_COMPUTE_FREE);
}

void aliquot_compute_reset(void) {
    for (size_t i = 0; i < ALIQUOT_LIMITS_MOST_VGPUS; i++) {
        devices[i] = (struct device){0};
    }
    set_state(ALIQUOT_COMPUTE_UNKNOWN);
}

int aliquot_compute_refresh(void) {
    /* In mode ENFORCE aliquot_compute_limits() has been called. */
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        set_state(ALIQUOT_COMPUTE_FREE);
    }
    return __atomic_load_n(&aliquot_compute_state, __ATOMIC_ACQUIRE);
}

bool aliquot_compute_is_limited(int device) {
    return device >= 0 && atomic_load_explicit(&devices[device].share, memory_order_acquire) != 0;
}

static uint32_t share_of(struct device *device, int64_t now) {
    return aliquot_law_share(atomic_load_explicit(&device->share, memory_order_relaxed),
                             (enum aliquot_policy)atomic_load_explicit(&device->policy, memory_order_relaxed),
                             __atomic_load_n(&device->shared->grant, __ATOMIC_RELAXED), now);
}

static void want(struct device *device, int64_t now) {
    uint64_t before = __atomic_load_n(&device->shared->wanted, __ATOMIC_RELAXED);
    if ((uint64_t)now - before > WANTED_STEP) {
        __atomic_store_n(&device->shared->wanted, (uint64_t)now, __ATOMIC_RELAXED);
    }
}

static bool take_at(struct device *device, uint64_t cost, int64_t now, int64_t *until) {
    uint32_t share = share_of(device, now);
    want(device, now);
    /* Who is granted all of it for now doesn't queue for seconds, either: it would hold on to the GPU when others come,
       and seem not to want it while the driver holds it back. */
    bool whole = share >= ALIQUOT_LAW_WHOLE;
    bool fixed = atomic_load_explicit(&device->share, memory_order_relaxed) >= ALIQUOT_LAW_WHOLE;
    if (share == 0 || (whole && fixed)) {
        return true;
    }
    if (atomic_load_explicit(&device->unfinished, memory_order_relaxed) > ALIQUOT_LAW_BURST) {
        *until = now + POLL;
        return false;
    }
    if (whole) {
        return true;
    }
    if (!aliquot_law_take(&device->own, share, cost, now, until)) {
        return false;
    }
    if (!aliquot_law_take(&device->shared->tat, share, cost, now, until)) {
        aliquot_law_correct(&device->own, share, -(int64_t)cost, now);
        return false;
    }
    return true;
}

bool aliquot_compute_take(int number, uint64_t cost, int64_t *until) {
    struct device *device = &devices[number];
    /* The coarse clock lags behind: who may go by it may go. */
    return take_at(device, cost, aliquot_os_clock_coarse(), until) || take_at(device, cost, aliquot_os_clock(), until);
}

void aliquot_compute_correct(int number, int64_t difference) {
    struct device *device = &devices[number];
    int64_t now = aliquot_os_clock_coarse();
    uint32_t share = share_of(device, now);
    if (share != 0 && share < ALIQUOT_LAW_WHOLE && difference != 0) {
        aliquot_law_correct(&device->own, share, difference, now);
        aliquot_law_correct(&device->shared->tat, share, difference, now);
    }
}

void aliquot_compute_used(int number, uint64_t nanoseconds) {
    struct device *device = &devices[number];
    int slot = aliquot_shared_slot();
    if (slot >= 0) {
        /* Its own first: then others' is never seen too large (has_peers). */
        atomic_fetch_add_explicit(&device->own_used, nanoseconds, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        aliquot_usage_charge(device->shared, &device->charges[slot], nanoseconds, aliquot_os_clock_coarse());
    }
}

void aliquot_compute_held_back(int number, int64_t nanoseconds) {
    __atomic_fetch_add(&devices[number].shared->throttled, (uint64_t)nanoseconds, __ATOMIC_RELAXED);
}

void aliquot_compute_unfinished(int number, int64_t nanoseconds) {
    atomic_fetch_add_explicit(&devices[number].unfinished, nanoseconds, memory_order_relaxed);
}

/* A peer of this container shares the GPU in time slices just as another container does. */
static bool has_peers(struct device *device, int64_t now) {
    uint64_t all = __atomic_load_n(&device->shared->gpu_time, __ATOMIC_ACQUIRE);
    int64_t others = (int64_t)(all - atomic_load_explicit(&device->own_used, memory_order_relaxed));
    if (others > atomic_load_explicit(&device->others_used, memory_order_relaxed)) {
        atomic_store_explicit(&device->others_used, others, memory_order_relaxed);
        atomic_store_explicit(&device->others_seen, now, memory_order_relaxed);
        return true;
    }
    return now - atomic_load_explicit(&device->others_seen, memory_order_relaxed) < COMPANY_LASTS;
}

bool aliquot_compute_is_alone(int number, bool seems) {
    struct device *device = &devices[number];
    int64_t now = aliquot_os_clock_coarse();
    uint64_t grant = __atomic_load_n(&device->shared->grant, __ATOMIC_RELAXED);
    int64_t age = now - (int64_t)(ALIQUOT_GRANT_MS(grant) * 1000000);
    uint32_t active = __atomic_load_n(&device->shared->active, __ATOMIC_RELAXED);
    bool heard = grant != 0 && age < ALIQUOT_LAW_GRANT_AGE && active != 0;
    return !has_peers(device, now) && (heard ? active == 1 : seems);
}
