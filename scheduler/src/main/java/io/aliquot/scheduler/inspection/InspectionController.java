package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.inspection.AccessReviews.Access;
import io.aliquot.scheduler.inspection.ApiMapper.NodeHolding;
import io.aliquot.scheduler.inspection.ApiTypes.Page;
import io.aliquot.scheduler.ledger.NodeView;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.util.List;
import org.springframework.core.io.ClassPathResource;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Serves nodes, GPUs, pods, shares and reservations to callers that may read nodes or pods, and its own description. */
@RestController
final class InspectionController {
    private final ApiMapper mapper;
    private final AccessControl access;

    InspectionController(ApiMapper mapper, AccessControl access) {
        this.mapper = mapper;
        this.access = access;
    }

    @GetMapping("/api/v1/nodes")
    Page<ApiTypes.Node> nodes(HttpServletRequest http) {
        var request = ApiRequest.of(http, ApiRequest.LIMIT, ApiRequest.AFTER);
        access.require(request.caller(), new Access("list", "nodes", "", ""));
        List<NodeView> views = mapper.views("").toList();
        return request.page(views, NodeView::name, ApiMapper::node);
    }

    @GetMapping("/api/v1/nodes/{name}")
    ApiTypes.Node node(HttpServletRequest http) {
        var request = ApiRequest.of(http);
        String name = request.name("name");
        access.require(request.caller(), new Access("get", "nodes", "", name));
        return mapper.views(name)
                .map(ApiMapper::node)
                .findFirst()
                .orElseThrow(() -> ApiException.notFound("there is no node " + name + " with shared GPUs"));
    }

    @GetMapping("/api/v1/gpus")
    Page<ApiTypes.Gpu> gpus(HttpServletRequest http) {
        var request = ApiRequest.of(http, "node", ApiRequest.LIMIT, ApiRequest.AFTER);
        String node = request.name("node");
        access.require(request.caller(), new Access("list", "nodes", "", ""));
        List<ApiTypes.Gpu> gpus = mapper.views(node)
                .flatMap(view -> ApiMapper.gpus(view).stream())
                .toList();
        return request.page(gpus, gpu -> String.format("%s/%06d/%s", gpu.node(), gpu.index(), gpu.uuid()), gpu -> gpu);
    }

    @GetMapping("/api/v1/pods")
    Page<ApiTypes.Pod> pods(HttpServletRequest http) {
        var request = ApiRequest.of(http, "namespace", "node", ApiRequest.LIMIT, ApiRequest.AFTER);
        return request.page(holdings(request), NodeHolding::key, ApiMapper::pod);
    }

    @GetMapping("/api/v1/pods/{namespace}/{name}")
    ApiTypes.Pod pod(HttpServletRequest http) {
        var request = ApiRequest.of(http);
        String namespace = request.name("namespace");
        String name = request.name("name");
        access.require(request.caller(), new Access("get", "pods", namespace, name));
        return mapper.pod(namespace, name)
                .map(ApiMapper::pod)
                .orElseThrow(() -> ApiException.notFound("no pod " + name + " in namespace " + namespace
                        + " holds a share of a GPU; if it is Pending, read .../" + name + "/explain"));
    }

    @GetMapping("/api/v1/shares")
    Page<ApiTypes.ShareView> shares(HttpServletRequest http) {
        var request = ApiRequest.of(http, "namespace", "node", "gpu", ApiRequest.LIMIT, ApiRequest.AFTER);
        String gpu = request.gpu("gpu");
        List<ApiTypes.ShareView> shares = holdings(request).stream()
                .flatMap(held -> ApiMapper.shares(held).stream())
                .filter(share -> gpu.isEmpty() || share.gpu().equals(gpu))
                .toList();
        return request.page(
                shares,
                share -> String.join("/", share.namespace(), share.pod(), share.uid(), share.container(), share.gpu()),
                share -> share);
    }

    @GetMapping("/api/v1/reservations")
    Page<ApiTypes.Reservation> reservations(HttpServletRequest http) {
        var request = ApiRequest.of(http, ApiRequest.LIMIT, ApiRequest.AFTER);
        access.require(request.caller(), new Access("list", "pods", "", ""));
        return request.page(mapper.reservations(), NodeHolding::key, ApiMapper::reservation);
    }

    /** The API's description: OpenAPI 3.1, written by hand. OpenApiTest compares it with the code. */
    @GetMapping(path = "/api/v1/openapi.json", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] description(HttpServletRequest http) throws IOException {
        ApiRequest.of(http);
        return new ClassPathResource("openapi.json").getContentAsByteArray();
    }

    private List<NodeHolding> holdings(ApiRequest request) {
        String namespace = request.name("namespace");
        access.require(request.caller(), new Access("list", "pods", namespace, ""));
        return mapper.pods(namespace, request.name("node"));
    }
}
