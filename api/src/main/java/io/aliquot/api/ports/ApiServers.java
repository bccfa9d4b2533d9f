package io.aliquot.api.ports;

import io.aliquot.api.format.FormatException;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The addresses from which the API servers' connections come, as far as the chart value {@code networkPolicy.apiServers}
 * names them. Immutable.
 */
public record ApiServers(List<Range> ranges) {
    /** The environment variable: ranges, comma-separated; empty if they are not known. */
    public static final String VARIABLE = "ALIQUOT_API_SERVERS";

    public static final ApiServers UNKNOWN = new ApiServers(List.of());

    private static final String OCTET = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])";
    /** Literal addresses only: {@link InetAddress} looks up all else by DNS. */
    private static final Pattern CIDR =
            Pattern.compile("((?:" + OCTET + "\\.){3}" + OCTET + "|[0-9a-fA-F.]*:[0-9a-fA-F:.]*)/([0-9]{1,3})");

    private static final int IPV4_BYTES = 4;

    /**
     * A range of addresses.
     *
     * @param network their first bits
     * @param others the number of their other bits
     * @param bytes of an address: 4 or 16
     */
    record Range(BigInteger network, int others, int bytes) {
        boolean contains(byte[] address) {
            return address.length == bytes
                    && new BigInteger(1, address).shiftRight(others).equals(network);
        }
    }

    public ApiServers {
        ranges = List.copyOf(ranges);
    }

    /**
     * Reads the ranges.
     *
     * @throws FormatException that names the variable
     */
    public static ApiServers parse(String variable, String text) {
        return text.isEmpty()
                ? UNKNOWN
                : new ApiServers(Arrays.stream(text.split(",", -1))
                        .map(cidr -> range(variable, cidr))
                        .toList());
    }

    private static Range range(String variable, String text) {
        Matcher cidr = CIDR.matcher(text);
        if (cidr.matches()) {
            try {
                byte[] address = InetAddress.getByName(cidr.group(1)).getAddress();
                int others = address.length * Byte.SIZE - Integer.parseInt(cidr.group(2));
                if (others >= 0) {
                    return new Range(new BigInteger(1, address).shiftRight(others), others, address.length);
                }
            } catch (UnknownHostException e) {
                throw new FormatException(variable + ": " + FormatException.quote(text) + " is no address", e);
            }
        }
        throw new FormatException(
                variable + ": expected a range of addresses such as 10.0.0.0/24, found " + FormatException.quote(text));
    }

    /** Whether the addresses are known. */
    public boolean known() {
        return !ranges.isEmpty();
    }

    /** What the address of a connection tells. An IPv4-mapped IPv6 address is an IPv4 address. */
    public Peer peer(InetAddress from) {
        try {
            byte[] address = InetAddress.getByAddress(from.getAddress()).getAddress();
            byte[] client = Arrays.copyOf(address, address.length == IPV4_BYTES ? IPV4_BYTES : Long.BYTES);
            // The probe of a replica's own port comes from there, and no other pod can.
            boolean samePod = from.equals(InetAddress.getLoopbackAddress());
            return new Peer(
                    new BigInteger(1, client).longValue(),
                    known() && (samePod || ranges.stream().anyMatch(range -> range.contains(address))));
        } catch (UnknownHostException e) {
            throw new IllegalStateException(e); // an address has 4 or 16 bytes
        }
    }
}
