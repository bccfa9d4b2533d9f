/*
 * Parser for the code images that a program loads: PTX, cubins (ELF), and fat binaries, which hold several of both. It
 * validates all input, and reads images without executing them.
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
    unsigned architecture; /* 80 for sm_80 or compute_80 */
    bool ptx;
    struct image_kernel *kernels;
    size_t kernel_count;
    struct image_global *globals;
    size_t global_count;
};

enum image_result { IMAGE_READ, IMAGE_MALFORMED, IMAGE_OF_OTHER_DEVICES, IMAGE_NO_MEMORY };

/*
 * Reads the part of the image that a device of that architecture (80 for 8.0) runs. bytes is the size at start, or
 * SIZE_MAX if the caller does not know it; the size then follows from the image's headers, and a header that points to
 * unmapped memory makes the image malformed.
 */
enum image_result image_read(struct image *image, const void *start, size_t bytes, unsigned architecture);
void image_clear(struct image *image);

const struct image_kernel *image_kernel(const struct image *image, const char *name);
const struct image_global *image_global(const struct image *image, const char *name);

#endif
