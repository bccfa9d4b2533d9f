/* Modules, libraries and the functions in them. */
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a module and a library have in common. The names of the kernels are read from PTX text. Of a compiled image
 * (cubin, fat binary) nothing is read: it has every kernel that one asks for.
 */
struct image {
    struct object object;
    char *ptx; /* NULL: a compiled image */
};

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

void image_free(struct object *object) {
    free(((struct image *)object)->ptx);
}

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

const char *function_name(CUfunction function) {
    return function->object.kind == KIND_FUNCTION ? function->name : ((struct CUkern_st *)(void *)function)->name;
}

CUresult enter_function(CUfunction function) {
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
    *name = function_name(hfunc);
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
