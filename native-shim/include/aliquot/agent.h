/*
 * Layout of the agent's file: what the node agent tells the processes of a container. In the container it is
 * /usr/local/aliquot/agent, mounted read-only; the processes map it, and the agent writes it in place with pwrite,
 * because the mount stays with the inode. Version 1, fixed width, little-endian, always ALIQUOT_AGENT_SIZE bytes:
 *
 *     offset   0        struct aliquot_agent_header, whose last value is not constant
 *              64       struct aliquot_agent_device [16]    in any order
 *              2112     zeros
 *
 * The node agent creates a new file (ALIQUOT_AGENT_HEADER, zeros elsewhere) before the container starts. It adds a GPU
 * when it first sees the container on it, or starts to divide its time: the entry's values first, its UUID last. It
 * never changes an entry's UUID, and never truncates the file. The arbiter (../arbiter), which the node agent starts,
 * finds entries by their UUID and adds none.
 *
 * Each field has one writer, the node agent or the arbiter, and neither writes more than its own fields: each may end
 * and start again while the other works. Each value is one aligned word, so that a reader never sees half of a value;
 * values of one entry may belong to different instants.
 *
 * A file of another version, of another size or without the magic has the same effect as no file: no grant, and nothing
 * unattributed. No message says so, because the shim must not write to a program's standard error for it.
 */
#ifndef ALIQUOT_AGENT_H
#define ALIQUOT_AGENT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_AGENT_MAGIC UINT64_C(0x3154474151494c41) /* "ALIQAGT1" */
#define ALIQUOT_AGENT_VERSION 1
#define ALIQUOT_AGENT_DEVICES 16
#define ALIQUOT_AGENT_SIZE 4096

/* A word of the arbiter: a number below 2^20, such as a share of the GPU in millionths, 0 to 1000000, and the time at
   which it was written, CLOCK_MONOTONIC in ms. It is one word, so that a reader always sees both from the same time.
   After the time that each field names it has no effect, so that an arbiter may end at any time. */
#define ALIQUOT_GRANT_SHARE_BITS 20
#define ALIQUOT_GRANT(ms, millionths) ((uint64_t)(ms) << ALIQUOT_GRANT_SHARE_BITS | (uint64_t)(millionths))
#define ALIQUOT_GRANT_SHARE(grant) ((uint32_t)((grant) & ((UINT64_C(1) << ALIQUOT_GRANT_SHARE_BITS) - 1)))
#define ALIQUOT_GRANT_MS(grant) ((uint64_t)(grant) >> ALIQUOT_GRANT_SHARE_BITS)

/* The number of the word turn: which part of each round is the container's turn. A round begins at each multiple of
   ALIQUOT_ROUND_NS of CLOCK_MONOTONIC; from (0 to 511) and length (0 to 512) are in units of 1/512 of it, and a turn
   may reach into the next round. With ALIQUOT_TURN_WAITS the container launches in its turn alone, and no more than
   ends with it, or in bursts if its turn is the whole round; else the word has no effect. */
#define ALIQUOT_ROUND_NS INT64_C(80000000)
#define ALIQUOT_ROUND_UNITS 512
#define ALIQUOT_TURN_WAITS (UINT32_C(1) << 19)
#define ALIQUOT_TURN(from, length) ((uint32_t)(from) << 10 | (uint32_t)(length))
#define ALIQUOT_TURN_FROM(word) ((uint32_t)(word) >> 10 & 511)
#define ALIQUOT_TURN_LENGTH(word) ((uint32_t)(word)&1023)

/* What the scheduler has given the container, in the header's word holds; 0: the agent has not said it yet. */
#define ALIQUOT_AGENT_HOLDS_SHARES 1      /* at least one GPU that is no whole card */
#define ALIQUOT_AGENT_HOLDS_WHOLE_CARDS 2 /* and nothing else */

/* After this time without a new updated_ms, unattributed no longer counts: an agent that has ended refuses nothing. */
#define ALIQUOT_AGENT_MAX_AGE_MS 60000

struct aliquot_agent_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_size; /* bytes before the devices */
    uint32_t total_size;  /* ALIQUOT_AGENT_SIZE */
    uint32_t device_count;
    uint32_t device_size;
    uint32_t holds; /* written by the node agent, at any time: ALIQUOT_AGENT_HOLDS_... */
    uint8_t reserved0[32];
};

struct aliquot_agent_device {
    /* Written by the node agent. */
    uint8_t uuid[16]; /* of the GPU, in the order in which it is printed; zeros: the entry is free */

    /* Written by the arbiter: ALIQUOT_GRANT(...), the container's own share: its cores. Valid for 3 s. 0: none. */
    uint64_t grant;

    /* Written by the node agent. */
    uint64_t unattributed; /* bytes that the host sees the container use beyond its charges; less than 2^52 */
    uint64_t updated_ms;   /* CLOCK_MONOTONIC in ms when unattributed was last written */
    uint8_t reserved0[8];

    /* Written by the arbiter, each ALIQUOT_GRANT(...); 0: unknown, or none. */
    uint64_t active;   /* other containers that have work on the GPU, or had it in the last 40 ms, plus 1; for 100 ms */
    uint64_t borrowed; /* share of the GPU beyond the own one, which others leave; valid for 200 ms */
    uint64_t turn;     /* see ALIQUOT_TURN; valid for 100 ms */
    uint8_t reserved1[56];
};

struct aliquot_agent {
    struct aliquot_agent_header header;
    struct aliquot_agent_device device[ALIQUOT_AGENT_DEVICES];
    uint8_t reserved0[1984];
};

/* Initializer of the header of every file of this version. */
#define ALIQUOT_AGENT_HEADER                                                                                           \
    {                                                                                                                  \
        .magic = ALIQUOT_AGENT_MAGIC, .version = ALIQUOT_AGENT_VERSION,                                                \
        .header_size = sizeof(struct aliquot_agent_header), .total_size = ALIQUOT_AGENT_SIZE,                          \
        .device_count = ALIQUOT_AGENT_DEVICES, .device_size = sizeof(struct aliquot_agent_device)                      \
    }

static_assert(offsetof(struct aliquot_agent_header, magic) == 0, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, version) == 8, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, header_size) == 12, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, total_size) == 16, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, device_count) == 20, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, device_size) == 24, "agent layout");
static_assert(offsetof(struct aliquot_agent_header, holds) == 28, "agent layout");
static_assert(sizeof(struct aliquot_agent_header) == 64, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, grant) == 16, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, unattributed) == 24, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, updated_ms) == 32, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, active) == 48, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, borrowed) == 56, "agent layout");
static_assert(offsetof(struct aliquot_agent_device, turn) == 64, "agent layout");
static_assert(sizeof(struct aliquot_agent_device) == 128, "agent layout");
static_assert(offsetof(struct aliquot_agent, device) == 64, "agent layout");
static_assert(sizeof(struct aliquot_agent) == ALIQUOT_AGENT_SIZE, "agent layout");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the agent's file is little-endian");

#endif
