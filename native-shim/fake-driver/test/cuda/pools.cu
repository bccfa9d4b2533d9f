// Stream-ordered allocation, from the default pool and from a pool of the program.
#include "program.h"

static uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    uint64_t value = 0;
    MUST(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

int main() {
    cudaStream_t stream;
    cudaMemPool_t pool;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    char *memory, back[4] = "";
    MUST(cudaMallocAsync(&memory, 64 * MIB, stream));
    MUST(cudaMemsetAsync(memory, 'x', 3, stream));
    MUST(cudaMemcpyAsync(back, memory, 3, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    CHECK(strcmp(back, "xxx") == 0);
    CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 64 * MIB);
    CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= 64 * MIB);
    MUST(cudaFreeAsync(memory, stream));
    MUST(cudaStreamSynchronize(stream));
    CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
    CHECK(attribute(pool, cudaMemPoolAttrUsedMemHigh) == 64 * MIB);

    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t own;
    MUST(cudaMemPoolCreate(&own, &properties));
    uint64_t threshold = UINT64_MAX;
    MUST(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &threshold));
    MUST(cudaMallocFromPoolAsync(&memory, 32 * MIB, own, stream));
    MUST(cudaFreeAsync(memory, stream));
    MUST(cudaStreamSynchronize(stream));
    CHECK(attribute(own, cudaMemPoolAttrReservedMemCurrent) >= 32 * MIB); // the pool keeps the memory
    MUST(cudaMemPoolTrimTo(own, 0));
    CHECK(attribute(own, cudaMemPoolAttrReservedMemCurrent) == 0);
    MUST(cudaMallocFromPoolAsync(&memory, 32 * MIB, own, stream));
    MUST(cudaFree(memory)); // a plain free of stream-ordered memory
    MUST(cudaMalloc(&memory, MIB));
    MUST(cudaFreeAsync(memory, stream)); // a stream-ordered free of plain memory
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemPoolDestroy(own));
    ANSWERS(cudaErrorMemoryAllocation, cudaMallocAsync(&memory, (size_t)1 << 50, stream));
    return 0;
}
