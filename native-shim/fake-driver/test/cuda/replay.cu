// The use of graphs by a framework: warm up, capture with private memory and a library's forks, replay, and recovery
// from a failed capture.
#include "program.h"

#include <thread>

__global__ void aliquot_busy(unsigned long long nanoseconds) {
    if (nanoseconds == 0)
        __trap();
}

__global__ void scale(float *to, const float *from, float factor, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = factor * from[i];
}

static cudaStream_t main_stream, side_stream;
static cudaEvent_t forked, joined;

// A step with a fork in the middle; its temporary memory belongs to the graph.
static cudaGraph_t capture(unsigned char value, char *memory, char *host, unsigned long long nanoseconds) {
    char *temporary;
    cudaGraph_t graph = nullptr;
    MUST(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMallocAsync(&temporary, 5 * MIB, main_stream));
    MUST(cudaMemsetAsync(temporary, value, 5 * MIB, main_stream));
    MUST(cudaEventRecord(forked, main_stream));
    MUST(cudaStreamWaitEvent(side_stream, forked, 0));
    aliquot_busy<<<1, 32, 0, side_stream>>>(nanoseconds);
    scale<<<8, 128, 0, main_stream>>>((float *)memory, (float *)temporary, 2.0f, 4);
    aliquot_busy<<<1, 32, 0, main_stream>>>(nanoseconds);
    MUST(cudaEventRecord(joined, side_stream));
    MUST(cudaStreamWaitEvent(main_stream, joined, 0));
    MUST(cudaMemcpyAsync(memory, temporary, 64, cudaMemcpyDeviceToDevice, main_stream));
    MUST(cudaMemcpyAsync(host, memory, 64, cudaMemcpyDeviceToHost, main_stream));
    MUST(cudaFreeAsync(temporary, main_stream));
    MUST(cudaStreamEndCapture(main_stream, &graph));
    return graph;
}

static float replay(cudaGraphExec_t executable, int times) {
    cudaEvent_t start, end;
    MUST(cudaEventCreate(&start));
    MUST(cudaEventCreate(&end));
    // Blocks the stream until all work is submitted, also on a busy machine.
    aliquot_busy<<<108, 32, 0, main_stream>>>(500000000);
    MUST(cudaEventRecord(start, main_stream));
    for (int i = 0; i < times; i++)
        MUST(cudaGraphLaunch(executable, main_stream));
    MUST(cudaEventRecord(end, main_stream));
    MUST(cudaStreamSynchronize(main_stream));
    float milliseconds = 0;
    MUST(cudaEventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

static size_t reserved() {
    size_t bytes = 0;
    MUST(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &bytes));
    return bytes;
}

int main() {
    char *memory, *host;
    MUST(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&side_stream, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    MUST(cudaMalloc(&memory, MIB));
    MUST(cudaMallocHost(&host, 64));
    aliquot_busy<<<1, 32, 0, main_stream>>>(1000);
    scale<<<8, 128, 0, main_stream>>>((float *)memory, (float *)memory, 2.0f, 4);
    MUST(cudaStreamSynchronize(main_stream));

    host[0] = 0;
    cudaGraph_t graph = capture(7, memory, host, 2000000);
    cudaGraphExec_t executable;
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(host[0] == 0);
    float milliseconds = replay(executable, 5);
    CHECK(host[0] == 7 && host[63] == 7);
    CHECK(reserved() >= 5 * MIB);
    // Two branches of 2 ms, one after the other, plus jitter.
    CHECK(milliseconds > 5 * 3.8f && milliseconds < 5 * 6.0f);
    MUST(cudaGraphExecDestroy(executable));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaDeviceGraphMemTrim(0));
    CHECK(reserved() == 0);

    // An allocation by another thread invalidates a global capture, unless that thread's mode is relaxed.
    for (bool relaxed : {false, true}) {
        MUST(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
        scale<<<8, 128, 0, main_stream>>>((float *)memory, (float *)memory, 2.0f, 4);
        std::thread other([relaxed] {
            void *allocated;
            auto mode = relaxed ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal;
            MUST(cudaThreadExchangeStreamCaptureMode(&mode));
            ANSWERS(relaxed ? cudaSuccess : cudaErrorStreamCaptureUnsupported, cudaMalloc(&allocated, 64));
        });
        other.join();
        ANSWERS(relaxed ? cudaSuccess : cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(main_stream, &graph));
        (void)cudaGetLastError();
    }
    return 0;
}
