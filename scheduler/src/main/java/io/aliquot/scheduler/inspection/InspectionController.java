package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.inspection.Api.Page;
import io.aliquot.scheduler.inspection.Reviews.Caller;
import io.aliquot.scheduler.inspection.Reviews.Deed;
import io.aliquot.scheduler.inspection.Stock.Held;
import io.aliquot.scheduler.ledger.NodeView;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RestController;

/** Nodes, GPUs, pods, shares and reservations, to those who may see nodes or pods. */
@RestController
final class InspectionController {
    private final Stock stock;
    private final Access access;

    InspectionController(Stock stock, Access access) {
        this.stock = stock;
        this.access = access;
    }

    @GetMapping("/api/v1/nodes")
    Page<Api.Node> nodes(HttpServletRequest request, @RequestAttribute(TokenFilter.CALLER) Caller caller) {
        Query query = Query.of(request, Query.LIMIT, Query.AFTER);
        access.require(caller, new Deed("list", "nodes", "", ""));
        List<NodeView> views = stock.views("").toList();
        return query.page(views, NodeView::name, Stock::node);
    }

    @GetMapping("/api/v1/nodes/{name}")
    Api.Node node(
            HttpServletRequest request,
            @RequestAttribute(TokenFilter.CALLER) Caller caller,
            @PathVariable("name") String name) {
        Query.of(request);
        Query.checkName("name", name);
        access.require(caller, new Deed("get", "nodes", "", name));
        return stock.view(name)
                .map(Stock::node)
                .orElseThrow(() -> Refusal.notFound("there is no node " + name + " that has, or had, GPUs to share"));
    }

    @GetMapping("/api/v1/gpus")
    Page<Api.Gpu> gpus(HttpServletRequest request, @RequestAttribute(TokenFilter.CALLER) Caller caller) {
        Query query = Query.of(request, "node", Query.LIMIT, Query.AFTER);
        String node = query.name("node");
        access.require(caller, new Deed("list", "nodes", "", ""));
        List<Api.Gpu> gpus =
                stock.views(node).flatMap(view -> Stock.gpus(view).stream()).toList();
        return query.page(gpus, gpu -> String.format("%s/%06d/%s", gpu.node(), gpu.index(), gpu.uuid()), gpu -> gpu);
    }

    @GetMapping("/api/v1/pods")
    Page<Api.Pod> pods(HttpServletRequest request, @RequestAttribute(TokenFilter.CALLER) Caller caller) {
        Query query = Query.of(request, "namespace", "node", Query.LIMIT, Query.AFTER);
        return query.page(held(query, caller), Held::key, Stock::pod);
    }

    @GetMapping("/api/v1/pods/{namespace}/{name}")
    Api.Pod pod(
            HttpServletRequest request,
            @RequestAttribute(TokenFilter.CALLER) Caller caller,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name) {
        Query.of(request);
        Query.checkName("namespace", namespace);
        Query.checkName("name", name);
        access.require(caller, new Deed("get", "pods", namespace, name));
        return stock.pod(namespace, name)
                .map(Stock::pod)
                .orElseThrow(() -> Refusal.notFound("no pod " + name + " in namespace " + namespace
                        + " holds a share of a GPU; if it waits for one, ask for .../" + name + "/explain"));
    }

    @GetMapping("/api/v1/shares")
    Page<Api.Share> shares(HttpServletRequest request, @RequestAttribute(TokenFilter.CALLER) Caller caller) {
        Query query = Query.of(request, "namespace", "node", "gpu", Query.LIMIT, Query.AFTER);
        String gpu = query.gpu("gpu");
        List<Api.Share> shares = held(query, caller).stream()
                .flatMap(held -> Stock.shares(held).stream())
                .filter(share -> gpu.isEmpty() || share.gpu().equals(gpu))
                .toList();
        return query.page(
                shares,
                share -> String.join("/", share.namespace(), share.pod(), share.uid(), share.container(), share.gpu()),
                share -> share);
    }

    @GetMapping("/api/v1/reservations")
    Page<Api.Reservation> reservations(
            HttpServletRequest request, @RequestAttribute(TokenFilter.CALLER) Caller caller) {
        Query query = Query.of(request, Query.LIMIT, Query.AFTER);
        access.require(caller, new Deed("list", "pods", "", ""));
        return query.page(stock.reservations(), Held::key, Stock::reservation);
    }

    private List<Held> held(Query query, Caller caller) {
        String namespace = query.name("namespace");
        access.require(caller, new Deed("list", "pods", namespace, ""));
        return stock.pods(namespace, query.name("node"));
    }
}
