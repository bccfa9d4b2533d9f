// limit plain|async MIB: exactly MIB can be allocated, in pieces of 100 MiB.
#include "program.h"

int main(int count, char **arguments) {
    CHECK(count == 3);
    bool async = strcmp(arguments[1], "async") == 0;
    size_t limit = strtoull(arguments[2], nullptr, 10), had = 0;
    for (void *memory; had <= limit; had += 100) {
        cudaError_t answer = async ? cudaMallocAsync(&memory, 100 * MIB, nullptr) : cudaMalloc(&memory, 100 * MIB);
        if (answer == cudaErrorMemoryAllocation)
            break;
        MUST(answer);
    }
    cudaGetLastError();
    fprintf(stderr, "%zu MiB\n", had);
    CHECK(had == limit / 100 * 100);
    size_t free_bytes, total;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    CHECK(total == limit * MIB && free_bytes < 100 * MIB);
    return 0;
}
