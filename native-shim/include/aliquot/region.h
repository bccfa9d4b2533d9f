/*
 * The state file of a container (in it: /usr/local/aliquot/region), which its processes share by mmap and the node
 * agent reads by pread. Version 1, fixed width, little-endian, always ALIQUOT_REGION_SIZE bytes:
 *
 *     offset   0        struct aliquot_header
 *              4096     struct aliquot_device  [16]         one per GPU of the container, in order of first use
 *              8192     struct aliquot_process [512]        one per process that holds device memory
 *              40960    struct aliquot_charge  [16][512]    by device, then by process
 *
 * The agent writes a fresh file (the header's constants, zeros elsewhere; mode 0666, since a container may run as any
 * user) and renames it over the slot's name; an empty file is as good. Programs in the container can write it, so a
 * reader believes nothing in it that matters beyond that container.
 *
 * A container's use of device d, in bytes: the sum over p of (charge[d][p].word & ALIQUOT_CHARGE_BYTES). Process slots
 * at or beyond process_high_water were never owned and may be skipped. There is no total anywhere: a process killed
 * between two words would leave it wrong.
 *
 * Who owns what is told by OFD locks (fcntl(2), F_OFD_SETLK; exclusive, one byte) on this file, which the kernel drops
 * however their owner dies:
 *   - a process owns slot p while it holds ALIQUOT_REGION_PROCESS_LOCK(p). Whoever finds that byte unlocked, and locks
 *     it, may zero the slot's charges: they are a dead process's. F_OFD_GETLK tells a reader the same without locking.
 *   - ALIQUOT_REGION_DECISION_LOCK is held by the one process that is about to refuse an allocation.
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

/* In a charge's word: bytes charged, at most 4 PiB. */
#define ALIQUOT_CHARGE_BYTES ((UINT64_C(1) << 52) - 1)
/* In a charge's word, times the threads that have added their bytes and don't know yet whether they may keep them. */
#define ALIQUOT_CHARGE_UNDECIDED (UINT64_C(1) << 52)

/* What a GPU time was at the first charge of a period of CLOCK_MONOTONIC, before that charge: the period's number in
   the upper half of a word, the time in units of 2^10 ns in the lower, both modulo 2^32. Period n has word n modulo
   ALIQUOT_HISTORY; a period in which nothing was charged has none. */
#define ALIQUOT_HISTORY 4
#define ALIQUOT_HISTORY_PERIOD_BITS 28 /* a period is 2^28 ns, 268 ms */

struct aliquot_header {
    /* Constants; a process that finds one of them wrong puts it right, unless magic is right and version is another. */
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

    /* Process slots ever owned: 1 + the highest index. Only grows. */
    uint32_t process_high_water;
    uint8_t reserved1[60];

    /* Times that the driver answered a name the shim must hook with an address that it could not place: anything but 0
       is a hole in the enforcement. */
    uint64_t unplaced_addresses;
    uint8_t reserved2[56];

    /* Its first byte carries the decision lock; its content means nothing. */
    uint8_t decision[64];
    uint8_t reserved3[3840];
};

struct aliquot_device {
    /* The GPU's UUID, in the order in which it is printed; zeros: free. Claimed half by half, first half first, each by
       compare-and-swap from 0: an entry with only its first half set was left by a process killed in between, and is
       finished by the next that looks for a UUID with that half. Never freed. A UUID with a half of zeros can't be
       held. */
    union {
        uint8_t uuid[16];
        uint64_t uuid_half[2];
    };
    uint8_t reserved0[48];

    /* Written by the container's processes. Times are CLOCK_MONOTONIC, which all processes of a machine share. */
    uint64_t tat;       /* ns: when the GPU time granted so far is used up (GCRA's theoretical arrival time) */
    uint64_t gpu_time;  /* ns of GPU time charged, of all processes; only grows */
    uint64_t throttled; /* ns that launches have been held back, of all threads; only grows */
    uint64_t wanted;    /* ns: when a launch last came or was held back; 0: never */
    uint64_t history[ALIQUOT_HISTORY]; /* of gpu_time */

    /* Written by the node agent. */
    uint64_t grant;        /* ALIQUOT_GRANT(...); 0: none was ever given */
    uint64_t unattributed; /* bytes that the host sees this container hold beyond what it is charged: used, too */
    uint32_t active;       /* containers that use the GPU now, this one included; 0: not known */
    uint8_t reserved2[44];

    uint8_t reserved3[64];
};

/* A share of the GPU in millionths, 0 to 1000000, given at a time of CLOCK_MONOTONIC in ms. One word, so that neither
   is ever read without the other. */
#define ALIQUOT_GRANT_SHARE_BITS 20
#define ALIQUOT_GRANT(ms, millionths) ((uint64_t)(ms) << ALIQUOT_GRANT_SHARE_BITS | (uint64_t)(millionths))
#define ALIQUOT_GRANT_SHARE(grant) ((uint32_t)((grant) & ((UINT64_C(1) << ALIQUOT_GRANT_SHARE_BITS) - 1)))
#define ALIQUOT_GRANT_MS(grant) ((uint64_t)(grant) >> ALIQUOT_GRANT_SHARE_BITS)

/* Who owns a slot. Its first byte carries the slot's lock, whatever it says. */
struct aliquot_process {
    uint32_t pid; /* in the owner's own PID namespace; 0: not known */
    uint8_t reserved0[4];
    uint64_t started; /* CLOCK_REALTIME in microseconds when the slot was taken */
    uint8_t reserved1[48];
};

/* What one process holds on one device, on a cache line of its own. Only its owner adds to it. */
struct aliquot_charge {
    uint64_t word;
    uint64_t gpu_time;                 /* ns of GPU time charged to this process; only grows */
    uint64_t peak;                     /* bytes, the most that word has said */
    uint64_t context_bytes;            /* bytes, of those in word, that are its contexts' */
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
static_assert(offsetof(struct aliquot_header, unplaced_addresses) == 128, "region layout");
static_assert(offsetof(struct aliquot_header, decision) == 192, "region layout");
static_assert(sizeof(struct aliquot_header) == 4096, "region layout");
static_assert(sizeof(struct aliquot_device) == 256, "region layout");
static_assert(offsetof(struct aliquot_device, tat) == 64, "region layout");
static_assert(offsetof(struct aliquot_device, gpu_time) == 72, "region layout");
static_assert(offsetof(struct aliquot_device, throttled) == 80, "region layout");
static_assert(offsetof(struct aliquot_device, wanted) == 88, "region layout");
static_assert(offsetof(struct aliquot_device, history) == 96, "region layout");
static_assert(offsetof(struct aliquot_device, grant) == 128, "region layout");
static_assert(offsetof(struct aliquot_device, unattributed) == 136, "region layout");
static_assert(offsetof(struct aliquot_device, active) == 144, "region layout");
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
