/* A library linked to the driver. Loaded with RTLD_LOCAL, it has the driver in its own scope. */
#include <dlfcn.h>

int cuInit(unsigned flags);
int plugin_init(void);
void *plugin_find(void *handle, const char *symbol);

int plugin_init(void) {
    return cuInit(0);
}

void *plugin_find(void *handle, const char *symbol) {
    void *volatile found =
        dlsym(handle, symbol); /* volatile prevents a tail call, in which dlsym would see our caller's address */
    return found;
}
