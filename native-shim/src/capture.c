/* Hooks of the functions that begin and end stream capture, and the calling thread's capture mode. */
#include "capture.h"

atomic_int aliquot_open_captures;

bool aliquot_capture_asks_driver(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return aliquot_real.cuStreamIsCapturing == NULL ||
           aliquot_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult count_capture_begin(CUresult result) {
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&aliquot_open_captures, 1);
    }
    return result;
}

/* A failed call may or may not have ended the capture. If the count is too high, the driver is asked about streams
   needlessly, which does no harm. */
static CUresult count_capture_end(CUstream stream, CUresult result) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool over = result == CUDA_SUCCESS;
    if (!over && atomic_load(&aliquot_open_captures) > 0 && aliquot_real.cuStreamIsCapturing != NULL) {
        over = result != CUDA_ERROR_ILLEGAL_STATE &&
               aliquot_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
               status == CU_STREAM_CAPTURE_STATUS_NONE;
    }
    if (over) {
        atomic_fetch_sub(&aliquot_open_captures, 1);
    }
    return result;
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

#define CAPTURE(symbol, parameters, after)                                                                             \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        return after;                                                                                                  \
    }

#define CAPTURES(symbol, parameters, arguments)                                                                        \
    CAPTURE(symbol, parameters, count_capture_begin(aliquot_real.symbol arguments))                                    \
    CAPTURE(symbol##_ptsz, parameters, count_capture_begin(aliquot_real.symbol##_ptsz arguments))

CAPTURES(cuStreamBeginCapture, (CUstream stream), (stream))
CAPTURES(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CAPTURES(cuStreamBeginCaptureToGraph,
         (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
          CUstreamCaptureMode mode),
         (stream, graph, after, edges, count, mode))
CAPTURE(cuStreamEndCapture, (CUstream stream, CUgraph *graph),
        count_capture_end(stream, aliquot_real.cuStreamEndCapture(stream, graph)))
CAPTURE(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph),
        count_capture_end(stream == NULL ? CU_STREAM_PER_THREAD : stream,
                          aliquot_real.cuStreamEndCapture_ptsz(stream, graph)))
