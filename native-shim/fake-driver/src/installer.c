/*
 * aliquot-fake-driver: installs simulated GPUs on a node, and makes them and their driver fail and recover.
 *
 * Every installed file appears under its final name completely or not at all. A file with the right content is not
 * touched, because running containers have these files mounted and mapped.
 */
#define _GNU_SOURCE
#include "driver_state.h"
#include "gpu_health.h"
#include "gpu_mig.h"
#include "gpu_time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_LENGTH = 4096, NUMA_NODE_GPUS = 4 };

static const char usage[] =
    "usage: aliquot-fake-driver install --root DIR --source DIR --cdi DIR --gpus FILE --node NAME\n"
    "       aliquot-fake-driver fail UUID [--xid N] [--root DIR]\n"
    "       aliquot-fake-driver heal|reset|lose|return|remove|insert|hot|cool|hide-uuid UUID [--root DIR]\n"
    "       aliquot-fake-driver power-brake|exclusive|mps UUID on|off [--root DIR]\n"
    "       aliquot-fake-driver recover UUID none|reset|reboot|drain-p2p|drain-reset [--root DIR]\n"
    "       aliquot-fake-driver driver [--version V] [--load|--unload] [--mismatch on|off] [--hang on|off]\n"
    "                                  [--with|--without recovery-actions] [--root DIR]\n"
    "       aliquot-fake-driver mig UUID on|off [--root DIR [--cdi DIR]]\n"
    "       aliquot-fake-driver mig-create UUID PROFILE [--root DIR [--cdi DIR]]\n"
    "       aliquot-fake-driver mig-destroy UUID [--root DIR [--cdi DIR]]\n"
    "       aliquot-fake-driver reboot [--root DIR [--cdi DIR]]\n"
    "       aliquot-fake-driver list|usage [--root DIR]\n"
    "\n"
    "Aliquot's simulated NVIDIA driver: GPUs that are files, to try Aliquot without a real GPU.\n"
    "\n"
    "install  copies the driver's libraries from --source to --root/lib, and nvidia-smi and this program to\n"
    "         --root/bin, creates one file per GPU in --root/gpus, and writes the CDI specification\n"
    "         --cdi/aliquot-fake-driver.json, through which NVIDIA's container runtime injects the GPUs into\n"
    "         containers. --gpus names a file with one line per GPU:\n"
    "             model;memory in MiB;multiprocessors        NVIDIA A100-SXM4-80GB;81920;108\n"
    "         Five optional fields may follow, each of which may be empty: the MiB that a process's CUDA contexts\n"
    "         take; the NUMA node (default: four GPUs per node); links to other GPUs by their index (nvlink<n>, pix,\n"
    "         pxb, phb, node, sys); the MiB that the driver reserves beside the memory (default: 0); and the profiles\n"
    "         of MIG instances, which a GPU without any gets:\n"
    "             NVIDIA A100-SXM4-80GB;81920;108;256;0;1=nvlink12,2=sys;600\n"
    "             NVIDIA A100-SXM4-80GB;81920;108;;;;;1g.10gb,2g.20gb,3g.40gb\n"
    "         --node names the node; the GPUs' UUIDs derive from it. install can be repeated at any time.\n"
    "fail     raises an XID event on a GPU, as NVML's clients see it; each call is one event. The default is 79: the\n"
    "         GPU has fallen off the bus and is lost. 48, 94 and 95 add an uncorrectable ECC error, 63 adds a pending\n"
    "         row remapping, and 64 a failed one. The recovery action becomes reset after 48, 64, 74, 79, 95, 119 and\n"
    "         154, and drain-reset after 63.\n"
    "recover  sets the recovery action that the driver reports for a GPU.\n"
    "reset    resets a GPU that no process uses: its XID, recovery action and volatile ECC errors are cleared, "
    "pending\n"
    "         row remappings take effect, a lost GPU is back. A failed row remapping stays failed.\n"
    "lose     lets a GPU fall off the bus without an XID; return brings it back, with its XID and recovery action.\n"
    "remove   takes a GPU out of the machine: NVML and CUDA do not find it until insert puts it in again.\n"
    "hot      makes the hardware slow a GPU down because of its temperature, until cool; power-brake does so because\n"
    "         of the power supply.\n"
    "exclusive  sets the compute mode to EXCLUSIVE_PROCESS or back to DEFAULT, as NVML's clients see it.\n"
    "mps      lists the processes on a GPU as clients of MPS, too.\n"
    "hide-uuid  makes nvmlDeviceGetUUID fail, as if an event came from an unknown GPU, until heal.\n"
    "heal     ends all states above: the GPU is one that never failed.\n"
    "driver   changes the driver of the node as NVML's clients see it. --version: what nvmlSystemGetDriverVersion\n"
    "         returns after the next nvmlInit; it ends in -fake. --unload and --load: the kernel module. --mismatch:\n"
    "         nvmlInit finds a kernel module of another version. --hang: nvmlInit and calls that reach a GPU do not\n"
    "         return. --without recovery-actions: the driver is too old to report them.\n"
    "mig      turns MIG on or off: at once on a GPU that no process uses, else at its next reset. Off needs a GPU\n"
    "         without instances.\n"
    "mig-create, mig-destroy  create an instance of a profile, such as 1g.10gb, and destroy one that no process uses,\n"
    "         by its UUID. Both write the --cdi specification again, as nvidia-ctk cdi generate does.\n"
    "reboot   what a reboot of the node does: instances are gone; a Hopper or newer GPU is no longer in MIG mode.\n"
    "list     prints the driver's version and states, and for each GPU: index, UUID, model, MiB in use and total, MiB\n"
    "         per process for CUDA contexts, XID, and every state that differs from a healthy GPU's.\n"
    "usage    prints for each GPU how many seconds a kernel ran on it since its file was made, and for each process "
    "on\n"
    "         it: its ID in its own PID namespace, the MiB that it uses, and the seconds that its kernels ran.\n"
    "\n"
    "Without --root the GPUs are those in $ALIQUOT_FAKE_GPUS, or in /run/aliquot-fake-driver/gpus.\n";

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("aliquot-fake-driver: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void join_path(char path[PATH_LENGTH], const char *directory, const char *name) {
    int length = snprintf(path, PATH_LENGTH, "%s/%s", directory, name);
    if (length < 0 || length >= PATH_LENGTH) {
        die("the path %.100s... is too long", directory);
    }
}

static void make_directories(const char *path) {
    char part[PATH_LENGTH];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) {
        die("\"%.100s\" is not a valid directory path", path);
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST) {
            die("cannot create the directory %s: %s", part, strerror(errno));
        }
    }
}

/* The content of a file, NUL-terminated; NULL and errno if the file cannot be opened. */
static char *read_whole_file(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    char *text = NULL;
    *size = 0;
    for (;;) {
        char *larger = realloc(text, *size + (1 << 16) + 1);
        if (larger == NULL) {
            die("out of memory while reading %s", path);
        }
        text = larger;
        ssize_t got = read(fd, text + *size, 1 << 16);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            die("cannot read %s: %s", path, strerror(errno));
        }
        if (got == 0) {
            break;
        }
        *size += (size_t)got;
    }
    close(fd);
    text[*size] = '\0';
    return text;
}

/* Makes the file at path hold exactly content; true if the file changed. */
static bool update_file(const char *path, const char *content, size_t size, mode_t mode) {
    size_t present_size;
    char *present = read_whole_file(path, &present_size);
    bool same = present != NULL && present_size == size && memcmp(present, content, size) == 0;
    free(present);
    if (same) {
        return false;
    }
    char temporary[PATH_LENGTH];
    int length = snprintf(temporary, sizeof temporary, "%s.new", path);
    if (length < 0 || length >= PATH_LENGTH) {
        die("the path %.100s... is too long", path);
    }
    (void)unlink(temporary); /* left by a run that was killed */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        die("cannot write %s: %s", temporary, strerror(errno));
    }
    for (size_t written = 0; written < size;) {
        ssize_t some = write(fd, content + written, size - written);
        if (some < 0 && errno != EINTR) {
            die("cannot write %s: %s", temporary, strerror(errno));
        }
        if (some > 0) {
            written += (size_t)some;
        }
    }
    if (fchmod(fd, mode) != 0 || fsync(fd) != 0 || close(fd) != 0 || rename(temporary, path) != 0) {
        die("cannot write %s: %s", path, strerror(errno));
    }
    return true;
}

static void copy_file(const char *from_directory, const char *to_directory, const char *name) {
    char from[PATH_LENGTH], to[PATH_LENGTH];
    size_t size;
    join_path(from, from_directory, name);
    join_path(to, to_directory, name);
    char *content = read_whole_file(from, &size);
    if (content == NULL) {
        die("cannot read %s: %s; --source must hold libcuda.so.1, libnvidia-ml.so.1 and nvidia-smi", from,
            strerror(errno));
    }
    if (update_file(to, content, size, 0755)) {
        printf("installed %s\n", to);
    }
    free(content);
}

/* The name without a version, by which compilers and some programs look for a library. */
static void link_library(const char *directory, const char *library, const char *name) {
    char path[PATH_LENGTH], target[PATH_LENGTH];
    join_path(path, directory, name);
    ssize_t length = readlink(path, target, sizeof target);
    if (length == (ssize_t)strlen(library) && memcmp(target, library, strlen(library)) == 0) {
        return;
    }
    (void)unlink(path);
    if (symlink(library, path) != 0) {
        die("cannot link %s: %s", path, strerror(errno));
    }
    printf("installed %s\n", path);
}

/* ---- the GPUs ---- */

static uint64_t hash(const char *text, uint64_t seed) {
    uint64_t h = seed;
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

/* Derives UUID and serial number from node and index only; the UUID is of version 8 (RFC 9562, section 5.8). */
static void derive_identity(struct gpu_identity *gpu, const char *node) {
    char text[512];
    snprintf(text, sizeof text, "aliquot-fake-driver/%s/%u", node, gpu->index);
    uint64_t high = hash(text, UINT64_C(0xcbf29ce484222325)), low = hash(text, UINT64_C(0x84222325cbf29ce4));
    high = (high & ~UINT64_C(0xf000)) | 0x8000;
    low = (low & ~(UINT64_C(3) << 62)) | UINT64_C(2) << 62;
    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff), (unsigned)(low >> 48),
             (unsigned long long)(low & UINT64_C(0xffffffffffff)));
    snprintf(gpu->serial, sizeof gpu->serial, "%013llu", (unsigned long long)(low % UINT64_C(10000000000000)));
}

/* From https://developer.nvidia.com/cuda-gpus. The first entry that the model's name contains applies. */
static const struct {
    const char *model;
    unsigned major, minor;
} capabilities[] = {
    {"B300", 10, 3}, {"B200", 10, 0}, {"GB200", 10, 0}, {"H100", 9, 0}, {"H200", 9, 0}, {"H20", 9, 0},
    {"H800", 9, 0},  {"L40", 8, 9},   {"L4", 8, 9},     {"L20", 8, 9},  {"4090", 8, 9}, {"A100", 8, 0},
    {"A800", 8, 0},  {"A30", 8, 0},   {"A40", 8, 6},    {"A10", 8, 6},  {"A16", 8, 6},  {"A2", 8, 6},
    {"3090", 8, 6},  {"T4", 7, 5},    {"V100", 7, 0},   {"P100", 6, 0}, {"P40", 6, 1},  {"P4", 6, 1},
};

static void derive_capability(struct gpu_identity *gpu) {
    gpu->compute_major = 8;
    for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++) {
        if (strstr(gpu->name, capabilities[i].model) != NULL) {
            gpu->compute_major = capabilities[i].major;
            gpu->compute_minor = capabilities[i].minor;
            return;
        }
    }
}

/* Whether text consists of a whole number up to max. */
static bool parse_number(const char *text, uint64_t max, uint64_t *value) {
    char *end;
    errno = 0;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= max;
}

/* The whole number from 1 to max that text consists of; 0 otherwise. */
static uint64_t positive_number(const char *text, uint64_t max) {
    uint64_t value;
    return parse_number(text, max, &value) ? value : 0;
}

/* The value of a link's name in gpu_identity.links; 0 for an unknown name. */
static uint8_t parse_link_name(const char *name) {
    static const char *const pcie[] = {"pix", "pxb", "phb", "node", "sys"};
    for (size_t i = 0; i < sizeof pcie / sizeof pcie[0]; i++) {
        if (strcmp(name, pcie[i]) == 0) {
            return (uint8_t)(GPU_LINK_PCIE | (i + 1));
        }
    }
    return strncmp(name, "nvlink", 6) == 0 ? (uint8_t)positive_number(name + 6, GPU_NVLINKS) : 0;
}

static void parse_links(char *links, const char *file, size_t line_number, struct gpu_identity *gpu) {
    for (char *link; (link = strsep(&links, ",")) != NULL;) {
        char shown[64];
        snprintf(shown, sizeof shown, "%s", link);
        char *name = link;
        const char *index = strsep(&name, "=");
        uint64_t other;
        uint8_t value = name != NULL ? parse_link_name(name) : 0;
        if (value == 0 || !parse_number(index, GPU_MAX_INDEX, &other) || other == gpu->index) {
            die("%s, line %zu: a link is another GPU's index and nvlink1 to nvlink%d, pix, pxb, phb, node or sys, like "
                "1=nvlink4, not \"%s\"",
                file, line_number, GPU_NVLINKS, shown);
        }
        gpu->links[other] = value;
    }
}

/* Copies each link to its other end; the list may name a link at one end only. */
static void mirror_links(struct gpu_identity *gpus, size_t count, const char *file) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < GPU_MAX_PER_NODE; j++) {
            uint8_t link = gpus[i].links[j];
            if (link == 0) {
                continue;
            }
            if (j >= count) {
                die("%s: GPU %zu is linked to GPU %zu, which does not exist", file, i, j);
            }
            if (gpus[j].links[i] != 0 && gpus[j].links[i] != link) {
                die("%s: GPUs %zu and %zu name different links to each other", file, i, j);
            }
            gpus[j].links[i] = link;
        }
    }
}

/* Whether the card has room for them shows when they are created. */
static void check_profiles(const char *list, const char *file, size_t line_number, const struct gpu_identity *card) {
    char text[256];
    snprintf(text, sizeof text, "%s", list != NULL ? list : "");
    char *rest = text[0] != '\0' ? text : NULL;
    for (const char *profile; (profile = strsep(&rest, ",")) != NULL;) {
        unsigned number = gpu_mig_capable(card) ? 0 : GPU_MIG_PROFILES;
        while (number < GPU_MIG_PROFILES && strcmp(gpu_mig_profile(card, number).name, profile) != 0) {
            number++;
        }
        if (number == GPU_MIG_PROFILES) {
            die("%s, line %zu: %s has no MIG profile \"%s\"", file, line_number, card->name, profile);
        }
    }
}

static void parse_gpu(char *line, const char *file, size_t line_number, const char *node, struct gpu_identity *gpu,
                      const char **instances) {
    char *rest = line;
    const char *model = strsep(&rest, ";"), *memory = strsep(&rest, ";"), *multiprocessors = strsep(&rest, ";"),
               *context = strsep(&rest, ";"), *numa = strsep(&rest, ";");
    char *links = strsep(&rest, ";");
    const char *reserved = strsep(&rest, ";");
    *instances = strsep(&rest, ";");
    if (multiprocessors == NULL || rest != NULL || model[0] == '\0' || strlen(model) >= sizeof gpu->name) {
        die("%s, line %zu: expected model;memory in MiB;multiprocessors, like NVIDIA A100-SXM4-80GB;81920;108, and "
            "optionally ;MiB that a process's CUDA contexts take;NUMA node;links;reserved MiB;MIG profiles",
            file, line_number);
    }
    for (const char *c = model; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') {
            die("%s, line %zu: a model's name must be printable ASCII", file, line_number);
        }
    }
    uint64_t mib = positive_number(memory, GPU_MAX_MEMORY_BYTES >> 20);
    if (mib == 0) {
        die("%s, line %zu: memory must be a whole number of MiB from 1 to %llu, not \"%s\"", file, line_number,
            (unsigned long long)(GPU_MAX_MEMORY_BYTES >> 20), memory);
    }
    uint64_t processors = positive_number(multiprocessors, GPU_MAX_MULTIPROCESSORS);
    if (processors == 0) {
        die("%s, line %zu: multiprocessors must be a whole number from 1 to %u, not \"%s\"", file, line_number,
            GPU_MAX_MULTIPROCESSORS, multiprocessors);
    }
    uint64_t context_mib = 0;
    if (context != NULL && (context[0] != '\0' || numa == NULL) && !parse_number(context, mib, &context_mib)) {
        die("%s, line %zu: the memory of a process's CUDA contexts must be a whole number of MiB from 0 to %llu, not "
            "\"%s\"",
            file, line_number, (unsigned long long)mib, context);
    }
    uint64_t numa_node = gpu->index / NUMA_NODE_GPUS;
    if (numa != NULL && numa[0] != '\0' && !parse_number(numa, GPU_MAX_INDEX, &numa_node)) {
        die("%s, line %zu: a NUMA node must be a whole number from 0 to %d, not \"%s\"", file, line_number,
            GPU_MAX_INDEX, numa);
    }
    if (links != NULL && links[0] != '\0') {
        parse_links(links, file, line_number, gpu);
    }
    uint64_t reserved_mib = 0;
    if (reserved != NULL && reserved[0] != '\0' && !parse_number(reserved, mib, &reserved_mib)) {
        die("%s, line %zu: the reserved memory must be a whole number of MiB from 0 to %llu, not \"%s\"", file,
            line_number, (unsigned long long)mib, reserved);
    }
    gpu->reserved_mib = (uint32_t)reserved_mib;
    gpu->numa = (uint32_t)numa_node;
    snprintf(gpu->name, sizeof gpu->name, "%s", model);
    gpu->context_bytes = context_mib << 20;
    gpu->memory_bytes = mib << 20;
    gpu->multiprocessors = (uint32_t)processors;
    derive_capability(gpu);
    derive_identity(gpu, node);
    check_profiles(*instances, file, line_number, gpu);
}

/* instances: of each GPU the list of its MIG profiles, or NULL; in the text of the file, which stays allocated. */
static size_t parse_gpus(const char *file, const char *node, struct gpu_identity *gpus, const char **instances) {
    size_t size, count = 0, line_number = 0;
    char *text = read_whole_file(file, &size);
    if (text == NULL) {
        die("cannot read the list of GPUs %s: %s", file, strerror(errno));
    }
    if (strlen(text) != size) {
        die("%s is not text", file);
    }
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        line_number++;
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r') {
            line[length - 1] = '\0';
        }
        if (line[0] == '\0') {
            continue;
        }
        if (count == GPU_MAX_PER_NODE) {
            die("%s, line %zu: a node has at most %d GPUs", file, line_number, GPU_MAX_PER_NODE);
        }
        memset(&gpus[count], 0, sizeof gpus[count]);
        gpus[count].index = (uint32_t)count;
        parse_gpu(line, file, line_number, node, &gpus[count], &instances[count]);
        count++;
    }
    mirror_links(gpus, count, file);
    return count;
}

/* ---- the CDI specification ---- */

static void write_mount(FILE *out, const char *before, const char *host_directory, const char *name,
                        const char *container_directory, const char *access) {
    fprintf(out,
            "%s{\"hostPath\": \"%s/%s\", \"containerPath\": \"%s/%s\", "
            "\"options\": [\"%s\", \"nosuid\", \"nodev\", \"bind\"]}",
            before, host_directory, name, container_directory, name, access);
}

static void write_device(FILE *out, const char *before, const char *name, const char *gpus_directory,
                         gpu_file *const *gpus, size_t count) {
    fprintf(out, "%s\n    {\"name\": \"%s\", \"containerEdits\": {\"mounts\": [", before, name);
    for (size_t i = 0; i < count; i++) {
        write_mount(out, i == 0 ? "\n      " : ",\n      ", gpus_directory, gpu_identity(gpus[i])->uuid,
                    GPU_DEFAULT_DIRECTORY, "rw");
    }
    fputs("]}}", out);
}

/* A card in MIG mode is no device; each of its instances is one, with the card, which NVML shows beside it. */
static void write_devices(FILE *out, const char *directory, gpu_file *const *gpus, size_t count) {
    const char *before = "";
    for (size_t i = 0; i < count; i++) {
        const struct gpu_identity *card = gpu_identity(gpus[i]);
        struct gpu_instance instance;
        gpu_file *instances[GPU_MIG_SLICES];
        char name[32];
        if (gpu_instance(gpus[i], &instance)) {
            continue;
        }
        if (!gpu_mig_mode(gpus[i])) {
            snprintf(name, sizeof name, "%u", card->index);
            write_device(out, before, name, directory, &gpus[i], 1);
            write_device(out, ",", card->uuid, directory, &gpus[i], 1);
            before = ",";
        }
        size_t found = gpu_instances(card->uuid, gpus, count, instances);
        for (size_t n = 0; n < found; n++) {
            gpu_file *both[] = {gpus[i], instances[n]};
            snprintf(name, sizeof name, "%u:%zu", card->index, n);
            write_device(out, before, name, directory, both, 2);
            write_device(out, ",", gpu_identity(instances[n])->uuid, directory, both, 2);
            before = ",";
        }
    }
    write_device(out, before, "all", directory, gpus, count);
}

/* Version 0.6.0 of https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md */
static char *cdi_specification(const char *root, gpu_file *const *gpus, size_t count, size_t *size) {
    char *text = NULL, lib[PATH_LENGTH], bin[PATH_LENGTH], gpu[PATH_LENGTH];
    join_path(lib, root, "lib");
    join_path(bin, root, "bin");
    join_path(gpu, root, "gpus");
    FILE *out = open_memstream(&text, size);
    if (out == NULL) {
        die("out of memory");
    }
    fputs("{\n  \"cdiVersion\": \"0.6.0\",\n  \"kind\": \"nvidia.com/gpu\",\n  \"devices\": [", out);
    write_devices(out, gpu, gpus, count);
    fputs("\n  ],\n  \"containerEdits\": {\"mounts\": [", out);
#if defined(__aarch64__)
    const char *libraries = "/usr/lib/aarch64-linux-gnu";
#else
    const char *libraries = "/usr/lib/x86_64-linux-gnu";
#endif
    write_mount(out, "\n    ", lib, "libcuda.so.1", libraries, "ro");
    write_mount(out, ",\n    ", lib, "libcuda.so", libraries, "ro");
    write_mount(out, ",\n    ", lib, "libnvidia-ml.so.1", libraries, "ro");
    write_mount(out, ",\n    ", bin, "nvidia-smi", "/usr/bin", "ro");
    write_mount(out, ",\n    ", gpu, GPU_DRIVER_FILE, GPU_DEFAULT_DIRECTORY, "ro");
    fputs("]}\n}\n", out);
    if (fclose(out) != 0) {
        die("out of memory");
    }
    return text;
}

static void print_warning(const char *sentence) {
    fprintf(stderr, "aliquot-fake-driver: %s\n", sentence);
}

/* Writes the specification of the GPUs that are in the list, and of their instances. */
static void write_cdi(const char *root, const char *cdi, const struct gpu_identity *list, size_t listed) {
    char directory[PATH_LENGTH], spec[PATH_LENGTH];
    gpu_file *gpus[GPU_MAX_PER_NODE];
    size_t size, count = 0;
    join_path(directory, root, "gpus");
    join_path(spec, cdi, "aliquot-fake-driver.json");
    size_t found = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, print_warning);
    for (size_t i = 0; i < found; i++) {
        struct gpu_instance instance;
        const char *card = gpu_instance(gpus[i], &instance) ? instance.card : gpu_identity(gpus[i])->uuid;
        bool wanted = list == NULL;
        for (size_t n = 0; n < listed; n++) {
            wanted |= strcmp(list[n].uuid, card) == 0;
        }
        if (wanted) {
            gpus[count++] = gpus[i];
        } else {
            gpu_close(gpus[i]);
        }
    }
    char *text = cdi_specification(root, gpus, count, &size);
    if (update_file(spec, text, size, 0644)) {
        printf("wrote %s\n", spec);
    }
    free(text);
    for (size_t i = 0; i < count; i++) {
        gpu_close(gpus[i]);
    }
}

/* ---- commands ---- */

struct options {
    const char *root, *source, *cdi, *gpus, *node, *xid, *version, *mismatch, *hang, *with, *without;
    bool load, unload;
    const char *uuid, *word; /* the arguments after the command, as far as there are any */
};

static void check_path(const char *option, const char *path) {
    if (path[0] != '/') {
        die("%s must be an absolute path, not \"%s\"", option, path);
    }
    for (const char *c = path; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\') {
            die("%s must be a path without blanks, quotes, and backslashes", option);
        }
    }
}

/* Gives a GPU without instances those of the list, as a service of the node does after a boot. */
static void install_instances(const char *directory, const char *uuid, const char *profiles) {
    char path[PATH_LENGTH], error[GPU_ERROR_LENGTH], list[256];
    gpu_file *gpus[GPU_MAX_PER_NODE], *present[GPU_MIG_SLICES];
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, NULL);
    bool any = gpu_instances(uuid, gpus, count, present) != 0;
    for (size_t i = 0; i < count; i++) {
        gpu_close(gpus[i]);
    }
    if (any) {
        return;
    }
    join_path(path, directory, uuid);
    gpu_file *card = gpu_open(path, error);
    if (card == NULL || !gpu_mig_set_mode(directory, card, true, error)) {
        die("%s", error);
    }
    snprintf(list, sizeof list, "%s", profiles);
    char *rest = list;
    for (const char *profile; (profile = strsep(&rest, ",")) != NULL;) {
        if (!gpu_mig_create(directory, card, profile, error)) {
            die("%s", error);
        }
        printf("created instance %s %s of %s\n", profile, error, uuid);
    }
    gpu_close(card);
}

static int install_command(const struct options *options) {
    const struct {
        const char *name, *value;
    } needed[] = {{"--root", options->root},
                  {"--source", options->source},
                  {"--cdi", options->cdi},
                  {"--gpus", options->gpus},
                  {"--node", options->node}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (needed[i].value == NULL || needed[i].value[0] == '\0') {
            die("install needs %s; see --help", needed[i].name);
        }
    }
    check_path("--root", options->root);
    if (strlen(options->node) > 253) {
        die("--node must be a node's name, of at most 253 characters");
    }

    struct gpu_identity gpus[GPU_MAX_PER_NODE];
    const char *instances[GPU_MAX_PER_NODE];
    size_t count = parse_gpus(options->gpus, options->node, gpus, instances);
    char lib[PATH_LENGTH], bin[PATH_LENGTH], directory[PATH_LENGTH], spec[PATH_LENGTH];
    join_path(lib, options->root, "lib");
    join_path(bin, options->root, "bin");
    join_path(directory, options->root, "gpus");
    join_path(spec, options->cdi, "aliquot-fake-driver.json");
    make_directories(lib);
    make_directories(bin);
    make_directories(directory);
    make_directories(options->cdi);
    copy_file(options->source, lib, "libcuda.so.1");
    link_library(lib, "libcuda.so.1", "libcuda.so");
    copy_file(options->source, lib, "libnvidia-ml.so.1");
    copy_file(options->source, bin, "nvidia-smi");
    copy_file(options->source, bin, "aliquot-fake-driver");
    char driver_error[DRIVER_ERROR_LENGTH];
    struct driver_file *driver = driver_open(directory, driver_error);
    if (driver == NULL) {
        die("%s", driver_error);
    }
    driver_close(driver);
    for (size_t i = 0; i < count; i++) {
        char error[GPU_ERROR_LENGTH];
        switch (gpu_create(directory, &gpus[i], error)) {
        case GPU_CREATED:
            printf("created GPU %u: %s, %s, %llu MiB\n", gpus[i].index, gpus[i].uuid, gpus[i].name,
                   (unsigned long long)(gpus[i].memory_bytes >> 20));
            break;
        case GPU_CHANGED:
            printf("changed GPU %u: %s, now %s, %llu MiB\n", gpus[i].index, gpus[i].uuid, gpus[i].name,
                   (unsigned long long)(gpus[i].memory_bytes >> 20));
            break;
        case GPU_KEPT:
            break;
        case GPU_BUSY:
            fprintf(stderr, "aliquot-fake-driver: %s\n", error);
            break;
        case GPU_CREATE_FAILED:
            die("%s", error);
        }
        if (instances[i] != NULL && instances[i][0] != '\0') {
            install_instances(directory, gpus[i].uuid, instances[i]);
        }
    }
    if (count == 0) { /* a CDI specification without devices is invalid */
        if (unlink(spec) != 0 && errno != ENOENT) {
            die("cannot remove %s: %s", spec, strerror(errno));
        }
        printf("%s lists no GPU, so %s has no GPU\n", options->gpus, options->node);
        return 0;
    }
    write_cdi(options->root, options->cdi, gpus, count);
    printf("%s has %zu simulated GPU%s\n", options->node, count, count == 1 ? "" : "s");
    return 0;
}

static void gpu_directory_of(const struct options *options, char directory[PATH_LENGTH]) {
    if (options->root != NULL) {
        join_path(directory, options->root, "gpus");
    } else {
        snprintf(directory, PATH_LENGTH, "%s", gpu_directory());
    }
}

static gpu_file *open_gpu(const struct options *options) {
    char directory[PATH_LENGTH], path[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    if (options->uuid == NULL || !gpu_is_uuid(options->uuid)) {
        die("expected a GPU's UUID, like GPU-8f6e8f0c-0123-8456-89ab-0123456789ab; list shows them");
    }
    gpu_directory_of(options, directory);
    join_path(path, directory, options->uuid);
    gpu_file *gpu = gpu_open(path, error);
    if (gpu == NULL) {
        die("%s", error);
    }
    return gpu;
}

/* The instances of a lost card are lost with it. */
static void spread_loss(const struct options *options, const gpu_file *card) {
    char directory[PATH_LENGTH];
    gpu_file *gpus[GPU_MAX_PER_NODE], *instances[GPU_MIG_SLICES];
    gpu_directory_of(options, directory);
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, NULL);
    size_t found = gpu_instances(gpu_identity(card)->uuid, gpus, count, instances);
    for (size_t i = 0; i < found; i++) {
        gpu_set_state(instances[i], GPU_LOST, gpu_is_lost(card));
    }
    for (size_t i = 0; i < count; i++) {
        gpu_close(gpus[i]);
    }
}

static int fail_command(const struct options *options) {
    uint64_t xid = options->xid != NULL ? positive_number(options->xid, GPU_MAX_XID) : GPU_XID_FELL_OFF_BUS;
    if (xid == 0) {
        die("--xid must be a whole number from 1 to %d, not \"%s\"", GPU_MAX_XID, options->xid);
    }
    gpu_file *gpu = open_gpu(options);
    gpu_raise_xid(gpu, (uint32_t)xid);
    spread_loss(options, gpu);
    gpu_close(gpu);
    return 0;
}

static int heal_command(const struct options *options) {
    gpu_file *gpu = open_gpu(options);
    gpu_heal(gpu);
    spread_loss(options, gpu);
    gpu_close(gpu);
    return 0;
}

static int reset_command(const struct options *options) {
    char directory[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    gpu_file *gpu = open_gpu(options);
    gpu_directory_of(options, directory);
    if (!gpu_reset(gpu, error)) {
        die("%s", error);
    }
    gpu_mig_reset(directory, gpu);
    gpu_close(gpu);
    return 0;
}

static const char *const recovery_names[] = {[GPU_RECOVERY_NONE] = "none",
                                             [GPU_RECOVERY_RESET] = "reset",
                                             [GPU_RECOVERY_REBOOT] = "reboot",
                                             [GPU_RECOVERY_DRAIN_P2P] = "drain-p2p",
                                             [GPU_RECOVERY_DRAIN_AND_RESET] = "drain-reset"};

static int recover_command(const struct options *options) {
    const char *word = options->word != NULL ? options->word : "";
    size_t action = 0, actions = sizeof recovery_names / sizeof recovery_names[0];
    while (action < actions && strcmp(word, recovery_names[action]) != 0) {
        action++;
    }
    if (action == actions) {
        die("the recovery action is none, reset, reboot, drain-p2p or drain-reset, not \"%s\"", word);
    }
    gpu_file *gpu = open_gpu(options);
    gpu_set_recovery(gpu, (enum gpu_recovery)action);
    gpu_close(gpu);
    return 0;
}

static int set_state(const struct options *options, uint32_t state, bool on) {
    gpu_file *gpu = open_gpu(options);
    gpu_set_state(gpu, state, on);
    spread_loss(options, gpu);
    gpu_close(gpu);
    return 0;
}

static int lose_command(const struct options *options) {
    return set_state(options, GPU_LOST, true);
}
static int return_command(const struct options *options) {
    return set_state(options, GPU_LOST, false);
}
static int remove_command(const struct options *options) {
    return set_state(options, GPU_REMOVED, true);
}
static int insert_command(const struct options *options) {
    return set_state(options, GPU_REMOVED, false);
}
static int hot_command(const struct options *options) {
    return set_state(options, GPU_HOT, true);
}
static int cool_command(const struct options *options) {
    return set_state(options, GPU_HOT, false);
}
static int hide_uuid_command(const struct options *options) {
    return set_state(options, GPU_UUID_HIDDEN, true);
}

static bool parse_switch(const char *name, const char *value) {
    if (value == NULL || (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)) {
        die("%s is on or off, not \"%s\"", name, value != NULL ? value : "");
    }
    return strcmp(value, "on") == 0;
}

static int power_brake_command(const struct options *options) {
    return set_state(options, GPU_POWER_BRAKE, parse_switch("power-brake", options->word));
}
static int exclusive_command(const struct options *options) {
    return set_state(options, GPU_EXCLUSIVE, parse_switch("exclusive", options->word));
}
static int mps_command(const struct options *options) {
    return set_state(options, GPU_MPS, parse_switch("mps", options->word));
}

/* Writes the specification of the containers' devices again, if the caller names where it is. */
static int mig_changed(const struct options *options) {
    if (options->cdi != NULL && options->root != NULL) {
        write_cdi(options->root, options->cdi, NULL, 0);
    }
    return 0;
}

static int mig_command(const struct options *options) {
    char directory[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    bool on = parse_switch("mig", options->word);
    gpu_directory_of(options, directory);
    gpu_file *gpu = open_gpu(options);
    if (!gpu_mig_set_mode(directory, gpu, on, error)) {
        die("%s", error);
    }
    if (gpu_mig_mode(gpu) != on) {
        printf("%s is in use: MIG is to be turned %s at its next reset\n", options->uuid, options->word);
    }
    gpu_close(gpu);
    return mig_changed(options);
}

static int mig_create_command(const struct options *options) {
    char directory[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    gpu_directory_of(options, directory);
    gpu_file *gpu = open_gpu(options);
    if (!gpu_mig_create(directory, gpu, options->word != NULL ? options->word : "", error)) {
        die("%s", error);
    }
    puts(error); /* its UUID */
    gpu_close(gpu);
    return mig_changed(options);
}

static int mig_destroy_command(const struct options *options) {
    char directory[PATH_LENGTH], error[GPU_ERROR_LENGTH];
    gpu_directory_of(options, directory);
    gpu_file *gpu = open_gpu(options);
    if (!gpu_mig_destroy(directory, gpu, false, error)) {
        die("%s", error);
    }
    gpu_close(gpu);
    return mig_changed(options);
}

static int reboot_command(const struct options *options) {
    char directory[PATH_LENGTH];
    gpu_file *gpus[GPU_MAX_PER_NODE];
    gpu_directory_of(options, directory);
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, print_warning);
    for (size_t i = 0; i < count; i++) {
        struct gpu_instance instance;
        if (!gpu_instance(gpus[i], &instance)) {
            if (gpu_identity(gpus[i])->compute_major >= 9) { /* MIG user guide: the mode is not persistent there */
                gpu_set_state(gpus[i], GPU_MIG_PENDING, false);
            }
            gpu_mig_reset(directory, gpus[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        gpu_close(gpus[i]);
    }
    return mig_changed(options);
}

static void check_capability(const char *name, const char *value) {
    if (value != NULL && strcmp(value, "recovery-actions") != 0) {
        die("%s takes recovery-actions, not \"%s\"", name, value);
    }
}

static void check_version(const char *version) {
    static const char suffix[] = "-fake";
    size_t length = strlen(version);
    if (length >= DRIVER_VERSION_LENGTH || length <= strlen(suffix) ||
        strcmp(version + length - strlen(suffix), suffix) != 0 || version[0] < '0' || version[0] > '9') {
        die("--version must begin with a digit, end in %s and have at most %d characters, like 580.0.1-fake, not "
            "\"%.100s\"",
            suffix, DRIVER_VERSION_LENGTH - 1, version);
    }
    for (const char *c = version; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            die("--version must be printable ASCII without blanks");
        }
    }
}

static int driver_command(const struct options *options) {
    char directory[PATH_LENGTH], error[DRIVER_ERROR_LENGTH];
    if (options->version == NULL && options->mismatch == NULL && options->hang == NULL && options->with == NULL &&
        options->without == NULL && !options->load && !options->unload) {
        die("driver needs --version, --load, --unload, --mismatch, --hang, --with or --without; see --help");
    }
    if (options->load && options->unload) {
        die("the driver cannot be loaded and unloaded at once");
    }
    if (options->with != NULL && options->without != NULL) {
        die("the driver cannot be with and without recovery-actions at once");
    }
    /* Everything is checked before anything changes. */
    bool mismatch = options->mismatch != NULL && parse_switch("--mismatch", options->mismatch);
    bool hang = options->hang != NULL && parse_switch("--hang", options->hang);
    check_capability("--with", options->with);
    check_capability("--without", options->without);
    if (options->version != NULL) {
        check_version(options->version);
    }
    gpu_directory_of(options, directory);
    struct driver_file *driver = driver_open(directory, error);
    if (driver == NULL) {
        die("%s", error);
    }
    if (options->version != NULL) {
        driver_set_version(driver, options->version);
    }
    if (options->mismatch != NULL) {
        driver_set(driver, DRIVER_MISMATCH, mismatch);
    }
    if (options->hang != NULL) {
        driver_set(driver, DRIVER_HANGS, hang);
    }
    if (options->with != NULL || options->without != NULL) {
        driver_set(driver, DRIVER_WITHOUT_RECOVERY_ACTIONS, options->without != NULL);
    }
    if (options->load || options->unload) {
        driver_set(driver, DRIVER_UNLOADED, options->unload);
    }
    driver_close(driver);
    return 0;
}

struct state_name {
    uint32_t state;
    const char *name;
};

static void print_states(uint32_t states, const struct state_name *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if ((states & names[i].state) != 0) {
            printf(" %s", names[i].name);
        }
    }
}

static void print_driver(const char *directory) {
    static const struct state_name names[] = {{DRIVER_UNLOADED, "unloaded"},
                                              {DRIVER_MISMATCH, "mismatch"},
                                              {DRIVER_HANGS, "hang"},
                                              {DRIVER_WITHOUT_RECOVERY_ACTIONS, "without-recovery-actions"}};
    struct driver_state state = driver_state(driver_map(directory));
    printf("driver %s", state.version);
    print_states(state.states, names, sizeof names / sizeof names[0]);
    putchar('\n');
}

static void print_gpu(gpu_file *file) {
    static const struct state_name names[] = {{GPU_REMAP_PENDING, "remap-pending"},
                                              {GPU_REMAP_FAILED, "remap-failed"},
                                              {GPU_LOST, "lost"},
                                              {GPU_REMOVED, "removed"},
                                              {GPU_HOT, "hot"},
                                              {GPU_POWER_BRAKE, "power-brake"},
                                              {GPU_UUID_HIDDEN, "uuid-hidden"},
                                              {GPU_MIG_ON, "mig"},
                                              {GPU_MIG_PENDING, "mig-pending"},
                                              {GPU_EXCLUSIVE, "exclusive"},
                                              {GPU_MPS, "mps"}};
    const struct gpu_identity *gpu = gpu_identity(file);
    struct gpu_health health = gpu_health(file);
    printf("%u %s %s %llu/%llu MiB context %llu MiB xid %u", gpu->index, gpu->uuid, gpu->name,
           (unsigned long long)(gpu_used(file) >> 20), (unsigned long long)(gpu->memory_bytes >> 20),
           (unsigned long long)(gpu->context_bytes >> 20), health.xid);
    if (health.recovery != GPU_RECOVERY_NONE) {
        printf(" recovery %s", recovery_names[health.recovery]);
    }
    if (health.aggregate_errors != 0) {
        printf(" ecc %u/%u", health.volatile_errors, health.aggregate_errors);
    }
    if (health.remapped_rows != 0) {
        printf(" remapped %u", health.remapped_rows);
    }
    uint32_t states = health.states;
    states &= ~(uint32_t)((states & GPU_MIG_ON) != 0 ? GPU_MIG_PENDING : 0); /* it stays so */
    print_states(states, names, sizeof names / sizeof names[0]);
    putchar('\n');
}

static int list_command(const struct options *options) {
    char directory[PATH_LENGTH];
    gpu_file *gpus[GPU_MAX_PER_NODE];
    gpu_directory_of(options, directory);
    print_driver(directory);
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, print_warning);
    for (size_t i = 0; i < count; i++) {
        print_gpu(gpus[i]);
        gpu_close(gpus[i]);
    }
    return 0;
}

static int usage_command(const struct options *options) {
    static struct gpu_process processes[GPU_SLOTS];
    char directory[PATH_LENGTH];
    gpu_file *gpus[GPU_MAX_PER_NODE];
    gpu_directory_of(options, directory);
    size_t count = gpu_open_all(directory, gpus, GPU_MAX_PER_NODE, print_warning);
    for (size_t i = 0; i < count; i++) {
        const struct gpu_identity *gpu = gpu_identity(gpus[i]);
        printf("%u %s busy %.3f s\n", gpu->index, gpu->uuid, (double)gpu_busy_ns(gpus[i], -1) / 1e9);
        size_t found = gpu_processes(gpus[i], processes, GPU_SLOTS);
        for (size_t p = 0; p < found; p++) {
            printf("%u %s process %u %llu MiB busy %.3f s\n", gpu->index, gpu->uuid, processes[p].pid,
                   (unsigned long long)(processes[p].used_bytes >> 20),
                   (double)gpu_busy_ns(gpus[i], processes[p].slot) / 1e9);
        }
        gpu_close(gpus[i]);
    }
    return 0;
}

static const struct command {
    const char *name;
    int words; /* arguments after the command that are not options, at most */
    int (*run)(const struct options *);
} commands[] = {
    {"install", 0, install_command},
    {"fail", 1, fail_command},
    {"recover", 2, recover_command},
    {"reset", 1, reset_command},
    {"lose", 1, lose_command},
    {"return", 1, return_command},
    {"remove", 1, remove_command},
    {"insert", 1, insert_command},
    {"hot", 1, hot_command},
    {"cool", 1, cool_command},
    {"power-brake", 2, power_brake_command},
    {"exclusive", 2, exclusive_command},
    {"mps", 2, mps_command},
    {"hide-uuid", 1, hide_uuid_command},
    {"heal", 1, heal_command},
    {"mig", 2, mig_command},
    {"mig-create", 2, mig_create_command},
    {"mig-destroy", 1, mig_destroy_command},
    {"reboot", 0, reboot_command},
    {"driver", 0, driver_command},
    {"list", 0, list_command},
    {"usage", 0, usage_command},
};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    die("unknown command \"%s\"; --help lists them", name);
}

int main(int count, char **arguments) {
    struct options options = {0};
    const struct {
        const char *name;
        const char **value;
    } known[] = {{"--root", &options.root}, {"--source", &options.source},     {"--cdi", &options.cdi},
                 {"--gpus", &options.gpus}, {"--node", &options.node},         {"--xid", &options.xid},
                 {"--hang", &options.hang}, {"--mismatch", &options.mismatch}, {"--version", &options.version},
                 {"--with", &options.with}, {"--without", &options.without}};
    if (count < 2 || strcmp(arguments[1], "--help") == 0 || strcmp(arguments[1], "-h") == 0) {
        fputs(usage, count < 2 ? stderr : stdout);
        return count < 2 ? 2 : 0;
    }
    const struct command *command = find_command(arguments[1]);
    int words = 0;
    for (int i = 2; i < count; i++) {
        size_t option = 0;
        while (option < sizeof known / sizeof known[0] && strcmp(arguments[i], known[option].name) != 0) {
            option++;
        }
        if (option < sizeof known / sizeof known[0]) {
            if (i + 1 == count) {
                die("%s needs a value; see --help", arguments[i]);
            }
            *known[option].value = arguments[++i];
        } else if (strcmp(arguments[i], "--load") == 0) {
            options.load = true;
        } else if (strcmp(arguments[i], "--unload") == 0) {
            options.unload = true;
        } else if (arguments[i][0] != '-' && words < command->words) {
            *(words++ == 0 ? &options.uuid : &options.word) = arguments[i];
        } else {
            die("unknown argument \"%s\"; see --help", arguments[i]);
        }
    }
    return command->run(&options);
}
