package io.aliquot.scheduler.extender;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.scheduler.extender.Wire.Template;
import io.aliquot.scheduler.placement.PodGpuRequest;

/**
 * What pods ask for. Most come from few templates; what those of one ask for is made out once, and so is in what words
 * nodes refuse it. Thread-safe.
 */
final class GpuRequestCache {
    private static final int MOST = 500;
    /** Of a pod with more nothing is remembered, so that all that is stays small. */
    private static final int MOST_CONTAINERS = 16;

    private final Cache<Template, PodGpuRequest> known =
            Caffeine.newBuilder().maximumSize(MOST).executor(Runnable::run).build();

    /**
     * What this pod asks for.
     *
     * @throws io.aliquot.api.FormatException where that makes no sense
     */
    PodGpuRequest of(Wire.Pod pod) {
        Template template = pod.template();
        boolean small = template.initContainers().size() + template.containers().size() <= MOST_CONTAINERS;
        return small ? known.get(template, Template::ask) : template.ask();
    }
}
