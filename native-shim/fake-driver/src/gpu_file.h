/*
 * A make-believe GPU: one file that every process of a node shares.
 *
 * The file's head says what the GPU is, its slots say who uses how much of it. A process that uses the GPU owns one
 * slot by an open-file-description lock on that slot's first byte, and writes the bytes that it holds into that slot
 * alone. The kernel drops the lock however the process dies, so a slot that nobody has locked holds nothing, whatever
 * its words say. There is no total to go wrong, no process id to be reused and no daemon, and it works across
 * containers, which share nothing but the file.
 */
#ifndef ALIQUOT_FAKE_GPU_FILE_H
#define ALIQUOT_FAKE_GPU_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPU_UUID_LENGTH = 40, /* "GPU-" and 8-4-4-4-12 hexadecimal digits */
    GPU_SLOTS = 1024,     /* processes that can use one GPU at once */
    GPU_MAX_PER_NODE = 64,
    GPU_MAX_INDEX = GPU_MAX_PER_NODE - 1,
    GPU_ERROR_LENGTH = 512,
    GPU_NVLINKS = 18,          /* of one GPU, nvml.h: NVML_NVLINK_MAX_LINKS */
    GPU_LINK_PCIE = 0x80,      /* in gpu_identity.links */
    GPU_XID_FELL_OFF_BUS = 79, /* https://docs.nvidia.com/deploy/xid-errors: "GPU has fallen off the bus" */
};

#define GPU_MAX_MEMORY_BYTES (UINT64_C(16) << 40)
#define GPU_MAX_MULTIPROCESSORS 1024u

/* Where containers find their GPUs' files; ALIQUOT_FAKE_GPUS names another folder outside a cluster. */
#define GPU_DEFAULT_FOLDER "/run/aliquot-fake-driver/gpus"
#define GPU_FOLDER_VARIABLE "ALIQUOT_FAKE_GPUS"

/* What a GPU is. All text is NUL-terminated printable ASCII. */
struct gpu_identity {
    char uuid[48];
    char name[64];
    char serial[16];
    uint64_t memory_bytes;  /* 1 MiB .. GPU_MAX_MEMORY_BYTES, a multiple of 1 MiB */
    uint64_t context_bytes; /* what a process's contexts take of it; 0 .. memory_bytes, a multiple of 1 MiB */
    uint32_t index;         /* 0 .. GPU_MAX_INDEX: its place on the node, from which follow minor and PCI bus */
    uint32_t multiprocessors;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t numa;
    uint32_t unused;
    /*
     * To each GPU of the node, by its index: so many NVLinks, or GPU_LINK_PCIE and a tenth of nvmlGpuTopologyLevel_t;
     * 0 for what follows from the NUMA nodes. Both ends say the same.
     */
    uint8_t links[GPU_MAX_PER_NODE];
};

/* What is wrong with a GPU: the last XID (0 = healthy) and how often that has changed. */
struct gpu_health {
    uint32_t xid;
    uint32_t changes;
};

struct gpu_process {
    int slot; /* its number, see gpu_usage_history */
    uint64_t used_bytes;
    uint32_t pid;           /* as the process itself sees it */
    uint64_t pid_namespace; /* inode number of its PID namespace */
};

typedef struct gpu_file gpu_file;

/* The folder that this process's GPUs are in. */
const char *gpu_folder(void);

/* Opens and checks one GPU's file; NULL with a sentence in error if it isn't one. */
gpu_file *gpu_open(const char *path, char error[GPU_ERROR_LENGTH]);

/*
 * Opens all GPU files of a folder in order of index and returns their number, at most max. A file that is not a valid
 * GPU is left out and told to complain (which may be NULL). A missing folder holds no GPU.
 */
size_t gpu_open_all(const char *folder, gpu_file **gpus, size_t max, void (*complain)(const char *sentence));

void gpu_close(gpu_file *gpu);

/*
 * In a forked child: lets go of the open file that it shares with its parent, which else would keep the parent's slot
 * alive after the parent's death. Takes no lock; nothing else may be called on the GPU afterwards.
 */
void gpu_abandon(gpu_file *gpu);

const struct gpu_identity *gpu_identity(const gpu_file *gpu);

/*
 * Makes this process a user of the GPU, by a slot of its own; false when all slots are taken or the GPU was made
 * another since it was opened. Not to be called again before gpu_detach, which gives the slot and all that was reserved
 * back.
 */
bool gpu_attach(gpu_file *gpu);
void gpu_detach(gpu_file *gpu);

/*
 * Takes bytes of the GPU's memory for this attached process; false, and nothing changes, if they aren't free. Never
 * oversells, whoever else reserves at the same moment, and never refuses what is free.
 */
bool gpu_reserve(gpu_file *gpu, uint64_t bytes);
void gpu_release(gpu_file *gpu, uint64_t bytes);

/* Bytes held by all living processes, at most memory_bytes. */
uint64_t gpu_used(gpu_file *gpu);

/* The inode number of the PID namespace that a link like /proc/self/ns/pid names, 0 if unknown. */
uint64_t gpu_pid_namespace(const char *path);

/* The living processes that use the GPU; returns their number and fills in at most max of them. */
size_t gpu_processes(gpu_file *gpu, struct gpu_process *processes, size_t max);

struct gpu_health gpu_health(const gpu_file *gpu);
void gpu_set_health(gpu_file *gpu, uint32_t xid);

enum gpu_create { GPU_CREATED, GPU_KEPT, GPU_CHANGED, GPU_BUSY, GPU_CREATE_FAILED };

/*
 * Makes the file of a GPU in a folder, under its UUID. An existing file is kept: as it is when it says the same, with
 * its head rewritten in place when it says something else and nobody uses it (containers hold on to the file itself,
 * so it is never replaced), untouched when it is in use (GPU_BUSY). On GPU_BUSY and GPU_CREATE_FAILED error says why.
 */
enum gpu_create gpu_create(const char *folder, const struct gpu_identity *identity, char error[GPU_ERROR_LENGTH]);

/* Whether text has the form GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in lower-case hexadecimal. */
bool gpu_is_uuid(const char *text);

/* The 16 bytes of a UUID that gpu_is_uuid accepts. */
void gpu_uuid_bytes(const char *uuid, unsigned char bytes[16]);

#endif
