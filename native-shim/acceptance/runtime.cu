// An ordinary CUDA program that uses NVIDIA's runtime library: `runtime MIB`, in a container with a limit of MIB. It
// exits with 0 if the runtime reports the limit and enforces it; otherwise it prints the reason to standard error.
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

static void expect(bool condition, const char *expectation) {
    if (!condition) {
        fprintf(stderr, "expected that %s\n", expectation);
        exit(1);
    }
}

__global__ void add(int *numbers, int amount) { numbers[blockIdx.x * blockDim.x + threadIdx.x] += amount; }

int main(int, char **arguments) {
    const size_t mib = (size_t)1 << 20, limit = (size_t)atoi(arguments[1]) * mib;
    size_t available, total;
    void *block, *other;
    MUST(cudaFree(nullptr));
    MUST(cudaMemGetInfo(&available, &total));
    expect(total == limit, "cudaMemGetInfo reports the limit as total memory");
    cudaDeviceProp properties;
    MUST(cudaGetDeviceProperties(&properties, 0));
    expect(properties.totalGlobalMem == limit, "cudaGetDeviceProperties reports the limit as totalGlobalMem");
    MUST(cudaMalloc(&block, available));
    expect(cudaMalloc(&other, 1) == cudaErrorMemoryAllocation,
           "one byte beyond the limit fails with cudaErrorMemoryAllocation");
    expect(cudaGetLastError() == cudaErrorMemoryAllocation, "cudaGetLastError returns cudaErrorMemoryAllocation");
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
