/* A library that is not the driver but exports a function of the same name. */
int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void) {
    return 0;
}
