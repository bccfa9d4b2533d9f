package io.aliquot.scheduler.extensionapi;

import io.aliquot.scheduler.extensionapi.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.ApiTypes.ShareUsage;
import io.aliquot.scheduler.ledger.PodId;
import java.util.Optional;
import org.springframework.stereotype.Component;
import tools.jackson.databind.JsonNode;

/** Of a scheduler that asks no agent. */
@Component
final class NoUsage implements UsageLookup {
    @Override
    public Optional<ShareUsage> ofContainer(String node, PodId pod, String container, String gpu) {
        return Optional.empty();
    }

    @Override
    public Optional<GpuUsage> ofGpu(String node, String gpu) {
        return Optional.empty();
    }

    @Override
    public Optional<JsonNode> history(String node, String gpu) {
        throw Refusals.notImplemented("this scheduler does not ask the node agents for history");
    }
}
