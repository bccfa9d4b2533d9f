/*
 * nvidia-smi of the simulated driver: the GPUs and their use, in the output formats of NVIDIA's nvidia-smi.
 *
 * Like NVIDIA's, it opens libnvidia-ml.so.1 at run time, so a library that intercepts NVML intercepts its calls too.
 */
#define _GNU_SOURCE
#include "nvml_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
/* The symbol versions from before glibc 2.34, which moved these functions to libc.so.6, for older containers. */
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5\n.symver dlsym, dlsym@GLIBC_2.2.5\n.symver dlerror, dlerror@GLIBC_2.2.5");
#endif

enum { MAX_GPUS = 64, MAX_FIELDS = 64, MAX_PROCESSES = 1024, MAX_SAMPLES = 16384 };

static const char notice[] = "Aliquot simulated driver: no real GPU";

static const char usage[] = "usage: nvidia-smi\n"
                            "       nvidia-smi -L | --list-gpus\n"
                            "       nvidia-smi -q | --query\n"
                            "       nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n"
                            "       nvidia-smi --query-compute-apps=FIELD,... --format=csv[,noheader][,nounits]\n"
                            "       nvidia-smi pmon [-c COUNT] [-d SECONDS]\n"
                            "       with -i ID | --id=ID  only one GPU, by index, UUID or PCI bus ID\n"
                            "\n"
                            "This is the nvidia-smi of Aliquot's simulated driver: there is no real GPU.\n";

/* ---- NVML, opened at run time ---- */

#define CALLS(CALL)                                                                                                    \
    CALL(nvmlInit_v2, (void))                                                                                          \
    CALL(nvmlShutdown, (void))                                                                                         \
    CALL(nvmlSystemGetDriverVersion, (char *, unsigned))                                                               \
    CALL(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                                   \
    CALL(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                                       \
    CALL(nvmlDeviceGetCount_v2, (unsigned *))                                                                          \
    CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                                    \
    CALL(nvmlDeviceGetHandleByUUID, (const char *, nvmlDevice_t *))                                                    \
    CALL(nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvmlDevice_t *))                                             \
    CALL(nvmlDeviceGetIndex, (nvmlDevice_t, unsigned *))                                                               \
    CALL(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned))                                                          \
    CALL(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                                          \
    CALL(nvmlDeviceGetSerial, (nvmlDevice_t, char *, unsigned))                                                        \
    CALL(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t *))                                                     \
    CALL(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *))                                                      \
    CALL(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *))                                           \
    CALL(nvmlDeviceGetTemperature, (nvmlDevice_t, unsigned, unsigned *))                                               \
    CALL(nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned *))                                                          \
    CALL(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t, unsigned *))                                                  \
    CALL(nvmlDeviceGetPerformanceState, (nvmlDevice_t, unsigned *))                                                    \
    CALL(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t, unsigned, unsigned, unsigned long long *))                        \
    CALL(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                                             \
    CALL(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                                                   \
    CALL(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))                                \
    CALL(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *))                  \
    CALL(nvmlDeviceGetProcessUtilization,                                                                              \
         (nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long))

#define CALL(name, parameters) static nvmlReturn_t(*name) parameters;
CALLS(CALL)
#undef CALL
static const char *(*nvmlErrorString)(nvmlReturn_t);

static void open_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (library == NULL) {
        fprintf(stderr, "nvidia-smi: cannot open NVML: %s\n", dlerror());
        exit(12);
    }
    void *symbol;
#define FIND(name)                                                                                                     \
    symbol = dlsym(library, #name);                                                                                    \
    if (symbol == NULL) {                                                                                              \
        fprintf(stderr, "nvidia-smi: libnvidia-ml.so.1 lacks %s\n", #name);                                            \
        exit(13);                                                                                                      \
    }                                                                                                                  \
    memcpy(&name, &symbol, sizeof symbol);
#define CALL(name, parameters) FIND(name)
    CALLS(CALL)
    FIND(nvmlErrorString)
#undef CALL
#undef FIND
    nvmlReturn_t result = nvmlInit_v2();
    if (result != NVML_SUCCESS) {
        fprintf(stderr, "nvidia-smi: cannot initialize NVML: %s\n", nvmlErrorString(result));
        exit((int)result < 250 ? (int)result : 1);
    }
}

static nvmlDevice_t selected_gpus[MAX_GPUS];
static unsigned selected_count;

static void select_gpus(const char *id) {
    nvmlDevice_t device;
    unsigned count = 0;
    if (id == NULL) {
        (void)nvmlDeviceGetCount_v2(&count);
        for (unsigned i = 0; i < count && i < MAX_GPUS; i++) {
            if (nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS) {
                selected_gpus[selected_count++] = device;
            }
        }
        return;
    }
    char *end;
    unsigned long index = strtoul(id, &end, 10);
    bool found = *end == '\0' && id[0] >= '0' && id[0] <= '9' && index < MAX_GPUS
                     ? nvmlDeviceGetHandleByIndex_v2((unsigned)index, &device) == NVML_SUCCESS
                     : nvmlDeviceGetHandleByUUID(id, &device) == NVML_SUCCESS ||
                           nvmlDeviceGetHandleByPciBusId_v2(id, &device) == NVML_SUCCESS;
    if (!found) {
        fprintf(stderr, "nvidia-smi: no GPU \"%s\"; -L lists them\n", id);
        exit(6);
    }
    selected_gpus[selected_count++] = device;
}

/* ---- fields ---- */

enum unit { NONE, MIB, PERCENT, WATT };

/* A field of --query-gpu. value writes the field's value without its unit and returns NVML's result. */
struct field {
    const char *name;
    enum unit unit;
    nvmlReturn_t (*value)(nvmlDevice_t, char *, unsigned);
};

static nvmlReturn_t format_unsigned(nvmlReturn_t result, unsigned value, char *to, unsigned size) {
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%u", value);
    }
    return result;
}

static nvmlReturn_t index_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned value = 0;
    nvmlReturn_t result = nvmlDeviceGetIndex(gpu, &value);
    return format_unsigned(result, value, to, size);
}

static nvmlReturn_t name_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return nvmlDeviceGetName(gpu, to, size);
}
static nvmlReturn_t uuid_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return nvmlDeviceGetUUID(gpu, to, size);
}
static nvmlReturn_t serial_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return nvmlDeviceGetSerial(gpu, to, size);
}

static nvmlReturn_t bus_value(nvmlDevice_t gpu, char *to, unsigned size) {
    nvmlPciInfo_t pci;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(gpu, &pci);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%s", pci.busId);
    }
    return result;
}

static nvmlReturn_t memory_value(nvmlDevice_t gpu, char *to, unsigned size, unsigned which) {
    nvmlMemory_t memory = {0, 0, 0};
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(gpu, &memory);
    unsigned long long bytes[] = {memory.total, memory.used, memory.free};
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%llu", bytes[which] >> 20);
    }
    return result;
}

static nvmlReturn_t total_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return memory_value(gpu, to, size, 0);
}
static nvmlReturn_t used_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return memory_value(gpu, to, size, 1);
}
static nvmlReturn_t free_value(nvmlDevice_t gpu, char *to, unsigned size) {
    return memory_value(gpu, to, size, 2);
}

static nvmlReturn_t gpu_utilization_value(nvmlDevice_t gpu, char *to, unsigned size) {
    nvmlUtilization_t value = {0, 0};
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(gpu, &value);
    return format_unsigned(result, value.gpu, to, size);
}

static nvmlReturn_t memory_utilization_value(nvmlDevice_t gpu, char *to, unsigned size) {
    nvmlUtilization_t value = {0, 0};
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(gpu, &value);
    return format_unsigned(result, value.memory, to, size);
}

static nvmlReturn_t temperature_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned value = 0;
    nvmlReturn_t result = nvmlDeviceGetTemperature(gpu, 0, &value);
    return format_unsigned(result, value, to, size);
}

static nvmlReturn_t power_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned value = 0;
    nvmlReturn_t result = nvmlDeviceGetPowerUsage(gpu, &value);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%u.%02u", value / 1000, value % 1000 / 10);
    }
    return result;
}

static nvmlReturn_t power_limit_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned value = 0;
    nvmlReturn_t result = nvmlDeviceGetEnforcedPowerLimit(gpu, &value);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%u.%02u", value / 1000, value % 1000 / 10);
    }
    return result;
}

static nvmlReturn_t pstate_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned value = 0;
    nvmlReturn_t result = nvmlDeviceGetPerformanceState(gpu, &value);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "P%u", value);
    }
    return result;
}

static nvmlReturn_t capability_value(nvmlDevice_t gpu, char *to, unsigned size) {
    int major = 0, minor = 0;
    nvmlReturn_t result = nvmlDeviceGetCudaComputeCapability(gpu, &major, &minor);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%d.%d", major, minor);
    }
    return result;
}

static nvmlReturn_t ecc_value(nvmlDevice_t gpu, char *to, unsigned size) {
    unsigned long long errors = 0;
    nvmlReturn_t result =
        nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &errors);
    if (result == NVML_SUCCESS) {
        snprintf(to, size, "%llu", errors);
    }
    return result;
}

static nvmlReturn_t driver_value(nvmlDevice_t gpu, char *to, unsigned size) {
    (void)gpu;
    return nvmlSystemGetDriverVersion(to, size);
}

static nvmlReturn_t count_value(nvmlDevice_t gpu, char *to, unsigned size) {
    (void)gpu;
    unsigned count = 0;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
    return format_unsigned(result, count, to, size);
}

static const struct field fields[] = {
    {"index", NONE, index_value},
    {"name", NONE, name_value},
    {"gpu_name", NONE, name_value},
    {"uuid", NONE, uuid_value},
    {"gpu_uuid", NONE, uuid_value},
    {"serial", NONE, serial_value},
    {"pci.bus_id", NONE, bus_value},
    {"memory.total", MIB, total_value},
    {"memory.used", MIB, used_value},
    {"memory.free", MIB, free_value},
    {"utilization.gpu", PERCENT, gpu_utilization_value},
    {"utilization.memory", PERCENT, memory_utilization_value},
    {"temperature.gpu", NONE, temperature_value},
    {"power.draw", WATT, power_value},
    {"power.limit", WATT, power_limit_value},
    {"pstate", NONE, pstate_value},
    {"compute_cap", NONE, capability_value},
    {"ecc.errors.uncorrected.volatile.total", NONE, ecc_value},
    {"driver_version", NONE, driver_value},
    {"count", NONE, count_value},
};

static const char *const compute_app_fields[] = {"pid", "process_name", "used_memory", "used_gpu_memory", "gpu_uuid"};

static const char *unit_heading(enum unit unit) {
    static const char *const names[] = {[NONE] = "", [MIB] = " [MiB]", [PERCENT] = " [%]", [WATT] = " [W]"};
    return names[unit];
}

static const char *unit_suffix(enum unit unit) {
    static const char *const names[] = {[NONE] = "", [MIB] = " MiB", [PERCENT] = " %", [WATT] = " W"};
    return names[unit];
}

static void read_value(const struct field *field, nvmlDevice_t gpu, char *to, unsigned size) {
    nvmlReturn_t result = field->value(gpu, to, size);
    if (result == NVML_ERROR_NOT_SUPPORTED) {
        snprintf(to, size, "[N/A]");
    } else if (result != NVML_SUCCESS) {
        snprintf(to, size, "[%s]", nvmlErrorString(result));
    }
}

/* ---- --query-gpu and --query-compute-apps ---- */

struct format {
    bool header, units;
};

static struct format parse_format(const char *text) {
    struct format format = {true, true};
    bool csv = false;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text != NULL ? text : "");
    char *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        word += strspn(word, " ");
        if (strcmp(word, "csv") == 0) {
            csv = true;
        } else if (strcmp(word, "noheader") == 0) {
            format.header = false;
        } else if (strcmp(word, "nounits") == 0) {
            format.units = false;
        } else if (text != NULL) {
            fprintf(stderr, "nvidia-smi: unknown format \"%s\"; valid are csv, noheader and nounits\n", word);
            exit(2);
        }
    }
    if (!csv) {
        fprintf(stderr, "nvidia-smi: a query needs --format=csv, optionally with ,noheader or ,nounits\n");
        exit(2);
    }
    return format;
}

static const struct field *find_field(const char *name) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    fprintf(stderr, "nvidia-smi: field \"%s\" is not a valid field to query; valid are", name);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : ",", fields[i].name);
    }
    fputc('\n', stderr);
    exit(2);
}

static size_t split_fields(char *text, const char *parts[MAX_FIELDS]) {
    size_t count = 0;
    for (char *word; (word = strsep(&text, ",")) != NULL;) {
        word += strspn(word, " ");
        if (count == MAX_FIELDS) {
            fprintf(stderr, "nvidia-smi: at most %d fields\n", MAX_FIELDS);
            exit(2);
        }
        parts[count++] = word;
    }
    return count;
}

static void query_gpus(const char *text, struct format format) {
    const char *names[MAX_FIELDS];
    const struct field *chosen[MAX_FIELDS];
    char *copy = strdup(text);
    if (copy == NULL) {
        exit(1);
    }
    size_t count = split_fields(copy, names);
    for (size_t i = 0; i < count; i++) {
        chosen[i] = find_field(names[i]);
    }
    for (size_t i = 0; i < count && format.header; i++) {
        printf("%s%s%s", i == 0 ? "" : ", ", names[i], unit_heading(chosen[i]->unit));
    }
    if (format.header) {
        putchar('\n');
    }
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        for (size_t i = 0; i < count; i++) {
            char value[256];
            read_value(chosen[i], selected_gpus[gpu], value, sizeof value);
            printf("%s%s%s", i == 0 ? "" : ", ", value,
                   format.units && value[0] != '[' ? unit_suffix(chosen[i]->unit) : "");
        }
        putchar('\n');
    }
    free(copy);
}

static unsigned running_processes_of(nvmlDevice_t gpu, nvmlProcessInfo_v2_t infos[MAX_PROCESSES]) {
    unsigned count = MAX_PROCESSES;
    return nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, infos) == NVML_SUCCESS ? count : 0;
}

static void query_compute_apps(const char *text, struct format format) {
    static nvmlProcessInfo_v2_t infos[MAX_PROCESSES];
    const char *names[MAX_FIELDS];
    char *copy = strdup(text);
    if (copy == NULL) {
        exit(1);
    }
    size_t count = split_fields(copy, names);
    for (size_t i = 0; i < count; i++) {
        size_t known = 0;
        while (known < sizeof compute_app_fields / sizeof compute_app_fields[0] &&
               strcmp(names[i], compute_app_fields[known]) != 0) {
            known++;
        }
        if (known == sizeof compute_app_fields / sizeof compute_app_fields[0]) {
            fprintf(stderr, "nvidia-smi: unknown field \"%s\"; valid are pid, process_name, used_memory, gpu_uuid\n",
                    names[i]);
            exit(2);
        }
        if (format.header) {
            printf("%s%s%s", i == 0 ? "" : ", ", names[i], strncmp(names[i], "used", 4) == 0 ? " [MiB]" : "");
        }
    }
    if (format.header) {
        putchar('\n');
    }
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        unsigned running = running_processes_of(selected_gpus[gpu], infos);
        for (unsigned p = 0; p < running; p++) {
            for (size_t i = 0; i < count; i++) {
                char value[256] = "[N/A]";
                if (strcmp(names[i], "pid") == 0) {
                    snprintf(value, sizeof value, "%u", infos[p].pid);
                } else if (strcmp(names[i], "process_name") == 0) {
                    (void)nvmlSystemGetProcessName(infos[p].pid, value, sizeof value);
                } else if (strcmp(names[i], "gpu_uuid") == 0) {
                    (void)nvmlDeviceGetUUID(selected_gpus[gpu], value, sizeof value);
                } else {
                    snprintf(value, sizeof value, "%llu%s", infos[p].usedGpuMemory >> 20, format.units ? " MiB" : "");
                }
                printf("%s%s", i == 0 ? "" : ", ", value);
            }
            putchar('\n');
        }
    }
    free(copy);
}

/* ---- -L, -q, the table, and pmon ---- */

static void list_gpus(void) {
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        char index[16], name[128], uuid[96];
        read_value(find_field("index"), selected_gpus[gpu], index, sizeof index);
        read_value(find_field("name"), selected_gpus[gpu], name, sizeof name);
        read_value(find_field("uuid"), selected_gpus[gpu], uuid, sizeof uuid);
        printf("GPU %s: %s (UUID: %s)\n", index, name, uuid);
        unsigned most = 0;
        nvmlDevice_t mig;
        (void)nvmlDeviceGetMaxMigDeviceCount(selected_gpus[gpu], &most);
        for (unsigned i = 0; i < most; i++) {
            if (nvmlDeviceGetMigDeviceHandleByIndex(selected_gpus[gpu], i, &mig) != NVML_SUCCESS) {
                continue;
            }
            read_value(find_field("name"), mig, name, sizeof name);
            read_value(find_field("uuid"), mig, uuid, sizeof uuid);
            const char *profile = strstr(name, " MIG ");
            printf("  MIG %-15s Device %2u: (UUID: %s)\n", profile != NULL ? profile + 5 : name, i, uuid);
        }
    }
}

static void print_timestamp(void) {
    char text[64];
    time_t now = time(NULL);
    struct tm local;
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &local));
    puts(text);
}

static void read_versions(char driver[80], char cuda[16]) {
    int version = 0;
    if (nvmlSystemGetDriverVersion(driver, 80) != NVML_SUCCESS) {
        snprintf(driver, 80, "N/A");
    }
    (void)nvmlSystemGetCudaDriverVersion_v2(&version);
    snprintf(cuda, 16, "%d.%d", version / 1000 % 1000, version % 1000 / 10);
}

static void print_log(void) {
    char driver[80], cuda[16], value[256];
    read_versions(driver, cuda);
    printf(
        "\n==============NVSMI LOG==============\n\n%s\n\nDriver Version : %s\nCUDA Version : %s\nAttached GPUs : %u\n",
        notice, driver, cuda, selected_count);
    static const struct {
        const char *label, *field;
    } shown[] = {{"Product Name", "name"},
                 {"GPU UUID", "uuid"},
                 {"Serial Number", "serial"},
                 {"Compute Capability", "compute_cap"},
                 {"Performance State", "pstate"},
                 {"FB Memory Total", "memory.total"},
                 {"FB Memory Used", "memory.used"},
                 {"FB Memory Free", "memory.free"},
                 {"Utilization Gpu", "utilization.gpu"},
                 {"GPU Current Temp", "temperature.gpu"},
                 {"Power Draw", "power.draw"},
                 {"Power Limit", "power.limit"}};
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        read_value(find_field("pci.bus_id"), selected_gpus[gpu], value, sizeof value);
        printf("\nGPU %s\n", value);
        for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
            const struct field *field = find_field(shown[i].field);
            read_value(field, selected_gpus[gpu], value, sizeof value);
            printf("    %-20s : %s%s\n", shown[i].label, value, value[0] != '[' ? unit_suffix(field->unit) : "");
        }
    }
}

static const char rule[] =
    "+-----------------------------------------+------------------------+----------------------+";
static const char full_width_rule[] =
    "+-----------------------------------------------------------------------------------------+";

static void print_table(void) {
    static nvmlProcessInfo_v2_t infos[MAX_PROCESSES];
    char driver[80], cuda[16];
    read_versions(driver, cuda);
    print_timestamp();
    puts(full_width_rule);
    printf("| NVIDIA-SMI %-22.22s Driver Version: %-16.16s CUDA Version: %-6.6s |\n", driver, driver, cuda);
    printf("| %-87.87s |\n", notice);
    puts(rule);
    puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
    puts("|=========================================+========================+======================|");
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        static const char *const names[] = {"index",
                                            "name",
                                            "pci.bus_id",
                                            "temperature.gpu",
                                            "pstate",
                                            "power.draw",
                                            "power.limit",
                                            "memory.used",
                                            "memory.total",
                                            "utilization.gpu",
                                            "ecc.errors.uncorrected.volatile.total"};
        char v[11][256], power[96], memory[600], temperature[300];
        for (size_t i = 0; i < 11; i++) {
            read_value(find_field(names[i]), selected_gpus[gpu], v[i], sizeof v[i]);
        }
        printf("| %3.3s  %-24.24s        On | %-16.16s   Off | %20.20s |\n", v[0], v[1], v[2],
               v[10][0] != '[' ? v[10] : "ERR!");
        if (v[7][0] == '[') { /* NVML returned an error, usually NVML_ERROR_GPU_IS_LOST */
            printf("| %-39.39s | %22.22s | %20s |\n", "ERR!", v[7], "ERR!");
        } else {
            snprintf(power, sizeof power, "%.0fW / %.0fW", atof(v[5]), atof(v[6]));
            snprintf(memory, sizeof memory, "%sMiB / %sMiB", v[7], v[8]);
            snprintf(temperature, sizeof temperature, "%sC", v[3]);
            printf("| N/A  %4.4s   %-4.4s %22.22s | %22.22s | %6.6s%%      Default |\n", temperature, v[4], power,
                   memory, v[9]);
        }
        puts(rule);
    }
    if (selected_count == 0) {
        printf("| %-87s |\n", "No devices were found");
        puts(full_width_rule);
    }
    putchar('\n');
    puts(full_width_rule);
    printf("| %-87s |\n", "Processes:");
    printf("| %5s %12s   %-50s %15s |\n", "GPU", "PID", "Process name", "GPU Memory");
    puts("|=========================================================================================|");
    bool any = false;
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        unsigned running = running_processes_of(selected_gpus[gpu], infos), index = 0;
        (void)nvmlDeviceGetIndex(selected_gpus[gpu], &index);
        for (unsigned p = 0; p < running; p++, any = true) {
            char name[256] = "", memory[32];
            (void)nvmlSystemGetProcessName(infos[p].pid, name, sizeof name);
            snprintf(memory, sizeof memory, "%lluMiB", infos[p].usedGpuMemory >> 20);
            size_t length = strlen(name); /* a long path is cut at its start */
            printf("| %5u %12u   %-3.3s%-47s %15s |\n", index, infos[p].pid, length > 50 ? "..." : name,
                   length > 50 ? name + length - 47 : name + (length > 3 ? 3 : length), memory);
        }
    }
    if (!any) {
        printf("| %-87s |\n", "  No running processes found");
    }
    puts(full_width_rule);
}

/* Prints one line per process at each interval: the utilization of the GPU's multiprocessors since the last one. */
static void run_pmon(unsigned long count, unsigned long seconds) {
    static nvmlProcessInfo_v2_t infos[MAX_PROCESSES];
    static nvmlProcessUtilizationSample_t samples[MAX_SAMPLES];
    unsigned long long since[MAX_GPUS];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned gpu = 0; gpu < selected_count; gpu++) {
        since[gpu] = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    }
    puts("# gpu         pid   type     sm    mem    enc    dec    command");
    puts("# Idx           #    C/G      %      %      %      %    name");
    for (unsigned long sample = 0; count == 0 || sample < count; sample++) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)seconds}, NULL);
        for (unsigned gpu = 0; gpu < selected_count; gpu++) {
            unsigned found = MAX_SAMPLES, index = gpu, running = running_processes_of(selected_gpus[gpu], infos);
            unsigned long long newest = since[gpu];
            (void)nvmlDeviceGetIndex(selected_gpus[gpu], &index);
            if (nvmlDeviceGetProcessUtilization(selected_gpus[gpu], samples, &found, since[gpu]) != NVML_SUCCESS) {
                found = 0; /* NVML also returns an error when no work ran */
            }
            for (unsigned p = 0; p < running; p++) {
                unsigned long sum = 0, of = 0;
                char name[256] = "", used[32] = "-";
                for (unsigned i = 0; i < found; i++) {
                    if (samples[i].pid == infos[p].pid) {
                        sum += samples[i].smUtil, of++;
                    }
                    if (samples[i].timeStamp > newest) {
                        newest = samples[i].timeStamp;
                    }
                }
                if (of > 0) {
                    snprintf(used, sizeof used, "%lu", (sum + of / 2) / of);
                }
                (void)nvmlSystemGetProcessName(infos[p].pid, name, sizeof name);
                const char *slash = strrchr(name, '/');
                printf("%5u %11u %6s %6s %6s %6s %6s    %s\n", index, infos[p].pid, "C", used, "-", "-", "-",
                       slash != NULL ? slash + 1 : name);
            }
            if (running == 0) {
                printf("%5u %11s %6s %6s %6s %6s %6s    %s\n", index, "-", "-", "-", "-", "-", "-", "-");
            }
            since[gpu] = newest;
        }
        fflush(stdout);
    }
}

/* The value of --name=value, or of --name value; NULL if arguments[*i] is another option. */
static const char *option_value(char **arguments, int *i, const char *name) {
    size_t length = strlen(name);
    if (strncmp(arguments[*i], name, length) != 0) {
        return NULL;
    }
    if (arguments[*i][length] == '=') {
        return arguments[*i] + length + 1;
    }
    if (arguments[*i][length] != '\0' || arguments[*i + 1] == NULL) {
        return NULL;
    }
    return arguments[++*i];
}

int main(int count, char **arguments) {
    const char *gpu_query = NULL, *app_query = NULL, *format = NULL, *id = NULL, *value;
    bool as_list = false, all = false, monitor = count > 1 && strcmp(arguments[1], "pmon") == 0;
    unsigned long samples_wanted = 0, seconds = 1;
    for (int i = 1 + monitor; i < count; i++) {
        const char *word = arguments[i];
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(word, "-L") == 0 || strcmp(word, "--list-gpus") == 0) {
            as_list = true;
        } else if (strcmp(word, "-q") == 0 || strcmp(word, "--query") == 0) {
            all = true;
        } else if ((value = option_value(arguments, &i, "--query-gpu")) != NULL) {
            gpu_query = value;
        } else if ((value = option_value(arguments, &i, "--query-compute-apps")) != NULL) {
            app_query = value;
        } else if ((value = option_value(arguments, &i, "--format")) != NULL) {
            format = value;
        } else if ((value = option_value(arguments, &i, "--id")) != NULL ||
                   (value = option_value(arguments, &i, "-i")) != NULL) {
            id = value;
        } else if (monitor && (value = option_value(arguments, &i, "-c")) != NULL && atoi(value) > 0) {
            samples_wanted = strtoul(value, NULL, 10);
        } else if (monitor && (value = option_value(arguments, &i, "-d")) != NULL && atoi(value) > 0 &&
                   atoi(value) <= 10) {
            seconds = strtoul(value, NULL, 10);
        } else {
            fprintf(stderr, "nvidia-smi: unknown or incomplete option \"%s\"\n\n%s", word, usage);
            return 2;
        }
    }
    if (gpu_query != NULL && app_query != NULL) {
        fprintf(stderr, "nvidia-smi: only one query per call\n");
        return 2;
    }
    struct format parsed = {true, true};
    if (gpu_query != NULL || app_query != NULL) {
        parsed = parse_format(format);
    }
    open_nvml();
    select_gpus(id);
    if (monitor) {
        run_pmon(samples_wanted, seconds);
    } else if (gpu_query != NULL) {
        query_gpus(gpu_query, parsed);
    } else if (app_query != NULL) {
        query_compute_apps(app_query, parsed);
    } else if (as_list) {
        list_gpus();
    } else if (all) {
        print_log();
    } else {
        print_table();
    }
    nvmlShutdown();
    return fflush(stdout) == 0 ? 0 : 1;
}
