/*
 * memory KIND [wait]: takes device memory in one way until it is refused, down to the smallest piece, and says what it
 * got as one JSON object; at the end of its input it gives all back and says what there is then. With `wait` it begins
 * at the first line of input.
 */
#include "driver.h"

#include <string.h>

struct location {
    int type, id;
};
struct allocation_properties {
    int type, handle_types;
    struct location location;
    void *metadata;
    unsigned char flags[8];
};
struct access {
    struct location location;
    int flags;
};
struct array_descriptor {
    size_t width, height;
    int format;
    unsigned channels;
};
enum { LOCATION_DEVICE = 1, PINNED = 1, READ_WRITE = 3, FORMAT_FLOAT = 0x20, ATTACH_GLOBAL = 1 };

/* One piece of memory; which fields are set is its kind's business. */
struct piece {
    CUdeviceptr address;
    size_t bytes;
    unsigned long long handle;
    CUarray array;
};

static CUstream stream;

static int take_plain(struct piece *piece) {
    return CALL(cuMemAlloc_v2, CUdeviceptr *, size_t)(&piece->address, piece->bytes);
}

static int give_plain(struct piece *piece) {
    return CALL(cuMemFree_v2, CUdeviceptr)(piece->address);
}

static int take_managed(struct piece *piece) {
    return CALL(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&piece->address, piece->bytes, ATTACH_GLOBAL);
}

/* Rows of 4,096 bytes, so that pitch times height is what was asked for. */
static int take_pitched(struct piece *piece) {
    size_t pitch = 0;
    int result = CALL(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t,
                      unsigned)(&piece->address, &pitch, 4096, piece->bytes / 4096, 4);
    if (result == CUDA_SUCCESS) {
        piece->bytes = pitch * (piece->bytes / 4096);
    }
    return result;
}

static int take_async(struct piece *piece) {
    int result = CALL(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)(&piece->address, piece->bytes, stream);
    return result != CUDA_SUCCESS ? result : CALL(cuStreamSynchronize, CUstream)(stream);
}

static int give_async(struct piece *piece) {
    int result = CALL(cuMemFreeAsync, CUdeviceptr, CUstream)(piece->address, stream);
    return result != CUDA_SUCCESS ? result : CALL(cuStreamSynchronize, CUstream)(stream);
}

static int take_virtual(struct piece *piece) {
    struct allocation_properties properties = {.type = PINNED, .location = {LOCATION_DEVICE, 0}};
    int result = CALL(cuMemCreate, unsigned long long *, size_t, const struct allocation_properties *,
                      unsigned long long)(&piece->handle, piece->bytes, &properties, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct access access = {.location = properties.location, .flags = READ_WRITE};
    MUST(CALL(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr,
              unsigned long long)(&piece->address, piece->bytes, 0, 0, 0));
    MUST(CALL(cuMemMap, CUdeviceptr, size_t, size_t, unsigned long long,
              unsigned long long)(piece->address, piece->bytes, 0, piece->handle, 0));
    MUST(CALL(cuMemSetAccess, CUdeviceptr, size_t, const struct access *, size_t)(piece->address, piece->bytes, &access,
                                                                                  1));
    /* Released while it is mapped, as programs do: the memory is in use until it is unmapped. */
    return CALL(cuMemRelease, unsigned long long)(piece->handle);
}

static int give_virtual(struct piece *piece) {
    MUST(CALL(cuMemUnmap, CUdeviceptr, size_t)(piece->address, piece->bytes));
    return CALL(cuMemAddressFree, CUdeviceptr, size_t)(piece->address, piece->bytes);
}

/* Rows of 1,024 floats. */
static int take_array(struct piece *piece) {
    struct array_descriptor descriptor = {1024, piece->bytes / 4096, FORMAT_FLOAT, 1};
    return CALL(cuArrayCreate_v2, CUarray *, const struct array_descriptor *)(&piece->array, &descriptor);
}

static int give_array(struct piece *piece) {
    return CALL(cuArrayDestroy, CUarray)(piece->array);
}

static const struct kind {
    const char *name;
    const char *needs; /* a function without which the driver lacks the kind */
    int (*take)(struct piece *);
    int (*give)(struct piece *);
    size_t smallest; /* bytes */
} kinds[] = {
    {"plain", "cuMemAlloc_v2", take_plain, give_plain, 1},
    {"managed", "cuMemAllocManaged", take_managed, give_plain, 1},
    {"pitched", "cuMemAllocPitch_v2", take_pitched, give_plain, 4096},
    {"async", "cuMemAllocAsync", take_async, give_async, 1},
    {"virtual", "cuMemCreate", take_virtual, give_virtual, 0},
    {"array", "cuArrayCreate_v2", take_array, give_array, 4096},
};
enum { KINDS = sizeof kinds / sizeof kinds[0], PIECES = 1 << 20 };

static size_t granularity(void) {
    struct allocation_properties properties = {.type = PINNED, .location = {LOCATION_DEVICE, 0}};
    size_t bytes = 0;
    MUST(CALL(cuMemGetAllocationGranularity, size_t *, const struct allocation_properties *, int)(&bytes, &properties,
                                                                                                  0));
    return bytes;
}

int main(int count, char **arguments) {
    const struct kind *kind = NULL;
    for (int i = 0; i < KINDS; i++) {
        if (count >= 2 && strcmp(arguments[1], kinds[i].name) == 0) {
            kind = &kinds[i];
        }
    }
    if (kind == NULL) {
        fprintf(stderr, "usage: memory plain|managed|pitched|async|virtual|array [wait]\n");
        return 2;
    }
    driver_start();
    if (driver_find(kind->needs) == NULL) {
        printf("{\"lacks\": \"%s\"}\n", kind->needs);
        return EXIT_SUCCESS;
    }
    MUST(CALL(cuStreamCreate, CUstream *, unsigned)(&stream, 0));
    size_t largest = 256 * MIB;
    if (count > 2) {
        largest = 4 * MIB; /* so that those who wait with it get something */
        printf("{}\n");
        fflush(stdout);
        getchar();
    }
    struct piece *pieces = calloc(PIECES, sizeof *pieces);
    size_t smallest = kind->smallest != 0 ? kind->smallest : granularity();
    size_t pieces_taken = 0, obtained = 0, before, total, full, after;
    int refusal = CUDA_SUCCESS;
    driver_memory(&before, &total);
    for (size_t bytes = largest; bytes >= smallest && pieces != NULL; bytes /= 2) {
        while (pieces_taken < PIECES) {
            struct piece *piece = &pieces[pieces_taken];
            *piece = (struct piece){.bytes = bytes};
            if ((refusal = kind->take(piece)) != CUDA_SUCCESS) {
                break;
            }
            pieces_taken++;
            obtained += piece->bytes;
        }
    }
    driver_memory(&full, &total);
    printf("{\"total\": %zu, \"free_before\": %zu, \"obtained\": %zu, \"free_full\": %zu, \"smallest\": %zu, "
           "\"refusal\": \"%s\"}\n",
           total, before, obtained, full, smallest, driver_error(refusal));
    driver_pause();
    for (size_t i = pieces_taken; i-- > 0;) {
        MUST(kind->give(&pieces[i]));
    }
    MUST(CALL(cuCtxSynchronize, void)());
    driver_memory(&after, &total);
    printf("{\"free_after\": %zu}\n", after);
    return EXIT_SUCCESS;
}
