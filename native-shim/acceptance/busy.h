/*
 * A kernel that does a fixed amount of work. A kernel that ran for a fixed time by the clock would also count the time
 * slices of other tenants. A real GPU runs the number of iterations in the second parameter. The fake driver runs no
 * code; a kernel of this name takes the nanoseconds in the first parameter.
 */
#ifndef ACCEPTANCE_BUSY_H
#define ACCEPTANCE_BUSY_H

#include "driver.h"

static const char busy_ptx[] = ".version 6.0\n"
                               ".target sm_50\n"
                               ".address_size 64\n"
                               ".visible .entry aliquot_busy(.param .u64 ns, .param .u64 iterations)\n"
                               "{\n"
                               "    .reg .pred %p<3>;\n"
                               "    .reg .b32 %r<4>;\n"
                               "    .reg .b64 %rd<3>;\n"
                               "    ld.param.u64 %rd1, [iterations];\n"
                               "    mov.u32 %r1, %clock;\n" /* the compiler cannot precompute the result */
                               "    or.b32 %r1, %r1, 1;\n"
                               "next:\n"
                               "    shl.b32 %r2, %r1, 13;\n"  /* Marsaglia's xorshift: never 0; each step */
                               "    xor.b32 %r1, %r1, %r2;\n" /* depends on the one before */
                               "    shr.u32 %r2, %r1, 17;\n"
                               "    xor.b32 %r1, %r1, %r2;\n"
                               "    shl.b32 %r2, %r1, 5;\n"
                               "    xor.b32 %r1, %r1, %r2;\n"
                               "    sub.u64 %rd1, %rd1, 1;\n"
                               "    setp.ne.u64 %p1, %rd1, 0;\n"
                               "    @%p1 bra next;\n"
                               "    setp.eq.u32 %p2, %r1, 0;\n"
                               "    mov.u64 %rd2, 0;\n"
                               "    @%p2 st.global.u32 [%rd2], %r1;\n" /* never executed; keeps the loop alive */
                               "    ret;\n"
                               "}\n"
                               ".visible .entry nothing()\n"
                               "{\n"
                               "    ret;\n"
                               "}\n";

static inline CUfunction busy_load(const char *ptx, const char *name) {
    CUmodule module;
    CUfunction function;
    MUST(CALL(cuModuleLoadData, CUmodule *, const void *)(&module, ptx));
    MUST(CALL(cuModuleGetFunction, CUfunction *, CUmodule, const char *)(&function, module, name));
    return function;
}

static inline CUfunction busy_function(const char *name) {
    return busy_load(busy_ptx, name);
}

/* The number of multiprocessors. */
static inline unsigned busy_blocks(void) {
    int processors = 1;
    CALL(cuDeviceGetAttribute, int *, int, int)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    return (unsigned)processors;
}

typedef int busy_launcher(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                          void **, void **);

static inline void busy_launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                               void **parameters) {
    busy_launcher *launch = (busy_launcher *)driver_function("cuLaunchKernel");
    driver_must(launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
}

#endif
