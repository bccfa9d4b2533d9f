package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.machinery.MetaTypes.ListMetadata;
import io.aliquot.scheduler.extensionapi.machinery.Printer;
import io.aliquot.scheduler.extensionapi.machinery.Query;
import io.aliquot.scheduler.extensionapi.machinery.Query.Continuation;
import io.aliquot.scheduler.extensionapi.machinery.Resource;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.machinery.Watches;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.PendingReasons;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.springframework.http.HttpHeaders;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** Serves objects and lists of them. */
@RestController
public final class ObjectsController {
    static final String SHARE = Discovery.VERSION_PATH + "/namespaces/{namespace}/gpushares/{name}";

    private final Map<String, Resource<?>> resources;
    private final GpuShares shares;
    private final PendingReasons reasons;
    private final Watches watches;

    ObjectsController(List<Resource<?>> resources, GpuShares shares, PendingReasons reasons, Watches watches) {
        this.resources = resources.stream().collect(Collectors.toMap(Resource::plural, Function.identity()));
        this.shares = shares;
        this.reasons = reasons;
        this.watches = watches;
    }

    @GetMapping({
        Discovery.VERSION_PATH + "/{plural:gpunodes|gpus|gpushares|gpuquotas}",
        Discovery.VERSION_PATH + "/namespaces/{namespace}/{plural:gpushares|gpuquotas}"
    })
    void list(HttpServletRequest request, HttpServletResponse response, @PathVariable Map<String, String> path)
            throws IOException {
        listOrWatch(request, response, resource(path), prefix(path));
    }

    @GetMapping({
        Discovery.VERSION_PATH + "/{plural:gpunodes|gpus}/{name}",
        Discovery.VERSION_PATH + "/namespaces/{namespace}/{plural:gpuquotas}/{name}"
    })
    void get(HttpServletRequest request, HttpServletResponse response, @PathVariable Map<String, String> path)
            throws IOException {
        get(request, response, resource(path), prefix(path), path.getOrDefault("name", ""));
    }

    private Resource<?> resource(Map<String, String> path) {
        return Objects.requireNonNull(resources.get(path.get("plural")));
    }

    /** How the keys of the objects begin: with the namespace, if the path has one. */
    private static String prefix(Map<String, String> path) {
        String namespace = path.get("namespace");
        return namespace == null ? "" : namespace + "/";
    }

    @GetMapping(SHARE)
    void share(
            HttpServletRequest request,
            HttpServletResponse response,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name)
            throws IOException {
        Printer printer = printer(request, shares, Query.of(request));
        GpuPod pod = shares.get(namespace, name);
        shares.refreshFigures(List.of(pod));
        JsonResponse.write(
                response, printer.one(pod.isPending() ? shares.print(pod, reasons.summary(pod)) : shares.print(pod)));
    }

    private static <T> void get(
            HttpServletRequest request, HttpServletResponse response, Resource<T> resource, String prefix, String name)
            throws IOException {
        Printer printer = printer(request, resource, Query.of(request));
        resource.refresh();
        T object = resource.store()
                .find(prefix + name)
                .orElseThrow(() -> StatusException.notFound(resource.plural(), name));
        JsonResponse.write(response, printer.one(resource.print(object)));
    }

    private <T> void listOrWatch(
            HttpServletRequest request, HttpServletResponse response, Resource<T> resource, String prefix)
            throws IOException {
        Query query = Query.of(request);
        if (query.flag("watch")) {
            String user = request.getAttribute(RequestUser.ATTRIBUTE) instanceof RequestUser known ? known.name() : "";
            watches.open(request, response, resource, prefix, query, printer(request, resource, query), user);
        } else {
            JsonResponse.stream(response, list(resource, prefix, query, printer(request, resource, query)));
        }
    }

    private static Printer printer(HttpServletRequest request, Resource<?> resource, Query query) {
        return Printer.of(resource, request.getHeader(HttpHeaders.ACCEPT), query);
    }

    private static <T> Object list(Resource<T> resource, String prefix, Query query, Printer printer) {
        Predicate<T> selected = query.selected(resource);
        int limit = query.limit();
        resource.refresh();
        WatchCache<T> store = resource.store();
        var start = query.continuation().orElseGet(() -> new Continuation(version(query, store), ""));
        if (query.continuation().isPresent() && !store.covers(start.version())) {
            throw StatusException.expired("The provided continue parameter is too old; list again without it");
        }
        NavigableMap<String, T> rest = rest(store, prefix, start);
        var found = new ArrayList<Map.Entry<String, T>>();
        for (Map.Entry<String, T> entry : rest.entrySet()) {
            if (selected.test(entry.getValue())) {
                found.add(Map.entry(entry.getKey(), entry.getValue()));
                if (limit > 0 && found.size() > limit) {
                    break;
                }
            }
        }
        boolean more = limit > 0 && found.size() > limit;
        List<Map.Entry<String, T>> page = more ? found.subList(0, limit) : found;
        resource.refreshFigures(page.stream().map(Map.Entry::getValue).toList());
        return printer.list(
                new ListMetadata(
                        Long.toString(start.version()),
                        more
                                ? new Continuation(
                                                start.version(),
                                                page.get(limit - 1).getKey())
                                        .print()
                                : null,
                        more && !query.selects() ? Long.valueOf(rest.size() - limit) : null),
                page,
                entry -> resource.print(entry.getValue()));
    }

    private static <T> NavigableMap<String, T> rest(WatchCache<T> store, String prefix, Continuation start) {
        try {
            return store.after(prefix, start.after());
        } catch (IllegalArgumentException e) { // an object of another namespace
            throw Continuation.invalid();
        }
    }

    /** The version of a new list, if the request allows it. */
    private static <T> long version(Query query, WatchCache<T> store) {
        OptionalLong wanted = query.version();
        long newest = store.version();
        String match = query.text("resourceVersionMatch");
        switch (match) {
            case "", "NotOlderThan" -> {
                if (wanted.isPresent() && wanted.getAsLong() > newest) {
                    throw StatusException.tooNew(wanted.getAsLong(), newest);
                }
            }
            case "Exact" -> {
                if (wanted.isEmpty() || wanted.getAsLong() == 0) {
                    throw StatusException.badRequest(
                            "resourceVersionMatch: Exact needs a resourceVersion other than 0");
                }
                if (wanted.getAsLong() != newest) {
                    throw StatusException.expired("The resourceVersion " + wanted.getAsLong()
                            + " is not the newest one; write resourceVersionMatch=NotOlderThan");
                }
            }
            default -> throw StatusException.badRequest("resourceVersionMatch: write NotOlderThan or Exact");
        }
        return newest;
    }
}
