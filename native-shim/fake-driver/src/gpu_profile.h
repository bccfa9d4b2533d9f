/*
 * Facts about real GPUs that vary by model and driver, or are not known. The environment variable ALIQUOT_FAKE_PROFILE
 * sets them: a name (below), or items separated by commas, or both. A later item overrides an earlier one.
 *
 *     connections=N   hardware queues that streams share (1 to 32); work in one queue runs in order
 *     events=own      an event completes only after all earlier kernels of its process, on any stream
 *     switch=US       what a switch between processes costs, in microseconds
 *     drift=PPM       how much faster the GPU's clock runs than the host's, in parts per million; may be negative
 *     late=MIN-MAX    an event completes late by a time in this range, in microseconds
 *     lazy=MIN-MAX    the first launch of a kernel takes the host a time in this range, in milliseconds
 *     pages=MIB       device memory is taken in pages of this size; allocations below it share pages
 *     code=KIB        GPU memory that each kernel of a loaded module takes
 *     context=MIB     what a process's contexts take, unless the GPU's file says more
 *     warps=N         warps that keep a multiprocessor busy (1 to 64): kernels with fewer overlap (gpu_time.h)
 *     import=same     cuMemImportFromShareableHandle returns the handle of an own allocation, if it is one
 *
 *     kind      nothing of the above: each stream has its own queue, a switch costs 5 us
 *     hopper    connections=8,switch=50,drift=20,late=5-10,lazy=5-20,pages=2,code=16,context=500,
 *               warps=16
 *     nastiest  connections=8,events=own,switch=150,drift=200,late=5-20,lazy=5-100,pages=2,code=64,
 *               context=500,import=same,warps=16
 *
 * All figures are a model: none was measured. 16 warps hide the latency of dependent instructions: 4 schedulers, and 4
 * cycles between two of them (CUDA C++ Programming Guide, "Multiprocessor Level", compute capability 5.0 to 9.0).
 * CUDA_DEVICE_MAX_CONNECTIONS sets the number of queues, too, and overrides the profile.
 */
#ifndef ALIQUOT_FAKE_GPU_PROFILE_H
#define ALIQUOT_FAKE_GPU_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

struct gpu_profile {
    unsigned connections; /* 0: each stream has its own queue */
    bool events_after_own;
    uint64_t switch_ns;
    double clock_rate; /* of the GPU's clock against the host's */
    uint64_t late_min_ns, late_max_ns;
    uint64_t lazy_min_ns, lazy_max_ns;
    uint64_t page_bytes; /* 0: memory is taken to the byte */
    uint64_t code_bytes; /* of a kernel */
    uint64_t context_bytes;
    bool own_import_is_same;
    unsigned warps; /* 0: a block fills a multiprocessor */
};

/* The profile of this process. The environment is read at the first call. Unknown items are ignored. */
const struct gpu_profile *gpu_profile(void);

/* A number between two others, for `late` and `lazy`; the same sequence in each run. Not for concurrent calls. */
uint64_t gpu_profile_between(uint64_t min, uint64_t max);

#endif
