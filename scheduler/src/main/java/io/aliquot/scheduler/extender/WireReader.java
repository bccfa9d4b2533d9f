package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.Container;
import io.aliquot.scheduler.extender.Wire.MetaPod;
import io.aliquot.scheduler.extender.Wire.MetaVictims;
import io.aliquot.scheduler.extender.Wire.Pod;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PreemptionRank;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.exc.StreamReadException;
import tools.jackson.core.json.JsonFactory;

/*
 * Why by hand: databind took longer to read a pod than filter to answer. Fields that are not named here, managedFields
 * among them, are skipped; null counts as missing; of duplicate fields the last one counts.
 */
/**
 * Parses the requests of kube-scheduler: the JSON of k8s.io/kube-scheduler/extender/v1, types.go, with Go's field
 * names, since that package has no tags, around a pod with the API's own names. Thread-safe.
 *
 * <p>Malformed or incomplete input causes a {@link tools.jackson.core.JacksonException}.
 */
final class WireReader {
    private final JsonFactory json = new JsonFactory();
    private final NodeNameLists nodeNames = new NodeNameLists();

    private interface Reader<T> {
        T read(JsonParser in);
    }

    private <T> T whole(InputStream body, Reader<T> reader) {
        try (JsonParser in = json.createParser(ObjectReadContext.empty(), body)) {
            in.nextToken();
            T read = reader.read(in);
            if (in.nextToken() != null) {
                throw wrong(in, "nothing after the object");
            }
            return read;
        }
    }

    /** Of filter and prioritize. */
    Args args(InputStream body) {
        return whole(body, this::args);
    }

    BindingArgs binding(InputStream body) {
        return whole(body, WireReader::binding);
    }

    PreemptionArgs preemption(InputStream body) {
        return whole(body, WireReader::preemption);
    }

    private Args args(JsonParser in) {
        Pod pod = null;
        List<String> names = null;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "Pod" -> pod = pod(in);
                case "NodeNames" -> names = nodeNames.read(in);
                default -> in.skipChildren();
            }
        }
        return new Args(expected(in, "Pod", pod), Optional.ofNullable(names));
    }

    private static BindingArgs binding(JsonParser in) {
        String name = null;
        String namespace = null;
        String uid = null;
        String node = null;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "PodName" -> name = text(in);
                case "PodNamespace" -> namespace = text(in);
                case "PodUID" -> uid = text(in);
                case "Node" -> node = text(in);
                default -> in.skipChildren();
            }
        }
        return new BindingArgs(
                new PodId(
                        expected(in, "PodNamespace", namespace),
                        expected(in, "PodName", name),
                        expected(in, "PodUID", uid)),
                expected(in, "Node", node));
    }

    private static PreemptionArgs preemption(JsonParser in) {
        Pod pod = null;
        Map<String, MetaVictims> victims = null;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "Pod" -> pod = pod(in);
                case "NodeNameToMetaVictims" -> victims = map(in, WireReader::victims);
                default -> in.skipChildren();
            }
        }
        return new PreemptionArgs(expected(in, "Pod", pod), expected(in, "NodeNameToMetaVictims", victims));
    }

    private static MetaVictims victims(JsonParser in) {
        List<MetaPod> pods = List.of();
        int violations = 0;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "Pods" -> pods = list(in, WireReader::victim);
                case "NumPDBViolations" -> violations = in.getIntValue();
                default -> in.skipChildren();
            }
        }
        return new MetaVictims(pods, violations);
    }

    private static MetaPod victim(JsonParser in) {
        return new MetaPod(expected(in, "UID", textOf(in, "UID")));
    }

    // ---- The pod

    private record Metadata(PodId id, long version, Map<String, String> annotations) {}

    private record Spec(
            List<Container> initContainers,
            List<Container> containers,
            Map<String, String> podRequests,
            Map<String, String> overhead,
            boolean preferences,
            PreemptionRank rank) {}

    private static Pod pod(JsonParser in) {
        Metadata metadata = null;
        Spec spec = null;
        String nominated = null;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "metadata" -> metadata = metadata(in);
                case "spec" -> spec = spec(in);
                case "status" -> nominated = textOf(in, "nominatedNodeName");
                default -> in.skipChildren();
            }
        }
        Metadata who = expected(in, "metadata", metadata);
        Spec what = expected(in, "spec", spec);
        return new Pod(
                who.id(),
                who.version(),
                what.rank(),
                who.annotations(),
                what.initContainers(),
                what.containers(),
                what.podRequests(),
                what.overhead(),
                what.preferences(),
                nominated == null ? "" : nominated);
    }

    private static Metadata metadata(JsonParser in) {
        String namespace = null;
        String name = null;
        String uid = null;
        long version = 0;
        Map<String, String> annotations = Map.of();
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "namespace" -> namespace = text(in);
                case "name" -> name = text(in);
                case "uid" -> uid = text(in);
                case "resourceVersion" -> version = version(in);
                case "annotations" -> annotations = map(in, WireReader::text);
                default -> in.skipChildren();
            }
        }
        return new Metadata(
                new PodId(
                        expected(in, "metadata.namespace", namespace),
                        expected(in, "metadata.name", name),
                        expected(in, "metadata.uid", uid)),
                version,
                annotations);
    }

    private static long version(JsonParser in) {
        try {
            return Long.parseLong(text(in));
        } catch (NumberFormatException e) {
            throw wrong(in, "a resource version, which is a number");
        }
    }

    private static Spec spec(JsonParser in) {
        List<Container> initContainers = List.of();
        List<Container> containers = List.of();
        Map<String, String> podRequests = Map.of();
        Map<String, String> overhead = Map.of();
        boolean preferences = false;
        int priority = 0;
        boolean preempts = true;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "initContainers" -> initContainers = list(in, WireReader::container);
                case "resources" -> podRequests = resources(in).requests();
                case "overhead" -> overhead = map(in, WireReader::text);
                case "containers" -> containers = list(in, WireReader::container);
                case "affinity" -> preferences |= affinityPrefers(in);
                case "topologySpreadConstraints" ->
                    preferences |= list(in, WireReader::spreadPrefers).contains(true);
                case "priority" -> priority = in.getIntValue();
                case "preemptionPolicy" -> preempts = !text(in).equals("Never");
                default -> in.skipChildren();
            }
        }
        return new Spec(
                initContainers, containers, podRequests, overhead, preferences, new PreemptionRank(priority, preempts));
    }

    private static Container container(JsonParser in) {
        String name = null;
        var resources = new Resources(Map.of(), Map.of());
        boolean restarts = false;
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "name" -> name = text(in);
                case "restartPolicy" -> restarts = text(in).equals("Always");
                case "resources" -> resources = resources(in);
                default -> in.skipChildren();
            }
        }
        return new Container(
                expected(in, "a container's name", name), resources.limits(), resources.requests(), restarts);
    }

    private record Resources(Map<String, String> limits, Map<String, String> requests) {}

    private static Resources resources(JsonParser in) {
        Map<String, String> limits = Map.of();
        Map<String, String> requests = Map.of();
        for (String field = first(in); field != null; field = next(in)) {
            switch (field) {
                case "limits" -> limits = map(in, WireReader::text);
                case "requests" -> requests = map(in, WireReader::text);
                default -> in.skipChildren();
            }
        }
        return new Resources(limits, requests);
    }

    /** Of nodes, of pods, or against pods. */
    private static boolean affinityPrefers(JsonParser in) {
        boolean some = false;
        for (String kind = first(in); kind != null; kind = next(in)) {
            for (String field = first(in); field != null; field = next(in)) {
                if (field.equals("preferredDuringSchedulingIgnoredDuringExecution")) {
                    some |= !list(in, JsonParser::skipChildren).isEmpty();
                } else {
                    in.skipChildren();
                }
            }
        }
        return some;
    }

    private static boolean spreadPrefers(JsonParser in) {
        return "ScheduleAnyway".equals(textOf(in, "whenUnsatisfiable"));
    }

    // ---- Of any JSON

    /** An object's first field that is not null, its value being the current token; null if there is none. */
    private static @Nullable String first(JsonParser in) {
        if (in.currentToken() != JsonToken.START_OBJECT) {
            throw wrong(in, "an object");
        }
        return next(in);
    }

    /** The next one; null at the object's end. */
    private static @Nullable String next(JsonParser in) {
        String field = in.nextName();
        while (field != null && in.nextToken() == JsonToken.VALUE_NULL) {
            field = in.nextName();
        }
        return field;
    }

    private static <T> Map<String, T> map(JsonParser in, Reader<T> value) {
        var map = new HashMap<String, T>();
        for (String field = first(in); field != null; field = next(in)) {
            map.put(field, value.read(in));
        }
        return map;
    }

    private static <T> List<T> list(JsonParser in, Reader<T> element) {
        if (in.currentToken() != JsonToken.START_ARRAY) {
            throw wrong(in, "a list");
        }
        var list = new ArrayList<T>();
        while (in.nextToken() != JsonToken.END_ARRAY) {
            list.add(element.read(in));
        }
        return list;
    }

    /** The one field of an object that is looked at; null where it is missing. */
    private static @Nullable String textOf(JsonParser in, String wanted) {
        String text = null;
        for (String field = first(in); field != null; field = next(in)) {
            if (field.equals(wanted)) {
                text = text(in);
            } else {
                in.skipChildren();
            }
        }
        return text;
    }

    private static String text(JsonParser in) {
        if (!in.currentToken().isScalarValue()) {
            throw wrong(in, "a string");
        }
        return in.getString();
    }

    private static <T> T expected(JsonParser in, String field, @Nullable T value) {
        if (value == null) {
            throw new StreamReadException(in, "expected " + field + ", found none");
        }
        return value;
    }

    static StreamReadException wrong(JsonParser in, String expected) {
        return new StreamReadException(in, "expected " + expected + ", found " + in.currentToken());
    }
}
