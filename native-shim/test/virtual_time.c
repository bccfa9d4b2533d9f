/* clang-format off */
/*
 * Virtual time, as a preload: real processes with real threads, and what is preloaded after this, live by a clock that
 * stands still while anybody works and jumps to the next wake-up when all sleep. Hours pass in seconds, on a busy
 * machine as on an idle one, and what depends on nothing but time goes alike in every run.
 *
 *   ALIQUOT_VIRTUAL_TIME=FILE             the clock: processes that name the same file share it; without it nothing
 *                                         changes
 *   ALIQUOT_VIRTUAL_TIME_PARTICIPANTS=N   time stands still until N processes have looked at the clock; 1 unless said
 *   ALIQUOT_VIRTUAL_TIME_SEAT=K           who goes first at equal times: the lower K; processes without one, as they
 *                                         come
 *   ALIQUOT_VIRTUAL_TIME_TICK=NS          what every look at the clock takes, 200 unless said: programs that wait by
 *                                         looking get there, and calls take time as they do on a real machine
 *
 * One thread at a time works, and hands on when it sleeps: to whoever is due next, in the order of wake-ups, then
 * seats. A process takes part from its first look at the clock or its first sleep, its threads from pthread_create, a
 * forked child from fork. pthread_join, waitpid, wait, wait4, sigwait and pause let others go on. Other calls that wait
 * for others (pipes, condition variables) look like work: time stands still, but after STUCK_MS in them others that are
 * due at the same time go on beside, so short waits for a lock end. A thread that works for longer than LEEWAY_NS of
 * ticks is joined by those that are due. What was killed is noticed within STUCK_MS.
 *
 * gettimeofday, time, timeouts of poll and of timed waits, and CPU-time clocks stay real.
 */
/* clang-format on */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 2048, MAX_PROCESSES = 1024, STUCK_MS = 200, STANDSTILL_S = 10, FRESH_S = 5 };

#define SECOND UINT64_C(1000000000)
#define EPOCH (1000 * SECOND)            /* where the clock starts: CLOCK_MONOTONIC */
#define REAL_EPOCH (1700000000 * SECOND) /* and CLOCK_REALTIME at that moment */
#define LEEWAY_NS UINT64_C(2000000)
#define NEVER UINT64_MAX
#define MAGIC UINT64_C(0x31454d495456)

enum state { FREE, WORKING, WAITING, BLOCKED };

struct thread {
    _Atomic uint32_t state;
    uint32_t process;
    uint64_t wake;   /* WAITING: until then */
    uint64_t order;  /* the lower goes first at equal times */
    uint64_t handle; /* pthread_t */
    int32_t joiner;  /* the thread that joins this one, -1: none */
    uint32_t tid;
    uint32_t unused[4];
};

struct process {
    uint32_t used;
    uint32_t pid;
    uint64_t since; /* real seconds: a child that is being made has no lock yet */
};

/* Whoever has the lock on the file's first byte may change it; byte 1 + p is locked as long as process p lives. */
struct clock {
    uint64_t magic;
    _Atomic uint64_t now;
    _Atomic uint64_t due; /* the earliest wake-up of anybody who waits */
    uint32_t wanted, come;
    uint64_t turns;   /* how often somebody was told to go on */
    uint32_t seats;   /* given to processes that have none of their own */
    uint32_t threads; /* the highest place in use, plus one */
    struct process processes[MAX_PROCESSES];
    struct thread places[MAX_THREADS];
};

static struct clock *shared;
static int file = -1;
static char path[PATH_MAX];
static int self = -1; /* this process's place */
static uint64_t seat;
static uint32_t born; /* threads and children of this process so far */
static uint64_t tick = 200;
static pthread_mutex_t within = PTHREAD_MUTEX_INITIALIZER; /* file locks don't keep threads apart */
static _Thread_local int mine = -1;
static int child_thread = -1, child_process = -1; /* made ready for the child of a fork */
static atomic_int enabled = -1;

static _Noreturn void give_up(const char *what) {
    fprintf(stderr, "virtual_time: %s: %s\n", what, strerror(errno));
    abort();
}

static uint64_t real_seconds(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec;
}

static bool is_enabled(void) {
    int known = atomic_load(&enabled);
    if (known < 0) {
        const char *name = getenv("ALIQUOT_VIRTUAL_TIME");
        known = name != NULL && name[0] != '\0' && strlen(name) < sizeof path;
        if (known) {
            strcpy(path, name);
        }
        atomic_store(&enabled, known);
    }
    return known == 1;
}

static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- locks ---- */

static int byte_lock(int command, short type, off_t byte) {
    for (;;) {
        struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
        if (fcntl(file, command, &range) == 0) {
            return command == F_OFD_GETLK ? range.l_type != F_UNLCK : 0;
        }
        if (errno != EINTR) {
            return -1;
        }
    }
}

static void take(void) {
    pthread_mutex_lock(&within);
    if (byte_lock(F_OFD_SETLKW, F_WRLCK, 0) != 0) {
        give_up(path);
    }
}

static void let_go(void) {
    (void)byte_lock(F_OFD_SETLK, F_UNLCK, 0);
    pthread_mutex_unlock(&within);
}

/* ---- who goes on ---- */

static void wake(struct thread *thread) {
    atomic_store(&thread->state, WORKING);
    shared->turns++;
    syscall(SYS_futex, &thread->state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static struct thread *next_waiting(void) {
    struct thread *best = NULL;
    for (uint32_t i = 0; i < shared->threads; i++) {
        struct thread *thread = &shared->places[i];
        if (atomic_load(&thread->state) == WAITING && (best == NULL || thread->wake < best->wake ||
                                                       (thread->wake == best->wake && thread->order < best->order))) {
            best = thread;
        }
    }
    return best;
}

/* With the lock: if nobody works, time goes on to the next wake-up. Besides: even if somebody does, the due one goes
 * on. */
static void hand_on(bool besides) {
    bool working = false;
    for (uint32_t i = 0; i < shared->threads && !working; i++) {
        working = atomic_load(&shared->places[i].state) == WORKING;
    }
    struct thread *next = shared->come >= shared->wanted ? next_waiting() : NULL;
    if (next != NULL && (!working || (besides && next->wake <= atomic_load(&shared->now)))) {
        if (next->wake > atomic_load(&shared->now)) {
            atomic_store(&shared->now, next->wake);
        }
        wake(next);
        next = next_waiting();
    }
    atomic_store(&shared->due, next != NULL ? next->wake : NEVER);
}

/* Whether some thread that counts as working waits in the kernel, for another one perhaps. On a busy machine one that
   only hasn't got a processor for long is to be waited for: else runs would differ. */
static bool somebody_is_stuck(void) {
    for (uint32_t i = 0; i < shared->threads; i++) {
        const struct thread *thread = &shared->places[i];
        char name[64], text[512];
        if (atomic_load(&thread->state) != WORKING) {
            continue;
        }
        snprintf(name, sizeof name, "/proc/%u/task/%u/stat", shared->processes[thread->process].pid, thread->tid);
        int status = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t length = status < 0 ? -1 : read(status, text, sizeof text - 1);
        if (status >= 0) {
            close(status);
        }
        text[length < 0 ? 0 : length] = '\0';
        const char *end = strrchr(text, ')'); /* of the name; the state follows (proc(5)) */
        if (end == NULL || strncmp(end, ") R", 3) != 0) {
            return true;
        }
    }
    return false;
}

static void bury(int process) {
    for (uint32_t i = 0; i < shared->threads; i++) {
        if (atomic_load(&shared->places[i].state) != FREE && shared->places[i].process == (uint32_t)process) {
            atomic_store(&shared->places[i].state, FREE);
        }
    }
    shared->processes[process].used = 0;
}

static void bury_the_dead(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &shared->processes[i];
        if (process->used != 0 && i != self && byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) == 0 &&
            (process->since == 0 || real_seconds() - process->since > FRESH_S)) {
            bury(i);
        }
    }
}

static void complain(void) {
    fprintf(stderr, "virtual_time: time has stood still for %d s of real time at %.6f s; at work:", STANDSTILL_S,
            (double)(atomic_load(&shared->now) - EPOCH) / 1e9);
    for (uint32_t i = 0; i < shared->threads; i++) {
        if (atomic_load(&shared->places[i].state) == WORKING) {
            fprintf(stderr, " a thread of process %u;", shared->processes[shared->places[i].process].pid);
        }
    }
    fprintf(stderr, " %u of %u participants have come\n", shared->come, shared->wanted);
}

/* Until this thread is told to go on; false if a signal came instead, and it may anyway. */
static bool await(bool interruptible) {
    struct thread *thread = &shared->places[mine];
    uint64_t turns = shared->turns, since = real_seconds();
    bool complained = false;
    int rounds = 0;
    for (uint32_t state; (state = atomic_load(&thread->state)) != WORKING;) {
        const struct timespec patience = {.tv_nsec = STUCK_MS / 4 * 1000000L};
        if (state == FREE) { /* its process is about to end */
            syscall(SYS_nanosleep, &patience, NULL);
            continue;
        }
        int why = syscall(SYS_futex, &thread->state, FUTEX_WAIT, WAITING, &patience, NULL, 0) == 0 ? 0 : errno;
        if (why == 0 || why == EAGAIN) {
            continue;
        }
        take();
        if (why == ETIMEDOUT) {
            if (shared->turns != turns) {
                turns = shared->turns;
                since = real_seconds();
                rounds = 0;
            } else {
                bury_the_dead();
                hand_on(++rounds >= 4 && somebody_is_stuck());
            }
            if (!complained && shared->turns == turns && real_seconds() - since >= STANDSTILL_S) {
                complain();
                complained = true;
            }
        } else if (interruptible && atomic_load(&thread->state) == WAITING) {
            atomic_store(&thread->state, WORKING);
            let_go();
            return false;
        }
        let_go();
    }
    return true;
}

/* With the lock, which it lets go. */
static bool wait_until(uint64_t when, bool interruptible) {
    struct thread *thread = &shared->places[mine];
    thread->wake = when;
    atomic_store(&thread->state, WAITING);
    hand_on(false);
    let_go();
    return await(interruptible);
}

/* ---- coming and going ---- */

static int new_process(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &shared->processes[i];
        if (process->used == 0 && byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) == 0) {
            *process = (struct process){.used = 1, .since = real_seconds()};
            return i;
        }
    }
    give_up("too many processes");
}

/* A thread that waits for its turn now. */
static int new_thread(int process, uint64_t order) {
    for (int i = 0; i < MAX_THREADS; i++) {
        struct thread *thread = &shared->places[i];
        if (atomic_load(&thread->state) != FREE) {
            continue;
        }
        thread->process = (uint32_t)process;
        thread->wake = atomic_load(&shared->now);
        thread->order = order;
        thread->handle = 0;
        thread->tid = 0;
        thread->joiner = -1;
        atomic_store(&thread->state, WAITING);
        if (shared->threads <= (uint32_t)i) {
            shared->threads = (uint32_t)i + 1;
        }
        return i;
    }
    give_up("too many threads");
}

static void sit(int place) {
    mine = place;
    shared->places[place].tid = (uint32_t)syscall(SYS_gettid);
}

static void open_clock(void) {
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        give_up(path);
    }
}

static void before_fork(void) {
    if (self < 0) {
        return;
    }
    take();
    child_process = new_process();
    child_thread = new_thread(child_process, (seat << 32) | ++born);
    let_go();
    pthread_mutex_lock(&within);
}

static void after_fork_here(void) {
    if (self >= 0) {
        pthread_mutex_unlock(&within);
    }
}

static void become(int process) {
    self = process;
    shared->processes[process].pid = (uint32_t)getpid();
    if (byte_lock(F_OFD_SETLKW, F_WRLCK, 1 + process) != 0) {
        give_up(path);
    }
    shared->processes[process].since = 0;
}

static void after_fork_there(void) {
    if (self < 0) {
        return;
    }
    pthread_mutex_init(&within, NULL);
    close(file);
    open_clock();
    /* A mapping keeps the open file of its making, and so the parent's locks, alive. */
    if (mmap(shared, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        give_up(path);
    }
    sit(child_thread);
    born = 0;
    seat = (seat << 8 | (shared->places[mine].order & 0xff)) & UINT32_MAX;
    take();
    become(child_process);
    let_go();
    (void)await(false);
}

static bool nobody_lives(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        if (byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) != 0) {
            return false;
        }
    }
    return true;
}

/* The calling thread takes part from now on; false without virtual time. */
static bool take_part(void) {
    if (mine >= 0) {
        return true;
    }
    if (!is_enabled()) {
        return false;
    }
    int before = errno;
    pthread_mutex_lock(&within);
    bool first = self < 0;
    if (first) {
        open_clock();
    }
    pthread_mutex_unlock(&within);
    take();
    if (first) {
        if (lseek(file, 0, SEEK_END) < (off_t)sizeof *shared && ftruncate(file, (off_t)sizeof *shared) != 0) {
            give_up(path);
        }
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared == MAP_FAILED) {
            give_up(path);
        }
        if (shared->magic != MAGIC || nobody_lives()) { /* nobody's yet, or of a run that is over */
            memset(shared, 0, sizeof *shared);
            atomic_store(&shared->now, EPOCH);
            atomic_store(&shared->due, NEVER);
            shared->wanted = (uint32_t)number("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", 1);
            shared->magic = MAGIC;
        }
        tick = number("ALIQUOT_VIRTUAL_TIME_TICK", tick);
        seat = number("ALIQUOT_VIRTUAL_TIME_SEAT", 0x10000 + shared->seats++);
        become(new_process());
        pthread_atfork(before_fork, after_fork_here, after_fork_there);
        shared->come++;
    }
    sit(new_thread(self, (seat << 32) | born++));
    shared->places[mine].handle = (uint64_t)pthread_self();
    hand_on(false);
    let_go();
    (void)await(false);
    errno = before;
    return true;
}

__attribute__((destructor)) static void leave(void) {
    if (self < 0 || shared->processes[self].pid != (uint32_t)getpid()) {
        return;
    }
    take();
    bury(self);
    hand_on(false);
    let_go();
    atomic_store(&enabled, 0);
    mine = -1;
}

void _exit(int status) {
    leave();
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

void _Exit(int status) {
    _exit(status);
}

/* ---- the clock ---- */

static bool is_virtual(clockid_t id) {
    switch (id) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return true;
    default:
        return false;
    }
}

static uint64_t shift_of(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? REAL_EPOCH - EPOCH : 0;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    if (!is_virtual(id) || !take_part()) {
        return (int)syscall(SYS_clock_gettime, id, time);
    }
    uint64_t now = atomic_fetch_add(&shared->now, tick) + tick;
    uint64_t due = atomic_load(&shared->due);
    if (due != NEVER && now > due && now - due > LEEWAY_NS) {
        int before = errno;
        take();
        hand_on(true);
        let_go();
        const struct timespec moment = {.tv_nsec = 20000}; /* so that they come to it */
        syscall(SYS_nanosleep, &moment, NULL);
        errno = before;
    }
    now += shift_of(id);
    *time = (struct timespec){.tv_sec = (time_t)(now / SECOND), .tv_nsec = (long)(now % SECOND)};
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *request, struct timespec *left) {
    if (!is_virtual(id) || !take_part()) {
        return syscall(SYS_clock_nanosleep, id, flags, request, left) == 0 ? 0 : errno;
    }
    if (request->tv_nsec < 0 || request->tv_nsec >= (long)SECOND || request->tv_sec < 0) {
        return EINVAL;
    }
    int before = errno;
    uint64_t when = (uint64_t)request->tv_sec * SECOND + (uint64_t)request->tv_nsec;
    take();
    uint64_t now = atomic_load(&shared->now);
    if ((flags & TIMER_ABSTIME) == 0) {
        when += now;
    } else {
        when = when > shift_of(id) ? when - shift_of(id) : 0;
    }
    bool whole = wait_until(when > now ? when : now, true);
    if (!whole && (flags & TIMER_ABSTIME) == 0 && left != NULL) {
        now = atomic_load(&shared->now);
        uint64_t rest = when > now ? when - now : 0;
        *left = (struct timespec){.tv_sec = (time_t)(rest / SECOND), .tv_nsec = (long)(rest % SECOND)};
    }
    errno = before;
    return whole ? 0 : EINTR;
}

int nanosleep(const struct timespec *request, struct timespec *left) {
    int answer = clock_nanosleep(CLOCK_REALTIME, 0, request, left);
    if (answer != 0) {
        errno = answer;
    }
    return answer != 0 ? -1 : 0;
}

int usleep(useconds_t us) {
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    return nanosleep(&time, NULL);
}

unsigned sleep(unsigned seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds};
    return nanosleep(&left, &left) == 0 ? 0 : (unsigned)left.tv_sec + 1;
}

/* ---- threads ---- */

struct beginning {
    void *(*start)(void *);
    void *argument;
    int place;
};

/* The end of a thread: whoever joins it goes on at this very time. */
static void end_thread(void *unused) {
    (void)unused;
    take();
    int joiner = shared->places[mine].joiner;
    if (joiner >= 0 && atomic_load(&shared->places[joiner].state) == BLOCKED) {
        shared->places[joiner].wake = atomic_load(&shared->now);
        atomic_store(&shared->places[joiner].state, WAITING);
    }
    atomic_store(&shared->places[mine].state, FREE);
    hand_on(false);
    let_go();
    mine = -1;
}

static void *begin_thread(void *data) {
    const struct beginning beginning = *(struct beginning *)data;
    void *result;
    free(data);
    sit(beginning.place);
    pthread_cleanup_push(end_thread, NULL);
    (void)await(false);
    result = beginning.start(beginning.argument);
    pthread_cleanup_pop(1);
    return result;
}

#define REAL(name, ...)                                                                                                \
    static int (*real)(__VA_ARGS__);                                                                                   \
    if (real == NULL) {                                                                                                \
        void *found = dlsym(RTLD_NEXT, name);                                                                          \
        memcpy(&real, &found, sizeof real);                                                                            \
    }

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    REAL("pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    struct beginning *beginning = is_enabled() ? malloc(sizeof *beginning) : NULL;
    if (beginning == NULL || !take_part()) {
        free(beginning);
        return real(thread, attributes, start, argument);
    }
    take();
    *beginning = (struct beginning){start, argument, new_thread(self, (seat << 32) | born++)};
    struct thread *place = &shared->places[beginning->place];
    int result = real(thread, attributes, begin_thread, beginning);
    if (result != 0) {
        atomic_store(&place->state, FREE);
        free(beginning);
    } else {
        place->handle = (uint64_t)*thread;
        if (place->wake < atomic_load(&shared->due)) {
            atomic_store(&shared->due, place->wake);
        }
    }
    let_go();
    return result;
}

int pthread_join(pthread_t thread, void **value) {
    REAL("pthread_join", pthread_t, void **)
    if (mine < 0) {
        return real(thread, value);
    }
    bool lives = false;
    take();
    for (uint32_t i = 0; i < shared->threads; i++) {
        struct thread *place = &shared->places[i];
        if (atomic_load(&place->state) != FREE && place->process == (uint32_t)self &&
            place->handle == (uint64_t)thread && (int)i != mine) {
            place->joiner = mine;
            lives = true;
        }
    }
    if (lives) {
        atomic_store(&shared->places[mine].state, BLOCKED);
        hand_on(false);
    }
    let_go();
    int result = real(thread, value); /* its end has made this thread a waiting one */
    if (lives) {
        (void)await(false);
    }
    return result;
}

/* ---- calls that wait for what is outside ---- */

static void step_aside(void) {
    take();
    atomic_store(&shared->places[mine].state, BLOCKED);
    hand_on(false);
    let_go();
}

static void come_back(void) {
    int before = errno;
    take();
    (void)wait_until(atomic_load(&shared->now), false);
    errno = before;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    bool aside = mine >= 0 && (options & WNOHANG) == 0;
    if (aside) {
        step_aside();
    }
    pid_t result = (pid_t)syscall(SYS_wait4, pid, status, options, usage);
    if (aside) {
        come_back();
    }
    return result;
}

pid_t waitpid(pid_t pid, int *status, int options) {
    return wait4(pid, status, options, NULL);
}

pid_t wait(int *status) {
    return wait4(-1, status, 0, NULL);
}

int sigwait(const sigset_t *set, int *signal_number) {
    REAL("sigwait", const sigset_t *, int *)
    if (mine < 0) {
        return real(set, signal_number);
    }
    step_aside();
    int result = real(set, signal_number);
    come_back();
    return result;
}

int pause(void) {
    REAL("pause", void)
    if (mine < 0) {
        return real();
    }
    step_aside();
    int result = real();
    come_back();
    return result;
}
