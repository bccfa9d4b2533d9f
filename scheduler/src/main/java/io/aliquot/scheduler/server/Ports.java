package io.aliquot.scheduler.server;

import java.util.stream.Stream;

/**
 * The ports on which the process listens; 0 lets the system choose one.
 *
 * @param extender on 127.0.0.1, plain
 * @param webhooks on all addresses, TLS; also of the aggregated API
 * @param health on all addresses, plain
 */
record Ports(int extender, int webhooks, int health) {
    static final Ports STANDARD = new Ports(9998, 9443, 9090);

    /**
     * The standard ones, or what the system property {@code aliquot.ports} lists: an image's build cannot choose its
     * network.
     */
    static Ports configured() {
        String listed = System.getProperty("aliquot.ports");
        if (listed == null) {
            return STANDARD;
        }
        int[] ports = Stream.of(listed.split(",")).mapToInt(Integer::parseInt).toArray();
        return new Ports(ports[0], ports[1], ports[2]);
    }
}
