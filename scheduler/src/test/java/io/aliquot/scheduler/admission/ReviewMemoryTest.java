package io.aliquot.scheduler.admission;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.scheduler.admission.ReviewMemory.Share;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReviewMemoryTest {
    private static final int BLOCK = 64 << 10;
    private static final String API_SERVER = "10.1.0.1";

    private final List<Share> shares = new ArrayList<>();

    /** How many bytes, beyond what is free, a client can have with as many reviews as it likes. */
    private int take(ReviewMemory memory, String from) throws UnknownHostException {
        for (int bytes = 0; ; bytes += BLOCK) {
            Share share = memory.share(InetAddress.getByName(from));
            shares.add(share);
            try {
                share.take(ReviewMemory.FREE + BLOCK);
            } catch (DeniedException e) {
                return bytes;
            }
        }
    }

    @Test
    void aClientHasNoMoreThanItLeavesToOthers() throws UnknownHostException {
        var memory = new ReviewMemory(ApiServers.UNKNOWN);
        assertThat(take(memory, "10.2.0.1")).isEqualTo(ReviewMemory.SHARED / 2);
        assertThat(take(memory, "10.2.0.1")).isZero();
        assertThat(take(memory, API_SERVER)).isEqualTo(ReviewMemory.SHARED / 4);

        shares.forEach(Share::close);
        assertThat(take(memory, API_SERVER)).isEqualTo(ReviewMemory.SHARED / 2);
    }

    @Test
    void knownApiServersHaveWhatOthersCannotTake() throws UnknownHostException {
        var memory = new ReviewMemory(ApiServers.parse("", "10.1.0.0/16"));
        int others = 0;
        for (int i = 1; i <= 100; i++) {
            others += take(memory, "10.2.0." + i);
        }
        assertThat(others).isBetween(ReviewMemory.SHARED / 4, ReviewMemory.SHARED / 2);
        assertThat(take(memory, API_SERVER)).isEqualTo(ReviewMemory.SHARED - others);

        shares.forEach(Share::close);
        assertThat(take(memory, API_SERVER)).isEqualTo(ReviewMemory.SHARED);
    }
}
