/* Initialization and devices; the lock, and the context that a call is in. */
#define _GNU_SOURCE
#include "cuda_driver.h"
#include "driver_state.h"
#include "gpu_health.h"
#include "gpu_mig.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool initialized;
static atomic_bool forked_child; /* set in a child of a process that had initialized the driver */

static struct device visible_devices[GPU_MAX_PER_NODE];
static size_t visible_count;

/* All GPUs of the folder. A forked child closes the descriptors of all of them. */
static gpu_file *all_gpus[GPU_MAX_PER_NODE];
static size_t all_gpu_count;

struct CUctx_st *contexts;
_Thread_local struct context_stack context_stack;

void log_line(const char *format, ...) {
    const char *target = getenv("ALIQUOT_FAKE_LOG");
    if (target == NULL || target[0] == '\0') {
        return;
    }
    FILE *out = strcmp(target, "stderr") == 0 ? stderr : fopen(target, "ae");
    if (out == NULL) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    fputs("aliquot-fake-driver: ", out);
    vfprintf(out, format, arguments);
    fputc('\n', out);
    va_end(arguments);
    if (out != stderr) {
        fclose(out);
    }
}

static void log_invalid_gpu_file(const char *sentence) {
    log_line("%s", sentence);
}

bool is_device_lost(const struct device *device) {
    return gpu_is_lost(device->gpu);
}

CUresult enter_driver(void) {
    if (!atomic_load_explicit(&initialized, memory_order_acquire) || atomic_load(&forked_child)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult enter_with_handle(enum object_kind kind, const void *handle, CUresult wrong) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return object_find(kind, handle) != NULL ? CUDA_SUCCESS : leave(wrong);
}

CUresult leave(CUresult result) {
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult enter_context(struct CUctx_st **context) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct CUctx_st *current = current_context();
    if (current == NULL) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (!current->alive) {
        return leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    current = current->primary != NULL ? current->primary : current;
    if (is_device_lost(current->device)) {
        return leave(CUDA_ERROR_UNKNOWN);
    }
    *context = current;
    return CUDA_SUCCESS;
}

/* ---- initialization ---- */

/*
 * Closes the descriptors that a forked child shares with its parent. Otherwise the kernel would keep the parent's
 * slots locked as long as the child lives, even after the parent's death.
 */
static void after_fork(void) {
    if (!atomic_load(&initialized)) {
        return;
    }
    atomic_store(&forked_child, true);
    for (size_t i = 0; i < all_gpu_count; i++) {
        gpu_close_in_child(all_gpus[i]);
    }
}

static bool is_instance(const gpu_file *gpu) {
    struct gpu_instance instance;
    return gpu_instance(gpu, &instance);
}

/* What CUDA uses of a card: in MIG mode its first instance, or nothing if it has none. */
static gpu_file *device_of_card(gpu_file *card) {
    if (card == NULL || is_instance(card) || !gpu_mig_mode(card)) {
        return card;
    }
    gpu_file *instances[GPU_MIG_SLICES];
    return gpu_instances(gpu_identity(card)->uuid, all_gpus, all_gpu_count, instances) != 0 ? instances[0] : NULL;
}

static bool add_visible_device(gpu_file *gpu) {
    for (size_t i = 0; i < visible_count; i++) {
        if (visible_devices[i].gpu == gpu) {
            return false;
        }
    }
    visible_devices[visible_count].gpu = gpu;
    visible_devices[visible_count].identity = gpu_identity(gpu);
    visible_count++;
    return true;
}

/* Finds the GPU that one field of CUDA_VISIBLE_DEVICES names: an index, a UUID or an unambiguous prefix of one. */
static gpu_file *find_gpu_by_field(const char *field, size_t length) {
    char text[64];
    if (length == 0 || length >= sizeof text) {
        return NULL;
    }
    memcpy(text, field, length);
    text[length] = '\0';
    if (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0) {
        gpu_file *found = NULL;
        for (size_t i = 0; i < all_gpu_count; i++) {
            if (strncasecmp(gpu_identity(all_gpus[i])->uuid, text, length) != 0) {
                continue;
            }
            if (found != NULL) {
                return NULL;
            }
            found = all_gpus[i];
        }
        return found;
    }
    char *end;
    errno = 0;
    long index = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || index < 0) {
        return NULL;
    }
    for (size_t i = 0; i < all_gpu_count; i++) {
        if (!is_instance(all_gpus[i]) && index-- == 0) {
            return all_gpus[i];
        }
    }
    return NULL;
}

/*
 * Reads CUDA_VISIBLE_DEVICES as the CUDA programming guide specifies it ("Environment Variables"): without it, all
 * GPUs are visible; the first field that names no GPU ends the list; if a GPU is named twice, none is visible.
 *
 * A process uses at most one MIG instance, and no other GPU beside it (MIG user guide, "CUDA Device Enumeration"): the
 * first that is named; without the variable the first that there is.
 */
static void read_visible_devices(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (list == NULL) {
        for (size_t i = 0; i < all_gpu_count; i++) {
            if (is_instance(all_gpus[i])) {
                visible_count = 0;
                add_visible_device(all_gpus[i]);
                return;
            }
            if (!gpu_mig_mode(all_gpus[i])) {
                add_visible_device(all_gpus[i]);
            }
        }
        return;
    }
    for (;;) {
        list += strspn(list, " \t");
        size_t field = strcspn(list, ",");
        size_t length = field;
        while (length > 0 && (list[length - 1] == ' ' || list[length - 1] == '\t')) {
            length--;
        }
        gpu_file *gpu = device_of_card(find_gpu_by_field(list, length));
        if (gpu == NULL || (is_instance(gpu) && visible_count != 0)) {
            return;
        }
        if (!add_visible_device(gpu)) {
            visible_count = 0;
            return;
        }
        if (list[field] == '\0' || is_instance(gpu)) {
            return;
        }
        list += field + 1;
    }
}

/* A driver that cannot be used keeps programs from starting; it does not disturb those that run. */
static CUresult check_driver(void) {
    uint32_t states = driver_state(driver_map(gpu_directory())).states;
    if ((states & DRIVER_UNLOADED) != 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    return (states & DRIVER_MISMATCH) != 0 ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_SUCCESS;
}

static void open_gpus(void) {
    size_t found = gpu_open_all(gpu_directory(), all_gpus, GPU_MAX_PER_NODE, log_invalid_gpu_file);
    for (size_t i = 0; i < found; i++) {
        if ((gpu_health(all_gpus[i]).states & GPU_REMOVED) != 0) {
            gpu_close(all_gpus[i]);
        } else {
            all_gpus[all_gpu_count++] = all_gpus[i];
        }
    }
}

API CUresult cuInit(unsigned int Flags) {
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load(&forked_child)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&driver_lock);
    if (!atomic_load(&initialized)) {
        static bool prepared;
        CUresult result = check_driver();
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
        if (!prepared) {
            open_gpus();
            read_visible_devices();
            pthread_atfork(NULL, NULL, after_fork);
            prepared = true;
        }
        if (visible_count == 0) {
            return leave(CUDA_ERROR_NO_DEVICE);
        }
        atomic_store_explicit(&initialized, true, memory_order_release);
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuDriverGetVersion(int *driverVersion) {
    if (driverVersion == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = FAKE_CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

size_t device_count(void) {
    return visible_count;
}

struct device *device_from_ordinal(CUdevice ordinal) {
    return ordinal >= 0 && (size_t)ordinal < visible_count ? &visible_devices[ordinal] : NULL;
}

CUdevice device_ordinal(const struct device *device) {
    return (CUdevice)(device - visible_devices);
}

CUresult enter_device(CUdevice ordinal, struct device **device) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *device = device_from_ordinal(ordinal);
    return *device != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_DEVICE);
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    struct device *found;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(ordinal, &found);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetCount(int *count) {
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *count = (int)visible_count;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    struct device *device;
    if (name == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    snprintf(name, (size_t)len, "%s", device->identity->name);
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    struct device *device;
    if (uuid == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    gpu_uuid_bytes(device->identity->uuid, (unsigned char *)uuid->bytes);
    return leave(CUDA_SUCCESS);
}

/* The two versions differ on MIG devices only. */
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    return cuDeviceGetUuid_v2(uuid, dev);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    struct device *device;
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *bytes = device->identity->memory_bytes;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    size_t all;
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = cuDeviceTotalMem_v2(&all, dev);
    if (result == CUDA_SUCCESS) {
        *bytes = all < UINT32_MAX ? (unsigned)all : UINT32_MAX;
    }
    return result;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    struct device *device;
    if (major == NULL || minor == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *major = (int)device->identity->compute_major;
    *minor = (int)device->identity->compute_minor;
    return leave(CUDA_SUCCESS);
}

static int pci_bus(const struct gpu_identity *gpu) {
    return (int)gpu->index + 1;
}

API CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    struct device *device;
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct gpu_identity *gpu = device->identity;
    switch ((int)attrib) {
#define ATTRIBUTE(name, number, value)                                                                                 \
    case number:                                                                                                       \
        *pi = value;                                                                                                   \
        return leave(CUDA_SUCCESS);
#include "cuda_attributes.def"
#undef ATTRIBUTE
    default:
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
}

API CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    struct device *device;
    if (pciBusId == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)pci_bus(device->identity));
    return leave(CUDA_SUCCESS);
}

API CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    struct device *device;
    if (canAccessPeer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device_from_ordinal(peerDev) == NULL) {
        return leave(CUDA_ERROR_INVALID_DEVICE);
    }
    *canAccessPeer = dev != peerDev;
    return leave(CUDA_SUCCESS);
}

/* ---- contexts and uses of devices ---- */

CUresult check_context(const struct CUctx_st *context) {
    for (const struct CUctx_st *known = contexts; known != NULL; known = known->next) {
        if (known == context) {
            return known->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
    }
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult device_acquire(struct device *device) {
    if (is_device_lost(device)) {
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (device->use_count == 0 && !gpu_attach(device->gpu)) {
        log_line("%s: the GPU has no free process slot, or its file has changed since cuInit", device->identity->uuid);
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    device->use_count++;
    return CUDA_SUCCESS;
}

void device_release(struct device *device) {
    if (--device->use_count == 0) {
        gpu_detach(device->gpu);
    }
}
