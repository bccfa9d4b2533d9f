/* A library in place of the shim that crashes each process when it ends: the acceptance kit must notice. */
#include <stdlib.h>

static __attribute__((destructor)) void crash(void) {
    abort();
}
