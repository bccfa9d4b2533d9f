/* A library that calls dlsym with RTLD_NEXT. The result depends on the library that dlsym takes for its caller. */
#include <dlfcn.h>

int probe_me(void);
void *probe_next(const char *symbol);

int probe_me(void) {
    return 2;
}

void *probe_next(const char *symbol) {
    void *volatile found =
        dlsym(RTLD_NEXT, symbol); /* volatile prevents a tail call, in which dlsym would see our caller's address */
    return found;
}
