package io.aliquot.scheduler.admission;

import java.nio.charset.StandardCharsets;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** The webhooks' HTTP. Size and path have been looked at before (package server). */
@RestController
final class AdmissionController {
    private final Admission gpu;
    private final Admission none;

    AdmissionController(GpuAdmission gpu, VoidAdmission none) {
        this.gpu = gpu;
        this.none = none;
    }

    @PostMapping("/admission/gpu")
    ResponseEntity<byte[]> gpu(@RequestBody byte[] body) {
        return answer(body, gpu);
    }

    @PostMapping("/admission/void")
    ResponseEntity<byte[]> none(@RequestBody byte[] body) {
        return answer(body, none);
    }

    private static ResponseEntity<byte[]> answer(byte[] body, Admission admission) {
        try {
            return ResponseEntity.ok()
                    .contentType(MediaType.APPLICATION_JSON)
                    .body(AdmissionReview.parse(body).answer(admission));
        } catch (MalformedReviewException e) {
            return ResponseEntity.badRequest()
                    .contentType(MediaType.TEXT_PLAIN)
                    .body((e.getMessage() + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }
}
