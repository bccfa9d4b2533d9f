package io.aliquot.scheduler.extender;

import static io.aliquot.scheduler.extender.ExtenderFixture.mebibytes;
import static io.aliquot.scheduler.extender.ExtenderFixture.pod;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extender.Wire.MetaPod;
import io.aliquot.scheduler.extender.Wire.MetaVictims;
import io.aliquot.scheduler.preemption.PreemptionFixture;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PreemptVerbTest {
    private static final Map<String, MetaVictims> PROPOSED =
            Map.of("n1", new MetaVictims(List.of(new MetaPod("uid-a")), 0));

    private final ExtenderFixture fixture = new ExtenderFixture();
    private final PreemptVerb verb = new PreemptVerb(new PreemptionFixture(fixture).preemptor);

    @BeforeEach
    void fillNode() {
        fixture.holds("a", 1, 0, 80_000, 1);
        fixture.holds("b", 1, 1, 80_000, 2);
    }

    @Test
    void namesTheVictimsByUid() {
        assertThat(verb.preempt(pod("high", mebibytes(80_000), 10, ""), PROPOSED))
                .isEqualTo(PROPOSED);
    }

    /** As from Kubernetes 1.37 on: a nil slice of Go is null. */
    @ParameterizedTest
    @ValueSource(strings = {"null", "[]"})
    void aCandidateWithoutVictimsGetsNone(String pods) {
        String json = "{\"Pod\": " + ExtenderFixture.podJson("high", mebibytes(80_000), "")
                + ", \"NodeNameToMetaVictims\": {\"n1\": {\"Pods\": " + pods + ", \"NumPDBViolations\": 0}}}";
        var args = Wire.mapper().readValue(json, Wire.PreemptionArgs.class);
        assertThat(verb.preempt(args.pod(), args.nodeNameToMetaVictims())).isEmpty();
    }

    @Test
    void evictsNoPodForAMalformedRequest() {
        assertThat(verb.preempt(pod("high", "\"nvidia.com/gpumem\": \"3Gi\"", 10, ""), PROPOSED))
                .isEmpty();
    }
}
