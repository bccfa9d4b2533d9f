/* A program linked to libcuda, like programs that use the driver API. It allocates argv[1] MiB and prints the result.
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef WEAK
#pragma weak cuInit
#pragma weak cuDevicePrimaryCtxRetain
#pragma weak cuCtxSetCurrent
#pragma weak cuMemAlloc_v2
#endif

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);

int main(int argc, char **argv) {
    void *context = NULL;
    unsigned long long address = 0;
    int result = cuInit(0);
    if (argc != 2 || result != 0) {
        printf("%d\n", result);
        return EXIT_FAILURE;
    }
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    printf("%d\n", cuMemAlloc_v2(&address, strtoul(argv[1], NULL, 10) << 20));
    return EXIT_SUCCESS;
}
