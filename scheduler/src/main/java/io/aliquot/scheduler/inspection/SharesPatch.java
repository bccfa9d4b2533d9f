package io.aliquot.scheduler.inspection;

import io.aliquot.api.CorePolicy;
import io.aliquot.api.FormatException;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.ledger.AllocationChange;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import tools.jackson.databind.JsonNode;

/** Parses and checks the body of a resize. */
final class SharesPatch {
    private static final int MAX_SHARES = 1024;
    private static final Set<String> FIELDS = new TreeSet<>(Set.of("container", "gpu", "memoryMiB", "cores", "policy"));
    private static final Pattern CONTAINER = Pattern.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?");

    private SharesPatch() {}

    /**
     * Parses the body.
     *
     * @throws ApiException with status 400 that names the field and says what to write
     */
    static List<AllocationChange> parse(JsonNode body) {
        if (!body.isObject() || body.size() != 1 || !body.path("shares").isArray()) {
            throw ApiException.badRequest(
                    "write an object with the single field shares, such as {\"shares\": [{\"container\": \"main\","
                            + " \"memoryMiB\": 4000}]}");
        }
        JsonNode shares = body.get("shares");
        if (shares.isEmpty() || shares.size() > MAX_SHARES) {
            throw ApiException.badRequest("shares: write 1 to " + MAX_SHARES + " entries");
        }
        var changes = new ArrayList<AllocationChange>();
        for (int i = 0; i < shares.size(); i++) {
            changes.add(change("shares[" + i + "]", shares.get(i)));
        }
        return changes;
    }

    private static AllocationChange change(String where, JsonNode share) {
        if (!share.isObject() || !FIELDS.containsAll(share.propertyNames())) {
            throw ApiException.badRequest(where + ": write an object; allowed fields: " + String.join(", ", FIELDS));
        }
        Integer memory = number(where, share, "memoryMiB", 1, Vgpu.LARGEST_MIB);
        Integer cores = number(where, share, "cores", 0, 100);
        CorePolicy policy = policy(where, share);
        if (memory == null && cores == null && policy == null) {
            throw ApiException.badRequest(where + ": write at least one of memoryMiB, cores and policy");
        }
        String container = text(where, share, "container");
        if (!CONTAINER.matcher(container).matches()) {
            throw ApiException.badRequest(where + ".container: write the name of a container of the pod");
        }
        String gpu = text(where, share, "gpu");
        if (share.has("gpu")) {
            ApiRequest.checkGpu(where + ".gpu", gpu);
        }
        return new AllocationChange(container, gpu, memory, cores, policy);
    }

    private static String text(String where, JsonNode share, String field) {
        JsonNode value = share.path(field);
        if (!value.isMissingNode() && !value.isString()) {
            throw ApiException.badRequest(where + "." + field + ": write a string");
        }
        return value.asString("");
    }

    private static @Nullable Integer number(String where, JsonNode share, String field, int min, int max) {
        if (!share.has(field)) {
            return null;
        }
        JsonNode value = share.get(field);
        if (value.isNumber()) {
            double number = value.asDouble(); // exact for every number in the range
            if (number >= min && number <= max && number == Math.rint(number)) {
                return (int) number;
            }
        }
        throw ApiException.badRequest(where + "." + field + ": write a whole number from " + min + " to " + max);
    }

    private static @Nullable CorePolicy policy(String where, JsonNode share) {
        if (!share.has("policy")) {
            return null;
        }
        String text = text(where, share, "policy");
        try {
            return CorePolicy.parse(where + ".policy", text);
        } catch (FormatException e) {
            throw ApiException.badRequest(String.valueOf(e.getMessage()));
        }
    }
}
