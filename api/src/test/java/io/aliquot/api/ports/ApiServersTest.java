package io.aliquot.api.ports;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

final class ApiServersTest {
    @ParameterizedTest
    @CsvSource({
        "10.0.0.0/24, 10.0.0.255, true",
        "10.0.0.0/24, 10.0.1.0, false",
        "10.0.0.7/24, 10.0.0.1, true",
        "10.0.0.7/32, 10.0.0.7, true",
        "10.0.0.7/32, 10.0.0.6, false",
        "0.0.0.0/0, 203.0.113.1, true",
        "0.0.0.0/0, 2001:db8::1, false",
        "192.0.2.0/31, 192.0.2.2, false",
        "2001:db8::/32, 2001:db8:ffff::1, true",
        "2001:db8::/32, 2001:db9::1, false",
        "::/0, 10.0.0.1, false",
        "'10.0.0.1/32,2001:db8::1/128', 2001:db8::1, true",
        "10.0.0.0/8, 127.0.0.1, true",
        "10.0.0.0/8, 127.0.0.2, false",
    })
    void rangesNameApiServers(String ranges, String address, boolean expected) throws UnknownHostException {
        assertThat(ApiServers.parse("A", ranges)
                        .peer(InetAddress.getByName(address))
                        .apiServer())
                .isEqualTo(expected);
    }

    @Test
    void withoutRangesNoApiServerIsKnown() {
        assertThat(ApiServers.parse("A", "")).isEqualTo(ApiServers.UNKNOWN);
        assertThat(ApiServers.UNKNOWN.peer(InetAddress.getLoopbackAddress()).apiServer())
                .isFalse();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "10.0.0.1",
                "10.0.0.0/33",
                "10.0.0.0/-1",
                "10.0.0.256/32",
                "10.0.0/24",
                "2001:db8::/129",
                "::ffff:10.0.0.0/104",
                "1::2::3/64",
                "api.example.com/32",
                "feed/16",
                "10.0.0.0/24,",
                " 10.0.0.0/24",
                ":/0",
                "10.0.0.0/99999999999",
            })
    void whatIsNoRangeIsRefused(String text) {
        assertThatThrownBy(() -> ApiServers.parse("ALIQUOT_API_SERVERS", text))
                .isInstanceOf(FormatException.class)
                .hasMessageStartingWith("ALIQUOT_API_SERVERS: ");
    }

    @Test
    void anIpv6NetworkOf64BitsIsOneClientAndAMappedAddressIsAnIpv4Address() throws UnknownHostException {
        assertThat(client("2001:db8::1")).isEqualTo(client("2001:db8::ffff:2")).isNotEqualTo(client("2001:db8:0:1::1"));
        assertThat(client("::ffff:10.0.0.1")).isEqualTo(client("10.0.0.1")).isNotEqualTo(client("10.0.0.2"));
    }

    private static long client(String address) throws UnknownHostException {
        return ApiServers.UNKNOWN.peer(InetAddress.getByName(address)).client();
    }
}
