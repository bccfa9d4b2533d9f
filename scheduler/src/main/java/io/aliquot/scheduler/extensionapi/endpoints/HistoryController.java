package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.Stored;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuResource;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.UsageLookup;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** Serves the last minutes of a GPU, or of a pod on its GPUs, as the nodes' agents remember them. */
@RestController
public final class HistoryController {
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
        JsonNode history = usage.history(
                        gpu.node().name(), gpu.object().status().uuid())
                .orElseThrow(() -> StatusException.notFound("gpus", name));
        JsonResponse.write(response, history);
    }

    /** One history for each GPU of the pod, by UUID, without the other pods on it. */
    @GetMapping(ObjectsController.SHARE + "/history")
    void share(
            HttpServletResponse response,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name)
            throws IOException {
        GpuPod pod = shares.get(namespace, name);
        var histories = new LinkedHashMap<String, JsonNode>();
        for (String gpu : pod.gpus()) {
            usage.history(pod.node(), gpu).ifPresent(history -> histories.put(gpu, ofPod(history, pod)));
        }
        JsonResponse.write(response, histories);
    }

    private static JsonNode ofPod(JsonNode history, GpuPod pod) {
        ObjectNode shown = JsonMapper.shared().createObjectNode();
        for (String field : List.of("end", "stepSeconds", "health")) {
            if (history.has(field)) {
                shown.set(field, history.get(field));
            }
        }
        ArrayNode containers = shown.putArray("containers");
        history.path("containers").forEach(container -> {
            if (isOf(container, pod)) {
                containers.add(container);
            }
        });
        return shown;
    }

    private static boolean isOf(JsonNode container, GpuPod pod) {
        String uid = container.path("uid").asString("");
        return uid.equals(pod.id().uid())
                || (uid.isEmpty()
                        && container
                                .path("namespace")
                                .asString("")
                                .equals(pod.id().namespace())
                        && container.path("pod").asString("").equals(pod.id().name()));
    }
}
