// What an ordinary CUDA program does, through NVIDIA's runtime: `runtime MIB`, run where the limit is MIB. It exits with
// 0 if the limit is what it sees and what it gets, and a sentence on standard error otherwise.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static void must(cudaError_t result, const char *call) {
    if (result != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorName(result));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static void expect(bool truth, const char *what) {
    if (!truth) {
        fprintf(stderr, "not as expected: %s\n", what);
        exit(1);
    }
}

__global__ void add(int *numbers, int amount) { numbers[blockIdx.x * blockDim.x + threadIdx.x] += amount; }

int main(int, char **arguments) {
    const size_t mib = (size_t)1 << 20, limit = (size_t)atoi(arguments[1]) * mib;
    size_t unused, total;
    void *block, *other;
    MUST(cudaFree(nullptr));
    MUST(cudaMemGetInfo(&unused, &total));
    expect(total == limit, "cudaMemGetInfo's total is the limit");
    cudaDeviceProp properties;
    MUST(cudaGetDeviceProperties(&properties, 0));
    expect(properties.totalGlobalMem == limit, "cudaGetDeviceProperties' memory is the limit");
    MUST(cudaMalloc(&block, unused));
    expect(cudaMalloc(&other, 1) == cudaErrorMemoryAllocation, "not one byte more");
    expect(cudaGetLastError() == cudaErrorMemoryAllocation, "the error is an ordinary one");
    MUST(cudaFree(block));

    const int count = 1 << 16;
    int *numbers, *copy = (int *)calloc(count, sizeof *copy);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMallocAsync(&numbers, count * sizeof *numbers, stream));
    MUST(cudaMemsetAsync(numbers, 0, count * sizeof *numbers, stream));
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<count / 256, 256, 0, stream>>>(numbers, 1);
    add<<<count / 256, 256, 0, stream>>>(numbers, 2);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        MUST(cudaGraphLaunch(exec, stream));
    }
    MUST(cudaMemcpyAsync(copy, numbers, count * sizeof *numbers, cudaMemcpyDeviceToHost, stream));
    MUST(cudaFreeAsync(numbers, stream));
    MUST(cudaStreamSynchronize(stream));
    long sum = 0;
    for (int i = 0; i < count; i++) {
        sum += copy[i];
    }
    printf("{\"computed\": %s}\n", sum == 15L * count ? "true" : "false");
    return 0;
}
