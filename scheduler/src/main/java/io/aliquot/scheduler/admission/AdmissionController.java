package io.aliquot.scheduler.admission;

import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** The webhooks' HTTP. Size and path have been looked at before (package server). */
@RestController
final class AdmissionController {
    private final Admission gpu;

    AdmissionController(GpuAdmission gpu) {
        this.gpu = gpu;
    }

    @PostMapping("/admission/gpu")
    ResponseEntity<byte[]> gpu(@RequestBody byte[] body) {
        return answer(body, review -> {
            review.requireCreation();
            return gpu;
        });
    }

    @PostMapping("/admission/void")
    ResponseEntity<byte[]> none(@RequestBody byte[] body) {
        return answer(body, review -> new VoidAdmission(review.there()));
    }

    private static ResponseEntity<byte[]> answer(byte[] body, Function<AdmissionReview, Admission> admission) {
        try {
            AdmissionReview review = AdmissionReview.parse(body);
            return ResponseEntity.ok()
                    .contentType(MediaType.APPLICATION_JSON)
                    .body(review.answer(admission.apply(review)));
        } catch (MalformedReviewException e) {
            return ResponseEntity.badRequest()
                    .contentType(MediaType.TEXT_PLAIN)
                    .body((e.getMessage() + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }
}
