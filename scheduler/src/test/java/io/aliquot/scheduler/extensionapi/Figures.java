package io.aliquot.scheduler.extensionapi;

import io.aliquot.api.usage.UsageHistory;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.UsageLookup;
import io.aliquot.scheduler.ledger.PodId;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** Figures that a test sets. */
final class Figures implements UsageLookup {
    /** By pod uid, container and GPU, joined by slashes. */
    final Map<String, ShareUsage> containers = new ConcurrentHashMap<>();

    final Map<String, GpuUsage> gpus = new ConcurrentHashMap<>();
    final Map<String, UsageHistory> histories = new ConcurrentHashMap<>();

    @Override
    public void refresh(Collection<String> nodes) {}

    @Override
    public Optional<ShareUsage> ofContainer(String node, PodId pod, String container, String gpu) {
        return Optional.ofNullable(containers.get(pod.uid() + "/" + container + "/" + gpu));
    }

    @Override
    public Optional<GpuUsage> ofGpu(String node, String gpu) {
        return Optional.ofNullable(gpus.get(gpu));
    }

    @Override
    public Optional<UsageHistory> history(String node, String gpu) {
        return Optional.ofNullable(histories.get(gpu));
    }
}
