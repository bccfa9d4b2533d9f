/* Functions of modules and kernels of libraries, for kernel launches and graphs. Called with the driver lock held. */
#ifndef ALIQUOT_FAKE_CUDA_MODULE_H
#define ALIQUOT_FAKE_CUDA_MODULE_H

#include "cuda_driver.h"

struct image_kernel;

/* Frees what a module or a library holds. The caller deletes the object itself. */
void module_free(struct object *object);

/* Whether function is a module's function or a library's kernel cast to CUfunction. */
bool is_function(CUfunction function);

/* The next two expect a handle that is_function() accepts. */
const char *function_name(CUfunction function);

/* The kernel's entry in its image, for example its parameters. */
const struct image_kernel *function_image(CUfunction function);

#endif
