/*
 * Legacy IPC: memory of cuMemAlloc, and events, in other processes (cuIpc...).
 *
 * When a program requests an IPC handle, the memory moves into an anonymous file and keeps its address. The handle
 * names the file by process and descriptor. Another process of the same PID namespace opens it in /proc, which the
 * kernel permits to the same user. A process that dies leaves nothing behind. An import is not charged. Data that
 * another thread writes during the move may be lost.
 */
#define _GNU_SOURCE
#include "cuda_client.h"
#include "cuda_memory.h"
#include "cuda_shareable.h"
#include "cuda_work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IPC_HANDLE_MAGIC UINT64_C(0x3143504951494c41) /* "ALIQIPC1" */

enum { PAGE_BYTES = 4096, PAGES_AT_ONCE = 512 };

/* The contents of a CUipcMemHandle. */
struct ipc_handle {
    uint64_t magic;
    uint64_t id; /* of the file */
    uint64_t bytes;
    int32_t process;
    int32_t descriptor;
    char unused[32];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "a handle's size is CUDA's");

/*
 * Copies the pages that have been written (Documentation/admin-guide/mm/pagemap.rst: bit 63, present, and bit 62,
 * swapped).
 */
static bool copy_written_pages(char *to, const char *from, size_t bytes) {
    uint64_t entries[PAGES_AT_ONCE];
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) {
        return false;
    }
    bool complete = true;
    size_t pages = bytes / PAGE_BYTES;
    for (size_t page = 0; page < pages && complete; page += PAGES_AT_ONCE) {
        size_t count = pages - page < PAGES_AT_ONCE ? pages - page : PAGES_AT_ONCE;
        off_t position = (off_t)(((uintptr_t)from / PAGE_BYTES + page) * sizeof entries[0]);
        complete = pread(pagemap, entries, count * sizeof entries[0], position) == (ssize_t)(count * sizeof entries[0]);
        for (size_t i = 0; i < count && complete; i++) {
            if (entries[i] >> 62 != 0) {
                memcpy(to + (page + i) * PAGE_BYTES, from + (page + i) * PAGE_BYTES, PAGE_BYTES);
            }
        }
    }
    close(pagemap);
    return complete;
}

/* Moves an allocation into a file. */
static bool move_to_file(struct allocation *allocation) {
    struct ipc_state *state = calloc(1, sizeof *state);
    int fd = state != NULL ? shareable_create(SHAREABLE_IPC, allocation->device, allocation->mapped_bytes) : -1;
    void *copy = fd >= 0 ? shareable_map(fd, SHAREABLE_DATA_OFFSET, allocation->mapped_bytes) : NULL;
    /* mremap() replaces the old mapping in one step. */
    bool moved = copy != NULL && copy_written_pages(copy, (const char *)allocation->base, allocation->mapped_bytes) &&
                 mremap(copy, allocation->mapped_bytes, allocation->mapped_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                        (void *)allocation->base) == (void *)allocation->base;
    if (!moved) {
        if (copy != NULL) {
            memory_unmap(copy, allocation->mapped_bytes);
        }
        if (fd >= 0) {
            close(fd);
        }
        free(state);
        return false;
    }
    *state = (struct ipc_state){.id = shareable_id(fd), .fd = fd};
    allocation->owner = state;
    allocation->file_backed = true;
    return true;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    struct CUctx_st *context;
    if (pHandle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->kind != DEVICE_MEMORY) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (allocation->owner == NULL && !move_to_file(allocation)) {
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    const struct ipc_state *state = allocation->owner;
    const struct ipc_handle handle = {.magic = IPC_HANDLE_MAGIC,
                                      .id = state->id,
                                      .bytes = allocation->bytes,
                                      .process = getpid(),
                                      .descriptor = state->fd};
    memcpy(pHandle, &handle, sizeof handle);
    return leave(CUDA_SUCCESS);
}

/* Opens the exporting process's file; -1 if the descriptor now refers to something else. */
static int open_exported(const struct ipc_handle *handle, struct device **device, size_t *bytes) {
    static const char name[] = "/memfd:" SHAREABLE_FILE_NAME;
    char path[64], target[sizeof name];
    uint64_t id;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->descriptor);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length != (ssize_t)sizeof target - 1 || memcmp(target, name, sizeof target - 1) != 0) {
        return -1;
    }
    int exporter_fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (exporter_fd < 0) {
        return -1;
    }
    int fd = shareable_open(exporter_fd, SHAREABLE_IPC, device, bytes, &id);
    close(exporter_fd);
    if (fd >= 0 && (id != handle->id || handle->bytes > *bytes || *bytes - handle->bytes >= PAGE_BYTES)) {
        close(fd);
        return -1;
    }
    return fd;
}

struct import_search {
    const struct ipc_handle *handle;
    const struct CUctx_st *context;
};

static bool is_import(const struct allocation *allocation, const void *data) {
    const struct import_search *search = data;
    return allocation->kind == IPC_MEMORY && allocation->context == search->context &&
           ((const struct ipc_state *)allocation->owner)->id == search->handle->id &&
           allocation->bytes == search->handle->bytes;
}

static CUresult import_allocation(const struct ipc_handle *handle, struct CUctx_st *context, CUdeviceptr *address) {
    struct device *device;
    size_t bytes;
    int fd = open_exported(handle, &device, &bytes);
    if (fd < 0) {
        return CUDA_ERROR_MAP_FAILED;
    }
    struct ipc_state *state = calloc(1, sizeof *state);
    void *start = state != NULL ? shareable_map(fd, SHAREABLE_DATA_OFFSET, bytes) : NULL;
    close(fd);
    struct allocation *made = NULL;
    if (start != NULL) {
        *state = (struct ipc_state){.id = handle->id, .fd = -1, .open_count = 1};
        const struct allocation values = {.base = (uintptr_t)start,
                                          .bytes = handle->bytes,
                                          .mapped_bytes = bytes,
                                          .kind = IPC_MEMORY,
                                          .context = context,
                                          .device = device,
                                          .owner = state,
                                          .file_backed = true};
        made = memory_add(&values);
        if (made == NULL) {
            memory_unmap(start, bytes);
        }
    }
    if (made == NULL) {
        free(state);
        return CUDA_ERROR_MAP_FAILED;
    }
    *address = made->base;
    return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    struct CUctx_st *context;
    struct ipc_handle decoded;
    memcpy(&decoded, &handle, sizeof decoded);
    if (pdptr == NULL || (Flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0 ||
        decoded.magic != IPC_HANDLE_MAGIC || decoded.process <= 0 || decoded.descriptor < 0 || decoded.bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (decoded.process == getpid()) {
        return leave(CUDA_ERROR_INVALID_CONTEXT); /* an IPC handle cannot be opened in the process that exported it */
    }
    const struct import_search search = {&decoded, context};
    struct allocation *opened = memory_search(is_import, &search);
    if (opened == NULL) {
        return leave(import_allocation(&decoded, context, pdptr));
    }
    ((struct ipc_state *)opened->owner)->open_count++;
    *pdptr = opened->base;
    return leave(CUDA_SUCCESS);
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    struct CUctx_st *context;
    CUresult result = enter_context(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct allocation *allocation = memory_find((uintptr_t)dptr);
    if (allocation == NULL || allocation->kind != IPC_MEMORY || allocation->base != dptr) {
        return leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (--((struct ipc_state *)allocation->owner)->open_count == 0) {
        memory_destroy(allocation);
    }
    return leave(CUDA_SUCCESS);
}

/* ---- events ---- */

/*
 * No state is shared. Recording an exported event waits until the recording is complete, so an event that another
 * process opens is complete whenever that process looks.
 */
struct ipc_event_handle {
    uint64_t magic;
    int32_t process;
    char unused[52];
};
_Static_assert(sizeof(struct ipc_event_handle) == sizeof(CUipcEventHandle), "a handle's size is CUDA's");

API CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event) {
    static const unsigned needed = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    if (pHandle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = enter_with_handle(KIND_EVENT, event, CUDA_ERROR_INVALID_HANDLE);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((event->flags & needed) != needed) {
        return leave(CUDA_ERROR_INVALID_HANDLE);
    }
    event->is_shared = true;
    leave(CUDA_SUCCESS);
    const struct ipc_event_handle handle = {.magic = IPC_HANDLE_MAGIC, .process = getpid()};
    memcpy(pHandle, &handle, sizeof handle);
    return cuEventSynchronize(event);
}

API CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle) {
    struct ipc_event_handle decoded;
    memcpy(&decoded, &handle, sizeof decoded);
    if (phEvent == NULL || decoded.magic != IPC_HANDLE_MAGIC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (decoded.process == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = cuEventCreate(phEvent, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        (*phEvent)->is_shared = true; /* no other thread knows the event yet */
    }
    return result;
}
