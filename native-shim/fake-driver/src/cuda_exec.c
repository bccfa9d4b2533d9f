/*
 * Streams, events, modules and launches. A GPU without kernels has done everything the moment it is asked: a stream is
 * never busy, an event holds the time at which it was recorded, a launch checks its arguments and is over.
 */
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * What a module and a library have in common. The names of the kernels are read from PTX text. Of a compiled image
 * (cubin, fat binary) nothing is read: it has every kernel that one asks for.
 */
struct image {
    struct object object;
    char *ptx; /* NULL: a compiled image */
};

static void *handles; /* tree of all objects, by address */
static struct object *objects;

static int by_address(const void *a, const void *b) {
    return a < b ? -1 : a > b;
}

void *object_new(enum kind kind, size_t bytes, struct CUctx_st *context) {
    struct object *object = calloc(1, bytes);
    if (object == NULL)
        return NULL;
    if (tsearch(object, &handles, by_address) == NULL) {
        free(object);
        return NULL;
    }
    object->kind = kind;
    object->context = context;
    object->next = objects;
    if (objects != NULL)
        objects->previous = object;
    objects = object;
    return object;
}

void *object_find(enum kind kind, const void *handle) {
    struct object *const *node = handle != NULL ? tfind(handle, &handles, by_address) : NULL;
    return node != NULL && (*node)->kind == kind ? *node : NULL;
}

void object_delete(void *handle) {
    struct object *object = handle;
    tdelete(object, &handles, by_address);
    if (object->previous != NULL)
        object->previous->next = object->next;
    else
        objects = object->next;
    if (object->next != NULL)
        object->next->previous = object->previous;
    if (object->kind == KIND_MODULE || object->kind == KIND_LIBRARY)
        free(((struct image *)object)->ptx);
    free(object);
}

void objects_delete_all(const struct CUctx_st *context) {
    struct object *next;
    for (struct object *object = objects; object != NULL; object = next) {
        next = object->next;
        if (object->context == context)
            object_delete(object);
    }
}

void objects_visit(enum kind kind, void (*visit)(void *object, void *data), void *data) {
    struct object *next;
    for (struct object *object = objects; object != NULL; object = next) {
        next = object->next;
        if (object->kind == kind)
            visit(object, data);
    }
}

/* ---- streams ---- */

struct CUstream_st {
    struct object object;
    unsigned flags;
    int priority;
    unsigned long long id;
};

#define LEGACY_STREAM ((CUstream)1)     /* CU_STREAM_LEGACY */
#define PER_THREAD_STREAM ((CUstream)2) /* CU_STREAM_PER_THREAD */

static bool is_default(CUstream stream) {
    return stream == NULL || stream == LEGACY_STREAM || stream == PER_THREAD_STREAM;
}

CUresult check_stream(CUstream stream) {
    if (is_default(stream) || object_find(KIND_STREAM, stream) != NULL)
        return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult enter_stream(CUstream stream) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(stream);
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    static unsigned long long last_id = 2;
    struct CUctx_st *context;
    if (phStream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUstream_st *stream = object_new(KIND_STREAM, sizeof *stream, context);
    if (stream == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = ++last_id;
    *phStream = stream;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

API CUresult cuStreamDestroy_v2(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_default(hStream))
        return leave(CUDA_ERROR_INVALID_HANDLE);
    object_delete(hStream);
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamDestroy(CUstream hStream) {
    return cuStreamDestroy_v2(hStream);
}

API CUresult cuStreamQuery(CUstream hStream) {
    CUresult result = enter_stream(hStream);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuStreamSynchronize(CUstream hStream) {
    return cuStreamQuery(hStream);
}

API CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    if (priority == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *priority = is_default(hStream) ? 0 : hStream->priority;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = is_default(hStream) ? 0 : hStream->flags;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    if (streamId == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *streamId = is_default(hStream) ? (unsigned long long)(uintptr_t)hStream : hStream->id;
    return leave(CUDA_SUCCESS);
}

API CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    struct CUctx_st *context;
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS)
        *pctx = is_default(hStream) ? context : hStream->object.context;
    return leave(result);
}

API CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    struct CUctx_st *context;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = check_stream(hStream);
    if (result == CUDA_SUCCESS)
        *device = ordinal_of((is_default(hStream) ? context : hStream->object.context)->device);
    return leave(result);
}

API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    if (captureStatus == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return leave(CUDA_SUCCESS);
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = own;
    own = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

API CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
    (void)length;
    if (dptr == 0 || flags == 0 || flags > 4)
        return CUDA_ERROR_INVALID_VALUE;
    return cuStreamQuery(hStream);
}

API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags) {
    if (callback == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuStreamQuery(hStream);
    if (result == CUDA_SUCCESS)
        callback(hStream, CUDA_SUCCESS, userData);
    return result;
}

API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    if (fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuStreamQuery(hStream);
    if (result == CUDA_SUCCESS)
        fn(userData);
    return result;
}

/* ---- events ---- */

struct CUevent_st {
    struct object object;
    unsigned flags;
    bool recorded;
    struct timespec time;
};

API CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags) {
    struct CUctx_st *context;
    if (phEvent == NULL || Flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUevent_st *event = object_new(KIND_EVENT, sizeof *event, context);
    if (event == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    event->flags = Flags;
    *phEvent = event;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_event(CUevent event) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    return object_find(KIND_EVENT, event) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuEventDestroy_v2(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    if (result != CUDA_SUCCESS)
        return result;
    object_delete(hEvent);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventDestroy(CUevent hEvent) {
    return cuEventDestroy_v2(hEvent);
}

API CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_EVENT, hEvent) == NULL || check_stream(hStream) != CUDA_SUCCESS)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    clock_gettime(CLOCK_MONOTONIC, &hEvent->time);
    hEvent->recorded = true;
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
    return flags <= 1 ? cuEventRecord(hEvent, hStream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuEventQuery(CUevent hEvent) {
    CUresult result = enter_event(hEvent);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuEventSynchronize(CUevent hEvent) {
    return cuEventQuery(hEvent);
}

API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    if (Flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(hStream);
    if (result != CUDA_SUCCESS)
        return result;
    return leave(object_find(KIND_EVENT, hEvent) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    if (pMilliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_EVENT, hStart) == NULL || object_find(KIND_EVENT, hEnd) == NULL || !hStart->recorded ||
        !hEnd->recorded || ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *pMilliseconds = (float)((double)(hEnd->time.tv_sec - hStart->time.tv_sec) * 1e3 +
                             (double)(hEnd->time.tv_nsec - hStart->time.tv_nsec) / 1e6);
    return leave(CUDA_SUCCESS);
}

API CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

/* ---- modules and functions ---- */

struct CUmod_st {
    struct image image;
};

struct CUlib_st {
    struct image image;
};

struct CUfunc_st {
    struct object object;
    struct CUmod_st *module;
    struct CUkern_st *kernel;
    int shared_bytes;
    char name[];
};

struct CUkern_st {
    struct object object;
    struct CUlib_st *library;
    char name[];
};

/* PTX is text whose first directive is .version; cubins start with an ELF header, fat binaries with a magic number. */
static CUresult take_image(const char *image, char **ptx) {
    *ptx = NULL;
    const unsigned char *bytes = (const unsigned char *)image;
    for (size_t i = 0; bytes[i] != 0 && i < 1 << 20; i++) {
        if (strncmp(image + i, ".version", 8) == 0) {
            *ptx = strdup(image);
            return *ptx != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (bytes[i] < '\t' || bytes[i] > '~') {
            static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba}, wrapped[] = {0xb1, 0x43, 0x62, 0x46};
            if (memcmp(bytes, "\177ELF", 4) == 0 || memcmp(bytes, fat, 4) == 0 || memcmp(bytes, wrapped, 4) == 0)
                return CUDA_SUCCESS;
            break;
        }
    }
    return CUDA_ERROR_INVALID_IMAGE;
}

static bool is_name_part(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool has_kernel(const char *ptx, const char *name) {
    if (ptx == NULL)
        return true;
    size_t length = strlen(name);
    for (const char *entry = ptx; (entry = strstr(entry, ".entry")) != NULL;) {
        entry += strlen(".entry");
        entry += strspn(entry, " \t\r\n");
        if (strncmp(entry, name, length) == 0 && !is_name_part(entry[length]))
            return true;
    }
    return false;
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    char *text = NULL;
    size_t size = 0;
    while (size < (64u << 20)) {
        char *larger = realloc(text, size + 65536 + 1);
        if (larger == NULL)
            break;
        text = larger;
        size_t got = fread(text + size, 1, 65536, file);
        size += got;
        text[size] = '\0';
        if (got == 0) {
            fclose(file);
            return text;
        }
    }
    fclose(file);
    free(text);
    return NULL;
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                void **optionValues) {
    struct CUctx_st *context;
    char *ptx;
    if (module == NULL || image == NULL || (numOptions != 0 && (options == NULL || optionValues == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = take_image(image, &ptx);
    if (result != CUDA_SUCCESS)
        return leave(result);
    struct CUmod_st *made = object_new(KIND_MODULE, sizeof *made, context);
    if (made == NULL) {
        free(ptx);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->image.ptx = ptx;
    *module = made;
    return leave(CUDA_SUCCESS);
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

API CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    if (module == NULL || fname == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(fname);
    if (text == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = cuModuleLoadDataEx(module, text, 0, NULL, NULL);
    free(text);
    return result;
}

static void delete_if_of_module(void *object, void *module) {
    if (((struct CUfunc_st *)object)->module == module)
        object_delete(object);
}

API CUresult cuModuleUnload(CUmodule hmod) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_MODULE, hmod) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    objects_visit(KIND_FUNCTION, delete_if_of_module, hmod);
    object_delete(hmod);
    return leave(CUDA_SUCCESS);
}

API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

struct wanted {
    const char *name;
    const void *owner;
    struct CUctx_st *context;
    void *found;
};

static void match_function(void *object, void *data) {
    struct CUfunc_st *function = object;
    struct wanted *wanted = data;
    bool same = wanted->context == function->object.context &&
                (function->module == wanted->owner || function->kernel == wanted->owner);
    if (same && strcmp(function->name, wanted->name) == 0)
        wanted->found = function;
}

/* The same handle for the same name, as the real driver gives. */
static struct CUfunc_st *function_of(struct CUctx_st *context, struct CUmod_st *module, struct CUkern_st *kernel,
                                     const char *name) {
    struct wanted wanted = {name, module != NULL ? (void *)module : (void *)kernel, context, NULL};
    objects_visit(KIND_FUNCTION, match_function, &wanted);
    if (wanted.found != NULL)
        return wanted.found;
    struct CUfunc_st *function = object_new(KIND_FUNCTION, sizeof *function + strlen(name) + 1, context);
    if (function == NULL)
        return NULL;
    function->module = module;
    function->kernel = kernel;
    memcpy(function->name, name, strlen(name) + 1);
    return function;
}

API CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    struct CUctx_st *context;
    if (hfunc == NULL || name == NULL || name[0] == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_MODULE, hmod) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!has_kernel(hmod->image.ptx, name))
        return leave(CUDA_ERROR_NOT_FOUND);
    struct CUfunc_st *function = function_of(hmod->image.object.context, hmod, NULL, name);
    if (function == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *hfunc = function;
    return leave(CUDA_SUCCESS);
}

/* Global variables of modules are not modelled, so none is found. */
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    struct CUctx_st *context;
    (void)dptr, (void)bytes;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return leave(object_find(KIND_MODULE, hmod) != NULL ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
                               unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    char *ptx;
    if (library == NULL || code == NULL || (numJitOptions != 0 && (jitOptions == NULL || jitOptionsValues == NULL)) ||
        (numLibraryOptions != 0 && (libraryOptions == NULL || libraryOptionValues == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    result = take_image(code, &ptx);
    if (result != CUDA_SUCCESS)
        return leave(result);
    struct CUlib_st *made = object_new(KIND_LIBRARY, sizeof *made, NULL);
    if (made == NULL) {
        free(ptx);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->image.ptx = ptx;
    *library = made;
    return leave(CUDA_SUCCESS);
}

static void delete_if_of_kernel(void *object, void *kernel) {
    if (((struct CUfunc_st *)object)->kernel == kernel)
        object_delete(object);
}

static void delete_if_of_library(void *object, void *library) {
    struct CUkern_st *kernel = object;
    if (kernel->library != library)
        return;
    objects_visit(KIND_FUNCTION, delete_if_of_kernel, kernel);
    object_delete(kernel);
}

API CUresult cuLibraryUnload(CUlibrary library) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_LIBRARY, library) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    objects_visit(KIND_KERNEL, delete_if_of_library, library);
    object_delete(library);
    return leave(CUDA_SUCCESS);
}

static void match_kernel(void *object, void *data) {
    struct CUkern_st *kernel = object;
    struct wanted *wanted = data;
    if (kernel->library == wanted->owner && strcmp(kernel->name, wanted->name) == 0)
        wanted->found = kernel;
}

API CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    if (pKernel == NULL || name == NULL || name[0] == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_LIBRARY, library) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!has_kernel(library->image.ptx, name))
        return leave(CUDA_ERROR_NOT_FOUND);
    struct wanted wanted = {name, library, NULL, NULL};
    objects_visit(KIND_KERNEL, match_kernel, &wanted);
    struct CUkern_st *kernel = wanted.found;
    if (kernel == NULL) {
        kernel = object_new(KIND_KERNEL, sizeof *kernel + strlen(name) + 1, NULL);
        if (kernel == NULL)
            return leave(CUDA_ERROR_OUT_OF_MEMORY);
        kernel->library = library;
        memcpy(kernel->name, name, strlen(name) + 1);
    }
    *pKernel = kernel;
    return leave(CUDA_SUCCESS);
}

API CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct CUctx_st *context;
    if (pFunc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_KERNEL, kernel) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *function = function_of(context, NULL, kernel, kernel->name);
    if (function == NULL)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    *pFunc = function;
    return leave(CUDA_SUCCESS);
}

static CUresult enter_function(CUfunction function) {
    struct CUctx_st *context;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_FUNCTION, function) != NULL || object_find(KIND_KERNEL, function) != NULL)
        return CUDA_SUCCESS; /* launches take kernels too, cast to functions */
    return leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult function_attribute(int *value, CUfunction_attribute attribute) {
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 80;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 49152;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return (unsigned)attribute <= 15 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
}

API CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    if (pi == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(hfunc);
    return result == CUDA_SUCCESS ? leave(function_attribute(pi, attrib)) : result;
}

API CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    (void)value;
    if ((int)attrib < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || (int)attrib > 15)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(hfunc);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(hfunc);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    if (hmod == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(hfunc);
    if (result != CUDA_SUCCESS)
        return result;
    if (hfunc->object.kind != KIND_FUNCTION || hfunc->module == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *hmod = hfunc->module;
    return leave(CUDA_SUCCESS);
}

API CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(hfunc);
    if (result != CUDA_SUCCESS)
        return result;
    *name = hfunc->object.kind == KIND_FUNCTION ? hfunc->name : ((struct CUkern_st *)(void *)hfunc)->name;
    return leave(CUDA_SUCCESS);
}

API CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(function);
    if (result != CUDA_SUCCESS)
        return result;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return leave(CUDA_SUCCESS);
}

API CUresult cuFuncLoad(CUfunction function) {
    CUresult result = enter_function(function);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuKernelGetName(const char **name, CUkernel hfunc) {
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_KERNEL, hfunc) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *name = hfunc->name;
    return leave(CUDA_SUCCESS);
}

API CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    if (pi == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (device_of(dev) == NULL)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    return leave(object_find(KIND_KERNEL, kernel) != NULL ? function_attribute(pi, attrib) : CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    (void)val;
    if ((int)attrib < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || (int)attrib > 15)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS)
        return result;
    if (device_of(dev) == NULL)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    return leave(object_find(KIND_KERNEL, kernel) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                  size_t dynamicSMemSize, unsigned int flags) {
    if (numBlocks == NULL || blockSize <= 0 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(func);
    if (result != CUDA_SUCCESS)
        return result;
    size_t blocks = blockSize <= 1024 ? 2048 / (size_t)blockSize : 0;
    if (blocks > 32)
        blocks = 32;
    if (dynamicSMemSize != 0 && blocks > 167936 / dynamicSMemSize)
        blocks = 167936 / dynamicSMemSize;
    *numBlocks = (int)blocks;
    return leave(CUDA_SUCCESS);
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                         size_t dynamicSMemSize) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                       CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                       size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags) {
    (void)blockSizeToDynamicSMemSize, (void)dynamicSMemSize;
    struct CUctx_st *context;
    if (minGridSize == NULL || blockSize == NULL || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (object_find(KIND_FUNCTION, func) == NULL && object_find(KIND_KERNEL, func) == NULL)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    *blockSize = blockSizeLimit > 0 && blockSizeLimit < 1024 ? blockSizeLimit : 1024;
    *minGridSize = (int)context->device->identity->multiprocessors * (2048 / *blockSize < 32 ? 2048 / *blockSize : 32);
    return leave(CUDA_SUCCESS);
}

API CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                              CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                              int blockSizeLimit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                     dynamicSMemSize, blockSizeLimit, 0);
}

/* ---- launches ---- */

API CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                            unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                            unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    if (gridDimX == 0 || gridDimY == 0 || gridDimZ == 0 || blockDimX == 0 || blockDimY == 0 || blockDimZ == 0 ||
        gridDimX > 2147483647u || gridDimY > 65535 || gridDimZ > 65535 || blockDimX > 1024 || blockDimY > 1024 ||
        blockDimZ > 64 || blockDimX * blockDimY * blockDimZ > 1024 || sharedMemBytes > 166912 ||
        (kernelParams != NULL && extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(f);
    return result == CUDA_SUCCESS ? leave(check_stream(hStream)) : result;
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                          config->blockDimZ, config->sharedMemBytes, config->hStream, kernelParams, extra);
}

API CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams) {
    return cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                          kernelParams, NULL);
}

/* There is nothing to profile. */
API CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}
API CUresult cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
