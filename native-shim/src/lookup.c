/*
 * Programs reach the driver in three ways: by linking to it (they then bind to our exported names, since we are loaded
 * first), by dlsym, and by cuGetProcAddress, which itself is found in one of the first two. In the last two the real
 * lookup is done first, exactly as asked, and its answer replaced if it is the address of a function that we hook:
 * which ABI that function has is then known from its address, never guessed from a name.
 */
#include "lookup.h"

#include "config.h"
#include "os.h"
#include "shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Not declared weak or strong anywhere: before glibc 2.34 these live in libdl, which not every process has loaded. */
typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlopen_function(const char *file, int mode);
typedef char *dlerror_function(void);

enum library { CUDA, NVML, LIBRARIES };

static const char *const library_names[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};

struct hook {
    enum library library;
    const char *symbol;
    void *ours;
    size_t bare;      /* offset in aliquot_bare */
    const char *name; /* for cuGetProcAddress */
    int version;
    cuuint64_t flags;
};

static const struct hook hooks[] = {
#define ROW(library, result, symbol, name, version, flags, parameters)                                                 \
    {library, #symbol, (void *)symbol, offsetof(struct aliquot_bare, symbol), name, version, flags},
    ALIQUOT_HOOKS(ROW)
#undef ROW
};

#define HOOK_COUNT (sizeof hooks / sizeof hooks[0])

static const struct {
    enum library library;
    const char *symbol;
    size_t bare;
} bare_only[] = {
#define ROW(library, result, symbol, parameters) {library, #symbol, offsetof(struct aliquot_bare, symbol)},
    ALIQUOT_BARE(ROW)
#undef ROW
};

struct aliquot_bare aliquot_bare;

/* No locks: whoever comes at the same time finds, and writes, the same addresses, and the loader may call constructors
   that look things up. */
static atomic_bool loaded[LIBRARIES];
atomic_bool aliquot_lookup_cuda_done;
static atomic_bool placed; /* other_address is filled */
/* What cuGetProcAddress answers for a hook's ABI where that isn't the exported function's address; else NULL. */
static void *other_address[HOOK_COUNT];
static _Atomic(dlsym_function *) cached_dlsym;

static void **bare_at(size_t offset) {
    return (void **)((char *)&aliquot_bare + offset);
}

static void set(void **function, void *address) {
    __atomic_store_n(function, address, __ATOMIC_RELAXED);
}

static void *get(void **function) {
    return __atomic_load_n(function, __ATOMIC_RELAXED);
}

/* libc.so.6 has them since glibc 2.34. dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5") is no way: before, dlvsym itself is in
   libdl, and a weak reference to it stays NULL in a process that loads libdl late. */
static void *find_in_libc(const char *symbol) {
    static const char *const sonames[] = {"libdl.so.2", "libc.so.6", NULL};
    return aliquot_os_find_symbol(sonames, symbol);
}

static dlsym_function *real_dlsym(void) {
    dlsym_function *found = atomic_load_explicit(&cached_dlsym, memory_order_acquire);
    if (found == NULL) {
        found = (dlsym_function *)find_in_libc("dlsym");
        atomic_store_explicit(&cached_dlsym, found, memory_order_release);
    }
    return found;
}

/* True: the next dlerror() won't report the search that has just failed. */
static bool forget_error(void) {
    dlerror_function *real = (dlerror_function *)find_in_libc("dlerror");
    if (real != NULL) {
        real();
    }
    return real != NULL;
}

static void *open_library(enum library library, bool load) {
    dlopen_function *real_dlopen = (dlopen_function *)find_in_libc("dlopen");
    if (real_dlopen == NULL) {
        return NULL;
    }
    /* The reference is kept: our pointers into the library must stay right. */
    void *handle = real_dlopen(library_names[library], RTLD_LAZY | RTLD_NOLOAD);
    return handle == NULL && load ? real_dlopen(library_names[library], RTLD_LAZY) : handle;
}

static bool fill(enum library library, bool load) {
    void *handle = open_library(library, load);
    if (handle == NULL) {
        return false;
    }
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].library == library) {
            set(bare_at(hooks[i].bare), real_dlsym()(handle, hooks[i].symbol));
        }
    }
    for (size_t i = 0; i < sizeof bare_only / sizeof bare_only[0]; i++) {
        if (bare_only[i].library == library) {
            set(bare_at(bare_only[i].bare), real_dlsym()(handle, bare_only[i].symbol));
        }
    }
    return true;
}

static bool lookup(enum library library, bool load) {
    if (atomic_load_explicit(&loaded[library], memory_order_acquire)) {
        return true;
    }
    int saved = errno;
    bool filled = real_dlsym() != NULL && fill(library, load);
    if (filled) {
        atomic_store_explicit(&loaded[library], true, memory_order_release);
    }
    errno = saved;
    return filled;
}

bool aliquot_lookup_cuda_now(void) {
    bool done = lookup(CUDA, true);
    if (done) {
        atomic_store_explicit(&aliquot_lookup_cuda_done, true, memory_order_release);
    }
    return done;
}

bool aliquot_lookup_nvml(void) {
    return lookup(NVML, true);
}

void *aliquot_lookup_global(const char *name) {
    dlsym_function *real = real_dlsym();
    return real == NULL ? NULL : real(RTLD_DEFAULT, name);
}

static const struct hook *hook_named(const char *symbol) {
    if (strncmp(symbol, "cu", 2) != 0 && strncmp(symbol, "nvml", 4) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (strcmp(symbol, hooks[i].symbol) == 0) {
            return &hooks[i];
        }
    }
    return NULL;
}

/* What our dlsym (dlsym.S) is to do: return result, or, if jump is not NULL, jump there as if it had been called. */
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
    /* First, since it changes what dlerror() will say. */
    bool ours = lookup(hook->library, false) && get(bare_at(hook->bare)) != NULL;
    bool pseudo = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
    /* In the global scope our own export comes first, driver or no driver: look behind it. */
    void *found = real(pseudo ? RTLD_NEXT : handle, name);
    if (found == hook->ours) {
        found = real(RTLD_NEXT, name);
    }
    if (ours && (found == get(bare_at(hook->bare)) || (found == NULL && pseudo && forget_error()))) {
        /* Where nothing was found behind us, the driver is in a scope that only the caller can search. */
        return (struct aliquot_route){hook->ours, NULL};
    }
    if (found == NULL) {
        return (struct aliquot_route){NULL, NULL}; /* dlerror() says what it would say without us */
    }
    return as_asked; /* another library's function of that name */
}

static void ask_for_other_addresses(void) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        const struct hook *hook = &hooks[i];
        void *answer = NULL;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (hook->name == NULL) {
            continue;
        }
        if (aliquot_bare.cuGetProcAddress_v2 != NULL) {
            result = aliquot_bare.cuGetProcAddress_v2(hook->name, &answer, hook->version, hook->flags, NULL);
        } else if (aliquot_bare.cuGetProcAddress != NULL) {
            result = aliquot_bare.cuGetProcAddress(hook->name, &answer, hook->version, hook->flags);
        }
        bool known = result != CUDA_SUCCESS || answer == NULL;
        for (size_t other = 0; other < HOOK_COUNT && !known; other++) {
            known = answer == get(bare_at(hooks[other].bare)) || answer == get(&other_address[other]);
        }
        if (!known) {
            set(&other_address[i], answer);
            if (get(bare_at(hook->bare)) == NULL) {
                set(bare_at(hook->bare), answer); /* not exported, but there */
            }
        }
    }
}

static void place_addresses(void) {
    if (atomic_load_explicit(&placed, memory_order_acquire)) {
        return;
    }
    int saved = errno;
    ask_for_other_addresses();
    atomic_store_explicit(&placed, true, memory_order_release);
    errno = saved;
}

static bool must_hook(const char *name) {
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].name != NULL && strcmp(hooks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Replaces an answer of the real cuGetProcAddress. */
static void substitute(const char *name, void **function) {
    place_addresses();
    for (size_t i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].library == CUDA &&
            (*function == get(bare_at(hooks[i].bare)) || *function == get(&other_address[i]))) {
            *function = hooks[i].ours;
            return;
        }
    }
    /* Counted where the node agent sees it. The program gets what it asked for: an unknown ABI can't be wrapped. */
    if (must_hook(name) && aliquot_config_mode() == ALIQUOT_MODE_ENFORCE) {
        __atomic_fetch_add(&aliquot_shared_region()->header.unplaced_addresses, 1, __ATOMIC_RELAXED);
    }
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    ALIQUOT_NEED(cuGetProcAddress)
    CUresult result = aliquot_bare.cuGetProcAddress(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL) {
        substitute(symbol, function);
    }
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    ALIQUOT_NEED(cuGetProcAddress_v2)
    CUresult result = aliquot_bare.cuGetProcAddress_v2(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol != NULL && function != NULL && *function != NULL) {
        substitute(symbol, function);
    }
    return result;
}
