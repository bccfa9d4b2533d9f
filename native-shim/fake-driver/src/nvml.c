/*
 * The simulated libnvidia-ml.so.1: the contents of the GPUs' files through NVML's API.
 *
 * On a GPU that has fallen off the bus, queries for its identity (index, UUID, name, PCI address) still succeed, and
 * queries for its state return NVML_ERROR_GPU_IS_LOST. A GPU that is removed from the machine is lost to the clients
 * that have NVML initialized; the next nvmlInit no longer finds it.
 *
 * While the driver is not loaded, every call returns NVML_ERROR_DRIVER_NOT_LOADED. After it was loaded again, a client
 * that had NVML initialized before gets NVML_ERROR_GPU_IS_LOST until it shuts NVML down and initializes it again,
 * because its open device files belong to the module that is gone. While the driver hangs, nvmlInit and all calls on a
 * GPU except queries for its identity do not return.
 */
#define _GNU_SOURCE
#include "driver_state.h"
#include "gpu_health.h"
#include "gpu_mig.h"
#include "gpu_time.h"
#include "nvml_abi.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum {
    SWITCH_BUS = 0xc0,
    MIG_DEVICES = 256,
    DEVICES = GPU_MAX_PER_NODE + MIG_DEVICES,
    EVENT_POLL_MS = 100,
    HANG_POLL_MS = 10,
    GRAPHICS_MHZ = 1410,
    MEMORY_MHZ = 1593,
    POWER_LIMIT_MW = 400000,
    CELSIUS = 35,
    CELSIUS_HOT = 95,
    CELSIUS_SLOWDOWN = 92,
};

struct nvmlDevice_st {
    gpu_file *gpu;
    const struct gpu_identity *identity;
    unsigned index;    /* in nvml_devices; of a card, its index among those that are visible to this process */
    nvmlDevice_t card; /* of a MIG device; of a card NULL */
    struct gpu_instance instance;
};

struct nvmlEventSet_st {
    unsigned long long types[DEVICES];
    uint64_t seen[DEVICES]; /* number of the latest XID event that the client has seen */
};

static pthread_mutex_t nvml_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint init_count;
/*
 * The cards, and from GPU_MAX_PER_NODE on the MIG devices that the client has asked for. Other threads may use one that
 * was destroyed, so it keeps its place and its open file until nvmlShutdown.
 */
static struct nvmlDevice_st nvml_devices[DEVICES];
static atomic_uint device_count;
static atomic_uint mig_count;
static const struct driver_file *_Atomic driver_file;
static atomic_uint session_loads; /* driver_state.loads at nvmlInit */
static char session_version[DRIVER_VERSION_LENGTH];

static void sleep_ms(unsigned ms) {
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* Every call that needs the driver starts with this check. */
static nvmlReturn_t check_session(void) {
    if (atomic_load(&init_count) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    struct driver_state state = driver_state(atomic_load(&driver_file));
    if ((state.states & DRIVER_UNLOADED) != 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    return state.loads == atomic_load(&session_loads) ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

static void wait_while_driver_hangs(const struct driver_file *file) {
    while ((driver_state(file).states & DRIVER_HANGS) != 0) {
        sleep_ms(HANG_POLL_MS);
    }
}

static bool is_mig_device(nvmlDevice_t device) {
    for (unsigned i = 0; i < atomic_load(&mig_count); i++) {
        if (device == &nvml_devices[GPU_MAX_PER_NODE + i]) {
            return true;
        }
    }
    return false;
}

/* The handle of an instance that was destroyed is none of a device. */
static bool is_device(nvmlDevice_t device) {
    for (unsigned i = 0; i < atomic_load(&device_count); i++) {
        if (device == &nvml_devices[i]) {
            return true;
        }
    }
    return is_mig_device(device) && (gpu_health(device->gpu).states & GPU_REMOVED) == 0;
}

static bool is_device_lost(nvmlDevice_t device) {
    return gpu_is_lost(device->card != NULL ? device->card->gpu : device->gpu);
}

/* Every query of a device's identity starts with this check. */
static nvmlReturn_t check_device(nvmlDevice_t device, const void *answer) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    return is_device(device) && answer != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Every query of a device's state starts with this check. */
static nvmlReturn_t check_reachable(nvmlDevice_t device, const void *answer) {
    if (atomic_load(&init_count) != 0) {
        wait_while_driver_hangs(atomic_load(&driver_file));
    }
    nvmlReturn_t result = check_device(device, answer);
    return result == NVML_SUCCESS && is_device_lost(device) ? NVML_ERROR_GPU_IS_LOST : result;
}

static nvmlReturn_t copy_text(char *to, unsigned int length, const char *text) {
    if (to == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strlen(text) >= length) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(to, text);
    return NVML_SUCCESS;
}

/* Answers a value that is the same for every GPU. */
static nvmlReturn_t answer_constant(nvmlDevice_t device, unsigned int *to, unsigned int value) {
    nvmlReturn_t result = check_reachable(device, to);
    if (result == NVML_SUCCESS) {
        *to = value;
    }
    return result;
}

/* A function under another name, which an older or a newer NVML has. */
#define OTHER_NAME(function, parameters, same, arguments)                                                              \
    API nvmlReturn_t function parameters {                                                                             \
        return same arguments;                                                                                         \
    }

/* ---- initialization ---- */

static void open_gpus(void) {
    gpu_file *gpus[GPU_MAX_PER_NODE];
    size_t found = gpu_open_all(gpu_directory(), gpus, GPU_MAX_PER_NODE, NULL);
    unsigned kept = 0;
    for (size_t i = 0; i < found; i++) {
        struct gpu_instance instance;
        if ((gpu_health(gpus[i]).states & GPU_REMOVED) != 0 || gpu_instance(gpus[i], &instance)) {
            gpu_close(gpus[i]);
            continue;
        }
        nvml_devices[kept] = (struct nvmlDevice_st){.gpu = gpus[i], .identity = gpu_identity(gpus[i]), .index = kept};
        kept++;
    }
    atomic_store(&device_count, kept);
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    if (flags > 3) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&nvml_mutex);
    const struct driver_file *file = driver_map(gpu_directory());
    pthread_mutex_unlock(&nvml_mutex);
    wait_while_driver_hangs(file);
    struct driver_state state = driver_state(file);
    if ((state.states & DRIVER_UNLOADED) != 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if ((state.states & DRIVER_MISMATCH) != 0) {
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    pthread_mutex_lock(&nvml_mutex);
    if (init_count == 0) {
        atomic_store(&driver_file, file);
        atomic_store(&session_loads, state.loads);
        memcpy(session_version, state.version, sizeof session_version);
        open_gpus();
    }
    init_count++;
    pthread_mutex_unlock(&nvml_mutex);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}
API nvmlReturn_t nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&nvml_mutex);
    nvmlReturn_t result = init_count != 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (init_count != 0 && --init_count == 0) {
        unsigned open = atomic_exchange(&device_count, 0);
        for (unsigned i = 0; i < open; i++) {
            gpu_close(nvml_devices[i].gpu);
        }
        unsigned migs = atomic_exchange(&mig_count, 0);
        for (unsigned i = 0; i < migs; i++) {
            gpu_close(nvml_devices[GPU_MAX_PER_NODE + i].gpu);
        }
    }
    pthread_mutex_unlock(&nvml_mutex);
    return result;
}

API const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } errors[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
        {NVML_ERROR_MEMORY, "Insufficient Memory"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].result == result) {
            return errors[i].text;
        }
    }
    return "Unknown Error";
}

/* ---- system ---- */

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    nvmlReturn_t result = check_session();
    return result == NVML_SUCCESS ? copy_text(version, length, session_version) : result;
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    return copy_text(version, length, "13." FAKE_DRIVER_VERSION);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    if (version == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *version = FAKE_CUDA_VERSION;
    return NVML_SUCCESS;
}
OTHER_NAME(nvmlSystemGetCudaDriverVersion_v2, (int *version), nvmlSystemGetCudaDriverVersion, (version))

API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (name == NULL || length == 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    char path[64];
    char command[4096];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NVML_ERROR_NOT_FOUND;
    }
    size_t got = fread(command, 1, sizeof command - 1, file);
    fclose(file);
    command[got] = '\0'; /* its first argument ends with a NUL */
    snprintf(name, length, "%s", command);
    return NVML_SUCCESS;
}

/* ---- device handles ---- */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (deviceCount == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *deviceCount = atomic_load(&device_count);
    return NVML_SUCCESS;
}
OTHER_NAME(nvmlDeviceGetCount, (unsigned int *deviceCount), nvmlDeviceGetCount_v2, (deviceCount))

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device == NULL || index >= atomic_load(&device_count)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *device = &nvml_devices[index];
    return NVML_SUCCESS;
}
OTHER_NAME(nvmlDeviceGetHandleByIndex, (unsigned int index, nvmlDevice_t *device), nvmlDeviceGetHandleByIndex_v2,
           (index, device))

static unsigned mig_devices(nvmlDevice_t card, nvmlDevice_t migs[GPU_MIG_SLICES]);

static nvmlReturn_t find_device(const char *value, nvmlDevice_t *device,
                                bool (*matches)(const struct gpu_identity *, const char *)) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (value == NULL || device == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < atomic_load(&device_count); i++) {
        if (matches(nvml_devices[i].identity, value)) {
            *device = &nvml_devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct gpu_identity *gpu, const char *uuid) {
    return strcasecmp(gpu->uuid, uuid) == 0;
}
static bool has_serial(const struct gpu_identity *gpu, const char *serial) {
    return strcmp(gpu->serial, serial) == 0;
}

static bool has_pci_bus_id(const struct gpu_identity *gpu, const char *id) {
    unsigned domain, bus, slot, function = 0;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2) {
            return false;
        }
    }
    return domain == 0 && bus == gpu->index + 1 && slot == 0 && function == 0;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    nvmlReturn_t result = find_device(uuid, device, has_uuid);
    for (unsigned i = 0; result == NVML_ERROR_NOT_FOUND && i < atomic_load(&device_count); i++) {
        nvmlDevice_t migs[GPU_MIG_SLICES];
        unsigned count = mig_devices(&nvml_devices[i], migs);
        for (unsigned n = 0; n < count; n++) {
            if (has_uuid(migs[n]->identity, uuid)) {
                *device = migs[n];
                return NVML_SUCCESS;
            }
        }
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find_device(serial, device, has_serial);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device) {
    return find_device(pciBusId, device, has_pci_bus_id);
}

OTHER_NAME(nvmlDeviceGetHandleByPciBusId, (const char *id, nvmlDevice_t *device), nvmlDeviceGetHandleByPciBusId_v2,
           (id, device))

/* ---- identity ---- */

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    nvmlReturn_t result = check_device(device, name);
    return result == NVML_SUCCESS ? copy_text(name, length, device->identity->name) : result;
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    nvmlReturn_t result = check_device(device, uuid);
    if (result == NVML_SUCCESS && (gpu_health(device->gpu).states & GPU_UUID_HIDDEN) != 0) {
        return NVML_ERROR_GPU_IS_LOST;
    }
    return result == NVML_SUCCESS ? copy_text(uuid, length, device->identity->uuid) : result;
}

API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
    nvmlReturn_t result = check_device(device, serial);
    return result == NVML_SUCCESS ? copy_text(serial, length, device->identity->serial) : result;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    nvmlReturn_t result = check_device(device, index);
    if (result == NVML_SUCCESS && device->card != NULL) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    if (result == NVML_SUCCESS) {
        *index = device->index;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    nvmlReturn_t result = check_device(device, minor);
    if (result == NVML_SUCCESS) {
        *minor = device->identity->index;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    nvmlReturn_t result = check_device(device, major != NULL ? minor : NULL);
    if (result == NVML_SUCCESS) {
        *major = (int)device->identity->compute_major;
        *minor = (int)device->identity->compute_minor;
    }
    return result;
}

/* nvmlDeviceArchitecture_t: 4 Pascal, 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell. */
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    nvmlReturn_t result = check_device(device, architecture);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned major = device->identity->compute_major, minor = device->identity->compute_minor;
    if (major >= 9) {
        *architecture = major == 9 ? 9 : 10;
    } else if (major == 8) {
        *architecture = minor == 9 ? 8 : 7;
    } else if (major == 7) {
        *architecture = minor == 5 ? 6 : 5;
    } else {
        *architecture = 4;
    }
    return NVML_SUCCESS;
}

/* FP32 cores; of a multiprocessor, by compute capability, see the CUDA C++ Programming Guide. */
API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores) {
    nvmlReturn_t result = check_device(device, cores);
    if (result == NVML_SUCCESS) {
        unsigned capability = device->identity->compute_major * 10 + device->identity->compute_minor;
        *cores = device->identity->multiprocessors * (capability == 61 || capability >= 86 ? 128 : 64);
    }
    return result;
}

static void fill_pci_info(nvmlPciInfo_t *pci, unsigned bus) {
    memset(pci, 0, sizeof *pci);
    pci->bus = bus;
    pci->pciDeviceId = 0x000010de; /* vendor NVIDIA, no device ID */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xff);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    nvmlReturn_t result = check_device(device, pci);
    if (result == NVML_SUCCESS) {
        fill_pci_info(pci, device->identity->index + 1);
    }
    return result;
}
OTHER_NAME(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t device, nvmlPciInfo_t *pci), nvmlDeviceGetPciInfo_v3, (device, pci))
OTHER_NAME(nvmlDeviceGetPciInfo, (nvmlDevice_t device, nvmlPciInfo_t *pci), nvmlDeviceGetPciInfo_v3, (device, pci))

/* ---- topology ---- */

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    nvmlReturn_t result = check_device(device, node);
    if (result == NVML_SUCCESS) {
        *node = device->identity->numa;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes,
                                             unsigned int scope) {
    (void)scope;
    nvmlReturn_t result = check_device(device, nodes);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (size == 0) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memset(nodes, 0, size * sizeof nodes[0]);
    nodes[0] = 1ul << device->identity->numa;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t other, unsigned int *level) {
    nvmlReturn_t result = check_device(first, level);
    if (result == NVML_SUCCESS) {
        result = check_device(other, level);
    }
    if (result != NVML_SUCCESS) {
        return result;
    }
    uint8_t link = first->identity->links[other->identity->index];
    if (first == other) {
        *level = NVML_TOPOLOGY_INTERNAL;
    } else if ((link & GPU_LINK_PCIE) != 0) {
        *level = (link & ~(unsigned)GPU_LINK_PCIE) * 10;
    } else {
        *level = first->identity->numa == other->identity->numa ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    }
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t other, unsigned int capability,
                                        unsigned int *status) {
    (void)capability;
    nvmlReturn_t result = check_device(first, status);
    if (result == NVML_SUCCESS) {
        result = check_device(other, status);
    }
    if (result == NVML_SUCCESS) {
        *status = 0; /* NVML_P2P_STATUS_OK */
    }
    return result;
}

/*
 * The NVLinks of a GPU, in order of the remote GPU's index. If the links to all other GPUs exceed the number that a GPU
 * has, all links go to a switch, and each link reaches every other GPU.
 */
struct nvlinks {
    unsigned count;
    bool switched;
    uint8_t to[GPU_NVLINKS]; /* index of the GPU at the other end */
};

static struct nvlinks nvlinks_of(nvmlDevice_t device) {
    struct nvlinks links = {0};
    unsigned total = 0, largest = 0;
    for (unsigned other = 0; other < GPU_MAX_PER_NODE; other++) {
        unsigned link_count = device->identity->links[other];
        if ((link_count & GPU_LINK_PCIE) != 0) {
            continue;
        }
        largest = link_count > largest ? link_count : largest;
        for (unsigned link = 0; link < link_count; link++, total++) {
            if (total < GPU_NVLINKS) {
                links.to[total] = (uint8_t)other;
            }
        }
    }
    links.switched = total > GPU_NVLINKS;
    links.count = links.switched ? largest : total;
    return links;
}

/* Every query of an NVLink starts with this check. */
static nvmlReturn_t check_nvlink(nvmlDevice_t device, unsigned int link, const void *answer, struct nvlinks *links) {
    nvmlReturn_t result = check_reachable(device, answer);
    if (result == NVML_SUCCESS && link >= GPU_NVLINKS) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result != NVML_SUCCESS) {
        return result;
    }
    *links = nvlinks_of(device);
    return links->count != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active) {
    struct nvlinks links;
    nvmlReturn_t result = check_nvlink(device, link, active, &links);
    if (result == NVML_SUCCESS) {
        *active = link < links.count ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    struct nvlinks links;
    nvmlReturn_t result = check_nvlink(device, link, pci, &links);
    if (result == NVML_SUCCESS && link >= links.count) {
        result = NVML_ERROR_NOT_SUPPORTED;
    }
    if (result == NVML_SUCCESS) {
        fill_pci_info(pci, links.switched ? SWITCH_BUS : links.to[link] + 1u);
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type) {
    struct nvlinks links;
    nvmlReturn_t result = check_nvlink(device, link, type, &links);
    if (result == NVML_SUCCESS && link >= links.count) {
        result = NVML_ERROR_NOT_SUPPORTED;
    }
    if (result == NVML_SUCCESS) {
        *type = links.switched ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    }
    return result;
}

/* ---- memory ---- */

static unsigned long long reserved_bytes(nvmlDevice_t device) {
    return (unsigned long long)device->identity->reserved_mib << 20;
}

/* Of a card in MIG mode, what the processes of its instances use. */
static unsigned long long used_bytes(nvmlDevice_t device) {
    nvmlDevice_t migs[GPU_MIG_SLICES];
    unsigned long long used = gpu_used(device->gpu);
    unsigned count = device->card == NULL && gpu_mig_mode(device->gpu) ? mig_devices(device, migs) : 0;
    for (unsigned i = 0; i < count; i++) {
        used += gpu_used(migs[i]->gpu);
    }
    return used;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t result = check_reachable(device, memory);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memory->total = device->identity->memory_bytes + reserved_bytes(device);
    memory->used = used_bytes(device) + reserved_bytes(device); /* nvml.h: reserved and allocated */
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t result = check_reachable(device, memory);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (memory->version != NVML_MEMORY_V2) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    memory->total = device->identity->memory_bytes + reserved_bytes(device);
    memory->reserved = reserved_bytes(device);
    memory->used = used_bytes(device);
    memory->free = device->identity->memory_bytes - memory->used;
    return NVML_SUCCESS;
}

/* ---- utilization and other state: utilization is that of the latest complete sample period, as on real GPUs ---- */

static unsigned long long realtime_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* When a period ended, in us of the wall clock. Constant per period, so that it can serve as a lastSeenTimeStamp. */
static unsigned long long period_end_us(uint64_t period) {
    static _Atomic unsigned long long clock_offset; /* wall clock minus monotonic clock */
    unsigned long long known = atomic_load(&clock_offset), fresh = realtime_us() - gpu_now() / 1000;
    if (known == 0 && atomic_compare_exchange_strong(&clock_offset, &known, fresh)) {
        known = fresh;
    }
    return known + (period + 1) * GPU_USAGE_PERIOD_NS / 1000;
}

static unsigned percent_of(uint64_t ns, uint64_t periods) {
    uint64_t whole = periods * GPU_USAGE_PERIOD_NS;
    return whole == 0 ? 0 : ns >= whole ? 100 : (unsigned)((ns * 100 + whole / 2) / whole);
}

/* The periods that ended after `since`, newest first. Slot -1: those of the GPU. */
static size_t usage_since(nvmlDevice_t device, int slot, unsigned long long since,
                          struct gpu_usage history[GPU_USAGE_PERIODS]) {
    size_t found = gpu_usage_history(device->gpu, slot, history, GPU_USAGE_PERIODS);
    while (found > 0 && period_end_us(history[found - 1].period) <= since) {
        found--;
    }
    return found;
}

static nvmlUtilization_t latest_utilization(nvmlDevice_t device) {
    struct gpu_usage latest;
    uint64_t current = gpu_now() / GPU_USAGE_PERIOD_NS;
    if (gpu_usage_history(device->gpu, -1, &latest, 1) == 0 || latest.period + 1 < current) {
        return (nvmlUtilization_t){0, 0};
    }
    return (nvmlUtilization_t){percent_of(latest.busy_ns, 1), percent_of(latest.copying_ns, 1)};
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    nvmlReturn_t result = check_reachable(device, utilization);
    if (result == NVML_SUCCESS && device->card != NULL) {
        return NVML_ERROR_NOT_SUPPORTED; /* nvml.h: not on MIG devices */
    }
    if (result == NVML_SUCCESS) {
        *utilization = latest_utilization(device);
    }
    return result;
}

/* Samples newer than `since`, oldest first. */
API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long since,
                                      unsigned int *value_type, unsigned int *count, nvmlSample_t *samples) {
    struct gpu_usage history[GPU_USAGE_PERIODS];
    nvmlReturn_t result = check_reachable(device, count);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (value_type == NULL || (samples == NULL && *count != 0)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    size_t found = usage_since(device, -1, since, history), given = found < *count ? found : *count;
    if (found == 0) {
        return NVML_ERROR_NOT_FOUND;
    }
    for (size_t i = 0; samples != NULL && i < given; i++) {
        const struct gpu_usage *usage = &history[given - 1 - i];
        samples[i] = (nvmlSample_t){.timeStamp = period_end_us(usage->period)};
        samples[i].sampleValue.ui =
            percent_of(type == NVML_GPU_UTILIZATION_SAMPLES ? usage->busy_ns : usage->copying_ns, 1);
    }
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    *count = (unsigned)(samples != NULL ? given : found);
    return NVML_SUCCESS;
}

/* GPU performance monitoring: supported, but each metric is 0. A sample has no content. */
typedef struct {
    unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    nvmlReturn_t result = check_reachable(device, support);
    if (result == NVML_SUCCESS) {
        support->isSupportedDevice = 1;
    }
    return result;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    return check_reachable(device, sample);
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance, nvmlGpmSample_t sample) {
    (void)gpu_instance;
    nvmlReturn_t result = check_reachable(device, sample);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

/* Memory limits of a cgroup (r615): none is set, and none can be set. */
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

API nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    nvmlReturn_t result = check_reachable(device, limits);
    if (result == NVML_SUCCESS) {
        limits->softLimit = 0;
        limits->hardLimit = UINT64_MAX; /* NVML_DEVICE_MEMORY_LIMIT_MAX */
        limits->currentUsed = gpu_used(device->gpu);
    }
    return result;
}

API nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, void *limits) {
    nvmlReturn_t result = check_reachable(device, limits);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius) {
    nvmlReturn_t result = check_reachable(device, celsius);
    if (result == NVML_SUCCESS && sensor != 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        *celsius = (gpu_health(device->gpu).states & GPU_HOT) != 0 ? CELSIUS_HOT : CELSIUS;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type, unsigned int *celsius) {
    (void)type;
    return answer_constant(device, celsius, CELSIUS_SLOWDOWN);
}

API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent) {
    nvmlReturn_t result = check_reachable(device, percent);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

/* nvmlClockType_t: 0 graphics, 1 SM, 2 memory, 3 video. */
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return type <= 3 ? answer_constant(device, mhz, type == 2 ? MEMORY_MHZ : GRAPHICS_MHZ)
                     : NVML_ERROR_INVALID_ARGUMENT;
}
OTHER_NAME(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, unsigned int type, unsigned int *mhz),
           nvmlDeviceGetClockInfo, (device, type, mhz))

/* Only Windows has driver models. */
API nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    (void)device, (void)current, (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}
OTHER_NAME(nvmlDeviceGetDriverModel, (nvmlDevice_t device, unsigned int *current, unsigned int *pending),
           nvmlDeviceGetDriverModel_v2, (device, current, pending))

/* No simulated program encodes, decodes or computes optical flow. */
#define IDLE_ENGINE(function)                                                                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us) {               \
        nvmlReturn_t result = answer_constant(device, utilization, 0);                                                 \
        return result == NVML_SUCCESS ? answer_constant(device, period_us, GPU_USAGE_PERIOD_NS / 1000) : result;       \
    }

IDLE_ENGINE(nvmlDeviceGetEncoderUtilization)
IDLE_ENGINE(nvmlDeviceGetDecoderUtilization)
IDLE_ENGINE(nvmlDeviceGetJpgUtilization)
IDLE_ENGINE(nvmlDeviceGetOfaUtilization)

/* ---- state that is the same for every GPU ---- */

#define CONSTANT(function, value)                                                                                      \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *answer) {                                             \
        return answer_constant(device, answer, value);                                                                 \
    }

CONSTANT(nvmlDeviceGetBrand, 14) /* NVML_BRAND_NVIDIA */
CONSTANT(nvmlDeviceGetPowerUsage, 50000)
CONSTANT(nvmlDeviceGetPowerManagementLimit, POWER_LIMIT_MW)
CONSTANT(nvmlDeviceGetPowerManagementDefaultLimit, POWER_LIMIT_MW)
CONSTANT(nvmlDeviceGetEnforcedPowerLimit, POWER_LIMIT_MW)
CONSTANT(nvmlDeviceGetPerformanceState, 0)
CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, 4)
CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, 16)
CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, 4)
CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, 16)
CONSTANT(nvmlDeviceGetPersistenceMode, NVML_FEATURE_ENABLED)
CONSTANT(nvmlDeviceGetDisplayMode, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetDisplayActive, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetVirtualizationMode, 0)
CONSTANT(nvmlDeviceGetAccountingMode, NVML_FEATURE_DISABLED)

/* CUDA does not hold processes to it. */
API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) {
    nvmlReturn_t result = check_reachable(device, mode);
    if (result == NVML_SUCCESS) {
        bool exclusive = (gpu_health(device->gpu).states & GPU_EXCLUSIVE) != 0;
        *mode = exclusive ? NVML_COMPUTEMODE_EXCLUSIVE_PROCESS : NVML_COMPUTEMODE_DEFAULT;
    }
    return result;
}

/* ---- errors and recovery ---- */

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    nvmlReturn_t result = answer_constant(device, current, NVML_FEATURE_ENABLED);
    return result == NVML_SUCCESS ? answer_constant(device, pending, NVML_FEATURE_ENABLED) : result;
}

/* All errors of the simulation are uncorrectable ones of the device memory. */
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                                 unsigned int location, unsigned long long *count) {
    nvmlReturn_t result = check_reachable(device, count);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (type > NVML_MEMORY_ERROR_TYPE_UNCORRECTED || counter > NVML_AGGREGATE_ECC ||
        location >= NVML_MEMORY_LOCATION_COUNT) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    struct gpu_health health = gpu_health(device->gpu);
    uint32_t errors = counter == NVML_VOLATILE_ECC ? health.volatile_errors : health.aggregate_errors;
    *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && location == NVML_MEMORY_LOCATION_DRAM ? errors : 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                             unsigned long long *errors) {
    return nvmlDeviceGetMemoryErrorCounter(device, type, counter, NVML_MEMORY_LOCATION_DRAM, errors);
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                           unsigned int *pending, unsigned int *failed) {
    nvmlReturn_t result = check_reachable(device, correctable);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (uncorrectable == NULL || pending == NULL || failed == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    struct gpu_health health = gpu_health(device->gpu);
    *correctable = 0;
    *uncorrectable = health.remapped_rows;
    *pending = (health.states & GPU_REMAP_PENDING) != 0;
    *failed = (health.states & GPU_REMAP_FAILED) != 0;
    return NVML_SUCCESS;
}

/* The recovery action is the only field that the simulation has. */
static nvmlReturn_t read_field(nvmlDevice_t device, nvmlFieldValue_t *field) {
    if (field->fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION ||
        (driver_state(atomic_load(&driver_file)).states & DRIVER_WITHOUT_RECOVERY_ACTIONS) != 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.ui = (unsigned)gpu_health(device->gpu).recovery;
    return NVML_SUCCESS;
}

/* Like NVIDIA's, it succeeds if it has answered all fields, each with a result of its own. */
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    nvmlReturn_t result = check_reachable(device, values);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count <= 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (long long)realtime_us();
        values[i].latencyUsec = 0;
        values[i].value.ull = 0;
        values[i].nvmlReturn = read_field(device, &values[i]);
    }
    return NVML_SUCCESS;
}

/* nvmlClocksThrottleReasonHwSlowdown accompanies each of its causes. */
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    nvmlReturn_t result = check_reachable(device, reasons);
    if (result != NVML_SUCCESS) {
        return result;
    }
    uint32_t states = gpu_health(device->gpu).states;
    *reasons = 0;
    if ((states & GPU_HOT) != 0) {
        *reasons |= nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
    }
    if ((states & GPU_POWER_BRAKE) != 0) {
        *reasons |= nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    }
    return NVML_SUCCESS;
}
OTHER_NAME(nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t device, unsigned long long *reasons),
           nvmlDeviceGetCurrentClocksThrottleReasons, (device, reasons))

API nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    nvmlReturn_t result = check_reachable(device, reasons);
    if (result == NVML_SUCCESS) {
        *reasons = nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown |
                   nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    }
    return result;
}
OTHER_NAME(nvmlDeviceGetSupportedClocksEventReasons, (nvmlDevice_t device, unsigned long long *reasons),
           nvmlDeviceGetSupportedClocksThrottleReasons, (device, reasons))

/* ---- multi-instance GPUs ---- */

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    nvmlReturn_t result = check_reachable(device, current != NULL ? pending : NULL);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device->card != NULL || !gpu_mig_capable(device->identity)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *current = gpu_mig_mode(device->gpu) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    *pending = gpu_mig_pending(device->gpu) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    nvmlReturn_t result = check_device(device, is);
    if (result == NVML_SUCCESS) {
        *is = device->card != NULL;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    nvmlReturn_t result = check_reachable(device, count);
    if (result == NVML_SUCCESS) {
        *count = device->card == NULL && gpu_mig_capable(device->identity) ? GPU_MIG_SLICES : 0;
    }
    return result;
}

/* The handle of an instance, which stays the same; takes over the open file or closes it. NULL: there were too many. */
static nvmlDevice_t mig_device(nvmlDevice_t card, gpu_file *gpu) {
    unsigned known = atomic_load(&mig_count);
    for (unsigned i = 0; i < known; i++) {
        nvmlDevice_t device = &nvml_devices[GPU_MAX_PER_NODE + i];
        if (strcmp(device->identity->uuid, gpu_identity(gpu)->uuid) == 0) {
            gpu_close(gpu);
            return device;
        }
    }
    if (known == MIG_DEVICES) {
        gpu_close(gpu);
        return NULL;
    }
    unsigned index = GPU_MAX_PER_NODE + known;
    nvmlDevice_t device = &nvml_devices[index];
    *device = (struct nvmlDevice_st){.gpu = gpu, .identity = gpu_identity(gpu), .index = index, .card = card};
    (void)gpu_instance(gpu, &device->instance);
    atomic_store(&mig_count, known + 1);
    return device;
}

/* The MIG devices of a card, in the order of their IDs; they come and go while NVML is initialized. */
static unsigned mig_devices(nvmlDevice_t card, nvmlDevice_t migs[GPU_MIG_SLICES]) {
    gpu_file *gpus[GPU_MAX_PER_NODE], *instances[GPU_MIG_SLICES];
    unsigned found = 0;
    pthread_mutex_lock(&nvml_mutex);
    size_t count = gpu_open_all(gpu_directory(), gpus, GPU_MAX_PER_NODE, NULL);
    size_t wanted = gpu_instances(card->identity->uuid, gpus, count, instances);
    for (size_t i = 0; i < count; i++) {
        struct gpu_instance instance;
        if (!gpu_instance(gpus[i], &instance) || strcmp(instance.card, card->identity->uuid) != 0) {
            gpu_close(gpus[i]);
        }
    }
    for (size_t i = 0; i < wanted; i++) {
        if ((gpu_health(instances[i]).states & GPU_REMOVED) != 0) { /* a container keeps the file, as a mount */
            gpu_close(instances[i]);
            continue;
        }
        nvmlDevice_t device = mig_device(card, instances[i]);
        if (device != NULL) {
            migs[found++] = device;
        }
    }
    pthread_mutex_unlock(&nvml_mutex);
    return found;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    nvmlReturn_t result = check_reachable(device, mig);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device->card != NULL || !gpu_mig_capable(device->identity)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    nvmlDevice_t migs[GPU_MIG_SLICES];
    unsigned count = mig_devices(device, migs);
    if (index >= count) {
        return index < GPU_MIG_SLICES ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
    }
    *mig = migs[index];
    return NVML_SUCCESS;
}

/* Every query of a MIG device starts with this check. */
static nvmlReturn_t check_mig_device(nvmlDevice_t device, const void *answer) {
    nvmlReturn_t result = check_device(device, answer);
    return result == NVML_SUCCESS && device->card == NULL ? NVML_ERROR_INVALID_ARGUMENT : result;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    nvmlReturn_t result = check_mig_device(mig, device);
    if (result == NVML_SUCCESS) {
        *device = mig->card;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    nvmlReturn_t result = check_mig_device(device, id);
    if (result == NVML_SUCCESS) {
        *id = device->instance.id;
    }
    return result;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    nvmlReturn_t result = check_mig_device(device, id);
    if (result == NVML_SUCCESS) {
        *id = 0;
    }
    return result;
}

static struct gpu_mig_profile profile_of(nvmlDevice_t device) {
    return gpu_mig_profile(device->card->identity, device->instance.profile);
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    nvmlReturn_t result = check_reachable(device, attributes);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (device->card == NULL) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    struct gpu_mig_profile profile = profile_of(device);
    *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = device->identity->multiprocessors,
                                           .sharedCopyEngineCount = profile.slices,
                                           .sharedDecoderCount = profile.media ? 1 : profile.slices / 2,
                                           .sharedJpegCount = profile.media || profile.slices == GPU_MIG_SLICES,
                                           .sharedOfaCount = profile.media || profile.slices == GPU_MIG_SLICES,
                                           .gpuInstanceSliceCount = profile.slices,
                                           .computeInstanceSliceCount = profile.slices,
                                           .memorySizeMB = device->identity->memory_bytes >> 20};
    return NVML_SUCCESS;
}
OTHER_NAME(nvmlDeviceGetAttributes, (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes),
           nvmlDeviceGetAttributes_v2, (device, attributes))

/* A GPU instance and its one compute instance are, as pointers, the MIG device. */
static nvmlDevice_t device_of(const void *instance) {
    nvmlDevice_t device = NULL;
    memcpy(&device, &instance, sizeof device);
    return device;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    nvmlReturn_t result = check_reachable(device, instance);
    if (result != NVML_SUCCESS) {
        return result;
    }
    nvmlDevice_t migs[GPU_MIG_SLICES];
    unsigned count = device->card == NULL ? mig_devices(device, migs) : 0;
    for (unsigned i = 0; i < count; i++) {
        if (migs[i]->instance.id == id) {
            memcpy(instance, &migs[i], sizeof *instance);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    nvmlDevice_t device = device_of(instance);
    nvmlReturn_t result = check_mig_device(device, info);
    if (result == NVML_SUCCESS) {
        struct gpu_mig_profile profile = profile_of(device);
        *info = (nvmlGpuInstanceInfo_t){.device = device->card,
                                        .id = device->instance.id,
                                        .profileId = profile.id,
                                        .placement = {device->instance.start, profile.memory_slices}};
    }
    return result;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                       nvmlComputeInstance_t *compute) {
    nvmlReturn_t result = check_mig_device(device_of(instance), compute);
    if (result == NVML_SUCCESS && id != 0) {
        return NVML_ERROR_NOT_FOUND;
    }
    if (result == NVML_SUCCESS) {
        memcpy(compute, &instance, sizeof *compute);
    }
    return result;
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    nvmlDevice_t device = device_of(compute);
    nvmlReturn_t result = check_mig_device(device, info);
    if (result == NVML_SUCCESS) {
        struct gpu_mig_profile profile = profile_of(device);
        *info = (nvmlComputeInstanceInfo_t){
            .device = device, .profileId = profile.compute_number, .placement = {0, profile.slices}};
        memcpy(&info->gpuInstance, &compute, sizeof info->gpuInstance);
    }
    return result;
}
OTHER_NAME(nvmlComputeInstanceGetInfo, (nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info),
           nvmlComputeInstanceGetInfo_v2, (compute, info))

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                     nvmlGpuInstanceProfileInfo_t *info) {
    nvmlReturn_t result = check_reachable(device, info);
    if (result != NVML_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; device->card == NULL && gpu_mig_capable(device->identity) && i < GPU_MIG_PROFILES; i++) {
        struct gpu_mig_profile profile = gpu_mig_profile(device->identity, i);
        if (profile.number == number) {
            *info = (nvmlGpuInstanceProfileInfo_t){.id = profile.id,
                                                   .sliceCount = profile.slices,
                                                   .instanceCount = profile.most,
                                                   .multiprocessorCount = profile.multiprocessors,
                                                   .copyEngineCount = profile.slices,
                                                   .memorySizeMB = profile.memory_mib};
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Only the profile of the whole instance: there are no smaller compute instances. */
API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int number,
                                                              unsigned int engines,
                                                              nvmlComputeInstanceProfileInfo_t *info) {
    nvmlDevice_t device = device_of(instance);
    nvmlReturn_t result = check_mig_device(device, info);
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct gpu_mig_profile profile = profile_of(device);
    if (number != profile.compute_number || engines != 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile.compute_number,
                                               .sliceCount = profile.slices,
                                               .instanceCount = 1,
                                               .multiprocessorCount = profile.multiprocessors,
                                               .sharedCopyEngineCount = profile.slices};
    return NVML_SUCCESS;
}

/* ---- processes ---- */

/*
 * The ID of a process in its own, innermost PID namespace; 0 if unknown or if that is this process's namespace. See
 * proc(5) on NSpid.
 */
static uint32_t innermost_pid(const char *proc_id) {
    char path[64], line[256];
    uint32_t pid = 0;
    snprintf(path, sizeof path, "/proc/%.20s/status", proc_id);
    FILE *status = fopen(path, "re");
    if (status == NULL) {
        return 0;
    }
    while (pid == 0 && fgets(line, sizeof line, status) != NULL) {
        const char *last = strncmp(line, "NSpid:", 6) == 0 ? strrchr(line, '\t') : NULL;
        if (last != NULL && last != strchr(line, '\t')) {
            pid = (uint32_t)strtoul(last + 1, NULL, 10);
        }
    }
    fclose(status);
    return pid;
}

static bool is_same_process(const struct gpu_process *a, const struct gpu_process *b) {
    return a->pid == b->pid && a->pid_namespace == b->pid_namespace && a->origin.start_time == b->origin.start_time &&
           a->origin.mount_id == b->origin.mount_id;
}

/*
 * The processes of namespaces below this process's one that were found in /proc, by GPU and slot. A living process in
 * the slot that is the same one has the same ID, so each process is searched for once.
 */
static struct {
    struct gpu_process process;
    uint32_t pid; /* in this process's namespace; 0: none found */
} found_pids[DEVICES][GPU_SLOTS];
static pthread_mutex_t found_pids_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Searches /proc for the processes from `first` on, moves those that it finds to the front, and counts these. */
static size_t search_pids(unsigned gpu, struct gpu_process *all, size_t first, size_t count) {
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    size_t visible = first;
    while (proc != NULL && visible < count && (entry = readdir(proc)) != NULL) {
        uint32_t pid = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? innermost_pid(entry->d_name) : 0;
        size_t i = visible;
        while (pid != 0 && i < count && all[i].pid != pid) {
            i++;
        }
        if (pid == 0 || i == count) {
            continue;
        }
        struct gpu_process_origin origin = gpu_process_origin(entry->d_name);
        for (; i < count; i++) {
            if (all[i].pid != pid || all[i].origin.start_time != origin.start_time ||
                all[i].origin.mount_id != origin.mount_id || origin.start_time == 0) {
                continue;
            }
            struct gpu_process process = all[i];
            all[i] = all[visible];
            found_pids[gpu][process.slot].process = process;
            process.pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
            found_pids[gpu][process.slot].pid = process.pid;
            all[visible++] = process;
            break;
        }
    }
    if (proc != NULL) {
        closedir(proc);
    }
    return visible - first;
}

/*
 * Translates the recorded process IDs, which are relative to each process's own PID namespace, to this process's
 * namespace. IDs of the same namespace stay; IDs of namespaces below it (a node's view of its containers) are looked up
 * in /proc; other processes are invisible here and are removed. Returns the number of remaining processes.
 */
static size_t resolve_pids(unsigned gpu, struct gpu_process *all, size_t found) {
    uint64_t own = gpu_pid_namespace("/proc/self/ns/pid");
    size_t visible = 0;
    pthread_mutex_lock(&found_pids_mutex);
    for (size_t i = 0; i < found; i++) {
        struct gpu_process process = all[i];
        if (process.pid_namespace != own) {
            if (found_pids[gpu][process.slot].pid == 0 ||
                !is_same_process(&found_pids[gpu][process.slot].process, &process)) {
                continue;
            }
            process.pid = found_pids[gpu][process.slot].pid;
        }
        all[i] = all[visible];
        all[visible++] = process;
    }
    if (visible < found) {
        visible += search_pids(gpu, all, visible, found);
    }
    pthread_mutex_unlock(&found_pids_mutex);
    return visible;
}

static nvmlReturn_t running_processes(nvmlDevice_t device, unsigned int *count, void *infos, size_t info_bytes) {
    nvmlReturn_t result = check_reachable(device, count);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (infos == NULL && *count != 0) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    struct gpu_process *all = calloc(GPU_SLOTS, sizeof *all);
    if (all == NULL) {
        return NVML_ERROR_MEMORY;
    }
    nvmlDevice_t parts[1 + GPU_MIG_SLICES] = {device}; /* a card has the processes of its instances too */
    unsigned part_count = 1 + (device->card == NULL && gpu_mig_mode(device->gpu) ? mig_devices(device, parts + 1) : 0);
    size_t found = 0;
    for (unsigned part = 0; part < part_count; part++) {
        nvmlDevice_t of = parts[part];
        size_t here = resolve_pids(of->index, all, gpu_processes(of->gpu, all, GPU_SLOTS));
        for (size_t i = 0; i < here && found + i < *count; i++) {
            unsigned instance = of->card != NULL ? of->instance.id : UINT32_MAX;
            unsigned compute = of->card != NULL ? 0 : UINT32_MAX;
            nvmlProcessDetail_v1_t info = {all[i].pid, all[i].used_bytes, instance, compute, 0};
            memcpy((char *)infos + (found + i) * info_bytes, &info, info_bytes);
        }
        found += here;
    }
    free(all);
    bool fits = found <= *count;
    *count = (unsigned)found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24 &&
                   sizeof(nvmlProcessDetail_v1_t) == 32,
               "each version is a prefix of the next");

#define PROCESSES(function, list, info)                                                                                \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, info *infos) {                                 \
        return list(device, count, infos, sizeof *infos);                                                              \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, running_processes, nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, running_processes, nvmlProcessInfo_v2_t)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, running_processes, nvmlProcessInfo_v2_t)

/* The simulation has no graphics processes. */
static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count) {
    nvmlReturn_t result = check_reachable(device, count);
    if (result == NVML_SUCCESS) {
        *count = 0;
    }
    return result;
}

#define NO_PROCESSES(function)                                                                                         \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *infos) {                                 \
        (void)infos;                                                                                                   \
        return no_processes(device, count);                                                                            \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)

/* Whether NVML lists clients of MPS as compute processes, too, is not known; here it does. */
static nvmlReturn_t mps_processes(nvmlDevice_t device, unsigned int *count, void *infos, size_t info_bytes) {
    nvmlReturn_t result = check_reachable(device, count);
    return result == NVML_SUCCESS && (gpu_health(device->gpu).states & GPU_MPS) != 0
               ? running_processes(device, count, infos, info_bytes)
               : no_processes(device, count);
}

PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, mps_processes, nvmlProcessInfo_v1_t)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, mps_processes, nvmlProcessInfo_v2_t)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, mps_processes, nvmlProcessInfo_v2_t)

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list) {
    nvmlReturn_t result = check_reachable(device, list);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1 || list->mode > 3) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return list->mode == 0 || list->mode == 3
               ? running_processes(device, &list->numProcArrayEntries, list->procArray, sizeof *list->procArray)
               : no_processes(device, &list->numProcArrayEntries);
}

/*
 * The GPU utilization of each process, averaged over the periods after `since`, or over those from the first period in
 * its history. Without include_idle, processes with no utilization are omitted.
 */
static size_t process_usage(nvmlDevice_t device, unsigned long long since, bool include_idle,
                            nvmlProcessUtilizationInfo_v1_t infos[GPU_SLOTS]) {
    static struct gpu_process all[GPU_SLOTS]; /* protected by nvml_mutex */
    struct gpu_usage history[GPU_USAGE_PERIODS];
    size_t visible = 0;
    pthread_mutex_lock(&nvml_mutex);
    size_t found = resolve_pids(device->index, all, gpu_processes(device->gpu, all, GPU_SLOTS));
    uint64_t newest = gpu_now() / GPU_USAGE_PERIOD_NS - 1;
    for (size_t i = 0; i < found; i++) {
        size_t periods = usage_since(device, all[i].slot, since, history);
        uint64_t busy = 0, copying = 0, whole = 0;
        for (size_t n = 0; n < periods; n++) {
            if (history[n].period > newest) { /* ended after the snapshot: the next query would count it again */
                continue;
            }
            busy += history[n].busy_ns;
            copying += history[n].copying_ns;
        }
        if (periods != 0) { /* includes the periods after `since` in which the process was idle */
            for (whole = newest - history[periods - 1].period + 1;
                 since != 0 && whole < GPU_USAGE_PERIODS && period_end_us(newest - whole) > since;) {
                whole++;
            }
        }
        if (busy + copying != 0 || include_idle) {
            infos[visible++] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = period_end_us(newest),
                                                                 .pid = all[i].pid,
                                                                 .smUtil = percent_of(busy, whole),
                                                                 .memUtil = percent_of(copying, whole)};
        }
    }
    pthread_mutex_unlock(&nvml_mutex);
    return visible;
}

/* Allocates *infos with the utilization of all processes; the caller frees it. */
static nvmlReturn_t query_process_usage(nvmlDevice_t device, unsigned long long since, bool include_idle,
                                        nvmlProcessUtilizationInfo_v1_t **infos, size_t *found) {
    *infos = calloc(GPU_SLOTS, sizeof **infos);
    if (*infos == NULL) {
        return NVML_ERROR_MEMORY;
    }
    *found = process_usage(device, since, include_idle, *infos);
    return *found != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                 unsigned int *count, unsigned long long since) {
    nvmlProcessUtilizationInfo_v1_t *infos = NULL;
    size_t found = 0;
    nvmlReturn_t result = check_reachable(device, count);
    if (result == NVML_SUCCESS && (device->card != NULL || gpu_mig_mode(device->gpu))) {
        return NVML_ERROR_NOT_SUPPORTED; /* nvml.h: not on MIG-enabled GPUs */
    }
    if (result == NVML_SUCCESS) {
        result = query_process_usage(device, since, false, &infos, &found);
    }
    if (result == NVML_SUCCESS && (samples == NULL || *count < found)) {
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (size_t i = 0; i < found && result == NVML_SUCCESS; i++) {
        samples[i] = (nvmlProcessUtilizationSample_t){.pid = infos[i].pid,
                                                      .timeStamp = infos[i].timeStamp,
                                                      .smUtil = infos[i].smUtil,
                                                      .memUtil = infos[i].memUtil};
    }
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE) {
        *count = (unsigned)found;
    }
    free(infos);
    return result;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info) {
    nvmlProcessUtilizationInfo_v1_t *infos = NULL;
    size_t found = 0;
    nvmlReturn_t result = check_reachable(device, info);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (info->version != NVML_PROCESSES_UTILIZATION_INFO_V1) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    result = query_process_usage(device, info->lastSeenTimeStamp, true, &infos, &found);
    if (result == NVML_SUCCESS && (info->procUtilArray == NULL || info->processSamplesCount < found)) {
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (result == NVML_SUCCESS) {
        memcpy(info->procUtilArray, infos, found * sizeof *infos);
    }
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE) {
        info->processSamplesCount = (unsigned)found;
    }
    free(infos);
    return result;
}

/* ---- accounting: disabled, the default on a real GPU ---- */

static nvmlReturn_t accounting_not_supported(nvmlDevice_t device, const void *answer) {
    nvmlReturn_t result = check_reachable(device, answer);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size) {
    return accounting_not_supported(device, size);
}

API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
    (void)pids;
    return accounting_not_supported(device, count);
}

API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, void *stats) {
    (void)pid;
    return accounting_not_supported(device, stats);
}

API nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, void *stats) {
    return accounting_not_supported(device, stats);
}

/* ---- events ---- */

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    nvmlReturn_t result = check_device(device, types);
    if (result == NVML_SUCCESS) {
        *types = NVML_EVENT_XID;
    }
    return result;
}

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (set == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *set = calloc(1, sizeof **set);
    return *set != NULL ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

/* Needs no driver, so that a client can clean up after the driver was unloaded. */
API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    if (atomic_load(&init_count) == 0) {
        return NVML_ERROR_UNINITIALIZED;
    }
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    nvmlReturn_t result = check_reachable(device, set);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if ((types & ~NVML_EVENT_XID) != 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    nvmlDevice_t migs[GPU_MIG_SLICES];
    unsigned count = device->card == NULL && gpu_mig_mode(device->gpu) ? mig_devices(device, migs) : 0;
    for (unsigned i = 0; i < count; i++) {
        set->seen[migs[i]->index] = gpu_xid_events(migs[i]->gpu);
    }
    set->types[device->index] |= types;
    set->seen[device->index] = gpu_xid_events(device->gpu);
    return NVML_SUCCESS;
}

/* The next event of a device that the client has not seen. Of more than GPU_KEPT_EVENTS, it gets the latest ones. */
static bool next_xid_event_of(nvmlEventSet_t set, nvmlDevice_t device, nvmlEventData_t *data) {
    uint64_t raised = gpu_xid_events(device->gpu), *seen = &set->seen[device->index];
    nvmlDevice_t card = device->card != NULL ? device->card : device;
    if ((set->types[card->index] & NVML_EVENT_XID) == 0 || raised <= *seen) {
        return false;
    }
    if (raised - *seen > GPU_KEPT_EVENTS) {
        *seen = raised - GPU_KEPT_EVENTS;
    }
    ++*seen;
    *data = (nvmlEventData_t){.device = card,
                              .eventType = NVML_EVENT_XID,
                              .eventData = gpu_xid_event(device->gpu, *seen),
                              .gpuInstanceId = device->card != NULL ? device->instance.id : UINT32_MAX,
                              .computeInstanceId = device->card != NULL ? 0 : UINT32_MAX};
    return true;
}

static bool next_xid_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    bool found = false;
    for (unsigned i = 0; !found && i < atomic_load(&device_count); i++) {
        found = next_xid_event_of(set, &nvml_devices[i], data);
    }
    for (unsigned i = 0; !found && i < atomic_load(&mig_count); i++) {
        found = next_xid_event_of(set, &nvml_devices[GPU_MAX_PER_NODE + i], data);
    }
    return found;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    nvmlReturn_t result = check_session();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (set == NULL || data == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (;;) {
        if (next_xid_event(set, data)) {
            return NVML_SUCCESS;
        }
        if (timeout_ms == 0) {
            return NVML_ERROR_TIMEOUT;
        }
        unsigned wait = timeout_ms < EVENT_POLL_MS ? timeout_ms : EVENT_POLL_MS;
        sleep_ms(wait);
        timeout_ms -= wait;
        result = check_session();
        if (result != NVML_SUCCESS) {
            return result;
        }
    }
}
OTHER_NAME(nvmlEventSetWait, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms), nvmlEventSetWait_v2,
           (set, data, timeout_ms))
