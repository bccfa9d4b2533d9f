/* Tests of NVML's MIG devices in a process with several threads. */
#include "gpu_mig.h"
#include "nvml_abi.h"
#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { CARD = 1, ROUNDS = 200 };

static atomic_bool ended;

static void *nvml_function(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *found = library == NULL ? NULL : dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

/* Waits for XID errors, as the node agent does, without a pause. */
static void *watch_events(void *card) {
    nvmlReturn_t (*create)(nvmlEventSet_t *) = nvml_function("nvmlEventSetCreate");
    nvmlReturn_t (*listen)(nvmlDevice_t, unsigned long long, nvmlEventSet_t) =
        nvml_function("nvmlDeviceRegisterEvents");
    nvmlReturn_t (*wait)(nvmlEventSet_t, nvmlEventData_t *, unsigned) = nvml_function("nvmlEventSetWait_v2");
    nvmlEventSet_t set;
    nvmlEventData_t event;
    EQUAL(NVML_SUCCESS, create(&set));
    EQUAL(NVML_SUCCESS, listen(card, NVML_EVENT_XID, set));
    while (!atomic_load(&ended)) {
        EQUAL(NVML_ERROR_TIMEOUT, wait(set, &event, 0));
    }
    return NULL;
}

static void instances_come_and_go_while_another_thread_reads_them(void) {
    nvmlReturn_t (*init)(void) = nvml_function("nvmlInit_v2");
    nvmlReturn_t (*by_index)(unsigned, nvmlDevice_t *) = nvml_function("nvmlDeviceGetHandleByIndex_v2");
    nvmlReturn_t (*mig_by_index)(nvmlDevice_t, unsigned, nvmlDevice_t *) =
        nvml_function("nvmlDeviceGetMigDeviceHandleByIndex");
    char error[GPU_ERROR_LENGTH], path[sizeof test_folder + GPU_ERROR_LENGTH], kept[sizeof test_folder + 8];
    struct gpu_identity identity;
    identify(&identity, CARD, 81920, 0);
    snprintf(identity.name, sizeof identity.name, "NVIDIA A100-SXM4-80GB");
    EQUAL(GPU_CREATED, gpu_create(test_folder, &identity, error));
    gpu_file *card = open_gpu(CARD);
    CHECK(gpu_mig_set_mode(test_folder, card, true, error));
    nvmlDevice_t device, mig;
    pthread_t watcher;
    snprintf(kept, sizeof kept, "%s/kept", test_folder);
    EQUAL(NVML_SUCCESS, init());
    EQUAL(NVML_SUCCESS, by_index(CARD, &device));
    CHECK(pthread_create(&watcher, NULL, watch_events, device) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(gpu_mig_create(test_folder, card, "1g.10gb", error)); /* error: its UUID */
        snprintf(path, sizeof path, "%s/%s", test_folder, error);
        EQUAL(NVML_SUCCESS, mig_by_index(device, 0, &mig));
        EQUAL(NVML_ERROR_NOT_FOUND, mig_by_index(device, 1, &mig));
        gpu_file *instance = gpu_open(path, error);
        CHECK(instance != NULL && link(path, kept) == 0 && gpu_mig_destroy(test_folder, instance, false, error));
        gpu_close(instance);
        CHECK(rename(kept, path) == 0); /* as in a container, where the file is a mount */
        EQUAL(NVML_ERROR_NOT_FOUND, mig_by_index(device, 0, &mig));
        CHECK(unlink(path) == 0);
    }
    atomic_store(&ended, true);
    CHECK(pthread_join(watcher, NULL) == 0);
    snprintf(path, sizeof path, "%s/%s", test_folder, test_uuid(CARD));
    CHECK(unlink(path) == 0);
}

int main(int count, char **arguments) {
    static const struct test tests[] = {
        TEST(instances_come_and_go_while_another_thread_reads_them),
    };
    return run_tests(tests, sizeof tests / sizeof tests[0], count, arguments, 1, 100);
}
