package io.aliquot.scheduler.extensionapi.objects;

import io.aliquot.api.pods.CoreRules;

/** What namespaces forbid their pods. Thread-safe. */
public interface NamespaceRules {
    /**
     * The rules of a namespace now.
     *
     * @throws io.aliquot.scheduler.extensionapi.machinery.StatusException if they cannot be read
     */
    CoreRules of(String namespace);
}
