package io.aliquot.scheduler.extensionapi.endpoints;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.scheduler.extensionapi.machinery.JsonResponse;
import io.aliquot.scheduler.extensionapi.machinery.Patch;
import io.aliquot.scheduler.extensionapi.machinery.Printer;
import io.aliquot.scheduler.extensionapi.machinery.Query;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuShare;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.NamespaceRules;
import io.aliquot.scheduler.extensionapi.objects.ShareChanges;
import io.aliquot.scheduler.ledger.ContainerShareChange;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.Resizing;
import io.aliquot.scheduler.resize.Resizer;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import org.springframework.http.HttpHeaders;
import org.springframework.web.bind.annotation.PatchMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Resizes a running pod by a patch of its gpushare. */
@RestController
public final class SharePatchController {
    private final GpuShares shares;
    private final Ledger ledger;
    private final Resizer resizer;
    private final NamespaceRules rules;

    SharePatchController(GpuShares shares, Ledger ledger, Resizer resizer, NamespaceRules rules) {
        this.rules = rules;
        this.shares = shares;
        this.ledger = ledger;
        this.resizer = resizer;
    }

    @PatchMapping(ObjectsController.SHARE)
    void patch(
            HttpServletRequest request,
            HttpServletResponse response,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name)
            throws IOException {
        Query query = Query.of(request);
        boolean dryRun = query.dryRun();
        Printer printer = Printer.of(shares, request.getHeader(HttpHeaders.ACCEPT), query);
        byte[] patch = Patch.read(request);
        GpuPod pod = newest(shares.get(namespace, name));
        GpuShare current = shares.print(pod);
        JsonNode before = JsonMapper.shared().valueToTree(current);
        JsonNode after = Patch.apply(request.getContentType(), patch, before);
        Optional<String> required =
                Patch.namesVersion(patch) ? ShareChanges.requiredVersion(name, after) : Optional.empty();
        if (required.filter(version -> !version.equals(Long.toString(pod.version())))
                .isPresent()) {
            throw modified(name);
        }
        List<ContainerShareChange> changes = ShareChanges.between(name, before, after);
        if (!changes.isEmpty() && pod.isPending()) {
            throw StatusException.invalid(
                    name, "spec.containers", "the pod is Pending; only what a pod holds can be resized");
        }
        checkRules(name, namespace, changes);
        GpuPod result = changes.isEmpty()
                ? pod
                : resize(
                        pod,
                        changes,
                        dryRun,
                        required.isPresent() ? OptionalLong.of(pod.version()) : OptionalLong.empty());
        JsonResponse.write(response, printer.one(shares.print(result)));
    }

    /** A policy of the API server holds resizes to the same rules; this answers a dry run, and in words. */
    private void checkRules(String name, String namespace, List<ContainerShareChange> changes) {
        if (changes.stream().anyMatch(change -> change.policy() != null || change.cores() != null)) {
            CoreRules known = rules.of(namespace);
            for (ContainerShareChange change : changes) {
                known.refusal(change.policy(), change.cores()).ifPresent(why -> {
                    throw StatusException.invalid(name, "spec.containers", why);
                });
            }
        }
    }

    /** The ledger has read a pod that was just resized, and the watch may not have reported it yet. */
    private GpuPod newest(GpuPod pod) {
        return ledger.bound(pod.id().uid())
                .filter(bound -> bound.version() > pod.version())
                .map(bound -> pod.with(bound.shares(), bound.version()))
                .orElse(pod);
    }

    private GpuPod resize(GpuPod pod, List<ContainerShareChange> changes, boolean dryRun, OptionalLong required) {
        String name = pod.id().name();
        try {
            Resizer.Result result = dryRun ? check(pod, changes) : resizer.resize(pod.id(), changes, required);
            return switch (result) {
                // With the changes that were written; the watch may not have reported them yet.
                case Resizer.Result.Done(OptionalLong version) ->
                    pod.with(ContainerShareChange.apply(changes, pod.shares()), version.orElse(pod.version()));
                case Resizer.Result.Refused(String why) -> throw StatusException.invalid(name, "spec.containers", why);
                case Resizer.Result.Changed() -> throw modified(name);
                case Resizer.Result.NotFound() -> throw StatusException.notFound(shares.plural(), name);
                case Resizer.Result.Unavailable(String why) -> throw StatusException.unavailable(why);
            };
        } catch (FormatException e) {
            // The patch is valid, but not for this pod: it would change a whole card.
            throw StatusException.invalid(name, "spec.containers", String.valueOf(e.getMessage()));
        }
    }

    private Resizer.Result check(GpuPod pod, List<ContainerShareChange> changes) {
        return switch (ledger.checkResize(pod.id().uid(), changes)) {
            case Resizing.Prepared prepared -> new Resizer.Result.Done(OptionalLong.empty());
            case Resizing.Unchanged unchanged -> new Resizer.Result.Done(OptionalLong.empty());
            case Resizing.Refused(String why) -> new Resizer.Result.Refused(why);
            case Resizing.Unresolved unresolved -> new Resizer.Result.Unavailable(Resizer.UNRESOLVED);
            case Resizing.Unknown unknown -> new Resizer.Result.NotFound();
        };
    }

    private StatusException modified(String name) {
        return StatusException.conflict(
                shares.plural(),
                name,
                "the object has been modified; please apply your changes to the latest version and try again");
    }
}
