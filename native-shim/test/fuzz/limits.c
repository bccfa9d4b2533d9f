/* Fuzzes the parser of limit files: it refuses an input with a one-line reason, or returns values within the bounds of
   limits.h. */
#include "limits/limits.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[ALIQUOT_LIMITS_ERROR] = "";
    struct aliquot_limits limits;
    if (!aliquot_limits_parse((const char *)data, size, &limits, error)) {
        expect(error[0] != 0 && strnlen(error, sizeof error) < sizeof error && strchr(error, '\n') == NULL);
        return 0;
    }
    expect(limits.count >= 1 && limits.count <= ALIQUOT_LIMITS_VGPUS_MAX);
    for (size_t i = 0; i < limits.count; i++) {
        const struct aliquot_vgpu *vgpu = &limits.vgpu[i];
        expect(vgpu->memory >= ALIQUOT_MIB && vgpu->memory <= UINT64_C(1) << 44 && vgpu->cores <= 100);
        expect(vgpu->context_bytes <= UINT64_C(1) << 44);
        expect(vgpu->policy <= ALIQUOT_POLICY_NONE);
    }
    return 0;
}
