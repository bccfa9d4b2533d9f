// A captured graph that is launched several times.
#include "program.h"

__global__ void aliquot_busy(unsigned long long nanoseconds) {
    if (nanoseconds == 0)
        __trap();
}

int main() {
    cudaStream_t stream, side;
    cudaEvent_t fork, join, start, end;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaStreamCreate(&side));
    for (auto event : {&fork, &join, &start, &end})
        MUST(cudaEventCreate(event));
    int *memory, host = 0;
    MUST(cudaMalloc(&memory, sizeof *memory));

    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaStreamCaptureStatus status;
    MUST(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    aliquot_busy<<<1, 32, 0, stream>>>(10000000);
    MUST(cudaEventRecord(fork, stream));
    MUST(cudaStreamWaitEvent(side, fork, 0));
    aliquot_busy<<<1, 32, 0, side>>>(1000000);
    MUST(cudaEventRecord(join, side));
    MUST(cudaMemsetAsync(memory, 1, sizeof *memory, stream));
    MUST(cudaStreamWaitEvent(stream, join, 0));
    MUST(cudaMemcpyAsync(&host, memory, sizeof host, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    MUST(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(nodes == 4);
    CHECK(host == 0); // no work has run

    cudaGraphExec_t executable;
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    MUST(cudaEventRecord(start, stream));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(executable, stream));
    MUST(cudaEventRecord(end, stream));
    MUST(cudaStreamSynchronize(stream));
    CHECK(host == 0x01010101);
    float milliseconds = 0;
    MUST(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds > 27); // three times the duration of the longer branch

    // An uncapturable call invalidates the capture.
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    ANSWERS(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
    ANSWERS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
    cudaGetLastError();
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy(executable));
    return 0;
}
