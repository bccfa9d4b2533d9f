// Kernels launched by <<<>>>, and their attributes that the runtime reads from the program's image.
#include "program.h"

struct triple {
    char bytes[24];
};
__device__ int counter = 7;
__constant__ float table[16];
__device__ double zeros[1000];
__managed__ int everywhere = 3;

__global__ void plain(int *out) {
    *out = counter;
}

__global__ void __launch_bounds__(256) loaded(unsigned long long a, char b, triple c, float d, int *out) {
    __shared__ int shared[64];
    shared[threadIdx.x % 64] = b + c.bytes[3];
    __syncthreads();
    *out = (int)a + shared[0] + (int)(d + table[b] + zeros[b]) + everywhere;
}

int main() {
    int *out;
    MUST(cudaMalloc(&out, sizeof *out));
    plain<<<4, 128>>>(out);
    MUST(cudaGetLastError());
    loaded<<<dim3(2, 3, 4), dim3(8, 4, 2)>>>(1, 2, triple{}, 3, out);
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());

    // libcudart 12 and 13 translate the driver's CUDA_ERROR_INVALID_VALUE to different errors.
    plain<<<1, 2048>>>(out);
    ANSWERS(CUDART_VERSION < 13000 ? cudaErrorInvalidConfiguration : cudaErrorInvalidValue, cudaGetLastError());
    MUST(cudaDeviceSynchronize());

    cudaFuncAttributes attributes;
    MUST(cudaFuncGetAttributes(&attributes, loaded));
    CHECK(attributes.maxThreadsPerBlock == 256 && attributes.sharedSizeBytes == 256);
    CHECK(attributes.numRegs > 0 && attributes.numRegs < 64 && attributes.binaryVersion == 80);
    MUST(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    MUST(cudaFuncGetAttributes(&attributes, plain));
    CHECK(attributes.maxDynamicSharedSizeBytes == 65536 && attributes.maxThreadsPerBlock == 1024);
    int blocks = 0;
    MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 256, 0));
    CHECK(blocks == 8);

    int value = 0;
    MUST(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    CHECK(value == 7);
    value = 8;
    MUST(cudaMemcpyToSymbol(counter, &value, sizeof value));
    value = 0;
    MUST(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    CHECK(value == 8);
    float floats[16] = {1, 2, 3};
    MUST(cudaMemcpyToSymbol(table, floats, sizeof floats));
    void *address = nullptr;
    size_t size = 0;
    MUST(cudaGetSymbolAddress(&address, zeros));
    MUST(cudaGetSymbolSize(&size, zeros));
    CHECK(address != nullptr && size == sizeof zeros);
    double zero = 1;
    MUST(cudaMemcpy(&zero, address, sizeof zero, cudaMemcpyDeviceToHost));
    CHECK(zero == 0);
    CHECK(everywhere == 3);
    everywhere = 4;

    // A reset restores the initial state.
    MUST(cudaDeviceReset());
    MUST(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    CHECK(value == 7);
    plain<<<1, 1>>>(nullptr);
    MUST(cudaGetLastError());
    return 0;
}
