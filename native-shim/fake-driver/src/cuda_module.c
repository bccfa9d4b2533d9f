/* Modules, libraries, and the functions and variables in them. */
#define _GNU_SOURCE
#include "cuda_alloc.h"
#include "cuda_capture.h"
#include "cuda_function.h"
#include "gpu_profile.h"
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A CUDA module. A module that was loaded directly owns its image. A library has one module in each context, which
 * uses the library's image.
 */
struct CUmod_st {
    struct object object;
    struct CUlib_st *library;
    struct image own_image;
    const struct image *image;
    uintptr_t globals, managed;       /* its variables, stored one after another; 0: none */
    struct kernel_handle **functions; /* by index in the image; NULL until first requested */
};

struct CUlib_st {
    struct object object;
    struct image image;
    uintptr_t managed;
    struct kernel_handle **kernels; /* by index in the image; NULL until first requested */
};

static void free_globals(uintptr_t base) {
    if (base != 0) {
        memory_free_globals(memory_find(base));
    }
}

static void library_free(void *object) {
    struct CUlib_st *library = object;
    free_globals(library->managed);
    image_clear(&library->image);
    free(library->kernels);
}

static void module_free(void *object) {
    struct CUmod_st *module = object;
    free_globals(module->managed); /* the context or module_delete() frees module->globals */
    image_clear(&module->own_image);
    free(module->functions);
}

/* ---- loading ---- */

static CUresult read_image(struct image *image, const void *start, size_t bytes, const struct device *device) {
    const struct gpu_identity *gpu = device->identity;
    switch (image_read(image, start, bytes, 10 * gpu->compute_major + gpu->compute_minor)) {
    case IMAGE_READ:
        return CUDA_SUCCESS;
    case IMAGE_OF_OTHER_DEVICES:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case IMAGE_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/* The offset of a variable from the first one of its kind. Each variable has the alignment of an allocation. */
static size_t global_offset(const struct image *image, const struct image_global *global, bool managed) {
    size_t offset = 0;
    for (const struct image_global *other = image->globals; other != global; other++) {
        if (other->managed == managed) {
            offset += (other->bytes + 255) & ~(size_t)255;
        }
    }
    return offset;
}

/*
 * Allocates memory for an image's managed or other variables and sets their initial values; *base is 0 if there are
 * none. Managed variables are host memory and belong to no context.
 */
static CUresult allocate_globals(uintptr_t *base, const struct image *image, bool managed, struct CUctx_st *context) {
    const struct image_global *end = image->globals + image->global_count;
    size_t bytes = global_offset(image, end, managed);
    if (!managed) {
        bytes += image->kernel_count * gpu_profile()->code_bytes; /* behind the variables */
    }
    *base = 0;
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    const struct allocation *memory = memory_allocate_globals(managed ? NULL : context, bytes);
    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *base = memory->base;
    for (const struct image_global *global = image->globals; global != end; global++) {
        if (global->managed == managed && global->initial != NULL) {
            memcpy((void *)(*base + global_offset(image, global, managed)), global->initial, global->bytes);
        }
    }
    return CUDA_SUCCESS;
}

/* The variables and the code of a module take memory of its device. */
static CUresult module_new(struct CUmod_st **made, struct CUctx_st *context, struct CUlib_st *library,
                           struct image *image) {
    struct CUmod_st *module = object_new(KIND_MODULE, sizeof *module, context);
    if (module == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->object.end = module_free;
    module->library = library;
    module->image = library != NULL ? image : &module->own_image;
    module->functions = calloc(image->kernel_count + 1, sizeof(struct kernel_handle *));
    CUresult result = module->functions != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = allocate_globals(&module->globals, image, false, context);
    }
    if (result == CUDA_SUCCESS && library == NULL) {
        result = allocate_globals(&module->managed, image, true, NULL);
    }
    if (result != CUDA_SUCCESS) {
        free_globals(module->globals);
        object_delete(module);
        return result;
    }
    if (library == NULL) {
        module->own_image = *image;
    }
    *made = module;
    return CUDA_SUCCESS;
}

static void delete_handle_of(void *object, void *owner) {
    if (((struct kernel_handle *)object)->owner == owner) {
        object_delete(object);
    }
}

static void module_delete(struct CUmod_st *module) {
    objects_for_each(KIND_FUNCTION, delete_handle_of, module);
    free_globals(module->globals);
    object_delete(module);
}

static CUresult load_module(CUmodule *module, const void *start, size_t bytes) {
    struct CUctx_st *context;
    struct image image;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_check_unsafe_call();
    if (result == CUDA_SUCCESS) {
        result = read_image(&image, start, bytes, context->device);
    }
    if (result != CUDA_SUCCESS) {
        return leave(result);
    }
    result = module_new(module, context, NULL, &image);
    if (result != CUDA_SUCCESS) {
        image_clear(&image);
    }
    return leave(result);
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                void **optionValues) {
    if (module == NULL || image == NULL || (numOptions != 0 && (options == NULL || optionValues == NULL))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return load_module(module, image, SIZE_MAX);
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
    return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

API CUresult cuModuleUnload(CUmodule hmod) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_MODULE, hmod) == NULL || hmod->library != NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    module_delete(hmod);
    return leave(CUDA_SUCCESS);
}

/* The functions and variables of a library are created when a context first requests one of them. */
API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* A library belongs to no device. Its image is the one for the first device that can run any of its code. */
static CUresult load_library(CUlibrary *library, const void *start, size_t bytes) {
    CUresult result = enter_driver();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct CUlib_st *made = object_new(KIND_LIBRARY, sizeof *made, NULL);
    if (made == NULL) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    made->object.end = library_free;
    for (size_t i = 0; i < device_count(); i++) {
        if ((result = read_image(&made->image, start, bytes, device_from_ordinal((CUdevice)i))) !=
            CUDA_ERROR_NO_BINARY_FOR_GPU) {
            break;
        }
    }
    if (result == CUDA_SUCCESS &&
        (made->kernels = calloc(made->image.kernel_count + 1, sizeof(struct kernel_handle *))) == NULL) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = allocate_globals(&made->managed, &made->image, true, NULL);
    }
    if (result == CUDA_SUCCESS) {
        *library = made;
    } else {
        object_delete(made);
    }
    return leave(result);
}

static bool are_options_valid(const void *options, void **values, unsigned count) {
    return count == 0 || (options != NULL && values != NULL);
}

API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
                               unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions) {
    if (library == NULL || code == NULL || !are_options_valid(jitOptions, jitOptionsValues, numJitOptions) ||
        (numLibraryOptions != 0 && libraryOptions == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (void)libraryOptionValues; /* NULL is allowed for options without values */
    return load_library(library, code, SIZE_MAX);
}

static void delete_module_of_library(void *object, void *library) {
    struct CUmod_st *module = object;
    if (module->library == library) {
        module_delete(module);
    }
}

API CUresult cuLibraryUnload(CUlibrary library) {
    CUresult result = enter_with_handle(KIND_LIBRARY, library, CUDA_ERROR_INVALID_HANDLE);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    objects_for_each(KIND_MODULE, delete_module_of_library, library);
    objects_for_each(KIND_KERNEL, delete_handle_of, library);
    object_delete(library);
    return leave(CUDA_SUCCESS);
}

/* ---- functions and variables of modules ---- */

/*
 * Returns the same handle for the same name, as NVIDIA's driver does. slots holds the handles of the image's kernels.
 */
static CUresult find_or_create_handle(struct kernel_handle **handle, enum object_kind kind, const char *name,
                                      void *owner, struct CUctx_st *context, const struct image *image,
                                      struct kernel_handle **slots) {
    const struct image_kernel *kernel = image_kernel(image, name);
    if (kernel == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    struct kernel_handle **slot = &slots[kernel - image->kernels];
    if (*slot == NULL) {
        *slot = object_new(kind, sizeof **slot, context);
        if (*slot == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        (*slot)->owner = owner;
        (*slot)->image = kernel;
    }
    *handle = *slot;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, struct CUmod_st *module, const char *name) {
    struct kernel_handle *handle = NULL;
    CUresult result = find_or_create_handle(&handle, KIND_FUNCTION, name, module, module->object.context, module->image,
                                            module->functions);
    if (result == CUDA_SUCCESS) {
        *function = (CUfunction)handle;
    }
    return result;
}

static CUresult enter_module(CUmodule module) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return object_find(KIND_MODULE, module) != NULL ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

API CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
    if (hfunc == NULL || name == NULL || name[0] == '\0') {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_module(hmod);
    return result == CUDA_SUCCESS ? leave(get_function(hfunc, hmod, name)) : result;
}

/* Either output pointer may be NULL. */
static CUresult get_global(CUdeviceptr *address, size_t *bytes, const struct CUmod_st *module, const char *name) {
    const struct image_global *global = image_global(module->image, name);
    if (global == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    uintptr_t managed = module->library != NULL ? module->library->managed : module->managed;
    if (address != NULL) {
        *address =
            (global->managed ? managed : module->globals) + global_offset(module->image, global, global->managed);
    }
    if (bytes != NULL) {
        *bytes = global->bytes;
    }
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name) {
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_module(hmod);
    return result == CUDA_SUCCESS ? leave(get_global(dptr, bytes, hmod, name)) : result;
}

/* ---- kernels and variables of libraries ---- */

static CUresult enter_library(CUlibrary library) {
    return enter_with_handle(KIND_LIBRARY, library, CUDA_ERROR_INVALID_HANDLE);
}

static CUresult get_kernel(CUkernel *kernel, struct CUlib_st *library, const char *name) {
    struct kernel_handle *handle = NULL;
    CUresult result =
        find_or_create_handle(&handle, KIND_KERNEL, name, library, NULL, &library->image, library->kernels);
    if (result == CUDA_SUCCESS) {
        *kernel = (CUkernel)handle;
    }
    return result;
}

API CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
    if (pKernel == NULL || name == NULL || name[0] == '\0') {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_library(library);
    return result == CUDA_SUCCESS ? leave(get_kernel(pKernel, library, name)) : result;
}

struct module_search {
    const struct CUlib_st *library;
    const struct CUctx_st *context;
    struct CUmod_st *found;
};

static void match_module(void *object, void *data) {
    struct CUmod_st *module = object;
    struct module_search *search = data;
    if (module->library == search->library && module->object.context == search->context) {
        search->found = module;
    }
}

/* Returns a library's module in a context; creates it at the first request. */
static CUresult get_library_module(struct CUmod_st **module, struct CUlib_st *library, struct CUctx_st *context) {
    struct module_search search = {library, context, NULL};
    objects_for_each(KIND_MODULE, match_module, &search);
    *module = search.found;
    return search.found != NULL ? CUDA_SUCCESS : module_new(module, context, library, &library->image);
}

/* Enters the current context and returns the library's module there. */
static CUresult enter_library_module(CUlibrary library, struct CUmod_st **module) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_LIBRARY, library) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = get_library_module(module, library, context);
    return result == CUDA_SUCCESS ? result : leave(result);
}

API CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
    struct CUmod_st *module;
    if (pMod == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_library_module(library, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pMod = module;
    return leave(CUDA_SUCCESS);
}

API CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    struct CUmod_st *module;
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_library_module(library, &module);
    return result == CUDA_SUCCESS ? leave(get_global(dptr, bytes, module, name)) : result;
}

/* Managed variables need no context. */
API CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_library(library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct image_global *global = image_global(&library->image, name);
    if (global == NULL || !global->managed) {
        return leave(CUDA_ERROR_NOT_FOUND);
    }
    if (dptr != NULL) {
        *dptr = library->managed + global_offset(&library->image, global, true);
    }
    if (bytes != NULL) {
        *bytes = global->bytes;
    }
    return leave(CUDA_SUCCESS);
}

API CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
    struct CUctx_st *context;
    struct CUmod_st *module;
    if (pFunc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_find(KIND_KERNEL, kernel) == NULL) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = get_library_module(&module, kernel->handle.owner, context);
    return leave(result == CUDA_SUCCESS ? get_function(pFunc, module, kernel->handle.image->name) : result);
}

static CUresult enter_kernel(CUkernel kernel) {
    return enter_with_handle(KIND_KERNEL, kernel, CUDA_ERROR_INVALID_HANDLE);
}

/* ---- function properties ---- */

static CUresult enter_function(CUfunction function) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return is_function(function) ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult get_function_attribute(int *value, unsigned attribute, const struct kernel_handle *handle) {
    const struct function_settings *settings = &handle->settings;
    const struct image_kernel *kernel = handle->image;
    const struct image *image = handle->object.kind == KIND_KERNEL ? &((const struct CUlib_st *)handle->owner)->image
                                                                   : ((const struct CUmod_st *)handle->owner)->image;
    if (attribute >= sizeof settings->values / sizeof settings->values[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((settings->set & 1u << attribute) != 0) {
        *value = settings->values[attribute];
        return CUDA_SUCCESS;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = kernel->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)kernel->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)kernel->constant_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = kernel->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)image->architecture;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 49152;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult set_function_attribute(unsigned attribute, int value, struct function_settings *settings) {
    if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        attribute >= sizeof settings->values / sizeof settings->values[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    settings->set |= 1u << attribute;
    settings->values[attribute] = value;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_function(hfunc);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return leave(get_function_attribute(pi, attrib, &hfunc->handle));
}

API CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_function(hfunc);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *name = function_name(hfunc);
    return leave(CUDA_SUCCESS);
}

API CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    CUresult result = enter_function(hfunc);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return leave(set_function_attribute(attrib, value, &hfunc->handle.settings));
}

API CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_function(hfunc);
    return result == CUDA_SUCCESS ? leave(result) : result;
}

API CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_kernel(kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device_from_ordinal(dev) == NULL) {
        return leave(CUDA_ERROR_INVALID_DEVICE);
    }
    return leave(get_function_attribute(pi, attrib, &kernel->handle));
}

API CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    CUresult result = enter_kernel(kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return leave(device_from_ordinal(dev) != NULL ? set_function_attribute(attrib, val, &kernel->handle.settings)
                                                  : CUDA_ERROR_INVALID_DEVICE);
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                  size_t dynamicSMemSize, unsigned int flags) {
    if (numBlocks == NULL || blockSize <= 0 || flags > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_function(func);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t blocks = blockSize <= 1024 ? 2048 / (size_t)blockSize : 0;
    if (blocks > 32) {
        blocks = 32;
    }
    if (dynamicSMemSize != 0 && blocks > 167936 / dynamicSMemSize) {
        blocks = 167936 / dynamicSMemSize;
    }
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
    if (minGridSize == NULL || blockSize == NULL || flags > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!is_function(func)) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
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
