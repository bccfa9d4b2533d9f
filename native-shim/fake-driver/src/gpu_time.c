/*
 * How it survives that anybody is killed anywhere. A process writes its ring alone, and `tail` covers an entry only
 * when it is whole. What the player changes is either a word that says the same when it is written again (an entry's
 * place in its queue, the time at which work was over) or stands in one of two turns, of which a single store makes the
 * new one hold, after every event. So a player that dies leaves at most one event half done, and the next one does it
 * again: a piece of work may then end some microseconds early, and nothing is lost or stuck.
 */
#define _GNU_SOURCE
#include "gpu_time_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { JITTER_PERCENT = 3 };

#define NEVER UINT64_MAX
#define SECOND UINT64_C(1000000000)
/* How often somebody who waits looks at what cannot be foreseen: a closed gate, a full ring of short work. */
#define POLL_NS UINT64_C(100000)

uint64_t gpu_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void gpu_sleep_until(uint64_t when) {
    const struct timespec time = {.tv_sec = (time_t)(when / SECOND), .tv_nsec = (long)(when % SECOND)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL); /* a signal only makes the caller look again */
}

/* Whoever is killed has written what stands before this, or nothing of what stands after it. */
static void then(void) {
    atomic_signal_fence(memory_order_seq_cst);
}

static uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static uint64_t greater(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* ---- the player ---- */

struct play {
    gpu_file *gpu;
    struct gpu_area *area;
    struct gpu_turn turn;
    uint64_t now;
    int living[GPU_SLOTS]; /* slots that may have work, in order */
    int count;
};

static struct gpu_entry *entry_of(struct gpu_area *area, int slot, uint64_t number) {
    return &area->rings[slot][number % GPU_QUEUE_LENGTH];
}

static void commit(struct play *play) {
    uint32_t next = (atomic_load(&play->area->current) & 1) ^ 1;
    play->area->turns[next] = play->turn;
    then();
    atomic_store(&play->area->current, next);
}

static bool is_over(struct gpu_area *area, int slot, uint64_t number) {
    struct gpu_process_time *process = &area->processes[slot];
    return number < atomic_load(&process->frontier) || number > atomic_load(&process->tail) ||
           atomic_load(&entry_of(area, slot, number)->done) != 0;
}

/* Empties the queues of a slot whose process is gone or new. */
static void bury(struct gpu_area *area, int slot) {
    struct gpu_process_time *process = &area->processes[slot];
    uint64_t tail = atomic_load(&process->tail);
    process->busy = 0;
    for (int i = 0; i < GPU_QUEUES; i++)
        process->queues[i] = (struct gpu_queue){0};
    process->seen = tail;
    atomic_store(&process->frontier, tail + 1);
    atomic_fetch_and(&area->active[slot / 64], ~(UINT64_C(1) << slot % 64));
}

static void find_frontier(struct gpu_process_time *process) {
    uint64_t oldest = process->seen + 1;
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        uint64_t head = process->queues[__builtin_ctzll(left)].head;
        oldest = lesser(oldest, head);
    }
    atomic_store(&process->frontier, oldest);
}

/* Chains what a process has put since the last look into its queues. */
static void collect(struct gpu_area *area, int slot) {
    struct gpu_process_time *process = &area->processes[slot];
    uint64_t tail = atomic_load_explicit(&process->tail, memory_order_acquire);
    if (tail < process->seen || tail - process->seen > GPU_QUEUE_LENGTH) { /* no process of ours writes that */
        bury(area, slot);
        return;
    }
    while (process->seen < tail) {
        uint64_t number = process->seen + 1;
        unsigned index = entry_of(area, slot, number)->queue % GPU_QUEUES;
        struct gpu_queue *queue = &process->queues[index];
        if (queue->head != 0 && queue->last < number)
            entry_of(area, slot, queue->last)->next = number;
        then();
        queue->last = number;
        then();
        if (queue->head == 0)
            queue->head = number;
        process->busy |= UINT64_C(1) << index;
        then();
        process->seen = number;
    }
    for (uint64_t left = process->busy; left != 0; left &= left - 1) /* a player died while it emptied one */
        if (process->queues[__builtin_ctzll(left)].head == 0)
            process->busy &= ~(left & -left);
}

static void pop(struct gpu_area *area, int slot, unsigned index, uint64_t when) {
    struct gpu_process_time *process = &area->processes[slot];
    struct gpu_queue *queue = &process->queues[index];
    struct gpu_entry *entry = entry_of(area, slot, queue->head);
    uint64_t next = queue->head != queue->last ? entry->next : 0;
    atomic_store(&entry->done, when);
    if (next <= queue->head || next > process->seen) {
        queue->head = 0;
        then();
        process->busy &= ~(UINT64_C(1) << index);
    } else
        queue->head = next;
    find_frontier(process);
}

/* When the head of a queue could start, as far as is known. */
static uint64_t ready_time(struct gpu_area *area, int slot, unsigned index) {
    struct gpu_process_time *process = &area->processes[slot];
    uint64_t head = process->queues[index].head;
    struct gpu_entry *entry = entry_of(area, slot, head);
    uint64_t time = entry->arrival;
    for (int i = 0; i < 2; i++)
        if (entry->after[i] < head && !is_over(area, slot, entry->after[i]))
            return NEVER;
    if ((entry->flags & GPU_WORK_BARRIER) != 0) {
        uint64_t others = process->busy & ((UINT64_C(1) << GPU_BARRIER_QUEUES) - 1);
        for (; others != 0; others &= others - 1)
            if (process->queues[__builtin_ctzll(others)].head < head)
                return NEVER;
    }
    if ((entry->flags & GPU_WORK_GATE) != 0) {
        uint64_t opened = atomic_load(&entry->ns);
        if (opened == 0)
            return NEVER;
        time = greater(time, opened);
    }
    return time;
}

static bool is_running(const struct gpu_queue *queue) {
    return queue->head != 0 && queue->started == queue->head;
}

/* The earliest time at which a process could use the GPU; 0 when it has started something. */
static uint64_t wants_from(struct gpu_area *area, int slot) {
    struct gpu_process_time *process = &area->processes[slot];
    uint64_t earliest = NEVER;
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        unsigned index = (unsigned)__builtin_ctzll(left);
        if (is_running(&process->queues[index]))
            return 0;
        earliest = lesser(earliest, ready_time(area, slot, index));
    }
    return earliest;
}

/* Who comes after the slot in the round and could run now; -1: nobody else. */
static int next_in_round(struct play *play, int after) {
    int first = -1;
    for (int i = 0; i < play->count; i++) {
        int slot = play->living[i];
        if (slot == after || (first >= 0 && slot < after))
            continue;
        if (wants_from(play->area, slot) > play->turn.clock)
            continue;
        if (slot > after)
            return slot;
        first = slot;
    }
    return first;
}

/* Starts all that can start in the present turn; what takes no time is over at once. */
static void start(struct play *play, int slot) {
    struct gpu_process_time *process = &play->area->processes[slot];
    uint32_t all = play->gpu->identity.multiprocessors, used = 0;
    unsigned engines = 0;
    bool held_up = false; /* a kernel waits for multiprocessors: no other may overtake it */
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        const struct gpu_queue *queue = &process->queues[__builtin_ctzll(left)];
        if (!is_running(queue))
            continue;
        const struct gpu_entry *entry = entry_of(play->area, slot, queue->head);
        used += entry->sms;
        engines |= entry->flags;
    }
    engines &= GPU_WORK_COPIES_IN | GPU_WORK_COPIES_OUT;
    for (;;) {
        int best = -1;
        const struct gpu_entry *chosen = NULL;
        for (uint64_t left = process->busy; left != 0; left &= left - 1) {
            int index = __builtin_ctzll(left);
            const struct gpu_queue *queue = &process->queues[index];
            const struct gpu_entry *entry = entry_of(play->area, slot, queue->head);
            if (is_running(queue) || (held_up && entry->sms != 0) || (engines & entry->flags) != 0)
                continue;
            bool better = chosen == NULL || entry->priority < chosen->priority ||
                          (entry->priority == chosen->priority && queue->head < process->queues[best].head);
            if (better && ready_time(play->area, slot, (unsigned)index) <= play->turn.clock) {
                best = index;
                chosen = entry;
            }
        }
        if (best < 0)
            return;
        uint32_t sms = chosen->sms < all ? chosen->sms : all;
        uint64_t ns = (chosen->flags & GPU_WORK_GATE) != 0 ? 0 : atomic_load(&chosen->ns);
        if (ns == 0) {
            pop(play->area, slot, (unsigned)best, play->turn.clock);
            continue;
        }
        if (sms != 0 && used + sms > all) {
            held_up = true;
            continue;
        }
        used += sms;
        engines |= chosen->flags & (GPU_WORK_COPIES_IN | GPU_WORK_COPIES_OUT);
        process->queues[best].finish = play->turn.service + lesser(ns, GPU_MAX_WORK_NS);
        then();
        process->queues[best].started = process->queues[best].head;
    }
}

static void add_usage(struct gpu_usage usage[GPU_USAGE_PERIODS], uint64_t period, uint32_t busy, uint32_t copying) {
    struct gpu_usage *entry = &usage[period % GPU_USAGE_PERIODS];
    if (entry->period != period)
        *entry = (struct gpu_usage){.period = period};
    entry->busy_ns += busy;
    entry->copying_ns += copying;
}

/* Books the time from the clock to `until`, in which this process had the GPU. */
static void account(struct play *play, int slot, uint64_t until, bool busy, bool copying) {
    uint64_t from = play->turn.clock;
    if (until - from > GPU_USAGE_PERIODS * (uint64_t)GPU_USAGE_PERIOD_NS) /* older ones are forgotten anyway */
        from = until - GPU_USAGE_PERIODS * (uint64_t)GPU_USAGE_PERIOD_NS;
    while (from < until) {
        uint64_t period = from / GPU_USAGE_PERIOD_NS;
        uint64_t end = lesser(until, (period + 1) * GPU_USAGE_PERIOD_NS);
        uint32_t ns = (uint32_t)(end - from);
        add_usage(play->area->usage, period, busy ? ns : 0, copying ? ns : 0);
        add_usage(play->area->processes[slot].usage, period, busy ? ns : 0, copying ? ns : 0);
        from = end;
    }
}

/* What happens next in the present turn, at the earliest; NEVER when nothing runs. Sets what is running. */
static uint64_t next_event(struct play *play, int slot, bool *busy, bool *copying) {
    struct gpu_process_time *process = &play->area->processes[slot];
    uint64_t next = NEVER, arrival = NEVER;
    *busy = *copying = false;
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        unsigned index = (unsigned)__builtin_ctzll(left);
        const struct gpu_queue *queue = &process->queues[index];
        if (!is_running(queue)) {
            uint64_t ready = ready_time(play->area, slot, index);
            if (ready > play->turn.clock)
                arrival = lesser(arrival, ready);
            continue;
        }
        uint64_t rest = queue->finish > play->turn.service ? queue->finish - play->turn.service : 0;
        next = lesser(next, play->turn.clock + rest);
        if (entry_of(play->area, slot, queue->head)->sms != 0)
            *busy = true;
        else
            *copying = true;
    }
    return next != NEVER ? lesser(next, arrival) : NEVER;
}

static void finish(struct play *play, int slot) {
    struct gpu_process_time *process = &play->area->processes[slot];
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        unsigned index = (unsigned)__builtin_ctzll(left);
        if (is_running(&process->queues[index]) && process->queues[index].finish <= play->turn.service)
            pop(play->area, slot, index, play->turn.clock);
    }
}

static void end_turn(struct play *play) {
    if (play->turn.process != 0)
        play->area->processes[play->turn.process - 1].service = play->turn.service;
    play->turn.process = 0;
    commit(play);
}

static void begin_turn(struct play *play, int slot) {
    end_turn(play);
    uint32_t process = (uint32_t)slot + 1;
    play->turn.ready = play->turn.clock;
    if (play->turn.latest != process && play->turn.latest != 0)
        play->turn.ready += GPU_SWITCH_NS;
    play->turn.slice_end = play->turn.ready + GPU_SLICE_NS;
    play->turn.service = play->area->processes[slot].service;
    play->turn.process = process;
    play->turn.latest = process;
    commit(play);
}

/* Plays one event of the process whose turn it is; false when it has nothing to do, or the present is reached. */
static bool go_on(struct play *play, int slot) {
    bool busy, copying;
    if (play->turn.clock < play->turn.ready) {
        play->turn.clock = lesser(play->turn.ready, play->now);
        commit(play);
        return play->turn.clock < play->now;
    }
    if (play->count > 1 && play->turn.clock >= play->turn.slice_end) {
        int other = next_in_round(play, slot);
        if (other >= 0) {
            begin_turn(play, other);
            return true;
        }
    }
    if (play->turn.clock >= play->turn.slice_end)
        play->turn.slice_end += ((play->turn.clock - play->turn.slice_end) / GPU_SLICE_NS + 1) * (uint64_t)GPU_SLICE_NS;
    finish(play, slot); /* what a player that died did not get to */
    start(play, slot);
    uint64_t next = next_event(play, slot, &busy, &copying);
    if (next == NEVER) {
        end_turn(play);
        return true;
    }
    if (play->count > 1)
        next = lesser(next, play->turn.slice_end);
    next = lesser(next, play->now);
    if (next <= play->turn.clock)
        return false;
    account(play, slot, next, busy, copying);
    play->turn.service += next - play->turn.clock;
    play->turn.clock = next;
    commit(play);
    finish(play, slot);
    return true;
}

/* Brings the GPU to the present. With the area locked. */
static void play_to_now(struct play *play, gpu_file *gpu) {
    struct gpu_area *area = gpu->area;
    play->gpu = gpu;
    play->area = area;
    play->turn = area->turns[atomic_load(&area->current) & 1];
    play->count = 0;
    for (int word = 0; word < GPU_SLOTS / 64; word++) {
        for (uint64_t left = atomic_load(&area->active[word]); left != 0; left &= left - 1) {
            int slot = word * 64 + __builtin_ctzll(left);
            if (slot != gpu->time.slot && !gpu_slot_alive(gpu, slot)) {
                bury(area, slot);
                continue;
            }
            collect(area, slot);
            play->living[play->count++] = slot;
        }
    }
    play->now = gpu_now(); /* after all arrivals that were collected */
    if (play->turn.process > GPU_SLOTS || play->turn.clock > play->now + SECOND) { /* a clock from before a reboot */
        play->turn = (struct gpu_turn){.clock = play->now};
        memset(area->usage, 0, sizeof area->usage);
    }
    for (;;) {
        int slot = (int)play->turn.process - 1;
        if (slot >= 0 && area->processes[slot].busy == 0) {
            end_turn(play);
            continue;
        }
        if (slot >= 0) {
            if (go_on(play, slot))
                continue;
            break;
        }
        int other = next_in_round(play, (int)play->turn.latest - 1);
        if (other < 0 && play->turn.latest != 0) { /* none but, perhaps, who had the last turn */
            int latest = (int)play->turn.latest - 1;
            if (wants_from(area, latest) <= play->turn.clock)
                other = latest;
        }
        if (other >= 0) {
            begin_turn(play, other);
            continue;
        }
        uint64_t next = NEVER;
        for (int i = 0; i < play->count; i++)
            next = lesser(next, wants_from(area, play->living[i]));
        play->turn.clock = greater(play->turn.clock, lesser(next, play->now));
        commit(play);
        if (next > play->now)
            break;
    }
    for (int i = 0; i < play->count; i++) {
        int slot = play->living[i];
        struct gpu_process_time *process = &area->processes[slot];
        uint64_t bit = UINT64_C(1) << slot % 64;
        if (process->busy != 0)
            continue;
        atomic_fetch_and(&area->active[slot / 64], ~bit);
        if (atomic_load(&process->tail) != process->seen) /* it put something meanwhile, and saw the bit set */
            atomic_fetch_or(&area->active[slot / 64], bit);
    }
}

static void begin_play(gpu_file *gpu, struct play *play) {
    pthread_mutex_lock(&gpu->time.play_mutex);
    gpu_area_lock(gpu);
    play_to_now(play, gpu);
}

static void end_play(gpu_file *gpu) {
    gpu_area_unlock(gpu);
    pthread_mutex_unlock(&gpu->time.play_mutex);
}

/* ---- waiting ---- */

/* ns that a queue's work up to that number takes at least, when its process has the GPU. */
static uint64_t queue_rest(struct play *play, int slot, unsigned index, uint64_t number) {
    struct gpu_process_time *process = &play->area->processes[slot];
    const struct gpu_queue *queue = &process->queues[index];
    uint64_t service = play->turn.process == (uint32_t)slot + 1 ? play->turn.service : process->service;
    const struct gpu_entry *head = entry_of(play->area, slot, queue->head);
    uint64_t rest = entry_of(play->area, slot, number)->total - head->total;
    if (is_running(queue))
        rest += queue->finish > service ? queue->finish - service : 0;
    else if ((head->flags & GPU_WORK_GATE) == 0)
        rest += atomic_load(&head->ns);
    return lesser(rest, GPU_MAX_WORK_NS);
}

/* No piece of work of this process is over before that time, and the one of that number isn't either. */
static uint64_t not_before(struct play *play, int slot, uint64_t number) {
    struct gpu_area *area = play->area;
    struct gpu_process_time *process = &area->processes[slot];
    int other = (int)play->turn.process - 1;
    uint64_t next = NEVER, begin = play->now;
    bool busy, copying;
    if (other == slot) {
        begin = greater(begin, play->turn.ready);
        next = begin > play->now ? begin : next_event(play, slot, &busy, &copying);
        if (play->count > 1)
            next = lesser(next, play->turn.slice_end);
    } else if (other >= 0) { /* its turn ends with its slice or with its work */
        uint64_t rest = 0;
        for (uint64_t left = area->processes[other].busy; left != 0; left &= left - 1) {
            unsigned index = (unsigned)__builtin_ctzll(left);
            rest = greater(rest, queue_rest(play, other, index, area->processes[other].queues[index].last));
        }
        begin = next = greater(lesser(play->turn.slice_end, begin + rest), play->now);
    } else
        begin = next = greater(wants_from(area, slot), play->now);
    unsigned index = entry_of(area, slot, number)->queue % GPU_QUEUES;
    if (process->queues[index].head != 0 && process->queues[index].head <= number && begin != NEVER)
        begin += queue_rest(play, slot, index, number);
    for (uint64_t left = process->busy; left != 0; left &= left - 1) {
        const struct gpu_entry *head = entry_of(area, slot, process->queues[__builtin_ctzll(left)].head);
        if ((head->flags & GPU_WORK_GATE) != 0 && atomic_load(&head->ns) == 0)
            next = lesser(next, play->now + POLL_NS); /* it may open any moment */
    }
    uint64_t time = next == NEVER ? begin : greater(next, begin);
    return time > play->now && time != NEVER ? time : play->now + POLL_NS;
}

bool gpu_is_done(gpu_file *gpu, uint64_t number) {
    struct play play;
    bool done = true;
    if (number == 0)
        return true;
    pthread_mutex_lock(&gpu->time.play_mutex);
    if (gpu->time.slot >= 0 && !is_over(gpu->area, gpu->time.slot, number)) {
        gpu_area_lock(gpu);
        play_to_now(&play, gpu);
        done = is_over(gpu->area, gpu->time.slot, number);
        gpu_area_unlock(gpu);
    }
    pthread_mutex_unlock(&gpu->time.play_mutex);
    return done;
}

uint64_t gpu_earliest(gpu_file *gpu, uint64_t number) {
    struct play play;
    uint64_t earliest = 0;
    pthread_mutex_lock(&gpu->time.play_mutex);
    int slot = gpu->time.slot;
    if (slot >= 0 && number != 0 && !is_over(gpu->area, slot, number)) {
        gpu_area_lock(gpu);
        play_to_now(&play, gpu);
        if (!is_over(gpu->area, slot, number))
            earliest = not_before(&play, slot, number);
        gpu_area_unlock(gpu);
    }
    pthread_mutex_unlock(&gpu->time.play_mutex);
    return earliest;
}

void gpu_wait(gpu_file *gpu, uint64_t number) {
    for (uint64_t earliest; (earliest = gpu_earliest(gpu, number)) != 0;)
        gpu_sleep_until(earliest);
}

/* ---- putting work ---- */

/* xorshift64 (Marsaglia 2003): any generator does, as long as the seed decides. */
static uint64_t next_random(struct gpu_own_time *own) {
    own->random ^= own->random << 13;
    own->random ^= own->random >> 7;
    own->random ^= own->random << 17;
    return own->random;
}

static uint64_t with_jitter(struct gpu_own_time *own, uint64_t ns) {
    if (own->random == 0)
        return ns;
    int64_t most = (int64_t)ns * JITTER_PERCENT / 100;
    int64_t part = (int64_t)(next_random(own) >> 48) - 32768; /* -32768 .. 32767 */
    return ns + (uint64_t)(most * part / 32768);
}

/* How long what is put takes to reach the GPU: exponential, in pieces between powers of two. */
static uint64_t latency_of(struct gpu_own_time *own) {
    if (own->latency == 0 || own->random == 0)
        return own->latency;
    uint64_t random = next_random(own);
    double octaves = __builtin_clzll(random | 1) + (double)(random & 0xffff) / 65536;
    return (uint64_t)((double)own->latency * 0.6931 * octaves);
}

static bool has_room(gpu_file *gpu, unsigned pieces) {
    uint64_t unfinished = gpu->time.tail + 1 - atomic_load(&gpu->area->processes[gpu->time.slot].frontier);
    return unfinished + pieces <= GPU_QUEUE_LENGTH;
}

bool gpu_has_room(gpu_file *gpu, unsigned pieces) {
    struct play play;
    pthread_mutex_lock(&gpu->time.put_mutex);
    bool room = gpu->time.slot >= 0 && has_room(gpu, pieces);
    if (!room && gpu->time.slot >= 0) {
        begin_play(gpu, &play);
        end_play(gpu);
        room = has_room(gpu, pieces);
    }
    pthread_mutex_unlock(&gpu->time.put_mutex);
    return room;
}

void gpu_wait_for_room(gpu_file *gpu, unsigned pieces) {
    struct play play;
    if (gpu_has_room(gpu, pieces))
        return;
    uint64_t wake = 0;
    begin_play(gpu, &play);
    int slot = gpu->time.slot;
    if (slot >= 0) {
        uint64_t oldest = atomic_load(&gpu->area->processes[slot].frontier);
        if (oldest <= atomic_load(&gpu->area->processes[slot].tail))
            wake = greater(not_before(&play, slot, oldest), play.now + POLL_NS);
    }
    end_play(gpu);
    if (wake != 0)
        gpu_sleep_until(wake);
}

uint64_t gpu_put(gpu_file *gpu, const struct gpu_work *work, struct gpu_mark *mark) {
    struct gpu_own_time *own = &gpu->time;
    uint64_t number = 0;
    if (mark != NULL)
        *mark = (struct gpu_mark){0};
    pthread_mutex_lock(&own->put_mutex);
    if (own->slot >= 0 && has_room(gpu, 1)) {
        struct gpu_process_time *process = &gpu->area->processes[own->slot];
        number = own->tail + 1;
        struct gpu_entry *entry = entry_of(gpu->area, own->slot, number);
        struct gpu_mark **marked = &own->marks[number % GPU_QUEUE_LENGTH];
        if (*marked != NULL) /* of the work that was in this place */
            (*marked)->at = atomic_load(&entry->done);
        *marked = mark;
        unsigned queue = work->queue % GPU_QUEUES;
        bool gate = (work->flags & GPU_WORK_GATE) != 0;
        uint64_t ns = gate ? 0 : lesser(work->ns, GPU_MAX_WORK_NS);
        if (work->sms != 0)
            ns = with_jitter(own, ns);
        own->totals[queue] += ns;
        entry->arrival = gpu_now() + latency_of(own);
        atomic_store_explicit(&entry->ns, ns, memory_order_relaxed);
        entry->total = own->totals[queue];
        entry->after[0] = work->after[0];
        entry->after[1] = work->after[1];
        atomic_store_explicit(&entry->done, 0, memory_order_relaxed);
        entry->next = 0;
        uint32_t all = gpu->identity.multiprocessors;
        entry->sms = (uint16_t)(work->sms < all ? work->sms : all);
        entry->queue = (uint8_t)queue;
        entry->flags = (uint8_t)work->flags;
        entry->priority = work->priority;
        own->tail = number;
        if (mark != NULL)
            mark->number = number;
        atomic_store(&process->tail, number);
        uint64_t bit = UINT64_C(1) << own->slot % 64;
        if ((atomic_load(&gpu->area->active[own->slot / 64]) & bit) == 0)
            atomic_fetch_or(&gpu->area->active[own->slot / 64], bit);
    }
    pthread_mutex_unlock(&own->put_mutex);
    return number;
}

void gpu_open_gate(gpu_file *gpu, uint64_t number) {
    pthread_mutex_lock(&gpu->time.put_mutex);
    if (gpu->time.slot >= 0 && !is_over(gpu->area, gpu->time.slot, number))
        atomic_store(&entry_of(gpu->area, gpu->time.slot, number)->ns, gpu_now());
    pthread_mutex_unlock(&gpu->time.put_mutex);
}

bool gpu_look(gpu_file *gpu, struct gpu_mark *mark) {
    bool over = gpu_is_done(gpu, mark->number);
    pthread_mutex_lock(&gpu->time.put_mutex);
    if (over && mark->number != 0 && mark->at == 0) {
        struct gpu_mark **marked = &gpu->time.marks[mark->number % GPU_QUEUE_LENGTH];
        if (*marked == mark && gpu->time.slot >= 0)
            mark->at = atomic_load(&entry_of(gpu->area, gpu->time.slot, mark->number)->done);
        if (*marked == mark)
            *marked = NULL;
    }
    pthread_mutex_unlock(&gpu->time.put_mutex);
    return over;
}

void gpu_forget(gpu_file *gpu, struct gpu_mark *mark) {
    pthread_mutex_lock(&gpu->time.put_mutex);
    struct gpu_mark **marked = &gpu->time.marks[mark->number % GPU_QUEUE_LENGTH];
    if (mark->number != 0 && *marked == mark)
        *marked = NULL;
    pthread_mutex_unlock(&gpu->time.put_mutex);
}

/* ---- coming and going ---- */

static uint64_t first_random(int slot) {
    const char *text = getenv("ALIQUOT_FAKE_SEED");
    uint64_t seed = text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : 1;
    return seed != 0 ? (seed * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)(slot + 1) * UINT64_C(0xbf58476d1ce4e5b9))
                     : 0;
}

static uint64_t first_latency(void) {
    const char *text = getenv("ALIQUOT_FAKE_LATENCY");
    uint64_t us = text != NULL ? strtoull(text, NULL, 10) : 0;
    return lesser(us, 1000000) * 1000;
}

void gpu_time_open(gpu_file *gpu) {
    gpu->time.slot = -1;
    pthread_mutex_init(&gpu->time.put_mutex, NULL);
    pthread_mutex_init(&gpu->time.play_mutex, NULL);
}

void gpu_time_close(gpu_file *gpu) {
    pthread_mutex_destroy(&gpu->time.put_mutex);
    pthread_mutex_destroy(&gpu->time.play_mutex);
}

void gpu_time_attach(gpu_file *gpu, int slot) {
    struct gpu_own_time *own = &gpu->time;
    pthread_mutex_lock(&own->put_mutex);
    pthread_mutex_lock(&own->play_mutex);
    gpu_area_lock(gpu);
    struct gpu_process_time *process = &gpu->area->processes[slot];
    atomic_store(&process->tail, own->tail); /* numbers go on, so that old ones mean nothing new */
    bury(gpu->area, slot);
    memset(process->usage, 0, sizeof process->usage);
    memset(own->totals, 0, sizeof own->totals);
    own->random = first_random(slot);
    own->latency = first_latency();
    own->slot = slot;
    gpu_area_unlock(gpu);
    pthread_mutex_unlock(&own->play_mutex);
    pthread_mutex_unlock(&own->put_mutex);
}

void gpu_time_detach(gpu_file *gpu) {
    struct gpu_own_time *own = &gpu->time;
    pthread_mutex_lock(&own->put_mutex);
    pthread_mutex_lock(&own->play_mutex);
    gpu_area_lock(gpu);
    uint64_t now = gpu_now();
    for (int i = 0; i < GPU_QUEUE_LENGTH; i++) {
        if (own->marks[i] == NULL)
            continue;
        uint64_t done = atomic_load(&entry_of(gpu->area, own->slot, own->marks[i]->number)->done);
        own->marks[i]->at = done != 0 ? done : now;
        own->marks[i] = NULL;
    }
    bury(gpu->area, own->slot);
    own->slot = -1;
    gpu_area_unlock(gpu);
    pthread_mutex_unlock(&own->play_mutex);
    pthread_mutex_unlock(&own->put_mutex);
}

/* ---- usage ---- */

size_t gpu_usage_history(gpu_file *gpu, int slot, struct gpu_usage *history, size_t max) {
    struct play play;
    size_t count = 0;
    begin_play(gpu, &play);
    const struct gpu_usage *usage = slot >= 0 ? gpu->area->processes[slot].usage : gpu->area->usage;
    uint64_t present = play.now / GPU_USAGE_PERIOD_NS;
    for (uint64_t back = 1; back < GPU_USAGE_PERIODS && back <= present && count < max; back++) {
        const struct gpu_usage *entry = &usage[(present - back) % GPU_USAGE_PERIODS];
        if (entry->period == present - back)
            history[count++] = *entry;
    }
    end_play(gpu);
    return count;
}
