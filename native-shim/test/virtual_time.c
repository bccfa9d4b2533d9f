/* clang-format off */
/*
 * A preloaded library that gives real processes a virtual clock. The clock stands still while a thread runs, and jumps
 * to the next wake-up time when all threads sleep. Hours pass in seconds, on a busy machine as on an idle one, and
 * programs that depend on nothing but time behave the same in every run. Libraries preloaded after this one use the
 * clock, too.
 *
 *   ALIQUOT_VIRTUAL_TIME=FILE             the clock; processes with the same file share it. Unset: time is real
 *   ALIQUOT_VIRTUAL_TIME_PARTICIPANTS=N   time stands still until N processes have joined (default 1)
 *   ALIQUOT_VIRTUAL_TIME_PRIORITY=K       the process with the lower K runs first at equal times (default: after those
 *                                         with a priority, in the order in which processes joined)
 *   ALIQUOT_VIRTUAL_TIME_PAUSE=FROM-TO    between these seconds the process does not run, as if stopped by a signal
 *   ALIQUOT_VIRTUAL_TIME_TICK=NS          time that each read of the clock takes (default 200), so that a program that
 *                                         polls the clock makes progress, and calls last as on a real machine
 *
 * One thread runs at a time. When it sleeps, the thread with the next wake-up time runs, at equal times the one with
 * the lower priority value. A process joins when it first reads the clock or sleeps, its threads at pthread_create, a
 * forked child at fork. While a thread is in pthread_join, waitpid, wait, wait4, sigwait or pause, others run. A thread
 * in any other blocking call (a pipe, a condition variable) counts as running, so time stands still; but after STUCK_MS
 * other threads that are due at the same time run, too, so that a short wait for a lock ends. When a thread runs for
 * more than LEEWAY_NS of ticks, threads that are due run beside it. The library detects killed processes within
 * STUCK_MS.
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

enum { MAX_THREADS = 2048, MAX_PROCESSES = 1024, STUCK_MS = 200, STANDSTILL_S = 10, STARTUP_S = 5 };

#define SECOND UINT64_C(1000000000)
#define EPOCH (1000 * SECOND)            /* CLOCK_MONOTONIC at the start of the virtual clock */
#define REAL_EPOCH (1700000000 * SECOND) /* CLOCK_REALTIME at the same time */
#define LEEWAY_NS UINT64_C(2000000)
#define NEVER UINT64_MAX
#define MAGIC UINT64_C(0x31454d495456)

enum state { FREE, RUNNING, WAITING, BLOCKED };

struct thread {
    _Atomic uint32_t state;
    uint32_t process;
    uint64_t wake;   /* wake-up time of a WAITING thread */
    uint64_t order;  /* the thread with the lower value runs first at equal times */
    uint64_t handle; /* pthread_t */
    int32_t joiner;  /* index of the thread that joins this one; -1: none */
    uint32_t tid;
    uint32_t unused[4];
};

struct process {
    uint32_t used;
    uint32_t pid;
    uint64_t since; /* real seconds at which a fork began whose child has no lock yet; else 0 */
};

/* The content of the clock file. A process changes it only while it holds the lock on the file's byte 0. Process p
   holds the lock on byte 1 + p while it runs. */
struct clock {
    uint64_t magic;
    _Atomic uint64_t now;
    _Atomic uint64_t due; /* the earliest wake-up time of a WAITING thread */
    uint32_t participants, joined;
    uint64_t wake_ups;      /* number of threads that were woken */
    uint32_t unprioritized; /* number of processes without a priority of their own */
    uint32_t thread_count;  /* highest index of `threads` in use, plus one */
    struct process processes[MAX_PROCESSES];
    struct thread threads[MAX_THREADS];
};

static struct clock *shared;
static int file = -1;
static char path[PATH_MAX];
static int current_process = -1; /* this process's index; -1: it has not joined */
static uint64_t priority;
static uint32_t started; /* threads and child processes that this process has started */
static uint64_t tick = 200;
static double pause_from, pause_to;
static pthread_mutex_t thread_mutex = PTHREAD_MUTEX_INITIALIZER; /* threads of a process share its file locks */
static _Thread_local int current_thread = -1;                    /* this thread's index; -1: it has not joined */
static int child_thread = -1, child_process = -1;                /* entries that before_fork reserves for the child */
static atomic_int enabled = -1;

static _Noreturn void fail(const char *what) {
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

static void lock_clock(void) {
    pthread_mutex_lock(&thread_mutex);
    if (byte_lock(F_OFD_SETLKW, F_WRLCK, 0) != 0) {
        fail(path);
    }
}

static void unlock_clock(void) {
    (void)byte_lock(F_OFD_SETLK, F_UNLCK, 0);
    pthread_mutex_unlock(&thread_mutex);
}

/* ---- scheduling ---- */

static void wake(struct thread *thread) {
    atomic_store(&thread->state, RUNNING);
    shared->wake_ups++;
    syscall(SYS_futex, &thread->state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static struct thread *next_waiting(void) {
    struct thread *best = NULL;
    for (uint32_t i = 0; i < shared->thread_count; i++) {
        struct thread *thread = &shared->threads[i];
        if (atomic_load(&thread->state) == WAITING && (best == NULL || thread->wake < best->wake ||
                                                       (thread->wake == best->wake && thread->order < best->order))) {
            best = thread;
        }
    }
    return best;
}

/* If no thread runs, advances the clock to the next wake-up time and wakes that thread. With `preempt` it wakes a
   thread that is due even while others run. The caller holds the lock. */
static void run_next(bool preempt) {
    bool working = false;
    for (uint32_t i = 0; i < shared->thread_count && !working; i++) {
        working = atomic_load(&shared->threads[i].state) == RUNNING;
    }
    struct thread *next = shared->joined >= shared->participants ? next_waiting() : NULL;
    if (next != NULL && (!working || (preempt && next->wake <= atomic_load(&shared->now)))) {
        if (next->wake > atomic_load(&shared->now)) {
            atomic_store(&shared->now, next->wake);
        }
        wake(next);
        next = next_waiting();
    }
    atomic_store(&shared->due, next != NULL ? next->wake : NEVER);
}

/* Whether a RUNNING thread is blocked in the kernel, perhaps until another thread acts. A thread that is runnable but
   has not got a CPU does not count: other threads must wait for it, or runs would differ on a busy machine. */
static bool a_thread_is_blocked(void) {
    for (uint32_t i = 0; i < shared->thread_count; i++) {
        const struct thread *thread = &shared->threads[i];
        char name[64], text[512];
        if (atomic_load(&thread->state) != RUNNING) {
            continue;
        }
        snprintf(name, sizeof name, "/proc/%u/task/%u/stat", shared->processes[thread->process].pid, thread->tid);
        int status = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t length = status < 0 ? -1 : read(status, text, sizeof text - 1);
        if (status >= 0) {
            close(status);
        }
        text[length < 0 ? 0 : length] = '\0';
        const char *end = strrchr(text, ')'); /* end of the name; the state follows (proc(5)) */
        if (end == NULL || strncmp(end, ") R", 3) != 0) {
            return true;
        }
    }
    return false;
}

static void remove_process(int process) {
    for (uint32_t i = 0; i < shared->thread_count; i++) {
        if (atomic_load(&shared->threads[i].state) != FREE && shared->threads[i].process == (uint32_t)process) {
            atomic_store(&shared->threads[i].state, FREE);
        }
    }
    shared->processes[process].used = 0;
}

static void remove_dead_processes(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &shared->processes[i];
        if (process->used != 0 && i != current_process && byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) == 0 &&
            (process->since == 0 || real_seconds() - process->since > STARTUP_S)) {
            remove_process(i);
        }
    }
}

static void report_standstill(void) {
    fprintf(stderr, "virtual_time: the clock has stood still for %d s of real time at %.6f s; running:", STANDSTILL_S,
            (double)(atomic_load(&shared->now) - EPOCH) / 1e9);
    for (uint32_t i = 0; i < shared->thread_count; i++) {
        if (atomic_load(&shared->threads[i].state) == RUNNING) {
            fprintf(stderr, " a thread of process %u;", shared->processes[shared->threads[i].process].pid);
        }
    }
    fprintf(stderr, " %u of %u participants have joined\n", shared->joined, shared->participants);
}

/* Waits until another thread wakes this one; false if a signal interrupted the wait. In both cases the thread runs. */
static bool wait_to_run(bool interruptible) {
    struct thread *thread = &shared->threads[current_thread];
    uint64_t wake_ups = shared->wake_ups, since = real_seconds();
    bool reported = false;
    int rounds = 0;
    for (uint32_t state; (state = atomic_load(&thread->state)) != RUNNING;) {
        const struct timespec timeout = {.tv_nsec = STUCK_MS / 4 * 1000000L};
        if (state == FREE) { /* the process is about to exit */
            syscall(SYS_nanosleep, &timeout, NULL);
            continue;
        }
        int error = syscall(SYS_futex, &thread->state, FUTEX_WAIT, WAITING, &timeout, NULL, 0) == 0 ? 0 : errno;
        if (error == 0 || error == EAGAIN) {
            continue;
        }
        lock_clock();
        if (error == ETIMEDOUT) {
            if (shared->wake_ups != wake_ups) {
                wake_ups = shared->wake_ups;
                since = real_seconds();
                rounds = 0;
            } else {
                remove_dead_processes();
                run_next(++rounds >= 4 && a_thread_is_blocked());
            }
            if (!reported && shared->wake_ups == wake_ups && real_seconds() - since >= STANDSTILL_S) {
                report_standstill();
                reported = true;
            }
        } else if (interruptible && atomic_load(&thread->state) == WAITING) {
            atomic_store(&thread->state, RUNNING);
            unlock_clock();
            return false;
        }
        unlock_clock();
    }
    return true;
}

/* Sleeps until a time. The caller holds the lock, which this function releases. */
static bool wait_until(uint64_t when, bool interruptible) {
    struct thread *thread = &shared->threads[current_thread];
    double seconds = (double)(when - EPOCH) / SECOND;
    thread->wake = seconds >= pause_from && seconds < pause_to ? EPOCH + (uint64_t)(pause_to * SECOND) : when;
    atomic_store(&thread->state, WAITING);
    run_next(false);
    unlock_clock();
    return wait_to_run(interruptible);
}

/* ---- joining and leaving ---- */

static int new_process(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        struct process *process = &shared->processes[i];
        if (process->used == 0 && byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) == 0) {
            *process = (struct process){.used = 1, .since = real_seconds()};
            return i;
        }
    }
    fail("too many processes");
}

/* Adds a thread that is due now. */
static int new_thread(int process, uint64_t order) {
    for (int i = 0; i < MAX_THREADS; i++) {
        struct thread *thread = &shared->threads[i];
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
        if (shared->thread_count <= (uint32_t)i) {
            shared->thread_count = (uint32_t)i + 1;
        }
        return i;
    }
    fail("too many threads");
}

static void set_current_thread(int entry) {
    current_thread = entry;
    shared->threads[entry].tid = (uint32_t)syscall(SYS_gettid);
}

static void open_clock(void) {
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        fail(path);
    }
}

static void before_fork(void) {
    if (current_process < 0) {
        return;
    }
    lock_clock();
    child_process = new_process();
    child_thread = new_thread(child_process, (priority << 32) | ++started);
    unlock_clock();
    pthread_mutex_lock(&thread_mutex);
}

static void after_fork_in_parent(void) {
    if (current_process >= 0) {
        pthread_mutex_unlock(&thread_mutex);
    }
}

static void set_current_process(int process) {
    current_process = process;
    shared->processes[process].pid = (uint32_t)getpid();
    if (byte_lock(F_OFD_SETLKW, F_WRLCK, 1 + process) != 0) {
        fail(path);
    }
    shared->processes[process].since = 0;
}

static void after_fork_in_child(void) {
    if (current_process < 0) {
        return;
    }
    pthread_mutex_init(&thread_mutex, NULL);
    close(file);
    open_clock();
    /* The inherited mapping keeps the parent's open file and its locks alive, so it is replaced. */
    if (mmap(shared, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        fail(path);
    }
    set_current_thread(child_thread);
    started = 0;
    priority = (priority << 8 | (shared->threads[current_thread].order & 0xff)) & UINT32_MAX;
    lock_clock();
    set_current_process(child_process);
    unlock_clock();
    (void)wait_to_run(false);
}

static bool no_process_is_alive(void) {
    for (int i = 0; i < MAX_PROCESSES; i++) {
        if (byte_lock(F_OFD_GETLK, F_WRLCK, 1 + i) != 0) {
            return false;
        }
    }
    return true;
}

/* Makes the calling thread use the virtual clock; false without one. */
static bool join_clock(void) {
    if (current_thread >= 0) {
        return true;
    }
    if (!is_enabled()) {
        return false;
    }
    int before = errno;
    pthread_mutex_lock(&thread_mutex);
    bool first = current_process < 0;
    if (first) {
        open_clock();
    }
    pthread_mutex_unlock(&thread_mutex);
    lock_clock();
    if (first) {
        if (lseek(file, 0, SEEK_END) < (off_t)sizeof *shared && ftruncate(file, (off_t)sizeof *shared) != 0) {
            fail(path);
        }
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared == MAP_FAILED) {
            fail(path);
        }
        if (shared->magic != MAGIC || no_process_is_alive()) { /* a new file, or one of an earlier run */
            memset(shared, 0, sizeof *shared);
            atomic_store(&shared->now, EPOCH);
            atomic_store(&shared->due, NEVER);
            shared->participants = (uint32_t)number("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", 1);
            shared->magic = MAGIC;
        }
        tick = number("ALIQUOT_VIRTUAL_TIME_TICK", tick);
        const char *range = getenv("ALIQUOT_VIRTUAL_TIME_PAUSE");
        if (range != NULL && sscanf(range, "%lf-%lf", &pause_from, &pause_to) != 2) {
            errno = EINVAL;
            fail(range);
        }
        priority = number("ALIQUOT_VIRTUAL_TIME_PRIORITY", 0x10000 + shared->unprioritized++);
        set_current_process(new_process());
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        shared->joined++;
    }
    set_current_thread(new_thread(current_process, (priority << 32) | started++));
    shared->threads[current_thread].handle = (uint64_t)pthread_self();
    run_next(false);
    unlock_clock();
    (void)wait_to_run(false);
    errno = before;
    return true;
}

__attribute__((destructor)) static void leave_clock(void) {
    if (current_process < 0 || shared->processes[current_process].pid != (uint32_t)getpid()) {
        return;
    }
    lock_clock();
    remove_process(current_process);
    run_next(false);
    unlock_clock();
    atomic_store(&enabled, 0);
    current_thread = -1;
}

void _exit(int status) {
    leave_clock();
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

static uint64_t clock_offset(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? REAL_EPOCH - EPOCH : 0;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    if (!is_virtual(id) || !join_clock()) {
        return (int)syscall(SYS_clock_gettime, id, time);
    }
    uint64_t now = atomic_fetch_add(&shared->now, tick) + tick;
    uint64_t due = atomic_load(&shared->due);
    if (due != NEVER && now > due && now - due > LEEWAY_NS) {
        int before = errno;
        lock_clock();
        run_next(true);
        unlock_clock();
        const struct timespec yield_time = {.tv_nsec = 20000}; /* lets the other threads run */
        syscall(SYS_nanosleep, &yield_time, NULL);
        errno = before;
    }
    now += clock_offset(id);
    *time = (struct timespec){.tv_sec = (time_t)(now / SECOND), .tv_nsec = (long)(now % SECOND)};
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *request, struct timespec *left) {
    if (!is_virtual(id) || !join_clock()) {
        return syscall(SYS_clock_nanosleep, id, flags, request, left) == 0 ? 0 : errno;
    }
    if (request->tv_nsec < 0 || request->tv_nsec >= (long)SECOND || request->tv_sec < 0) {
        return EINVAL;
    }
    int before = errno;
    uint64_t when = (uint64_t)request->tv_sec * SECOND + (uint64_t)request->tv_nsec;
    lock_clock();
    uint64_t now = atomic_load(&shared->now);
    if ((flags & TIMER_ABSTIME) == 0) {
        when += now;
    } else {
        when = when > clock_offset(id) ? when - clock_offset(id) : 0;
    }
    bool completed = wait_until(when > now ? when : now, true);
    if (!completed && (flags & TIMER_ABSTIME) == 0 && left != NULL) {
        now = atomic_load(&shared->now);
        uint64_t rest = when > now ? when - now : 0;
        *left = (struct timespec){.tv_sec = (time_t)(rest / SECOND), .tv_nsec = (long)(rest % SECOND)};
    }
    errno = before;
    return completed ? 0 : EINTR;
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

struct thread_start {
    void *(*start)(void *);
    void *argument;
    int entry;
};

/* Ends a thread. A thread that joins it becomes due at this time. */
static void finish_thread(void *unused) {
    (void)unused;
    lock_clock();
    int joiner = shared->threads[current_thread].joiner;
    if (joiner >= 0 && atomic_load(&shared->threads[joiner].state) == BLOCKED) {
        shared->threads[joiner].wake = atomic_load(&shared->now);
        atomic_store(&shared->threads[joiner].state, WAITING);
    }
    atomic_store(&shared->threads[current_thread].state, FREE);
    run_next(false);
    unlock_clock();
    current_thread = -1;
}

static void *thread_main(void *data) {
    const struct thread_start thread_start = *(struct thread_start *)data;
    void *result;
    free(data);
    set_current_thread(thread_start.entry);
    pthread_cleanup_push(finish_thread, NULL);
    (void)wait_to_run(false);
    result = thread_start.start(thread_start.argument);
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
    struct thread_start *thread_start = is_enabled() ? malloc(sizeof *thread_start) : NULL;
    if (thread_start == NULL || !join_clock()) {
        free(thread_start);
        return real(thread, attributes, start, argument);
    }
    lock_clock();
    *thread_start = (struct thread_start){start, argument, new_thread(current_process, (priority << 32) | started++)};
    struct thread *entry = &shared->threads[thread_start->entry];
    int result = real(thread, attributes, thread_main, thread_start);
    if (result != 0) {
        atomic_store(&entry->state, FREE);
        free(thread_start);
    } else {
        entry->handle = (uint64_t)*thread;
        if (entry->wake < atomic_load(&shared->due)) {
            atomic_store(&shared->due, entry->wake);
        }
    }
    unlock_clock();
    return result;
}

int pthread_join(pthread_t thread, void **value) {
    REAL("pthread_join", pthread_t, void **)
    if (current_thread < 0) {
        return real(thread, value);
    }
    bool running = false;
    lock_clock();
    for (uint32_t i = 0; i < shared->thread_count; i++) {
        struct thread *entry = &shared->threads[i];
        if (atomic_load(&entry->state) != FREE && entry->process == (uint32_t)current_process &&
            entry->handle == (uint64_t)thread && (int)i != current_thread) {
            entry->joiner = current_thread;
            running = true;
        }
    }
    if (running) {
        atomic_store(&shared->threads[current_thread].state, BLOCKED);
        run_next(false);
    }
    unlock_clock();
    int result = real(thread, value); /* finish_thread has made this thread WAITING */
    if (running) {
        (void)wait_to_run(false);
    }
    return result;
}

/* ---- calls that block without the clock ---- */

static void begin_blocking_call(void) {
    lock_clock();
    atomic_store(&shared->threads[current_thread].state, BLOCKED);
    run_next(false);
    unlock_clock();
}

static void end_blocking_call(void) {
    int before = errno;
    lock_clock();
    (void)wait_until(atomic_load(&shared->now), false);
    errno = before;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    bool blocking = current_thread >= 0 && (options & WNOHANG) == 0;
    if (blocking) {
        begin_blocking_call();
    }
    pid_t result = (pid_t)syscall(SYS_wait4, pid, status, options, usage);
    if (blocking) {
        end_blocking_call();
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
    if (current_thread < 0) {
        return real(set, signal_number);
    }
    begin_blocking_call();
    int result = real(set, signal_number);
    end_blocking_call();
    return result;
}

int pause(void) {
    REAL("pause", void)
    if (current_thread < 0) {
        return real();
    }
    begin_blocking_call();
    int result = real();
    end_blocking_call();
    return result;
}
