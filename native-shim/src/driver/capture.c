#include "driver/capture.h"

atomic_int aliquot_open_captures;

bool aliquot_capture_asks_driver(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return aliquot_real.cuStreamIsCapturing == NULL ||
           aliquot_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static int exchange_mode(int mode) {
    CUstreamCaptureMode exchanged = (CUstreamCaptureMode)mode;
    if (aliquot_real.cuThreadExchangeStreamCaptureMode == NULL ||
        aliquot_real.cuThreadExchangeStreamCaptureMode(&exchanged) != CUDA_SUCCESS) {
        return -1;
    }
    return (int)exchanged;
}

int aliquot_capture_relax_mode(void) {
    return exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

void aliquot_capture_restore_mode(int mode) {
    if (mode >= 0) {
        exchange_mode(mode);
    }
}
