/* A kernel of the fake driver, which runs for as long as its parameter says. */
#ifndef ALIQUOT_TEST_KERNEL_H
#define ALIQUOT_TEST_KERNEL_H

#include "sandbox.h"

static void *kernel;

/* Loads the kernel into the current context. */
static void load_kernel(void) {
    static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry aliquot_busy(.param .u64 nanoseconds)\n{\n    ret;\n}\n";
    void *module = NULL;
    CHECK_EQUAL(CALL(cuModuleLoadData, void **, const void *)(&module, image), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuModuleGetFunction, void **, void *, const char *)(&kernel, module, "aliquot_busy"),
                CUDA_SUCCESS);
}

static CUresult launch(CUstream stream, unsigned blocks, uint64_t nanoseconds) {
    void *parameters[] = {&nanoseconds};
    return CALL(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                void **, void **)(kernel, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

#endif
