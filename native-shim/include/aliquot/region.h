/*
 * Layout of a container's region: the file through which the container's processes share their accounting. In the
 * container it is /usr/local/aliquot/region; the processes map it, and the node agent reads it with pread. Version 1,
 * fixed width, little-endian, always ALIQUOT_REGION_SIZE bytes:
 *
 *     offset   0        struct aliquot_header
 *              4096     struct aliquot_device  [16]         one per GPU of the container, in order of first use
 *              8192     struct aliquot_process [512]        one per process with a CUDA context
 *              40960    struct aliquot_charge  [16][512]    by device, then by process
 *
 * The node agent writes a new file (the constants of the header, zeros elsewhere; mode 0666, because a container may
 * run as any user) and renames it over the slot's name. An empty file has the same effect. Programs in the container
 * can write the file, so a reader must not trust it in anything that matters outside that container. What the node
 * agent tells the processes is in a file of its own, which they cannot write (aliquot/agent.h).
 *
 * The container's use of device d in bytes is the sum over p of (charge[d][p].word & ALIQUOT_CHARGE_BYTES). Process
 * slots at or beyond process_high_water were never owned and may be skipped. The file holds no total: a process killed
 * between two writes would leave it wrong.
 *
 * Ownership is expressed by OFD locks (fcntl(2), F_OFD_SETLK; exclusive, one byte) on this file. The kernel releases
 * them however their owner dies:
 * - A process owns slot p while it holds ALIQUOT_REGION_PROCESS_LOCK(p). A process that acquires that lock may zero the
 *   slot's charges: their owner is dead. F_OFD_GETLK tests the lock without taking it.
 * - ALIQUOT_REGION_DECISION_LOCK is held by the one process that is about to refuse an allocation.
 */
#ifndef ALIQUOT_REGION_H
#define ALIQUOT_REGION_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_REGION_MAGIC UINT64_C(0x31544f5551494c41) /* "ALIQUOT1" */
#define ALIQUOT_REGION_VERSION 1
#define ALIQUOT_REGION_DEVICES 16
#define ALIQUOT_REGION_PROCESSES 512
#define ALIQUOT_REGION_SIZE 565248

/* In the word of a charge: bytes charged, less than 4 PiB. */
#define ALIQUOT_CHARGE_BYTES ((UINT64_C(1) << 52) - 1)
/* In the word of a charge: unit of the number of threads that have added their bytes but do not know yet whether
   they may keep them. */
#define ALIQUOT_CHARGE_UNDECIDED (UINT64_C(1) << 52)

/* History of a counter of GPU time. A word is written at the first charge of a period of CLOCK_MONOTONIC: the number
   of the period in the upper half, the counter before that charge, in units of 2^10 ns, in the lower half, both
   modulo 2^32. Period n uses word n modulo ALIQUOT_HISTORY. A period without a charge writes no word. */
#define ALIQUOT_HISTORY 4
#define ALIQUOT_HISTORY_PERIOD_BITS 28 /* a period is 2^28 ns, 268 ms */

struct aliquot_header {
    /* Constants. A process that finds a wrong value repairs it, unless magic is right and version differs. */
    uint64_t magic;
    uint32_t version;
    uint32_t header_size; /* bytes before the devices */
    uint64_t total_size;  /* ALIQUOT_REGION_SIZE */
    uint32_t device_count;
    uint32_t process_count;
    uint32_t device_size;
    uint32_t process_size;
    uint32_t charge_size;
    uint8_t reserved0[20];

    /* Number of process slots that were ever owned: 1 + the highest index. Only grows. */
    uint32_t process_high_water;
    uint8_t reserved1[60];

    /* How often the driver returned, for a hooked name, an address that the shim could not identify. Any value but 0
       means that programs can bypass the limits. */
    uint64_t unhooked_functions;

    /* CLOCK_MONOTONIC in ms when a process was last refused because living processes owned all slots; 0: never. */
    uint64_t process_refused_ms;
    uint8_t reserved2[48];

    /* The decision lock is on its first byte. The content has no meaning. */
    uint8_t decision[64];
    uint8_t reserved3[3840];
};

struct aliquot_device {
    /* UUID of the GPU, in the order in which it is printed; zeros: the entry is free. A process claims the two
       halves in order, each by compare-and-swap from 0. An entry with only its first half set was left by a process
       that was killed in between; the next process that looks for a UUID with that half completes it. Entries are
       never freed. A UUID with a half of zeros cannot be stored. */
    union {
        uint8_t uuid[16];
        uint64_t uuid_half[2];
    };
    uint8_t reserved0[48];

    /* Written by the container's processes. Times are the node's CLOCK_MONOTONIC, also if they run in a
       time namespace. */
    uint64_t tat;       /* ns: when the GPU time charged so far is earned (GCRA's theoretical arrival time) */
    uint64_t gpu_time;  /* ns of GPU time charged to all processes; only grows */
    uint64_t throttled; /* ns for which launches were throttled, over all threads; only grows */
    uint64_t wanted;    /* ns: when a launch was last made or throttled; 0: never */
    uint64_t history[ALIQUOT_HISTORY]; /* of gpu_time */
    uint64_t denied;                   /* how often the limit refused memory; only grows */
    /* ns: until when the work in flight keeps the GPU busy, if nothing else runs there: what is later than now is the
       GPU time in flight. A process renews its part every few ms while it has work, so that the part of one that was
       killed passes by itself. */
    uint64_t in_flight;
    uint64_t queued; /* ns: when a launch last waited behind work of its own thread that was in flight; 0: never */
    uint64_t busy;   /* ns for which launches waited for the GPU or ran there, as measured; only grows */
    uint64_t borrowed_tat; /* ns: like tat, of what is borrowed */
    uint64_t long_launch;  /* ns: when a launch was last made that is too long for a turn (agent.h); 0: never */

    uint8_t reserved1[80];
};

/* Owner of a process slot. The slot's lock is on its first byte, whatever the byte contains. */
struct aliquot_process {
    uint32_t pid; /* in the owner's PID namespace; 0: unknown */
    uint8_t reserved0[4];
    uint64_t started; /* CLOCK_REALTIME in microseconds when the slot was taken */
    uint8_t reserved1[48];
};

/* What one process holds on one device, on its own cache line. Only the owner adds to it. */
struct aliquot_charge {
    uint64_t word;
    uint64_t gpu_time;                 /* ns of GPU time charged to this process; only grows */
    uint64_t peak;                     /* bytes: highest value of word so far */
    uint64_t context_bytes;            /* bytes of word that its CUDA contexts cost */
    uint64_t history[ALIQUOT_HISTORY]; /* of gpu_time */
};

struct aliquot_region {
    struct aliquot_header header;
    struct aliquot_device device[ALIQUOT_REGION_DEVICES];
    struct aliquot_process process[ALIQUOT_REGION_PROCESSES];
    struct aliquot_charge charge[ALIQUOT_REGION_DEVICES][ALIQUOT_REGION_PROCESSES];
};

/* File offsets of the lock bytes. */
#define ALIQUOT_REGION_DECISION_LOCK ((int64_t)offsetof(struct aliquot_region, header.decision))
#define ALIQUOT_REGION_PROCESS_LOCK(p)                                                                                 \
    ((int64_t)(offsetof(struct aliquot_region, process) + (size_t)(p) * sizeof(struct aliquot_process)))

static_assert(offsetof(struct aliquot_header, magic) == 0, "region layout");
static_assert(offsetof(struct aliquot_header, version) == 8, "region layout");
static_assert(offsetof(struct aliquot_header, header_size) == 12, "region layout");
static_assert(offsetof(struct aliquot_header, total_size) == 16, "region layout");
static_assert(offsetof(struct aliquot_header, device_count) == 24, "region layout");
static_assert(offsetof(struct aliquot_header, process_count) == 28, "region layout");
static_assert(offsetof(struct aliquot_header, device_size) == 32, "region layout");
static_assert(offsetof(struct aliquot_header, process_size) == 36, "region layout");
static_assert(offsetof(struct aliquot_header, charge_size) == 40, "region layout");
static_assert(offsetof(struct aliquot_header, process_high_water) == 64, "region layout");
static_assert(offsetof(struct aliquot_header, unhooked_functions) == 128, "region layout");
static_assert(offsetof(struct aliquot_header, process_refused_ms) == 136, "region layout");
static_assert(offsetof(struct aliquot_header, decision) == 192, "region layout");
static_assert(sizeof(struct aliquot_header) == 4096, "region layout");
static_assert(sizeof(struct aliquot_device) == 256, "region layout");
static_assert(offsetof(struct aliquot_device, tat) == 64, "region layout");
static_assert(offsetof(struct aliquot_device, gpu_time) == 72, "region layout");
static_assert(offsetof(struct aliquot_device, throttled) == 80, "region layout");
static_assert(offsetof(struct aliquot_device, wanted) == 88, "region layout");
static_assert(offsetof(struct aliquot_device, history) == 96, "region layout");
static_assert(offsetof(struct aliquot_device, denied) == 128, "region layout");
static_assert(offsetof(struct aliquot_device, in_flight) == 136, "region layout");
static_assert(offsetof(struct aliquot_device, queued) == 144, "region layout");
static_assert(offsetof(struct aliquot_device, busy) == 152, "region layout");
static_assert(offsetof(struct aliquot_device, borrowed_tat) == 160, "region layout");
static_assert(offsetof(struct aliquot_device, long_launch) == 168, "region layout");
static_assert(sizeof(struct aliquot_process) == 64, "region layout");
static_assert(offsetof(struct aliquot_process, started) == 8, "region layout");
static_assert(sizeof(struct aliquot_charge) == 64, "region layout");
static_assert(offsetof(struct aliquot_charge, gpu_time) == 8, "region layout");
static_assert(offsetof(struct aliquot_charge, peak) == 16, "region layout");
static_assert(offsetof(struct aliquot_charge, context_bytes) == 24, "region layout");
static_assert(offsetof(struct aliquot_charge, history) == 32, "region layout");
static_assert(offsetof(struct aliquot_region, device) == 4096, "region layout");
static_assert(offsetof(struct aliquot_region, process) == 8192, "region layout");
static_assert(offsetof(struct aliquot_region, charge) == 40960, "region layout");
static_assert(sizeof(struct aliquot_region) == ALIQUOT_REGION_SIZE, "region layout");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the region is little-endian");

#endif
