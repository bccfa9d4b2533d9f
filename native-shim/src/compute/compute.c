#include "compute/compute.h"

#include "compute/gcra.h"
#include "limits/account.h"
#include "limits/config.h"
#include "os/agent_file.h"
#include "os/fork.h"
#include "os/os.h"
#include "os/shared.h"
#include "os/usage.h"

#include <stdatomic.h>

#define UNFINISHED_POLL_NS INT64_C(250000) /* between checks whether the GPU has caught up */
#define YIELD_POLL_NS INT64_C(500000)      /* between checks whether a container of high priority still has work */
#define BORROWED_MAX_NS INT64_C(5000000)   /* in flight beyond the own share, or one launch */
/* What is borrowed earns no credit, but for the time of a gap between launches: half a period of the arbiter. */
#define BORROWED_CREDIT_NS INT64_C(10000000)
#define MIX_WINDOW_NS UINT64_C(20000000)       /* of charges by which the borrowed part of them is known */
#define WANTED_RESOLUTION_NS UINT64_C(1000000) /* resolution of aliquot_device.wanted */
#define REPAY_NS INT64_C(1000000000)           /* what is owed for waiting is charged over this time */
#define REPAY_PART_MAX 4                       /* at most a quarter of it at a time */
#define PEER_TIMEOUT_NS INT64_C(1000000000)    /* a process without charges for this long is not active */
/* What the arbiter says of other containers is valid for this long, and it says for at least so long that one works. */
#define ACTIVE_MAX_AGE_NS INT64_C(100000000)
#define ACTIVE_MIN_NS INT64_C(40000000)

struct gpu_limit {
    /* Like the words of these names in the region (own_tat: tat), for this process alone. */
    _Alignas(64) uint64_t own_tat;
    uint64_t borrowed_tat, floor_tat;
    _Alignas(64) _Atomic int64_t unfinished;
    _Atomic uint64_t launched;
    _Atomic int64_t busy_until;     /* this process's work in flight ends then */
    _Atomic int64_t published;      /* busy_until, as in the region */
    _Atomic uint32_t borrowed_part; /* of what was charged lately, in millionths */
    _Atomic uint64_t own_used;
    _Atomic int64_t owed; /* ns of GPU time, for waiting */
    _Atomic int64_t repaid_at;
    /* GPU time of the container's other processes, and when it was last seen to grow. */
    _Atomic int64_t peers_used;
    _Atomic int64_t peers_active_at;
    /* Since when this process is known to be alone, and when that was last seen. */
    _Atomic int64_t alone_since;
    _Atomic int64_t alone_at;
};

static struct gpu_limit gpu_limits[ALIQUOT_LIMITS_VGPUS_MAX];

static void reset_limits(void) {
    for (size_t i = 0; i < ALIQUOT_LIMITS_VGPUS_MAX; i++) {
        gpu_limits[i] = (struct gpu_limit){0};
    }
}

ALIQUOT_AFTER_FORK(reset_limits);

int aliquot_compute_refresh(void) {
    /* In mode ENFORCE config.c has already set the state. */
    if (aliquot_config_mode() != ALIQUOT_MODE_ENFORCE) {
        __atomic_store_n(&aliquot_account_compute, ALIQUOT_COMPUTE_FREE, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&aliquot_account_compute, __ATOMIC_ACQUIRE);
}

bool aliquot_compute_is_limited(int device) {
    return device >= 0 && aliquot_account_is_compute_limited(device);
}

static struct aliquot_share share_of(const struct gpu_limit *limit) {
    return aliquot_account_share((int)(limit - gpu_limits));
}

static int64_t larger_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The GPU's entry in the region. */
static struct aliquot_device *shared(const struct gpu_limit *limit) {
    return share_of(limit).region;
}

static const struct aliquot_agent_device *agent_of(const struct gpu_limit *limit) {
    return aliquot_account_agent((int)(limit - gpu_limits));
}

/* Millionths of the GPU. */
static uint32_t fixed_share(const struct aliquot_share *share) {
    return share->cores * (ALIQUOT_GCRA_WHOLE_GPU / 100);
}

/* The own share; 0: no limit. */
static uint32_t share_now(const struct gpu_limit *limit, const struct aliquot_share *share, int64_t now) {
    return aliquot_gcra_share(fixed_share(share), __atomic_load_n(&agent_of(limit)->grant, __ATOMIC_RELAXED), now);
}

static uint32_t borrowed_share(const struct gpu_limit *limit, const struct aliquot_share *share, int64_t now) {
    return aliquot_gcra_borrowed(share->policy, __atomic_load_n(&agent_of(limit)->borrowed, __ATOMIC_RELAXED), now);
}

static uint32_t effective_share(const struct gpu_limit *limit, int64_t now) {
    const struct aliquot_share share = share_of(limit);
    return share_now(limit, &share, now);
}

static void record_wanted(struct aliquot_device *device, int64_t now) {
    uint64_t before = __atomic_load_n(&device->wanted, __ATOMIC_RELAXED);
    if ((uint64_t)now - before > WANTED_RESOLUTION_NS) {
        __atomic_store_n(&device->wanted, (uint64_t)now, __ATOMIC_RELAXED);
    }
}

/* GPU time of the container in flight. The region says more than this process knows, or a program has written it. */
static int64_t in_flight(const struct gpu_limit *limit, const struct aliquot_device *device, int64_t now) {
    int64_t own = atomic_load_explicit(&limit->unfinished, memory_order_relaxed);
    int64_t all = (int64_t)(__atomic_load_n(&device->in_flight, __ATOMIC_RELAXED) - (uint64_t)now);
    return all > own && all < ALIQUOT_GCRA_WAIT_MAX_NS ? all : own;
}

/* Says how much work of this process is in flight. */
static void publish_in_flight(struct gpu_limit *limit, int64_t own, int64_t now) {
    atomic_store_explicit(&limit->busy_until, now + own, memory_order_relaxed);
    own = own < 0 ? 0 : own < ALIQUOT_GCRA_WAIT_MAX_NS ? own : ALIQUOT_GCRA_WAIT_MAX_NS;
    int64_t before = atomic_exchange_explicit(&limit->published, now + own, memory_order_relaxed) - now;
    uint64_t *word = &shared(limit)->in_flight, found = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    do {
        int64_t all = (int64_t)(found - (uint64_t)now), others = all - (before > 0 ? before : 0);
        next = (uint64_t)(now + own + (others > 0 && all < ALIQUOT_GCRA_WAIT_MAX_NS ? others : 0));
    } while (!__atomic_compare_exchange_n(word, &found, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* What was charged is adjusted later, when no one knows which part of it was borrowed. */
static void count_charge(struct gpu_limit *limit, uint64_t cost, bool borrowed) {
    int64_t part = atomic_load_explicit(&limit->borrowed_part, memory_order_relaxed);
    int64_t of_window = (int64_t)(cost < MIX_WINDOW_NS ? cost : MIX_WINDOW_NS);
    int64_t change = ((borrowed ? ALIQUOT_GCRA_WHOLE_GPU : 0) - part) * of_window / (int64_t)MIX_WINDOW_NS;
    if (change != 0) {
        atomic_store_explicit(&limit->borrowed_part, (uint32_t)(part + change), memory_order_relaxed);
    }
}

/* Charges two words, or none. */
static bool try_charge_both(uint64_t *own, uint64_t *containers, uint32_t share, uint64_t cost, int64_t debt,
                            int64_t now, int64_t *until) {
    if (!aliquot_gcra_try_charge(own, share, cost, debt, now, until)) {
        return false;
    }
    if (!aliquot_gcra_try_charge(containers, share, cost, debt, now, until)) {
        aliquot_gcra_adjust(own, share, -(int64_t)cost, now);
        return false;
    }
    return true;
}

/* Whether no more than one launch, or BORROWED_MAX_NS, would be in flight. */
static bool is_little(const struct gpu_limit *limit, const struct aliquot_device *device, uint64_t cost, int64_t now) {
    int64_t flying = in_flight(limit, device, now);
    return flying <= 0 || flying + (int64_t)cost <= BORROWED_MAX_NS;
}

static uint64_t yield_word(const struct gpu_limit *limit) {
    return __atomic_load_n(&agent_of(limit)->yield, __ATOMIC_RELAXED);
}

static bool yields(const struct gpu_limit *limit, int64_t now) {
    uint64_t word = yield_word(limit), shared_tat = __atomic_load_n(&shared(limit)->floor_tat, __ATOMIC_RELAXED);
    uint32_t floor = aliquot_gcra_floor(word, now);
    return floor > 0 && (word & ALIQUOT_YIELD_NOW) != 0 &&
           !(aliquot_gcra_is_below_floor(__atomic_load_n(&limit->floor_tat, __ATOMIC_RELAXED), floor, now) &&
             aliquot_gcra_is_below_floor(shared_tat, floor, now));
}

bool aliquot_compute_yields(int number) {
    return yields(&gpu_limits[number], aliquot_os_clock());
}

static void charge_floor(struct gpu_limit *limit, int64_t cost, int64_t now) {
    uint32_t floor = aliquot_gcra_floor(yield_word(limit), now);
    if (floor > 0) {
        aliquot_gcra_charge_floor(&limit->floor_tat, floor, cost, now);
        aliquot_gcra_charge_floor(&shared(limit)->floor_tat, floor, cost, now);
    }
}

/* Charges a launch beyond the own share. */
static bool try_borrow(struct gpu_limit *limit, const struct aliquot_share *limited, uint64_t cost, int64_t now,
                       int64_t *until) {
    uint32_t share = borrowed_share(limit, limited, now);
    if (share == 0) {
        return false;
    }
    int64_t borrowed_until = now + UNFINISHED_POLL_NS;
    bool fits = is_little(limit, limited->region, cost, now);
    if (fits && share < ALIQUOT_GCRA_WHOLE_GPU) {
        aliquot_gcra_forfeit_credit(&limit->borrowed_tat, now - BORROWED_CREDIT_NS);
        aliquot_gcra_forfeit_credit(&limited->region->borrowed_tat, now - BORROWED_CREDIT_NS);
        fits =
            try_charge_both(&limit->borrowed_tat, &limited->region->borrowed_tat, share, cost, 0, now, &borrowed_until);
    }
    *until = *until < borrowed_until ? *until : borrowed_until;
    return fits;
}

static bool try_charge_at(struct gpu_limit *limit, uint64_t cost, int64_t debt, int64_t now, int64_t *until) {
    const struct aliquot_share limited = share_of(limit);
    uint32_t share = share_now(limit, &limited, now);
    if (cost > 0) {
        record_wanted(limited.region, now);
    }
    if (aliquot_gcra_floor(yield_word(limit), now) > 0) {
        bool has_to_yield = yields(limit, now);
        *until = now + (has_to_yield ? YIELD_POLL_NS : UNFINISHED_POLL_NS);
        if (has_to_yield || !is_little(limit, limited.region, cost, now)) {
            return false;
        }
    }
    if (share == 0 || fixed_share(&limited) >= ALIQUOT_GCRA_WHOLE_GPU) {
        charge_floor(limit, (int64_t)cost, now);
        return true;
    }
    if (atomic_load_explicit(&limit->unfinished, memory_order_relaxed) >
        ALIQUOT_GCRA_BURST_NS + aliquot_gcra_earned(debt, share)) {
        *until = now + UNFINISHED_POLL_NS;
        return false;
    }
    bool own = try_charge_both(&limit->own_tat, &limited.region->tat, share, cost, debt, now, until);
    if (!own && !try_borrow(limit, &limited, cost, now, until)) {
        return false;
    }
    count_charge(limit, cost, !own);
    charge_floor(limit, (int64_t)cost, now);
    return true;
}

bool aliquot_compute_try_charge(int number, uint64_t cost, int64_t debt, int64_t *until) {
    struct gpu_limit *limit = &gpu_limits[number];
    /* The coarse clock lags, so a charge that it allows is allowed by the exact clock, too. */
    if (!try_charge_at(limit, cost, debt, aliquot_os_clock_coarse(), until) &&
        !try_charge_at(limit, cost, debt, aliquot_os_clock(), until)) {
        return false;
    }
    if (cost > 0) {
        int64_t now = aliquot_os_clock();
        int64_t ahead = atomic_load_explicit(&limit->busy_until, memory_order_relaxed) - now;
        atomic_fetch_add_explicit(&limit->launched, cost, memory_order_relaxed);
        publish_in_flight(limit, larger_of(ahead, 0) + (int64_t)cost, now);
    }
    return true;
}

bool aliquot_compute_borrows(int number) {
    const struct gpu_limit *limit = &gpu_limits[number];
    const struct aliquot_share limited = share_of(limit);
    return borrowed_share(limit, &limited, aliquot_os_clock_coarse()) > 0;
}

int64_t aliquot_compute_room(int number) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t now = aliquot_os_clock();
    const struct aliquot_share limited = share_of(limit);
    uint32_t share = share_now(limit, &limited, now);
    if (yields(limit, now)) {
        return 0;
    }
    if (share == 0 || share >= ALIQUOT_GCRA_WHOLE_GPU ||
        borrowed_share(limit, &limited, now) >= ALIQUOT_GCRA_WHOLE_GPU) {
        return INT64_MAX;
    }
    int64_t own = aliquot_gcra_room(__atomic_load_n(&limit->own_tat, __ATOMIC_RELAXED), share, now);
    int64_t containers = aliquot_gcra_room(__atomic_load_n(&shared(limit)->tat, __ATOMIC_RELAXED), share, now);
    return own < containers ? own : containers;
}

static void adjust_both(uint64_t *own, uint64_t *containers, uint32_t share, int64_t difference, int64_t now) {
    if (share != 0 && share < ALIQUOT_GCRA_WHOLE_GPU && difference != 0) {
        aliquot_gcra_adjust(own, share, difference, now);
        aliquot_gcra_adjust(containers, share, difference, now);
    }
}

void aliquot_compute_adjust(int number, int64_t difference) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t now = aliquot_os_clock_coarse();
    const struct aliquot_share limited = share_of(limit);
    int64_t part = atomic_load_explicit(&limit->borrowed_part, memory_order_relaxed);
    int64_t borrowed = difference / 1000 * part / (ALIQUOT_GCRA_WHOLE_GPU / 1000);
    charge_floor(limit, difference, now);
    adjust_both(&limit->own_tat, &limited.region->tat, share_now(limit, &limited, now), difference - borrowed, now);
    adjust_both(&limit->borrowed_tat, &limited.region->borrowed_tat, borrowed_share(limit, &limited, now), borrowed,
                now);
}

/* If the full price were charged at once, two ranks would hold each other back more and more: while one is held back,
   its peer's kernel waits and is charged, so that the peer is held back longer the next time, and the rank waits. With
   a share r each difference would grow to (1 / r - 1) times itself. Without earnings for as long as it waited, a rank
   is as late as its peer. */
void aliquot_compute_charge_waiting(int number, uint64_t nanoseconds) {
    struct gpu_limit *limit = &gpu_limits[number];
    uint32_t share = effective_share(limit, aliquot_os_clock_coarse());
    if (share != 0 && share < ALIQUOT_GCRA_WHOLE_GPU) {
        int64_t now = aliquot_gcra_earned((int64_t)nanoseconds, share);
        aliquot_compute_adjust(number, now);
        atomic_fetch_add(&limit->owed, (int64_t)nanoseconds - now);
    }
}

void aliquot_compute_repay(int number) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t owed = atomic_load(&limit->owed);
    if (owed == 0) {
        return;
    }
    int64_t now = aliquot_os_clock_coarse();
    int64_t since = now - atomic_exchange(&limit->repaid_at, now);
    int64_t due = since < REPAY_NS / REPAY_PART_MAX ? owed / 1000 * since / (REPAY_NS / 1000) : owed / REPAY_PART_MAX;
    if (due > 0) {
        atomic_fetch_sub(&limit->owed, due);
        aliquot_compute_adjust(number, due);
    }
}

void aliquot_compute_add_used(int number, uint64_t nanoseconds) {
    struct gpu_limit *limit = &gpu_limits[number];
    int slot = aliquot_shared_slot();
    if (slot >= 0) {
        /* Adds to own_used first, so that the GPU time of other processes is never overestimated (has_active_peers). */
        atomic_fetch_add_explicit(&limit->own_used, nanoseconds, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        aliquot_usage_charge(shared(limit), &share_of(limit).charges[slot], nanoseconds, aliquot_os_clock_coarse());
    }
}

void aliquot_compute_add_throttled(int number, int64_t nanoseconds) {
    __atomic_fetch_add(&shared(&gpu_limits[number])->throttled, (uint64_t)nanoseconds, __ATOMIC_RELAXED);
}

void aliquot_compute_add_busy(int number, int64_t nanoseconds) {
    __atomic_fetch_add(&shared(&gpu_limits[number])->busy, (uint64_t)nanoseconds, __ATOMIC_RELAXED);
}

uint64_t aliquot_compute_add_unfinished(int number, int64_t nanoseconds) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t now = aliquot_os_clock(), ahead = atomic_load_explicit(&limit->busy_until, memory_order_relaxed) - now;
    int64_t before = atomic_fetch_add_explicit(&limit->unfinished, nanoseconds, memory_order_relaxed);
    publish_in_flight(limit, larger_of(ahead, before + nanoseconds), now);
    return atomic_load_explicit(&limit->launched, memory_order_relaxed);
}

void aliquot_compute_finished(int number, uint64_t nanoseconds, uint64_t launched) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t charged = (int64_t)nanoseconds;
    int64_t later = (int64_t)(atomic_load_explicit(&limit->launched, memory_order_relaxed) - launched);
    int64_t unfinished = atomic_fetch_sub_explicit(&limit->unfinished, charged, memory_order_relaxed) - charged;
    publish_in_flight(limit, larger_of(later, unfinished), aliquot_os_clock());
}

/* Other processes of this container share the GPU in time slices just as other containers do. */
static bool has_active_peers(struct gpu_limit *limit, int64_t now) {
    uint64_t all = __atomic_load_n(&shared(limit)->gpu_time, __ATOMIC_ACQUIRE);
    int64_t others = (int64_t)(all - atomic_load_explicit(&limit->own_used, memory_order_relaxed));
    if (others > atomic_load_explicit(&limit->peers_used, memory_order_relaxed)) {
        atomic_store_explicit(&limit->peers_used, others, memory_order_relaxed);
        atomic_store_explicit(&limit->peers_active_at, now, memory_order_relaxed);
        return true;
    }
    return now - atomic_load_explicit(&limit->peers_active_at, memory_order_relaxed) < PEER_TIMEOUT_NS;
}

bool aliquot_compute_was_alone(int number, int64_t since) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t now = aliquot_os_clock();
    uint64_t active = __atomic_load_n(&agent_of(limit)->active, __ATOMIC_RELAXED);
    bool peers = has_active_peers(limit, now);
    if (peers || !aliquot_agent_is_fresh(active, now, ACTIVE_MAX_AGE_NS) || ALIQUOT_GRANT_SHARE(active) != 1) {
        atomic_store_explicit(&limit->alone_at, 0, memory_order_relaxed);
        return false;
    }
    /* A container that had work since the last look would still be in the word. */
    if (now - atomic_exchange_explicit(&limit->alone_at, now, memory_order_relaxed) > ACTIVE_MIN_NS) {
        atomic_store_explicit(&limit->alone_since, now, memory_order_relaxed);
    }
    return atomic_load_explicit(&limit->alone_since, memory_order_relaxed) <= since;
}

bool aliquot_compute_is_alone(int number) {
    return aliquot_compute_was_alone(number, INT64_MAX);
}
