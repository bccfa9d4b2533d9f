package io.aliquot.deviceplugin.report;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.net.spi.InetAddressResolver;
import java.net.spi.InetAddressResolverProvider;
import java.util.stream.Stream;

/**
 * Resolves names as usual, and addresses never. The JDK's HttpsServer asks for the name of each client before it answers
 * (sun.net.httpserver.SSLStreams), which takes 10 s and more where the name service does not answer.
 */
public final class NoReverseLookups extends InetAddressResolverProvider {
    @Override
    public InetAddressResolver get(Configuration configuration) {
        InetAddressResolver builtin = configuration.builtinResolver();
        return new InetAddressResolver() {
            @Override
            public Stream<InetAddress> lookupByName(String host, LookupPolicy policy) throws UnknownHostException {
                return builtin.lookupByName(host, policy);
            }

            @Override
            public String lookupByAddress(byte[] address) throws UnknownHostException {
                throw new UnknownHostException("names of addresses are not looked up");
            }
        };
    }

    @Override
    public String name() {
        return "no reverse lookups";
    }
}
