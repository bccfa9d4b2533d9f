package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import io.aliquot.scheduler.extender.Wire.Template;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.PodGpuRequest;

/**
 * Caches the parsed requests of pods. Most pods come from few templates, and pods of one template share one request
 * object and with it its cached refusal messages. Thread-safe.
 */
final class GpuRequestCache {
    private static final int MAX_ENTRIES = 500;
    /** Longer ones, in characters, are not cached, which bounds the memory: a pod may have a megabyte of resources. */
    private static final int LONGEST_TEMPLATE = 6000;

    private final Cache<Template, PodGpuRequest> known = Caffeine.newBuilder()
            .maximumSize(MAX_ENTRIES)
            .executor(Runnable::run)
            .build();

    /**
     * Parses the request of a pod.
     *
     * @throws io.aliquot.api.format.FormatException if it is malformed, or leaves no space for the annotations of a Binding
     */
    PodGpuRequest of(Wire.Pod pod) {
        Template template = pod.template();
        PodGpuRequest request = known(template);
        AllocationAnnotations.check(
                AllocationAnnotations.bytes(pod.metadata().annotations()),
                ContainerGpuRequest.vgpus(request.containers()));
        return request;
    }

    private PodGpuRequest known(Template template) {
        PodGpuRequest cached = known.getIfPresent(template);
        if (cached != null) {
            return cached;
        }
        PodGpuRequest request = template.request();
        PodGpuRequest other =
                template.toString().length() <= LONGEST_TEMPLATE ? known.asMap().putIfAbsent(template, request) : null;
        return other == null ? request : other;
    }
}
