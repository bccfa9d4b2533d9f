/* The check by which NVIDIA's runtime library verifies its driver (cuda_handshake.c). */
#ifndef ALIQUOT_FAKE_CUDA_HANDSHAKE_H
#define ALIQUOT_FAKE_CUDA_HANDSHAKE_H

#include "cuda_abi.h"

/* Addresses that are part of the request. */
struct handshake_addresses {
    const void *runtime_interface, *handshakes;
    void (*handshake)(void);
};

CUresult handshake_answer(uint32_t version, uint64_t seconds, const struct handshake_addresses *tables,
                          unsigned char answer[16]);

#endif
