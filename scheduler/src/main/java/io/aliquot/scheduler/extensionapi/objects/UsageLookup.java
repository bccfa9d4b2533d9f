package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.usage.UsageHistory;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.ledger.PodId;
import java.util.Collection;
import java.util.Optional;

/** What the node agents measure. Figures are at most a minute old; what is not known is empty. Thread-safe. */
public interface UsageLookup {
    /** Waits for up to a second for the figures of these nodes if they are older than that. */
    void refresh(Collection<String> nodes);

    /** What a container uses of a GPU. */
    Optional<ShareUsage> ofContainer(String node, PodId pod, String container, String gpu);

    /** What all processes use of a GPU. */
    Optional<GpuUsage> ofGpu(String node, String gpu);

    /**
     * The last minutes of a GPU and of the containers on it; empty if the agent knows no such GPU.
     *
     * @throws StatusException with code 503 if the agent does not answer
     */
    Optional<UsageHistory> history(String node, String gpu);
}
