/* What fat binaries are compressed with: Zstandard (RFC 8878), and blocks of LZ4 (lz4_Block_format.md). */
#ifndef ALIQUOT_FAKE_DECOMPRESS_H
#define ALIQUOT_FAKE_DECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether from unpacks to exactly size bytes, which are then in to. Nothing outside of both is touched. */
bool decompress_zstd(unsigned char *to, size_t size, const unsigned char *from, size_t from_size);
bool decompress_lz4(unsigned char *to, size_t size, const unsigned char *from, size_t from_size);

#endif
