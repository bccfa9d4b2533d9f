/*
 * The check by which NVIDIA's runtime library verifies its driver at startup. Without a correct answer, the runtime
 * fails with cudaErrorSoftwareValidityNotEstablished. The answer is a digest of both versions, the process, the
 * thread, the addresses of two tables, the time and the devices. The simulated driver answers so that programs can be
 * tested; it is not an NVIDIA driver, and its version and documentation say so.
 *
 * The construction is HMAC (RFC 2104) over MD2 (RFC 1319, with its errata). The source for the key, the fields and
 * their order is ZLUDA (github.com/vosen/ZLUDA, dark_api/src/lib.rs), an open implementation of the driver API.
 */
#define _GNU_SOURCE
#include "cuda_handshake.h"
#include "cuda_client.h"
#include "cuda_driver.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 16, ROUNDS = 18, INNER_PAD = 0x36, OUTER_PAD = 0x5c };

/* The permutation of RFC 1319, section 3.2, constructed from the digits of pi. */
static const unsigned char permutation[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243, 192, 199,
    115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,  103, 66,  111, 24,
    138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142, 187, 47,  238, 122, 169, 104,
    121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,
    53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,
    170, 198, 79,  184, 56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,
    100, 113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,
    97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,
    44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193,
    171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,
    80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20};

struct md2 {
    unsigned char state[3 * BLOCK_BYTES]; /* the digest so far, the block, and the XOR of both */
    unsigned char checksum[BLOCK_BYTES];
    unsigned char block[BLOCK_BYTES];
    unsigned filled;
};

static void md2_mix(struct md2 *md2, const unsigned char block[BLOCK_BYTES]) {
    for (unsigned i = 0; i < BLOCK_BYTES; i++) {
        md2->state[BLOCK_BYTES + i] = block[i];
        md2->state[2 * BLOCK_BYTES + i] = block[i] ^ md2->state[i];
    }
    unsigned char t = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < sizeof md2->state; i++) {
            t = md2->state[i] ^= permutation[t];
        }
        t = (unsigned char)(t + round);
    }
}

static void md2_update(struct md2 *md2, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        md2->block[md2->filled++] = bytes[i];
        if (md2->filled < BLOCK_BYTES) {
            continue;
        }
        unsigned char last = md2->checksum[BLOCK_BYTES - 1];
        for (unsigned j = 0; j < BLOCK_BYTES; j++) {
            last = md2->checksum[j] ^= permutation[md2->block[j] ^ last];
        }
        md2_mix(md2, md2->block);
        md2->filled = 0;
    }
}

static void md2_finish(struct md2 *md2, unsigned char digest[BLOCK_BYTES]) {
    unsigned char padding[BLOCK_BYTES];
    unsigned missing = BLOCK_BYTES - md2->filled;
    memset(padding, (int)missing, missing);
    md2_update(md2, padding, missing);
    md2_mix(md2, md2->checksum);
    memcpy(digest, md2->state, BLOCK_BYTES);
}

static void hmac_begin(struct md2 *md2, unsigned char pad) {
    static const unsigned char key[BLOCK_BYTES] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                                   0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    unsigned char padded[BLOCK_BYTES];
    for (unsigned i = 0; i < BLOCK_BYTES; i++) {
        padded[i] = key[i] ^ pad;
    }
    memset(md2, 0, sizeof *md2);
    md2_update(md2, padded, BLOCK_BYTES);
}

CUresult handshake_answer(uint32_t version, uint64_t seconds, const struct handshake_addresses *tables,
                          unsigned char answer[16]) {
    /* Two of the requests have a constant answer. */
    static const unsigned char constant_answers[2][BLOCK_BYTES] = {
        {0x5c, 0x67, 0xcb, 0x03, 0x1c, 0x18, 0x41, 0x33, 0xe8, 0xd1, 0x4c, 0x1f, 0xaa, 0x83, 0xd3, 0x8e},
        {0x5c, 0x67, 0xcb, 0x03, 0x1c, 0x18, 0x41, 0x18, 0xe8, 0xd1, 0x4c, 0x1f, 0xaa, 0x83, 0xd3, 0x8e}};
    if (version % 10 < 2) {
        memcpy(answer, constant_answers[version % 10], BLOCK_BYTES);
        return CUDA_SUCCESS;
    }
    struct {
        uint32_t driver_version, version, process, thread;
        struct handshake_addresses tables;
        uint64_t seconds;
    } request = {FAKE_CUDA_VERSION, version, (uint32_t)getpid(), (uint32_t)pthread_self(), *tables, seconds};
    struct md2 md2;
    hmac_begin(&md2, INNER_PAD);
    md2_update(&md2, &request, sizeof request);
    int count;
    CUresult result = cuDeviceGetCount(&count);
    for (int ordinal = 0; result == CUDA_SUCCESS && ordinal < count; ordinal++) {
        struct {
            CUuuid uuid;
            int domain, bus, device;
        } device;
        if ((result = cuDeviceGetUuid_v2(&device.uuid, ordinal)) != CUDA_SUCCESS ||
            (result = cuDeviceGetAttribute(&device.domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, ordinal)) !=
                CUDA_SUCCESS ||
            (result = cuDeviceGetAttribute(&device.bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal)) != CUDA_SUCCESS ||
            (result = cuDeviceGetAttribute(&device.device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, ordinal)) !=
                CUDA_SUCCESS) {
            break;
        }
        md2_update(&md2, &device, sizeof device);
    }
    unsigned char inner[BLOCK_BYTES];
    md2_finish(&md2, inner);
    hmac_begin(&md2, OUTER_PAD);
    md2_update(&md2, inner, BLOCK_BYTES);
    md2_finish(&md2, answer);
    return result;
}
