// images FOLDER: loads nvcc's output for launch.cu, as modules and as libraries.
#include "program.h"

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

static void check_module(CUmodule module) {
    CUfunction first, again;
    auto function = DRIVER(cuModuleGetFunction, 2000);
    ANSWERS(CUDA_SUCCESS, function(&first, module, LOADED));
    ANSWERS(CUDA_SUCCESS, function(&again, module, LOADED));
    CHECK(again == first);
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
    CUkernel kernel;
    CUfunction function;
    CUdeviceptr address;
    size_t size = 0;
    ANSWERS(CUDA_SUCCESS, DRIVER(cuLibraryGetKernel, 12000)(&kernel, library, LOADED));
    ANSWERS(CUDA_SUCCESS, DRIVER(cuKernelGetFunction, 12000)(&function, kernel));
    CHECK(function != nullptr);
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
    auto load_data = DRIVER(cuModuleLoadData, 2000);
    auto unload = DRIVER(cuModuleUnload, 2000);
    auto load_library_data = DRIVER(cuLibraryLoadData, 12000);
    auto unload_library = DRIVER(cuLibraryUnload, 12000);
    for (const char *form : {"cubin", "fatbin", "ptx", "zstd", "lz4"}) {
        std::string bytes = bytes_of(std::string(arguments[1]) + "/launch." + form);
        CUmodule module;
        CUlibrary library;
        ANSWERS(CUDA_SUCCESS, load_data(&module, bytes.c_str()));
        check_module(module);
        MUST(cudaMemGetInfo(&during, &total));
        CHECK(before - during >= 8000); // the global variables take memory
        ANSWERS(CUDA_SUCCESS, unload(module));
        ANSWERS(CUDA_ERROR_INVALID_HANDLE, unload(module));
        ANSWERS(CUDA_SUCCESS,
                load_library_data(&library, bytes.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
        check_library(library);
        ANSWERS(CUDA_SUCCESS, unload_library(library));
        MUST(cudaMemGetInfo(&after, &total));
        CHECK(after == before);
    }
    CUmodule module;
    std::string newer = bytes_of(std::string(arguments[1]) + "/newer.cubin");
    ANSWERS(CUDA_ERROR_NO_BINARY_FOR_GPU, load_data(&module, newer.c_str()));
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, load_data(&module, "nonsense"));
    ANSWERS(CUDA_ERROR_INVALID_IMAGE, load_data(&module, "\177ELF and so on, but far too short a text for a header"));
    return 0;
}
