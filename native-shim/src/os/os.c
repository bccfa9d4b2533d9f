#include "os/os.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma weak _r_debug /* the loader's, which the shim does not link to */

/* Calls the kernel directly: stat and fstat are functions only since glibc 2.33, before they were __xstat. */
static int file_from_stat(long result, const struct stat *status, struct aliquot_os_file *file) {
    if (result != 0) {
        return errno;
    }
    *file = (struct aliquot_os_file){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size = status->st_size,
        .changed_seconds = status->st_ctim.tv_sec,
        .changed_nanoseconds = status->st_ctim.tv_nsec,
        .regular = S_ISREG(status->st_mode),
    };
    return 0;
}

int aliquot_os_stat(const char *path, struct aliquot_os_file *file) {
    struct stat status;
    return file_from_stat(syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0), &status, file);
}

int aliquot_os_stat_fd(int fd, struct aliquot_os_file *file) {
    struct stat status;
    return file_from_stat(syscall(SYS_fstat, fd, &status), &status, file);
}

bool aliquot_os_is_file(int fd, const struct aliquot_os_file *expected) {
    struct aliquot_os_file file = {0};
    return aliquot_os_stat_fd(fd, &file) == 0 && file.device == expected->device && file.inode == expected->inode;
}

static int open_at(int folder, const char *path, int flags) {
    int fd;
    do {
        fd = openat(folder, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static int closed_as_stale(int fd) {
    aliquot_os_close(fd);
    errno = ESTALE;
    return -1;
}

int aliquot_os_open(const char *path, const struct aliquot_os_file *expected, bool writable) {
    int fd = open_at(AT_FDCWD, path, writable ? O_RDWR : O_RDONLY);
    return fd >= 0 && expected != NULL && !aliquot_os_is_file(fd, expected) ? closed_as_stale(fd) : fd;
}

int aliquot_os_open_in(const char *path, const struct aliquot_os_file *expected, const char *name) {
    struct aliquot_os_file file = {0};
    int folder = open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY);
    if (folder < 0) {
        return -1;
    }
    if (!aliquot_os_is_file(folder, expected)) {
        return closed_as_stale(folder);
    }
    int fd = open_at(folder, name, O_RDONLY), error = errno;
    aliquot_os_close(folder);
    if (fd >= 0 && (aliquot_os_stat_fd(fd, &file) != 0 || file.device != expected->device)) {
        return closed_as_stale(fd); /* another thread has exchanged the descriptor */
    }
    errno = error;
    return fd;
}

void aliquot_os_close(int fd) {
#ifdef __SANITIZE_THREAD__
    close(fd); /* ThreadSanitizer must see the close, or it takes the next file with this number for the same one */
#else
    /* A system call, because close() is a cancellation point. */
    syscall(SYS_close, fd);
#endif
}

int aliquot_os_move_high(int fd) {
    /* Below 1024, so that the kernel's table of descriptors stays small; lower if the process may have only few. */
    for (int least = 1000; least > fd; least /= 2) {
        long high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least);
        if (high >= 0) {
            aliquot_os_close(fd);
            return (int)high;
        }
    }
    return fd;
}

long aliquot_os_read(int fd, char *buffer, size_t size) {
    size_t length = 0;
    while (length < size) {
        long count = syscall(SYS_read, fd, buffer + length, size - length);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return -1;
        }
        if (count == 0) {
            break;
        }
        length += (size_t)count;
    }
    return (long)length;
}

int aliquot_os_extend(int fd, size_t size) {
    return posix_fallocate(fd, 0, (off_t)size);
}

void *aliquot_os_map(int fd, size_t size) {
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    return address == MAP_FAILED ? NULL : address;
}

void *aliquot_os_map_readonly(int fd, size_t size) {
    void *address = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    return address == MAP_FAILED ? NULL : address;
}

void aliquot_os_unmap(void *address, size_t size) {
    munmap(address, size);
}

static bool set_lock(int fd, int64_t offset, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
    return syscall(SYS_fcntl, fd, F_OFD_SETLK, &lock) == 0;
}

bool aliquot_os_lock(int fd, int64_t offset) {
    return set_lock(fd, offset, F_WRLCK);
}

void aliquot_os_unlock(int fd, int64_t offset) {
    set_lock(fd, offset, F_UNLCK);
}

bool aliquot_os_is_locked(int fd, int64_t offset) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
    return syscall(SYS_fcntl, fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ns by which CLOCK_MONOTONIC is ahead of the node's */
static _Atomic int64_t clock_offset;

/* Reads a decimal number modulo 2^64, and moves the text behind it. */
static uint64_t next_number(const char **text) {
    const char *c = *text + strspn(*text, " ");
    bool negative = *c == '-';
    uint64_t number = 0;
    for (c += negative; *c >= '0' && *c <= '9'; c++) {
        number = number * 10 + (uint64_t)(*c - '0');
    }
    *text = c;
    return negative ? 0 - number : number;
}

void aliquot_os_find_clock_offset(void) {
    struct aliquot_os_file own, childrens;
    char text[256] = "";
    /* The file is of the namespace in which the process's next child will be: time_namespaces(7). */
    int fd = aliquot_os_stat("/proc/self/ns/time", &own) == 0 &&
                     aliquot_os_stat("/proc/self/ns/time_for_children", &childrens) == 0 && own.inode == childrens.inode
                 ? open_at(AT_FDCWD, "/proc/self/timens_offsets", O_RDONLY)
                 : -1;
    if (fd >= 0) {
        aliquot_os_read(fd, text, sizeof text - 1);
        aliquot_os_close(fd);
    }
    static const char line[] = "monotonic";
    const char *numbers = strncmp(text, line, sizeof line - 1) == 0 ? text + sizeof line - 1 : "";
    uint64_t seconds = next_number(&numbers), nanoseconds = next_number(&numbers);
    atomic_store_explicit(&clock_offset, (int64_t)(seconds * 1000000000 + nanoseconds), memory_order_relaxed);
}

static int64_t clock_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t aliquot_os_clock_coarse(void) {
    return clock_of(CLOCK_MONOTONIC_COARSE) - atomic_load_explicit(&clock_offset, memory_order_relaxed);
}

int64_t aliquot_os_clock(void) {
    return clock_of(CLOCK_MONOTONIC) - atomic_load_explicit(&clock_offset, memory_order_relaxed);
}

uint64_t aliquot_os_time(void) {
    return (uint64_t)clock_of(CLOCK_REALTIME) / 1000;
}

uint32_t aliquot_os_pid(void) {
    return (uint32_t)syscall(SYS_getpid); /* not getpid(), which old glibc versions cache across a clone */
}

int aliquot_os_thread(void) {
    return (int)syscall(SYS_gettid);
}

bool aliquot_os_has_thread(int thread) {
    return syscall(SYS_tgkill, aliquot_os_pid(), thread, 0) == 0;
}

void aliquot_os_sleep(int64_t nanoseconds) {
    aliquot_os_sleep_until(aliquot_os_clock() + nanoseconds);
}

/* Calls the C library, so that tests can replace the clock. clock_nanosleep has been in libc since 2.17. */
void aliquot_os_sleep_until(int64_t time) {
    time += atomic_load_explicit(&clock_offset, memory_order_relaxed);
    struct timespec until = {.tv_sec = time / 1000000000, .tv_nsec = time % 1000000000};
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    pthread_setcancelstate(before, NULL);
}

uint64_t aliquot_os_block_signals(uint64_t blocked) {
    uint64_t before = 0; /* kernel's signal set: pthread_sigmask() moved from libpthread to libc in glibc 2.32 */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, &before, sizeof before);
    return before;
}

void aliquot_os_append(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd >= 0) {
        long written = syscall(SYS_write, fd, text, strlen(text));
        (void)written; /* an incomplete report disturbs the program less than an error */
        aliquot_os_close(fd);
    }
}

void aliquot_os_write_stderr(const char *line) {
    size_t length = strlen(line);
    long written = syscall(SYS_write, STDERR_FILENO, line, length);
    (void)written; /* there is no other place to report a closed standard error */
}

bool aliquot_os_equals(const char *one, const char *other) {
    while (*one != 0 && *one == *other) {
        one++;
        other++;
    }
    return *one == *other;
}

/* Symbol tables of a loaded library, from its dynamic section. glibc has a GNU hash table since 2.5. */
struct symbols {
    ElfW(Addr) base;
    const char *soname;
    const char *strings;
    const ElfW(Sym) * table;
    const uint32_t *gnu_hash;
};

static const void *relocated(ElfW(Addr) base, ElfW(Addr) address) {
    /* The loader writes absolute addresses into the dynamic section unless it is read-only. */
    return (const void *)(address < base ? address + base : address);
}

static bool read_dynamic(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct symbols *symbols) {
    *symbols = (struct symbols){.base = base};
    if (dynamic == NULL) {
        return false;
    }
    size_t soname = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
        case DT_STRTAB:
            symbols->strings = relocated(base, dynamic->d_un.d_ptr);
            break;
        case DT_SYMTAB:
            symbols->table = relocated(base, dynamic->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            symbols->gnu_hash = relocated(base, dynamic->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = dynamic->d_un.d_val; /* 0 is the empty string */
            break;
        default:
            break;
        }
    }
    if (symbols->strings == NULL || symbols->table == NULL || symbols->gnu_hash == NULL) {
        return false;
    }
    symbols->soname = symbols->strings + soname;
    return true;
}

static const ElfW(Sym) * named_definition(const struct symbols *symbols, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &symbols->table[index];
    bool matches = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
                   aliquot_os_equals(symbols->strings + symbol->st_name, name);
    return matches ? symbol : NULL;
}

static void *find_definition(const struct symbols *symbols, const char *name) {
    uint32_t hash = 5381;
    for (const char *c = name; *c != 0; c++) {
        hash = hash * 33 + (unsigned char)*c;
    }
    uint32_t buckets = symbols->gnu_hash[0];
    uint32_t first = symbols->gnu_hash[1];
    uint32_t bloom_words = symbols->gnu_hash[2];
    const uint32_t *bucket = symbols->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    if (buckets == 0) {
        return NULL;
    }
    uint32_t index = bucket[hash % buckets];
    if (index < first) {
        return NULL;
    }
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1)) {
            const ElfW(Sym) *found = named_definition(symbols, index, name);
            if (found != NULL) {
                return (void *)(symbols->base + found->st_value);
            }
        }
        if ((entry & 1) != 0) {
            return NULL;
        }
    }
}

struct search {
    const char *symbol;
    void *found;
};

static int search_libdl(struct dl_phdr_info *library, size_t size, void *argument) {
    (void)size;
    struct search *search = argument;
    struct symbols symbols;
    const ElfW(Dyn) *dynamic = NULL;
    for (unsigned i = 0; i < library->dlpi_phnum; i++) {
        if (library->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            dynamic = (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
        }
    }
    if (read_dynamic(library->dlpi_addr, dynamic, &symbols) && aliquot_os_equals(symbols.soname, "libdl.so.2")) {
        search->found = find_definition(&symbols, search->symbol);
    }
    return search->found != NULL;
}

typedef int iterate_function(int (*each)(struct dl_phdr_info *library, size_t size, void *argument), void *argument);

/*
 * A sanitizer's runtime calls dlsym for the real dl_iterate_phdr and strcmp while its own ones do not work yet. So
 * nothing is called here that a program may define, and the loader's list is read without the loader's lock. That is
 * safe up to libc.so.6: what precedes it was loaded with the program, and the loader appends libraries at the end and
 * never removes those. libc's own dl_iterate_phdr, which takes the lock, searches the rest.
 */
void *aliquot_os_find_symbol(const char *symbol) {
    struct symbols libc;
    const struct link_map *map = &_r_debug == NULL ? NULL : _r_debug.r_map;
    while (map != NULL &&
           !(read_dynamic(map->l_addr, map->l_ld, &libc) && aliquot_os_equals(libc.soname, "libc.so.6"))) {
        map = map->l_next;
    }
    if (map == NULL) {
        return NULL;
    }
    struct search search = {symbol, find_definition(&libc, symbol)};
    iterate_function *iterate =
        search.found != NULL ? NULL : (iterate_function *)find_definition(&libc, "dl_iterate_phdr");
    if (iterate != NULL) {
        iterate(search_libdl, &search);
    }
    return search.found;
}
