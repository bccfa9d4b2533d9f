/* State that all parts of the simulated libcuda share: the driver lock, the visible devices and the current context. */
#ifndef ALIQUOT_FAKE_CUDA_DRIVER_H
#define ALIQUOT_FAKE_CUDA_DRIVER_H

#include "cuda_abi.h"
#include "cuda_objects.h"
#include "gpu_file.h"
#include "gpu_time.h"

#define API __attribute__((visibility("default")))

/* The CUDA version that the driver reports, 1000 * major + 10 * minor. The build can override it. */
#ifndef FAKE_CUDA_VERSION
#define FAKE_CUDA_VERSION 13000
#endif

struct device {
    gpu_file *gpu;
    const struct gpu_identity *identity;
    uint64_t small_bytes;     /* allocations below the page size, see memory_reserve() */
    struct CUctx_st *primary; /* NULL until its handle is first requested */
    unsigned primary_retain_count;
    unsigned primary_flags;
    bool primary_handle_given_out; /* by the runtime's private export table */
    unsigned live_contexts;        /* including the primary context */
    unsigned use_count; /* contexts plus memory without a context; the process holds a GPU slot while it is not 0 */
};

/* A CUDA context. It is never freed, so that no stale handle equals the address of a newer context. */
struct CUctx_st {
    struct device *device;
    unsigned long long id;
    unsigned api_version;
    unsigned flags;
    unsigned attach_count; /* cuCtxAttach */
    bool alive;
    struct CUctx_st *primary; /* of a green context: the context that its work and memory belong to; else NULL */
    size_t limits[8];
    uint64_t last_work[GPU_QUEUES]; /* the number of its latest work in each GPU queue */
    struct CUctx_st *next;
};

/* All contexts. */
extern struct CUctx_st *contexts;

/* The contexts that the calling thread has pushed. */
enum { CONTEXT_STACK_DEPTH = 128 };
extern _Thread_local struct context_stack {
    struct CUctx_st *contexts[CONTEXT_STACK_DEPTH];
    unsigned depth;
} context_stack;

static inline struct CUctx_st *current_context(void) {
    return context_stack.depth > 0 ? context_stack.contexts[context_stack.depth - 1] : NULL;
}

/*
 * Takes the driver lock and returns the calling thread's current context; for a green context its primary context. An
 * entry point that needs a context starts
 * with this function. If it returns CUDA_SUCCESS, the entry point ends with leave(); otherwise the lock is not held.
 */
CUresult enter_context(struct CUctx_st **context);

/* Like enter_context(), for an entry point that only needs an initialized driver. */
CUresult enter_driver(void);

/* Like enter_driver(). Returns `wrong`, without the lock, if handle does not refer to an object of that kind. */
CUresult enter_with_handle(enum object_kind kind, const void *handle, CUresult wrong);

/* Like enter_driver(). Returns CUDA_ERROR_INVALID_DEVICE, without the lock, if ordinal is not a device. */
CUresult enter_device(CUdevice ordinal, struct device **device);

/* Releases the driver lock and returns result. */
CUresult leave(CUresult result);

/*
 * Increments the device's use count; CUDA_ERROR_DEVICE_UNAVAILABLE if the process cannot get a slot of the GPU. Each
 * context and each allocation of device memory that no context owns counts as one use. Called with the lock held.
 */
CUresult device_acquire(struct device *device);
void device_release(struct device *device);

/* Returns NULL if ordinal is not a device of this process. Called with the lock held. */
struct device *device_from_ordinal(CUdevice ordinal);
CUdevice device_ordinal(const struct device *device);
size_t device_count(void);
bool is_device_lost(const struct device *device);

/* Returns CUDA_SUCCESS if context is a handle of a live context. Called with the lock held. */
CUresult check_context(const struct CUctx_st *context);

/* Writes a line to the log that ALIQUOT_FAKE_LOG names ("stderr" or a file path), if the variable is set. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
