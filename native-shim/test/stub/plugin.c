/* A library that brings the driver along, in a scope of its own when it is loaded with RTLD_LOCAL. */
#include <dlfcn.h>

int cuInit(unsigned flags);
int plugin_init(void);
void *plugin_find(void *handle, const char *symbol);

int plugin_init(void) {
    return cuInit(0);
}

void *plugin_find(void *handle, const char *symbol) {
    void *volatile found = dlsym(handle, symbol); /* volatile: a call in tail position would be our caller's */
    return found;
}
