/* Functions of modules and kernels of libraries, for kernel launches and graphs. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_FUNCTION_H
#define ALIQUOT_FAKE_CUDA_FUNCTION_H

#include "cuda_driver.h"
#include "image.h"

/* Function attributes that a program has set. */
struct function_settings {
    unsigned set; /* bit mask by attribute */
    int values[16];
};

/* A module's function or a library's kernel; launches accept either. */
struct kernel_handle {
    struct object object;
    void *owner; /* the module of a function, the library of a kernel */
    const struct image_kernel *image;
    struct function_settings settings;
};

struct CUfunc_st {
    struct kernel_handle handle;
};

struct CUkern_st {
    struct kernel_handle handle;
};

/* Whether function is a module's function or a library's kernel cast to CUfunction. */
bool is_function(CUfunction function);

/* The next two expect a handle that is_function() accepts. */
const char *function_name(CUfunction function);

/* The kernel's entry in its image, for example its parameters. */
const struct image_kernel *function_image(CUfunction function);

#endif
