/* Calls of NVML as programs make them. */
#ifndef ALIQUOT_TEST_NVML_CALL_H
#define ALIQUOT_TEST_NVML_CALL_H

#include "sandbox.h"

/* The function that a program finds. */
static void *nvml_function(const char *symbol) {
    static void *nvml;
    if (nvml == NULL) {
        nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
        CHECK(nvml != NULL, "%s", dlerror());
    }
    void *function = dlsym(nvml, symbol);
    CHECK(function != NULL, "%s", symbol);
    return function;
}

#define NVML(symbol, ...) ((nvmlReturn_t(*)(__VA_ARGS__))nvml_function(#symbol))

/* Initializes NVML. */
static nvmlDevice_t nvml_device(unsigned index) {
    nvmlDevice_t device = NULL;
    CHECK_EQUAL(NVML(nvmlInit_v2, void)(), NVML_SUCCESS);
    CHECK_EQUAL(NVML(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(index, &device), NVML_SUCCESS);
    return device;
}

static nvmlMemory_t nvml_memory(nvmlDevice_t device) {
    nvmlMemory_t memory = {1, 1, 1};
    CHECK_EQUAL(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(device, &memory), NVML_SUCCESS);
    return memory;
}

#endif
