/*
 * Tests of the image parser, with valid and corrupted images. Arguments name further image files; those that exist are
 * read and corrupted in the same way.
 */
#include "check.h"
#include "cubin.h"
#include "image.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char sample_ptx[] = "// .entry not_this(\n"
                                 "/* .entry nor_this() {} */\n"
                                 ".version 8.0\n"
                                 ".target sm_75, debug\n"
                                 ".address_size 64\n\n"
                                 ".extern .global .u32 elsewhere;\n"
                                 ".visible .global .align 4 .u32 counter = 7;\n"
                                 ".global .attribute(.managed) .align 8 .b8 shared_by_all[16];\n"
                                 ".const .align 4 .b32 table[2][2] = {{1, -2}, {0f3F800000, 4}};\n"
                                 ".global .align 16 .v2 .f32 pair;\n"
                                 ".func (.param .b32 r) helper(.param .b32 a)\n{\n\tret;\n}\n"
                                 ".visible .entry kernel(\n"
                                 "\t.param .u64 kernel_a,\n"
                                 "\t.param .u8 kernel_b,\n"
                                 "\t.param .align 4 .b8 kernel_c[12],\n"
                                 "\t.param .u64 .ptr .global .align 4 kernel_d\n"
                                 ")\n.maxntid 256, 1, 1\n{\n\t{ .reg .b32 %r<2>; }\n\tret;\n}\n"
                                 ".entry bare\n{\n\tret;\n}";

static enum image_result read_with_and_without_size(struct image *image, const void *start, size_t bytes,
                                                    unsigned architecture) {
    struct image again;
    enum image_result result = image_read(image, start, bytes, architecture);
    CHECK(image_read(&again, start, SIZE_MAX, architecture) == result);
    CHECK(again.kernel_count == image->kernel_count && again.global_count == image->global_count);
    image_clear(&again);
    return result;
}

static void check_parameter(const struct image_kernel *kernel, size_t index, uint32_t offset, uint32_t size) {
    CHECK(index < kernel->parameter_count);
    CHECK(kernel->parameters[index].offset == offset && kernel->parameters[index].size == size);
}

static void ptx_kernels_and_variables_are_read(void) {
    struct image image;
    CHECK(read_with_and_without_size(&image, sample_ptx, sizeof sample_ptx, 80) == IMAGE_READ);
    CHECK(image.kernel_count == 2 && image.architecture == 75);
    const struct image_kernel *kernel = image_kernel(&image, "kernel");
    CHECK(kernel != NULL && kernel->parameter_count == 4);
    check_parameter(kernel, 0, 0, 8);
    check_parameter(kernel, 1, 8, 1);
    check_parameter(kernel, 2, 12, 12);
    check_parameter(kernel, 3, 24, 8);
    CHECK(image_kernel(&image, "bare") != NULL && image_kernel(&image, "helper") == NULL);
    CHECK(image_kernel(&image, "not_this") == NULL && image_kernel(&image, "nor_this") == NULL);
    CHECK(image.global_count == 4);
    const struct image_global *counter = image_global(&image, "counter"), *table = image_global(&image, "table");
    CHECK(counter != NULL && counter->bytes == 4 && *counter->initial == 7 && !counter->managed);
    static const int values[4] = {1, -2, 0x3f800000, 4};
    CHECK(table != NULL && table->bytes == sizeof values && memcmp(table->initial, values, sizeof values) == 0);
    CHECK(image_global(&image, "shared_by_all")->managed && image_global(&image, "shared_by_all")->bytes == 16);
    CHECK(image_global(&image, "pair")->bytes == 8 && image_global(&image, "pair")->initial == NULL);
    image_clear(&image);
    CHECK(image_read(&image, sample_ptx, sizeof sample_ptx, 70) == IMAGE_OF_OTHER_DEVICES);
}

static void cubin_kernels_and_variables_are_read(void) {
    struct image image;
    unsigned char bytes[CUBIN_CAPACITY] __attribute__((aligned(8))) = {0};
    size_t size = make_cubin(bytes, 80);
    CHECK(read_with_and_without_size(&image, bytes, size, 89) == IMAGE_READ);
    CHECK(image.kernel_count == 1 && image.global_count == 2 && image.architecture == 80);
    const struct image_kernel *kernel = image_kernel(&image, "kernel");
    CHECK(kernel != NULL && kernel->parameter_count == 3 && kernel->registers == 20);
    check_parameter(kernel, 0, 0, 8);
    check_parameter(kernel, 1, 8, 1);
    check_parameter(kernel, 2, 12, 4);
    CHECK(*image_global(&image, "counter")->initial == 7);
    CHECK(image_global(&image, "zeros")->bytes == 1000 && image_global(&image, "zeros")->initial == NULL);
    image_clear(&image);
    CHECK(read_with_and_without_size(&image, bytes, size, 90) == IMAGE_OF_OTHER_DEVICES); /* another major version */
    CHECK(read_with_and_without_size(&image, bytes, size, 75) == IMAGE_OF_OTHER_DEVICES); /* an older device */
}

static void the_best_image_of_a_fat_binary_is_selected(void) {
    struct image image;
    unsigned char bytes[2 * CUBIN_CAPACITY] __attribute__((aligned(8))) = {0};
    size_t size = make_fatbin(bytes, 80, 86);
    static const unsigned pairs[][2] = {{80, 80}, {86, 86}, {89, 86}};
    for (size_t i = 0; i < 3; i++) {
        CHECK(read_with_and_without_size(&image, bytes, size, pairs[i][0]) == IMAGE_READ &&
              image.architecture == pairs[i][1]);
        image_clear(&image);
    }
    CHECK(read_with_and_without_size(&image, bytes, size, 90) == IMAGE_OF_OTHER_DEVICES);
    struct {
        uint32_t magic, version;
        const void *data, *prelinked;
    } wrapper = {0x466243b1, 1, bytes, NULL};
    CHECK(image_read(&image, &wrapper, SIZE_MAX, 80) == IMAGE_READ);
    image_clear(&image);
    CHECK(image_read(&image, &wrapper, sizeof wrapper, 80) == IMAGE_MALFORMED); /* a file cannot contain pointers */
}

static void a_truncated_image_at_the_end_of_mapped_memory_is_an_error(void) {
    struct image image;
    unsigned char bytes[2 * CUBIN_CAPACITY] __attribute__((aligned(8))) = {0};
    unsigned char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    size_t size = make_fatbin(bytes, 80, 86);
    CHECK(size < 4096);
    for (size_t shown = 4; shown <= size; shown += 4) {
        memcpy(pages + 4096 - shown, bytes, shown);
        enum image_result result = image_read(&image, pages + 4096 - shown, SIZE_MAX, 80);
        /* The parser does not read the second cubin, which this device does not need. */
        CHECK(result == IMAGE_MALFORMED || (result == IMAGE_READ && shown > size / 2));
        CHECK(result == IMAGE_READ || shown < size);
        image_clear(&image);
    }
    memset(pages, ' ', 4096);
    memcpy(pages + 4096 - (sizeof sample_ptx - 1), sample_ptx,
           sizeof sample_ptx - 1); /* without the terminating zero */
    CHECK(image_read(&image, pages + 4096 - (sizeof sample_ptx - 1), SIZE_MAX, 80) == IMAGE_MALFORMED);
    CHECK(image_read(&image, NULL, SIZE_MAX, 80) == IMAGE_MALFORMED);
    munmap(pages, 8192);
}

static uint64_t random_state;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Reads truncated copies and copies with a few changed bytes: each must give a valid result and no stray access. */
static void read_corrupted(const unsigned char *valid, size_t size, unsigned rounds) {
    static const unsigned char likely[] = {0, 1, 4, 0x7f, 0x80, 0xff, '{', '}', '(', ',', ';', '=', '"', '[', '.'};
    for (unsigned round = 0; round < rounds; round++) {
        struct image image;
        size_t length = round % 4 == 0 ? next_random() % size : size;
        unsigned char *bytes = malloc(length + 1); /* exact size, so that a sanitizer detects accesses beyond it */
        CHECK(bytes != NULL);
        memcpy(bytes, valid, length);
        for (unsigned changes = (unsigned)(next_random() % 8); changes > 0 && length > 0; changes--) {
            bytes[next_random() % length] =
                next_random() % 2 == 0 ? likely[next_random() % sizeof likely] : (unsigned char)next_random();
        }
        enum image_result result = image_read(&image, bytes, length, 80);
        CHECK(result == IMAGE_READ || result == IMAGE_MALFORMED || result == IMAGE_OF_OTHER_DEVICES);
        image_clear(&image);
        free(bytes);
    }
}

static void corrupt_images_are_errors(void) {
    unsigned char bytes[2 * CUBIN_CAPACITY] __attribute__((aligned(8))) = {0};
    read_corrupted((const unsigned char *)sample_ptx, sizeof sample_ptx, 20000);
    read_corrupted(bytes, make_cubin(bytes, 80), 20000);
    memset(bytes, 0, sizeof bytes);
    read_corrupted(bytes, make_fatbin(bytes, 80, 86), 20000);
}

static void read_corrupted_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return; /* nvcc is not available */
    }
    CHECK(fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    CHECK(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    unsigned char *bytes = malloc((size_t)size);
    struct image image;
    CHECK(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    CHECK(image_read(&image, bytes, (size_t)size, 80) == IMAGE_READ);
    image_clear(&image);
    read_corrupted(bytes, (size_t)size, 5000);
    free(bytes);
    printf("ok: %s\n", path);
}

int main(int count, char **arguments) {
    const char *seed = getenv("ALIQUOT_TEST_SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) << 16 | 1;
    printf("ALIQUOT_TEST_SEED=%#llx\n", (unsigned long long)random_state);
    fflush(stdout);
    ptx_kernels_and_variables_are_read();
    cubin_kernels_and_variables_are_read();
    the_best_image_of_a_fat_binary_is_selected();
    a_truncated_image_at_the_end_of_mapped_memory_is_an_error();
    corrupt_images_are_errors();
    for (int i = 1; i < count; i++) {
        read_corrupted_file(arguments[i]);
    }
    return 0;
}
