package io.aliquot.scheduler.apiserver.reader;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Resources;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.ledger.QuotaScope;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.api.model.ResourceQuotaSpec;
import io.fabric8.kubernetes.api.model.ScopedResourceSelectorRequirement;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/**
 * Reads what a ResourceQuota says of GPUs under {@code limits.}, which Kubernetes accepts for extended resources and does
 * not count (k8s.io/kubernetes 1.35, pkg/quota/v1/evaluator/core/pods.go).
 */
public final class QuotaReader {
    private static final String LIMITS = "limits.";
    private static final String REQUESTS = "requests.";
    private static final long MIB_PER_GIB = 1024;

    private static final Map<String, QuotaResource> COUNTED = Map.of(
            Resources.MEMORY, QuotaResource.MEMORY,
            Resources.CORES, QuotaResource.CORES,
            Resources.VGPU, QuotaResource.VGPUS,
            ForeignResources.NVIDIA_GPU, QuotaResource.VGPUS);

    /** Names that no pod of Aliquot's counts for, with the one to write instead. */
    private static final Map<String, String> INSTEAD = Map.of(
            Resources.MEMORY_PERCENTAGE,
            Resources.MEMORY + ", in MiB",
            ForeignResources.ACK_MEMORY,
            Resources.MEMORY + ", in MiB",
            ForeignResources.ACK_CORES,
            Resources.CORES,
            ForeignResources.ACK_GPU,
            Resources.VGPU);

    private QuotaReader() {}

    /**
     * The result of reading a ResourceQuota.
     *
     * @param quota empty if it limits no GPUs, or is not enforced
     * @param problems a sentence for each entry that does not do what its author may expect
     */
    public record Reading(Optional<Quota> quota, List<String> problems) {}

    public static Reading read(ResourceQuota object) {
        ResourceQuotaSpec spec = object.getSpec();
        var hard = new EnumMap<QuotaResource, Long>(QuotaResource.class);
        var problems = new ArrayList<String>();
        if (spec == null || spec.getHard() == null) {
            return new Reading(Optional.empty(), problems);
        }
        new TreeMap<>(spec.getHard()).forEach((name, quantity) -> {
            if (name.startsWith(LIMITS)) {
                limit(name, name.substring(LIMITS.length()), quantity, hard, problems);
            } else if (name.startsWith(REQUESTS)) {
                request(name, name.substring(REQUESTS.length()), problems);
            }
        });
        if (hard.isEmpty()) {
            return new Reading(Optional.empty(), problems);
        }
        var scopes = new ArrayList<QuotaScope>();
        Optional<String> unknown = scopes(spec, scopes);
        if (unknown.isPresent()) {
            problems.add("Aliquot does not enforce this quota, because it does not know its scope " + unknown.get()
                    + "; it knows Terminating, NotTerminating and PriorityClass");
            return new Reading(Optional.empty(), problems);
        }
        return new Reading(
                Optional.of(new Quota(
                        object.getMetadata().getNamespace(),
                        object.getMetadata().getName(),
                        object.getMetadata().getUid(),
                        hard,
                        scopes)),
                problems);
    }

    private static void limit(
            String name, String resource, Quantity quantity, Map<QuotaResource, Long> hard, List<String> problems) {
        QuotaResource counted = COUNTED.get(resource);
        if (counted == null) {
            Optional.ofNullable(INSTEAD.get(resource))
                    .ifPresent(instead -> problems.add("nothing enforces " + name + "; write " + LIMITS + instead));
            return;
        }
        BigDecimal amount = quantity.getNumericalAmount();
        hard.merge(counted, longOf(amount), Math::min);
        if (counted == QuotaResource.MEMORY
                && String.valueOf(quantity.getFormat()).endsWith("i")) {
            problems.add(name + " counts MiB, so that " + quantity + " is " + amount.toBigInteger()
                    + " MiB; write the number of MiB" + gibibytes(quantity));
        }
    }

    private static String gibibytes(Quantity quantity) {
        return quantity.getFormat().equals("Gi")
                ? ", "
                        + new BigDecimal(quantity.getAmount())
                                .multiply(BigDecimal.valueOf(MIB_PER_GIB))
                                .toBigInteger()
                : "";
    }

    /** Rounded down, so that a quota is never exceeded. */
    private static long longOf(BigDecimal amount) {
        return amount.min(BigDecimal.valueOf(Long.MAX_VALUE)).longValue();
    }

    private static void request(String name, String resource, List<String> problems) {
        if (resource.equals(Resources.MEMORY) || resource.equals(Resources.CORES)) {
            problems.add("Kubernetes counts " + name
                    + " as pods write it: once for several vGPUs, not for percentages, whole cards and resizes; write "
                    + LIMITS + resource + ", which Aliquot enforces exactly");
        } else if (resource.equals(ForeignResources.NVIDIA_GPU)) {
            problems.add(name + " does not count the vGPUs of Aliquot's pods; write " + LIMITS + resource);
        } else {
            Optional.ofNullable(INSTEAD.get(resource))
                    .ifPresent(instead ->
                            problems.add(name + " does not count what Aliquot's pods hold; write " + LIMITS + instead));
        }
    }

    /** Adds the scopes; returns one that is not known. */
    private static Optional<String> scopes(ResourceQuotaSpec spec, List<QuotaScope> scopes) {
        for (String scope : spec.getScopes()) {
            Optional<QuotaScope> known = scope(scope, "Exists", Set.of());
            if (known.isEmpty()) {
                return Optional.of(scope);
            }
            scopes.add(known.get());
        }
        if (spec.getScopeSelector() != null) {
            for (ScopedResourceSelectorRequirement term :
                    spec.getScopeSelector().getMatchExpressions()) {
                Optional<QuotaScope> known =
                        scope(term.getScopeName(), term.getOperator(), Set.copyOf(term.getValues()));
                if (known.isEmpty()) {
                    return Optional.of(term.getScopeName() + " " + term.getOperator());
                }
                scopes.add(known.get());
            }
        }
        return Optional.empty();
    }

    private static Optional<QuotaScope> scope(String name, String operator, Set<String> values) {
        return switch (name + " " + operator) {
            case "Terminating Exists" -> Optional.of(new QuotaScope.Deadline(true));
            case "NotTerminating Exists" -> Optional.of(new QuotaScope.Deadline(false));
            case "PriorityClass Exists" -> Optional.of(new QuotaScope.HasPriorityClass(true));
            case "PriorityClass DoesNotExist" -> Optional.of(new QuotaScope.HasPriorityClass(false));
            case "PriorityClass In" -> Optional.of(new QuotaScope.PriorityClassIn(values, true));
            case "PriorityClass NotIn" -> Optional.of(new QuotaScope.PriorityClassIn(values, false));
            default -> Optional.empty();
        };
    }
}
