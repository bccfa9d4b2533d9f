/* A library that is not the driver and has a function of that name. */
int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void) {
    return 0;
}
