package io.aliquot.scheduler.server.ports;

/**
 * The ports on which the process listens; 0 lets the system choose one.
 *
 * @param extender on 127.0.0.1, plain
 * @param webhooks on all addresses, TLS; also of the aggregated API
 * @param health on all addresses, plain
 */
record Ports(int extender, int webhooks, int health) {
    static final Ports STANDARD = new Ports(9998, 9443, 9090);
}
