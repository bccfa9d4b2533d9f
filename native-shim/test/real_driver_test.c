/*
 * Lookups in NVIDIA's own driver libraries. libcuda answers them without a GPU, before and without cuInit. Each lookup
 * runs twice, by the shim and by the driver's own function, and the two answers are compared. So the test needs no list
 * of what a driver has: where the driver's answer is a function that the shim hooks, the shim's is the hook of that
 * ABI, and everywhere else they are the same.
 */
#include "driver/hooks.h"
#include "sandbox.h"

#include <elf.h>
#include <link.h>

struct hook {
    const char *library, *symbol, *name;
    int version;
    cuuint64_t flags;
    void *hook_address; /* of the shim's exported symbol */
    void *real[2];      /* the driver's function, as exported and as cuGetProcAddress returns it; NULL: none */
};

static struct hook hooks[] = {
#define CUDA "libcuda.so.1"
#define NVML "libnvidia-ml.so.1"
#define ROW(library, result, symbol, name, version, flags, parameters)                                                 \
    {library, #symbol, name, version, flags, NULL, {NULL, NULL}},
    ALIQUOT_HOOKS(ROW)
#undef ROW
};

enum { HOOK_COUNT = sizeof hooks / sizeof hooks[0] };

typedef CUresult get_v1(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static unsigned long compared, led_to_hooks, not_found;

/* The driver of the test's environment; skips the test if it could not be fetched. */
static void *open_real(const char *library) {
    const char *folder = getenv("REAL_DRIVER");
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, library);
    if (access(path, R_OK) != 0) {
        SKIP("%s does not exist; real_drivers.sh fetches it", path);
    }
    void *handle = dlopen(library, RTLD_LAZY);
    CHECK(handle != NULL, "%s", dlerror());
    struct link_map *map = NULL;
    CHECK(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && strcmp(map->l_name, path) == 0, "%s is %s", library,
          map->l_name);
    return handle;
}

/* The names that a loaded library exports, from its file. The names stay mapped. */
static size_t exported_names(void *handle, const char **names, size_t capacity) {
    struct link_map *map = NULL;
    struct stat about;
    CHECK(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0, "%s", dlerror());
    int fd = open(map->l_name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &about) == 0, "%s", map->l_name);
    const char *file = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(file != MAP_FAILED, "%s", map->l_name);
    close(fd);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    size_t count = 0;
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) {
            continue;
        }
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
        for (size_t j = 0; j < sections[i].sh_size / sizeof symbols[0]; j++) {
            const char *name = file + sections[sections[i].sh_link].sh_offset + symbols[j].st_name;
            if (symbols[j].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbols[j].st_info) == STT_FUNC && name[0] != '\0') {
                CHECK(count < capacity, "more than %zu names", capacity);
                names[count++] = name;
            }
        }
    }
    return count;
}

static const struct hook *hook_of(const void *real) {
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (real != NULL && (real == hooks[i].real[0] || real == hooks[i].real[1])) {
            return &hooks[i];
        }
    }
    return NULL;
}

/* Whether the symbol is one of the ABIs of a hooked function, like cuMemAlloc_v2 or nvmlDeviceGetMemoryInfo_v9. */
static bool is_abi_of_a_hooked_function(const char *symbol) {
    for (int i = 0; i < HOOK_COUNT; i++) {
        size_t length = strlen(hooks[i].name != NULL ? hooks[i].name : hooks[i].symbol);
        const char *suffix = symbol + length;
        if (strncmp(symbol, hooks[i].symbol, length) == 0 &&
            (suffix[0] == '\0' || strncmp(suffix, "_v", 2) == 0 || strncmp(suffix, "_pt", 3) == 0)) {
            return true;
        }
    }
    return false;
}

/* `limited`: the shim must return the hook of the driver's function. Otherwise the container has whole cards. */
static void compare(const void *shims, const void *drivers, bool hooked_name, bool limited, const char *lookup,
                    const char *name, int version, int flags) {
    compared++;
    if (drivers == NULL) {
        not_found++;
        CHECK(shims == NULL, "%s(%s, %d, %d): the driver has none", lookup, name, version, flags);
        return;
    }
    const struct hook *hook = limited ? hook_of(drivers) : NULL;
    if (hook == NULL) {
        CHECK(!limited || !hooked_name, "%s(%s, %d, %d): an ABI that hooks.h does not list", lookup, name, version,
              flags);
        CHECK(shims == drivers, "%s(%s, %d, %d): not the driver's function", lookup, name, version, flags);
        return;
    }
    led_to_hooks++;
    CHECK(shims == hook->hook_address, "%s(%s, %d, %d): not the shim's %s", lookup, name, version, flags, hook->symbol);
}

static bool is_hooked_name(const char *name) {
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].name != NULL && strcmp(hooks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void compare_lookups(void *driver, const char *name, bool limited) {
    get_v1 *first = (get_v1 *)dlsym(driver, "cuGetProcAddress"),
           *real_first = (get_v1 *)real_dlsym(driver, "cuGetProcAddress");
    get_v2 *second = (get_v2 *)dlsym(driver, "cuGetProcAddress_v2"),
           *real_second = (get_v2 *)real_dlsym(driver, "cuGetProcAddress_v2");
    bool hooked_name = is_hooked_name(name);
    CHECK(limited == (first != real_first) && limited == (second != real_second), "the lookups themselves");
    /* Every number of the form that CUDA versions have, from 2.0 to 14.9: those that exist and those to come. */
    for (int version = 2000; version < 15000; version += version % 1000 == 90 ? 910 : 10) {
        for (int flags = 0; flags <= 2; flags++) {
            void *shims = NULL, *drivers = NULL;
            CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS, real_status = status;
            CHECK_EQUAL(first(name, &shims, version, (cuuint64_t)flags),
                        real_first(name, &drivers, version, (cuuint64_t)flags));
            compare(shims, drivers, hooked_name, limited, "cuGetProcAddress", name, version, flags);
            shims = drivers = NULL;
            CHECK_EQUAL(second(name, &shims, version, (cuuint64_t)flags, &status),
                        real_second(name, &drivers, version, (cuuint64_t)flags, &real_status));
            CHECK_EQUAL(status, real_status);
            compare(shims, drivers, hooked_name, limited, "cuGetProcAddress_v2", name, version, flags);
        }
    }
}

static void find_functions(void *driver, const char *library) {
    get_v2 *real_second = (get_v2 *)real_dlsym(driver, "cuGetProcAddress_v2");
    for (int i = 0; i < HOOK_COUNT; i++) {
        Dl_info info = {0};
        if (strcmp(hooks[i].library, library) != 0) {
            continue;
        }
        hooks[i].hook_address = real_dlsym(RTLD_DEFAULT, hooks[i].symbol);
        CHECK(dladdr(hooks[i].hook_address, &info) != 0 && strstr(info.dli_fname, "libaliquot.so") != NULL, "%s",
              hooks[i].symbol);
        hooks[i].real[0] = real_dlsym(driver, hooks[i].symbol);
        if (hooks[i].name != NULL) {
            real_second(hooks[i].name, &hooks[i].real[1], hooks[i].version, hooks[i].flags, NULL);
        }
    }
}

static void compare_all(const char *limits, bool limited, bool initialized) {
    enum { CAPACITY = 2000 };
    const char *names[CAPACITY];
    sandbox_empty();
    write_file(sandbox_limits, limits, strlen(limits));
    write_file(sandbox_region, "", 0);
    void *driver = open_real("libcuda.so.1");
    if (initialized) {
        CUresult result = CALL(cuInit, unsigned)(0);
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE, "cuInit returns %d", result);
    }
    find_functions(driver, "libcuda.so.1");
    size_t count = exported_names(driver, names, CAPACITY), exported = count;
    for (int i = 0; i < HOOK_COUNT; i++) {
        CHECK(count < CAPACITY, "%zu names", count);
        names[count] = hooks[i].name != NULL ? hooks[i].name : names[0];
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        compare_lookups(driver, names[i], limited);
        if (i < exported) {
            compare(dlsym(driver, names[i]), real_dlsym(driver, names[i]), is_abi_of_a_hooked_function(names[i]),
                    limited, "dlsym", names[i], 0, 0);
        }
    }
    int version = 0;
    CALL(cuDriverGetVersion, int *)(&version);
    printf("driver for CUDA %d.%d: %lu lookups of %zu exported names and %d hooks compared, %lu lead to hooks, "
           "%lu find nothing\n",
           version / 1000, version % 1000 / 10, compared, exported, HOOK_COUNT, led_to_hooks, not_found);
    CHECK(exported >= 500, "%zu exported names", exported);
    CHECK(limited ? led_to_hooks >= 10000 : led_to_hooks == 0, "%lu lookups lead to hooks", led_to_hooks);
    /* Before cuInit the region is empty; a lookup that counts an unhooked function opens it. */
    struct aliquot_header header = {0};
    int fd = open(sandbox_region, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &header, sizeof header, 0) >= 0, "%s", sandbox_region);
    CHECK_EQUAL(header.unhooked_functions, 0);
}

/* The UUID does not matter: no test reaches a GPU. */
#define LIMITS "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=3000Mi cores=30"

TEST(every_lookup_in_nvidias_libcuda_leads_to_the_hook_of_its_abi) {
    compare_all(LIMITS "\n", true, false);
}

TEST(every_lookup_in_nvidias_libcuda_after_cuInit_leads_to_the_hook_of_its_abi) {
    compare_all(LIMITS "\n", true, true);
}

TEST(with_whole_cards_every_lookup_in_nvidias_libcuda_leads_to_the_driver) {
    compare_all(LIMITS " exclusive\n", false, false);
}

TEST(every_name_in_nvidias_nvml_leads_to_its_hook_or_to_nvml) {
    enum { CAPACITY = 2000 };
    const char *names[CAPACITY];
    sandbox_empty();
    write_file(sandbox_limits, LIMITS "\n", strlen(LIMITS "\n"));
    write_file(sandbox_region, "", 0);
    void *driver = open_real("libnvidia-ml.so.1");
    find_functions(driver, "libnvidia-ml.so.1");
    size_t count = exported_names(driver, names, CAPACITY);
    for (size_t i = 0; i < count; i++) {
        compare(dlsym(driver, names[i]), real_dlsym(driver, names[i]), is_abi_of_a_hooked_function(names[i]), true,
                "dlsym", names[i], 0, 0);
    }
    printf("%lu lookups compared, %lu lead to hooks\n", compared, led_to_hooks);
    CHECK(count >= 200 && led_to_hooks >= 10, "%zu names, %lu hooks", count, led_to_hooks);
}
