package io.aliquot.scheduler.inspection;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.inspection.AccessReviews.Access;
import io.aliquot.scheduler.inspection.ApiMapper.NodeHolding;
import io.aliquot.scheduler.ledger.AllocationChange;
import io.aliquot.scheduler.recovery.Resizer;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.PatchMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.JsonNode;

/** Resizes the shares of a running pod. */
@RestController
final class ResizeController {
    private final ApiMapper mapper;
    private final AccessControl access;
    private final Resizer resizer;

    ResizeController(ApiMapper mapper, AccessControl access, Resizer resizer) {
        this.mapper = mapper;
        this.access = access;
        this.resizer = resizer;
    }

    @PatchMapping(
            path = "/api/v1/pods/{namespace}/{name}/shares",
            consumes = MediaType.APPLICATION_JSON_VALUE,
            produces = MediaType.APPLICATION_JSON_VALUE)
    ApiTypes.Pod resize(HttpServletRequest http, @RequestBody JsonNode body) {
        var request = ApiRequest.of(http);
        String namespace = request.name("namespace");
        String name = request.name("name");
        List<AllocationChange> changes = SharesPatch.parse(body);
        access.require(request.caller(), new Access("patch", "pods", namespace, name));
        NodeHolding held = mapper.pod(namespace, name).orElseThrow(() -> notFound(namespace, name));
        try {
            return switch (resizer.resize(held.pod(), changes)) {
                // With the changes that were written; the ledger may not have seen them yet.
                case Resizer.Result.Done done ->
                    ApiMapper.pod(
                            held, AllocationChange.apply(changes, held.holding().shares()));
                case Resizer.Result.Refused(String why) -> throw ApiException.conflict(why);
                case Resizer.Result.Changed() -> throw ApiException.conflict("the pod has changed");
                case Resizer.Result.NotFound() -> throw notFound(namespace, name);
                case Resizer.Result.Unavailable(String why) -> throw ApiException.unavailable(why);
            };
        } catch (FormatException e) {
            // The request is valid, but not for this pod: it names a container or GPU that the pod does not have.
            throw ApiException.conflict(String.valueOf(e.getMessage()));
        }
    }

    private static ApiException notFound(String namespace, String name) {
        return ApiException.notFound("no pod " + name + " in namespace " + namespace + " holds a share of a GPU");
    }
}
