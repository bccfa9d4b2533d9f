package io.aliquot.scheduler.apiserver.reader;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.LimitRange;
import io.fabric8.kubernetes.api.model.LimitRangeItem;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * Finds in a LimitRange what its author may not expect of amounts of GPUs. The policy {@code aliquot-limit-ranges} warns of
 * the same when a LimitRange is written; this is for those that exist already.
 */
public final class LimitRangeReader {
    private static final String CONTAINER = "Container";
    private static final String POD = "Pod";

    private LimitRangeReader() {}

    /** A sentence for each amount that makes Kubernetes refuse or change more than it says. */
    public static List<String> problems(LimitRange object) {
        var problems = new ArrayList<String>();
        if (object.getSpec() == null) {
            return problems;
        }
        List<LimitRangeItem> items = object.getSpec().getLimits();
        for (LimitRangeItem item : items) {
            // LimitRanger compares with the amount 0 what does not request the resource (k8s.io/kubernetes 1.35,
            // plugin/pkg/admission/limitranger/admission.go, minConstraint and limitRequestRatioConstraint).
            amounts(item.getMin()).forEach((name, amount) -> problems.add(refused("min", name, amount)));
            amounts(item.getMaxLimitRequestRatio())
                    .forEach((name, amount) -> problems.add(refused("maxLimitRequestRatio", name, amount)));
            amounts(item.getMax()).forEach((name, amount) -> maximum(items, item, name, amount, problems));
        }
        return problems;
    }

    private static String refused(String field, String name, Quantity amount) {
        return "with " + entry(field, name, amount) + " Kubernetes refuses all that does not request " + name
                + ", also what needs no GPU; remove it: no default avoids that";
    }

    private static void maximum(
            List<LimitRangeItem> items, LimitRangeItem item, String name, Quantity max, List<String> problems) {
        String instead = entry("default", name, new Quantity(name.equals(Resources.VGPU) ? "1" : "0"));
        if (POD.equals(item.getType())) {
            boolean hasDefault = items.stream()
                    .anyMatch(other -> CONTAINER.equals(other.getType())
                            && other.getDefault() != null
                            && other.getDefault().containsKey(name));
            if (!hasDefault) {
                problems.add(
                        "with " + entry("max", name, max) + " for the type Pod Kubernetes refuses every pod that does"
                                + " not write " + name
                                + ", also those that need no GPU; add an entry {type: Container, " + instead
                                + "}");
            }
        } else if (CONTAINER.equals(item.getType())
                && Resources.SUPPORTED.contains(name)
                && item.getDefault() != null
                && max.equals(item.getDefault().get(name))) {
            problems.add(
                    "Kubernetes makes " + entry("max", name, max) + " the default: a container that requests GPUs and"
                            + " does not write " + name + " gets " + max + "; if it should not, add " + instead);
        }
    }

    private static String entry(String field, String name, Quantity amount) {
        return field + ": {" + name + ": " + amount + "}";
    }

    /** Those of Aliquot's resources, in the order of their names. */
    private static Map<String, Quantity> amounts(@Nullable Map<String, Quantity> all) {
        var amounts = new TreeMap<>(all == null ? Map.<String, Quantity>of() : all);
        amounts.keySet()
                .removeIf(name -> !Resources.SUPPORTED.contains(name)
                        && Resources.instanceProfile(name).isEmpty());
        return amounts;
    }
}
