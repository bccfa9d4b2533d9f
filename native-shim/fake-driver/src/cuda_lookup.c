/* Entry points by name (cuGetProcAddress) and error descriptions. */
#include "cuda_driver.h"

#include <stdio.h>
#include <string.h>

static CUresult unsupported(const char *symbol) {
    log_line("%s is not supported", symbol);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Each function has an address of its own, since lookups return it. The parameters do not matter here, so the C names
   differ from the symbols, for which cuda.h has prototypes. */
#define ENTRY(name, version, symbol) CUresult symbol##_entry(void) __asm__(#symbol);
#define PER_THREAD(name, version, symbol, plain) ENTRY(name, version, symbol)
#define UNSUPPORTED(name, version, symbol)                                                                             \
    API ENTRY(name, version, symbol)                                                                                   \
    API CUresult symbol##_entry(void) {                                                                                \
        return unsupported(#symbol);                                                                                   \
    }
#include "cuda_entries.def"
#undef ENTRY
#undef PER_THREAD
#undef UNSUPPORTED

static const struct entry_point {
    const char *name;
    int version;
    bool per_thread_stream;
    CUresult (*function)(void);
} entry_points[] = {
#define ENTRY(name, version, symbol) {#name, version, false, symbol##_entry},
#define PER_THREAD(name, version, symbol, plain) {#name, version, true, symbol##_entry},
#define UNSUPPORTED ENTRY
#include "cuda_entries.def"
#undef ENTRY
#undef PER_THREAD
#undef UNSUPPORTED
};

/*
 * The per-thread-default-stream variants. Each is a function with an address of its own, as in NVIDIA's driver, and
 * jumps to the plain function. The symbols are weak: where the stream matters, cuda_per_thread.c defines a variant
 * that replaces them.
 */
#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#else
#error "no jump instruction is defined for this architecture"
#endif
#define ENTRY(name, version, symbol)
#define UNSUPPORTED(name, version, symbol)
#define PER_THREAD(name, version, symbol, plain)                                                                       \
    __asm__(".text\n.weak " #symbol "\n.type " #symbol ", %function\n" #symbol ":\n\t" JUMP #plain "\n.size " #symbol  \
            ", .-" #symbol "\n");
#include "cuda_entries.def"
#undef ENTRY
#undef PER_THREAD
#undef UNSUPPORTED

/* The newest version of the function that the caller knows. If the function has per-thread-stream variants, a caller
   that asks for them gets no other. */
static CUdriverProcAddressQueryResult find_entry_point(const char *name, int version, bool per_thread_stream,
                                                       void **function) {
    const struct entry_point *best = NULL;
    bool known = false, has_variants = false;
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        has_variants |= entry_points[i].per_thread_stream && strcmp(entry_points[i].name, name) == 0;
    }
    for (size_t i = 0; i < sizeof entry_points / sizeof entry_points[0]; i++) {
        const struct entry_point *entry = &entry_points[i];
        if (strcmp(entry->name, name) != 0 || entry->per_thread_stream != (per_thread_stream && has_variants)) {
            continue;
        }
        known = true;
        if (entry->version <= version && (best == NULL || entry->version > best->version)) {
            best = entry;
        }
    }
    if (best == NULL) {
        return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    memcpy(function, &best->function, sizeof *function);
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

/* Returns what NVIDIA's drivers 535 and 550 do, which is not what cuda.h says: CUDA_SUCCESS and NULL for a function
   that the driver does not have. */
API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *symbolStatus) {
    if (symbol == NULL || pfn == NULL || flags > 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pfn = NULL;
    CUdriverProcAddressQueryResult found =
        find_entry_point(symbol, cudaVersion, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, pfn);
    if (symbolStatus != NULL) {
        *symbolStatus = found;
    }
    if (found != CU_GET_PROC_ADDRESS_SUCCESS) {
        log_line("cuGetProcAddress: no %s of version %d", symbol, cudaVersion);
    }
    return CUDA_SUCCESS;
}

/* The first version leaves the caller's pointer unchanged if it finds nothing. */
API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    void *found;
    CUresult result = cuGetProcAddress_v2(symbol, pfn != NULL ? &found : NULL, cudaVersion, flags, NULL);
    if (result == CUDA_SUCCESS && found == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (result == CUDA_SUCCESS) {
        *pfn = found;
    }
    return result;
}

static const struct {
    CUresult value;
    const char *name, *text;
} errors[] = {
#define ERROR(name, value, text) {name, #name, text},
#include "cuda_errors.def"
#undef ERROR
};

static CUresult find_error(CUresult error, const char **answer, bool name) {
    if (answer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].value == error) {
            *answer = name ? errors[i].name : errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *answer = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult error, const char **pStr) {
    return find_error(error, pStr, true);
}
API CUresult cuGetErrorString(CUresult error, const char **pStr) {
    return find_error(error, pStr, false);
}
