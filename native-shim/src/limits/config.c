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
#define LIMITS_FILE "/etc/aliquot/vgpu"
#define REGION_FILE "/usr/local/aliquot/region"
#define AGENT_FILE "/usr/local/aliquot/agent"
#define PATH_SIZE 1024
#define CHECK_INTERVAL_NS 100000000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int mode = ALIQUOT_MODE_UNDECIDED;
enum { BYPASS_UNDECIDED, BYPASS_NO, BYPASS_YES };
static atomic_int bypass = BYPASS_UNDECIDED;
static _Atomic int64_t last_check; /* of the coarse clock */
static bool fork_handled;

/* The mutex guards all of the following. */
static char limits_path[PATH_SIZE];
static char report_path[PATH_SIZE];        /* not guarded: it is set once */
static struct aliquot_os_file limits_file; /* state at the last read, successful or not */
static struct aliquot_limits limits;
static char text[ALIQUOT_LIMITS_TEXT_MAX + 1];

static bool is_absent(const char *path) {
    struct aliquot_os_file file;
    int error = aliquot_os_stat(path, &file);
    return error == ENOENT || error == ENOTDIR;
}

/* Environment variables choose the path only outside an Aliquot container. */
static void set_path(char path[PATH_SIZE], const char *variable, const char *standard, bool outside_container) {
    const char *from_environment = outside_container ? secure_getenv(variable) : NULL;
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
    int fd = aliquot_os_open(limits_path, false);
    if (fd < 0) {
        snprintf(error, ALIQUOT_LIMITS_ERROR, "cannot be opened");
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
    pthread_mutex_unlock(&mutex);
}

static bool is_outside_container(void) {
    return is_absent(LIMITS_FOLDER) && is_absent(REGION_FILE);
}

/* If only some of the container's GPUs are whole, all are limited as the file says. */
static bool has_only_whole_cards(void) {
    bool whole = true;
    for (size_t i = 0; i < limits.count; i++) {
        whole &= limits.vgpu[i].exclusive;
    }
    return whole;
}

/* Requires the mutex. */
static bool is_bypassed(void) {
    char error[ALIQUOT_LIMITS_ERROR];
    if (atomic_load(&bypass) == BYPASS_UNDECIDED) {
        set_path(limits_path, "ALIQUOT_CONFIG", LIMITS_FILE, is_outside_container());
        bool whole = read_limits(error) && has_only_whole_cards();
        atomic_store_explicit(&bypass, whole ? BYPASS_YES : BYPASS_NO, memory_order_release);
    }
    return atomic_load(&bypass) == BYPASS_YES;
}

static enum aliquot_mode determine_mode(void) {
    char region_path[PATH_SIZE];
    char agent_path[PATH_SIZE];
    char error[ALIQUOT_LIMITS_ERROR];
    if (is_bypassed()) {
        return ALIQUOT_MODE_BYPASS;
    }
    bool outside_container = is_outside_container();
    set_path(limits_path, "ALIQUOT_CONFIG", LIMITS_FILE, outside_container);
    set_path(region_path, "ALIQUOT_REGION", REGION_FILE, outside_container);
    set_path(agent_path, "ALIQUOT_AGENT", AGENT_FILE, outside_container);
    set_path(report_path, "ALIQUOT_REPORT", "", outside_container);
    bool no_region = is_absent(region_path);
    if (is_absent(limits_path)) {
        return no_region ? ALIQUOT_MODE_PASS
                         : refuse_cuda(limits_path, "expected here, since this container has vGPUs; the pod was not "
                                                    "admitted by Aliquot's webhook");
    }
    if (!read_limits(error)) {
        return refuse_cuda(limits_path, error);
    }
    /* Outside a container the region may be missing; then the limit applies to each process separately. */
    bool alone = no_region && outside_container && strcmp(region_path, REGION_FILE) == 0;
    if (!aliquot_shared_open(alone ? NULL : region_path, error)) {
        return refuse_cuda(region_path, error);
    }
    aliquot_agent_open(agent_path); /* without it the limits apply all the same */
    if (!aliquot_account_set_limits(&limits, error)) {
        return refuse_cuda(region_path, error);
    }
    if (!fork_handled) {
        fork_handled = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
    }
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

static void run_periodic_checks(void) {
    int64_t now = aliquot_os_clock_coarse();
    int64_t last = atomic_load_explicit(&last_check, memory_order_relaxed);
    if (now - last < CHECK_INTERVAL_NS || !atomic_compare_exchange_strong(&last_check, &last, now)) {
        return;
    }
    int saved = errno;
    pthread_mutex_lock(&mutex);
    reread_if_changed();
    aliquot_account_follow_agent();
    pthread_mutex_unlock(&mutex);
    aliquot_shared_reap();
    errno = saved;
}

bool aliquot_config_is_bypassed(void) {
    int decided = atomic_load_explicit(&bypass, memory_order_acquire);
    if (decided == BYPASS_UNDECIDED) {
        int saved = errno;
        pthread_mutex_lock(&mutex);
        decided = is_bypassed() ? BYPASS_YES : BYPASS_NO;
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
    }
    return (enum aliquot_mode)decided;
}

const char *aliquot_config_report_path(void) {
    return report_path;
}
