package io.aliquot.api.ports;

/**
 * The other end of a connection.
 *
 * @param client what counts as one client: an IPv4 address, or the 64-bit network of an IPv6 address, since one host may
 *     have the whole of it
 * @param apiServer whether it has an address of the API servers; false for all if these are not known
 */
public record Peer(long client, boolean apiServer) {}
