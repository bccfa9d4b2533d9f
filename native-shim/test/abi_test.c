/* Tests every way to look up a driver function: it must return the shim's hook of the same ABI, and for functions that
   the shim does not hook the driver's own. */
#include "driver/hooks.h"
#include "sandbox.h"

int probe_me(void);
void *probe_next(const char *symbol);

struct hook {
    const char *library;
    const char *symbol;
    const char *name;
    int version;
    cuuint64_t flags;
};

static const struct hook hooks[] = {
#define CUDA "libcuda.so.1"
#define NVML "libnvidia-ml.so.1"
#define ROW(library, result, symbol, name, version, flags, parameters) {library, #symbol, name, version, flags},
    ALIQUOT_HOOKS(ROW)
#undef ROW
#undef CUDA
#undef NVML
};

#define HOOK_COUNT (sizeof hooks / sizeof hooks[0])

static const char *library_of(void *function) {
    Dl_info info = {0};
    CHECK(dladdr(function, &info) != 0, "%p", function);
    const char *slash = strrchr(info.dli_fname, '/');
    return slash == NULL ? info.dli_fname : slash + 1;
}

static void check_is_in(const char *library, void *function, const char *symbol) {
    Dl_info info = {0};
    CHECK(function != NULL, "%s", symbol);
    CHECK(strcmp(library_of(function), library) == 0, "%s is in %s", symbol, library_of(function));
    CHECK(dladdr(function, &info) != 0 && strcmp(info.dli_sname, symbol) == 0, "found %s for %s", info.dli_sname,
          symbol);
}

static void check_is_hook(void *function, const char *symbol) {
    check_is_in("libaliquot.so", function, symbol);
}

static void check_all_are_in(const char *library, void *handle) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].name != NULL) {
            check_is_in(library, dlsym(handle, hooks[i].symbol), hooks[i].symbol);
        }
    }
}

/* In a container with whole cards. */
static void check_none_hooked(void *handle) {
    check_all_are_in("libcuda.so.1", handle);
}

static void check_all_hooked(void *handle) {
    check_all_are_in("libaliquot.so", handle);
    void *other = dlsym(handle, "cuStreamQuery");
    CHECK(strcmp(library_of(other), "libcuda.so.1") == 0, "%s", library_of(other));
}

static void *open_driver(const char *name, int flags) {
    void *driver = dlopen(name, flags);
    CHECK(driver != NULL, "%s", dlerror());
    return driver;
}

TEST(dlopen_by_name_and_dlsym_find_the_hooks) {
    check_all_hooked(open_driver("libcuda.so.1", RTLD_LAZY));
}

TEST(dlopen_by_full_path_and_dlsym_find_the_hooks) {
    check_all_hooked(open_driver(getenv("STUB_PATH"), RTLD_NOW | RTLD_LOCAL));
}

TEST(RTLD_DEFAULT_finds_the_hooks_only_after_the_driver_is_loaded) {
    CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL, "the driver is not loaded");
    CHECK(dlerror() != NULL, "a failed dlsym gives a reason");
    CHECK(dlsym(RTLD_NEXT, "cuInit") == NULL, "the driver is not loaded");
    open_driver("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
    check_all_hooked(RTLD_DEFAULT);
    check_all_hooked(dlopen(NULL, RTLD_LAZY));
}

TEST(RTLD_NEXT_finds_the_hooks_in_every_call) {
    open_driver("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
    check_all_hooked(RTLD_NEXT);
    check_all_hooked(RTLD_NEXT);
    check_is_hook(probe_next("cuMemAlloc_v2"), "cuMemAlloc_v2");
}

TEST(a_library_that_loads_the_driver_in_its_own_scope_finds_the_hooks) {
    void *plugin = open_driver(getenv("PLUGIN_PATH"), RTLD_NOW | RTLD_LOCAL);
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))dlsym(plugin, "plugin_find");
    dlerror();
    check_is_hook(find(RTLD_DEFAULT, "cuMemAlloc_v2"), "cuMemAlloc_v2");
    CHECK(dlerror() == NULL, "no error after a success");
    check_is_hook(find(RTLD_NEXT, "cuMemAlloc_v2"), "cuMemAlloc_v2");
    CHECK(dlerror() == NULL, "no error after a success");
    check_is_hook(dlsym(plugin, "cuMemAlloc_v2"), "cuMemAlloc_v2");
    CHECK_EQUAL(((int (*)(void))dlsym(plugin, "plugin_init"))(), CUDA_SUCCESS);
}

TEST(RTLD_NEXT_searches_after_the_calling_library) {
    CHECK(dlsym(RTLD_NEXT, "probe_me") == (void *)probe_me, "the library follows the program");
    CHECK(probe_next("probe_me") == NULL, "no library follows that exports it");
    CHECK(probe_next("malloc") == dlsym(RTLD_NEXT, "malloc"), "libc");
}

TEST(a_name_that_no_library_exports_is_not_found_and_dlerror_gives_the_reason) {
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    CHECK(dlsym(driver, "cuOfTomorrow") == NULL, "an unknown name");
    CHECK(strstr(dlerror(), "cuOfTomorrow") != NULL, "dlerror names the symbol");
    CHECK(dlsym(driver, "cuMemAlloc_v99") == NULL, "an unknown ABI");
    CHECK(dlsym(open_driver("libm.so.6", RTLD_LAZY), "cuMemAlloc_v2") == NULL, "a handle of another library");
}

TEST(a_function_of_the_same_name_in_another_library_is_not_hooked) {
    void *impostor = open_driver(getenv("IMPOSTOR_PATH"), RTLD_LAZY | RTLD_LOCAL);
    CHECK(strcmp(library_of(dlsym(impostor, "cuMemAlloc_v2")), "libimpostor.so") == 0, "%s",
          library_of(dlsym(impostor, "cuMemAlloc_v2")));
    check_all_hooked(open_driver("libcuda.so.1", RTLD_LAZY));
}

TEST(dlvsym_is_not_hooked) {
    CHECK(strcmp(library_of((void *)dlvsym), "libaliquot.so") != 0, "%s", library_of((void *)dlvsym));
    void *bare = real_dlsym(open_driver("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
    CHECK(strcmp(library_of(bare), "libcuda.so.1") == 0, "dlvsym and the C library's dlsym bypass the hooks");
}

typedef CUresult get_v1(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* Looks up every hook by its name, version and flags, and every name in every version from CUDA 2 to 13. */
static void check_all_versions(void) {
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    get_v1 *get_first = (get_v1 *)dlsym(driver, "cuGetProcAddress");
    get_v2 *get_second = (get_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        void *first = NULL, *second = NULL;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        if (hooks[i].name == NULL) {
            continue;
        }
        CHECK_EQUAL(get_first(hooks[i].name, &first, hooks[i].version, hooks[i].flags), CUDA_SUCCESS);
        CHECK_EQUAL(get_second(hooks[i].name, &second, hooks[i].version, hooks[i].flags, &status), CUDA_SUCCESS);
        CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
        check_is_hook(first, hooks[i].symbol);
        check_is_hook(second, hooks[i].symbol);
        for (int version = 2000; version <= 13020; version += 10) {
            const struct hook *expected = NULL;
            for (size_t other = 0; other < HOOK_COUNT; other++) {
                if (hooks[other].name != NULL && strcmp(hooks[other].name, hooks[i].name) == 0 &&
                    hooks[other].version <= version &&
                    (hooks[other].flags == 0 || hooks[other].flags == hooks[i].flags)) {
                    expected = &hooks[other];
                }
            }
            CHECK_EQUAL(get_second(hooks[i].name, &second, version, hooks[i].flags, NULL), CUDA_SUCCESS);
            CHECK_EQUAL(second != NULL, expected != NULL);
            if (expected != NULL) {
                check_is_hook(second, expected->symbol);
            }
        }
    }
}

TEST(cuGetProcAddress_returns_the_hook_of_each_ABI) {
    check_all_versions();
}

TEST(cuGetProcAddress_returns_the_hooks_when_the_driver_returns_addresses_that_it_does_not_export) {
    setenv("STUB_OTHER_ADDRESSES", "1", 1);
    check_all_versions();
}

TEST(cuGetProcAddress_passes_through_functions_without_a_hook_and_failures) {
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    get_v2 *get = (get_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *function = NULL;
    CHECK_EQUAL(get("cuStreamQuery", &function, 12000, 0, &status), CUDA_SUCCESS);
    CHECK(strcmp(library_of(function), "libcuda.so.1") == 0, "%s", library_of(function));
    CHECK_EQUAL(get("cuMemFreeAsync", &function, 11010, 0, &status), CUDA_SUCCESS);
    CHECK(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "not found");
    CHECK_EQUAL(get("", &function, 12000, 0, &status), CUDA_SUCCESS); /* libcudart's first lookup */
}

TEST(an_address_of_an_unknown_ABI_is_passed_through_and_counted) {
    sandbox(100 * MIB, 0);
    setenv("STUB_UNKNOWN_ADDRESS", "1", 1);
    get_v2 *get = (get_v2 *)dlsym(open_driver("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2");
    void *function = NULL;
    CHECK_EQUAL(get("cuMemAlloc", &function, 12050, 0, NULL), CUDA_SUCCESS);
    CHECK(strcmp(library_of(function), "libcuda.so.1") == 0, "%s", library_of(function));
    CHECK_EQUAL(map_region()->header.unhooked_functions, 1);
    CHECK_EQUAL(get("cuMemAlloc", &function, 12040, 0, NULL), CUDA_SUCCESS);
    check_is_hook(function, "cuMemAlloc_v2");
    CHECK_EQUAL(map_region()->header.unhooked_functions, 1);
}

/* The exported name of the stub's function that was called last. */
static const char *last_call(void) {
    return ((const char *(*)(void))dlsym(open_driver("libcuda.so.1", RTLD_LAZY), "stub_entered"))();
}

/* Finds the functions of CHECK_REACHES. */
static void *(*find_function)(const char *symbol) = sandbox_function;

#define CHECK_REACHES(symbol, ...)                                                                                     \
    do {                                                                                                               \
        ((CUresult(*)())find_function(#symbol))(__VA_ARGS__);                                                          \
        CHECK(strcmp(last_call(), #symbol) == 0, "%s reached %s", #symbol, last_call());                               \
    } while (0)

static void check_each_launch_reaches_its_own(void) {
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
    CUDA_LAUNCH_PARAMS several = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1};
    void *none = NULL;
    CHECK_REACHES(cuLaunchKernel, none, 1, 1, 1, 1, 1, 1, 0, none, none, none);
    CHECK_REACHES(cuLaunchKernel_ptsz, none, 1, 1, 1, 1, 1, 1, 0, none, none, none);
    CHECK_REACHES(cuLaunchCooperativeKernel, none, 1, 1, 1, 1, 1, 1, 0, none, none);
    CHECK_REACHES(cuLaunchCooperativeKernel_ptsz, none, 1, 1, 1, 1, 1, 1, 0, none, none);
    CHECK_REACHES(cuLaunchKernelEx, &config, none, none, none);
    CHECK_REACHES(cuLaunchKernelEx_ptsz, &config, none, none, none);
    CHECK_REACHES(cuLaunchKernelEx, none, none, none, none); /* the driver refuses it */
    CHECK_REACHES(cuLaunchCooperativeKernelMultiDevice, &several, 1, 0);
    CHECK_REACHES(cuLaunchCooperativeKernelMultiDevice, none, 0, 0);
    CHECK_REACHES(cuLaunch, none);
    CHECK_REACHES(cuLaunchGrid, none, 1, 1);
    CHECK_REACHES(cuLaunchGridAsync, none, 1, 1, none);
    CHECK_REACHES(cuGraphLaunch, none, none);
    CHECK_REACHES(cuGraphLaunch_ptsz, none, none);
    CHECK_REACHES(cuLaunchHostFunc, none, none, none);
    CHECK_REACHES(cuLaunchHostFunc_ptsz, none, none, none);
    CHECK_REACHES(cuStreamAddCallback, none, none, none, 0);
    CHECK_REACHES(cuStreamAddCallback_ptsz, none, none, none, 0);
    CHECK_REACHES(cuStreamDestroy, none);
    CHECK_REACHES(cuStreamDestroy_v2, none);
    CHECK_REACHES(cuStreamBeginCapture, none);
    CHECK_REACHES(cuStreamBeginCapture_ptsz, none);
    CHECK_REACHES(cuStreamBeginCapture_v2, none, 0);
    CHECK_REACHES(cuStreamBeginCapture_v2_ptsz, none, 0);
    CHECK_REACHES(cuStreamBeginCaptureToGraph, none, none, none, none, (size_t)0, 0);
    CHECK_REACHES(cuStreamBeginCaptureToGraph_ptsz, none, none, none, none, (size_t)0, 0);
    CHECK_REACHES(cuStreamBeginRecaptureToGraph, none, 0, none, none, none);
    CHECK_REACHES(cuStreamBeginRecaptureToGraph_ptsz, none, 0, none, none, none);
    CHECK_REACHES(cuStreamBeginCaptureToCig, none, none);
    CHECK_REACHES(cuStreamBeginCaptureToCig_ptsz, none, none);
    CHECK_REACHES(cuStreamEndCaptureToCig, none);
    CHECK_REACHES(cuStreamEndCaptureToCig_ptsz, none);
    CHECK_REACHES(cuStreamEndCapture, none, none);
    CHECK_REACHES(cuStreamEndCapture_ptsz, none, none);
}

/* The region, where GPU time is limited; otherwise NULL. */
static const struct aliquot_region *charging;

static uint64_t charged_time(void) {
    return charging == NULL ? 0 : charging->device[0].gpu_time;
}

/* And the call is charged these nanoseconds of GPU time. The stub does not say how fast the memory is. So the shim
   assumes 1 TB/s: 1 us for MB. */
#define CHECK_CHARGED(nanoseconds, symbol, ...)                                                                        \
    do {                                                                                                               \
        uint64_t charged_before = charged_time();                                                                      \
        CHECK_REACHES(symbol, __VA_ARGS__);                                                                            \
        uint64_t newly_charged = charged_time() - charged_before;                                                      \
        CHECK(newly_charged == (charging == NULL ? 0 : nanoseconds), "%s is charged %llu ns", #symbol,                 \
              (unsigned long long)newly_charged);                                                                      \
    } while (0)

/* And its variant for per-thread default streams. */
#define CHECK_BOTH_CHARGED(nanoseconds, symbol, suffix, ...)                                                           \
    do {                                                                                                               \
        CHECK_CHARGED(nanoseconds, symbol, __VA_ARGS__);                                                               \
        CHECK_CHARGED(nanoseconds, symbol##suffix, __VA_ARGS__);                                                       \
    } while (0)

#define MB ((size_t)1000000)
#define SMALL_MB 1000000u
#define FROM_GPU 8192ull /* addresses on the stub's GPU, and on the host */
#define TO_GPU 16384ull
#define SMALL_FROM_GPU 8192u
#define SMALL_TO_GPU 16384u
#define HOST ((CUdeviceptr)(uintptr_t)host)
#define NOTHING ((void *)NULL)

static void check_copies(void) {
    static char host[1];
    CHECK_BOTH_CHARGED(2000, cuMemcpy, _ptds, TO_GPU, FROM_GPU, MB);
    CHECK_BOTH_CHARGED(0, cuMemcpy, _ptds, TO_GPU, HOST, MB);
    CHECK_BOTH_CHARGED(0, cuMemcpy, _ptds, HOST, FROM_GPU, MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyAsync, _ptsz, TO_GPU, FROM_GPU, MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyAsync, _ptsz, TO_GPU, HOST, MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyAsync, _ptsz, HOST, FROM_GPU, MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyAsync, _ptsz, TO_GPU, FROM_GPU, (size_t)4096, NOTHING); /* too short to ask */
    CHECK_BOTH_CHARGED(2000, cuMemcpyWithAttributesAsync, _ptsz, TO_GPU, FROM_GPU, MB, NOTHING, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyWithAttributesAsync, _ptsz, TO_GPU, HOST, MB, NOTHING, NOTHING);
    CHECK_BOTH_CHARGED(2000, cuMemcpyPeer, _ptds, TO_GPU, NOTHING, FROM_GPU, NOTHING, MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyPeerAsync, _ptsz, TO_GPU, NOTHING, FROM_GPU, NOTHING, MB, NOTHING);
    CHECK_CHARGED(0, cuMemcpyHtoD, SMALL_TO_GPU, host, SMALL_MB);
    CHECK_BOTH_CHARGED(0, cuMemcpyHtoD_v2, _ptds, TO_GPU, host, MB);
    CHECK_CHARGED(0, cuMemcpyHtoDAsync, SMALL_TO_GPU, host, SMALL_MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyHtoDAsync_v2, _ptsz, TO_GPU, host, MB, NOTHING);
    CHECK_CHARGED(0, cuMemcpyDtoH, host, SMALL_FROM_GPU, SMALL_MB);
    CHECK_BOTH_CHARGED(0, cuMemcpyDtoH_v2, _ptds, host, FROM_GPU, MB);
    CHECK_CHARGED(0, cuMemcpyDtoHAsync, host, SMALL_FROM_GPU, SMALL_MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyDtoHAsync_v2, _ptsz, host, FROM_GPU, MB, NOTHING);
    CHECK_CHARGED(2000, cuMemcpyDtoD, SMALL_TO_GPU, SMALL_FROM_GPU, SMALL_MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyDtoD_v2, _ptds, TO_GPU, FROM_GPU, MB);
    CHECK_CHARGED(2000, cuMemcpyDtoDAsync, SMALL_TO_GPU, SMALL_FROM_GPU, SMALL_MB, NOTHING);
    CHECK_BOTH_CHARGED(2000, cuMemcpyDtoDAsync_v2, _ptsz, TO_GPU, FROM_GPU, MB, NOTHING);
    CHECK_BOTH_CHARGED(2, cuMemcpyDtoDAsync_v2, _ptsz, TO_GPU, FROM_GPU, (size_t)1000, NOTHING);
}

static void check_copies_of_arrays(void) {
    static char host[1];
    CHECK_CHARGED(2000, cuMemcpyDtoA, NOTHING, 0u, SMALL_FROM_GPU, SMALL_MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyDtoA_v2, _ptds, NOTHING, (size_t)0, FROM_GPU, MB);
    CHECK_CHARGED(2000, cuMemcpyAtoD, SMALL_TO_GPU, NOTHING, 0u, SMALL_MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyAtoD_v2, _ptds, TO_GPU, NOTHING, (size_t)0, MB);
    CHECK_CHARGED(2000, cuMemcpyAtoA, NOTHING, 0u, NOTHING, 0u, SMALL_MB);
    CHECK_BOTH_CHARGED(2000, cuMemcpyAtoA_v2, _ptds, NOTHING, (size_t)0, NOTHING, (size_t)0, MB);
    CHECK_CHARGED(0, cuMemcpyHtoA, NOTHING, 0u, host, SMALL_MB);
    CHECK_BOTH_CHARGED(0, cuMemcpyHtoA_v2, _ptds, NOTHING, (size_t)0, host, MB);
    CHECK_CHARGED(0, cuMemcpyHtoAAsync, NOTHING, 0u, host, SMALL_MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyHtoAAsync_v2, _ptsz, NOTHING, (size_t)0, host, MB, NOTHING);
    CHECK_CHARGED(0, cuMemcpyAtoH, host, NOTHING, 0u, SMALL_MB);
    CHECK_BOTH_CHARGED(0, cuMemcpyAtoH_v2, _ptds, host, NOTHING, (size_t)0, MB);
    CHECK_CHARGED(0, cuMemcpyAtoHAsync, host, NOTHING, 0u, SMALL_MB, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyAtoHAsync_v2, _ptsz, host, NOTHING, (size_t)0, MB, NOTHING);
}

/* Copies of 1 MB with descriptors: between which kinds of memory, and what they are charged. */
static void check_descriptors(CUmemorytype from, CUdeviceptr source, CUmemorytype to, CUdeviceptr destination,
                              uint64_t charged) {
    CUDA_MEMCPY2D_v1 small_2d = {.srcMemoryType = from,
                                 .srcDevice = (unsigned)source,
                                 .dstMemoryType = to,
                                 .dstDevice = (unsigned)destination,
                                 .WidthInBytes = 1000,
                                 .Height = 1000};
    CUDA_MEMCPY2D_v2 flat = {.srcMemoryType = from,
                             .srcDevice = source,
                             .dstMemoryType = to,
                             .dstDevice = destination,
                             .WidthInBytes = 1000,
                             .Height = 1000};
    CUDA_MEMCPY3D_v1 small_3d = {.srcMemoryType = from,
                                 .srcDevice = (unsigned)source,
                                 .dstMemoryType = to,
                                 .dstDevice = (unsigned)destination,
                                 .WidthInBytes = 100,
                                 .Height = 100,
                                 .Depth = 100};
    CUDA_MEMCPY3D_v2 deep = {.srcMemoryType = from,
                             .srcDevice = source,
                             .dstMemoryType = to,
                             .dstDevice = destination,
                             .WidthInBytes = 100,
                             .Height = 100,
                             .Depth = 100};
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = from,
                               .srcDevice = source,
                               .dstMemoryType = to,
                               .dstDevice = destination,
                               .WidthInBytes = 100,
                               .Height = 100,
                               .Depth = 100};
    bool small = source <= UINT32_MAX && destination <= UINT32_MAX;
    CHECK_BOTH_CHARGED(charged, cuMemcpy2D_v2, _ptds, &flat);
    CHECK_BOTH_CHARGED(charged, cuMemcpy2DUnaligned_v2, _ptds, &flat);
    CHECK_BOTH_CHARGED(charged, cuMemcpy2DAsync_v2, _ptsz, &flat, NOTHING);
    CHECK_BOTH_CHARGED(charged, cuMemcpy3D_v2, _ptds, &deep);
    CHECK_BOTH_CHARGED(charged, cuMemcpy3DAsync_v2, _ptsz, &deep, NOTHING);
    CHECK_BOTH_CHARGED(charged, cuMemcpy3DPeer, _ptds, &peer);
    CHECK_BOTH_CHARGED(charged, cuMemcpy3DPeerAsync, _ptsz, &peer, NOTHING);
    if (small) {
        CHECK_CHARGED(charged, cuMemcpy2D, &small_2d);
        CHECK_CHARGED(charged, cuMemcpy2DUnaligned, &small_2d);
        CHECK_CHARGED(charged, cuMemcpy2DAsync, &small_2d, NOTHING);
        CHECK_CHARGED(charged, cuMemcpy3D, &small_3d);
        CHECK_CHARGED(charged, cuMemcpy3DAsync, &small_3d, NOTHING);
    }
}

static void check_copies_with_descriptors(void) {
    static char host[1];
    check_descriptors(CU_MEMORYTYPE_DEVICE, FROM_GPU, CU_MEMORYTYPE_DEVICE, TO_GPU, 2000);
    check_descriptors(CU_MEMORYTYPE_UNIFIED, FROM_GPU, CU_MEMORYTYPE_UNIFIED, TO_GPU, 2000);
    check_descriptors(CU_MEMORYTYPE_ARRAY, 0, CU_MEMORYTYPE_UNIFIED, TO_GPU, 2000);
    check_descriptors(CU_MEMORYTYPE_ARRAY, 0, CU_MEMORYTYPE_ARRAY, 0, 2000);
    check_descriptors(CU_MEMORYTYPE_HOST, 0, CU_MEMORYTYPE_DEVICE, TO_GPU, 0);
    check_descriptors(CU_MEMORYTYPE_DEVICE, FROM_GPU, CU_MEMORYTYPE_HOST, 0, 0);
    check_descriptors(CU_MEMORYTYPE_UNIFIED, HOST, CU_MEMORYTYPE_UNIFIED, TO_GPU, 0);
    check_descriptors(CU_MEMORYTYPE_UNIFIED, FROM_GPU, CU_MEMORYTYPE_UNIFIED, HOST, 0);
    CHECK_BOTH_CHARGED(0, cuMemcpy2D_v2, _ptds, NOTHING); /* the driver refuses it */
    CHECK_BOTH_CHARGED(0, cuMemcpy3DAsync_v2, _ptsz, NOTHING, NOTHING);
}

static void check_batches_of_copies(void) {
    static char host[1];
    CUdeviceptr to[] = {TO_GPU, TO_GPU, HOST, TO_GPU}, from[] = {FROM_GPU, HOST, FROM_GPU, FROM_GPU};
    size_t bytes[] = {MB, MB, MB, 2 * MB}, count = 4;
    CUDA_MEMCPY3D_BATCH_OP copies[] = {
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = FROM_GPU},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = TO_GPU},
         .extent = {100, 100, 100}},
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = FROM_GPU},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
         .extent = {25, 100, 100}},
        {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = HOST},
         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
         .extent = {100, 100, 100}},
    };
    size_t operations = 3;
    CHECK_BOTH_CHARGED(6000, cuMemcpyBatchAsync, _ptsz, to, from, bytes, count, NOTHING, NOTHING, (size_t)0, NOTHING,
                       NOTHING);
    CHECK_BOTH_CHARGED(6000, cuMemcpyBatchAsync_v2, _ptsz, to, from, bytes, count, NOTHING, NOTHING, (size_t)0,
                       NOTHING);
    CUdeviceptr many_to[100], many_from[100];
    size_t many_bytes[100], one = 1, many = 100;
    for (size_t i = 0; i < many; i++) {
        many_to[i] = TO_GPU;
        many_from[i] = FROM_GPU;
        many_bytes[i] = 10000;
    }
    CHECK_BOTH_CHARGED(20, cuMemcpyBatchAsync_v2, _ptsz, many_to, many_from, many_bytes, one, NOTHING, NOTHING,
                       (size_t)0, NOTHING);
    CHECK_BOTH_CHARGED(2000, cuMemcpyBatchAsync_v2, _ptsz, many_to, many_from, many_bytes, many, NOTHING, NOTHING,
                       (size_t)0, NOTHING);
    CHECK_BOTH_CHARGED(4000, cuMemcpy3DBatchAsync, _ptsz, operations, copies, NOTHING, 0ull, NOTHING);
    CHECK_BOTH_CHARGED(4000, cuMemcpy3DBatchAsync_v2, _ptsz, operations, copies, 0ull, NOTHING);
    CHECK_BOTH_CHARGED(2000, cuMemcpy3DWithAttributesAsync, _ptsz, &copies[1], 0ull, NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpyBatchAsync_v2, _ptsz, NOTHING, NOTHING, NOTHING, count, NOTHING, NOTHING, (size_t)0,
                       NOTHING);
    CHECK_BOTH_CHARGED(0, cuMemcpy3DBatchAsync_v2, _ptsz, operations, NOTHING, 0ull, NOTHING);
}

static void check_fills(void) {
    size_t rows = 1000, pitch = 4096, width = 1000;
    unsigned few_rows = 1000, small_pitch = 4096, small_width = 1000;
    CHECK_CHARGED(1000, cuMemsetD8, SMALL_TO_GPU, 0, SMALL_MB);
    CHECK_BOTH_CHARGED(1000, cuMemsetD8_v2, _ptds, TO_GPU, 0, MB);
    CHECK_BOTH_CHARGED(1000, cuMemsetD8Async, _ptsz, TO_GPU, 0, MB, NOTHING);
    CHECK_CHARGED(2000, cuMemsetD16, SMALL_TO_GPU, 0, SMALL_MB);
    CHECK_BOTH_CHARGED(2000, cuMemsetD16_v2, _ptds, TO_GPU, 0, MB);
    CHECK_BOTH_CHARGED(2000, cuMemsetD16Async, _ptsz, TO_GPU, 0, MB, NOTHING);
    CHECK_CHARGED(4000, cuMemsetD32, SMALL_TO_GPU, 0, SMALL_MB);
    CHECK_BOTH_CHARGED(4000, cuMemsetD32_v2, _ptds, TO_GPU, 0, MB);
    CHECK_BOTH_CHARGED(4000, cuMemsetD32Async, _ptsz, TO_GPU, 0, MB, NOTHING);
    CHECK_CHARGED(1000, cuMemsetD2D8, SMALL_TO_GPU, small_pitch, 0, small_width, few_rows);
    CHECK_BOTH_CHARGED(1000, cuMemsetD2D8_v2, _ptds, TO_GPU, pitch, 0, width, rows);
    CHECK_BOTH_CHARGED(1000, cuMemsetD2D8Async, _ptsz, TO_GPU, pitch, 0, width, rows, NOTHING);
    CHECK_CHARGED(2000, cuMemsetD2D16, SMALL_TO_GPU, small_pitch, 0, small_width, few_rows);
    CHECK_BOTH_CHARGED(2000, cuMemsetD2D16_v2, _ptds, TO_GPU, pitch, 0, width, rows);
    CHECK_BOTH_CHARGED(2000, cuMemsetD2D16Async, _ptsz, TO_GPU, pitch, 0, width, rows, NOTHING);
    CHECK_CHARGED(4000, cuMemsetD2D32, SMALL_TO_GPU, small_pitch, 0, small_width, few_rows);
    CHECK_BOTH_CHARGED(4000, cuMemsetD2D32_v2, _ptds, TO_GPU, pitch, 0, width, rows);
    CHECK_BOTH_CHARGED(4000, cuMemsetD2D32Async, _ptsz, TO_GPU, pitch, 0, width, rows, NOTHING);
}

static void check_waits(void) {
    CHECK_BOTH_CHARGED(0, cuStreamWaitEvent, _ptsz, NOTHING, NOTHING, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamWaitValue32, _ptsz, NOTHING, FROM_GPU, 0u, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamWaitValue32_v2, _ptsz, NOTHING, FROM_GPU, 0u, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamWaitValue64, _ptsz, NOTHING, FROM_GPU, 0ull, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamWaitValue64_v2, _ptsz, NOTHING, FROM_GPU, 0ull, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamBatchMemOp, _ptsz, NOTHING, 0u, NOTHING, 0u);
    CHECK_BOTH_CHARGED(0, cuStreamBatchMemOp_v2, _ptsz, NOTHING, 0u, NOTHING, 0u);
    CHECK_BOTH_CHARGED(0, cuWaitExternalSemaphoresAsync, _ptsz, NOTHING, NOTHING, 0u, NOTHING);
}

static void check_pools(void) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool = NULL, found = NULL;
    CUdeviceptr address = 0;
    CHECK_REACHES(cuMemPoolCreate, &pool, &properties);
    CHECK_REACHES(cuMemAllocAsync, &address, (size_t)1, NOTHING);
    CHECK_REACHES(cuMemFreeAsync, address, NOTHING);
    CHECK_REACHES(cuMemAllocAsync_ptsz, &address, (size_t)1, NOTHING);
    CHECK_REACHES(cuMemFree_v2, address);
    CHECK_REACHES(cuMemAllocFromPoolAsync, &address, (size_t)1, pool, NOTHING);
    CHECK_REACHES(cuMemFreeAsync_ptsz, address, NOTHING);
    CHECK_REACHES(cuMemAllocFromPoolAsync_ptsz, &address, (size_t)1, pool, NOTHING);
    CHECK_REACHES(cuMemFreeAsync, address, NOTHING);
    CHECK_REACHES(cuMemPoolTrimTo, pool, (size_t)0);
    CHECK_REACHES(cuMemPoolDestroy, pool);
    CHECK_REACHES(cuMemPoolImportFromShareableHandle, &found, NOTHING, 1, 0ull);
    CHECK_REACHES(cuMemGetDefaultMemPool, &found, &properties.location, CU_MEM_ALLOCATION_TYPE_PINNED);
    CHECK_REACHES(cuMemGetMemPool, &found, &properties.location, CU_MEM_ALLOCATION_TYPE_PINNED);
    CHECK_REACHES(cuStreamSynchronize, NOTHING);
    CHECK_REACHES(cuStreamSynchronize_ptsz, NOTHING);
    CHECK_REACHES(cuEventSynchronize, NOTHING);
    CHECK_REACHES(cuEventRecord, NOTHING, NOTHING);
    CHECK_REACHES(cuEventRecord_ptsz, NOTHING, NOTHING);
    CHECK_REACHES(cuEventRecordWithFlags, NOTHING, NOTHING, 0u);
    CHECK_REACHES(cuEventRecordWithFlags_ptsz, NOTHING, NOTHING, 0u);
    CHECK_REACHES(cuCtxSynchronize);
    CHECK_REACHES(cuCtxSynchronize_v2, NOTHING);
}

static void check_graphs(void) {
    CUgraphExec graph = NULL;
    CHECK_REACHES(cuGraphInstantiate, &graph, NOTHING, NOTHING, NOTHING, (size_t)0);
    CHECK_REACHES(cuGraphInstantiate_v2, &graph, NOTHING, NOTHING, NOTHING, (size_t)0);
    CHECK_REACHES(cuGraphInstantiateWithFlags, &graph, NOTHING, 0ull);
    CHECK_REACHES(cuGraphInstantiateWithParams, &graph, NOTHING, NOTHING);
    CHECK_REACHES(cuGraphInstantiateWithParams_ptsz, &graph, NOTHING, NOTHING);
    CHECK_REACHES(cuGraphUpload, graph, NOTHING);
    CHECK_REACHES(cuGraphUpload_ptsz, graph, NOTHING);
    CHECK_REACHES(cuGraphExecDestroy, graph);
    CHECK_REACHES(cuDeviceGraphMemTrim, 0);
}

static void check_virtual_memory(void) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle = 0;
    CUarrayMapInfo tile = {.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP};
    CHECK_REACHES(cuMemCreate, &handle, (size_t)1, &properties, 0ull);
    CHECK_REACHES(cuMemMap, 4096ull, (size_t)1, (size_t)0, handle, 0ull);
    CHECK_REACHES(cuMemRelease, handle);
    CHECK_REACHES(cuMemRetainAllocationHandle, &handle, (void *)4096);
    CHECK_REACHES(cuMemRelease, handle);
    CHECK_REACHES(cuMemUnmap, 4096ull, (size_t)1);
    CHECK_REACHES(cuMemImportFromShareableHandle, &handle, NOTHING, 1);
    CHECK_REACHES(cuMemMapArrayAsync, &tile, 1u, NOTHING);
    CHECK_REACHES(cuMemMapArrayAsync_ptsz, &tile, 1u, NOTHING);
}

static void check_arrays(void) {
    CUDA_ARRAY_DESCRIPTOR_v1 old = {1, 1, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY_DESCRIPTOR_v2 new = {1, 1, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR_v1 old_3d = {1, 1, 1, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY3D_DESCRIPTOR_v2 new_3d = {1, 1, 1, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray array = NULL;
    CUmipmappedArray mipmap = NULL;
    CUexternalMemory memory = NULL;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 1};
    CHECK_REACHES(cuArrayCreate, &array, &old);
    CHECK_REACHES(cuArrayDestroy, array);
    CHECK_REACHES(cuArrayCreate_v2, &array, &new);
    CHECK_REACHES(cuArrayDestroy, array);
    CHECK_REACHES(cuArray3DCreate, &array, &old_3d);
    CHECK_REACHES(cuArrayDestroy, array);
    CHECK_REACHES(cuArray3DCreate_v2, &array, &new_3d);
    CHECK_REACHES(cuArrayDestroy, array);
    CHECK_REACHES(cuMipmappedArrayCreate, &mipmap, &new_3d, 1u);
    CHECK_REACHES(cuMipmappedArrayDestroy, mipmap);
    CHECK_REACHES(cuImportExternalMemory, &memory, &description);
    CHECK_REACHES(cuDestroyExternalMemory, memory);
}

static void check_contexts(void) {
    CUcontext context = NULL;
    CUgreenCtx green = NULL;
    CHECK_REACHES(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1);
    CHECK_REACHES(cuGreenCtxCreate, &green, NOTHING, 0, 0u);
    CHECK_REACHES(cuGreenCtxDestroy, green);
    CHECK_REACHES(cuCtxCreate, &context, 0u, 0);
    CHECK_REACHES(cuCtxDestroy, context);
    CHECK_REACHES(cuCtxCreate_v2, &context, 0u, 0);
    CHECK_REACHES(cuCtxDestroy_v2, context);
    CHECK_REACHES(cuCtxCreate_v3, &context, NOTHING, 0, 0u, 0);
    CHECK_REACHES(cuCtxDestroy_v2, context);
    CHECK_REACHES(cuCtxCreate_v4, &context, NOTHING, 0u, 0);
    CHECK_REACHES(cuCtxDetach, context);
    CHECK_REACHES(cuCtxDestroy_v2, context);
    CHECK_REACHES(cuDevicePrimaryCtxRetain, &context, 0);
    CHECK_REACHES(cuDevicePrimaryCtxRelease, 0);
    CHECK_REACHES(cuDevicePrimaryCtxRetain, &context, 0);
    CHECK_REACHES(cuDevicePrimaryCtxRelease_v2, 0);
    CHECK_REACHES(cuDevicePrimaryCtxReset, 0);
    CHECK_REACHES(cuDevicePrimaryCtxReset_v2, 0);
}

static void check_each_reaches_its_own(void) {
    unsigned small = 0, small_pitch = 0;
    CUdeviceptr large = 0;
    size_t size = 0, pitch = 0;
    use_device(0);
    check_copies();
    check_copies_of_arrays();
    check_copies_with_descriptors();
    check_batches_of_copies();
    check_fills();
    check_waits();
    check_each_launch_reaches_its_own(); /* leaves captures open, as far as the shim can tell */
    CHECK_REACHES(cuDeviceTotalMem, &small, 0);
    CHECK_REACHES(cuDeviceTotalMem_v2, &size, 0);
    CHECK_REACHES(cuMemGetInfo, &small, &small);
    CHECK_REACHES(cuMemGetInfo_v2, &size, &size);
    CHECK_REACHES(cuMemAlloc, &small, 1u);
    CHECK_REACHES(cuMemFree, small);
    CHECK_REACHES(cuMemAllocPitch, &small, &small_pitch, 1u, 1u, 4u);
    CHECK_REACHES(cuMemFree_v2, (CUdeviceptr)small);
    CHECK_REACHES(cuMemAlloc_v2, &large, (size_t)1);
    CHECK_REACHES(cuMemFreeAsync, large, (void *)NULL);
    CHECK_REACHES(cuMemAllocPitch_v2, &large, &pitch, (size_t)1, (size_t)1, 4u);
    CHECK_REACHES(cuMemFreeAsync_ptsz, large, (void *)NULL);
    CHECK_REACHES(cuMemAllocManaged, &large, (size_t)1, 1u);
    CHECK_REACHES(cuMemFree_v2, large);
    check_pools();
    check_graphs();
    check_virtual_memory();
    check_arrays();
    check_contexts();
    CHECK_REACHES(cuInit, 0u);
}

TEST(each_hook_calls_the_drivers_function_of_its_own_ABI) {
    sandbox(100 * MIB, 0);
    use_device(0);
    charging = map_region();
    check_each_reaches_its_own();
    CHECK_EQUAL(used_in_region(), 0);
}

TEST(without_limits_each_hook_calls_the_drivers_function_of_its_own_ABI) {
    sandbox_empty();
    check_each_reaches_its_own();
}

/* ---- containers with whole cards ---- */

static size_t region_size(void) {
    struct stat status;
    CHECK(stat(sandbox_region, &status) == 0, "%s", sandbox_region);
    return (size_t)status.st_size;
}

TEST(with_whole_cards_dlsym_returns_the_drivers_addresses) {
    sandbox_whole = 2;
    sandbox(100 * MIB, 100 * MIB);
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);
    check_none_hooked(driver);
    check_none_hooked(RTLD_DEFAULT);
    check_none_hooked(RTLD_NEXT);
    check_none_hooked(dlopen(NULL, RTLD_LAZY));
    check_is_in("libcuda.so.1", probe_next("cuMemAlloc_v2"), "cuMemAlloc_v2");
    CHECK_EQUAL(region_size(), 0); /* not used */
}

static void check_versions_of_whole_cards(void) {
    sandbox_whole = 1;
    sandbox(100 * MIB, 0);
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    get_v1 *get_first = (get_v1 *)dlsym(driver, "cuGetProcAddress");
    get_v2 *get_second = (get_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    get_v2 *own = (get_v2 *)real_dlsym(driver, "cuGetProcAddress_v2");
    CHECK(own != NULL && get_second == own, "the driver's own");
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        void *first = NULL, *second = NULL, *expected = NULL;
        if (hooks[i].name == NULL) {
            continue;
        }
        CHECK_EQUAL(get_first(hooks[i].name, &first, hooks[i].version, hooks[i].flags), CUDA_SUCCESS);
        CHECK_EQUAL(get_second(hooks[i].name, &second, hooks[i].version, hooks[i].flags, NULL), CUDA_SUCCESS);
        CHECK_EQUAL(own(hooks[i].name, &expected, hooks[i].version, hooks[i].flags, NULL), CUDA_SUCCESS);
        CHECK(first == expected && second == expected, "%s", hooks[i].symbol);
        CHECK(strcmp(library_of(first), "libcuda.so.1") == 0, "%s is in %s", hooks[i].symbol, library_of(first));
    }
}

TEST(with_whole_cards_cuGetProcAddress_returns_the_drivers_addresses) {
    check_versions_of_whole_cards();
}

TEST(with_whole_cards_cuGetProcAddress_returns_addresses_that_the_driver_does_not_export) {
    setenv("STUB_OTHER_ADDRESSES", "1", 1);
    check_versions_of_whole_cards();
}

/* The shim's exported function, which the loader gives to a program that is linked to the driver. */
static void *exported_function(const char *symbol) {
    void *function = real_dlsym(RTLD_DEFAULT, symbol);
    check_is_hook(function, symbol);
    return function;
}

TEST(with_whole_cards_each_exported_function_reaches_the_drivers_function_of_its_own_ABI) {
    sandbox_whole = 1;
    sandbox(MIB, 0);
    find_function = exported_function;
    check_each_reaches_its_own();
    CHECK_EQUAL(region_size(), 0);
}

TEST(with_whole_cards_no_memory_limit_applies) {
    CUdeviceptr address = 0;
    size_t total = 0;
    sandbox_whole = 1;
    sandbox(100 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(allocate(&address, 200 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemGetInfo_v2, size_t *, size_t *)(NULL, &total), CUDA_SUCCESS);
    CHECK(total > 100 * MIB, "%zu MiB", total / MIB);
    CHECK_EQUAL(deallocate(address), CUDA_SUCCESS);
}

TEST(a_container_of_which_only_some_GPUs_are_whole_is_limited_as_its_limit_file_says) {
    CUdeviceptr address = 0;
    sandbox_whole = 1;
    sandbox(100 * MIB, 100 * MIB);
    check_all_hooked(open_driver("libcuda.so.1", RTLD_LAZY));
    use_device(0);
    CHECK_EQUAL(allocate(&address, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    use_device(1);
    CHECK_EQUAL(allocate(&address, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 100 * MIB), CUDA_SUCCESS);
}

TEST(whether_a_process_is_limited_is_fixed_when_it_finds_the_driver) {
    CUdeviceptr address = 0;
    sandbox_whole = 1;
    sandbox(100 * MIB, 0);
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    check_none_hooked(driver);
    sandbox_whole = 0;
    write_limits(100 * MIB, 0);
    check_none_hooked(driver); /* although the limit file now gives a share */
    IN_CHILD(check_none_hooked(driver); use_device(0); CHECK_EQUAL(allocate(&address, 200 * MIB), CUDA_SUCCESS));
    CHECK_EQUAL(region_size(), 0);
}

TEST(a_process_that_is_limited_stays_so_when_the_limit_file_gives_whole_cards) {
    CUdeviceptr address = 0;
    sandbox(100 * MIB, 0);
    void *driver = open_driver("libcuda.so.1", RTLD_LAZY);
    check_all_hooked(driver);
    sandbox_whole = 1;
    write_limits(120 * MIB, 0);
    use_device(0);
    check_all_hooked(driver);
    CHECK_EQUAL(allocate(&address, 121 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(allocate(&address, 120 * MIB), CUDA_SUCCESS);
}

TEST(the_32_bit_ABI_is_limited_too_and_saturates) {
    unsigned address = 0, available = 0, total = 0;
    sandbox(5000 * MIB, 0);
    use_device(0);
    CHECK_EQUAL(CALL(cuDeviceTotalMem, unsigned *, CUdevice)(&total, 0), CUDA_SUCCESS);
    CHECK_EQUAL(total, UINT32_MAX);
    CHECK_EQUAL(CALL(cuMemGetInfo, unsigned *, unsigned *)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(total, UINT32_MAX);
    CHECK_EQUAL(CALL(cuMemAlloc, unsigned *, unsigned)(&address, 3000u << 20), CUDA_SUCCESS);
    CHECK_EQUAL(CALL(cuMemAlloc, unsigned *, unsigned)(&address, 3000u << 20), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CALL(cuMemGetInfo, unsigned *, unsigned *)(&available, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(available, 2000u << 20);
}
