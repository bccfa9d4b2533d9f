#include "compute/gcra.h"

#include "os/agent_file.h"
#include "os/os.h"

static uint32_t smaller_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

uint32_t aliquot_gcra_share(uint32_t fixed, uint64_t grant, int64_t now) {
    uint32_t share = fixed;
    if (aliquot_agent_is_fresh(grant, now, ALIQUOT_GCRA_GRANT_MAX_AGE_NS)) {
        share = smaller_of(ALIQUOT_GRANT_SHARE(grant), fixed);
    }
    return grant != 0 && share < ALIQUOT_GCRA_SHARE_MIN ? ALIQUOT_GCRA_SHARE_MIN : share;
}

uint32_t aliquot_gcra_borrowed(enum aliquot_policy policy, uint64_t borrowed, int64_t now) {
    bool valid =
        policy == ALIQUOT_POLICY_ELASTIC && aliquot_agent_is_fresh(borrowed, now, ALIQUOT_GCRA_BORROWED_MAX_AGE_NS);
    uint32_t share = valid ? smaller_of(ALIQUOT_GRANT_SHARE(borrowed), ALIQUOT_GCRA_WHOLE_GPU) : 0;
    return share < ALIQUOT_GCRA_SHARE_MIN ? 0 : share;
}

/* More is never charged or returned at once, and a word that is further ahead is not of charges. */
#define CHARGE_MAX_NS INT64_C(20000000000)

/* Time in which a share earns a cost. */
static int64_t earning(uint64_t cost, uint32_t share) {
    ALIQUOT_INVARIANT(share > 0); /* arm64 divides by zero without a signal, and what was charged would cost nothing */
    int64_t time = (int64_t)(cost * ALIQUOT_GCRA_WHOLE_GPU / share);
    return time < CHARGE_MAX_NS ? time : CHARGE_MAX_NS;
}

/* Time in the word, with credit and debt bounded, whatever was written into it. */
static int64_t bounded(uint64_t word, uint32_t share, int64_t now) {
    int64_t least = now - earning(ALIQUOT_GCRA_BURST_NS, share);
    int64_t most = now + ALIQUOT_GCRA_WAIT_MAX_NS;
    if (word > INT64_MAX) {
        return most;
    }
    int64_t time = (int64_t)word;
    return time < least ? least : time > most ? most : time;
}

bool aliquot_gcra_try_charge(uint64_t *word, uint32_t share, uint64_t cost, int64_t debt, int64_t now, int64_t *until) {
    uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    int64_t time;
    do {
        time = bounded(found, share, now);
        if (time - now > ALIQUOT_GCRA_BURST_NS + debt) {
            *until = time - ALIQUOT_GCRA_BURST_NS - debt;
            return false;
        }
    } while (!__atomic_compare_exchange_n(word, &found, (uint64_t)(time + earning(cost, share)), true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

int64_t aliquot_gcra_earned(int64_t time, uint32_t share) {
    return time / 1000 * share / (ALIQUOT_GCRA_WHOLE_GPU / 1000);
}

int64_t aliquot_gcra_room(uint64_t word, uint32_t share, int64_t now) {
    return aliquot_gcra_earned(now + ALIQUOT_GCRA_BURST_NS - bounded(word, share, now), share);
}

void aliquot_gcra_adjust(uint64_t *word, uint32_t share, int64_t cost, int64_t now) {
    int64_t change = cost < 0 ? -earning((uint64_t)-cost, share) : earning((uint64_t)cost, share);
    uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    int64_t time;
    do {
        /* A charge can be larger than the largest debt. If it were cut to that, returning it would leave credit. */
        bool ahead = found > (uint64_t)(now + ALIQUOT_GCRA_WAIT_MAX_NS) &&
                     found < (uint64_t)(now + ALIQUOT_GCRA_WAIT_MAX_NS + CHARGE_MAX_NS);
        time = ahead ? (int64_t)found : bounded(found, share, now);
        int64_t most = ahead ? time : now + ALIQUOT_GCRA_WAIT_MAX_NS;
        time = time + change < most ? time + change : most;
        time = time < 0 ? 0 : time;
    } while (!__atomic_compare_exchange_n(word, &found, (uint64_t)time, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
