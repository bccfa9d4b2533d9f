/*
 * A simulated GPU: one file that all processes of a node share.
 *
 * The file's header describes the GPU; its slots record how much of the GPU each process uses. A process that uses the
 * GPU owns one slot through an open-file-description lock on the slot's first byte, and writes the bytes that it holds
 * into that slot only. The kernel drops the lock however the process dies, so an unlocked slot holds nothing, whatever
 * its words say. No stored total can become wrong, no process ID can be reused by mistake, and no daemon is needed. It
 * works across containers, which share only the file.
 */
#ifndef ALIQUOT_FAKE_GPU_FILE_H
#define ALIQUOT_FAKE_GPU_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPU_UUID_LENGTH = 40,  /* "GPU-" or "MIG-" and 8-4-4-4-12 hexadecimal digits */
    GPU_SLOTS = 1024,      /* processes that can use one GPU at the same time */
    GPU_MAX_PER_NODE = 64, /* with their MIG instances */
    GPU_MAX_INDEX = GPU_MAX_PER_NODE - 1,
    GPU_ERROR_LENGTH = 512,
    GPU_NVLINKS = 18,     /* per GPU, nvml.h: NVML_NVLINK_MAX_LINKS */
    GPU_LINK_PCIE = 0x80, /* in gpu_identity.links */
};

#define GPU_MAX_MEMORY_BYTES (UINT64_C(16) << 40)
#define GPU_MAX_MULTIPROCESSORS 1024u

/* Where containers find the files of their GPUs; ALIQUOT_FAKE_GPUS names another directory outside a cluster. */
#define GPU_DEFAULT_DIRECTORY "/run/aliquot-fake-driver/gpus"
#define GPU_DIRECTORY_VARIABLE "ALIQUOT_FAKE_GPUS"

/* The fixed properties of a GPU. All text is NUL-terminated printable ASCII. */
struct gpu_identity {
    char uuid[48];
    char name[64];
    char serial[16];
    uint64_t memory_bytes;  /* 1 MiB .. GPU_MAX_MEMORY_BYTES, a multiple of 1 MiB */
    uint64_t context_bytes; /* memory that a process's CUDA contexts take; 0 .. memory_bytes, a multiple of 1 MiB */
    uint32_t index;         /* 0 .. GPU_MAX_INDEX: position on the node, determines minor number and PCI bus */
    uint32_t multiprocessors;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t numa;
    uint32_t reserved_mib; /* memory beside memory_bytes that the driver keeps for itself */
    /*
     * The link to each GPU of the node, by that GPU's index: the number of NVLinks, or GPU_LINK_PCIE plus a tenth of
     * nvmlGpuTopologyLevel_t, or 0 for the link that the NUMA nodes imply. Both ends hold the same value.
     */
    uint8_t links[GPU_MAX_PER_NODE];
};

/*
 * What tells a process apart from processes that have the same ID in other PID namespaces. Every user can read it in
 * /proc, while the links in /proc/PID/ns need the right to trace the process.
 */
struct gpu_process_origin {
    uint64_t start_time; /* in clock ticks since boot, see proc(5) on /proc/PID/stat; 0: unknown */
    uint64_t mount_id;   /* of the process's root, unique on the node, see proc(5) on /proc/PID/mountinfo; 0: unknown */
};

struct gpu_process {
    int slot; /* its slot number, see gpu_usage_history */
    uint64_t used_bytes;
    uint32_t pid;           /* in the process's own PID namespace */
    uint64_t pid_namespace; /* inode number of its PID namespace */
    struct gpu_process_origin origin;
};

typedef struct gpu_file gpu_file;

/* The directory that holds this process's GPUs. */
const char *gpu_directory(void);

/* Opens and checks the file of one GPU; returns NULL and sets error to a sentence if the file is not a GPU. */
gpu_file *gpu_open(const char *path, char error[GPU_ERROR_LENGTH]);

/*
 * Opens all GPU files of a directory in order of index and returns their number, at most max. Skips a file that is not
 * a valid GPU and passes the reason to warn, which may be NULL. A missing directory holds no GPU.
 */
size_t gpu_open_all(const char *directory, gpu_file **gpus, size_t max, void (*warn)(const char *sentence));

void gpu_close(gpu_file *gpu);

/*
 * Closes the file in a forked child. The child shares the open file description with its parent, and would otherwise
 * keep the parent's slot locked after the parent's death. Takes no lock; no other call on the GPU may follow.
 */
void gpu_close_in_child(gpu_file *gpu);

const struct gpu_identity *gpu_identity(const gpu_file *gpu);

/*
 * Takes a slot of the GPU for this process; returns false when all slots are taken or the GPU's identity has changed
 * since the file was opened. Must not be called again before gpu_detach, which returns the slot and all reserved
 * memory.
 */
bool gpu_attach(gpu_file *gpu);
void gpu_detach(gpu_file *gpu);

/*
 * Reserves bytes of the GPU's memory for this attached process; returns false and changes nothing if they are not free.
 * Concurrent reservations never exceed the GPU's memory, and a reservation that fits is never refused.
 */
bool gpu_reserve(gpu_file *gpu, uint64_t bytes);
void gpu_release(gpu_file *gpu, uint64_t bytes);

/* Bytes held by all living processes, at most memory_bytes. */
uint64_t gpu_used(gpu_file *gpu);

/* The inode number of the PID namespace behind a link such as /proc/self/ns/pid; 0 if unknown. */
uint64_t gpu_pid_namespace(const char *path);

/* The origin of the process in the directory of that name in /proc, such as "self" or "17". */
struct gpu_process_origin gpu_process_origin(const char *proc_id);

/* The living processes that use the GPU; returns their number and fills in at most max of them. */
size_t gpu_processes(gpu_file *gpu, struct gpu_process *processes, size_t max);

enum gpu_create { GPU_CREATED, GPU_KEPT, GPU_CHANGED, GPU_BUSY, GPU_CREATE_FAILED };

/*
 * Creates the file of a GPU in a directory, named by its UUID. An existing file is never replaced, because containers
 * hold it open: an identical file is kept; a different one gets a new header in place if no process uses it, and stays
 * unchanged if a process does (GPU_BUSY). On GPU_BUSY and GPU_CREATE_FAILED error states the reason.
 */
enum gpu_create gpu_create(const char *directory, const struct gpu_identity *identity, char error[GPU_ERROR_LENGTH]);

/* Whether text is GPU or, for an instance, MIG, and -xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in lower-case hexadecimal. */
bool gpu_is_uuid(const char *text);

/* The 16 bytes of a UUID that gpu_is_uuid accepts. */
void gpu_uuid_bytes(const char *uuid, unsigned char bytes[16]);

#endif
