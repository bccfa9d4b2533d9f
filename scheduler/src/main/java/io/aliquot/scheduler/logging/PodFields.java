package io.aliquot.scheduler.logging;

import ch.qos.logback.classic.spi.ILoggingEvent;
import io.aliquot.scheduler.ledger.PodId;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.json.JsonWriter.Members;
import org.springframework.boot.logging.structured.StructuredLoggingJsonMembersCustomizer;

/**
 * Every line about a pod has the pod as an object of its own: {@code "pod":{"namespace":…,"name":…,"uid":…}}. The pod is
 * the first one among the message's arguments, so that nobody has to set up and tear down a context around what may log,
 * and the verbs that don't log pay nothing.
 */
final class PodFields implements StructuredLoggingJsonMembersCustomizer<ILoggingEvent> {
    @Override
    public void customize(Members<ILoggingEvent> members) {
        members.add("pod", PodFields::pod).whenNotNull().usingMembers(pod -> {
            pod.add("namespace", PodId::namespace);
            pod.add("name", PodId::name);
            pod.add("uid", PodId::uid);
        });
    }

    private static @Nullable PodId pod(ILoggingEvent event) {
        Object[] arguments = event.getArgumentArray();
        if (arguments != null) {
            for (Object argument : arguments) {
                if (argument instanceof PodId pod) {
                    return pod;
                }
            }
        }
        return null;
    }
}
