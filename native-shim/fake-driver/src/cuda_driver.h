/*
 * What the parts of the fake libcuda share: the driver's one lock, the devices that the process sees, contexts, and
 * the handles and memory that belong to contexts.
 */
#ifndef ALIQUOT_FAKE_CUDA_DRIVER_H
#define ALIQUOT_FAKE_CUDA_DRIVER_H

#include "cuda_abi.h"
#include "gpu_file.h"
#include "gpu_time.h"

#define API __attribute__((visibility("default")))

/* Overridable by the build: the CUDA version that the driver speaks, 1000 * major + 10 * minor. */
#ifndef FAKE_CUDA_VERSION
#define FAKE_CUDA_VERSION 13000
#endif

struct device {
    gpu_file *gpu;
    const struct gpu_identity *identity;
    struct CUctx_st *primary;
    unsigned primary_users;
    unsigned primary_flags;
    bool primary_of_runtime; /* its handle was given out by the runtime's private table */
    unsigned contexts;       /* living ones, the primary included */
    unsigned users; /* contexts, and memory that needs none; the process holds a slot of the GPU while there are any */
};

/* Never freed, so that a stale handle can be told from a good one. */
struct CUctx_st {
    struct device *device;
    unsigned long long id;
    unsigned api_version;
    unsigned flags;
    unsigned users; /* of cuCtxAttach */
    bool alive;
    size_t limits[8];
    uint64_t last[GPU_QUEUES]; /* numbers of its latest work in each of the GPU's queues */
    struct CUctx_st *next;
};

/* What a handle other than a context is. */
enum kind {
    KIND_STREAM = 1,
    KIND_EVENT,
    KIND_MODULE,
    KIND_FUNCTION,
    KIND_LIBRARY,
    KIND_KERNEL,
    KIND_PHYSICAL,
    KIND_ARRAY,
    KIND_MIPMAPPED_ARRAY,
    KIND_TEXTURE,
    KIND_SURFACE,
    KIND_GRAPH,
    KIND_GRAPH_NODE,
    KIND_GRAPH_EXEC,
    KIND_USER_OBJECT,
};

/* The first member of every handle's struct. */
struct object {
    enum kind kind;
    struct CUctx_st *context; /* NULL: belongs to the process */
    struct object *previous, *next;
};

/*
 * Takes the driver's lock and finds the calling thread's context. Every entry point that needs one starts with this
 * and, where it answered CUDA_SUCCESS, ends with leave; otherwise the lock isn't held.
 */
CUresult enter(struct CUctx_st **context);

/* The same for what needs an initialised driver only. */
CUresult enter_driver(void);

/* As enter_driver, and answers wrong, the lock not held, unless handle is one of that kind. */
CUresult enter_with(enum kind kind, const void *handle, CUresult wrong);

/* Lets the lock go and answers result. */
CUresult leave(CUresult result);

/*
 * Makes the process a user of the device, once more; CUDA_ERROR_DEVICE_UNAVAILABLE if it cannot be. What holds memory
 * of the device is a user of it. With the lock held.
 */
CUresult device_use(struct device *device);
void device_unuse(struct device *device);

/* NULL unless ordinal is one of this process's devices. With the lock held. */
struct device *device_of(CUdevice ordinal);
CUdevice ordinal_of(const struct device *device);
size_t device_count(void);

/* Whether context is a handle that was given out and is alive. With the lock held. */
CUresult check_context(const struct CUctx_st *context);

/* Makes a zeroed handle of so many bytes, struct object first; NULL without memory. With the lock held. */
void *object_new(enum kind kind, size_t bytes, struct CUctx_st *context);
/* handle, if it is one of that kind, else NULL. */
void *object_find(enum kind kind, const void *handle);
void object_delete(void *object);
/* Deletes what belongs to a context that dies. */
void objects_delete_all(const struct CUctx_st *context);
/* Calls visit for all objects of a kind; visit may delete the one it is given. */
void objects_visit(enum kind kind, void (*visit)(void *object, void *data), void *data);

/* Frees what a module or a library, which is about to be deleted, holds. With the lock held. */
void image_free(struct object *object);

/* Sees to it that nothing stays behind of a stream or an event that is about to be deleted. With the lock held. */
void stream_free(struct object *object);
void event_free(struct object *object);

/* As enter, and sees to it that function is one: of a module, or a library's kernel cast to a function. */
CUresult enter_function(CUfunction function);
/* What enter_function asks for. With the lock held. */
bool is_function(CUfunction function);
/* The name of what enter_function let through. */
const char *function_name(CUfunction function);
/* What its image says of it, its parameters for one; NULL: nothing is known. */
struct image_kernel;
const struct image_kernel *function_image(CUfunction function);

/* Frees the memory that belongs to a context that dies. With the lock held. */
void memory_free_all(const struct CUctx_st *context);

/* CUDA_SUCCESS if stream is one of the default streams or a living handle. With the lock held. */
CUresult check_stream(CUstream stream);

/*
 * What graphs do when they run, and whether it can be done, which is asked with the lock held. Doing it takes the lock
 * where it needs it, and does nothing where the memory or the event has gone since.
 */
CUresult check_launch(unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX, unsigned blockDimY,
                      unsigned blockDimZ, unsigned sharedMemBytes);
CUresult check_copy(const CUDA_MEMCPY3D *copied);
void do_copy(const CUDA_MEMCPY3D *copied);
bool copies_from_host(const CUDA_MEMCPY3D *copied);
bool copies_to_host(const CUDA_MEMCPY3D *copied);
CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *filled);
void do_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *filled);

/*
 * The same as enter for a stream's own context, or the current one for a default stream; a stream's needs not be
 * current.
 */
CUresult enter_context_of(CUstream stream, struct CUctx_st **context);

/* Writes a line to what ALIQUOT_FAKE_LOG names ("stderr" or a file's path), if it is set. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The exported function for a name as cuGetProcAddress is asked for it. */
CUdriverProcAddressQueryResult entry_find(const char *name, int version, bool per_thread_stream, void **function);

#endif
