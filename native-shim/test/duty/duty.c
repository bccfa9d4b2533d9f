/*
 * Measures the share of a simulated GPU that each tenant gets under the shim, by the GPU model's own accounting.
 *
 * `duty OPTIONS` creates a GPU, and a container per tenant. It starts itself again as the tenants, which launch kernels
 * under the shim, and as the meter, which reads the GPU model's accounting. With --arbiter it also starts itself in the
 * node agent's place, which starts the arbiter and tells it of the tenants. All these processes share a virtual clock,
 * which advances only while all of them sleep: half a minute of GPU time takes seconds, and other load on the machine
 * does not affect the result.
 */
#include "aliquot/region.h"
#include "gpu_time.h"
#include "os/usage.h"
#include "tenant.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TENANTS = 9, MAX_PROCESSES = 4, SERIES_NS = 20000000 };

static const char help[] =
    "usage: duty [OPTIONS]\n"
    "Measures the share of a simulated GPU that each tenant gets.\n"
    "\n"
    "  --limits 30,70     compute limit of each tenant in percent; 0: no limit (default 25)\n"
    "  --tenants N        number of tenants (default: one per limit); further tenants get the last limit\n"
    "  --shape SHAPE      50us, 200us, 1ms, 20ms, 3.5ms, ...: kernels of one duration (default 1ms)\n"
    "                     mixed: 50us, 200us, 1ms and 20ms at random, with a grid size for each duration\n"
    "                     varied: the same durations with one grid size, so that the shim cannot predict them\n"
    "                     50us+3ms: a mix of these durations; 50us+3ms!: with one grid size\n"
    "                     graph: a captured graph of 20 kernels of 50us\n"
    "                     a comma-separated list: one shape per tenant\n"
    "  --pattern PATTERN  busy: launches without a pause (default)\n"
    "                     sync: waits for the end of each kernel; think=MS: and then computes on the CPU\n"
    "                     poisson=P/N: requests of N kernels (default 1) at random times that need P percent of\n"
    "                     the GPU\n"
    "                     burst: 200 ms busy, 300 ms idle; burst=BUSY/IDLE in ms\n"
    "                     streams=N: launches on N streams in turn; streams=N/M: with at most M in flight\n"
    "                     copies=KIB: a copy from the host after each kernel\n"
    "                     functions=N: launches N functions in turn\n"
    "                     a comma-separated list: one pattern per tenant\n"
    "  --processes N      number of processes of each tenant, which share its limit (default 1); or a list\n"
    "  --policy POLICY    fixed (default), elastic or none; a comma-separated list: one policy per tenant\n"
    "  --arbiter          also run the arbiter\n"
    "  --fault WHAT@FROM[-TO]  between these seconds, or from then on (with --arbiter):\n"
    "                     killed: there is no arbiter; hung: the arbiter does not run\n"
    "                     paused: the first tenant does not run\n"
    "                     silent, high, low, late: NVML's figures are unknown, 20 points too high or low, a\n"
    "                     second old\n"
    "                     claims, used: 50 times a second, the first tenant's region says that its work waits, or\n"
    "                     that it used ten times the GPU\n"
    "  --priority P       high, normal (default) or low; a comma-separated list: one priority per tenant\n"
    "  --floor P          the arbiter's FLOOR in percent (default 5)\n"
    "  --seconds S        duration of the measurement (default 5)\n"
    "  --warm-up S        time before the measurement (default 2)\n"
    "  --tolerance P      largest error of a tenant's share in percentage points (default 2); negative: only print\n"
    "  --expect 30,70     expected share of each tenant; negative: any (default: its limit, scaled down if the\n"
    "                     limits add up to more than 100)\n"
    "  --total P          smallest sum of all shares in percent\n"
    "  --shown P          smallest utilization that the shim may show at any time, in percent of the tenant's limit\n"
    "  --work P           smallest work of the first tenant, in percent of what the GPU can do\n"
    "  --p99 MS           largest 99th percentile of the times that the work of the first tenant takes\n"
    "  --accounting P     largest difference between the shim's and the GPU's accounting in percentage points\n"
    "  --seed N           seed of the kernels' jitter and of the mixes (default 1)\n"
    "  --latency US       mean time until work reaches the GPU, exponentially distributed (default 0)\n"
    "  --profile PROFILE  facts about the GPU: kind (default), hopper, nastiest, or items of ALIQUOT_FAKE_PROFILE\n"
    "  --series FILE      writes a line for each 20 ms from the start: seconds, and the part of the GPU that each\n"
    "                     tenant used, separated by commas\n"
    "\n"
    "exit status:\n"
    "  0  every share and every figure is within its bounds\n"
    "  1  at least one is not\n"
    "  2  the measurement failed\n";

/* What goes wrong, and when, in ns since the start. */
struct fault {
    const char *what;
    uint64_t from, to;
};

/* The options. */
struct plan {
    struct tenant {
        double limit, expected;
        const char *policy, *priority, *shape, *pattern;
        int processes;
    } tenants[MAX_TENANTS];
    int count, seed, latency;
    double seconds, warm_up, tolerance, total, shown, accounting, p99, work;
    bool arbiter;
    const char *profile, *series, *floor;
    struct fault fault;
};

/* What the processes of a measurement tell each other. */
struct figures {
    double used; /* percent of the GPU */
    struct {
        pid_t pids[MAX_PROCESSES];
        double used, work;                      /* percent of the GPU: of its time, and of what it can do */
        double accounted, min_shown, max_shown; /* the same by the shim's accounting */
        struct tenant_latencies latencies;      /* of its work */
    } tenants[MAX_TENANTS];
};

/* Item i of a comma-separated list; the last item if the list is shorter. */
static char *item(const char *list, int i) {
    const char *start = list;
    for (const char *comma; i > 0 && (comma = strchr(start, ',')) != NULL; i--) {
        start = comma + 1;
    }
    return strndup(start, strcspn(start, ","));
}

static int items(const char *list) {
    int count = 1;
    for (; *list != 0; list++) {
        count += *list == ',';
    }
    return count;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Prints how long the work of a tenant took that waits for it, and ended between these seconds. Returns the 99th
   percentile in ms. */
static double print_latencies(const struct tenant_latencies *latencies, double from, double to) {
    static float ms[TENANT_LATENCIES];
    size_t count = 0;
    for (uint32_t i = 0; i < latencies->count && i < TENANT_LATENCIES; i++) {
        if (latencies->of[i].at >= (float)from && latencies->of[i].at < (float)to) {
            ms[count++] = latencies->of[i].ms;
        }
    }
    if (count == 0) {
        return 0;
    }
    qsort(ms, count, sizeof ms[0], compare_floats);
    printf("; work takes %.2f ms, p90 %.2f, p99 %.2f, at most %.2f (%zu times)", ms[count / 2], ms[count * 9 / 10],
           ms[count * 99 / 100], ms[count - 1], count);
    return ms[count * 99 / 100];
}

/* ---- the meter ---- */

static double gpu_time_of(const struct aliquot_region *region) {
    return (double)__atomic_load_n(&region->device[0].gpu_time, __ATOMIC_RELAXED);
}

/* The tenant's utilization that the shim shows, in percent of the GPU. */
static double shown_utilization(const struct aliquot_region *region) {
    const struct aliquot_device *device = &region->device[0];
    struct aliquot_usage usage = aliquot_usage_since(&device->gpu_time, device->history, 0, (int64_t)gpu_now());
    return usage.elapsed == 0 ? 0 : 100 * (double)usage.used / (double)usage.elapsed;
}

static void *map_region(const char *folder, int tenant, int flags) {
    char path[PATH_LENGTH];
    snprintf(path, sizeof path, "%.450s/regions/%d", folder, tenant);
    int file = open(path, flags | O_CLOEXEC), protection = PROT_READ | (flags == O_RDWR ? PROT_WRITE : 0);
    void *region = mmap(NULL, ALIQUOT_REGION_SIZE, protection, MAP_SHARED, file, 0);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 || status.st_size < ALIQUOT_REGION_SIZE || region == MAP_FAILED) {
        setup_fail("the shim in a tenant has not set up its region");
    }
    close(file);
    return region;
}

/* How long a kernel of each tenant has run, in ns; of the GPU at index 0. And the work that each has done. */
static void read_busy(gpu_file *gpu, const struct figures *figures, double busy[MAX_TENANTS + 1],
                      double work[MAX_TENANTS]) {
    static int slots[MAX_TENANTS][MAX_PROCESSES]; /* plus 1; 0: not found yet */
    memset(busy, 0, (MAX_TENANTS + 1) * sizeof busy[0]);
    memset(work, 0, MAX_TENANTS * sizeof work[0]);
    busy[0] = (double)gpu_busy_ns(gpu, -1);
    for (int i = 0; i < MAX_TENANTS; i++) {
        for (int j = 0; j < MAX_PROCESSES && figures->tenants[i].pids[j] != 0; j++) {
            slots[i][j] = slots[i][j] > 0 ? slots[i][j] : setup_slot_of(gpu, figures->tenants[i].pids[j]) + 1;
            busy[i + 1] += slots[i][j] == 0 ? 0 : (double)gpu_busy_ns(gpu, slots[i][j] - 1);
            work[i] += slots[i][j] == 0 ? 0 : (double)gpu_work_ns(gpu, slots[i][j] - 1);
        }
    }
}

/* Writes a line: the time in seconds, and the part of the GPU that each tenant has used since the line before. */
static void write_series(FILE *series, double time, double elapsed, int tenants, const double busy[MAX_TENANTS + 1],
                         double before[MAX_TENANTS + 1]) {
    fprintf(series, "%.3f", time / 1e9);
    for (int i = 1; i <= tenants; i++) {
        fprintf(series, ",%.3f", elapsed > 0 ? (busy[i] - before[i]) / elapsed : 0);
    }
    fputc('\n', series);
    memcpy(before, busy, (MAX_TENANTS + 1) * sizeof busy[0]);
}

static void measure(const struct plan *plan, struct figures *figures, const char *folder) {
    gpu_file *gpu;
    FILE *series = plan->series[0] != 0 ? fopen(plan->series, "we") : NULL;
    int tenants = plan->count;
    if (gpu_open_all(gpu_directory(), &gpu, 1, NULL) != 1) {
        setup_fail("cannot open the GPU");
    }
    uint64_t begin = gpu_now(), start = begin + (uint64_t)(plan->warm_up * 1e9);
    uint64_t end = start + (uint64_t)(plan->seconds * 1e9), measured_from = 0, last = begin;
    const struct aliquot_region *regions[MAX_TENANTS];
    double counted[MAX_TENANTS], busy[MAX_TENANTS + 1], first[MAX_TENANTS + 1] = {0}, before[MAX_TENANTS + 1] = {0};
    double work[MAX_TENANTS], first_work[MAX_TENANTS] = {0};
    for (uint64_t time = series != NULL ? begin : start;; time += series != NULL ? SERIES_NS : GPU_USAGE_PERIOD_NS) {
        gpu_sleep_until(time);
        uint64_t now = gpu_now();
        read_busy(gpu, figures, busy, work);
        if (series != NULL) {
            write_series(series, (double)(now - begin), (double)(now - last), tenants, busy, before);
        }
        last = now;
        for (int i = 0; i < tenants && time >= start; i++) {
            if (measured_from == 0) {
                regions[i] = map_region(folder, i, O_RDONLY);
                counted[i] = gpu_time_of(regions[i]);
            }
            double shown = shown_utilization(regions[i]);
            double *min = &figures->tenants[i].min_shown, *max = &figures->tenants[i].max_shown;
            *min = measured_from == 0 ? shown : fmin(*min, shown);
            *max = measured_from == 0 ? shown : fmax(*max, shown);
        }
        if (time >= start && measured_from == 0) {
            measured_from = now;
            memcpy(first, busy, sizeof first);
            memcpy(first_work, work, sizeof first_work);
        }
        if (time >= end) {
            break;
        }
    }
    double elapsed = (double)(last - measured_from);
    figures->used = 100 * (busy[0] - first[0]) / elapsed;
    for (int i = 0; i < tenants; i++) {
        figures->tenants[i].used = 100 * (busy[i + 1] - first[i + 1]) / elapsed;
        figures->tenants[i].work = 100 * (work[i] - first_work[i]) / elapsed;
        figures->tenants[i].accounted = 100 * (gpu_time_of(regions[i]) - counted[i]) / elapsed;
    }
    if (series != NULL) {
        fclose(series);
    }
    gpu_close(gpu);
}

/* ---- in the node agent's place ---- */

enum { MAX_SAMPLES = 1024 };

#define STEP_NS UINT64_C(20000000)
#define SECOND_NS UINT64_C(1000000000)

typedef int utilization_function(void *, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long);

static utilization_function *open_nvml(void **gpu) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        library == NULL ? NULL : (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
    if (init == NULL || find == NULL || init() != 0 || find(setup_uuid(0), gpu) != 0) {
        setup_fail("the simulated NVML does not work");
    }
    return (utilization_function *)dlsym(library, "nvmlDeviceGetProcessUtilization");
}

/* NVML's samples later than a time, which becomes that of the latest. NVML also returns invalid ones
   (Syllo/nvtop#110). */
static unsigned read_samples(utilization_function *utilization, void *gpu, nvmlProcessUtilizationSample_t *samples,
                             unsigned long long *since) {
    unsigned returned = MAX_SAMPLES, valid = 0;
    unsigned long long latest = *since;
    bool success = utilization(gpu, samples, &returned, *since) == 0;
    for (unsigned i = 0; success && i < returned && i < MAX_SAMPLES; i++) {
        if (samples[i].smUtil <= 100 && samples[i].timeStamp > *since) {
            latest = samples[i].timeStamp > latest ? samples[i].timeStamp : latest;
            samples[valid++] = samples[i];
        }
    }
    *since = latest;
    return valid;
}

/* Percent of the GPU that a process used: the mean of its samples; negative without one. */
static double process_percent(const nvmlProcessUtilizationSample_t *samples, unsigned count, unsigned pid) {
    double sum = 0;
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += samples[i].pid == pid ? samples[i].smUtil : 0;
        found += samples[i].pid == pid;
    }
    return found == 0 ? -1 : sum / found;
}

static double tenant_percent(const nvmlProcessUtilizationSample_t *samples, unsigned count,
                             const pid_t pids[MAX_PROCESSES]) {
    double sum = -1;
    for (int j = 0; j < MAX_PROCESSES && pids[j] != 0; j++) {
        double percent = process_percent(samples, count, (unsigned)pids[j]);
        sum = percent < 0 ? sum : sum < 0 ? percent : sum + percent;
    }
    return sum;
}

/* A program that is started next does not run during that fault. */
static void pause_when(const struct fault *fault, const char *what) {
    char range[64];
    if (strcmp(fault->what, what) == 0) {
        snprintf(range, sizeof range, "%f-%f", (double)fault->from / 1e9, (double)fault->to / 1e9);
        setenv("ALIQUOT_VIRTUAL_TIME_PAUSE", range, 1);
    }
}

static void pause_no_more(void) {
    unsetenv("ALIQUOT_VIRTUAL_TIME_PAUSE");
}

/* Starts the arbiter, which reads from then on what this process writes to standard output. */
static pid_t start_arbiter(const struct plan *plan, const char *folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        setup_fail("cannot create a pipe");
    }
    pause_when(&plan->fault, "hung");
    pid_t arbiter = setup_start_arbiter(folder, plan->floor, ends[0]);
    pause_no_more();
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    return arbiter;
}

/* Writes what is not true into the first tenant's region. */
static void lie(const struct fault *fault, const char *folder) {
    static struct aliquot_device *device;
    uint64_t now = gpu_now();
    if (device == NULL) {
        device = ((struct aliquot_region *)map_region(folder, 0, O_RDWR))->device;
    }
    if (strcmp(fault->what, "used") == 0) {
        __atomic_fetch_add(&device->gpu_time, 10 * STEP_NS, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&device->wanted, now, __ATOMIC_RELAXED);
        __atomic_store_n(&device->in_flight, now + STEP_NS, __ATOMIC_RELAXED);
        __atomic_fetch_add(&device->throttled, STEP_NS, __ATOMIC_RELAXED);
    }
}

/* NVML's figure of a tenant, as a fault changes it. */
static double faulty(const struct fault *fault, double percent, double before) {
    double error = strcmp(fault->what, "high") == 0 ? 20 : strcmp(fault->what, "low") == 0 ? -20 : 0;
    return strcmp(fault->what, "silent") == 0 ? -1
           : strcmp(fault->what, "late") == 0 ? before
           : percent < 0                      ? percent
                                              : fmax(0, percent + error);
}

/* Starts the arbiter and writes its list each second. */
static _Noreturn void run_agent(const struct plan *plan, const struct figures *figures, const char *folder) {
    static nvmlProcessUtilizationSample_t samples[MAX_SAMPLES];
    const struct fault fault = plan->fault;
    unsigned long long since = 0;
    void *gpu = NULL;
    pid_t arbiter = start_arbiter(plan, folder); /* before this process joins the virtual clock */
    utilization_function *utilization = open_nvml(&gpu);
    double percent[MAX_TENANTS], before[MAX_TENANTS];
    signal(SIGPIPE, SIG_IGN);
    for (uint64_t begin = gpu_now(), time = 0;; time += fault.what[0] != 0 ? STEP_NS : SECOND_NS) {
        gpu_sleep_until(begin + time);
        bool is_faulty = time >= fault.from && time < fault.to;
        if (strcmp(fault.what, "killed") == 0 && is_faulty == (arbiter != 0)) {
            setup_stop(arbiter);
            arbiter = is_faulty ? 0 : start_arbiter(plan, folder);
        } else if (is_faulty && (strcmp(fault.what, "claims") == 0 || strcmp(fault.what, "used") == 0)) {
            lie(&fault, folder);
        }
        if (time % SECOND_NS != 0) {
            continue;
        }
        unsigned count = read_samples(utilization, gpu, samples, &since);
        double sum = 0;
        for (int i = 0; i < plan->count; i++) {
            before[i] = time == 0 ? -1 : percent[i];
            percent[i] = tenant_percent(samples, count, figures->tenants[i].pids);
            sum += percent[i] > 0 ? percent[i] : 0;
        }
        for (int i = 0; i < plan->count; i++) {
            const struct tenant *tenant = &plan->tenants[i];
            /* Time slices of processes do not overlap, so a sum above 100 is an artifact of sampling. */
            double said = sum > 100 ? percent[i] * 100 / sum : percent[i];
            said = is_faulty ? faulty(&fault, said, before[i]) : said;
            printf("%d %s %d %s %s ", i, setup_uuid(0), (int)tenant->limit, tenant->policy, tenant->priority);
            printf(said < 0 ? "-\n" : "%.2f\n", said);
        }
        printf(".\n");
        fflush(stdout);
        clearerr(stdout);
    }
}

/* ---- the measurement ---- */

/* Returns the figures of a measurement; the memory stays. */
static const struct figures *run(const struct plan *plan) {
    char folder[PATH_LENGTH], limits[128], name[16], role[32];
    int processes = 0, status = 1;
    for (int i = 0; i < plan->count; i++) {
        processes += plan->tenants[i].processes;
    }
    setup_create(folder, 1, processes + 1 + 2 * plan->arbiter, plan->seed);
    struct figures *figures = setup_share(folder, sizeof *figures);
    snprintf(name, sizeof name, "%d", plan->latency);
    setenv("ALIQUOT_FAKE_LATENCY", name, 1);
    setenv("ALIQUOT_FAKE_PROFILE", plan->profile, 1);
    for (int i = 0; i < plan->count; i++) {
        const struct tenant *tenant = &plan->tenants[i];
        snprintf(name, sizeof name, "%d", i);
        snprintf(limits, sizeof limits, "%s memory=1000Mi cores=%d policy=%s\n", setup_uuid(0), (int)tenant->limit,
                 tenant->policy);
        setup_container(folder, name, limits);
        if (i == 0) {
            pause_when(&plan->fault, "paused");
        }
        for (int j = 0; j < tenant->processes; j++) {
            snprintf(role, sizeof role, "tenant-%d-%d", i, j);
            figures->tenants[i].pids[j] = setup_start(folder, role, name);
        }
        pause_no_more();
    }
    pid_t agent = plan->arbiter ? setup_start(folder, "agent", NULL) : 0;
    waitpid(setup_start(folder, "meter", NULL), &status, 0);
    for (int i = 0; i < plan->count; i++) {
        for (int j = 0; j < MAX_PROCESSES; j++) {
            setup_stop(figures->tenants[i].pids[j]);
        }
    }
    setup_stop(agent);
    setup_remove(folder);
    if (status != 0) {
        setup_fail("the measurement failed");
    }
    return figures;
}

/* Runs what `run` has started this program as. */
static void run_role(const struct plan *plan, const char *role, const char *folder) {
    struct figures *figures = setup_share(folder, sizeof *figures);
    int i, j;
    if (sscanf(role, "tenant-%d-%d", &i, &j) == 2) {
        tenant_run(plan->tenants[i].shape, plan->tenants[i].pattern,
                   (unsigned)(plan->seed * 1000 + i * MAX_PROCESSES + j), &figures->tenants[i].latencies);
    }
    if (strcmp(role, "agent") == 0) {
        run_agent(plan, figures, folder);
    }
    measure(plan, figures, folder);
}

/* ---- options ---- */

static struct fault parse_fault(const char *text) {
    double from = 0, to = 1e6;
    const char *at = strchr(text, '@');
    if (text[0] == 0) {
        return (struct fault){.what = ""};
    }
    if (at == NULL || sscanf(at + 1, "%lf-%lf", &from, &to) < 1) {
        setup_fail("expected a fault like killed@4-6, found '%s'", text);
    }
    return (struct fault){strndup(text, (size_t)(at - text)), (uint64_t)(from * 1e9), (uint64_t)(to * 1e9)};
}

static struct plan parse(char **arguments) {
    const char *limits = "25", *shapes = "1ms", *patterns = "busy", *policies = "fixed", *expect = NULL,
               *priorities = "normal", *processes = "1", *fault = "";
    struct plan plan = {.seconds = 5,
                        .warm_up = 2,
                        .tolerance = 2,
                        .total = -1,
                        .accounting = 100,
                        .p99 = INFINITY,
                        .profile = "kind",
                        .series = "",
                        .seed = 1};
    const struct setup_option options[] = {{"limits", .text = &limits},
                                           {"tenants", .integer = &plan.count, .min = 1, .max = MAX_TENANTS},
                                           {"shape", .text = &shapes},
                                           {"pattern", .text = &patterns},
                                           {"processes", .text = &processes},
                                           {"policy", .text = &policies},
                                           {"arbiter", .flag = &plan.arbiter},
                                           {"fault", .text = &fault},
                                           {"priority", .text = &priorities},
                                           {"floor", .text = &plan.floor},
                                           {"seconds", .number = &plan.seconds, .min = 0.5, .max = 3600},
                                           {"warm-up", .number = &plan.warm_up, .max = 3600},
                                           {"tolerance", .number = &plan.tolerance, .min = -1, .max = 100},
                                           {"expect", .text = &expect},
                                           {"total", .number = &plan.total, .max = 100},
                                           {"shown", .number = &plan.shown, .max = 100},
                                           {"work", .number = &plan.work, .max = 100},
                                           {"p99", .number = &plan.p99, .max = 1e6},
                                           {"accounting", .number = &plan.accounting, .max = 100},
                                           {"seed", .integer = &plan.seed, .max = 1e6},
                                           {"latency", .integer = &plan.latency, .max = 1000},
                                           {"profile", .text = &plan.profile},
                                           {"series", .text = &plan.series},
                                           {NULL}};
    setup_parse(options, help, arguments);
    plan.fault = parse_fault(fault);
    plan.count = plan.count == 0 ? items(limits) : plan.count;
    if (plan.count > MAX_TENANTS) {
        setup_fail("expected at most %d tenants, found %d", MAX_TENANTS, plan.count);
    }
    double sum = 0;
    for (int i = 0; i < plan.count; i++) {
        struct tenant *tenant = &plan.tenants[i];
        tenant->limit = setup_number(item(limits, i), 0, 100);
        tenant->shape = item(shapes, i);
        tenant->pattern = item(patterns, i);
        tenant->policy = item(policies, i);
        tenant->priority = item(priorities, i);
        tenant->processes = (int)setup_number(item(processes, i), 1, MAX_PROCESSES);
        sum += tenant->limit;
    }
    for (int i = 0; i < plan.count; i++) {
        double scale = sum > 100 ? 100 / sum : 1;
        plan.tenants[i].expected =
            expect != NULL ? setup_number(item(expect, i), -1, 100) : plan.tenants[i].limit * scale;
    }
    return plan;
}

int main(int count, char **arguments) {
    bool has_role = count > 2 && arguments[1][0] != '-'; /* ROLE FOLDER OPTION... */
    const struct plan plan = parse(arguments + (has_role ? 3 : 1));
    if (has_role) {
        run_role(&plan, arguments[1], arguments[2]);
        return EXIT_SUCCESS;
    }
    double worst = 0, min_shown = 100, accounting_error = 0, p99 = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct figures *figures = run(&plan);
    for (int i = 0; i < plan.count; i++) {
        const struct tenant *tenant = &plan.tenants[i];
        double used = figures->tenants[i].used, accounted = figures->tenants[i].accounted;
        double error = tenant->expected < 0 ? 0 : used - tenant->expected;
        printf("tenant %d: limit %3.0f %s, %s, %s: %5.1f %% of the GPU", i, tenant->limit, tenant->policy,
               tenant->shape, tenant->pattern, used);
        printf(tenant->expected < 0 ? "" : " (%+.1f)", error);
        printf("; work %.1f %%", figures->tenants[i].work);
        if (tenant->limit > 0) {
            double scale = 100 / tenant->limit, shown = figures->tenants[i].min_shown * scale;
            printf("; shim counts %.1f %%, shows utilization %.0f to %.0f %%", accounted, shown,
                   figures->tenants[i].max_shown * scale);
            min_shown = fmin(shown, min_shown);
            accounting_error = fmax(accounting_error, fabs(accounted - used));
        }
        double slow = print_latencies(&figures->tenants[i].latencies, plan.warm_up, plan.warm_up + plan.seconds);
        p99 = i == 0 ? slow : p99;
        printf("\n");
        worst = fabs(error) > worst ? fabs(error) : worst;
    }
    printf("total: %.1f %%; worst error %.1f points\n", figures->used, worst);
    bool good = (plan.tolerance < 0 || worst <= plan.tolerance) && figures->used >= plan.total &&
                min_shown >= plan.shown && figures->tenants[0].work >= plan.work &&
                accounting_error <= plan.accounting && p99 <= plan.p99;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
