package io.aliquot.scheduler.inspection;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.inspection.AccessReviews.Deed;
import io.aliquot.scheduler.inspection.ApiMapper.Held;
import io.aliquot.scheduler.ledger.AllocationChange;
import io.aliquot.scheduler.recovery.Resizer;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.PatchMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.JsonNode;

/** Shares of a running pod made larger or smaller. */
@RestController
final class ResizeController {
    private final ApiMapper stock;
    private final AccessControl access;
    private final Resizer resizer;

    ResizeController(ApiMapper stock, AccessControl access, Resizer resizer) {
        this.stock = stock;
        this.access = access;
        this.resizer = resizer;
    }

    @PatchMapping(
            path = "/api/v1/pods/{namespace}/{name}/shares",
            consumes = MediaType.APPLICATION_JSON_VALUE,
            produces = MediaType.APPLICATION_JSON_VALUE)
    ApiTypes.Pod resize(
            HttpServletRequest request,
            @RequestAttribute(TokenFilter.CALLER) Caller caller,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name,
            @RequestBody JsonNode body) {
        QueryParameters.of(request);
        QueryParameters.checkName("namespace", namespace);
        QueryParameters.checkName("name", name);
        List<AllocationChange> changes = SharesPatch.parse(body);
        access.require(caller, new Deed("patch", "pods", namespace, name));
        Held held = stock.pod(namespace, name).orElseThrow(() -> nobody(namespace, name));
        Resizer.Result result;
        try {
            result = resizer.resize(held.holding().pod(), changes);
        } catch (FormatException e) { // it would make sense for another pod
            throw new ApiException(HttpStatus.CONFLICT, String.valueOf(e.getMessage()));
        }
        if (result instanceof Resizer.Result.Refused refused) {
            throw new ApiException(HttpStatus.CONFLICT, refused.why());
        }
        if (result instanceof Resizer.Result.NotFound) {
            throw nobody(namespace, name);
        }
        if (result instanceof Resizer.Result.Unavailable unavailable) {
            throw ApiException.unavailable(unavailable.why());
        }
        return with(ApiMapper.pod(held), changes);
    }

    private static ApiException nobody(String namespace, String name) {
        return ApiException.notFound("no pod " + name + " in namespace " + namespace + " holds a share of a GPU");
    }

    /** What was written, of which the ledger need not have heard yet. */
    private static ApiTypes.Pod with(ApiTypes.Pod pod, List<AllocationChange> changes) {
        List<ApiTypes.Share> shares = pod.shares();
        for (AllocationChange change : changes) {
            shares = shares.stream()
                    .map(share -> share.container().equals(change.container())
                                    && (change.gpu().isEmpty() || change.gpu().equals(share.gpu()))
                            ? with(share, change)
                            : share)
                    .toList();
        }
        return new ApiTypes.Pod(
                pod.namespace(), pod.name(), pod.uid(), pod.node(), pod.state(), pod.priority(), shares);
    }

    private static ApiTypes.Share with(ApiTypes.Share share, AllocationChange change) {
        Integer memory = change.memoryMiB();
        Integer cores = change.cores();
        var policy = change.policy();
        return new ApiTypes.Share(
                share.namespace(),
                share.pod(),
                share.uid(),
                share.node(),
                share.container(),
                share.gpu(),
                memory == null ? share.memoryMiB() : memory,
                cores == null ? share.cores() : cores,
                policy == null ? share.policy() : policy.print(),
                share.priority(),
                share.exclusive());
    }
}
