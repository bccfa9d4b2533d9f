package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.apiserver.AllocationAnnotations;
import io.aliquot.scheduler.extender.Wire.Template;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.PodGpuRequest;

/**
 * Caches the parsed requests of pods. Most pods come from few templates, and pods of one template share one request
 * object and with it its cached refusal messages. Thread-safe.
 */
final class GpuRequestCache {
    private static final int MAX_ENTRIES = 500;
    /** Pods with more containers are not cached, which bounds the memory. */
    private static final int MAX_CONTAINERS = 16;

    private final Cache<Template, PodGpuRequest> known = Caffeine.newBuilder()
            .maximumSize(MAX_ENTRIES)
            .executor(Runnable::run)
            .build();

    /**
     * Parses the request of a pod.
     *
     * @throws io.aliquot.api.names.FormatException if it is malformed, or leaves no space for the annotations of a Binding
     */
    PodGpuRequest of(Wire.Pod pod) {
        Template template = pod.template();
        boolean small = template.initContainers().size() + template.containers().size() <= MAX_CONTAINERS;
        PodGpuRequest request = small ? known.get(template, Template::request) : template.request();
        AllocationAnnotations.check(
                AllocationAnnotations.bytes(pod.metadata().annotations()),
                ContainerGpuRequest.vgpus(request.containers()));
        return request;
    }
}
