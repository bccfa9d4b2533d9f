package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Optional;

/**
 * What the aggregated API reads from the API server. Calls return within seconds, or throw a {@link StatusException}
 * with code 503 if the API server gives no answer.
 */
public interface ControlPlane {
    /**
     * The data of ConfigMap {@code extension-apiserver-authentication} in namespace {@code kube-system}, in which the
     * API server says by which certificate and headers it is recognized; empty if there is none.
     */
    Map<String, String> authentication();

    /** The TLS port of the replica whose kube-scheduler holds the Lease; empty if no pod of that name has an address. */
    Optional<InetSocketAddress> leader();
}
