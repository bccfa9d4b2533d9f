/* A library that asks dlsym for what is behind itself; the answer depends on who dlsym thinks is calling. */
#define _GNU_SOURCE
#include <dlfcn.h>

int probe_me(void);
void *probe_next(const char *symbol);

int probe_me(void) {
    return 2;
}

void *probe_next(const char *symbol) {
    return dlsym(RTLD_NEXT, symbol);
}
