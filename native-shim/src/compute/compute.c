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

#define UNFINISHED_POLL_NS INT64_C(250000)     /* between checks whether the GPU has caught up */
#define TURN_POLL_NS INT64_C(500000)           /* between checks whether the arbiter has given a turn */
#define TURN_MAX_AGE_NS INT64_C(100000000)     /* an older word of the arbiter has no effect */
#define IN_TURN_MAX_NS INT64_C(5000000)        /* in flight where others wait for the end of it, or one launch */
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
    uint64_t borrowed_tat;
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

static int64_t larger_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The GPU's entry in the region. */
static struct aliquot_device *region_of(int number) {
    return aliquot_account_share(number).region;
}

/* What holds for the container on a GPU at a time. Shares are in millionths of the GPU. */
struct terms {
    struct aliquot_device *region;
    int64_t now;
    uint32_t fixed;    /* by the limit file */
    uint32_t own;      /* 0: no limit */
    uint32_t borrowed; /* beyond the own one */
    bool takes_turns;  /* nothing is launched outside of the container's turn */
    int64_t turn_left; /* of the turn that is now; 0 or less: it is another's */
    int64_t next_turn; /* when it is worth to look again then */
};

/* The container's turn, by the arbiter's word; without one it need not wait for a turn. */
static void find_turn(struct terms *terms, uint64_t word) {
    int64_t unit = ALIQUOT_ROUND_NS / ALIQUOT_ROUND_UNITS, length = ALIQUOT_TURN_LENGTH(word) * unit;
    int64_t since = (terms->now - ALIQUOT_TURN_FROM(word) * unit) % ALIQUOT_ROUND_NS;
    terms->takes_turns = (word & ALIQUOT_TURN_WAITS) != 0 && aliquot_agent_is_fresh(word, terms->now, TURN_MAX_AGE_NS);
    terms->turn_left = length >= ALIQUOT_ROUND_NS ? INT64_MAX : length - since;
    terms->next_turn = length > 0 ? terms->now - since + ALIQUOT_ROUND_NS : terms->now + TURN_POLL_NS;
}

static struct terms terms_of(int number, int64_t now) {
    const struct aliquot_share share = aliquot_account_share(number);
    const struct aliquot_agent_device *agent = aliquot_account_agent(number);
    uint32_t fixed = share.cores * (ALIQUOT_GCRA_WHOLE_GPU / 100);
    struct terms terms = {
        .region = share.region,
        .now = now,
        .fixed = fixed,
        .own = aliquot_gcra_share(fixed, __atomic_load_n(&agent->grant, __ATOMIC_RELAXED), now),
        .borrowed = aliquot_gcra_borrowed(share.policy, __atomic_load_n(&agent->borrowed, __ATOMIC_RELAXED), now),
    };
    find_turn(&terms, __atomic_load_n(&agent->turn, __ATOMIC_RELAXED));
    return terms;
}

static bool waits_for_turn(const struct terms *terms) {
    return terms->takes_turns && terms->turn_left <= 0;
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
static void publish_in_flight(int number, int64_t own, int64_t now) {
    struct gpu_limit *limit = &gpu_limits[number];
    atomic_store_explicit(&limit->busy_until, now + own, memory_order_relaxed);
    own = own < 0 ? 0 : own < ALIQUOT_GCRA_WAIT_MAX_NS ? own : ALIQUOT_GCRA_WAIT_MAX_NS;
    int64_t before = atomic_exchange_explicit(&limit->published, now + own, memory_order_relaxed) - now;
    uint64_t *word = &region_of(number)->in_flight, found = __atomic_load_n(word, __ATOMIC_RELAXED), next;
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

/* Whether the GPU would be done with all that is in flight within a time, or no more than one launch would be. */
static bool is_done_within(int64_t time, const struct gpu_limit *limit, const struct terms *terms, uint64_t cost) {
    int64_t flying = in_flight(limit, terms->region, terms->now);
    return flying <= 0 || flying + (int64_t)cost <= (time < IN_TURN_MAX_NS ? time : IN_TURN_MAX_NS);
}

/* Charges a launch beyond the own share. */
static bool try_borrow(struct gpu_limit *limit, const struct terms *terms, uint64_t cost, int64_t *until) {
    int64_t now = terms->now, borrowed_until = now + UNFINISHED_POLL_NS;
    if (terms->borrowed == 0) {
        return false;
    }
    bool fits = is_done_within(INT64_MAX, limit, terms, cost);
    if (fits && terms->borrowed < ALIQUOT_GCRA_WHOLE_GPU) {
        fits = try_charge_both(&limit->borrowed_tat, &terms->region->borrowed_tat, terms->borrowed, cost, 0, now,
                               &borrowed_until);
    }
    *until = *until < borrowed_until ? *until : borrowed_until;
    return fits;
}

static bool try_charge_at(int number, uint64_t cost, int64_t debt, int64_t now, int64_t *until) {
    struct gpu_limit *limit = &gpu_limits[number];
    const struct terms terms = terms_of(number, now);
    if (cost > 0) {
        record_wanted(terms.region, now);
    }
    if (waits_for_turn(&terms)) {
        *until = terms.next_turn;
        return false;
    }
    if (terms.takes_turns && !is_done_within(terms.turn_left, limit, &terms, cost)) {
        *until = now + UNFINISHED_POLL_NS;
        return false;
    }
    if (terms.own == 0 || terms.fixed >= ALIQUOT_GCRA_WHOLE_GPU) {
        return true;
    }
    if (atomic_load_explicit(&limit->unfinished, memory_order_relaxed) >
        ALIQUOT_GCRA_BURST_NS + aliquot_gcra_earned(debt, terms.own)) {
        *until = now + UNFINISHED_POLL_NS;
        return false;
    }
    bool own = try_charge_both(&limit->own_tat, &terms.region->tat, terms.own, cost, debt, now, until);
    if (!own && !try_borrow(limit, &terms, cost, until)) {
        return false;
    }
    count_charge(limit, cost, !own);
    return true;
}

bool aliquot_compute_try_charge(int number, uint64_t cost, int64_t debt, int64_t *until) {
    struct gpu_limit *limit = &gpu_limits[number];
    /* The coarse clock lags, so a charge that it allows is allowed by the exact clock, too. */
    if (!try_charge_at(number, cost, debt, aliquot_os_clock_coarse(), until) &&
        !try_charge_at(number, cost, debt, aliquot_os_clock(), until)) {
        return false;
    }
    if (cost > 0) {
        int64_t now = aliquot_os_clock();
        int64_t ahead = atomic_load_explicit(&limit->busy_until, memory_order_relaxed) - now;
        atomic_fetch_add_explicit(&limit->launched, cost, memory_order_relaxed);
        if (cost > IN_TURN_MAX_NS) {
            __atomic_store_n(&region_of(number)->long_launch, (uint64_t)now, __ATOMIC_RELAXED);
        }
        publish_in_flight(number, larger_of(ahead, 0) + (int64_t)cost, now);
    }
    return true;
}

bool aliquot_compute_waits_for_turn(int number) {
    const struct terms terms = terms_of(number, aliquot_os_clock());
    return waits_for_turn(&terms);
}

bool aliquot_compute_launches_in_bursts(int number) {
    const struct terms terms = terms_of(number, aliquot_os_clock());
    return terms.takes_turns && terms.turn_left == INT64_MAX && terms.borrowed == 0;
}

bool aliquot_compute_has_little_in_flight(int number) {
    const struct terms terms = terms_of(number, aliquot_os_clock_coarse());
    return terms.takes_turns || terms.borrowed > 0;
}

int64_t aliquot_compute_room(int number) {
    const struct gpu_limit *limit = &gpu_limits[number];
    const struct terms terms = terms_of(number, aliquot_os_clock());
    if (waits_for_turn(&terms)) {
        return 0;
    }
    if (terms.own == 0 || terms.own >= ALIQUOT_GCRA_WHOLE_GPU || terms.borrowed >= ALIQUOT_GCRA_WHOLE_GPU) {
        return INT64_MAX;
    }
    int64_t own = aliquot_gcra_room(__atomic_load_n(&limit->own_tat, __ATOMIC_RELAXED), terms.own, terms.now);
    int64_t containers = aliquot_gcra_room(__atomic_load_n(&terms.region->tat, __ATOMIC_RELAXED), terms.own, terms.now);
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
    const struct terms terms = terms_of(number, aliquot_os_clock_coarse());
    int64_t part = atomic_load_explicit(&limit->borrowed_part, memory_order_relaxed);
    int64_t borrowed = difference / 1000 * part / (ALIQUOT_GCRA_WHOLE_GPU / 1000);
    adjust_both(&limit->own_tat, &terms.region->tat, terms.own, difference - borrowed, terms.now);
    adjust_both(&limit->borrowed_tat, &terms.region->borrowed_tat, terms.borrowed, borrowed, terms.now);
}

/* If the full price were charged at once, two ranks would hold each other back more and more: while one is held back,
   its peer's kernel waits and is charged, so that the peer is held back longer the next time, and the rank waits. With
   a share r each difference would grow to (1 / r - 1) times itself. Without earnings for as long as it waited, a rank
   is as late as its peer. */
void aliquot_compute_charge_waiting(int number, uint64_t nanoseconds) {
    uint32_t share = terms_of(number, aliquot_os_clock_coarse()).own;
    if (share != 0 && share < ALIQUOT_GCRA_WHOLE_GPU) {
        int64_t now = aliquot_gcra_earned((int64_t)nanoseconds, share);
        aliquot_compute_adjust(number, now);
        atomic_fetch_add(&gpu_limits[number].owed, (int64_t)nanoseconds - now);
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
    int slot = aliquot_shared_slot();
    if (slot >= 0) {
        /* Adds to own_used first, so that the GPU time of other processes is never overestimated (has_active_peers). */
        atomic_fetch_add_explicit(&gpu_limits[number].own_used, nanoseconds, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        const struct aliquot_share share = aliquot_account_share(number);
        aliquot_usage_charge(share.region, &share.charges[slot], nanoseconds, aliquot_os_clock_coarse());
    }
}

void aliquot_compute_record_queued(int number) {
    __atomic_store_n(&region_of(number)->queued, (uint64_t)aliquot_os_clock(), __ATOMIC_RELAXED);
}

void aliquot_compute_add_throttled(int number, int64_t nanoseconds) {
    __atomic_fetch_add(&region_of(number)->throttled, (uint64_t)nanoseconds, __ATOMIC_RELAXED);
}

void aliquot_compute_add_busy(int number, int64_t nanoseconds) {
    __atomic_fetch_add(&region_of(number)->busy, (uint64_t)nanoseconds, __ATOMIC_RELAXED);
}

uint64_t aliquot_compute_add_unfinished(int number, int64_t nanoseconds) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t now = aliquot_os_clock(), ahead = atomic_load_explicit(&limit->busy_until, memory_order_relaxed) - now;
    int64_t before = atomic_fetch_add_explicit(&limit->unfinished, nanoseconds, memory_order_relaxed);
    publish_in_flight(number, larger_of(ahead, before + nanoseconds), now);
    return atomic_load_explicit(&limit->launched, memory_order_relaxed);
}

void aliquot_compute_finished(int number, uint64_t nanoseconds, uint64_t launched) {
    struct gpu_limit *limit = &gpu_limits[number];
    int64_t charged = (int64_t)nanoseconds;
    int64_t later = (int64_t)(atomic_load_explicit(&limit->launched, memory_order_relaxed) - launched);
    int64_t unfinished = atomic_fetch_sub_explicit(&limit->unfinished, charged, memory_order_relaxed) - charged;
    publish_in_flight(number, larger_of(later, unfinished), aliquot_os_clock());
}

/* Other processes of this container share the GPU in time slices just as other containers do. */
static bool has_active_peers(int number, int64_t now) {
    struct gpu_limit *limit = &gpu_limits[number];
    uint64_t all = __atomic_load_n(&region_of(number)->gpu_time, __ATOMIC_ACQUIRE);
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
    uint64_t active = __atomic_load_n(&aliquot_account_agent(number)->active, __ATOMIC_RELAXED);
    bool peers = has_active_peers(number, now);
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
