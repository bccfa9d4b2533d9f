// Virtual memory management through driver functions in a program that uses the runtime.
#include "program.h"

int main() {
    MUST(cudaFree(nullptr));
    auto granularity = DRIVER(cuMemGetAllocationGranularity, 10020);
    auto reserve = DRIVER(cuMemAddressReserve, 10020);
    auto release_addresses = DRIVER(cuMemAddressFree, 10020);
    auto create = DRIVER(cuMemCreate, 10020);
    auto release = DRIVER(cuMemRelease, 10020);
    auto map = DRIVER(cuMemMap, 10020);
    auto unmap = DRIVER(cuMemUnmap, 10020);
    auto set_access = DRIVER(cuMemSetAccess, 10020);

    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t piece = 0, before, during, after, total;
    MUST(granularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(piece != 0 && (piece & (piece - 1)) == 0);
    MUST(cudaMemGetInfo(&before, &total));
    CUdeviceptr range;
    MUST(reserve(&range, 8 * piece, 0, 0, 0));
    CUmemGenericAllocationHandle handles[2];
    for (auto &handle : handles)
        MUST(create(&handle, 4 * piece, &properties, 0));
    MUST(map(range, 4 * piece, 0, handles[0], 0));
    MUST(map(range + 4 * piece, 4 * piece, 0, handles[1], 0));
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(set_access(range, 8 * piece, &access, 1));
    MUST(cudaMemGetInfo(&during, &total));
    CHECK(before - during == 8 * piece);

    // The runtime sees one range across the border of the two mappings.
    char text[] = "across the seam", back[sizeof text] = "";
    void *seam = (void *)(range + 4 * piece - 5);
    MUST(cudaMemcpy(seam, text, sizeof text, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(back, seam, sizeof text, cudaMemcpyDeviceToHost));
    CHECK(strcmp(back, text) == 0);

    for (auto handle : handles)
        MUST(release(handle));
    MUST(cudaMemGetInfo(&after, &total));
    CHECK(after == during); // the memory is still mapped
    MUST(unmap(range, 8 * piece));
    MUST(release_addresses(range, 8 * piece));
    MUST(cudaMemGetInfo(&after, &total));
    CHECK(after == before);
    return 0;
}
