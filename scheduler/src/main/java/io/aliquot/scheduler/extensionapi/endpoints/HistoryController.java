package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageHistory.HealthChange;
import io.aliquot.api.usage.UsageHistory.OfContainer;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.Stored;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuResource;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.UsageLookup;
import io.aliquot.scheduler.ledger.PodId;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** Serves the last minutes of a GPU, or of a pod on its GPUs, as the nodes' agents remember them. */
@RestController
public final class HistoryController {
    /** The history of a pod on a GPU, without the other pods there. */
    private record PodHistory(Instant end, int stepSeconds, List<HealthChange> health, List<OfContainer> containers) {}

    private final GpuShares shares;
    private final GpuResource gpus;
    private final UsageLookup usage;

    HistoryController(GpuShares shares, GpuResource gpus, UsageLookup usage) {
        this.shares = shares;
        this.gpus = gpus;
        this.usage = usage;
    }

    @GetMapping(Discovery.VERSION_PATH + "/gpus/{name}/history")
    void gpu(HttpServletResponse response, @PathVariable("name") String name) throws IOException {
        gpus.refresh();
        Stored<ApiTypes.Gpu> gpu = gpus.store().find(name).orElseThrow(() -> StatusException.notFound("gpus", name));
        UsageHistory history = usage.history(
                        gpu.node().name(), gpu.object().status().uuid())
                .orElseThrow(() -> StatusException.notFound("gpus", name));
        JsonResponse.write(response, history);
    }

    /** One history for each GPU of the pod, by UUID. */
    @GetMapping(ObjectsController.SHARE + "/history")
    void share(
            HttpServletResponse response,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name)
            throws IOException {
        GpuPod pod = shares.get(namespace, name);
        var histories = new LinkedHashMap<String, PodHistory>();
        for (String gpu : pod.gpus()) {
            usage.history(pod.node(), gpu).ifPresent(history -> histories.put(gpu, ofPod(history, pod.id())));
        }
        JsonResponse.write(response, histories);
    }

    private static PodHistory ofPod(UsageHistory history, PodId pod) {
        return new PodHistory(
                history.end(),
                history.stepSeconds(),
                history.health(),
                history.containers().stream()
                        .filter(one -> pod.has(one.container()))
                        .toList());
    }
}
