/* Straightforward decompression, not optimized: it runs once per image. Section numbers are those of RFC 8878. */
#include "decompress.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    const unsigned char *at, *end;
};

struct output {
    unsigned char *start, *at, *end;
};

static size_t bytes_left(const struct bytes *bytes) {
    return (size_t)(bytes->end - bytes->at);
}

static bool take_bytes(struct bytes *bytes, size_t size, struct bytes *taken) {
    if (bytes_left(bytes) < size)
        return false;
    *taken = (struct bytes){bytes->at, bytes->at + size};
    bytes->at += size;
    return true;
}

static bool take_little_endian(struct bytes *bytes, size_t size, uint64_t *number) {
    struct bytes taken;
    if (!take_bytes(bytes, size, &taken))
        return false;
    *number = 0;
    for (size_t i = 0; i < size; i++)
        *number |= (uint64_t)taken.at[i] << 8 * i;
    return true;
}

static bool append(struct output *output, const unsigned char *from, size_t size) {
    if ((size_t)(output->end - output->at) < size)
        return false;
    memcpy(output->at, from, size);
    output->at += size;
    return true;
}

static bool append_repeated(struct output *output, unsigned char byte, size_t size) {
    if ((size_t)(output->end - output->at) < size)
        return false;
    memset(output->at, byte, size);
    output->at += size;
    return true;
}

/* Copies byte by byte, because source and destination may overlap. */
static bool append_match(struct output *output, size_t offset, size_t size) {
    if (offset == 0 || offset > (size_t)(output->at - output->start) || size > (size_t)(output->end - output->at))
        return false;
    for (; size > 0; size--, output->at++)
        *output->at = *(output->at - offset);
    return true;
}

static unsigned highest_bit(uint64_t number) {
    unsigned bit = 0;
    while (number >>= 1)
        bit++;
    return bit;
}

/* ---- bits ---- */

struct bits {
    const unsigned char *start;
    size_t size;
    int64_t position; /* forward: of the next bit; backward: bits left, negative beyond the end */
};

static uint64_t bits_at(const struct bits *bits, int64_t position, unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++) {
        int64_t bit = position + i;
        if (bit >= 0 && (uint64_t)bit < 8 * bits->size)
            value |= (uint64_t)(bits->start[bit / 8] >> bit % 8 & 1) << i;
    }
    return value;
}

static uint64_t read_bits_forward(struct bits *bits, unsigned count) {
    uint64_t value = bits_at(bits, bits->position, count);
    bits->position += count;
    return value;
}

static uint64_t read_bits_backward(struct bits *bits, unsigned count) {
    bits->position -= count;
    return bits_at(bits, bits->position, count);
}

/* Starts a stream that is read from its end, where a 1 marks the last bit (4.1). */
static bool start_backward_stream(struct bits *bits, const struct bytes *bytes) {
    if (bytes_left(bytes) == 0 || bytes->end[-1] == 0)
        return false;
    *bits = (struct bits){bytes->at, bytes_left(bytes), 0};
    bits->position = (int64_t)(8 * (bits->size - 1)) + highest_bit(bytes->end[-1]);
    return true;
}

/* ---- FSE (4.1) ---- */

enum { FSE_MAX_ACCURACY = 9, MAX_SYMBOLS = 256 };

struct fse {
    unsigned accuracy;
    bool known;
    struct {
        unsigned char symbol, bits;
        uint16_t base;
    } states[1 << FSE_MAX_ACCURACY];
};

static bool fse_build(struct fse *fse, const int16_t *probabilities, unsigned count, unsigned accuracy) {
    uint16_t next[MAX_SYMBOLS];
    unsigned size = 1u << accuracy, high = size, position = 0, step = (size >> 1) + (size >> 3) + 3;
    fse->accuracy = accuracy;
    for (unsigned symbol = 0; symbol < count; symbol++) {
        next[symbol] = probabilities[symbol] < 0 ? 1 : (uint16_t)probabilities[symbol];
        if (probabilities[symbol] < 0)
            fse->states[--high].symbol = (unsigned char)symbol;
    }
    for (unsigned symbol = 0; symbol < count; symbol++) {
        for (int i = 0; i < probabilities[symbol]; i++) {
            fse->states[position].symbol = (unsigned char)symbol;
            do
                position = (position + step) & (size - 1);
            while (position >= high);
        }
    }
    for (unsigned state = 0; state < size; state++) {
        unsigned value = next[fse->states[state].symbol]++, bits = accuracy - highest_bit(value);
        fse->states[state].bits = (unsigned char)bits;
        fse->states[state].base = (uint16_t)((value << bits) - size);
    }
    return fse->known = position == 0;
}

static bool fse_read(struct fse *fse, struct bytes *bytes, unsigned max_accuracy) {
    struct bits bits = {bytes->at, bytes_left(bytes), 0};
    int16_t probabilities[MAX_SYMBOLS] = {0};
    unsigned accuracy = (unsigned)read_bits_forward(&bits, 4) + 5, count = 0;
    if (accuracy > max_accuracy)
        return false;
    int remaining = 1 << accuracy;
    while (remaining > 0 && count < MAX_SYMBOLS) {
        unsigned width = highest_bit((uint64_t)remaining + 1) + 1;
        int value = (int)read_bits_forward(&bits, width), low = (1 << (width - 1)) - 1,
            threshold = (1 << width) - 1 - (remaining + 1);
        if ((value & low) < threshold) {
            bits.position--;
            value &= low;
        } else if (value > low) {
            value -= threshold;
        }
        probabilities[count++] = (int16_t)(value - 1);
        remaining -= value == 0 ? 1 : value - 1;
        for (unsigned zeros = 3; value == 1 && zeros == 3;) {
            zeros = (unsigned)read_bits_forward(&bits, 2);
            count += zeros;
            if (count > MAX_SYMBOLS)
                return false;
        }
    }
    size_t used = (size_t)(bits.position + 7) / 8;
    if (remaining != 0 || used > bytes_left(bytes))
        return false;
    bytes->at += used;
    return fse_build(fse, probabilities, count, accuracy);
}

/* ---- Huffman (4.2) ---- */

enum { HUFFMAN_MAX_BITS = 11 };

struct huffman {
    unsigned bits; /* 0: no table yet */
    struct {
        unsigned char symbol, bits;
    } codes[1 << HUFFMAN_MAX_BITS];
};

static bool huffman_build(struct huffman *huffman, unsigned char *weights, unsigned count) {
    unsigned total = 0;
    huffman->bits = 0;
    for (unsigned i = 0; i < count; i++) {
        if (weights[i] > HUFFMAN_MAX_BITS)
            return false;
        total += weights[i] != 0 ? 1u << (weights[i] - 1) : 0;
    }
    if (total == 0 || count >= MAX_SYMBOLS)
        return false;
    unsigned bits = highest_bit(total) + 1, rest = (1u << bits) - total, code = 0;
    if (bits > HUFFMAN_MAX_BITS || (rest & (rest - 1)) != 0)
        return false;
    weights[count++] = (unsigned char)(highest_bit(rest) + 1);
    for (unsigned weight = 1; weight <= bits; weight++) {
        for (unsigned symbol = 0; symbol < count; symbol++) {
            for (unsigned i = 0; weights[symbol] == weight && i < 1u << (weight - 1); i++, code++) {
                huffman->codes[code].symbol = (unsigned char)symbol;
                huffman->codes[code].bits = (unsigned char)(bits + 1 - weight);
            }
        }
    }
    huffman->bits = bits;
    return code == 1u << bits;
}

static bool huffman_weights(unsigned char *weights, unsigned *count, struct bytes bytes) {
    struct fse fse;
    struct bits bits;
    if (!fse_read(&fse, &bytes, 6) || !start_backward_stream(&bits, &bytes))
        return false;
    unsigned states[2];
    states[0] = (unsigned)read_bits_backward(&bits, fse.accuracy);
    states[1] = (unsigned)read_bits_backward(&bits, fse.accuracy);
    for (*count = 0; *count < MAX_SYMBOLS - 2;) {
        unsigned *state = &states[*count % 2];
        weights[(*count)++] = fse.states[*state].symbol;
        *state = fse.states[*state].base + (unsigned)read_bits_backward(&bits, fse.states[*state].bits);
        if (bits.position < 0) {
            weights[*count] = fse.states[states[*count % 2]].symbol;
            ++*count;
            return true;
        }
    }
    return false;
}

static bool huffman_read(struct huffman *huffman, struct bytes *bytes) {
    unsigned char weights[MAX_SYMBOLS + 1] = {0};
    uint64_t header;
    struct bytes taken;
    unsigned count;
    if (!take_little_endian(bytes, 1, &header))
        return false;
    if (header < 128)
        return take_bytes(bytes, header, &taken) && huffman_weights(weights, &count, taken) &&
               huffman_build(huffman, weights, count);
    count = (unsigned)header - 127;
    if (!take_bytes(bytes, (count + 1) / 2, &taken))
        return false;
    for (unsigned i = 0; i < count; i++)
        weights[i] = i % 2 == 0 ? taken.at[i / 2] >> 4 : taken.at[i / 2] & 15;
    return huffman_build(huffman, weights, count);
}

static bool huffman_decode(const struct huffman *huffman, unsigned char *to, size_t size, const struct bytes *bytes) {
    struct bits bits;
    if (!start_backward_stream(&bits, bytes))
        return false;
    for (; size > 0; size--) {
        unsigned code = (unsigned)bits_at(&bits, bits.position - huffman->bits, huffman->bits);
        *to++ = huffman->codes[code].symbol;
        bits.position -= huffman->codes[code].bits;
        if (bits.position < 0)
            return false;
    }
    return bits.position == 0;
}

/* ---- blocks (3.1.1.2, 3.1.1.3) ---- */

enum { MAX_BLOCK_BYTES = 128 << 10 };

struct zstd {
    struct huffman huffman;
    struct fse lengths, offsets, matches;
    size_t repeated[3];
    unsigned char literals[MAX_BLOCK_BYTES];
    size_t literal_count;
};

static bool read_streams(struct zstd *zstd, struct bytes bytes, bool four) {
    if (!four)
        return huffman_decode(&zstd->huffman, zstd->literals, zstd->literal_count, &bytes);
    uint64_t sizes[3];
    for (unsigned i = 0; i < 3; i++)
        if (!take_little_endian(&bytes, 2, &sizes[i]))
            return false;
    size_t each = (zstd->literal_count + 3) / 4;
    if (3 * each > zstd->literal_count)
        return false;
    for (unsigned i = 0; i < 3; i++) {
        struct bytes stream;
        if (!take_bytes(&bytes, sizes[i], &stream) ||
            !huffman_decode(&zstd->huffman, zstd->literals + i * each, each, &stream))
            return false;
    }
    return huffman_decode(&zstd->huffman, zstd->literals + 3 * each, zstd->literal_count - 3 * each, &bytes);
}

static bool read_literals(struct zstd *zstd, struct bytes *block) {
    if (bytes_left(block) == 0)
        return false;
    unsigned type = *block->at & 3, format = *block->at >> 2 & 3;
    uint64_t header;
    struct bytes taken;
    if (type < 2) {
        if (!take_little_endian(block, format == 1 ? 2 : format == 3 ? 3 : 1, &header))
            return false;
        zstd->literal_count = (size_t)(header >> (format % 2 == 0 ? 3 : 4));
        if (zstd->literal_count > MAX_BLOCK_BYTES || !take_bytes(block, type == 0 ? zstd->literal_count : 1, &taken))
            return false;
        if (type == 0)
            memcpy(zstd->literals, taken.at, zstd->literal_count);
        else
            memset(zstd->literals, *taken.at, zstd->literal_count);
        return true;
    }
    unsigned width = format < 2 ? 10 : format == 2 ? 14 : 18;
    if (!take_little_endian(block, format < 2 ? 3 : format + 2, &header))
        return false;
    zstd->literal_count = header >> 4 & ((1u << width) - 1);
    if (zstd->literal_count > MAX_BLOCK_BYTES ||
        !take_bytes(block, header >> (4 + width) & ((1u << width) - 1), &taken))
        return false;
    if (type == 2 && !huffman_read(&zstd->huffman, &taken))
        return false;
    return zstd->huffman.bits != 0 && read_streams(zstd, taken, format != 0);
}

struct length_code {
    uint32_t base;
    unsigned char bits;
};

static const struct length_code length_codes[] = {
    {0, 0},   {1, 0},   {2, 0},     {3, 0},     {4, 0},     {5, 0},     {6, 0},      {7, 0},      {8, 0},
    {9, 0},   {10, 0},  {11, 0},    {12, 0},    {13, 0},    {14, 0},    {15, 0},     {16, 1},     {18, 1},
    {20, 1},  {22, 1},  {24, 2},    {28, 2},    {32, 3},    {40, 3},    {48, 4},     {64, 6},     {128, 7},
    {256, 8}, {512, 9}, {1024, 10}, {2048, 11}, {4096, 12}, {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16}};
/* For codes from 32 on; a smaller code is the match length minus 3. */
static const struct length_code match_codes[] = {
    {35, 1},    {37, 1},    {39, 1},    {41, 1},    {43, 2},     {47, 2},     {51, 3},
    {59, 3},    {67, 4},    {83, 4},    {99, 5},    {131, 7},    {259, 8},    {515, 9},
    {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16}};
enum { LENGTH_CODES = 36, MATCH_CODES = 53, OFFSET_CODES = 32 };

static const int16_t default_lengths[] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                          2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t default_offsets[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t default_matches[] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

static bool read_table(struct fse *fse, unsigned mode, struct bytes *block, const int16_t *defaults, unsigned count,
                       unsigned accuracy, unsigned max_accuracy) {
    uint64_t symbol;
    switch (mode) {
    case 0:
        return fse_build(fse, defaults, count, accuracy);
    case 1:
        if (!take_little_endian(block, 1, &symbol))
            return false;
        fse->accuracy = 0;
        fse->states[0].symbol = (unsigned char)symbol;
        fse->states[0].bits = 0;
        fse->states[0].base = 0;
        return fse->known = true;
    case 2:
        return fse_read(fse, block, max_accuracy);
    default:
        return fse->known;
    }
}

static size_t resolve_offset(struct zstd *zstd, uint64_t value, size_t length) {
    size_t *repeated = zstd->repeated, offset;
    size_t which = value > 3 ? 3 : (size_t)value - 1 + (length == 0);
    if (value > 3)
        offset = (size_t)value - 3;
    else
        offset = which < 3 ? repeated[which] : repeated[0] - 1;
    if (which >= 2)
        repeated[2] = repeated[1];
    if (which >= 1)
        repeated[1] = repeated[0];
    repeated[0] = offset;
    return offset;
}

static unsigned next_state(const struct fse *fse, unsigned state, struct bits *bits) {
    return fse->states[state].base + (unsigned)read_bits_backward(bits, fse->states[state].bits);
}

static bool execute_sequences(struct zstd *zstd, struct output *output, const struct bytes *block, size_t count) {
    struct bits bits;
    if (!start_backward_stream(&bits, block))
        return false;
    unsigned length_state = (unsigned)read_bits_backward(&bits, zstd->lengths.accuracy),
             offset_state = (unsigned)read_bits_backward(&bits, zstd->offsets.accuracy),
             match_state = (unsigned)read_bits_backward(&bits, zstd->matches.accuracy);
    const unsigned char *literal = zstd->literals, *end = literal + zstd->literal_count;
    while (count-- > 0) {
        unsigned length_code = zstd->lengths.states[length_state].symbol,
                 offset_code = zstd->offsets.states[offset_state].symbol,
                 match_code = zstd->matches.states[match_state].symbol;
        if (length_code >= LENGTH_CODES || offset_code >= OFFSET_CODES || match_code >= MATCH_CODES)
            return false;
        uint64_t value = (1ull << offset_code) + read_bits_backward(&bits, offset_code);
        size_t match = match_code + 3;
        if (match_code >= 32)
            match = match_codes[match_code - 32].base +
                    (size_t)read_bits_backward(&bits, match_codes[match_code - 32].bits);
        size_t length =
            length_codes[length_code].base + (size_t)read_bits_backward(&bits, length_codes[length_code].bits);
        if (count > 0) {
            length_state = next_state(&zstd->lengths, length_state, &bits);
            match_state = next_state(&zstd->matches, match_state, &bits);
            offset_state = next_state(&zstd->offsets, offset_state, &bits);
        }
        if (bits.position < 0 || length > (size_t)(end - literal) || !append(output, literal, length) ||
            !append_match(output, resolve_offset(zstd, value, length), match))
            return false;
        literal += length;
    }
    return bits.position == 0 && append(output, literal, (size_t)(end - literal));
}

static bool read_block(struct zstd *zstd, struct output *output, struct bytes block) {
    uint64_t count, more, modes;
    if (!read_literals(zstd, &block) || !take_little_endian(&block, 1, &count))
        return false;
    if (count == 0)
        return bytes_left(&block) == 0 && append(output, zstd->literals, zstd->literal_count);
    if (count == 255) {
        if (!take_little_endian(&block, 2, &more))
            return false;
        count = more + 0x7f00;
    } else if (count >= 128) {
        if (!take_little_endian(&block, 1, &more))
            return false;
        count = (count - 128) << 8 | more;
    }
    return take_little_endian(&block, 1, &modes) && (modes & 3) == 0 &&
           read_table(&zstd->lengths, modes >> 6 & 3, &block, default_lengths, LENGTH_CODES, 6, 9) &&
           read_table(&zstd->offsets, modes >> 4 & 3, &block, default_offsets, 29, 5, 8) &&
           read_table(&zstd->matches, modes >> 2 & 3, &block, default_matches, MATCH_CODES, 6, 9) &&
           execute_sequences(zstd, output, &block, count);
}

static bool read_frame(struct zstd *zstd, struct output *output, struct bytes *from) {
    static const unsigned char id_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
    uint64_t magic, descriptor, skipped;
    if (!take_little_endian(from, 4, &magic) || magic != 0xfd2fb528u || !take_little_endian(from, 1, &descriptor))
        return false;
    bool single = (descriptor & 32) != 0;
    size_t size_of_size = descriptor >> 6 == 0 && single ? 1 : size_bytes[descriptor >> 6];
    if ((descriptor & 3) != 0 /* a dictionary */ || !take_little_endian(from, !single, &skipped) ||
        !take_little_endian(from, id_bytes[descriptor & 3], &skipped) ||
        !take_little_endian(from, size_of_size, &skipped))
        return false;
    zstd->repeated[0] = 1, zstd->repeated[1] = 4, zstd->repeated[2] = 8;
    for (bool last = false; !last;) {
        uint64_t header;
        struct bytes block;
        if (!take_little_endian(from, 3, &header))
            return false;
        last = header & 1;
        unsigned type = header >> 1 & 3;
        size_t size = (size_t)(header >> 3);
        if (type == 3 || !take_bytes(from, type == 1 ? 1 : size, &block))
            return false;
        bool ok = type == 0   ? append(output, block.at, size)
                  : type == 1 ? append_repeated(output, *block.at, size)
                              : read_block(zstd, output, block);
        if (!ok)
            return false;
    }
    return (descriptor & 4) == 0 || take_little_endian(from, 4, &skipped); /* a checksum */
}

bool decompress_zstd(unsigned char *to, size_t size, const unsigned char *from, size_t from_size) {
    struct output output = {to, to, to + size};
    struct bytes bytes = {from, from + from_size};
    struct zstd *zstd = calloc(1, sizeof *zstd);
    bool ok = zstd != NULL && read_frame(zstd, &output, &bytes) && output.at == output.end;
    free(zstd);
    return ok;
}

/* ---- LZ4 ---- */

/* A length of 15 continues in further bytes, up to and including the first that is not 255. */
static bool read_extended_length(struct bytes *from, size_t *length) {
    uint64_t more = 255;
    if (*length < 15)
        return true;
    while (more == 255) {
        if (!take_little_endian(from, 1, &more))
            return false;
        *length += more;
    }
    return true;
}

bool decompress_lz4(unsigned char *to, size_t size, const unsigned char *from, size_t from_size) {
    struct output output = {to, to, to + size};
    struct bytes bytes = {from, from + from_size}, literals;
    while (bytes_left(&bytes) > 0) {
        uint64_t token, offset;
        take_little_endian(&bytes, 1, &token);
        size_t length = token >> 4, match = token & 15;
        if (!read_extended_length(&bytes, &length) || !take_bytes(&bytes, length, &literals) ||
            !append(&output, literals.at, length))
            return false;
        if (bytes_left(&bytes) == 0)
            break; /* the last sequence has no match */
        if (!take_little_endian(&bytes, 2, &offset) || !read_extended_length(&bytes, &match) ||
            !append_match(&output, (size_t)offset, match + 4))
            return false;
    }
    return output.at == output.end;
}
