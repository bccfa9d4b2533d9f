#include "limits/account.h"

#include "os/agent_file.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/shared.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define RESERVE_RETRIES 3
#define RETRY_BACKOFF_NS 20000        /* doubled from retry to retry */
#define DECISION_TIMEOUT_NS 500000000 /* before a refusal, longest wait for undecided threads */
#define DECISION_POLL_NS 20000

struct account {
    /* What this process holds. It is private memory, so that no write to the region lets one process exceed the
       limit by itself. It and the word of this process change under the lock: the threads decide one at a time, so
       an allocation pays for a single memory barrier. */
    _Alignas(64) struct aliquot_lock lock;
    uint32_t undecided; /* threads between aliquot_account_reserve() and aliquot_account_decided() */
    _Atomic uint64_t own_bytes;
    _Atomic uint64_t limit, context_bytes;
    atomic_uint cores, policy;
    struct aliquot_charge *charges;         /* in the region, by process slot */
    _Atomic(const uint64_t *) unattributed; /* in agent's entry; in aliquot_agent_nothing if the entry is too old */
    _Atomic(const struct aliquot_agent_device *) agent;
    struct aliquot_device *region;
    uint8_t uuid[16];
};

static struct account accounts[ALIQUOT_LIMITS_VGPUS_MAX];
static atomic_int account_count;
static atomic_int limited_devices; /* whose GPU time is limited */
int aliquot_account_compute = ALIQUOT_COMPUTE_UNKNOWN;

int aliquot_account_device(const uint8_t uuid[16]) {
    int count = atomic_load_explicit(&account_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        if (memcmp(accounts[i].uuid, uuid, sizeof accounts[i].uuid) == 0) {
            return i;
        }
    }
    return -1;
}

static void apply_limits(struct account *account, const struct aliquot_vgpu *vgpu) {
    atomic_store(&account->limit, vgpu->memory);
    atomic_store(&account->context_bytes, vgpu->context_bytes);
    atomic_store_explicit(&account->policy, (unsigned)vgpu->policy, memory_order_relaxed);
    atomic_store_explicit(&account->cores, vgpu->policy == ALIQUOT_POLICY_NONE ? 0 : vgpu->cores, memory_order_release);
}

static void follow_agent(struct account *account, int64_t now) {
    const struct aliquot_agent_device *agent = aliquot_agent_device(account->uuid);
    bool counts = aliquot_agent_is_current(agent, now);
    atomic_store_explicit(&account->agent, agent, memory_order_release);
    atomic_store_explicit(&account->unattributed, &(counts ? agent : &aliquot_agent_nothing)->unattributed,
                          memory_order_release);
}

void aliquot_account_follow_agent(void) {
    int count = atomic_load_explicit(&account_count, memory_order_acquire);
    int64_t now = aliquot_os_clock_coarse();
    for (int i = 0; i < count; i++) {
        follow_agent(&accounts[i], now);
    }
}

static bool add_account(const struct aliquot_vgpu *vgpu, char *error) {
    int place = aliquot_shared_device(vgpu->uuid);
    int count = atomic_load(&account_count);
    if (place < 0 || count == ALIQUOT_LIMITS_VGPUS_MAX) {
        snprintf(error, ALIQUOT_LIMITS_ERROR, "the region has no free entry for a GPU; it has %d entries",
                 ALIQUOT_REGION_DEVICES);
        return false;
    }
    struct account *account = &accounts[count];
    memcpy(account->uuid, vgpu->uuid, sizeof account->uuid);
    account->region = &aliquot_shared_region()->device[place];
    account->charges = aliquot_shared_region()->charge[place];
    atomic_store(&account->own_bytes, 0);
    follow_agent(account, aliquot_os_clock());
    account->undecided = 0;
    aliquot_unlock(&account->lock); /* a thread of the parent may have held it at the fork */
    apply_limits(account, vgpu);
    atomic_store_explicit(&account_count, count + 1, memory_order_release);
    return true;
}

bool aliquot_account_set_limits(const struct aliquot_limits *limits, char error[ALIQUOT_LIMITS_ERROR]) {
    bool complete = true;
    int limited = 0;
    for (size_t i = 0; i < limits->count; i++) {
        int known = aliquot_account_device(limits->vgpu[i].uuid);
        if (known >= 0) {
            apply_limits(&accounts[known], &limits->vgpu[i]);
        } else {
            complete &= add_account(&limits->vgpu[i], error);
        }
    }
    int count = atomic_load(&account_count);
    for (int device = 0; device < count; device++) {
        bool named = false;
        for (size_t i = 0; i < limits->count; i++) {
            named |= memcmp(accounts[device].uuid, limits->vgpu[i].uuid, sizeof accounts[device].uuid) == 0;
        }
        if (!named) {
            atomic_store(&accounts[device].limit, 0);
        }
        limited += named && aliquot_account_is_compute_limited(device);
    }
    atomic_store_explicit(&limited_devices, limited, memory_order_relaxed);
    __atomic_store_n(&aliquot_account_compute, limited > 0 ? ALIQUOT_COMPUTE_LIMITED : ALIQUOT_COMPUTE_FREE,
                     __ATOMIC_RELEASE);
    return complete;
}

bool aliquot_account_computes_on_several(void) {
    return atomic_load_explicit(&limited_devices, memory_order_relaxed) > 1;
}

bool aliquot_account_is_compute_limited(int device) {
    return device >= 0 &&
           (atomic_load_explicit(&accounts[device].cores, memory_order_acquire) != 0 ||
            atomic_load_explicit(&accounts[device].policy, memory_order_relaxed) == ALIQUOT_POLICY_ELASTIC);
}

struct aliquot_share aliquot_account_share(int number) {
    struct account *account = &accounts[number];
    return (struct aliquot_share){
        .cores = atomic_load_explicit(&account->cores, memory_order_relaxed),
        .policy = (enum aliquot_policy)atomic_load_explicit(&account->policy, memory_order_relaxed),
        .context_bytes = atomic_load_explicit(&account->context_bytes, memory_order_relaxed),
        .region = account->region,
        .charges = account->charges,
    };
}

const struct aliquot_agent_device *aliquot_account_agent(int device) {
    return atomic_load_explicit(&accounts[device].agent, memory_order_acquire);
}

uint64_t aliquot_account_limit(int device) {
    return atomic_load_explicit(&accounts[device].limit, memory_order_relaxed);
}

static uint64_t charged_bytes(const struct aliquot_charge *charge) {
    return __atomic_load_n(&charge->word, __ATOMIC_SEQ_CST) & ALIQUOT_CHARGE_BYTES;
}

static uint64_t unattributed_bytes(const struct account *account) {
    const uint64_t *word = atomic_load_explicit(&account->unattributed, memory_order_acquire);
    return __atomic_load_n(word, __ATOMIC_RELAXED) & ALIQUOT_CHARGE_BYTES;
}

/* What other processes hold, plus what the node agent could not attribute. Cannot overflow: at most 513 values of 52
   bits. */
static uint64_t bytes_of_others(const struct account *account, int own_slot) {
    int high_water = (int)aliquot_shared_high_water();
    uint64_t sum = unattributed_bytes(account);
    int before = own_slot < 0 || own_slot > high_water ? high_water : own_slot;
    for (int i = 0; i < before; i++) {
        sum += charged_bytes(&account->charges[i]);
    }
    for (int i = before + 1; i < high_water; i++) {
        sum += charged_bytes(&account->charges[i]);
    }
    return sum;
}

uint64_t aliquot_account_used(int device) {
    int own_slot = aliquot_shared_slot_if_any();
    return atomic_load(&accounts[device].own_bytes) + bytes_of_others(&accounts[device], own_slot);
}

static uint64_t charge_word(const struct account *account, uint64_t own_bytes) {
    return (own_bytes & ALIQUOT_CHARGE_BYTES) + account->undecided * ALIQUOT_CHARGE_UNDECIDED;
}

/* This process's word for a device. Requires that the process has a slot. */
static struct aliquot_charge *own_charge(const struct account *account) {
    int own_slot = aliquot_shared_slot_if_any();
    ALIQUOT_INVARIANT(own_slot >= 0 && own_slot < ALIQUOT_REGION_PROCESSES);
    return &account->charges[own_slot];
}

/* Requires the lock. No barrier: if another process sees the lower value late, it only refuses or retries later than
   necessary. */
static void store_own_bytes(struct account *account, struct aliquot_charge *charge, uint64_t own_bytes) {
    atomic_store_explicit(&account->own_bytes, own_bytes, memory_order_relaxed);
    __atomic_store_n(&charge->word, charge_word(account, own_bytes), __ATOMIC_RELEASE);
    if (own_bytes > __atomic_load_n(&charge->peak, __ATOMIC_RELAXED)) {
        __atomic_store_n(&charge->peak, own_bytes, __ATOMIC_RELAXED);
    }
}

/* undecided: the thread stays so. That is published in the same word as the bytes. */
static bool try_reserve(struct account *account, int own_slot, uint64_t bytes, bool undecided) {
    struct aliquot_charge *charge = &account->charges[own_slot];
    aliquot_lock(&account->lock);
    uint64_t held = atomic_load_explicit(&account->own_bytes, memory_order_relaxed), own_bytes = held + bytes;
    /* Memory barrier: this process publishes its word before it reads the others. */
    __atomic_exchange_n(&charge->word, charge_word(account, own_bytes) + ALIQUOT_CHARGE_UNDECIDED, __ATOMIC_SEQ_CST);
    bool fits =
        own_bytes + bytes_of_others(account, own_slot) <= atomic_load_explicit(&account->limit, memory_order_relaxed);
    account->undecided += fits && undecided;
    store_own_bytes(account, charge, fits ? own_bytes : held);
    aliquot_unlock(&account->lock);
    return fits;
}

struct charge_sum {
    uint64_t bytes;
    uint64_t undecided; /* threads */
};

static struct charge_sum sum_charges(const struct account *account) {
    struct charge_sum sum = {unattributed_bytes(account), 0};
    int high_water = (int)aliquot_shared_high_water();
    for (int i = 0; i < high_water; i++) {
        uint64_t word = __atomic_load_n(&account->charges[i].word, __ATOMIC_SEQ_CST);
        sum.bytes += word & ALIQUOT_CHARGE_BYTES;
        sum.undecided += word / ALIQUOT_CHARGE_UNDECIDED;
    }
    return sum;
}

/* Whether no thread is undecided, so that the words are final. They are read twice: a charge that moves between a
   word not read yet and one already read would be missed or counted twice. For this process, too, the word is read
   and not own_bytes, because only in the word do bytes and undecided threads change together. */
static bool is_settled(const struct account *account, uint64_t *bytes) {
    struct charge_sum first = sum_charges(account);
    struct charge_sum second = sum_charges(account);
    *bytes = second.bytes;
    return first.undecided == 0 && second.undecided == 0 && first.bytes == second.bytes;
}

/* Requires the decision lock, or the expiry of the wait for it. Undecided bytes may be released, so they are no
   reason to refuse before the timeout. */
static bool reserve_exclusively(struct account *account, int own_slot, uint64_t bytes, bool undecided) {
    int64_t deadline = aliquot_os_clock() + DECISION_TIMEOUT_NS;
    do {
        uint64_t settled = 0;
        if (try_reserve(account, own_slot, bytes, undecided)) {
            return true;
        }
        if (is_settled(account, &settled) && settled + bytes > atomic_load(&account->limit)) {
            return false;
        }
        aliquot_os_sleep(DECISION_POLL_NS);
    } while (aliquot_os_clock() < deadline);
    return false;
}

static bool reserve_contended(struct account *account, int own_slot, uint64_t bytes, bool undecided) {
    int saved = errno;
    bool reserved = false;
    for (int i = 0; i < RESERVE_RETRIES && !reserved; i++) {
        aliquot_shared_reap();
        reserved = try_reserve(account, own_slot, bytes, undecided);
        if (!reserved && sum_charges(account).undecided == 0) {
            break; /* no other thread is undecided: decide now */
        }
        if (!reserved) {
            aliquot_os_sleep(RETRY_BACKOFF_NS << i);
        }
    }
    if (!reserved) {
        aliquot_shared_begin_decision();
        reserved = reserve_exclusively(account, own_slot, bytes, undecided);
        aliquot_shared_end_decision();
    }
    errno = saved;
    return reserved;
}

bool aliquot_account_reserve(int device, uint64_t bytes, bool undecided) {
    struct account *account = &accounts[device];
    int own_slot = aliquot_shared_slot();
    if (own_slot < 0 || bytes > aliquot_account_limit(device)) {
        return false; /* can never fit; the check also keeps the sums from overflowing */
    }
    return try_reserve(account, own_slot, bytes, undecided) || reserve_contended(account, own_slot, bytes, undecided);
}

void aliquot_account_count_denied(int device) {
    __atomic_fetch_add(&accounts[device].region->denied, 1, __ATOMIC_RELAXED);
}

bool aliquot_account_may_fit(int device, uint64_t bytes) {
    struct charge_sum sum = sum_charges(&accounts[device]);
    return sum.undecided > 0 || sum.bytes + bytes <= aliquot_account_limit(device);
}

static void change_own_bytes(struct account *account, uint64_t bytes, uint32_t undecided) {
    aliquot_lock(&account->lock);
    account->undecided += undecided;
    ALIQUOT_INVARIANT((int32_t)account->undecided >= 0);
    uint64_t own_bytes = atomic_load_explicit(&account->own_bytes, memory_order_relaxed) + bytes;
    ALIQUOT_INVARIANT(own_bytes <= ALIQUOT_CHARGE_BYTES); /* a release of more than is held wraps around */
    store_own_bytes(account, own_charge(account), own_bytes);
    aliquot_unlock(&account->lock);
}

void aliquot_account_release(int device, uint64_t bytes) {
    change_own_bytes(&accounts[device], -bytes, 0);
}

void aliquot_account_force(int device, uint64_t bytes) {
    change_own_bytes(&accounts[device], bytes, 0);
}

void aliquot_account_decided(int device) {
    change_own_bytes(&accounts[device], 0, (uint32_t)-1);
}

void aliquot_account_set_context_bytes(int device, uint64_t bytes) {
    __atomic_store_n(&own_charge(&accounts[device])->context_bytes, bytes, __ATOMIC_RELAXED);
}

void aliquot_account_reset(void) {
    atomic_store(&account_count, 0);
    __atomic_store_n(&aliquot_account_compute, ALIQUOT_COMPUTE_UNKNOWN, __ATOMIC_RELEASE);
}
