/* Initialization, devices and contexts. */
#define _GNU_SOURCE
#include "cuda_capture.h"
#include "cuda_export.h"
#include "cuda_memory.h"
#include "cuda_pool.h"
#include "cuda_work.h"
#include "driver_state.h"
#include "gpu_health.h"
#include "gpu_mig.h"
#include "gpu_profile.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { STACK_DEPTH = 128 };

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool initialized;
static atomic_bool forked_child; /* set in a child of a process that had initialized the driver */

static struct device visible_devices[GPU_MAX_PER_NODE];
static size_t visible_count;

/* All GPUs of the folder. A forked child closes the descriptors of all of them. */
static gpu_file *all_gpus[GPU_MAX_PER_NODE];
static size_t all_gpu_count;

static struct CUctx_st *contexts;
static unsigned long long last_context_id;

static _Thread_local struct CUctx_st *context_stack[STACK_DEPTH];
static _Thread_local unsigned context_stack_depth;

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

static bool is_device_lost(const struct device *device) {
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
    struct CUctx_st *current = context_stack_depth > 0 ? context_stack[context_stack_depth - 1] : NULL;
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

static CUresult enter_device(CUdevice ordinal, struct device **device) {
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

/* ---- contexts ---- */

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

/* Sizes with which a context begins; they are part of its memory. */
#define PRINTF_FIFO_BYTES ((size_t)1 << 20)
#define MALLOC_HEAP_BYTES ((size_t)8 << 20)

static uint64_t bytes_beyond(size_t bytes, size_t initial) {
    return bytes > initial ? bytes - initial : 0;
}

/* What a program has added to the memory for its kernels' malloc() and printf(). */
static uint64_t added_heap_bytes(const struct CUctx_st *context) {
    return bytes_beyond(context->limits[CU_LIMIT_MALLOC_HEAP_SIZE], MALLOC_HEAP_BYTES) +
           bytes_beyond(context->limits[CU_LIMIT_PRINTF_FIFO_SIZE], PRINTF_FIFO_BYTES);
}

static void set_initial_limits(struct CUctx_st *context) {
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = PRINTF_FIFO_BYTES;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = MALLOC_HEAP_BYTES;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static uint64_t context_bytes(const struct device *device) {
    uint64_t bytes = device->identity->context_bytes, of_profile = gpu_profile()->context_bytes;
    return bytes > of_profile ? bytes : of_profile;
}

static CUresult acquire_device_for_context(struct device *device) {
    CUresult result = device_acquire(device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->live_contexts == 0 && !memory_reserve(device, context_bytes(device))) {
        device_release(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->live_contexts++;
    return CUDA_SUCCESS;
}

static void release_device_of_context(struct device *device) {
    if (--device->live_contexts == 0) {
        pools_free_device_memory(device);
        memory_release(device, context_bytes(device));
    }
    device_release(device);
}

static void context_destroy(struct CUctx_st *context) {
    objects_delete_of_context(context);
    memory_free_of_context(context);
    context_storage_detach(context);
    context->alive = false;
    memory_release(context->device, added_heap_bytes(context));
    set_initial_limits(context); /* a primary context may be retained again */
    release_device_of_context(context->device);
}

static struct CUctx_st *context_new(struct device *device, unsigned flags, unsigned api_version) {
    struct CUctx_st *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    context->device = device;
    context->id = ++last_context_id;
    context->api_version = api_version;
    context->flags = flags;
    context->attach_count = 1;
    set_initial_limits(context);
    context->next = contexts;
    contexts = context;
    return context;
}

struct CUctx_st *context_new_green(struct CUctx_st *primary) {
    struct CUctx_st *green = context_new(primary->device, primary->flags, primary->api_version);
    if (green != NULL) {
        green->primary = primary;
        green->alive = true;
    }
    return green;
}

/*
 * Checks whether a thread may make a context current. The runtime gets the handles of primary contexts from a private
 * export table and makes one current before it retains it. Such a primary context may be current before it is alive.
 */
static CUresult check_can_be_current(const struct CUctx_st *context) {
    CUresult result = check_context(context);
    bool not_retained_yet = result == CUDA_ERROR_CONTEXT_IS_DESTROYED && context == context->device->primary &&
                            context->device->primary_handle_given_out;
    return not_retained_yet ? CUDA_SUCCESS : result;
}

static CUresult push_context(struct CUctx_st *context) {
    if (context_stack_depth == STACK_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_stack[context_stack_depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *pctx, unsigned flags, CUdevice dev, unsigned api_version) {
    struct device *device;
    if (pctx == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0 || (flags & CU_CTX_SCHED_MASK) > 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = acquire_device_for_context(device);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    struct CUctx_st *context = context_new(device, flags, api_version);
    if (context == NULL || push_context(context) != CUDA_SUCCESS) {
        if (context != NULL) {
            context->alive = false;
        }
        release_device_of_context(device);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    context->alive = true;
    *pctx = context;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create_context(pctx, flags, dev, 3010);
}

API CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create_context(pctx, flags, dev, 3020);
}

API CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                            CUdevice dev) {
    if (paramsArray != NULL || numParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return create_context(pctx, flags, dev, 3021);
}

API CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev) {
    if (ctxCreateParams != NULL && ctxCreateParams->numExecAffinityParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    if (ctxCreateParams != NULL && ctxCreateParams->cigParams != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create_context(pctx, flags, dev, 3021);
}

/*
 * Pops a destroyed context from the top of the calling thread's stack. Deeper in the stack and in other threads it
 * remains, and using it there is an error.
 */
static void pop_if_current(const struct CUctx_st *context) {
    if (context_stack_depth > 0 && context_stack[context_stack_depth - 1] == context) {
        context_stack_depth--;
    }
}

API CUresult cuCtxDestroy_v2(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(ctx);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (ctx == ctx->device->primary || ctx->primary != NULL) {
        return leave(CUDA_ERROR_INVALID_CONTEXT); /* a primary or green context ends otherwise */
    }
    context_destroy(ctx);
    pop_if_current(ctx);
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

API CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    struct CUctx_st *context;
    if (pctx == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    context->attach_count++;
    *pctx = context;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxDetach(CUcontext ctx) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx != context || ctx == ctx->device->primary) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--ctx->attach_count == 0) {
        context_destroy(ctx);
        pop_if_current(ctx);
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_can_be_current(ctx);
    return leave(result == CUDA_SUCCESS ? push_context(ctx) : result);
}

API CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (context_stack_depth == 0) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    context_stack_depth--;
    if (pctx != NULL) {
        *pctx = context_stack[context_stack_depth];
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSetCurrent(CUcontext ctx) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx == NULL) {
        if (context_stack_depth > 0) {
            context_stack_depth--;
        }
        return leave(CUDA_SUCCESS);
    }
    result = check_can_be_current(ctx);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    if (context_stack_depth == 0) {
        return leave(push_context(ctx));
    }
    context_stack[context_stack_depth - 1] = ctx;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetCurrent(CUcontext *pctx) {
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pctx = context_stack_depth > 0 ? context_stack[context_stack_depth - 1] : NULL;
    return leave(CUDA_SUCCESS);
}

/* Enters the given context, or the current one if it is NULL. */
static CUresult enter_given_context(CUcontext given, struct CUctx_st **context) {
    if (given == NULL) {
        return enter_context(context);
    }
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(given);
    if (result == CUDA_SUCCESS && is_device_lost(given->device)) {
        result = CUDA_ERROR_UNKNOWN;
    }
    *context = given;
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    struct CUctx_st *context;
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *device = device_ordinal(context->device);
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

API CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    struct CUctx_st *context;
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_context_wait(context);
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    const struct awaited_work work = work_pending_in_context(context);
    leave(CUDA_SUCCESS);
    work_wait(&work);
    result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pools_trim_after_sync();
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    struct CUctx_st *context;
    if (ctxId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ctxId = context->id;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    struct CUctx_st *context;
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_given_context(ctx, &context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *version = context->api_version;
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    struct CUctx_st *context;
    if (pvalue == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (limit == CU_LIMIT_CIG_ENABLED) { /* cuBLAS asks, and is left half initialized by an error */
        *pvalue = 0;
        return leave(CUDA_SUCCESS);
    }
    if ((int)limit < 0 || (int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    *pvalue = context->limits[limit];
    return leave(CUDA_SUCCESS);
}

API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((int)limit < 0 || (int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    size_t old_value = context->limits[limit];
    uint64_t old_bytes = added_heap_bytes(context);
    context->limits[limit] = value;
    memory_release(context->device, old_bytes);
    if (value <= GPU_MAX_MEMORY_BYTES && memory_reserve(context->device, added_heap_bytes(context))) {
        return leave(CUDA_SUCCESS);
    }
    context->limits[limit] = old_value;
    (void)memory_reserve(context->device, old_bytes);
    return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

API CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (leastPriority != NULL) {
        *leastPriority = 0;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = -5;
    }
    return leave(CUDA_SUCCESS);
}

/* The memory of every device is always mapped for every context. */
API CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    struct CUctx_st *context;
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = check_context(peerContext);
    if (result == CUDA_SUCCESS && peerContext->device == context->device) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    return leave(result);
}

API CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    return result == CUDA_SUCCESS ? leave(check_context(peerContext)) : result;
}

/* ---- primary contexts ---- */

/*
 * Creates the handle of the primary context at the first call. The handle stays the same, also while the context is
 * not alive.
 */
static CUresult enter_primary(CUdevice ordinal, struct device **device) {
    CUresult result = enter_device(ordinal, device);
    if (result != CUDA_SUCCESS || (*device)->primary != NULL) {
        return result;
    }
    (*device)->primary = context_new(*device, (*device)->primary_flags, 3020);
    return (*device)->primary != NULL ? result : leave(CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult primary_context_handle(CUcontext *context, CUdevice ordinal) {
    struct device *device;
    if (context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_primary(ordinal, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    device->primary_handle_given_out = true;
    *context = device->primary;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    struct device *device;
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_primary(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!device->primary->alive) {
        result = acquire_device_for_context(device);
        if (result != CUDA_SUCCESS) {
            return leave(result);
        }
        device->primary->alive = true;
        device->primary->flags = device->primary_flags;
    }
    device->primary_retain_count++;
    *pctx = device->primary;
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->primary_retain_count == 0) {
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--device->primary_retain_count == 0 && device->primary->alive) {
        context_destroy(device->primary);
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return cuDevicePrimaryCtxRelease_v2(dev);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device->primary != NULL && device->primary->alive) {
        context_destroy(device->primary);
        device->primary_retain_count = 0;
    }
    return context_storage_run_destructors(leave(CUDA_SUCCESS));
}

API CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return cuDevicePrimaryCtxReset_v2(dev);
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    struct device *device;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0 || (flags & CU_CTX_SCHED_MASK) > 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    device->primary_flags = flags;
    if (device->primary != NULL) {
        device->primary->flags = flags;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    struct device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != NULL) {
        *flags = device->primary_flags;
    }
    if (active != NULL) {
        *active = device->primary != NULL && device->primary->alive;
    }
    return leave(CUDA_SUCCESS);
}
