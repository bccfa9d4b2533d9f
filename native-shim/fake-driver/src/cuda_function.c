#include "cuda_function.h"

/* Launches also accept kernels, cast to functions. */
bool is_function(CUfunction function) {
    return object_find(KIND_FUNCTION, function) != NULL || object_find(KIND_KERNEL, function) != NULL;
}

const char *function_name(CUfunction function) {
    return function->handle.image->name;
}

const struct image_kernel *function_image(CUfunction function) {
    return function->handle.image;
}
