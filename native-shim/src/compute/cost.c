#include "compute/cost.h"

#include "os/fork.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define ENTRIES 4096 /* a power of two; 256 KiB of zeroed memory, not resident until used */
#define TRIES_MAX 8  /* entries in which a key may be */
#define KERNEL_GUESS_NS 50000
#define GRAPH_GUESS_NS 500000
#define GUESS_DOUBLINGS_MAX 9
#define LEAST_WINDOW_SAMPLES 16 /* samples per minimum */
#define MEAN_SAMPLES_MAX 12     /* a sample's weight in a mean is at least 1/12 */
#define NEAR_LEAST_DIVISOR 12   /* a sample is near the minimum if it is at most 1/12 above it */

/* An entry fills one cache line, because a launch after other work pays for each cache line that it touches. */
struct aliquot_cost {
    _Alignas(64) _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t launch;           /* ns to charge for a launch; the guess while there are no samples */
    _Atomic uint32_t samples;          /* saturates, like exact */
    _Atomic uint32_t exact;            /* number of exact samples */
    _Atomic uint32_t guessed;          /* launches that were charged a guess */
    _Atomic uint16_t in_window;
    _Atomic uint8_t waits;   /* enum aliquot_cost_waits */
    _Atomic uint8_t inexact; /* upper bounds since the last other sample, at most LEAST_WINDOW_SAMPLES */
    _Atomic uint64_t mean;   /* of the exact samples and estimates */
    _Atomic uint64_t close;  /* mean of the samples near the minimum */
    _Atomic uint64_t least, least_before;
};
_Static_assert(sizeof(struct aliquot_cost) == 64, "an entry is a cache line");

static struct aliquot_cost table[ENTRIES];
static atomic_bool any_entry; /* false: the table is all zeros */

static uint64_t mix_hash(uint64_t x) {
    /* The finalizer of SplitMix64 (Steele, Lea and Flood, 2014). */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Size class of a grid, in steps of a quarter of an octave. */
static uint64_t grid_size_class(uint64_t blocks) {
    if (blocks < 8) {
        return blocks;
    }
    unsigned octave = 63 - (unsigned)__builtin_clzll(blocks);
    return octave * 4 + (blocks >> (octave - 2) & 3);
}

enum aliquot_cost_waits aliquot_cost_waits(const struct aliquot_cost *cost) {
    return (enum aliquot_cost_waits)atomic_load_explicit(&cost->waits, memory_order_relaxed);
}

void aliquot_cost_set_waits(struct aliquot_cost *cost, enum aliquot_cost_waits waits) {
    atomic_store_explicit(&cost->waits, (uint8_t)waits, memory_order_relaxed);
}

static void reset_entry(struct aliquot_cost *cost, enum aliquot_cost_kind kind) {
    atomic_store_explicit(&cost->launch, kind == ALIQUOT_COST_GRAPH ? GRAPH_GUESS_NS : KERNEL_GUESS_NS,
                          memory_order_relaxed);
    atomic_store_explicit(&cost->guessed, 0, memory_order_relaxed);
    atomic_store_explicit(&cost->samples, 0, memory_order_relaxed);
    cost->exact = 0;
    cost->in_window = 0;
    aliquot_cost_set_waits(cost, kind == ALIQUOT_COST_COLLECTIVE ? ALIQUOT_WAITS
                                 : kind == ALIQUOT_COST_GRAPH    ? ALIQUOT_WAITS_NOT
                                                                 : ALIQUOT_WAITS_UNSAID);
}

static __attribute__((noinline, cold)) struct aliquot_cost *claim_entry(uint64_t key, enum aliquot_cost_kind kind) {
    atomic_store(&any_entry, true);
    for (uint64_t i = 0; i < TRIES_MAX; i++) {
        struct aliquot_cost *cost = &table[(key + i) % ENTRIES];
        uint64_t found = 0;
        if (atomic_load_explicit(&cost->key, memory_order_relaxed) == 0) {
            reset_entry(cost, kind);
            if (atomic_compare_exchange_strong(&cost->key, &found, key) || found == key) {
                return cost;
            }
        }
    }
    struct aliquot_cost *cost = &table[(key + (key >> 32) % TRIES_MAX) % ENTRIES];
    reset_entry(cost, kind);
    atomic_store(&cost->key, key);
    return cost;
}

struct aliquot_cost *aliquot_cost_of(enum aliquot_cost_kind kind, const void *handle, uint64_t blocks) {
    uint64_t key = mix_hash((uint64_t)(uintptr_t)handle * 2 + kind + (grid_size_class(blocks) << 48)) | 1;
    for (uint64_t i = 0; i < TRIES_MAX; i++) {
        struct aliquot_cost *cost = &table[(key + i) % ENTRIES];
        uint64_t found = atomic_load_explicit(&cost->key, memory_order_relaxed);
        if (found == key) {
            return cost;
        }
        if (found == 0) {
            break;
        }
    }
    return claim_entry(key, kind);
}

_Bool aliquot_cost_is_guess(const struct aliquot_cost *cost) {
    return atomic_load_explicit(&cost->samples, memory_order_relaxed) == 0;
}

void aliquot_cost_reset_guess(struct aliquot_cost *cost) {
    atomic_store_explicit(&cost->guessed, 0, memory_order_relaxed);
}

uint64_t aliquot_cost_next(struct aliquot_cost *cost) {
    uint64_t launch = atomic_load_explicit(&cost->launch, memory_order_relaxed);
    if (__builtin_expect(!aliquot_cost_is_guess(cost), 1)) {
        return launch;
    }
    uint32_t guessed = atomic_fetch_add_explicit(&cost->guessed, 1, memory_order_relaxed);
    return launch << (guessed < GUESS_DOUBLINGS_MAX ? guessed : GUESS_DOUBLINGS_MAX);
}

static uint64_t expected_cost(const struct aliquot_cost_part *part) {
    return part->launches * atomic_load_explicit(&part->cost->launch, memory_order_relaxed);
}

/* Moves a mean towards a sample. Rounds to nearest, so that it converges. */
static uint64_t move_mean(uint64_t mean, uint64_t sample, double part) {
    double moved = (double)mean + ((double)sample - (double)mean) * part;
    return moved < 1 ? 1 : (uint64_t)(moved + 0.5);
}

static uint32_t increment_saturating(uint32_t count) {
    return count < UINT32_MAX ? count + 1 : count;
}

static double sample_weight(uint32_t samples, double weight) {
    return weight / (samples < MEAN_SAMPLES_MAX ? samples + 1 : MEAN_SAMPLES_MAX);
}

static uint64_t least_of(const struct aliquot_cost *cost) {
    return cost->least < cost->least_before ? cost->least : cost->least_before;
}

static void add_exact_sample(struct aliquot_cost *cost, uint64_t sample, double weight, bool estimated) {
    uint64_t mean = cost->exact == 0 ? sample : move_mean(cost->mean, sample, sample_weight(cost->exact, weight));
    cost->mean = estimated && least_of(cost) < mean ? least_of(cost) : mean;
    cost->exact = increment_saturating(cost->exact);
    cost->inexact = 0;
    cost->in_window = estimated ? cost->in_window : 0; /* upper bounds count from here on */
}

static void add_upper_bound(struct aliquot_cost *cost, uint64_t sample, double weight) {
    if (cost->in_window == 0) {
        cost->close = cost->least = cost->least_before = sample;
    }
    if (++cost->in_window > LEAST_WINDOW_SAMPLES) {
        cost->least_before = cost->least;
        cost->least = sample;
        cost->in_window = 1;
    }
    cost->least = sample < cost->least ? sample : cost->least;
    uint64_t least = least_of(cost);
    uint64_t bound = least + least / NEAR_LEAST_DIVISOR;
    if (cost->close > bound || cost->close < least) {
        cost->close = least;
    }
    if (sample <= bound) {
        cost->close = move_mean(cost->close, sample, sample_weight(MEAN_SAMPLES_MAX, weight));
    }
    cost->inexact += cost->inexact < LEAST_WINDOW_SAMPLES;
    if (cost->inexact == LEAST_WINDOW_SAMPLES && cost->exact > 0) {
        cost->mean = cost->close; /* the exact samples are old, and may have been wrong */
    }
}

/* weight: these launches' part of the batch, 0 to 1. */
static void add_sample(struct aliquot_cost *cost, uint64_t sample, double weight, enum aliquot_cost_quality quality) {
    if (quality <= ALIQUOT_COST_ESTIMATED) {
        add_exact_sample(cost, sample, weight, quality == ALIQUOT_COST_ESTIMATED);
    } else {
        add_upper_bound(cost, sample, weight);
    }
    uint64_t launch = cost->exact > 0 ? cost->mean : cost->close;
    if (quality == ALIQUOT_COST_GAPS && sample < launch) {
        launch = sample; /* the sample is an upper bound */
        cost->mean = sample;
    }
    atomic_store_explicit(&cost->launch, launch > 0 ? launch : 1, memory_order_relaxed);
    uint32_t samples = atomic_load_explicit(&cost->samples, memory_order_relaxed);
    atomic_store_explicit(&cost->samples, increment_saturating(samples), memory_order_relaxed);
}

uint64_t aliquot_cost_learn(const struct aliquot_cost_part *parts, size_t count, uint64_t measured,
                            enum aliquot_cost_quality quality) {
    uint64_t known = 0, guessed = 0, new_launches = 0;
    for (size_t i = 0; i < count; i++) {
        bool guess = aliquot_cost_is_guess(parts[i].cost);
        *(guess ? &guessed : &known) += expected_cost(&parts[i]);
        new_launches += guess ? parts[i].launches : 0;
    }
    double ratio = known == 0 ? 1 : (double)measured / (double)known;
    for (size_t i = 0; i < count; i++) {
        struct aliquot_cost *cost = parts[i].cost;
        if (new_launches > 0 && aliquot_cost_is_guess(cost)) {
            /* New launches get what the known costs do not explain, but at least a quarter of their expected part. */
            uint64_t least = (uint64_t)((double)measured / 4 * (double)guessed / (double)(known + guessed));
            uint64_t rest = measured > known + least ? measured - known : least;
            add_sample(cost, rest / new_launches, 1, quality);
        } else if (new_launches == 0 && (quality != ALIQUOT_COST_GAPS || ratio < 1)) {
            uint64_t launch = atomic_load_explicit(&cost->launch, memory_order_relaxed);
            add_sample(cost, (uint64_t)((double)launch * ratio), (double)expected_cost(&parts[i]) / (double)known,
                       quality);
        }
    }
    if (quality == ALIQUOT_COST_EXACT) {
        return measured;
    }
    uint64_t charge_due = 0;
    for (size_t i = 0; i < count; i++) {
        charge_due += expected_cost(&parts[i]);
    }
    return charge_due < measured || quality == ALIQUOT_COST_ESTIMATED ? charge_due : measured;
}

size_t aliquot_cost_list(struct aliquot_cost_figures *figures, size_t max) {
    size_t count = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct aliquot_cost *cost = &table[i];
        if (cost->key == 0 || aliquot_cost_is_guess(cost)) {
            continue;
        }
        size_t at = count < max ? count++ : max;
        /* Insertion into the list sorted by samples; the last one falls out of a full list. */
        for (; at > 0 && figures[at - 1].samples < cost->samples; at--) {
            if (at < max) {
                figures[at] = figures[at - 1];
            }
        }
        if (at < max) {
            figures[at] = (struct aliquot_cost_figures){cost->launch, cost->samples, cost->exact,
                                                        cost->in_window == 0 ? 0 : cost->least};
        }
    }
    return count;
}

/* In a forked child a handle may mean another function. */
static void reset_costs(void) {
    if (atomic_exchange(&any_entry, false)) { /* else the fork would write 256 KiB for nothing */
        memset(table, 0, sizeof table);
    }
}

ALIQUOT_AFTER_FORK(reset_costs);
