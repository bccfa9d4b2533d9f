/* The compression methods of fat binaries: Zstandard (RFC 8878) and LZ4 blocks (lz4_Block_format.md). */
#ifndef ALIQUOT_FAKE_DECOMPRESS_H
#define ALIQUOT_FAKE_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Decompresses from into to; true if the result is exactly size bytes. Accesses no memory outside of both. */
bool decompress_zstd(unsigned char *to, size_t size, const unsigned char *from, size_t from_size);
bool decompress_lz4(unsigned char *to, size_t size, const unsigned char *from, size_t from_size);

#endif
