/* Parses the limit file. Grammar and examples: api/golden/vgpu. */
#ifndef ALIQUOT_LIMITS_H
#define ALIQUOT_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIQUOT_LIMITS_TEXT_MAX 65536 /* bytes */
#define ALIQUOT_LIMITS_VGPUS_MAX 16   /* as many as the region holds */
#define ALIQUOT_LIMITS_ERROR 160      /* bytes of an error message */
#define ALIQUOT_MIB (UINT64_C(1) << 20)

enum aliquot_policy { ALIQUOT_POLICY_FIXED, ALIQUOT_POLICY_ELASTIC, ALIQUOT_POLICY_NONE };

/* One container's share of one GPU. */
struct aliquot_vgpu {
    uint8_t uuid[16];
    uint64_t memory; /* bytes, 1 MiB to 16 TiB */
    uint32_t cores;  /* percent of the GPU, 0 to 100; 0: no limit */
    enum aliquot_policy policy;
    uint64_t context_bytes; /* bytes to charge for the CUDA contexts of a process */
    bool exclusive;         /* the container has the whole GPU */
};

struct aliquot_limits {
    size_t count; /* at least 1 */
    struct aliquot_vgpu vgpu[ALIQUOT_LIMITS_VGPUS_MAX];
};

/* Parses the complete text of a limit file, which need not end in NUL. False: the contents of limits are undefined,
   and error describes in one line what was expected. */
bool aliquot_limits_parse(const char *text, size_t length, struct aliquot_limits *limits,
                          char error[ALIQUOT_LIMITS_ERROR]);

/* Parses a UUID of 36 characters (lower-case hex, 8-4-4-4-12) into 16 bytes. False: malformed. */
bool aliquot_uuid_parse(const char *text, size_t length, uint8_t uuid[16]);

#endif
