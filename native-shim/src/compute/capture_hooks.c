/* Hooks of the functions that begin and end stream capture. What they count, the hooks of memory read, too (capture.h).
 */
#include "compute/measure.h"
#include "driver/capture.h"

/* Counted before the driver begins to capture: from then on, a thread asks the driver before it records an event on the
   stream. Batches that are open on it end. */
static void before_capture_begin(CUstream stream) {
    atomic_fetch_add(&aliquot_open_captures, 1);
    aliquot_batch_end_on_stream(stream);
}

static CUresult after_capture_begin(CUresult result) {
    if (result != CUDA_SUCCESS) {
        atomic_fetch_sub(&aliquot_open_captures, 1);
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

#define BEGIN(symbol, parameters, stream_asked, arguments)                                                             \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        before_capture_begin(stream_asked);                                                                            \
        return after_capture_begin(aliquot_real.symbol arguments);                                                     \
    }
#define BEGINS(symbol, parameters, arguments)                                                                          \
    BEGIN(symbol, parameters, stream, arguments)                                                                       \
    BEGIN(symbol##_ptsz, parameters, aliquot_per_thread(stream), arguments)

#define END(symbol, parameters, stream_asked, arguments)                                                               \
    CUresult symbol parameters {                                                                                       \
        ALIQUOT_REQUIRE(symbol)                                                                                        \
        return count_capture_end(stream_asked, aliquot_real.symbol arguments);                                         \
    }
#define ENDS(symbol, parameters, arguments)                                                                            \
    END(symbol, parameters, stream, arguments)                                                                         \
    END(symbol##_ptsz, parameters, aliquot_per_thread(stream), arguments)

BEGINS(cuStreamBeginCapture, (CUstream stream), (stream))
BEGINS(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGINS(cuStreamBeginCaptureToGraph,
       (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
        CUstreamCaptureMode mode),
       (stream, graph, after, edges, count, mode))
BEGINS(cuStreamBeginRecaptureToGraph,
       (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data),
       (stream, mode, graph, callback, data))
BEGINS(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *parameters), (stream, parameters))
ENDS(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
ENDS(cuStreamEndCaptureToCig, (CUstream stream), (stream))
