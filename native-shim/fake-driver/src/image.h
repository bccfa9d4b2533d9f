/*
 * What is in the code that a program loads: PTX, cubins (ELF) and fat binaries, which hold several of both. Everything
 * is checked before it is believed; an image is only read, never run.
 */
#ifndef ALIQUOT_FAKE_IMAGE_H
#define ALIQUOT_FAKE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_parameter {
    uint32_t offset, size;
};

struct image_kernel {
    char *name;
    struct image_parameter *parameters;
    size_t parameter_count;
    int registers, max_threads;
    size_t shared_bytes, local_bytes, constant_bytes;
};

struct image_global {
    char *name;
    size_t bytes;
    unsigned char *initial; /* NULL: zeros */
    bool managed;
};

struct image {
    bool opaque;           /* compressed in a way that isn't known here: what it holds isn't known */
    unsigned architecture; /* 80 for sm_80 or compute_80 */
    bool ptx;
    struct image_kernel *kernels;
    size_t kernel_count;
    struct image_global *globals;
    size_t global_count;
};

enum image_result { IMAGE_READ, IMAGE_MALFORMED, IMAGE_OF_OTHER_DEVICES, IMAGE_NO_MEMORY };

/*
 * Reads what a device of that architecture (80 for 8.0) would run of the image. bytes is how many there are at start,
 * or SIZE_MAX where the caller was not told: then the image's own headers say it, and what they promise is still only
 * an error where nothing is mapped.
 */
enum image_result image_read(struct image *image, const void *start, size_t bytes, unsigned architecture);
void image_clear(struct image *image);

const struct image_kernel *image_kernel(const struct image *image, const char *name);
const struct image_global *image_global(const struct image *image, const char *name);

#endif
