#include "limits/config.h"

#include "limits/account.h"
#include "limits/limits.h"
#include "os/agent_file.h"
#include "os/os.h"
#include "os/shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMITS_FOLDER "/etc/aliquot"
#define LIMITS_NAME "vgpu"
#define LIMITS_FILE LIMITS_FOLDER "/" LIMITS_NAME
#define REGION_FILE "/usr/local/aliquot/region"
#define AGENT_FILE "/usr/local/aliquot/agent"
#define PATH_SIZE 1024
#define CHECK_INTERVAL_NS 100000000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int mode = ALIQUOT_MODE_UNDECIDED;
/* OPEN: the limit file says so and the agent's file nothing yet; hooks forward the calls, and look again. */
enum { BYPASS_UNDECIDED, BYPASS_NO, BYPASS_OPEN, BYPASS_YES };
static atomic_int bypass = BYPASS_UNDECIDED;
static void (*_Atomic on_bypass)(void);
static _Atomic int64_t last_check; /* of the coarse clock */
static bool fork_handled;

/*
 * What the paths in a container led to when the loader initialized this library; zeros: to nothing. It is noted before
 * the program can change its root (chroot, unshare) or rename a folder, and what is found at a path later must be the
 * same. No descriptor is kept: programs close those that they did not open, and reuse the numbers.
 */
static struct aliquot_os_file folder_at_start, region_at_start, agent_at_start;
static atomic_bool noted;

/* The mutex guards all of the following. */
static char limits_path[PATH_SIZE];
static char report_path[PATH_SIZE];        /* not guarded: it is set once */
static struct aliquot_os_file limits_file; /* state at the last read, successful or not */
static struct aliquot_limits limits;
static char text[ALIQUOT_LIMITS_TEXT_MAX + 1];

/* The only code that runs in a program that does not use a GPU: three system calls. */
__attribute__((constructor)) static void note_files(void) {
    int saved = errno;
    if (!atomic_load(&noted)) { /* the constructor of another library may have called a hook first */
        aliquot_os_stat(LIMITS_FOLDER, &folder_at_start);
        aliquot_os_stat(REGION_FILE, &region_at_start);
        aliquot_os_stat(AGENT_FILE, &agent_at_start);
        atomic_store(&noted, true);
    }
    errno = saved;
}

static bool is_outside_container(void) {
    note_files();
    return folder_at_start.inode == 0 && region_at_start.inode == 0;
}

static bool is_absent(const char *path) {
    struct aliquot_os_file file;
    int error = aliquot_os_stat(path, &file);
    return error == ENOENT || error == ENOTDIR;
}

/* Environment variables choose the path only outside an Aliquot container. */
static void set_path(char path[PATH_SIZE], const char *variable, const char *standard) {
    const char *from_environment = is_outside_container() ? secure_getenv(variable) : NULL;
    bool use = from_environment != NULL && from_environment[0] != 0 && strlen(from_environment) < PATH_SIZE;
    snprintf(path, PATH_SIZE, "%s", use ? from_environment : standard);
}

static enum aliquot_mode refuse_cuda(const char *path, const char *reason) {
    char line[PATH_SIZE + 512];
    snprintf(line, sizeof line, "aliquot: %s: %s; CUDA is not permitted\n", path, reason);
    aliquot_os_write_stderr(line);
    return ALIQUOT_MODE_REFUSE;
}

static bool read_limits(char error[ALIQUOT_LIMITS_ERROR]) {
    int fd = is_outside_container() ? aliquot_os_open(limits_path, NULL, false)
                                    : aliquot_os_open_in(LIMITS_FOLDER, &folder_at_start, LIMITS_NAME);
    if (fd < 0) {
        snprintf(error, ALIQUOT_LIMITS_ERROR, "%s",
                 errno == ESTALE ? "is in another folder than when the program started" : "cannot be opened");
        return false;
    }
    bool regular = aliquot_os_stat_fd(fd, &limits_file) == 0 && limits_file.regular;
    long length = regular ? aliquot_os_read(fd, text, sizeof text) : -1;
    aliquot_os_close(fd);
    if (length < 0) {
        snprintf(error, ALIQUOT_LIMITS_ERROR, "cannot be read");
        return false;
    }
    return aliquot_limits_parse(text, (size_t)length, &limits, error);
}

static void before_fork(void) {
    pthread_mutex_lock(&mutex);
    aliquot_shared_before_fork();
}

static void after_fork_in_parent(void) {
    aliquot_shared_after_fork_in_parent();
    pthread_mutex_unlock(&mutex);
}

/* Of the section that ALIQUOT_AFTER_FORK fills. */
extern void (*const __start_aliquot_resets[])(void) __attribute__((visibility("hidden")));
extern void (*const __stop_aliquot_resets[])(void) __attribute__((visibility("hidden")));

static void after_fork_in_child(void) {
    aliquot_shared_after_fork_in_child();
    aliquot_account_reset();
    aliquot_agent_reset();
    for (void (*const *reset)(void) = __start_aliquot_resets; reset < __stop_aliquot_resets; reset++) {
        (*reset)();
    }
    atomic_store(&last_check, 0);
    atomic_store(&mode, ALIQUOT_MODE_UNDECIDED);
    if (atomic_load(&bypass) == BYPASS_OPEN) {
        atomic_store(&bypass, BYPASS_UNDECIDED);
    }
    pthread_mutex_unlock(&mutex);
}

/* If only some of the container's GPUs are whole, all are limited as the file says. */
static bool has_only_whole_cards(void) {
    bool whole = true;
    for (size_t i = 0; i < limits.count; i++) {
        whole &= limits.vgpu[i].exclusive;
    }
    return whole;
}

static bool open_agent(void) {
    char path[PATH_SIZE];
    bool outside_container = is_outside_container();
    set_path(path, "ALIQUOT_AGENT", AGENT_FILE);
    return aliquot_agent_open(path, outside_container ? NULL : &agent_at_start);
}

/* Requires the mutex. Outside a container there may be no agent. */
static int decide_bypass(int before) {
    char error[ALIQUOT_LIMITS_ERROR];
    set_path(limits_path, "ALIQUOT_CONFIG", LIMITS_FILE);
    if (!read_limits(error)) {
        return before == BYPASS_UNDECIDED ? BYPASS_NO : before;
    }
    if (!has_only_whole_cards()) {
        return BYPASS_NO;
    }
    if (!open_agent()) {
        return is_outside_container() ? BYPASS_YES : BYPASS_NO;
    }
    uint32_t holds = aliquot_agent_holds();
    return holds == ALIQUOT_AGENT_HOLDS_WHOLE_CARDS ? BYPASS_YES : holds == 0 ? BYPASS_OPEN : BYPASS_NO;
}

/* Requires the mutex. */
static int current_bypass(void) {
    int now = atomic_load(&bypass);
    if (now == BYPASS_UNDECIDED) {
        now = decide_bypass(now);
        atomic_store_explicit(&bypass, now, memory_order_release);
    }
    return now;
}

static void handle_forks(void) {
    if (!fork_handled) {
        fork_handled = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
    }
}

static enum aliquot_mode determine_mode(void) {
    char region_path[PATH_SIZE];
    char error[ALIQUOT_LIMITS_ERROR];
    aliquot_os_find_clock_offset();
    int bypassed = current_bypass();
    if (bypassed != BYPASS_NO) {
        if (bypassed == BYPASS_OPEN) {
            handle_forks(); /* limits may follow */
        }
        return ALIQUOT_MODE_BYPASS;
    }
    bool outside_container = is_outside_container();
    set_path(limits_path, "ALIQUOT_CONFIG", LIMITS_FILE);
    set_path(region_path, "ALIQUOT_REGION", REGION_FILE);
    set_path(report_path, "ALIQUOT_REPORT", "");
    bool no_region = is_absent(region_path);
    if (is_absent(limits_path)) {
        return no_region && outside_container
                   ? ALIQUOT_MODE_PASS
                   : refuse_cuda(limits_path, folder_at_start.inode != 0
                                                  ? "is in another place than when the program started"
                                                  : "expected here, since this container has vGPUs; the pod was not "
                                                    "admitted by Aliquot's webhook");
    }
    if (!read_limits(error)) {
        return refuse_cuda(limits_path, error);
    }
    /* Outside a container the region may be missing; then the limit applies to each process separately. */
    bool alone = no_region && outside_container && strcmp(region_path, REGION_FILE) == 0;
    if (!aliquot_shared_open(alone ? NULL : region_path, outside_container ? NULL : &region_at_start, error)) {
        return refuse_cuda(region_path, error);
    }
    open_agent(); /* without it the limits apply all the same */
    if (!aliquot_account_set_limits(&limits, error)) {
        return refuse_cuda(region_path, error);
    }
    handle_forks();
    return ALIQUOT_MODE_ENFORCE;
}

static enum aliquot_mode determine_mode_once(void) {
    int saved = errno;
    pthread_mutex_lock(&mutex);
    int decided = atomic_load(&mode);
    if (decided == ALIQUOT_MODE_UNDECIDED) {
        decided = (int)determine_mode();
        atomic_store_explicit(&mode, decided, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    errno = saved;
    return (enum aliquot_mode)decided;
}

static bool is_same_file(const struct aliquot_os_file *one, const struct aliquot_os_file *other) {
    return one->device == other->device && one->inode == other->inode && one->size == other->size &&
           one->changed_seconds == other->changed_seconds && one->changed_nanoseconds == other->changed_nanoseconds;
}

static void reread_if_changed(void) {
    struct aliquot_os_file now;
    char error[ALIQUOT_LIMITS_ERROR];
    if (aliquot_os_stat(limits_path, &now) == 0 && !is_same_file(&now, &limits_file) && read_limits(error)) {
        aliquot_account_set_limits(&limits, error);
    }
}

/* Requires the mutex. Whole cards are believed until the agent's file says something. */
static void look_at_bypass(void) {
    void (*bypassed)(void) = atomic_load(&on_bypass);
    int now = decide_bypass(BYPASS_OPEN);
    atomic_store_explicit(&bypass, now, memory_order_release);
    if (now == BYPASS_NO) {
        atomic_store_explicit(&mode, (int)determine_mode(), memory_order_release);
    } else if (now == BYPASS_YES && bypassed != NULL) {
        bypassed();
    }
}

static void run_periodic_checks(void) {
    int64_t now = aliquot_os_clock_coarse();
    int64_t last = atomic_load_explicit(&last_check, memory_order_relaxed);
    if (now - last < CHECK_INTERVAL_NS || !atomic_compare_exchange_strong(&last_check, &last, now)) {
        return;
    }
    int saved = errno;
    pthread_mutex_lock(&mutex);
    bool enforced = atomic_load(&mode) == ALIQUOT_MODE_ENFORCE;
    if (enforced) {
        reread_if_changed();
        aliquot_account_follow_agent();
    } else if (atomic_load(&bypass) == BYPASS_OPEN) {
        look_at_bypass();
    }
    pthread_mutex_unlock(&mutex);
    if (enforced) {
        aliquot_shared_reap();
    }
    errno = saved;
}

bool aliquot_config_is_bypassed(void (*later)(void)) {
    if (later != NULL) {
        atomic_store(&on_bypass, later); /* first, so that a bypass which is decided meanwhile is not missed */
    }
    int decided = atomic_load_explicit(&bypass, memory_order_acquire);
    if (decided == BYPASS_UNDECIDED) {
        int saved = errno;
        pthread_mutex_lock(&mutex);
        decided = current_bypass();
        pthread_mutex_unlock(&mutex);
        errno = saved;
    }
    return decided == BYPASS_YES;
}

enum aliquot_mode aliquot_config_mode(void) {
    int decided = atomic_load_explicit(&mode, memory_order_acquire);
    if (decided == ALIQUOT_MODE_UNDECIDED) {
        decided = (int)determine_mode_once();
    }
    if (decided == ALIQUOT_MODE_ENFORCE) {
        run_periodic_checks();
    } else if (decided == ALIQUOT_MODE_BYPASS && atomic_load_explicit(&bypass, memory_order_relaxed) == BYPASS_OPEN) {
        run_periodic_checks();
        decided = atomic_load_explicit(&mode, memory_order_acquire);
    }
    return (enum aliquot_mode)decided;
}

const char *aliquot_config_report_path(void) {
    return report_path;
}
