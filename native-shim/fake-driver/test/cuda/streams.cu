// Streams and events: kernels take the requested time, serially or in parallel.
#include "program.h"

__global__ void aliquot_busy(unsigned long long nanoseconds) {
    if (nanoseconds == 0)
        __trap();
}

static const unsigned long long MS = 1000000;

static float between(cudaEvent_t start, cudaEvent_t end) {
    float milliseconds = -1;
    MUST(cudaEventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

int main() {
    cudaStream_t streams[2];
    cudaEvent_t events[3];
    for (auto &stream : streams)
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (auto &event : events)
        MUST(cudaEventCreate(&event));

    double begun = seconds();
    MUST(cudaEventRecord(events[0], streams[0]));
    aliquot_busy<<<1, 32, 0, streams[0]>>>(100 * MS);
    MUST(cudaGetLastError());
    MUST(cudaEventRecord(events[1], streams[0]));
    aliquot_busy<<<1, 32, 0, streams[0]>>>(200 * MS);
    MUST(cudaEventRecord(events[2], streams[0]));
    ANSWERS(cudaErrorNotReady, cudaStreamQuery(streams[0]));
    ANSWERS(cudaErrorNotReady, cudaEventQuery(events[2]));
    ANSWERS(cudaSuccess, cudaStreamQuery(streams[1]));
    MUST(cudaEventSynchronize(events[2]));
    CHECK(seconds() - begun >= 0.27);
    MUST(cudaStreamQuery(streams[0]));
    // A late launch lengthens the first; jitter is a few percent in either direction.
    float first = between(events[0], events[1]), second = between(events[1], events[2]);
    CHECK(first > 90 && second > 180);

    // The second stream waits for an event of the first.
    aliquot_busy<<<1, 32, 0, streams[0]>>>(20 * MS);
    MUST(cudaEventRecord(events[0], streams[0]));
    MUST(cudaStreamWaitEvent(streams[1], events[0], 0));
    MUST(cudaEventRecord(events[1], streams[1]));
    MUST(cudaStreamSynchronize(streams[1]));
    MUST(cudaEventQuery(events[0]));
    CHECK(between(events[0], events[1]) >= 0);

    // A host function runs after earlier and before later work.
    bool called = false;
    aliquot_busy<<<1, 32, 0, streams[0]>>>(5 * MS);
    MUST(cudaLaunchHostFunc(streams[0], [](void *data) { *(bool *)data = true; }, &called));
    MUST(cudaStreamSynchronize(streams[0]));
    CHECK(called);

    // cudaEventElapsedTime fails for an event without timing.
    cudaEvent_t untimed;
    float milliseconds;
    MUST(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    MUST(cudaEventRecord(untimed, streams[0]));
    ANSWERS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, untimed, untimed));
    MUST(cudaDeviceSynchronize());
    for (auto &stream : streams)
        MUST(cudaStreamDestroy(stream));
    return 0;
}
