package io.aliquot.scheduler.certificate;

import io.fabric8.kubernetes.api.model.APIService;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Makes the API server trust the scheduler's certificate for the API group that the scheduler serves. For one thread. */
final class ApiServiceTrust {
    static final String NAME = "v1alpha1.gpu.aliquot.io";

    private static final Logger LOG = LoggerFactory.getLogger(ApiServiceTrust.class);

    private final KubernetesClient kubernetes;
    private @Nullable APIService read;

    ApiServiceTrust(KubernetesClient kubernetes) {
        this.kubernetes = kubernetes;
    }

    /** Reads the APIService, for {@link #ensure}. To be called before the scheduler's certificate is read. */
    void read() {
        read = kubernetes.apiServices().withName(NAME).get();
        if (read == null) {
            throw new IllegalStateException("expected APIService " + NAME + ", found none; install the chart's");
        }
    }

    /** Makes the APIService trust the certificate, in the version that was read. Returns whether it did before. */
    boolean ensure(ServingCertificate stored) {
        APIService service = read;
        if (service == null || stored.caBundle().equals(service.getSpec().getCaBundle())) {
            return true;
        }
        kubernetes.resource(service).patch(PatchContext.of(PatchType.JSON), """
                        [{"op":"test","path":"/metadata/resourceVersion","value":"%s"},\
                        {"op":"add","path":"/spec/caBundle","value":"%s"}]""".formatted(
                        service.getMetadata().getResourceVersion(), stored.caBundle()));
        LOG.info("Updated the caBundle of APIService {} to trust {}", NAME, stored);
        return false;
    }
}
