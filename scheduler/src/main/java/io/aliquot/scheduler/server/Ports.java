package io.aliquot.scheduler.server;

/**
 * Where the process listens; 0 lets the system choose.
 *
 * @param extender on 127.0.0.1, plain
 * @param webhooks on all addresses, TLS
 * @param health on all addresses, plain
 * @param api on all addresses, TLS
 */
record Ports(int extender, int webhooks, int health, int api) {
    static final Ports STANDARD = new Ports(9998, 9443, 9090, 8443);
}
