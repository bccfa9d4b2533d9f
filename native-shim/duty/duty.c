/*
 * Measures the share of a simulated GPU that each tenant gets under the shim, by the GPU model's own accounting.
 *
 * `duty OPTIONS` creates a GPU, and a limit file, a region and an agent's file per tenant. It starts itself again as
 * the tenants, which launch kernels under the shim, and as the meter, which reads the GPU model's accounting. With
 * --arbiter it also starts the arbiter, and itself in the node agent's place, which tells the arbiter of the tenants.
 * With --virtual all these processes share a virtual clock, which advances only while all of them sleep: half a minute
 * of GPU time takes seconds, and other load on the machine does not affect the result.
 */
#include "aliquot/region.h"
#include "gpu_time.h"
#include "os/usage.h"
#include "tenant.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TENANTS = 8, MAX_PROCESSES = 4, PATH_LENGTH = 512, MULTIPROCESSORS = 108, SERIES_NS = 20000000 };

static const char uuid[] = "GPU-00000000-0000-4000-8000-00000000da7e";

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
    "                     streams=N: launches on N streams in turn\n"
    "                     copies=KIB: a copy from the host after each kernel\n"
    "                     functions=N: launches N functions in turn\n"
    "                     a comma-separated list: one pattern per tenant\n"
    "  --processes N      number of processes of each tenant, which share its limit (default 1); or a list\n"
    "  --policy POLICY    fixed (default), elastic or none; a comma-separated list: one policy per tenant\n"
    "  --arbiter          also run the arbiter\n"
    "  --fault WHAT@FROM[-TO]  between these seconds, or from then on (virtual time, with --arbiter):\n"
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
    "  --whole P          what unlimited tenants reach together, in percent of the GPU, since switches between them\n"
    "                     cost time; limits are parts of it (default 100)\n"
    "  --total P          smallest sum of all shares in percent\n"
    "  --shown P          smallest utilization that the shim may show at any time, in percent of the tenant's limit\n"
    "  --p99 MS           largest 99th percentile of the times that the work of the first tenant takes\n"
    "  --accounting P     largest difference between the shim's and the GPU's accounting in percentage points\n"
    "  --virtual, --real  virtual or real time (default virtual)\n"
    "  --seed N           seed of the kernels' jitter and of the mixes (default 1)\n"
    "  --latency US       mean time until work reaches the GPU, exponentially distributed (default 0)\n"
    "  --profile PROFILE  facts about the GPU: kind (default), hopper, nastiest, or items of ALIQUOT_FAKE_PROFILE\n"
    "  --series FILE      writes a line for each 20 ms from the start: seconds, and the part of the GPU that each\n"
    "                     tenant used, separated by commas\n"
    "  --build FOLDER     build folder of the shim and the fake driver (default: the one of this program)\n"
    "  --keep             keep the temporary folder and print its path\n"
    "\n"
    "exit status:\n"
    "  0  every share and every figure is within its bounds\n"
    "  1  at least one is not\n"
    "  2  the measurement failed\n";

struct tenant {
    double limit, expected;
    const char *policy, *priority, *shape, *pattern;
    int processes;
    pid_t pids[MAX_PROCESSES];
    double accounted, min_shown, max_shown; /* by the shim's accounting, in percent of the GPU */
};

/* The options. */
struct plan {
    struct tenant tenants[MAX_TENANTS];
    int count;
    double seconds, warm_up, tolerance, whole, total, shown, accounting, p99;
    bool is_virtual, arbiter, keep;
    unsigned long seed;
    int latency;
    const char *profile, *series, *fault, *floor;
    char build[PATH_LENGTH];
    char folder[PATH_LENGTH];
};

static void fail(const char *what) {
    fprintf(stderr, "duty: %s\n", what);
    exit(2);
}

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

static double number(const char *text, double min, double max) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= min && value <= max)) {
        fprintf(stderr, "duty: expected a number from %g to %g, found '%s'\n", min, max, text);
        exit(2);
    }
    return value;
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Prints how long the work of a tenant took that waits for it. Returns the 99th percentile in ms. */
static double print_latencies(const char *path, double warm_up) {
    static struct tenant_latencies latencies;
    static float ms[TENANT_LATENCIES];
    size_t count = 0;
    FILE *file = fopen(path, "re");
    size_t read = file == NULL ? 0 : fread(&latencies, sizeof latencies, 1, file);
    for (uint32_t i = 0; read == 1 && i < latencies.count && i < TENANT_LATENCIES; i++) {
        if (latencies.of[i].at >= (float)warm_up) {
            ms[count++] = latencies.of[i].ms;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (count == 0) {
        return 0;
    }
    qsort(ms, count, sizeof ms[0], compare_floats);
    printf("; work takes %.2f ms, p90 %.2f, p99 %.2f, at most %.2f (%zu times)", ms[count / 2], ms[count * 9 / 10],
           ms[count * 99 / 100], ms[count - 1], count);
    return ms[count * 99 / 100];
}

static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    char inside[PATH_LENGTH + 256];
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(inside, sizeof inside, "%.500s/%s", path, entry->d_name);
            if (unlink(inside) != 0) {
                remove_folder(inside);
            }
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    rmdir(path);
}

static void path_in(const struct plan *plan, char path[PATH_LENGTH], const char *format, int i) {
    int length = snprintf(path, PATH_LENGTH, "%.400s/", plan->folder);
    snprintf(path + length, PATH_LENGTH - (size_t)length, format, i);
}

static void kill_process(pid_t pid) {
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* ---- the meter ---- */

static int slot_of(gpu_file *gpu, int pid) {
    static struct gpu_process processes[GPU_SLOTS];
    size_t count = gpu_processes(gpu, processes, GPU_SLOTS);
    for (size_t i = 0; i < count && i < GPU_SLOTS; i++) {
        if ((int)processes[i].pid == pid) {
            return processes[i].slot;
        }
    }
    return -1;
}

static double gpu_time_of(const struct aliquot_region *region) {
    return (double)__atomic_load_n(&region->device[0].gpu_time, __ATOMIC_RELAXED);
}

/* The tenant's utilization that the shim shows, in percent of the GPU. */
static double shown_utilization(const struct aliquot_region *region) {
    const struct aliquot_device *device = &region->device[0];
    struct aliquot_usage usage = aliquot_usage_since(&device->gpu_time, device->history, 0, (int64_t)gpu_now());
    return usage.elapsed == 0 ? 0 : 100 * (double)usage.used / (double)usage.elapsed;
}

static void *map_region(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC), protection = PROT_READ | (flags == O_RDWR ? PROT_WRITE : 0);
    void *region = mmap(NULL, ALIQUOT_REGION_SIZE, protection, MAP_SHARED, file, 0);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 || status.st_size < ALIQUOT_REGION_SIZE || region == MAP_FAILED) {
        fail("the shim in a tenant has not set up its region");
    }
    close(file);
    return region;
}

/* How long a kernel of each tenant has run, in ns; of the GPU at index 0. Per process: "TENANT:PID". */
static void read_busy(gpu_file *gpu, int processes, char **names, double busy[MAX_TENANTS + 1]) {
    static int slots[MAX_TENANTS * MAX_PROCESSES]; /* plus 1; 0: not found yet */
    memset(busy, 0, (MAX_TENANTS + 1) * sizeof busy[0]);
    busy[0] = (double)gpu_busy_ns(gpu, -1);
    for (int i = 0; i < processes; i++) {
        slots[i] = slots[i] > 0 ? slots[i] : slot_of(gpu, atoi(strchr(names[i], ':') + 1)) + 1;
        busy[atoi(names[i]) + 1] += slots[i] == 0 ? 0 : (double)gpu_busy_ns(gpu, slots[i] - 1);
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

/* `duty meter GPU_FILE WARM_UP SECONDS SERIES TENANTS REGION... TENANT:PID...` prints percentages of the GPU: the total
   and that of each tenant by the GPU model's accounting; then per tenant the GPU time by the shim's accounting, and the
   smallest and the largest utilization that the shim showed. */
static int measure(int count, char **arguments) {
    char error[GPU_ERROR_LENGTH];
    gpu_file *gpu = gpu_open(arguments[0], error);
    if (gpu == NULL) {
        fail(error);
    }
    FILE *series = arguments[3][0] != 0 ? fopen(arguments[3], "we") : NULL;
    int tenants = atoi(arguments[4]), first_pid = 5 + tenants, processes = count - first_pid;
    uint64_t begin = gpu_now(), start = begin + (uint64_t)(atof(arguments[1]) * 1e9);
    uint64_t end = start + (uint64_t)(atof(arguments[2]) * 1e9), measured_from = 0, last = begin;
    const struct aliquot_region *regions[MAX_TENANTS];
    double min[MAX_TENANTS], max[MAX_TENANTS], counted[MAX_TENANTS];
    double busy[MAX_TENANTS + 1], first[MAX_TENANTS + 1], before[MAX_TENANTS + 1] = {0};
    for (uint64_t time = series != NULL ? begin : start;; time += series != NULL ? SERIES_NS : GPU_USAGE_PERIOD_NS) {
        tenant_sleep_until(time);
        uint64_t now = gpu_now();
        read_busy(gpu, processes, arguments + first_pid, busy);
        if (series != NULL) {
            write_series(series, (double)(now - begin), (double)(now - last), tenants, busy, before);
        }
        last = now;
        for (int i = 0; i < tenants && time >= start; i++) {
            if (measured_from == 0) {
                regions[i] = map_region(arguments[5 + i], O_RDONLY);
                counted[i] = gpu_time_of(regions[i]);
            }
            double shown = shown_utilization(regions[i]);
            min[i] = measured_from == 0 ? shown : fmin(min[i], shown);
            max[i] = measured_from == 0 ? shown : fmax(max[i], shown);
        }
        if (time >= start && measured_from == 0) {
            measured_from = now;
            memcpy(first, busy, sizeof first);
        }
        if (time >= end) {
            break;
        }
    }
    double elapsed = (double)(last - measured_from);
    for (int i = 0; i <= tenants; i++) {
        printf("%f\n", 100 * (busy[i] - first[i]) / elapsed);
    }
    for (int i = 0; i < tenants; i++) {
        printf("%f %f %f\n", 100 * (gpu_time_of(regions[i]) - counted[i]) / elapsed, min[i], max[i]);
    }
    if (series != NULL) {
        fclose(series);
    }
    gpu_close(gpu);
    return EXIT_SUCCESS;
}

/* ---- in the node agent's place ---- */

enum { MAX_SAMPLES = 1024 };

#define STEP_NS UINT64_C(20000000)
#define SECOND_NS UINT64_C(1000000000)

/* As in nvml.h. */
typedef struct {
    unsigned int pid;
    unsigned long long time; /* us */
    unsigned int sm, memory, encoder, decoder;
} utilization_sample;

typedef int utilization_function(void *, utilization_sample *, unsigned *, unsigned long long);

static utilization_function *open_nvml(void **gpu) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*find)(const char *, void **) =
        library == NULL ? NULL : (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
    if (init == NULL || find == NULL || init() != 0 || find(uuid, gpu) != 0) {
        fail("the simulated NVML does not work");
    }
    return (utilization_function *)dlsym(library, "nvmlDeviceGetProcessUtilization");
}

/* NVML's samples later than a time, which becomes that of the latest. NVML also returns invalid ones
   (Syllo/nvtop#110). */
static unsigned read_samples(utilization_function *utilization, void *gpu, utilization_sample *samples,
                             unsigned long long *since) {
    unsigned returned = MAX_SAMPLES, valid = 0;
    unsigned long long latest = *since;
    bool success = utilization(gpu, samples, &returned, *since) == 0;
    for (unsigned i = 0; success && i < returned && i < MAX_SAMPLES; i++) {
        if (samples[i].sm <= 100 && samples[i].time > *since) {
            latest = samples[i].time > latest ? samples[i].time : latest;
            samples[valid++] = samples[i];
        }
    }
    *since = latest;
    return valid;
}

/* Percent of the GPU that a process used: the mean of its samples; negative without one. */
static double process_percent(const utilization_sample *samples, unsigned count, unsigned pid) {
    double sum = 0;
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += samples[i].pid == pid ? samples[i].sm : 0;
        found += samples[i].pid == pid;
    }
    return found == 0 ? -1 : sum / found;
}

static double tenant_percent(const utilization_sample *samples, unsigned count, const char *pids) {
    FILE *file = fopen(pids, "re");
    unsigned pid = 0;
    double sum = -1;
    while (file != NULL && fscanf(file, "%u", &pid) == 1) {
        double percent = process_percent(samples, count, pid);
        sum = percent < 0 ? sum : sum < 0 ? percent : sum + percent;
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum;
}

/* What goes wrong, and when, in ns since the start. */
struct fault {
    const char *what;
    uint64_t from, to;
};

static struct fault parse_fault(const char *text) {
    double from = 0, to = 1e6;
    const char *at = strchr(text, '@');
    if (text[0] == 0) {
        return (struct fault){.what = ""};
    }
    if (at == NULL || sscanf(at + 1, "%lf-%lf", &from, &to) < 1) {
        fprintf(stderr, "duty: expected a fault like killed@4-6, found '%s'\n", text);
        exit(2);
    }
    return (struct fault){strndup(text, (size_t)(at - text)), (uint64_t)(from * 1e9), (uint64_t)(to * 1e9)};
}

/* A program that is started next does not run during that fault. */
static void pause_when(const struct fault *fault, const char *what) {
    char range[64];
    if (strcmp(fault->what, what) == 0) {
        snprintf(range, sizeof range, "%f-%f", (double)fault->from / 1e9, (double)fault->to / 1e9);
        setenv("ALIQUOT_VIRTUAL_TIME_PAUSE", range, 1);
    }
}

/* Starts the arbiter, which reads from then on what this process writes to standard output. */
static pid_t start_arbiter(const char *build, const char *folder, const char *floor, const struct fault *fault) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        fail("cannot create a pipe");
    }
    pid_t arbiter = fork();
    if (arbiter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause_when(fault, "hung");
        container_become_arbiter(build, folder, floor, ends[0]);
    }
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    return arbiter;
}

/* Writes what is not true into the first tenant's region. */
static void lie(const struct fault *fault, const char *folder) {
    static struct aliquot_device *device;
    char path[PATH_LENGTH];
    uint64_t now = gpu_now();
    if (device == NULL) {
        snprintf(path, sizeof path, "%.400s/regions/0", folder);
        device = ((struct aliquot_region *)map_region(path, O_RDWR))->device;
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

/* `duty agent BUILD FOLDER FAULT FLOOR LIMIT PIDS...` starts the arbiter and writes its list each second. Per tenant:
   "CORES POLICY PRIORITY", and a file with the process IDs. */
static _Noreturn void run_agent(const char *build, const char *folder, const char *fault_text, const char *floor,
                                int tenants, char **arguments) {
    static utilization_sample samples[MAX_SAMPLES];
    struct fault fault = parse_fault(fault_text);
    unsigned long long since = 0;
    void *gpu = NULL;
    pid_t arbiter = start_arbiter(build, folder, floor, &fault); /* before this process joins the virtual clock */
    utilization_function *utilization = open_nvml(&gpu);
    double percent[MAX_TENANTS], before[MAX_TENANTS];
    signal(SIGPIPE, SIG_IGN);
    for (uint64_t begin = gpu_now(), time = 0;; time += fault.what[0] != 0 ? STEP_NS : SECOND_NS) {
        tenant_sleep_until(begin + time);
        bool is_faulty = time >= fault.from && time < fault.to;
        if (strcmp(fault.what, "killed") == 0 && is_faulty == (arbiter != 0)) {
            kill_process(arbiter);
            arbiter = is_faulty ? 0 : start_arbiter(build, folder, floor, &fault);
        } else if (is_faulty && (strcmp(fault.what, "claims") == 0 || strcmp(fault.what, "used") == 0)) {
            lie(&fault, folder);
        }
        if (time % SECOND_NS != 0) {
            continue;
        }
        unsigned count = read_samples(utilization, gpu, samples, &since);
        double sum = 0;
        for (int i = 0; i < tenants; i++) {
            before[i] = time == 0 ? -1 : percent[i];
            percent[i] = tenant_percent(samples, count, arguments[2 * i + 1]);
            sum += percent[i] > 0 ? percent[i] : 0;
        }
        for (int i = 0; i < tenants; i++) {
            /* Time slices of processes do not overlap, so a sum above 100 is an artifact of sampling. */
            double said = sum > 100 ? percent[i] * 100 / sum : percent[i];
            said = is_faulty ? faulty(&fault, said, before[i]) : said;
            printf("%d %s %s ", i, uuid, arguments[2 * i]);
            printf(said < 0 ? "-\n" : "%.2f\n", said);
        }
        printf(".\n");
        fflush(stdout);
        clearerr(stdout);
    }
}

/* ---- starting the processes ---- */

static void set_virtual_time(const struct plan *plan, int participants) {
    char text[PATH_LENGTH];
    if (!plan->is_virtual) {
        return;
    }
    path_in(plan, text, "clock", 0);
    setenv("ALIQUOT_VIRTUAL_TIME", text, 1);
    snprintf(text, sizeof text, "%d", participants);
    setenv("ALIQUOT_VIRTUAL_TIME_PARTICIPANTS", text, 1);
}

/* The virtual clock is preloaded first, so that it also intercepts the calls of the shim and the driver. */
static void set_preload(const struct plan *plan, bool shim) {
    char text[2 * PATH_LENGTH + 64] = "";
    if (plan->is_virtual) {
        snprintf(text, sizeof text, "%.400s/test/virtual_time.so%s", plan->build, shim ? ":" : "");
    }
    if (shim) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%.400s/libaliquot.so", plan->build);
    }
    if (text[0] != 0) {
        setenv("LD_PRELOAD", text, 1);
    }
}

static pid_t start(const struct plan *plan, int participants, bool shim, int output, char **arguments) {
    pid_t child = fork();
    if (child == 0) {
        char text[PATH_LENGTH];
        if (output >= 0) {
            dup2(output, STDOUT_FILENO);
        }
        path_in(plan, text, "lib", 0);
        setenv("LD_LIBRARY_PATH", text, 1);
        path_in(plan, text, "gpus", 0);
        setenv("ALIQUOT_FAKE_GPUS", text, 1);
        snprintf(text, sizeof text, "%lu", plan->seed);
        setenv("ALIQUOT_FAKE_SEED", text, 1);
        snprintf(text, sizeof text, "%d", plan->latency);
        setenv("ALIQUOT_FAKE_LATENCY", text, 1);
        setenv("ALIQUOT_FAKE_PROFILE", plan->profile, 1);
        set_virtual_time(plan, participants);
        set_preload(plan, shim);
        execv(arguments[0], arguments);
        fprintf(stderr, "duty: %s: %s\n", arguments[0], strerror(errno));
        _exit(2);
    }
    return child;
}

static void start_tenants(struct plan *plan, int participants, const char *self) {
    char path[PATH_LENGTH], text[PATH_LENGTH], seed[32], name[16];
    struct fault fault = parse_fault(plan->fault);
    for (int i = 0; i < plan->count; i++) {
        struct tenant *tenant = &plan->tenants[i];
        snprintf(name, sizeof name, "%d", i);
        snprintf(text, sizeof text, "%s memory=1000Mi cores=%d policy=%s\n", uuid, (int)tenant->limit, tenant->policy);
        container_create(plan->folder, name, text);
        container_enter(plan->folder, name);
        path_in(plan, path, "latencies-%d", i);
        container_write(path, "", 0);
        if (truncate(path, sizeof(struct tenant_latencies)) != 0) {
            fail("cannot create the file of latencies");
        }
        setenv("ALIQUOT_DUTY_LATENCIES", path, 1);
        char pids[MAX_PROCESSES * 16] = "";
        for (int j = 0; j < tenant->processes; j++) {
            snprintf(seed, sizeof seed, "%lu", plan->seed * 1000 + (unsigned long)(i * MAX_PROCESSES + j));
            char *arguments[] = {(char *)self, "tenant", (char *)tenant->shape, (char *)tenant->pattern, seed, NULL};
            if (i == 0) {
                pause_when(&fault, "paused");
            }
            tenant->pids[j] = start(plan, participants, true, -1, arguments);
            unsetenv("ALIQUOT_VIRTUAL_TIME_PAUSE");
            size_t length = strlen(pids);
            snprintf(pids + length, sizeof pids - length, "%d\n", (int)tenant->pids[j]);
        }
        path_in(plan, path, "pids-%d", i);
        container_write(path, pids, strlen(pids));
    }
}

/* Starts this program in the node agent's place. */
static pid_t start_agent(const struct plan *plan, int participants, const char *self) {
    char pids[MAX_TENANTS][PATH_LENGTH], limits[MAX_TENANTS][64], *arguments[7 + 2 * MAX_TENANTS];
    int count = 0;
    arguments[count++] = (char *)self;
    arguments[count++] = "agent";
    arguments[count++] = (char *)plan->build;
    arguments[count++] = (char *)plan->folder;
    arguments[count++] = (char *)plan->fault;
    arguments[count++] = (char *)plan->floor;
    for (int i = 0; i < plan->count; i++) {
        const struct tenant *tenant = &plan->tenants[i];
        snprintf(limits[i], sizeof limits[i], "%d %.15s %.15s", (int)tenant->limit, tenant->policy, tenant->priority);
        path_in(plan, pids[i], "pids-%d", i);
        arguments[count++] = limits[i];
        arguments[count++] = pids[i];
    }
    arguments[count] = NULL;
    return start(plan, participants, false, -1, arguments);
}

static void create_gpu(struct plan *plan) {
    char path[PATH_LENGTH], command[4 * PATH_LENGTH];
    const char *temporary = getenv("TMPDIR");
    snprintf(plan->folder, sizeof plan->folder, "%.400s/aliquot-duty-XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(plan->folder) == NULL) {
        fail("cannot create a temporary folder");
    }
    char error[GPU_ERROR_LENGTH];
    struct gpu_identity identity = {.name = "NVIDIA A100-SXM4-80GB",
                                    .serial = "1",
                                    .memory_bytes = UINT64_C(80) << 30,
                                    .multiprocessors = MULTIPROCESSORS,
                                    .compute_major = 8};
    memcpy(identity.uuid, uuid, sizeof uuid);
    path_in(plan, path, "gpus", 0);
    if (mkdir(path, 0777) != 0 || gpu_create(path, &identity, error) != GPU_CREATED) {
        fail("cannot create the simulated GPU");
    }
    path_in(plan, path, "lib", 0);
    mkdir(path, 0777);
    static const char *const libraries[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%.400s/fake-driver/%s", plan->build, libraries[i]);
        path_in(plan, path, i == 0 ? "lib/libcuda.so.1" : "lib/libnvidia-ml.so.1", 0);
        if (access(command, R_OK) != 0 || symlink(command, path) != 0) {
            fail("the fake driver is not in the build folder; set --build");
        }
    }
}

/* Runs the measurement. shares[0] is the sum of all shares in percent of the GPU; the tenants' shares follow. */
static void run(struct plan *plan, const char *self, double shares[MAX_TENANTS + 1]) {
    int pipe_ends[2];
    char gpu[PATH_LENGTH], regions[MAX_TENANTS][PATH_LENGTH], numbers[3 + MAX_TENANTS * MAX_PROCESSES][32];
    char *arguments[8 + MAX_TENANTS + MAX_TENANTS * MAX_PROCESSES];
    int processes = 0;
    for (int i = 0; i < plan->count; i++) {
        processes += plan->tenants[i].processes;
    }
    int participants = processes + 1 + 2 * plan->arbiter;
    create_gpu(plan);
    start_tenants(plan, participants, self);
    pid_t agent = plan->arbiter ? start_agent(plan, participants, self) : 0;
    int count = 0;
    path_in(plan, gpu, "gpus/GPU-00000000-0000-4000-8000-00000000da7e", 0);
    arguments[count++] = (char *)self;
    arguments[count++] = "meter";
    arguments[count++] = gpu;
    snprintf(numbers[0], sizeof numbers[0], "%f", plan->warm_up);
    snprintf(numbers[1], sizeof numbers[1], "%f", plan->seconds);
    arguments[count++] = numbers[0];
    arguments[count++] = numbers[1];
    arguments[count++] = (char *)plan->series;
    snprintf(numbers[2], sizeof numbers[2], "%d", plan->count);
    arguments[count++] = numbers[2];
    for (int i = 0; i < plan->count; i++) {
        path_in(plan, regions[i], "regions/%d", i);
        arguments[count++] = regions[i];
    }
    pid_t pids[MAX_TENANTS * MAX_PROCESSES];
    for (int i = 0, next = 0; i < plan->count; i++) {
        for (int j = 0; j < plan->tenants[i].processes; j++, next++) {
            pids[next] = plan->tenants[i].pids[j];
            snprintf(numbers[3 + next], sizeof numbers[0], "%d:%d", i, (int)pids[next]);
            arguments[count++] = numbers[3 + next];
        }
    }
    arguments[count] = NULL;
    if (pipe(pipe_ends) != 0) {
        fail("cannot create a pipe");
    }
    pid_t meter = start(plan, participants, false, pipe_ends[1], arguments);
    close(pipe_ends[1]);
    FILE *report = fdopen(pipe_ends[0], "r");
    bool complete = true;
    for (int i = 0; i <= plan->count && complete; i++) {
        complete = fscanf(report, "%lf", &shares[i]) == 1;
    }
    for (int i = 0; i < plan->count && complete; i++) {
        struct tenant *tenant = &plan->tenants[i];
        complete = fscanf(report, "%lf %lf %lf", &tenant->accounted, &tenant->min_shown, &tenant->max_shown) == 3;
    }
    fclose(report);
    waitpid(meter, NULL, 0);
    for (int i = 0; i < processes; i++) {
        kill_process(pids[i]);
    }
    kill_process(agent);
    if (!complete) {
        fail("the meter did not report all figures");
    }
}

/* ---- options ---- */

static struct plan parse(int count, char **arguments) {
    static const struct option options[] = {{"limits", 1, NULL, 'l'},    {"tenants", 1, NULL, 't'},
                                            {"shape", 1, NULL, 's'},     {"pattern", 1, NULL, 'p'},
                                            {"processes", 1, NULL, 'n'}, {"policy", 1, NULL, 'o'},
                                            {"arbiter", 0, NULL, 'a'},   {"seconds", 1, NULL, 'S'},
                                            {"warm-up", 1, NULL, 'w'},   {"tolerance", 1, NULL, 'T'},
                                            {"expect", 1, NULL, 'e'},    {"total", 1, NULL, 'A'},
                                            {"shown", 1, NULL, 'U'},     {"accounting", 1, NULL, 'B'},
                                            {"virtual", 0, NULL, 'v'},   {"real", 0, NULL, 'r'},
                                            {"seed", 1, NULL, 'd'},      {"build", 1, NULL, 'b'},
                                            {"keep", 0, NULL, 'k'},      {"help", 0, NULL, 'h'},
                                            {"latency", 1, NULL, 'y'},   {"profile", 1, NULL, 'P'},
                                            {"priority", 1, NULL, 'i'},  {"whole", 1, NULL, 'W'},
                                            {"series", 1, NULL, 'R'},    {"fault", 1, NULL, 'f'},
                                            {"floor", 1, NULL, 'F'},     {"p99", 1, NULL, '9'},
                                            {NULL, 0, NULL, 0}};
    const char *limits = "25", *shapes = "1ms", *patterns = "busy", *policies = "fixed", *expect = NULL,
               *priorities = "normal", *processes = "1";
    struct plan plan = {.seconds = 5,
                        .warm_up = 2,
                        .tolerance = 2,
                        .whole = 100,
                        .total = -1,
                        .accounting = 100,
                        .is_virtual = true,
                        .p99 = INFINITY,
                        .profile = "kind",
                        .series = "",
                        .fault = "",
                        .floor = "5",
                        .seed = 1};
    ssize_t length = readlink("/proc/self/exe", plan.build, sizeof plan.build - 1);
    plan.build[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2 && strrchr(plan.build, '/') != NULL; up++) { /* BUILD/duty/duty */
        *strrchr(plan.build, '/') = 0;
    }
    for (int option; (option = getopt_long(count, arguments, "h", options, NULL)) != -1;) {
        switch (option) {
        case 'l':
            limits = optarg;
            break;
        case 't':
            plan.count = (int)number(optarg, 1, MAX_TENANTS);
            break;
        case 's':
            shapes = optarg;
            break;
        case 'p':
            patterns = optarg;
            break;
        case 'n':
            processes = optarg;
            break;
        case 'o':
            policies = optarg;
            break;
        case 'i':
            priorities = optarg;
            break;
        case 'F':
            plan.floor = optarg;
            break;
        case '9':
            plan.p99 = number(optarg, 0, 1e6);
            break;
        case 'a':
            plan.arbiter = true;
            break;
        case 'S':
            plan.seconds = number(optarg, 0.5, 3600);
            break;
        case 'w':
            plan.warm_up = number(optarg, 0, 3600);
            break;
        case 'T':
            plan.tolerance = number(optarg, -1, 100);
            break;
        case 'e':
            expect = optarg;
            break;
        case 'W':
            plan.whole = number(optarg, 0, 100);
            break;
        case 'A':
            plan.total = number(optarg, 0, 100);
            break;
        case 'U':
            plan.shown = number(optarg, 0, 100);
            break;
        case 'B':
            plan.accounting = number(optarg, 0, 100);
            break;
        case 'v':
            plan.is_virtual = true;
            break;
        case 'r':
            plan.is_virtual = false;
            break;
        case 'd':
            plan.seed = (unsigned long)number(optarg, 0, 1e9);
            break;
        case 'y':
            plan.latency = (int)number(optarg, 0, 1000);
            break;
        case 'P':
            plan.profile = optarg;
            break;
        case 'R':
            plan.series = optarg;
            break;
        case 'f':
            plan.fault = optarg;
            break;
        case 'b':
            snprintf(plan.build, sizeof plan.build, "%s", optarg);
            break;
        case 'k':
            plan.keep = true;
            break;
        case 'h':
            fputs(help, stdout);
            exit(EXIT_SUCCESS);
        default:
            fputs(help, stderr);
            exit(2);
        }
    }
    if (plan.count == 0) {
        plan.count = items(limits);
    }
    if (optind < count || plan.count > MAX_TENANTS) {
        fputs(help, stderr);
        exit(2);
    }
    double sum = 0;
    for (int i = 0; i < plan.count; i++) {
        struct tenant *tenant = &plan.tenants[i];
        tenant->limit = number(item(limits, i), 0, 100);
        tenant->shape = item(shapes, i);
        tenant->pattern = item(patterns, i);
        tenant->policy = item(policies, i);
        tenant->priority = item(priorities, i);
        tenant->processes = (int)number(item(processes, i), 1, MAX_PROCESSES);
        sum += tenant->limit;
    }
    for (int i = 0; i < plan.count; i++) {
        double scale = (sum > 100 ? 100 / sum : 1) * plan.whole / 100;
        plan.tenants[i].expected = expect != NULL ? number(item(expect, i), -1, 100) : plan.tenants[i].limit * scale;
    }
    return plan;
}

int main(int count, char **arguments) {
    if (count == 5 && strcmp(arguments[1], "tenant") == 0) {
        tenant_run(arguments[2], arguments[3], strtoul(arguments[4], NULL, 10));
    }
    if (count >= 8 && strcmp(arguments[1], "agent") == 0) {
        run_agent(arguments[2], arguments[3], arguments[4], arguments[5], (count - 6) / 2, arguments + 6);
    }
    if (count >= 5 && strcmp(arguments[1], "meter") == 0) {
        return measure(count - 2, arguments + 2);
    }
    struct plan plan = parse(count, arguments);
    double shares[MAX_TENANTS + 1] = {0}, worst = 0, min_shown = 100, accounting_error = 0, p99 = 0;
    char self[PATH_LENGTH];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        fail("cannot read /proc/self/exe");
    }
    self[length] = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    run(&plan, self, shares);
    for (int i = 0; i < plan.count; i++) {
        struct tenant *tenant = &plan.tenants[i];
        double error = tenant->expected < 0 ? 0 : shares[i + 1] - tenant->expected;
        printf("tenant %d: limit %3.0f %s, %s, %s: %5.1f %% of the GPU", i, tenant->limit, tenant->policy,
               tenant->shape, tenant->pattern, shares[i + 1]);
        printf(tenant->expected < 0 ? "" : " (%+.1f)", error);
        if (tenant->limit > 0) {
            double scale = 100 / tenant->limit, shown = tenant->min_shown * scale;
            printf("; shim counts %.1f %%, shows utilization %.0f to %.0f %%", tenant->accounted, shown,
                   tenant->max_shown * scale);
            min_shown = fmin(shown, min_shown);
            accounting_error = fmax(accounting_error, fabs(tenant->accounted - shares[i + 1]));
        }
        char latencies[PATH_LENGTH];
        path_in(&plan, latencies, "latencies-%d", i);
        double slow = print_latencies(latencies, plan.warm_up);
        p99 = i == 0 ? slow : p99;
        printf("\n");
        worst = fabs(error) > worst ? fabs(error) : worst;
    }
    if (plan.keep) {
        printf("folder: %s\n", plan.folder);
    } else {
        remove_folder(plan.folder);
    }
    printf("total: %.1f %%; worst error %.1f points\n", shares[0], worst);
    bool good = (plan.tolerance < 0 || worst <= plan.tolerance) && shares[0] >= plan.total && min_shown >= plan.shown &&
                accounting_error <= plan.accounting && p99 <= plan.p99;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
