package io.aliquot.scheduler.logging;

import ch.qos.logback.classic.spi.ILoggingEvent;
import io.aliquot.scheduler.ledger.PodId;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.json.JsonWriter.Members;
import org.springframework.boot.logging.structured.StructuredLoggingJsonMembersCustomizer;

/**
 * Adds the pod to each structured log line about a pod: {@code "pod":{"namespace":…,"name":…,"uid":…}}. It is the first
 * {@link PodId} among the message's arguments. A diagnostic context (MDC) would have to be set and cleared around all
 * code that may log, also in the verbs, which usually do not.
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
