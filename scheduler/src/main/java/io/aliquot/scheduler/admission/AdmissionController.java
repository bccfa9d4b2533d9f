package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.admission.AdmissionReview.Oversized;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.nodeagent.NodeReports;
import io.aliquot.scheduler.settings.Settings;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;

/** The webhooks' HTTP endpoints. Package server has checked the request's size and path before. */
@RestController
final class AdmissionController {
    private final Settings settings;
    private final Ledger ledger;
    private final Namespaces namespaces;
    private final NodeReports nodes;
    private final RuntimeClasses runtimeClasses;
    private final ReviewMemory memory;

    AdmissionController(
            Settings settings, Ledger ledger, ApiServerClient apiServer, Namespaces namespaces, NodeReports nodes) {
        this.settings = settings;
        this.ledger = ledger;
        this.namespaces = namespaces;
        this.nodes = nodes;
        this.runtimeClasses = new RuntimeClasses(apiServer);
        this.memory = new ReviewMemory(settings.apiServers());
    }

    @PostMapping("/admission/gpu")
    void admitGpuPod(HttpServletRequest request, HttpServletResponse response) throws IOException {
        respond(request, response, Oversized.DENIED, review -> {
            review.require(AdmissionReview.Operation.CREATE);
            return new GpuAdmission(
                    settings.runtimeClass(),
                    runtimeClasses::handler,
                    nodes.allInjectByCdi(),
                    settings.compatibility(),
                    () -> namespaces.podDefaults(review.namespace()));
        });
    }

    @PostMapping("/admission/update")
    void admitUpdate(HttpServletRequest request, HttpServletResponse response) throws IOException {
        // The API server refuses what differs from the stored pod, whatever this answer.
        respond(request, response, Oversized.UNCHANGED, review -> {
            review.require(AdmissionReview.Operation.UPDATE);
            return new UpdateAdmission();
        });
    }

    @PostMapping("/admission/void")
    void hideGpus(HttpServletRequest request, HttpServletResponse response) throws IOException {
        respond(
                request,
                response,
                // The API server asks about pods without GPUs. In a GPU pod, to which a container is added, a policy
                // refuses what is not hidden.
                Oversized.UNCHANGED,
                review -> new VoidAdmission(review.existingContainers(), ledger::sharesGpus));
    }

    private void respond(
            HttpServletRequest request,
            HttpServletResponse response,
            Oversized oversized,
            Function<AdmissionReview, Admission> admission)
            throws IOException {
        InputStream body = request.getInputStream();
        byte[] answer;
        String type = MediaType.APPLICATION_JSON_VALUE;
        try (ReviewMemory.Share share = memory.share(InetAddress.getByName(request.getRemoteAddr()))) {
            answer = AdmissionReview.answer(body, share, oversized, admission);
        } catch (MalformedReviewException e) {
            answer = (e.getMessage() + "\n").getBytes(StandardCharsets.UTF_8);
            type = MediaType.TEXT_PLAIN_VALUE;
            response.setStatus(HttpStatus.BAD_REQUEST.value());
        }
        discardRest(body);
        response.setContentType(type);
        response.getOutputStream().write(answer);
    }

    /**
     * A client that still sends its request may not read an answer, and the API server admits a pod as it is where a
     * webhook with the failure policy Ignore does not answer.
     */
    private static void discardRest(InputStream body) {
        try {
            body.transferTo(OutputStream.nullOutputStream());
        } catch (IOException e) {
            // The client is gone or too slow, and gets no answer.
        }
    }
}
