/*
 * Checks where function lookups lead. Looks up every function that the shim hooks, with dlsym and both versions of
 * cuGetProcAddress, for every CUDA version and every flag, and finds the library that each address belongs to. Prints
 * one JSON object. Under the shim every address must belong to libaliquot.so; a run without the shim shows which
 * lookups the driver itself supports.
 */
#include "driver.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIQUOT_CUDA_H_INCLUDED /* only the rows of hooks.h are needed, not its types */
#include "driver/hooks.h"

struct row {
    const char *symbol, *name;
};

static const struct row rows[] = {
#define CUDA 1
#define NVML 0
#define ROW(library, result, symbol, name, version, flags, parameters) {library ? #symbol : NULL, name},
    ALIQUOT_HOOKS(ROW)
#undef ROW
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* The CUDA versions that may have introduced an ABI, and a future one. */
static const int versions[] = {2000,  2010,  2020,  3000,  3010,  3020,  4000,  4010,  5000,  5050,  6000,
                               6050,  7000,  7050,  8000,  9000,  9020,  10000, 10010, 10020, 11000, 11010,
                               11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030,
                               12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 13030, 14000};
enum { VERSIONS = sizeof versions / sizeof versions[0] };

static unsigned found, hooked, not_hooked;

static const char *library_of(void *address) {
    Dl_info info = {0};
    return dladdr(address, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "no library";
}

/* Counts one lookup. `address` is NULL if the lookup failed. */
static void record(void *address, const char *lookup, const char *name, int version, int flags) {
    if (address == NULL) {
        return;
    }
    found++;
    const char *library = library_of(address), *slash = strrchr(library, '/');
    if (strcmp(slash == NULL ? library : slash + 1, "libaliquot.so") == 0) {
        hooked++;
        return;
    }
    if (not_hooked++ < 8) {
        printf("%s\"%s(%s, %d, %d): %s\"", not_hooked == 1 ? "" : ", ", lookup, name, version, flags, library);
    }
}

static void look_up_all(void) {
    typedef int get_proc_address_v1(const char *, void **, int, uint64_t);
    typedef int get_proc_address_v2(const char *, void **, int, uint64_t, int *);
    get_proc_address_v1 *get_v1 = (get_proc_address_v1 *)driver_find("cuGetProcAddress");
    get_proc_address_v2 *get_v2 = (get_proc_address_v2 *)driver_find("cuGetProcAddress_v2");
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].symbol == NULL) {
            continue;
        }
        record(driver_find(rows[i].symbol), "dlsym", rows[i].symbol, 0, 0);
        for (int version = 0; version < VERSIONS; version++) {
            for (int flags = 0; flags <= 2; flags++) {
                void *address = NULL;
                int status = 0;
                if (get_v1 != NULL &&
                    get_v1(rows[i].name, &address, versions[version], (uint64_t)flags) == CUDA_SUCCESS) {
                    record(address, "cuGetProcAddress", rows[i].name, versions[version], flags);
                }
                address = NULL;
                if (get_v2 != NULL &&
                    get_v2(rows[i].name, &address, versions[version], (uint64_t)flags, &status) == CUDA_SUCCESS) {
                    record(address, "cuGetProcAddress_v2", rows[i].name, versions[version], flags);
                }
            }
        }
    }
}

static bool is_hook(const char *symbol) {
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].symbol != NULL && strcmp(rows[i].symbol, symbol) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the symbol is an ABI of a hooked function that hooks.h does not list, like cuMemAlloc_v9 or
   cuMemAllocAsync_v2_ptsz. */
static bool is_unknown_abi(const char *symbol) {
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].symbol == NULL || strncmp(symbol, rows[i].name, strlen(rows[i].name)) != 0) {
            continue;
        }
        const char *suffix = symbol + strlen(rows[i].name);
        if (suffix[0] == '\0' || strncmp(suffix, "_v", 2) == 0 || strncmp(suffix, "_pt", 3) == 0) {
            return !is_hook(symbol);
        }
    }
    return false;
}

/* Every name that the driver's file exports, read from its dynamic symbol table. */
static void print_unknown_abis(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END); /* glibc 2.17 has no fstat() */
    if (size < 0) {
        return;
    }
    const char *file = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED || (size_t)size < sizeof(Elf64_Ehdr)) {
        return;
    }
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + header->e_shoff);
    bool first = true;
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) {
            continue;
        }
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
        for (size_t j = 0; j < sections[i].sh_size / sizeof symbols[0]; j++) {
            if (symbols[j].st_shndx != SHN_UNDEF && is_unknown_abi(names + symbols[j].st_name)) {
                printf("%s\"%s\"", first ? "" : ", ", names + symbols[j].st_name);
                first = false;
            }
        }
    }
    munmap((void *)(uintptr_t)file, (size_t)size);
}

int main(void) {
    MUST(CALL(cuInit, unsigned)(0));
    int version = 0;
    CALL(cuDriverGetVersion, int *)(&version);
    printf("{\"driver\": %d, \"unhooked\": [", version);
    look_up_all();
    printf("], \"not_hooked\": %u, \"found\": %u, \"hooked\": %u, \"unknown\": [", not_hooked, found, hooked);
    /* The shim never hooks cuDriverGetVersion, so its address leads to the driver's file. */
    print_unknown_abis(library_of(driver_function("cuDriverGetVersion")));
    printf("]}\n");
    return EXIT_SUCCESS;
}
