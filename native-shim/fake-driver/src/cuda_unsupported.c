/*
 * Functions that NVIDIA's libraries look up when they start, and do without if a call fails. A library whose lookup
 * fails does not start. Each has an address of its own, since lookups return it.
 */
#include "cuda_driver.h"

static CUresult not_supported(const char *symbol) {
    log_line("%s is not supported", symbol);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Their parameters do not matter, so the C names differ from the symbols, for which cuda.h has prototypes. */
#define UNSUPPORTED(symbol)                                                                                            \
    API CUresult unsupported_##symbol(void) __asm__(#symbol);                                                          \
    API CUresult unsupported_##symbol(void) {                                                                          \
        return not_supported(#symbol);                                                                                 \
    }

/* cuBLAS */
UNSUPPORTED(cuGraphExecKernelNodeSetParams)
UNSUPPORTED(cuGraphExecKernelNodeSetParams_v2)
UNSUPPORTED(cuLinkAddData)
UNSUPPORTED(cuLinkAddData_v2)
UNSUPPORTED(cuLinkAddFile)
UNSUPPORTED(cuLinkAddFile_v2)
UNSUPPORTED(cuLinkComplete)
UNSUPPORTED(cuLinkCreate)
UNSUPPORTED(cuLinkCreate_v2)
UNSUPPORTED(cuLinkDestroy)
UNSUPPORTED(cuTensorMapEncodeTiled)
UNSUPPORTED(cuMemPrefetchAsync)
UNSUPPORTED(cuMemPrefetchAsync_v2)
UNSUPPORTED(cuStreamBatchMemOp)
UNSUPPORTED(cuStreamBatchMemOp_v2)
UNSUPPORTED(cuStreamWaitValue32)
UNSUPPORTED(cuStreamWaitValue32_v2)
