/* A library that asks dlsym for what is behind itself; the answer depends on who dlsym thinks is calling. */
#include <dlfcn.h>

int probe_me(void);
void *probe_next(const char *symbol);

int probe_me(void) {
    return 2;
}

void *probe_next(const char *symbol) {
    void *volatile found = dlsym(RTLD_NEXT, symbol); /* volatile: a call in tail position would be our caller's */
    return found;
}
