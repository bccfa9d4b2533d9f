/* Creates the primary context and waits for a line of input; then loads a module, runs a kernel and waits for the end
   of input. During both waits the script reads the GPU's used memory from NVML. */
#include "busy.h"

int main(void) {
    size_t free_bytes, total;
    driver_start();
    driver_memory(&free_bytes, &total);
    printf("{\"free\": %zu, \"total\": %zu}\n", free_bytes, total);
    fflush(stdout);
    if (getchar() == EOF) {
        return EXIT_SUCCESS;
    }
    busy_launch(busy_function("nothing"), 1, 32, NULL, NULL);
    MUST(CALL(cuCtxSynchronize, void)());
    printf("{}\n");
    driver_wait_for_script();
    return EXIT_SUCCESS;
}
