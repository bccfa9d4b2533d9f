/* The fixture of the fuzzers of shared files: a limit file's content, and a simulated clock, which makes bounded waits
   free. */
#ifndef ALIQUOT_TEST_FUZZ_H
#define ALIQUOT_TEST_FUZZ_H

#include "limits/account.h"
#include "os/agent_file.h"
#include "os/os.h"
#include "os/shared.h"

#include <stdlib.h>

#define LIMIT (100 * ALIQUOT_MIB)

static const struct aliquot_limits limits = {
    .count = 1, .vgpu = {{.uuid = "\x8f\x6e\x8f\x0c\x01\x01\x4a\x5b\x9c\x3d\x01\x01\x01\x01\x01", .memory = LIMIT}}};

static int64_t now = 1000000000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int64_t __wrap_aliquot_os_clock(void);
void __wrap_aliquot_os_sleep(int64_t nanoseconds);

int64_t __wrap_aliquot_os_clock(void) {
    return now;
}

void __wrap_aliquot_os_sleep(int64_t nanoseconds) {
    now += nanoseconds;
}

static void expect(bool condition) {
    if (!condition) {
        abort();
    }
}

/* Resets the state as in a forked child. */
static void reset_as_in_child(void) {
    aliquot_shared_before_fork();
    aliquot_shared_after_fork_in_child();
    aliquot_agent_reset();
    aliquot_account_reset();
}

#endif
