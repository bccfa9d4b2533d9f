/*
 * Who gets how much of a GPU: tenants under the shim on a make-believe GPU, judged by the GPU model's own books.
 *
 * The program is its own cast. `duty OPTIONS` makes a GPU and a folder per tenant, and starts itself again: as tenants
 * that launch kernels as fast as they may (with the shim), as the judge that reads the books before and after, and the
 * reference arbiter where it is asked for. With --virtual all of them live in one virtual time, which passes only while
 * all of them sleep, so that half a minute of GPU time takes seconds and no other load disturbs it.
 */
#include "aliquot/region.h"
#include "gpu_time.h"
#include "tenant.h"
#include "usage.h"

#include <dirent.h>
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TENANTS = 8, MOST_PROCESSES = 4, PATH_LENGTH = 512, MULTIPROCESSORS = 108 };

static const char uuid[] = "GPU-00000000-0000-4000-8000-00000000da7e";

static const char help[] =
    "usage: duty [OPTIONS]\n"
    "Measures which share of a make-believe GPU each tenant gets; exit status 1: somebody is off by more than the\n"
    "tolerance.\n"
    "  --limits 30,70     cores of each tenant, in percent; 0: no limit (default 25)\n"
    "  --tenants N        so many tenants; the last limit holds for those beyond the list\n"
    "  --shape SHAPE      50us, 200us, 1ms, 20ms, 3.5ms, ...: kernels of one length\n"
    "                     mixed: 50us, 200us, 1ms and 20ms at random, each with a grid of its own\n"
    "                     varied: the same with one grid, so that nothing tells their lengths beforehand\n"
    "                     50us+3ms: a mix of one's own; 50us+3ms!: with one grid\n"
    "                     graph: a captured graph of 20 kernels of 50us\n"
    "                     a list with commas: one shape per tenant\n"
    "  --pattern PATTERN  busy: launches as fast as it may (default)\n"
    "                     sync: waits for each kernel\n"
    "                     burst: 200 ms busy, 300 ms idle; burst=BUSY/IDLE in ms\n"
    "                     streams=N: N streams in turn\n"
    "                     a list with commas: one pattern per tenant\n"
    "  --processes N      processes of each tenant, which share its limit (default 1)\n"
    "  --policy POLICY    fixed (default), elastic or none; a list with commas: one per tenant\n"
    "  --arbiter          the reference arbiter runs beside them\n"
    "  --seconds S        measured time (default 5)\n"
    "  --warm-up S        time before (default 2)\n"
    "  --tolerance P      points that a tenant may be off (default 2); negative: only print\n"
    "  --expect 30,70     what each should get; default: its limit, scaled down where they are more than 100\n"
    "  --total P          least that all of them together should get, in percent\n"
    "  --shown P          least utilisation of its share that each tenant's own books should show at any time\n"
    "  --books P          points that they may be off the GPU's\n"
    "  --virtual, --real  which time (default virtual)\n"
    "  --seed N           of the kernels' jitter and the mixes (default 1)\n"
    "  --latency US       after which work reaches the GPU, on the average: exponentially distributed (default 0)\n"
    "  --build FOLDER     where the shim and the fake driver were built (default: where this program is)\n"
    "  --keep             leave the folder there, and say where it is\n";

struct tenant {
    double limit, expected;
    const char *policy, *shape, *pattern;
    pid_t pids[MOST_PROCESSES];
    double own, least_shown, most_shown; /* by its own books, in percent of the GPU */
};

struct plan {
    struct tenant tenants[MOST_TENANTS];
    int count, processes;
    double seconds, warm_up, tolerance, total, shown, books;
    bool is_virtual, arbiter, keep;
    unsigned long seed;
    int latency;
    char build[PATH_LENGTH];
    char folder[PATH_LENGTH];
};

static void fail(const char *what) {
    fprintf(stderr, "duty: %s\n", what);
    exit(2);
}

/* Item number i of a list with commas, the last one beyond its end. */
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

static double number(const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= least && value <= most)) {
        fprintf(stderr, "duty: expected a number from %g to %g, found '%s'\n", least, most, text);
        exit(2);
    }
    return value;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "duty: %s: %s\n", path, strerror(errno));
        exit(2);
    }
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

/* ---- the judge ---- */

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

/* Nanoseconds of the periods after `from` that a process (slot -1: anybody) kept the GPU busy. */
static double busy_since(gpu_file *gpu, int slot, uint64_t from, uint64_t periods) {
    struct gpu_usage usage[GPU_USAGE_PERIODS];
    size_t count = gpu_usage_history(gpu, slot, usage, GPU_USAGE_PERIODS);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (usage[i].period > from && usage[i].period <= from + periods) {
            sum += usage[i].busy_ns;
        }
    }
    return sum;
}

static double gpu_time_of(const struct aliquot_region *region) {
    return (double)__atomic_load_n(&region->device[0].gpu_time, __ATOMIC_RELAXED);
}

/* What the shim in a tenant shows as its utilisation, in percent of the GPU. */
static double shown_by(const struct aliquot_region *region) {
    const struct aliquot_device *device = &region->device[0];
    struct aliquot_usage usage = aliquot_usage_since(&device->gpu_time, device->history, 0, (int64_t)gpu_now());
    return usage.elapsed == 0 ? 0 : 100 * (double)usage.used / (double)usage.elapsed;
}

static const struct aliquot_region *map_region(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *region = mmap(NULL, ALIQUOT_REGION_SIZE, PROT_READ, MAP_SHARED, file, 0);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 || status.st_size < ALIQUOT_REGION_SIZE || region == MAP_FAILED) {
        fail("a tenant has no region");
    }
    close(file);
    return region;
}

/* judge GPU_FILE WARM_UP SECONDS TENANTS REGION... PID...: percent of the GPU, of all and of each process; then what
   each tenant's own books say, and the least and the most that they show. */
static int judge(int count, char **arguments) {
    char error[GPU_ERROR_LENGTH];
    gpu_file *gpu = gpu_open(arguments[0], error);
    if (gpu == NULL) {
        fail(error);
    }
    double warm_up = atof(arguments[1]), seconds = atof(arguments[2]);
    uint64_t start = gpu_now() + (uint64_t)(warm_up * 1e9);
    tenant_sleep_until(start);
    int tenants = atoi(arguments[3]);
    const struct aliquot_region *regions[MOST_TENANTS];
    double least[MOST_TENANTS], most[MOST_TENANTS], before[MOST_TENANTS];
    for (int i = 0; i < tenants; i++) {
        regions[i] = map_region(arguments[4 + i]);
        least[i] = most[i] = shown_by(regions[i]);
        before[i] = gpu_time_of(regions[i]);
    }
    int first = 4 + tenants;
    uint64_t from = start / GPU_USAGE_PERIOD_NS; /* in which it falls: counted from the next */
    uint64_t periods = (uint64_t)(seconds * 1e9) / GPU_USAGE_PERIOD_NS;
    /* Read in pieces: the books remember 128 periods. */
    double busy[MOST_TENANTS * MOST_PROCESSES + 1] = {0};
    int slots[MOST_TENANTS * MOST_PROCESSES + 1] = {-1};
    int processes = count - first;
    for (int i = 0; i < processes; i++) {
        slots[i + 1] = slot_of(gpu, atoi(arguments[first + i]));
    }
    for (uint64_t done = 0; done < periods;) {
        uint64_t piece = periods - done < GPU_USAGE_PERIODS / 2 ? periods - done : GPU_USAGE_PERIODS / 2;
        uint64_t end = from + done + piece + 2;
        for (uint64_t period = from + done + 2; period <= end; period++) {
            tenant_sleep_until(period * GPU_USAGE_PERIOD_NS);
            for (int i = 0; i < tenants; i++) {
                double shown = shown_by(regions[i]);
                least[i] = fmin(least[i], shown);
                most[i] = fmax(most[i], shown);
            }
        }
        for (int i = 0; i <= processes; i++) {
            busy[i] += i > 0 && slots[i] < 0 ? 0 : busy_since(gpu, slots[i], from + done, piece);
        }
        done += piece;
    }
    for (int i = 0; i <= processes; i++) {
        printf("%f\n", 100 * busy[i] / ((double)periods * GPU_USAGE_PERIOD_NS));
    }
    for (int i = 0; i < tenants; i++) {
        double used = gpu_time_of(regions[i]) - before[i];
        printf("%f %f %f\n", 100 * used / (double)(gpu_now() - start), least[i], most[i]);
    }
    gpu_close(gpu);
    return EXIT_SUCCESS;
}

/* ---- the cast ---- */

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

/* The virtual clock comes first, so that the shim's and the driver's calls go through it. */
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
        set_virtual_time(plan, participants);
        set_preload(plan, shim);
        execv(arguments[0], arguments);
        fprintf(stderr, "duty: %s: %s\n", arguments[0], strerror(errno));
        _exit(2);
    }
    return child;
}

static void start_tenants(struct plan *plan, int participants, const char *self) {
    char path[PATH_LENGTH], text[PATH_LENGTH], seed[32];
    for (int i = 0; i < plan->count; i++) {
        struct tenant *tenant = &plan->tenants[i];
        path_in(plan, path, "vgpu-%d", i);
        snprintf(text, sizeof text, "%s memory=1000Mi cores=%d policy=%s\n", uuid, (int)tenant->limit, tenant->policy);
        write_text(path, text);
        setenv("ALIQUOT_CONFIG", path, 1);
        path_in(plan, path, "region-%d", i);
        write_text(path, "");
        setenv("ALIQUOT_REGION", path, 1);
        char pids[MOST_PROCESSES * 16] = "";
        for (int j = 0; j < plan->processes; j++) {
            snprintf(seed, sizeof seed, "%lu", plan->seed * 1000 + (unsigned long)(i * MOST_PROCESSES + j));
            char *arguments[] = {(char *)self, "tenant", (char *)tenant->shape, (char *)tenant->pattern, seed, NULL};
            tenant->pids[j] = start(plan, participants, true, -1, arguments);
            size_t length = strlen(pids);
            snprintf(pids + length, sizeof pids - length, "%d\n", (int)tenant->pids[j]);
        }
        path_in(plan, path, "pids-%d", i);
        write_text(path, pids);
    }
    unsetenv("ALIQUOT_CONFIG");
    unsetenv("ALIQUOT_REGION");
}

static pid_t start_arbiter(const struct plan *plan, int participants) {
    char program[PATH_LENGTH], *arguments[MOST_TENANTS + 4];
    char containers[MOST_TENANTS][3 * PATH_LENGTH];
    int count = 0;
    snprintf(program, sizeof program, "%.400s/arbiter/aliquot-arbiter", plan->build);
    arguments[count++] = program;
    arguments[count++] = (char *)uuid;
    for (int i = 0; i < plan->count; i++) {
        char limits[PATH_LENGTH], region[PATH_LENGTH], pids[PATH_LENGTH];
        path_in(plan, limits, "vgpu-%d", i);
        path_in(plan, region, "region-%d", i);
        path_in(plan, pids, "pids-%d", i);
        snprintf(containers[i], sizeof containers[i], "%s,%s,%s", limits, region, pids);
        arguments[count++] = containers[i];
    }
    arguments[count] = NULL;
    return start(plan, participants, false, -1, arguments);
}

static void make_gpu(struct plan *plan) {
    char path[PATH_LENGTH], command[4 * PATH_LENGTH];
    const char *temporary = getenv("TMPDIR");
    snprintf(plan->folder, sizeof plan->folder, "%.400s/aliquot-duty-XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(plan->folder) == NULL) {
        fail("no temporary folder");
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
        fail("the GPU can't be made");
    }
    path_in(plan, path, "lib", 0);
    mkdir(path, 0777);
    static const char *const libraries[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%.400s/fake-driver/%s", plan->build, libraries[i]);
        path_in(plan, path, i == 0 ? "lib/libcuda.so.1" : "lib/libnvidia-ml.so.1", 0);
        if (access(command, R_OK) != 0 || symlink(command, path) != 0) {
            fail("the fake driver isn't there: --build");
        }
    }
}

static void end(pid_t pid) {
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* Percent of the GPU: shares[0] of all, then of each tenant. */
static void run(struct plan *plan, const char *self, double shares[MOST_TENANTS + 1]) {
    int ends[2];
    char gpu[PATH_LENGTH], regions[MOST_TENANTS][PATH_LENGTH], numbers[3 + MOST_TENANTS * MOST_PROCESSES][32];
    char *arguments[7 + MOST_TENANTS + MOST_TENANTS * MOST_PROCESSES];
    int participants = plan->count * plan->processes + 1 + plan->arbiter;
    make_gpu(plan);
    start_tenants(plan, participants, self);
    pid_t arbiter = plan->arbiter ? start_arbiter(plan, participants) : 0;
    int count = 0;
    path_in(plan, gpu, "gpus/GPU-00000000-0000-4000-8000-00000000da7e", 0);
    arguments[count++] = (char *)self;
    arguments[count++] = "judge";
    arguments[count++] = gpu;
    snprintf(numbers[0], sizeof numbers[0], "%f", plan->warm_up);
    snprintf(numbers[1], sizeof numbers[1], "%f", plan->seconds);
    arguments[count++] = numbers[0];
    arguments[count++] = numbers[1];
    snprintf(numbers[2], sizeof numbers[2], "%d", plan->count);
    arguments[count++] = numbers[2];
    for (int i = 0; i < plan->count; i++) {
        path_in(plan, regions[i], "region-%d", i);
        arguments[count++] = regions[i];
    }
    for (int i = 0; i < plan->count * plan->processes; i++) {
        snprintf(numbers[3 + i], sizeof numbers[0], "%d",
                 (int)plan->tenants[i / plan->processes].pids[i % plan->processes]);
        arguments[count++] = numbers[3 + i];
    }
    arguments[count] = NULL;
    if (pipe(ends) != 0) {
        fail("no pipe");
    }
    pid_t judging = start(plan, participants, false, ends[1], arguments);
    close(ends[1]);
    FILE *report = fdopen(ends[0], "r");
    bool complete = true;
    for (int i = 0; i <= plan->count * plan->processes && complete; i++) {
        double share = 0;
        complete = fscanf(report, "%lf", &share) == 1;
        shares[i == 0 ? 0 : 1 + (i - 1) / plan->processes] += share;
    }
    for (int i = 0; i < plan->count && complete; i++) {
        struct tenant *tenant = &plan->tenants[i];
        complete = fscanf(report, "%lf %lf %lf", &tenant->own, &tenant->least_shown, &tenant->most_shown) == 3;
    }
    fclose(report);
    waitpid(judging, NULL, 0);
    for (int i = 0; i < plan->count * plan->processes; i++) {
        end(plan->tenants[i / plan->processes].pids[i % plan->processes]);
    }
    end(arbiter);
    if (plan->keep) {
        printf("kept: %s\n", plan->folder);
    } else {
        remove_folder(plan->folder);
    }
    if (!complete) {
        fail("the judge found no books");
    }
}

/* ---- options ---- */

static struct plan parse(int count, char **arguments) {
    static const struct option options[] = {
        {"limits", 1, NULL, 'l'},    {"tenants", 1, NULL, 't'},   {"shape", 1, NULL, 's'},   {"pattern", 1, NULL, 'p'},
        {"processes", 1, NULL, 'n'}, {"policy", 1, NULL, 'o'},    {"arbiter", 0, NULL, 'a'}, {"seconds", 1, NULL, 'S'},
        {"warm-up", 1, NULL, 'w'},   {"tolerance", 1, NULL, 'T'}, {"expect", 1, NULL, 'e'},  {"total", 1, NULL, 'A'},
        {"shown", 1, NULL, 'U'},     {"books", 1, NULL, 'B'},     {"virtual", 0, NULL, 'v'}, {"real", 0, NULL, 'r'},
        {"seed", 1, NULL, 'd'},      {"build", 1, NULL, 'b'},     {"keep", 0, NULL, 'k'},    {"help", 0, NULL, 'h'},
        {"latency", 1, NULL, 'y'},   {NULL, 0, NULL, 0}};
    const char *limits = "25", *shapes = "1ms", *patterns = "busy", *policies = "fixed", *expect = NULL;
    struct plan plan = {.processes = 1,
                        .seconds = 5,
                        .warm_up = 2,
                        .tolerance = 2,
                        .total = -1,
                        .books = 100,
                        .is_virtual = true,
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
            plan.count = (int)number(optarg, 1, MOST_TENANTS);
            break;
        case 's':
            shapes = optarg;
            break;
        case 'p':
            patterns = optarg;
            break;
        case 'n':
            plan.processes = (int)number(optarg, 1, MOST_PROCESSES);
            break;
        case 'o':
            policies = optarg;
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
        case 'A':
            plan.total = number(optarg, 0, 100);
            break;
        case 'U':
            plan.shown = number(optarg, 0, 100);
            break;
        case 'B':
            plan.books = number(optarg, 0, 100);
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
    if (optind < count || plan.count > MOST_TENANTS) {
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
        sum += tenant->limit;
    }
    for (int i = 0; i < plan.count; i++) {
        plan.tenants[i].expected =
            expect != NULL ? number(item(expect, i), -1, 100) : plan.tenants[i].limit * (sum > 100 ? 100 / sum : 1);
    }
    return plan;
}

int main(int count, char **arguments) {
    if (count == 5 && strcmp(arguments[1], "tenant") == 0) {
        tenant_run(arguments[2], arguments[3], strtoul(arguments[4], NULL, 10));
    }
    if (count >= 5 && strcmp(arguments[1], "judge") == 0) {
        return judge(count - 2, arguments + 2);
    }
    struct plan plan = parse(count, arguments);
    double shares[MOST_TENANTS + 1] = {0}, worst = 0, least_shown = 100, books_off = 0;
    char self[PATH_LENGTH];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        fail("/proc/self/exe can't be read");
    }
    self[length] = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    run(&plan, self, shares);
    for (int i = 0; i < plan.count; i++) {
        struct tenant *tenant = &plan.tenants[i];
        double off = tenant->expected < 0 ? 0 : shares[i + 1] - tenant->expected;
        printf("tenant %d: limit %3.0f %s, %s, %s: %5.1f %% of the GPU", i, tenant->limit, tenant->policy,
               tenant->shape, tenant->pattern, shares[i + 1]);
        printf(tenant->expected < 0 ? "" : " (%+.1f)", off);
        if (tenant->limit > 0) {
            double of_share = 100 / tenant->limit, shown = tenant->least_shown * of_share;
            printf("; own books %.1f, shown %.0f to %.0f %% of the share", tenant->own, shown,
                   tenant->most_shown * of_share);
            least_shown = fmin(shown, least_shown);
            books_off = fmax(books_off, fabs(tenant->own - shares[i + 1]));
        }
        printf("\n");
        worst = fabs(off) > worst ? fabs(off) : worst;
    }
    printf("all: %.1f %%; worst error %.1f points\n", shares[0], worst);
    bool good = (plan.tolerance < 0 || worst <= plan.tolerance) && shares[0] >= plan.total &&
                least_shown >= plan.shown && books_off <= plan.books;
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
