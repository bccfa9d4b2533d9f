// images FOLDER: loads nvcc's output for launch.cu from files and from memory, as modules and as libraries.
#include "program.h"

#include <cstdint>
#include <string>

static std::string bytes_of(const std::string &path) {
    std::string bytes;
    FILE *file = fopen(path.c_str(), "rb");
    CHECK(file != nullptr);
    for (int byte; (byte = fgetc(file)) != EOF;)
        bytes.push_back((char)byte);
    fclose(file);
    return bytes;
}

static const char *const LOADED = "_Z6loadedyc6triplefPi";

static void check_function(CUfunction function) {
    static const size_t expected[][2] = {{0, 8}, {8, 1}, {9, 24}, {36, 4}, {40, 8}};
    auto parameter = DRIVER(cuFuncGetParamInfo, 12040);
    for (size_t i = 0; i < 5; i++) {
        size_t offset = 0, size = 0;
        ANSWERS(CUDA_SUCCESS, parameter(function, i, &offset, &size));
        CHECK(offset == expected[i][0] && size == expected[i][1]);
    }
}

static void check_module(CUmodule module) {
    CUfunction functions[3] = {}, again;
    unsigned count = 0;
    ANSWERS(CUDA_SUCCESS, DRIVER(cuModuleGetFunctionCount, 12040)(&count, module));
    CHECK(count == 2);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuModuleEnumerateFunctions, 12040)(functions, 3, module));
    CHECK(functions[0] != nullptr && functions[1] != nullptr && functions[2] == nullptr);
    auto function = DRIVER(cuModuleGetFunction, 2000);
    ANSWERS(CUDA_SUCCESS, function(&again, module, LOADED));
    CHECK(again == functions[0] || again == functions[1]);
    check_function(again);
    ANSWERS(CUDA_ERROR_NOT_FOUND, function(&again, module, "no_such_kernel"));
    auto global = (CUresult(*)(CUdeviceptr *, size_t *, CUmodule, const char *))
        driver_function<void *>("cuModuleGetGlobal", 3020);
    CUdeviceptr address = 0;
    size_t size = 0;
    int value = 0;
    ANSWERS(CUDA_SUCCESS, global(&address, &size, module, "counter"));
    CHECK(size == sizeof value);
    MUST(cudaMemcpy(&value, (void *)address, sizeof value, cudaMemcpyDeviceToHost));
    CHECK(value == 7);
    ANSWERS(CUDA_SUCCESS, global(nullptr, &size, module, "zeros"));
    CHECK(size == 8000);
    ANSWERS(CUDA_ERROR_NOT_FOUND, global(&address, &size, module, "no_such_variable"));
}

static void check_library(CUlibrary library) {
    CUkernel kernel, kernels[2];
    CUfunction function;
    CUmodule module;
    CUdeviceptr address;
    size_t size = 0;
    unsigned count = 0;
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetKernelCount, 12040)(&count, library));
    CHECK(count == 2);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryEnumerateKernels, 12040)(kernels, 2, library));
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetKernel, 12000)(&kernel, library, LOADED));
    CHECK(kernel == kernels[0] || kernel == kernels[1]);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuKernelGetFunction, 12000)(&function, kernel));
    check_function(function);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetModule, 12000)(&module, library));
    check_module(module);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetGlobal, 12000)(&address, &size, library, "zeros"));
    CHECK(size == 8000);
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetManaged, 12000)(&address, &size, library, "everywhere"));
    CHECK(size == sizeof(int) && *(int *)address == 3);
    ANSWERS(CUDA_ERROR_NOT_FOUND, DRIVER(cuLibraryGetManaged, 12000)(&address, &size, library, "counter"));
    ANSWERS(CUDA_ERROR_NOT_FOUND, DRIVER(cuLibraryGetKernel, 12000)(&kernel, library, "no_such_kernel"));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    MUST(cudaFree(nullptr));
    size_t before, during, after, total;
    MUST(cudaMemGetInfo(&before, &total));
    auto load = DRIVER(cuModuleLoad, 2000);
    auto load_data = DRIVER(cuModuleLoadData, 2000);
    auto unload = DRIVER(cuModuleUnload, 2000);
    auto load_library = DRIVER(cuLibraryLoadFromFile, 12000);
    auto load_library_data = DRIVER(cuLibraryLoadData, 12000);
    auto unload_library = DRIVER(cuLibraryUnload, 12000);
    for (const char *form : {"cubin", "fatbin", "ptx", "zstd", "lz4"}) {
        std::string path = std::string(arguments[1]) + "/launch." + form, bytes = bytes_of(path);
        CUmodule module;
        CUlibrary library;
        ANSWERS(CUDA_SUCCESS, load(&module, path.c_str()));
        check_module(module);
        MUST(cudaMemGetInfo(&during, &total));
        CHECK(before - during >= 8000); // the global variables take memory
        ANSWERS(CUDA_SUCCESS, unload(module));
        ANSWERS(CUDA_ERROR_INVALID_HANDLE, unload(module));
        ANSWERS(CUDA_SUCCESS, load_data(&module, bytes.c_str()));
        check_module(module);
        ANSWERS(CUDA_SUCCESS, unload(module));
        ANSWERS(CUDA_SUCCESS, load_library(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
        check_library(library);
        ANSWERS(CUDA_SUCCESS, unload_library(library));
        ANSWERS(CUDA_SUCCESS,
                load_library_data(&library, bytes.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
        check_library(library);
        ANSWERS(CUDA_SUCCESS, unload_library(library));
        MUST(cudaMemGetInfo(&after, &total));
        CHECK(after == before);
    }
    CUmodule module;
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, load(&module, (std::string(arguments[1]) + "/newer.cubin").c_str()));
    ANSWERS(CUDA_ERROR_FILE_NOT_FOUND, load(&module, (std::string(arguments[1]) + "/none").c_str()));
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, load_data(&module, "nonsense"));
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, load_data(&module, "\177ELF and so on, but far too short a text for a header"));
    return 0;
}
