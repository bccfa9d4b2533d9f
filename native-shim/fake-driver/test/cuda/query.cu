// query NAME MIB MULTIPROCESSORS: checks these properties of the first device.
#include "program.h"

int main(int count, char **arguments) {
    CHECK(count == 4);
    int devices = 0, version = 0;
    MUST(cudaGetDeviceCount(&devices));
    CHECK(devices >= 1);
    MUST(cudaRuntimeGetVersion(&version));
    CHECK(version == CUDART_VERSION);
    MUST(cudaDriverGetVersion(&version));
    CHECK(version >= CUDART_VERSION);
    cudaDeviceProp properties;
    MUST(cudaGetDeviceProperties(&properties, 0));
    CHECK(strcmp(properties.name, arguments[1]) == 0);
    CHECK(properties.totalGlobalMem == strtoull(arguments[2], nullptr, 10) * MIB);
    CHECK(properties.multiProcessorCount == atoi(arguments[3]));
    CHECK(properties.major == 8 && properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
    char bus[16];
    MUST(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    ANSWERS(cudaErrorInvalidDevice, cudaSetDevice(devices));
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    size_t free_bytes, total;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    CHECK(total == properties.totalGlobalMem && free_bytes <= total);
    return 0;
}
