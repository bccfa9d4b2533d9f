/*
 * Crash safety: any process may be killed at any instruction. Only its own process writes a ring, and `tail` covers an
 * entry only once the entry is complete. The simulation changes either a word that gets the same value when the change
 * is repeated (an entry's place in its queue, a completion time) or the inactive one of two turns, which a single store
 * makes current after every event. A process that dies in the simulation therefore leaves at most one event partly
 * applied, and the next simulation step repeats it: a work item may then complete a few microseconds early, and no work
 * is lost or stuck.
 */
#define _GNU_SOURCE
#include "gpu_file_internal.h"
#include "gpu_profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    JITTER_PERCENT = 3,
    RESIDENT_WARPS = 64, /* on a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications") */
};

#define NEVER UINT64_MAX
#define SECOND UINT64_C(1000000000)
/* Polling interval of a waiting thread for events without a known time: a closed gate, a full ring of short work. */
#define POLL_NS UINT64_C(100000)

uint64_t gpu_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void gpu_sleep_until(uint64_t when) {
    const struct timespec time = {.tv_sec = (time_t)(when / SECOND), .tv_nsec = (long)(when % SECOND)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL); /* after a signal the caller checks again */
}

/* Compiler barrier: a killed process that did any store after this call did all stores before it. */
static void order_stores(void) {
    atomic_signal_fence(memory_order_seq_cst);
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* ---- simulation ---- */

struct simulation {
    gpu_file *gpu;
    struct gpu_schedule *schedule;
    struct gpu_turn turn;
    uint64_t now;
    uint64_t limit; /* a kernel waits for peers: the time up to which they have been simulated, about; else NEVER */
    bool held_back; /* the simulation stopped before now, at the limit */
    int active_slots[GPU_SLOTS]; /* slots that may have work, in ascending order */
    int count;
};

static struct gpu_entry *entry_of(struct gpu_schedule *schedule, int slot, uint64_t number) {
    return &schedule->rings[slot][number % GPU_QUEUE_LENGTH];
}

static void commit(struct simulation *sim) {
    uint32_t next = (atomic_load(&sim->schedule->current) & 1) ^ 1;
    sim->schedule->turns[next] = sim->turn;
    order_stores();
    atomic_store(&sim->schedule->current, next);
}

static bool is_complete(struct gpu_schedule *schedule, int slot, uint64_t number) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    return number < atomic_load(&process->frontier) || number > atomic_load(&process->tail) ||
           atomic_load(&entry_of(schedule, slot, number)->done) != 0;
}

/* Empties the queues of a slot whose process has ended or has just attached. */
static void discard_work(struct gpu_schedule *schedule, int slot) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    uint64_t tail = atomic_load(&process->tail);
    process->busy = 0;
    for (int i = 0; i < GPU_QUEUES; i++) {
        process->queues[i] = (struct gpu_queue){0};
    }
    process->seen = tail;
    atomic_store(&process->frontier, tail + 1);
    atomic_fetch_and(&schedule->active[slot / 64], ~(UINT64_C(1) << slot % 64));
}

static void update_frontier(struct gpu_process_schedule *process) {
    uint64_t oldest = process->seen + 1;
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        uint64_t head = process->queues[__builtin_ctzll(remaining)].head;
        oldest = min_u64(oldest, head);
    }
    atomic_store(&process->frontier, oldest);
}

/* Appends the work that a process has submitted since the last call to its queues. */
static void enqueue_submitted(struct gpu_schedule *schedule, int slot) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    uint64_t tail = atomic_load_explicit(&process->tail, memory_order_acquire);
    if (tail < process->seen || tail - process->seen > GPU_QUEUE_LENGTH) { /* corrupt: the driver never writes that */
        discard_work(schedule, slot);
        return;
    }
    while (process->seen < tail) {
        uint64_t number = process->seen + 1;
        unsigned index = entry_of(schedule, slot, number)->queue % GPU_QUEUES;
        struct gpu_queue *queue = &process->queues[index];
        if (queue->head != 0 && queue->last < number) {
            entry_of(schedule, slot, queue->last)->next = number;
        }
        order_stores();
        queue->last = number;
        order_stores();
        if (queue->head == 0) {
            queue->head = number;
        }
        process->busy |= UINT64_C(1) << index;
        order_stores();
        process->seen = number;
    }
    /* Clears bits of empty queues that a process killed in complete_head has left set. */
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        if (process->queues[__builtin_ctzll(remaining)].head == 0) {
            process->busy &= ~(remaining & -remaining);
        }
    }
}

static void complete_head(struct gpu_schedule *schedule, int slot, unsigned index, uint64_t when) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    struct gpu_queue *queue = &process->queues[index];
    struct gpu_entry *entry = entry_of(schedule, slot, queue->head);
    uint64_t next = queue->head != queue->last ? entry->next : 0;
    if (entry->sms != 0 && atomic_load(&entry->done) == 0) {
        process->work_ns += atomic_load(&entry->ns) * entry->sms;
    }
    atomic_store(&entry->done, when);
    if (next <= queue->head || next > process->seen) {
        queue->head = 0;
        order_stores();
        process->busy &= ~(UINT64_C(1) << index);
    } else {
        queue->head = next;
    }
    update_frontier(process);
}

/* ---- collectives ---- */

/* The GPUs that this process has open. The mutex is held during every simulation, because it looks at the others. */
static pthread_mutex_t open_gpus_mutex = PTHREAD_MUTEX_INITIALIZER; /* after submit_mutex, before simulation_mutex */
static gpu_file *open_gpus[2 * GPU_MAX_PER_NODE];
static int open_gpu_count;

static bool is_same_gpu(const gpu_file *a, const gpu_file *b) {
    return strcmp(a->identity.uuid, b->identity.uuid) == 0;
}

/* When the kernel of a collective started on a GPU; NEVER if it has not. */
static uint64_t collective_start(const gpu_file *gpu, uint64_t name) {
    struct gpu_collective_starts *collectives = gpu->collectives;
    uint64_t count = atomic_load(&collectives->count);
    for (uint64_t i = 1; i <= GPU_KEPT_STARTS && i <= count; i++) {
        if (atomic_load(&collectives->starts[(count - i) % GPU_KEPT_STARTS].name) == name) {
            return atomic_load(&collectives->starts[(count - i) % GPU_KEPT_STARTS].at);
        }
    }
    return NEVER;
}

static void add_collective_start(const gpu_file *gpu, uint64_t name, uint64_t at) {
    struct gpu_collective_starts *collectives = gpu->collectives;
    uint64_t count = atomic_load(&collectives->count);
    if (collective_start(gpu, name) != NEVER) {
        return;
    }
    atomic_store(&collectives->starts[count % GPU_KEPT_STARTS].name, 0);
    atomic_store(&collectives->starts[count % GPU_KEPT_STARTS].at, at);
    atomic_store(&collectives->starts[count % GPU_KEPT_STARTS].name, name);
    atomic_store(&collectives->count, count + 1);
}

/* When the kernels of all ranks have started; NEVER if one has not. Then *limit becomes the time up to which the GPUs
   without one have been simulated, plus GPU_AHEAD_NS, if that is earlier. */
static uint64_t all_started(const gpu_file *gpu, uint64_t name, uint64_t *limit) {
    uint64_t last = 0;
    unsigned missing = (unsigned)(name & 255) - 1;
    for (int i = 0; i < open_gpu_count && missing > 0; i++) {
        uint64_t start = NEVER;
        if (!is_same_gpu(open_gpus[i], gpu)) {
            start = collective_start(open_gpus[i], name);
        }
        if (start != NEVER) {
            last = max_u64(last, start);
            missing--;
        }
    }
    for (int i = 0; i < open_gpu_count && missing > 0; i++) {
        const struct gpu_schedule *peer = open_gpus[i]->schedule;
        if (!is_same_gpu(open_gpus[i], gpu) && collective_start(open_gpus[i], name) == NEVER) {
            uint64_t clock = __atomic_load_n(&peer->turns[atomic_load(&peer->current) & 1].clock, __ATOMIC_RELAXED);
            *limit = min_u64(*limit, clock + GPU_AHEAD_NS);
        }
    }
    return missing == 0 ? last : NEVER;
}

static bool is_running(const struct gpu_queue *queue) {
    return queue->head != 0 && queue->started == queue->head;
}

/* Whether a kernel waits on the GPU for the kernels of its peers. */
static bool waits_for_peers(const struct gpu_queue *queue) {
    return is_running(queue) && queue->finish == NEVER;
}

/* Sets when those kernels end whose peers have all started by now. */
static void end_waits(struct simulation *sim, int slot) {
    struct gpu_process_schedule *process = &sim->schedule->processes[slot];
    sim->limit = NEVER;
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        struct gpu_queue *queue = &process->queues[__builtin_ctzll(remaining)];
        if (!waits_for_peers(queue)) {
            continue;
        }
        const struct gpu_entry *entry = entry_of(sim->schedule, slot, queue->head);
        uint64_t limit = NEVER, met = all_started(sim->gpu, entry->after[0], &limit);
        if (met <= sim->turn.clock) {
            queue->finish = sim->turn.service + atomic_load(&entry->ns);
        } else {
            sim->limit = min_u64(sim->limit, min_u64(met, limit));
        }
    }
}

/* ---- one GPU ---- */

/* The earliest known time at which the head of a queue can start; NEVER while it depends on incomplete work. */
static uint64_t ready_time(struct gpu_schedule *schedule, int slot, unsigned index) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    uint64_t head = process->queues[index].head;
    struct gpu_entry *entry = entry_of(schedule, slot, head);
    uint64_t time = entry->arrival;
    for (int i = 0; i < 2; i++) {
        if (((entry->flags & GPU_WORK_COLLECTIVE) == 0 || i > 0) && entry->after[i] < head &&
            !is_complete(schedule, slot, entry->after[i])) {
            return NEVER;
        }
    }
    if ((entry->flags & GPU_WORK_BARRIER) != 0) {
        uint64_t others = process->busy & ((UINT64_C(1) << GPU_BARRIER_QUEUES) - 1);
        for (; others != 0; others &= others - 1) {
            if (process->queues[__builtin_ctzll(others)].head < head) {
                return NEVER;
            }
        }
    }
    for (uint64_t others = (entry->flags & GPU_WORK_AFTER_KERNELS) != 0 ? process->busy : 0; others != 0;
         others &= others - 1) {
        uint64_t number = process->queues[__builtin_ctzll(others)].head;
        while (number != 0 && number < head) {
            const struct gpu_entry *other = entry_of(schedule, slot, number);
            if (other->sms != 0) {
                return NEVER;
            }
            number = number != process->queues[__builtin_ctzll(others)].last ? other->next : 0;
        }
    }
    if ((entry->flags & GPU_WORK_GATE) != 0) {
        uint64_t opened = atomic_load(&entry->ns);
        if (opened == 0) {
            return NEVER;
        }
        time = max_u64(time, opened);
    }
    return time;
}

/* The earliest time at which a process can use the GPU; 0 when some of its work runs. */
static uint64_t earliest_use(struct gpu_schedule *schedule, int slot) {
    struct gpu_process_schedule *process = &schedule->processes[slot];
    uint64_t earliest = NEVER;
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        unsigned index = (unsigned)__builtin_ctzll(remaining);
        if (is_running(&process->queues[index])) {
            return 0;
        }
        earliest = min_u64(earliest, ready_time(schedule, slot, index));
    }
    return earliest;
}

/* The next process after the slot, in round-robin order, that can run now; -1: no other process can. */
static int next_process(struct simulation *sim, int after) {
    int first = -1;
    for (int i = 0; i < sim->count; i++) {
        int slot = sim->active_slots[i];
        if (slot == after || (first >= 0 && slot < after)) {
            continue;
        }
        if (earliest_use(sim->schedule, slot) > sim->turn.clock) {
            continue;
        }
        if (slot > after) {
            return slot;
        }
        first = slot;
    }
    return first;
}

/* Starts all work that can start in the current turn; completes work of zero duration at once. */
static void start_ready_work(struct simulation *sim, int slot) {
    struct gpu_process_schedule *process = &sim->schedule->processes[slot];
    uint32_t all = sim->gpu->identity.multiprocessors, used = 0;
    uint32_t warps = gpu_profile()->warps, most = warps == 0 ? all : all * RESIDENT_WARPS / warps;
    double unused = 1; /* part of the instruction slots */
    unsigned engines = 0;
    bool waiting_for_sms = false; /* a kernel waits for multiprocessors: no other kernel may overtake it */
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        const struct gpu_queue *queue = &process->queues[__builtin_ctzll(remaining)];
        if (!is_running(queue)) {
            continue;
        }
        const struct gpu_entry *entry = entry_of(sim->schedule, slot, queue->head);
        used += entry->sms;
        unused *= 1 - (double)entry->sms / all;
        engines |= entry->flags;
    }
    engines &= GPU_WORK_COPIES_IN | GPU_WORK_COPIES_OUT;
    for (;;) {
        int chosen_index = -1;
        const struct gpu_entry *chosen = NULL;
        for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
            int index = __builtin_ctzll(remaining);
            const struct gpu_queue *queue = &process->queues[index];
            const struct gpu_entry *entry = entry_of(sim->schedule, slot, queue->head);
            if (is_running(queue) || (waiting_for_sms && entry->sms != 0) || (engines & entry->flags) != 0) {
                continue;
            }
            bool better = chosen == NULL || entry->priority < chosen->priority ||
                          (entry->priority == chosen->priority && queue->head < process->queues[chosen_index].head);
            if (better && ready_time(sim->schedule, slot, (unsigned)index) <= sim->turn.clock) {
                chosen_index = index;
                chosen = entry;
            }
        }
        if (chosen_index < 0) {
            return;
        }
        uint32_t sms = chosen->sms < all ? chosen->sms : all;
        uint64_t ns = (chosen->flags & GPU_WORK_GATE) != 0 ? 0 : atomic_load(&chosen->ns);
        if (ns == 0) {
            complete_head(sim->schedule, slot, (unsigned)chosen_index, sim->turn.clock);
            continue;
        }
        if (sms != 0 && used + sms > most) {
            waiting_for_sms = true;
            continue;
        }
        used += sms;
        unused *= 1 - (double)sms / all;
        if (sms != 0 && most > all) {
            ns = (uint64_t)((double)ns * used / all / (1 - unused));
        }
        engines |= chosen->flags & (GPU_WORK_COPIES_IN | GPU_WORK_COPIES_OUT);
        bool collective = (chosen->flags & GPU_WORK_COLLECTIVE) != 0;
        if (collective) {
            add_collective_start(sim->gpu, chosen->after[0], sim->turn.clock);
        }
        process->queues[chosen_index].finish = collective ? NEVER : sim->turn.service + min_u64(ns, GPU_MAX_WORK_NS);
        order_stores();
        process->queues[chosen_index].started = process->queues[chosen_index].head;
    }
}

static void add_usage(struct gpu_usage usage[GPU_USAGE_PERIODS], uint64_t period, uint32_t busy, uint32_t copying) {
    struct gpu_usage *entry = &usage[period % GPU_USAGE_PERIODS];
    if (entry->period != period) {
        *entry = (struct gpu_usage){.period = period};
    }
    entry->busy_ns += busy;
    entry->copying_ns += copying;
}

/* Adds the time from the clock to `until`, in which this process had the GPU, to the usage histories and totals. */
static void record_usage(struct simulation *sim, int slot, uint64_t until, bool busy, bool copying) {
    uint64_t from = sim->turn.clock;
    if (busy) {
        sim->schedule->busy_ns += until - from;
        sim->schedule->processes[slot].busy_ns += until - from;
    }
    if (until - from >
        GPU_USAGE_PERIODS * (uint64_t)GPU_USAGE_PERIOD_NS) { /* the history does not reach further back */
        from = until - GPU_USAGE_PERIODS * (uint64_t)GPU_USAGE_PERIOD_NS;
    }
    while (from < until) {
        uint64_t period = from / GPU_USAGE_PERIOD_NS;
        uint64_t end = min_u64(until, (period + 1) * GPU_USAGE_PERIOD_NS);
        uint32_t ns = (uint32_t)(end - from);
        add_usage(sim->schedule->usage, period, busy ? ns : 0, copying ? ns : 0);
        add_usage(sim->schedule->processes[slot].usage, period, busy ? ns : 0, copying ? ns : 0);
        from = end;
    }
}

/* The earliest time of the next event in the current turn; NEVER when no work runs. Sets which kinds of work run. */
static uint64_t next_event_time(struct simulation *sim, int slot, bool *busy, bool *copying) {
    struct gpu_process_schedule *process = &sim->schedule->processes[slot];
    uint64_t next = NEVER, arrival = NEVER;
    *busy = *copying = false;
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        unsigned index = (unsigned)__builtin_ctzll(remaining);
        const struct gpu_queue *queue = &process->queues[index];
        if (!is_running(queue)) {
            uint64_t ready = ready_time(sim->schedule, slot, index);
            if (ready > sim->turn.clock) {
                arrival = min_u64(arrival, ready);
            }
            continue;
        }
        uint64_t remaining_ns = queue->finish > sim->turn.service ? queue->finish - sim->turn.service : 0;
        next = min_u64(next, waits_for_peers(queue) ? min_u64(sim->limit, sim->now) : sim->turn.clock + remaining_ns);
        if (entry_of(sim->schedule, slot, queue->head)->sms != 0) {
            *busy = true;
        } else {
            *copying = true;
        }
    }
    return next != NEVER ? min_u64(next, arrival) : NEVER;
}

static void complete_finished_work(struct simulation *sim, int slot) {
    struct gpu_process_schedule *process = &sim->schedule->processes[slot];
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        unsigned index = (unsigned)__builtin_ctzll(remaining);
        if (is_running(&process->queues[index]) && process->queues[index].finish <= sim->turn.service) {
            complete_head(sim->schedule, slot, index, sim->turn.clock);
        }
    }
}

static void end_turn(struct simulation *sim) {
    if (sim->turn.process != 0) {
        sim->schedule->processes[sim->turn.process - 1].service = sim->turn.service;
    }
    sim->turn.process = 0;
    commit(sim);
}

static void begin_turn(struct simulation *sim, int slot) {
    end_turn(sim);
    uint32_t process = (uint32_t)slot + 1;
    sim->turn.ready = sim->turn.clock;
    if (sim->turn.latest != process && sim->turn.latest != 0) {
        sim->turn.ready += gpu_profile()->switch_ns;
    }
    sim->turn.slice_end = sim->turn.ready + GPU_SLICE_NS;
    sim->turn.service = sim->schedule->processes[slot].service;
    sim->turn.process = process;
    sim->turn.latest = process;
    commit(sim);
}

/* Simulates one event of the process that has the turn; false when the simulation has reached the present. */
static bool simulate_next_event(struct simulation *sim, int slot) {
    bool busy, copying;
    if (sim->turn.clock < sim->turn.ready) {
        sim->turn.clock = min_u64(sim->turn.ready, sim->now);
        commit(sim);
        return sim->turn.clock < sim->now;
    }
    if (sim->count > 1 && sim->turn.clock >= sim->turn.slice_end) {
        int other = next_process(sim, slot);
        if (other >= 0) {
            begin_turn(sim, other);
            return true;
        }
    }
    if (sim->turn.clock >= sim->turn.slice_end) {
        sim->turn.slice_end += ((sim->turn.clock - sim->turn.slice_end) / GPU_SLICE_NS + 1) * (uint64_t)GPU_SLICE_NS;
    }
    complete_finished_work(sim, slot); /* repeats what a process that died in the simulation left undone */
    start_ready_work(sim, slot);
    end_waits(sim, slot);
    uint64_t next = next_event_time(sim, slot, &busy, &copying);
    if (next == NEVER) {
        end_turn(sim);
        return true;
    }
    if (sim->count > 1) {
        next = min_u64(next, sim->turn.slice_end);
    }
    next = min_u64(next, sim->now);
    if (next <= sim->turn.clock) {
        sim->held_back = sim->turn.clock < sim->now;
        return false;
    }
    record_usage(sim, slot, next, busy, copying);
    sim->turn.service += next - sim->turn.clock;
    sim->turn.clock = next;
    commit(sim);
    complete_finished_work(sim, slot);
    return true;
}

/* Advances the simulation to the present. The caller holds the schedule lock. */
static void simulate_to_now(struct simulation *sim, gpu_file *gpu) {
    struct gpu_schedule *schedule = gpu->schedule;
    sim->gpu = gpu;
    sim->schedule = schedule;
    sim->limit = NEVER;
    sim->held_back = false;
    sim->turn = schedule->turns[atomic_load(&schedule->current) & 1];
    sim->count = 0;
    for (int word = 0; word < GPU_SLOTS / 64; word++) {
        for (uint64_t remaining = atomic_load(&schedule->active[word]); remaining != 0; remaining &= remaining - 1) {
            int slot = word * 64 + __builtin_ctzll(remaining);
            if (slot != gpu->submitter.slot && !gpu_slot_alive(gpu, slot)) {
                discard_work(schedule, slot);
                continue;
            }
            enqueue_submitted(schedule, slot);
            sim->active_slots[sim->count++] = slot;
        }
    }
    sim->now = gpu_now(); /* later than every arrival that was enqueued */
    if (sim->turn.process > GPU_SLOTS || sim->turn.clock > sim->now + SECOND) { /* a clock value from before a reboot */
        sim->turn = (struct gpu_turn){.clock = sim->now};
        memset(schedule->usage, 0, sizeof schedule->usage);
    }
    for (;;) {
        int slot = (int)sim->turn.process - 1;
        if (slot >= 0 && schedule->processes[slot].busy == 0) {
            end_turn(sim);
            continue;
        }
        if (slot >= 0) {
            if (simulate_next_event(sim, slot)) {
                continue;
            }
            break;
        }
        int other = next_process(sim, (int)sim->turn.latest - 1);
        if (other < 0 && sim->turn.latest != 0) { /* only the process that had the last turn may have work */
            int latest = (int)sim->turn.latest - 1;
            if (earliest_use(schedule, latest) <= sim->turn.clock) {
                other = latest;
            }
        }
        if (other >= 0) {
            begin_turn(sim, other);
            continue;
        }
        uint64_t next = NEVER;
        for (int i = 0; i < sim->count; i++) {
            next = min_u64(next, earliest_use(schedule, sim->active_slots[i]));
        }
        sim->turn.clock = max_u64(sim->turn.clock, min_u64(next, sim->now));
        commit(sim);
        if (next > sim->now) {
            break;
        }
    }
    for (int i = 0; i < sim->count; i++) {
        int slot = sim->active_slots[i];
        struct gpu_process_schedule *process = &schedule->processes[slot];
        uint64_t bit = UINT64_C(1) << slot % 64;
        if (process->busy != 0) {
            continue;
        }
        atomic_fetch_and(&schedule->active[slot / 64], ~bit);
        /* If the process submitted work meanwhile, it saw the bit still set. */
        if (atomic_load(&process->tail) != process->seen) {
            atomic_fetch_or(&schedule->active[slot / 64], bit);
        }
    }
}

static void lock_and_simulate(gpu_file *gpu, struct simulation *sim) {
    pthread_mutex_lock(&gpu->submitter.simulation_mutex);
    gpu_schedule_lock(gpu);
    simulate_to_now(sim, gpu);
}

static void unlock_simulation(gpu_file *gpu) {
    gpu_schedule_unlock(gpu);
    pthread_mutex_unlock(&gpu->submitter.simulation_mutex);
}

/* Advances the simulation to the present, with its peers if one of its kernels waits for them: the GPU that is behind
   can always advance. */
static void begin_simulation(gpu_file *gpu, struct simulation *sim) {
    struct simulation other;
    pthread_mutex_lock(&open_gpus_mutex);
    for (lock_and_simulate(gpu, sim); sim->held_back; lock_and_simulate(gpu, sim)) {
        unlock_simulation(gpu);
        for (int i = 0; i < open_gpu_count; i++) {
            if (is_same_gpu(open_gpus[i], gpu)) {
                continue;
            }
            lock_and_simulate(open_gpus[i], &other);
            unlock_simulation(open_gpus[i]);
        }
    }
}

static void end_simulation(gpu_file *gpu) {
    unlock_simulation(gpu);
    pthread_mutex_unlock(&open_gpus_mutex);
}

/* ---- waiting ---- */

/* The least time in ns that a queue's work up to that number takes while its process has the GPU. */
static uint64_t remaining_queue_ns(struct simulation *sim, int slot, unsigned index, uint64_t number) {
    struct gpu_process_schedule *process = &sim->schedule->processes[slot];
    const struct gpu_queue *queue = &process->queues[index];
    uint64_t service = sim->turn.process == (uint32_t)slot + 1 ? sim->turn.service : process->service;
    const struct gpu_entry *head = entry_of(sim->schedule, slot, queue->head);
    uint64_t remaining_ns = entry_of(sim->schedule, slot, number)->total - head->total;
    if (is_running(queue) && !waits_for_peers(queue)) {
        remaining_ns += queue->finish > service ? queue->finish - service : 0;
    } else if ((head->flags & GPU_WORK_GATE) == 0) {
        remaining_ns += atomic_load(&head->ns);
    }
    return min_u64(remaining_ns, GPU_MAX_WORK_NS);
}

/* A time before which no work of this process completes, the work of that number included. */
static uint64_t earliest_completion(struct simulation *sim, int slot, uint64_t number) {
    struct gpu_schedule *schedule = sim->schedule;
    struct gpu_process_schedule *process = &schedule->processes[slot];
    int other = (int)sim->turn.process - 1;
    uint64_t next = NEVER, begin = sim->now;
    bool busy, copying;
    if (other == slot) {
        begin = max_u64(begin, sim->turn.ready);
        next = begin > sim->now ? begin : next_event_time(sim, slot, &busy, &copying);
        if (sim->count > 1) {
            next = min_u64(next, sim->turn.slice_end);
        }
    } else if (other >= 0) { /* its turn ends with its time slice or with its work */
        uint64_t remaining_ns = 0;
        for (uint64_t remaining = schedule->processes[other].busy; remaining != 0; remaining &= remaining - 1) {
            unsigned index = (unsigned)__builtin_ctzll(remaining);
            remaining_ns = max_u64(
                remaining_ns, remaining_queue_ns(sim, other, index, schedule->processes[other].queues[index].last));
        }
        begin = next = max_u64(min_u64(sim->turn.slice_end, begin + remaining_ns), sim->now);
    } else {
        begin = next = max_u64(earliest_use(schedule, slot), sim->now);
    }
    unsigned index = entry_of(schedule, slot, number)->queue % GPU_QUEUES;
    if (process->queues[index].head != 0 && process->queues[index].head <= number && begin != NEVER) {
        begin += remaining_queue_ns(sim, slot, index, number);
    }
    for (uint64_t remaining = process->busy; remaining != 0; remaining &= remaining - 1) {
        const struct gpu_entry *head = entry_of(schedule, slot, process->queues[__builtin_ctzll(remaining)].head);
        if ((head->flags & GPU_WORK_GATE) != 0 && atomic_load(&head->ns) == 0) {
            next = min_u64(next, sim->now + POLL_NS); /* it may open at any time */
        }
    }
    uint64_t time = next == NEVER ? begin : max_u64(next, begin);
    return time > sim->now && time != NEVER ? time : sim->now + POLL_NS;
}

/* Without a simulation. */
static bool is_known_done(gpu_file *gpu, uint64_t number) {
    pthread_mutex_lock(&gpu->submitter.simulation_mutex);
    int slot = gpu->submitter.slot;
    bool done = number == 0 || slot < 0 || is_complete(gpu->schedule, slot, number);
    pthread_mutex_unlock(&gpu->submitter.simulation_mutex);
    return done;
}

bool gpu_is_done(gpu_file *gpu, uint64_t number) {
    struct simulation sim;
    if (is_known_done(gpu, number)) {
        return true;
    }
    begin_simulation(gpu, &sim);
    int slot = gpu->submitter.slot;
    bool done = slot < 0 || is_complete(gpu->schedule, slot, number);
    end_simulation(gpu);
    return done;
}

uint64_t gpu_earliest_completion(gpu_file *gpu, uint64_t number) {
    struct simulation sim;
    uint64_t earliest = 0;
    if (is_known_done(gpu, number)) {
        return 0;
    }
    begin_simulation(gpu, &sim);
    int slot = gpu->submitter.slot;
    if (slot >= 0 && !is_complete(gpu->schedule, slot, number)) {
        earliest = earliest_completion(&sim, slot, number);
    }
    end_simulation(gpu);
    return earliest;
}

void gpu_wait(gpu_file *gpu, uint64_t number) {
    for (uint64_t earliest; (earliest = gpu_earliest_completion(gpu, number)) != 0;) {
        gpu_sleep_until(earliest);
    }
}

/* ---- submission ---- */

/* xorshift64 (Marsaglia 2003). Any generator with a seed suffices. */
static uint64_t next_random(struct gpu_submitter *submitter) {
    submitter->random ^= submitter->random << 13;
    submitter->random ^= submitter->random >> 7;
    submitter->random ^= submitter->random << 17;
    return submitter->random;
}

static uint64_t with_jitter(struct gpu_submitter *submitter, uint64_t ns) {
    if (submitter->random == 0) {
        return ns;
    }
    int64_t most = (int64_t)ns * JITTER_PERCENT / 100;
    int64_t part = (int64_t)(next_random(submitter) >> 48) - 32768; /* -32768 .. 32767 */
    return ns + (uint64_t)(most * part / 32768);
}

/* The time that submitted work takes to reach the GPU: exponential, piecewise linear between powers of two. */
static uint64_t sample_latency(struct gpu_submitter *submitter) {
    if (submitter->latency == 0 || submitter->random == 0) {
        return submitter->latency;
    }
    uint64_t random = next_random(submitter);
    double octaves = __builtin_clzll(random | 1) + (double)(random & 0xffff) / 65536;
    return (uint64_t)((double)submitter->latency * 0.6931 * octaves);
}

static bool has_space(gpu_file *gpu, unsigned items) {
    uint64_t incomplete =
        gpu->submitter.tail + 1 - atomic_load(&gpu->schedule->processes[gpu->submitter.slot].frontier);
    return incomplete + items <= GPU_QUEUE_LENGTH;
}

bool gpu_has_queue_space(gpu_file *gpu, unsigned items) {
    struct simulation sim;
    pthread_mutex_lock(&gpu->submitter.submit_mutex);
    bool space = gpu->submitter.slot >= 0 && has_space(gpu, items);
    if (!space && gpu->submitter.slot >= 0) {
        begin_simulation(gpu, &sim);
        end_simulation(gpu);
        space = has_space(gpu, items);
    }
    pthread_mutex_unlock(&gpu->submitter.submit_mutex);
    return space;
}

void gpu_wait_for_queue_space(gpu_file *gpu, unsigned items) {
    struct simulation sim;
    if (gpu_has_queue_space(gpu, items)) {
        return;
    }
    uint64_t wake = 0;
    begin_simulation(gpu, &sim);
    int slot = gpu->submitter.slot;
    if (slot >= 0) {
        uint64_t oldest = atomic_load(&gpu->schedule->processes[slot].frontier);
        if (oldest <= atomic_load(&gpu->schedule->processes[slot].tail)) {
            wake = max_u64(earliest_completion(&sim, slot, oldest), sim.now + POLL_NS);
        }
    }
    end_simulation(gpu);
    if (wake != 0) {
        gpu_sleep_until(wake);
    }
}

uint64_t gpu_submit(gpu_file *gpu, const struct gpu_work *work, struct gpu_completion *completion) {
    struct gpu_submitter *submitter = &gpu->submitter;
    uint64_t number = 0;
    if (completion != NULL) {
        *completion = (struct gpu_completion){0};
    }
    pthread_mutex_lock(&submitter->submit_mutex);
    if (submitter->slot >= 0 && has_space(gpu, 1)) {
        struct gpu_process_schedule *process = &gpu->schedule->processes[submitter->slot];
        number = submitter->tail + 1;
        struct gpu_entry *entry = entry_of(gpu->schedule, submitter->slot, number);
        struct gpu_completion **registered = &submitter->completions[number % GPU_QUEUE_LENGTH];
        if (*registered != NULL) { /* of the work that this entry held before */
            (*registered)->at = atomic_load(&entry->done);
        }
        *registered = completion;
        unsigned queue = work->queue % GPU_QUEUES;
        bool gate = (work->flags & GPU_WORK_GATE) != 0;
        uint64_t ns = gate ? 0 : min_u64(work->ns, GPU_MAX_WORK_NS);
        if (work->sms != 0) {
            ns = with_jitter(submitter, ns);
        }
        submitter->totals[queue] += ns;
        entry->arrival = gpu_now() + sample_latency(submitter);
        atomic_store_explicit(&entry->ns, ns, memory_order_relaxed);
        entry->total = submitter->totals[queue];
        entry->after[0] = work->after[0];
        entry->after[1] = work->after[1];
        atomic_store_explicit(&entry->done, 0, memory_order_relaxed);
        entry->next = 0;
        uint32_t all = gpu->identity.multiprocessors;
        entry->sms = (uint16_t)(work->sms < all ? work->sms : all);
        entry->queue = (uint8_t)queue;
        entry->flags = (uint8_t)work->flags;
        entry->priority = work->priority;
        submitter->tail = number;
        if (completion != NULL) {
            completion->number = number;
        }
        atomic_store(&process->tail, number);
        uint64_t bit = UINT64_C(1) << submitter->slot % 64;
        if ((atomic_load(&gpu->schedule->active[submitter->slot / 64]) & bit) == 0) {
            atomic_fetch_or(&gpu->schedule->active[submitter->slot / 64], bit);
        }
    }
    pthread_mutex_unlock(&submitter->submit_mutex);
    return number;
}

void gpu_open_gate(gpu_file *gpu, uint64_t number) {
    pthread_mutex_lock(&gpu->submitter.submit_mutex);
    if (gpu->submitter.slot >= 0 && !is_complete(gpu->schedule, gpu->submitter.slot, number)) {
        atomic_store(&entry_of(gpu->schedule, gpu->submitter.slot, number)->ns, gpu_now());
    }
    pthread_mutex_unlock(&gpu->submitter.submit_mutex);
}

bool gpu_poll_completion(gpu_file *gpu, struct gpu_completion *completion) {
    bool over = gpu_is_done(gpu, completion->number);
    pthread_mutex_lock(&gpu->submitter.submit_mutex);
    if (over && completion->number != 0 && completion->at == 0) {
        struct gpu_completion **registered = &gpu->submitter.completions[completion->number % GPU_QUEUE_LENGTH];
        if (*registered == completion && gpu->submitter.slot >= 0) {
            completion->at = atomic_load(&entry_of(gpu->schedule, gpu->submitter.slot, completion->number)->done);
        }
        if (*registered == completion) {
            *registered = NULL;
        }
    }
    pthread_mutex_unlock(&gpu->submitter.submit_mutex);
    return over;
}

void gpu_drop_completion(gpu_file *gpu, struct gpu_completion *completion) {
    pthread_mutex_lock(&gpu->submitter.submit_mutex);
    struct gpu_completion **registered = &gpu->submitter.completions[completion->number % GPU_QUEUE_LENGTH];
    if (completion->number != 0 && *registered == completion) {
        *registered = NULL;
    }
    pthread_mutex_unlock(&gpu->submitter.submit_mutex);
}

/* ---- attach and detach ---- */

static uint64_t initial_random(int slot) {
    const char *text = getenv("ALIQUOT_FAKE_SEED");
    uint64_t seed = text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : 1;
    return seed != 0 ? (seed * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)(slot + 1) * UINT64_C(0xbf58476d1ce4e5b9))
                     : 0;
}

static uint64_t initial_latency(void) {
    const char *text = getenv("ALIQUOT_FAKE_LATENCY");
    uint64_t us = text != NULL ? strtoull(text, NULL, 10) : 0;
    return min_u64(us, 1000000) * 1000;
}

void gpu_time_open(gpu_file *gpu) {
    gpu->submitter.slot = -1;
    pthread_mutex_init(&gpu->submitter.submit_mutex, NULL);
    pthread_mutex_init(&gpu->submitter.simulation_mutex, NULL);
    pthread_mutex_lock(&open_gpus_mutex);
    if (open_gpu_count < (int)(sizeof open_gpus / sizeof open_gpus[0])) {
        open_gpus[open_gpu_count++] = gpu;
    }
    pthread_mutex_unlock(&open_gpus_mutex);
}

void gpu_time_forget_in_child(void) {
    open_gpus_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* another thread may have held it at the fork */
    open_gpu_count = 0;
}

void gpu_time_close(gpu_file *gpu) {
    pthread_mutex_lock(&open_gpus_mutex);
    for (int i = 0; i < open_gpu_count; i++) {
        if (open_gpus[i] == gpu) {
            open_gpus[i--] = open_gpus[--open_gpu_count];
        }
    }
    pthread_mutex_unlock(&open_gpus_mutex);
    pthread_mutex_destroy(&gpu->submitter.submit_mutex);
    pthread_mutex_destroy(&gpu->submitter.simulation_mutex);
}

void gpu_time_attach(gpu_file *gpu, int slot) {
    struct gpu_submitter *submitter = &gpu->submitter;
    pthread_mutex_lock(&submitter->submit_mutex);
    pthread_mutex_lock(&submitter->simulation_mutex);
    gpu_schedule_lock(gpu);
    struct gpu_process_schedule *process = &gpu->schedule->processes[slot];
    atomic_store(&process->tail,
                 submitter->tail); /* numbering continues, so that an old number never refers to new work */
    discard_work(gpu->schedule, slot);
    memset(process->usage, 0, sizeof process->usage);
    process->busy_ns = process->work_ns = 0;
    memset(submitter->totals, 0, sizeof submitter->totals);
    submitter->random = initial_random(slot);
    submitter->latency = initial_latency();
    submitter->slot = slot;
    gpu_schedule_unlock(gpu);
    pthread_mutex_unlock(&submitter->simulation_mutex);
    pthread_mutex_unlock(&submitter->submit_mutex);
}

void gpu_time_detach(gpu_file *gpu) {
    struct gpu_submitter *submitter = &gpu->submitter;
    pthread_mutex_lock(&submitter->submit_mutex);
    pthread_mutex_lock(&submitter->simulation_mutex);
    gpu_schedule_lock(gpu);
    uint64_t now = gpu_now();
    for (int i = 0; i < GPU_QUEUE_LENGTH; i++) {
        if (submitter->completions[i] == NULL) {
            continue;
        }
        uint64_t done = atomic_load(&entry_of(gpu->schedule, submitter->slot, submitter->completions[i]->number)->done);
        submitter->completions[i]->at = done != 0 ? done : now;
        submitter->completions[i] = NULL;
    }
    discard_work(gpu->schedule, submitter->slot);
    submitter->slot = -1;
    gpu_schedule_unlock(gpu);
    pthread_mutex_unlock(&submitter->simulation_mutex);
    pthread_mutex_unlock(&submitter->submit_mutex);
}

/* ---- usage ---- */

size_t gpu_usage_history(gpu_file *gpu, int slot, struct gpu_usage *history, size_t max) {
    struct simulation sim;
    size_t count = 0;
    begin_simulation(gpu, &sim);
    const struct gpu_usage *usage = slot >= 0 ? gpu->schedule->processes[slot].usage : gpu->schedule->usage;
    uint64_t present = sim.now / GPU_USAGE_PERIOD_NS;
    for (uint64_t back = 1; back < GPU_USAGE_PERIODS && back <= present && count < max; back++) {
        const struct gpu_usage *entry = &usage[(present - back) % GPU_USAGE_PERIODS];
        if (entry->period == present - back) {
            history[count++] = *entry;
        }
    }
    end_simulation(gpu);
    return count;
}

uint64_t gpu_collective_start(const gpu_file *gpu, uint64_t name) {
    uint64_t start = collective_start(gpu, name);
    return start != NEVER ? start : 0;
}

uint64_t gpu_work_ns(gpu_file *gpu, int slot) {
    struct simulation sim;
    begin_simulation(gpu, &sim);
    uint64_t work = gpu->schedule->processes[slot].work_ns / gpu->identity.multiprocessors;
    end_simulation(gpu);
    return work;
}

uint64_t gpu_busy_ns(gpu_file *gpu, int slot) {
    struct simulation sim;
    begin_simulation(gpu, &sim);
    uint64_t busy = slot >= 0 ? gpu->schedule->processes[slot].busy_ns : gpu->schedule->busy_ns;
    end_simulation(gpu);
    return busy;
}
