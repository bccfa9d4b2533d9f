package io.aliquot.scheduler.admission;

import io.aliquot.api.ports.ApiServers;
import io.aliquot.api.ports.Peer;
import io.aliquot.api.ports.Portions;
import java.net.InetAddress;

/**
 * Limits what the reviews under way keep of their pods, each alone and all together, by estimates. Of each review a part
 * is free, and it covers all but unusual pods: however many large pods are under way, small ones are admitted. The
 * rest is divided among clients, and where the API servers' addresses are known, others have at most half. Thread-safe.
 */
final class ReviewMemory {
    /** In bytes, of one review: pods of up to about 10 containers. */
    static final int FREE = 64 << 10;
    /** In bytes, of one review: about 200 containers, or 65,000 environment variables. */
    static final int MOST = 1 << 20;
    /** In bytes, of all reviews together, beyond {@link #FREE} of each. */
    static final int SHARED = 4 << 20;

    private static final int BLOCK = 64 << 10;

    private final ApiServers apiServers;
    private final Portions blocks;

    ReviewMemory(ApiServers apiServers) {
        this.apiServers = apiServers;
        this.blocks = new Portions(SHARED / BLOCK, apiServers.known() ? SHARED / BLOCK / 2 : 0);
    }

    /** For a review from this address. */
    Share share(InetAddress from) {
        return new Share(apiServers.peer(from));
    }

    /** The memory of one review. Not thread-safe. */
    final class Share implements AutoCloseable {
        private final Peer peer;
        private int used;
        private int taken;

        private Share(Peer peer) {
            this.peer = peer;
        }

        /**
         * Adds to what the review keeps.
         *
         * @throws DeniedException if it is more than one review may keep, or if other reviews keep too much now
         */
        void take(int bytes) {
            used += bytes;
            if (used > MOST) {
                throw DeniedException.tooLarge();
            }
            while (used > FREE + taken * BLOCK) {
                if (!blocks.take(peer.client(), peer.apiServer())) {
                    throw DeniedException.busy();
                }
                taken++;
            }
        }

        int used() {
            return used;
        }

        /** Subtracts what has been dropped since {@link #used} was this. */
        void backTo(int before) {
            used = before;
        }

        @Override
        public void close() {
            blocks.giveBack(peer.client(), taken);
        }
    }
}
