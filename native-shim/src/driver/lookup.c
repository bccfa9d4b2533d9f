/*
 * Programs reach the driver in three ways: by linking to it (the exported hooks come first, because the shim is
 * preloaded), by dlsym, and by cuGetProcAddress, which they find in one of the first two ways. In the last two cases
 * the real lookup runs first with the same arguments. If it returns the address of a hooked function, the hook replaces
 * it. The address identifies the ABI; a name alone would not.
 *
 * In a container with whole cards there is nothing to enforce: both lookups return the driver's own addresses, and the
 * exported hooks jump to them, as soon as the node agent has confirmed that.
 */
#include "driver/lookup.h"

#include "limits/config.h"
#include "os/os.h"
#include "os/shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Neither weak nor strong references: before glibc 2.34 these functions are in libdl, which not every process has
   loaded. */
typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlopen_function(const char *file, int mode);
typedef char *dlerror_function(void);

enum library { CUDA, NVML, LIBRARIES };

static const char *const library_names[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};

/* The exported symbol of a hook, which the driver's clients call. In C the name without the prefix is the hook itself.
 */
#define ROW(library, result, symbol, name, version, flags, parameters)                                                 \
    void aliquot_exported_##symbol(void) __asm__(#symbol);
ALIQUOT_HOOKS(ROW)
#undef ROW

struct hook {
    enum library library;
    const char *symbol;
    void *hook_address; /* of the exported symbol */
    size_t real_offset; /* offset in struct aliquot_real */
    const char *name;   /* for cuGetProcAddress */
    int version;
    cuuint64_t flags;
};

static const struct hook hooks[] = {
#define ROW(library, result, symbol, name, version, flags, parameters)                                                 \
    {library, #symbol, (void *)aliquot_exported_##symbol, offsetof(struct aliquot_real, symbol), name, version, flags},
    ALIQUOT_HOOKS(ROW)
#undef ROW
};

#define HOOK_COUNT (sizeof hooks / sizeof hooks[0])

static const struct {
    enum library library;
    const char *symbol;
    size_t real_offset;
} called_functions[] = {
#define ROW(library, result, symbol, parameters) {library, #symbol, offsetof(struct aliquot_real, symbol)},
    ALIQUOT_CALLED(ROW)
#undef ROW
};

struct aliquot_real aliquot_real;

/* Where each exported hook jumps to, in the order of hooks.h (exports.S). */
extern void *aliquot_entries[HOOK_COUNT];

/* No locks: concurrent threads find and write the same addresses, and constructors run by the loader may look up
   symbols. */
static atomic_bool loaded[LIBRARIES];
atomic_bool aliquot_lookup_cuda_done;
static atomic_bool alternates_known; /* alternate_address is complete */
/* Address that cuGetProcAddress returns for the ABI of a hook if it differs from the exported function's; else NULL. */
static void *alternate_address[HOOK_COUNT];
static _Atomic(dlsym_function *) cached_dlsym;

static void **real_function_at(size_t offset) {
    return (void **)((char *)&aliquot_real + offset);
}

static void store_pointer(void **function, void *address) {
    __atomic_store_n(function, address, __ATOMIC_RELAXED);
}

static void *load_pointer(void **function) {
    return __atomic_load_n(function, __ATOMIC_RELAXED);
}

static dlsym_function *real_dlsym(void) {
    dlsym_function *found = atomic_load_explicit(&cached_dlsym, memory_order_acquire);
    /* dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5") does not work: before 2.34 dlvsym itself is in libdl, and a weak
       reference to it stays NULL in a process that loads libdl late. */
    if (found == NULL) {
        found = (dlsym_function *)aliquot_os_find_symbol("dlsym");
        atomic_store_explicit(&cached_dlsym, found, memory_order_release);
    }
    return found;
}

/* Clears the error of the last search. True: the next dlerror() does not report it. */
static bool clear_dlerror(void) {
    dlerror_function *real = (dlerror_function *)aliquot_os_find_symbol("dlerror");
    if (real != NULL) {
        real();
    }
    return real != NULL;
}

static void *open_library(enum library library, bool load) {
    dlopen_function *real_dlopen = (dlopen_function *)aliquot_os_find_symbol("dlopen");
    if (real_dlopen == NULL) {
        return NULL;
    }
    /* The handle is never closed, so that the function pointers stay valid. */
    void *handle = real_dlopen(library_names[library], RTLD_LAZY | RTLD_NOLOAD);
    return handle == NULL && load ? real_dlopen(library_names[library], RTLD_LAZY) : handle;
}

static bool resolve_functions(enum library library, bool load) {
    void *handle = open_library(library, load);
    if (handle == NULL) {
        return false;
    }
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].library == library) {
            store_pointer(real_function_at(hooks[i].real_offset), real_dlsym()(handle, hooks[i].symbol));
        }
    }
    for (size_t i = 0; i < sizeof called_functions / sizeof called_functions[0]; i++) {
        if (called_functions[i].library == library) {
            store_pointer(real_function_at(called_functions[i].real_offset),
                          real_dlsym()(handle, called_functions[i].symbol));
        }
    }
    return true;
}

/* Makes the exported hooks jump to the driver. A function that the driver does not have keeps its hook, which returns
   an error. */
static void bypass_hooks(enum library library) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        void *real = load_pointer(real_function_at(hooks[i].real_offset));
        if (hooks[i].library == library && real != NULL) {
            store_pointer(&aliquot_entries[i], real);
        }
    }
}

static void bypass_all_hooks(void) {
    for (int library = 0; library < LIBRARIES; library++) {
        bypass_hooks((enum library)library);
    }
}

static bool resolve_library(enum library library, bool load) {
    if (atomic_load_explicit(&loaded[library], memory_order_acquire)) {
        return true;
    }
    int saved = errno;
    bool filled = real_dlsym() != NULL && resolve_functions(library, load);
    if (filled) {
        if (aliquot_config_is_bypassed(bypass_all_hooks)) {
            bypass_hooks(library);
        }
        atomic_store_explicit(&loaded[library], true, memory_order_release);
    }
    errno = saved;
    return filled;
}

bool aliquot_lookup_cuda_now(void) {
    bool done = resolve_library(CUDA, true);
    if (done) {
        atomic_store_explicit(&aliquot_lookup_cuda_done, true, memory_order_release);
    }
    return done;
}

bool aliquot_lookup_nvml(void) {
    return resolve_library(NVML, true);
}

void *aliquot_lookup_global(const char *name) {
    dlsym_function *real = real_dlsym();
    return real == NULL ? NULL : real(RTLD_DEFAULT, name);
}

/* Calls nothing that a program may define (aliquot_os_find_symbol). */
static const struct hook *hook_named(const char *symbol) {
    bool may_be = symbol[0] == 'c' ? symbol[1] == 'u' : symbol[0] == 'n' && symbol[1] == 'v'; /* most are not */
    for (size_t i = 0; may_be && i < HOOK_COUNT; i++) {
        if (aliquot_os_equals(symbol, hooks[i].symbol)) {
            return &hooks[i];
        }
    }
    return NULL;
}

/* Instruction to dlsym.S: return result, or, if jump is not NULL, jump to it as if the caller had called it. */
struct aliquot_route {
    void *result;
    void *jump;
};

struct aliquot_route aliquot_route_dlsym(void *handle, const char *name);

struct aliquot_route aliquot_route_dlsym(void *handle, const char *name) {
    const struct hook *hook = name == NULL ? NULL : hook_named(name);
    dlsym_function *real = real_dlsym();
    struct aliquot_route as_asked = {NULL, (void *)real};
    if (real == NULL || hook == NULL) {
        return as_asked;
    }
    /* Before the search for name, because this changes what dlerror() returns. */
    bool driver_has_it =
        resolve_library(hook->library, false) && load_pointer(real_function_at(hook->real_offset)) != NULL;
    bool pseudo = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
    /* In the global scope the exported hook comes first, even without a driver: search after it. */
    void *found = real(pseudo ? RTLD_NEXT : handle, name);
    if (found == hook->hook_address) {
        found = real(RTLD_NEXT, name);
    }
    void *driver_address = driver_has_it ? load_pointer(real_function_at(hook->real_offset)) : NULL;
    if (driver_has_it && (found == driver_address || (found == NULL && pseudo && clear_dlerror()))) {
        /* If nothing was found after the shim, the driver is in a scope that only the caller can search. */
        return (struct aliquot_route){aliquot_config_is_bypassed(NULL) ? driver_address : hook->hook_address, NULL};
    }
    if (found == NULL) {
        return (struct aliquot_route){NULL, NULL}; /* dlerror() returns the error of the real search */
    }
    return as_asked; /* a function of that name in another library */
}

static void query_alternate_addresses(void) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        const struct hook *hook = &hooks[i];
        void *answer = NULL;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (hook->name == NULL) {
            continue;
        }
        if (aliquot_real.cuGetProcAddress_v2 != NULL) {
            result = aliquot_real.cuGetProcAddress_v2(hook->name, &answer, hook->version, hook->flags, NULL);
        } else if (aliquot_real.cuGetProcAddress != NULL) {
            result = aliquot_real.cuGetProcAddress(hook->name, &answer, hook->version, hook->flags);
        }
        bool known = result != CUDA_SUCCESS || answer == NULL;
        for (size_t other = 0; other < HOOK_COUNT && !known; other++) {
            known = answer == load_pointer(real_function_at(hooks[other].real_offset)) ||
                    answer == load_pointer(&alternate_address[other]);
        }
        if (!known) {
            store_pointer(&alternate_address[i], answer);
            if (load_pointer(real_function_at(hook->real_offset)) == NULL) {
                store_pointer(real_function_at(hook->real_offset), answer); /* not exported, but available */
            }
        }
    }
}

static void find_alternate_addresses(void) {
    if (atomic_load_explicit(&alternates_known, memory_order_acquire)) {
        return;
    }
    int saved = errno;
    query_alternate_addresses();
    atomic_store_explicit(&alternates_known, true, memory_order_release);
    errno = saved;
}

static bool is_hooked_name(const char *name) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].name != NULL && strcmp(hooks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Replaces the result of the real cuGetProcAddress by the hook, unless the container has whole cards. */
static void replace_with_hook(const char *name, void **function) {
    if (aliquot_config_is_bypassed(NULL)) {
        return;
    }
    find_alternate_addresses();
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].library == CUDA && (*function == load_pointer(real_function_at(hooks[i].real_offset)) ||
                                         *function == load_pointer(&alternate_address[i]))) {
            *function = hooks[i].hook_address;
            return;
        }
    }
    /* The address is of an unknown ABI, so it cannot be hooked: the program gets it, and the region counts it for
       the node agent. */
    if (is_hooked_name(name) && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        __atomic_fetch_add(&aliquot_shared_region()->header.unhooked_functions, 1, __ATOMIC_RELAXED);
    }
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    ALIQUOT_REQUIRE(cuGetProcAddress)
    CUresult result = aliquot_real.cuGetProcAddress(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL) {
        replace_with_hook(symbol, function);
    }
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    ALIQUOT_REQUIRE(cuGetProcAddress_v2)
    CUresult result = aliquot_real.cuGetProcAddress_v2(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL) {
        replace_with_hook(symbol, function);
    }
    return result;
}
