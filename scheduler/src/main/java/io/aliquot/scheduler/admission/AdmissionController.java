package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.settings.Settings;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** The webhooks' HTTP endpoints. Package server has checked the request's size and path before. */
@RestController
final class AdmissionController {
    private final GpuAdmission gpuAdmission;
    private final Ledger ledger;

    AdmissionController(Settings settings, Ledger ledger) {
        this.ledger = ledger;
        this.gpuAdmission =
                new GpuAdmission(settings.schedulerName(), settings.runtimeClass(), settings.compatibility());
    }

    @PostMapping("/admission/gpu")
    ResponseEntity<byte[]> admitGpuPod(@RequestBody byte[] body) {
        return respond(body, review -> {
            review.requireCreation();
            return gpuAdmission;
        });
    }

    @PostMapping("/admission/void")
    ResponseEntity<byte[]> hideGpus(@RequestBody byte[] body) {
        return respond(body, review -> new VoidAdmission(review.existingContainers(), ledger::sharesGpus));
    }

    private static ResponseEntity<byte[]> respond(byte[] body, Function<AdmissionReview, Admission> admission) {
        try {
            AdmissionReview review = AdmissionReview.parse(body);
            return ResponseEntity.ok()
                    .contentType(MediaType.APPLICATION_JSON)
                    .body(review.respond(admission.apply(review)));
        } catch (MalformedReviewException e) {
            return ResponseEntity.badRequest()
                    .contentType(MediaType.TEXT_PLAIN)
                    .body((e.getMessage() + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }
}
