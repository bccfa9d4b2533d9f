#define _GNU_SOURCE
#include "gpu_file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3355504751494c41) /* "ALIQGPU3" */

const char *gpu_directory(void) {
    const char *directory = getenv(GPU_DIRECTORY_VARIABLE);
    return directory != NULL && directory[0] != '\0' ? directory : GPU_DEFAULT_DIRECTORY;
}

bool gpu_is_uuid(const char *text) {
    static const char form[] = "-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (strncmp(text, "GPU", 3) != 0 && strncmp(text, "MIG", 3) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof form; i++) {
        char c = text[i + 3];
        bool right = form[i] == 'x' ? (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') : c == form[i];
        if (!right) {
            return false;
        }
    }
    return true;
}

static unsigned hex_digit(char c) {
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

void gpu_uuid_bytes(const char *uuid, unsigned char bytes[16]) {
    const char *from = uuid + 4;
    for (int i = 0; i < 16; i++) {
        if (*from == '-') {
            from++;
        }
        bytes[i] = (unsigned char)(hex_digit(from[0]) << 4 | hex_digit(from[1]));
        from += 2;
    }
}

/* FNV-1a. It only detects a header that is not completely written. */
static uint64_t checksum(const struct file_header *header) {
    const unsigned char *bytes = (const unsigned char *)header;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < offsetof(struct file_header, checksum); i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static bool is_printable_text(const char *text, size_t size) {
    size_t length = strnlen(text, size);
    if (length == 0 || length == size) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~') {
            return false;
        }
    }
    return true;
}

static const char *header_fault(const struct file_header *header) {
    const struct gpu_identity *id = &header->identity;
    if (header->magic != MAGIC || header->file_bytes != sizeof(struct gpu_layout)) {
        return "it does not start with the header of this version's GPU files";
    }
    if (header->checksum != checksum(header)) {
        return "its header does not match its checksum";
    }
    if (!is_printable_text(id->uuid, sizeof id->uuid) || !gpu_is_uuid(id->uuid)) {
        return "its UUID is malformed";
    }
    if (!is_printable_text(id->name, sizeof id->name) || !is_printable_text(id->serial, sizeof id->serial)) {
        return "its name or serial number is not printable text";
    }
    if (id->memory_bytes == 0 || id->memory_bytes > GPU_MAX_MEMORY_BYTES || id->memory_bytes % (1u << 20) != 0) {
        return "its memory is not a whole number of MiB from 1 MiB to 16 TiB";
    }
    if (id->context_bytes > id->memory_bytes || id->context_bytes % (1u << 20) != 0) {
        return "the memory of its CUDA contexts is not a whole number of MiB within its memory";
    }
    if (id->index > GPU_MAX_INDEX || id->multiprocessors == 0 || id->multiprocessors > GPU_MAX_MULTIPROCESSORS) {
        return "its index or its number of multiprocessors is out of range";
    }
    if (id->numa > GPU_MAX_INDEX) {
        return "its NUMA node is out of range";
    }
    return NULL;
}

/* A slot is alive while a process has it locked. */
static bool is_slot_alive(const gpu_file *gpu, int slot) {
    return slot == gpu->slot || gpu_slot_alive(gpu, slot);
}

static gpu_file *fail_open(int fd, gpu_file *gpu, char error[GPU_ERROR_LENGTH], const char *path, const char *why) {
    snprintf(error, GPU_ERROR_LENGTH, "%s is not a GPU of Aliquot's simulated driver: %s", path, why);
    if (fd >= 0) {
        close(fd);
    }
    free(gpu);
    return NULL;
}

gpu_file *gpu_open(const char *path, char error[GPU_ERROR_LENGTH]) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return fail_open(fd, NULL, error, path, strerror(errno));
    }
    /* Access to a mapping beyond the end of the file raises SIGBUS. lseek also fails on files that are not regular. */
    if (lseek(fd, 0, SEEK_END) != (off_t)sizeof(struct gpu_layout)) {
        return fail_open(fd, NULL, error, path, "its size is not that of this version's GPU files");
    }
    struct file_header header;
    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) {
        return fail_open(fd, NULL, error, path, "its header cannot be read");
    }
    const char *fault = header_fault(&header);
    if (fault != NULL) {
        return fail_open(fd, NULL, error, path, fault);
    }
    gpu_file *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        return fail_open(fd, NULL, error, path, "out of memory");
    }
    gpu->map = mmap(NULL, sizeof(struct gpu_layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (gpu->map == MAP_FAILED) {
        return fail_open(fd, gpu, error, path, "it cannot be mapped");
    }
    gpu->fd = fd;
    gpu->slot = -1;
    gpu->identity = header.identity;
    gpu->instance = gpu->map->instance;
    if (gpu->instance.profile >= GPU_MIG_PROFILES || gpu->instance.card[sizeof gpu->instance.card - 1] != '\0') {
        gpu->instance = (struct gpu_instance){.id = 0}; /* containers can write the file */
    }
    pthread_mutex_init(&gpu->mutex, NULL);
    gpu->health = &gpu->map->health;
    gpu->schedule = &gpu->map->schedule;
    gpu->collectives = &gpu->map->collectives;
    gpu_time_open(gpu);
    return gpu;
}

/* A card comes before its instances. */
static int compare_index(const void *a, const void *b) {
    const gpu_file *left = *(gpu_file *const *)a, *right = *(gpu_file *const *)b;
    if (left->identity.index != right->identity.index) {
        return left->identity.index < right->identity.index ? -1 : 1;
    }
    if (left->instance.id != right->instance.id) {
        return left->instance.id < right->instance.id ? -1 : 1;
    }
    return strcmp(left->identity.uuid, right->identity.uuid);
}

size_t gpu_open_all(const char *directory, gpu_file **gpus, size_t max, void (*warn)(const char *sentence)) {
    DIR *listing = opendir(directory);
    if (listing == NULL) {
        return 0;
    }
    size_t count = 0;
    const struct dirent *entry;
    while (count < max && (entry = readdir(listing)) != NULL) {
        if (!gpu_is_uuid(entry->d_name)) {
            continue;
        }
        char path[4096];
        char error[GPU_ERROR_LENGTH];
        int length = snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof path) {
            continue;
        }
        gpu_file *gpu = gpu_open(path, error);
        if (gpu != NULL && strcmp(gpu->identity.uuid, entry->d_name) != 0) {
            snprintf(error, sizeof error, "%.200s holds the GPU %s, so it is ignored", path, gpu->identity.uuid);
            gpu_close(gpu);
            gpu = NULL;
        }
        if (gpu != NULL) {
            gpus[count++] = gpu;
        } else if (warn != NULL) {
            warn(error);
        }
    }
    closedir(listing);
    qsort(gpus, count, sizeof gpus[0], compare_index);
    return count;
}

void gpu_close(gpu_file *gpu) {
    if (gpu == NULL) {
        return;
    }
    gpu_time_close(gpu);
    munmap(gpu->map, sizeof(struct gpu_layout));
    close(gpu->fd); /* also releases all locks */
    pthread_mutex_destroy(&gpu->mutex);
    free(gpu);
}

void gpu_close_in_child(gpu_file *gpu) {
    gpu_time_forget_in_child();
    munmap(gpu->map, sizeof(struct gpu_layout)); /* a mapping also keeps the open file and its locks alive */
    close(gpu->fd);
}

const struct gpu_identity *gpu_identity(const gpu_file *gpu) {
    return &gpu->identity;
}

uint64_t gpu_pid_namespace(const char *path) {
    char link[64];
    ssize_t length = readlink(path, link, sizeof link - 1); /* pid:[4026531836] */
    if (length <= 5) {
        return 0;
    }
    link[length] = '\0';
    return strtoull(link + 5, NULL, 10);
}

/* The start of a file in /proc, NUL-terminated; empty if it cannot be read. */
static void read_proc_file(const char *proc_id, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/%s", proc_id, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, size - 1) : 0;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

struct gpu_process_origin gpu_process_origin(const char *proc_id) {
    enum { STATE_FIELD = 3, START_TIME_FIELD = 22 };
    char text[1024];
    struct gpu_process_origin origin = {0, 0};
    read_proc_file(proc_id, "stat", text, sizeof text);
    const char *field = strrchr(text, ')'); /* ends the command's name, which may contain anything */
    for (int i = STATE_FIELD; field != NULL && i <= START_TIME_FIELD; i++) {
        field = strchr(field + 1, ' ');
    }
    if (field != NULL) {
        origin.start_time = strtoull(field, NULL, 10);
    }
    read_proc_file(proc_id, "mountinfo", text, sizeof text);
    origin.mount_id = strtoull(text, NULL, 10);
    return origin;
}

bool gpu_attach(gpu_file *gpu) {
    struct gpu_process_origin origin = gpu_process_origin("self");
    pthread_mutex_lock(&gpu->mutex);
    gpu_reservation_lock(gpu); /* keeps an installer from changing the identity between this check and the lock */
    bool unchanged = memcmp(&gpu->map->header.identity, &gpu->identity, sizeof gpu->identity) == 0;
    for (int i = 0; i < GPU_SLOTS && gpu->slot < 0 && unchanged; i++) {
        if (gpu_lock_byte(gpu->fd, F_OFD_SETLK, F_WRLCK, gpu_slot_offset(i)) != 0) {
            continue;
        }
        struct slot *slot = &gpu->map->slots[i];
        atomic_store(&slot->used, 0);
        atomic_store(&slot->pid, (uint64_t)getpid());
        atomic_store(&slot->pid_namespace, gpu_pid_namespace("/proc/self/ns/pid"));
        atomic_store(&slot->start_time, origin.start_time);
        atomic_store(&slot->mount_id, origin.mount_id);
        gpu->slot = i;
        gpu_time_attach(gpu, i);
    }
    gpu_reservation_unlock(gpu);
    bool attached = gpu->slot >= 0;
    pthread_mutex_unlock(&gpu->mutex);
    return attached;
}

void gpu_detach(gpu_file *gpu) {
    pthread_mutex_lock(&gpu->mutex);
    if (gpu->slot >= 0) {
        struct slot *slot = &gpu->map->slots[gpu->slot];
        gpu_time_detach(gpu);
        atomic_store(&slot->used, 0);
        atomic_store(&slot->pid, 0);
        (void)gpu_lock_byte(gpu->fd, F_OFD_SETLK, F_UNLCK, gpu_slot_offset(gpu->slot));
        gpu->slot = -1;
    }
    pthread_mutex_unlock(&gpu->mutex);
}

/* Sums the bytes of the living processes. clear_dead zeroes the slots of dead ones and needs the reservation lock. */
static uint64_t sum_used(gpu_file *gpu, bool clear_dead) {
    uint64_t total = 0;
    for (int i = 0; i < GPU_SLOTS; i++) {
        struct slot *slot = &gpu->map->slots[i];
        uint64_t used = atomic_load(&slot->used);
        if (used == 0) {
            continue;
        }
        if (!is_slot_alive(gpu, i)) {
            /* A process that takes the slot now holds nothing yet, because a reservation needs the lock held here. */
            if (clear_dead) {
                atomic_store(&slot->used, 0);
            }
            continue;
        }
        if (__builtin_add_overflow(total, used, &total)) {
            return UINT64_MAX;
        }
    }
    return total;
}

bool gpu_reserve(gpu_file *gpu, uint64_t bytes) {
    uint64_t memory = gpu->identity.memory_bytes;
    bool fits = false;
    pthread_mutex_lock(&gpu->mutex);
    if (gpu->slot >= 0 && bytes <= memory) {
        gpu_reservation_lock(gpu);
        uint64_t used = 0;
        for (int i = 0; i < GPU_SLOTS; i++) {
            uint64_t more = atomic_load_explicit(&gpu->map->slots[i].used, memory_order_relaxed);
            if (__builtin_add_overflow(used, more, &used)) {
                used = UINT64_MAX - GPU_MAX_MEMORY_BYTES;
            }
        }
        /* The sum above includes dead processes. The exact one costs a system call per slot. */
        if (used > memory - bytes) {
            used = sum_used(gpu, true);
        }
        fits = used <= memory - bytes;
        if (fits) {
            atomic_fetch_add(&gpu->map->slots[gpu->slot].used, bytes);
        }
        gpu_reservation_unlock(gpu);
    }
    pthread_mutex_unlock(&gpu->mutex);
    return fits;
}

void gpu_release(gpu_file *gpu, uint64_t bytes) {
    pthread_mutex_lock(&gpu->mutex);
    if (gpu->slot >= 0) {
        _Atomic uint64_t *used = &gpu->map->slots[gpu->slot].used;
        uint64_t before = atomic_load(used);
        atomic_store(used, before > bytes ? before - bytes : 0);
    }
    pthread_mutex_unlock(&gpu->mutex);
}

uint64_t gpu_used(gpu_file *gpu) {
    pthread_mutex_lock(&gpu->mutex);
    uint64_t used = sum_used(gpu, false);
    pthread_mutex_unlock(&gpu->mutex);
    return used < gpu->identity.memory_bytes ? used : gpu->identity.memory_bytes;
}

size_t gpu_processes(gpu_file *gpu, struct gpu_process *processes, size_t max) {
    size_t count = 0;
    pthread_mutex_lock(&gpu->mutex);
    for (int i = 0; i < GPU_SLOTS; i++) {
        struct slot *slot = &gpu->map->slots[i];
        uint64_t pid = atomic_load(&slot->pid);
        if (pid == 0 || pid > INT32_MAX || !is_slot_alive(gpu, i)) {
            continue;
        }
        if (count < max) {
            processes[count] = (struct gpu_process){
                .slot = i,
                .used_bytes = atomic_load(&slot->used),
                .pid = (uint32_t)pid,
                .pid_namespace = atomic_load(&slot->pid_namespace),
                .origin = {.start_time = atomic_load(&slot->start_time), .mount_id = atomic_load(&slot->mount_id)}};
        }
        count++;
    }
    pthread_mutex_unlock(&gpu->mutex);
    return count;
}

/* Writes the file under a temporary name and renames it, so that the final name never refers to a partial file. */
static enum gpu_create create_new(const char *directory, const char *path, const struct file_header *header,
                                  const struct gpu_instance *instance, char error[GPU_ERROR_LENGTH]) {
    char temporary[4096];
    int length = snprintf(temporary, sizeof temporary, "%s/.new-%s", directory, header->identity.uuid);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        snprintf(error, GPU_ERROR_LENGTH, "the directory's name is too long: %.200s", directory);
        return GPU_CREATE_FAILED;
    }
    (void)unlink(temporary); /* left by an installer that was killed */
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    /* Containers run as any user, and all of them use the GPU. */
    bool written =
        fd >= 0 && fchmod(fd, 0666) == 0 && ftruncate(fd, (off_t)sizeof(struct gpu_layout)) == 0 &&
        pwrite(fd, header, sizeof *header, 0) == (ssize_t)sizeof *header &&
        pwrite(fd, instance, sizeof *instance, offsetof(struct gpu_layout, instance)) == (ssize_t)sizeof *instance &&
        fsync(fd) == 0 && rename(temporary, path) == 0;
    if (!written) {
        snprintf(error, GPU_ERROR_LENGTH, "cannot write %.300s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return written ? GPU_CREATED : GPU_CREATE_FAILED;
}

/* Rewrites the header of a file that no process uses. */
static enum gpu_create rewrite_header(int fd, const char *path, const struct file_header *header,
                                      char error[GPU_ERROR_LENGTH]) {
    if (gpu_lock_byte(fd, F_OFD_SETLKW, F_WRLCK, offsetof(struct gpu_layout, reservation)) != 0) {
        snprintf(error, GPU_ERROR_LENGTH, "cannot lock %.300s: %s", path, strerror(errno));
        return GPU_CREATE_FAILED;
    }
    for (int i = 0; i < GPU_SLOTS; i++) {
        if (gpu_lock_byte(fd, F_OFD_GETLK, F_WRLCK, gpu_slot_offset(i)) != 0) {
            snprintf(error, GPU_ERROR_LENGTH,
                     "%.200s is in use and stays as it is; install again when no process uses it to change it to %s, "
                     "%llu MiB",
                     path, header->identity.name, (unsigned long long)(header->identity.memory_bytes >> 20));
            return GPU_BUSY;
        }
    }
    if (ftruncate(fd, (off_t)sizeof(struct gpu_layout)) != 0 ||
        pwrite(fd, header, sizeof *header, 0) != (ssize_t)sizeof *header || fsync(fd) != 0) {
        snprintf(error, GPU_ERROR_LENGTH, "cannot write %.300s: %s", path, strerror(errno));
        return GPU_CREATE_FAILED;
    }
    return GPU_CHANGED;
}

enum gpu_create gpu_create(const char *directory, const struct gpu_identity *identity, char error[GPU_ERROR_LENGTH]) {
    return gpu_create_instance(directory, identity, &(struct gpu_instance){.id = 0}, error);
}

uint32_t gpu_next_instance(gpu_file *card) {
    return atomic_fetch_add(&card->map->instances, 1) + 1;
}

enum gpu_create gpu_create_instance(const char *directory, const struct gpu_identity *identity,
                                    const struct gpu_instance *instance, char error[GPU_ERROR_LENGTH]) {
    struct file_header header;
    memset(&header, 0, sizeof header);
    header.magic = MAGIC;
    header.file_bytes = sizeof(struct gpu_layout);
    header.identity = *identity;
    header.checksum = checksum(&header);
    const char *fault = header_fault(&header);
    if (fault != NULL) {
        snprintf(error, GPU_ERROR_LENGTH, "GPU %.40s cannot be created: %s", identity->uuid, fault);
        return GPU_CREATE_FAILED;
    }
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", directory, identity->uuid);
    if (length < 0 || (size_t)length >= sizeof path) {
        snprintf(error, GPU_ERROR_LENGTH, "the directory's name is too long: %.200s", directory);
        return GPU_CREATE_FAILED;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        return create_new(directory, path, &header, instance, error);
    }
    if (fd < 0) {
        snprintf(error, GPU_ERROR_LENGTH, "cannot open %.300s: %s", path, strerror(errno));
        return GPU_CREATE_FAILED;
    }
    struct file_header present;
    bool same = lseek(fd, 0, SEEK_END) == (off_t)sizeof(struct gpu_layout) &&
                pread(fd, &present, sizeof present, 0) == (ssize_t)sizeof present &&
                memcmp(&present, &header, sizeof header) == 0;
    enum gpu_create answer = same ? GPU_KEPT : rewrite_header(fd, path, &header, error);
    close(fd);
    return answer;
}
