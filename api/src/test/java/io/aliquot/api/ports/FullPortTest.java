package io.aliquot.api.ports;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

final class FullPortTest {
    private static final int MOST = 64;
    private static final int FEW = MOST / 8;
    private static final ApiServers KNOWN = ApiServers.parse("A", "10.1.0.0/16");

    private static final String API_SERVER = "10.1.0.1";
    private static final String TENANT = "10.2.0.1";
    private static final String OTHER = "10.2.0.2";

    private record Open(Peer peer, boolean silent, boolean authenticated, long since) implements FullPort.Connection {
        @Override
        public long inactive(long nanoTime) {
            return nanoTime - since;
        }
    }

    private final List<Open> open = new ArrayList<>();
    private long nanoTime;
    private FullPort port = new FullPort(MOST, ApiServers.UNKNOWN);

    private boolean connects(String address, boolean silent, boolean authenticated) throws UnknownHostException {
        Peer peer = port.peer(InetAddress.getByName(address));
        boolean admitted = port.admits(peer, open, ++nanoTime, open::remove);
        if (admitted) {
            open.add(new Open(peer, silent, authenticated, nanoTime));
        }
        return admitted;
    }

    private void connects(int times, String address, boolean silent) throws UnknownHostException {
        for (int i = 0; i < times; i++) {
            connects(address, silent, false);
        }
    }

    private long connectionsOf(String address) throws UnknownHostException {
        Peer peer = port.peer(InetAddress.getByName(address));
        return open.stream().filter(one -> one.peer().equals(peer)).count();
    }

    @Test
    void aPortThatIsNotFullClosesNothing() throws UnknownHostException {
        connects(MOST, TENANT, true);
        assertThat(open).hasSize(MOST).first().extracting(Open::since).isEqualTo(1L);
    }

    @Test
    void anAddressWithManyConnectionsTakesNoneOfAnother() throws UnknownHostException {
        connects(MOST - FEW, API_SERVER, false);
        connects(1000, TENANT, true);
        connects(1000, TENANT, false);
        assertThat(connectionsOf(API_SERVER)).isEqualTo(MOST - FEW);
        assertThat(open).hasSize(MOST);
    }

    /** Otherwise a client could keep all others out by filling the port with connections that are not silent. */
    @Test
    void anAddressWithFewConnectionsTakesOneOfTheAddressWithTheMost() throws UnknownHostException {
        connects(2, OTHER, false);
        connects(MOST, TENANT, false);
        connects(FEW + 3, API_SERVER, false);
        assertThat(connectionsOf(API_SERVER)).isEqualTo(FEW);
        assertThat(connectionsOf(OTHER)).isEqualTo(2);
    }

    @Test
    void theConnectionThatWasInactiveForTheLongestTimeGoesFirst() throws UnknownHostException {
        connects(MOST + 3, TENANT, false);
        assertThat(open).hasSize(MOST).first().extracting(Open::since).isEqualTo(4L);
    }

    @Test
    void silentConnectionsDoNotCloseQuietOnesOfTheirOwnAddress() throws UnknownHostException {
        connects(5, TENANT, false);
        connects(1000, TENANT, true);
        assertThat(open).filteredOn(one -> !one.silent()).hasSize(5);
    }

    /** The first bytes of an honest client may come a moment after its connection. */
    @Test
    void aNewConnectionIsNotClosedBeforeItsClientCanHaveSentSomething() throws UnknownHostException {
        connects(MOST, TENANT, false);
        connects(API_SERVER, true, false);
        connects(1000, TENANT, true);
        assertThat(connectionsOf(API_SERVER)).isEqualTo(1);
    }

    @Test
    void whatHasBeenSilentForLongGoesFirstWhoeverOpenedIt() throws UnknownHostException {
        connects(FEW, TENANT, true);
        nanoTime += Duration.ofSeconds(6).toNanos();
        connects(MOST, API_SERVER, false);
        assertThat(connectionsOf(TENANT)).isZero();
        assertThat(connectionsOf(API_SERVER)).isEqualTo(MOST);
    }

    @Test
    void connectionsOfKnownApiServersAreClosedForApiServersOnly() throws UnknownHostException {
        port = new FullPort(MOST, KNOWN);
        connects(10, TENANT, false);
        connects(MOST, API_SERVER, false);
        assertThat(connectionsOf(TENANT)).isZero();
        assertThat(connects(TENANT, false, false)).isFalse();
        assertThat(connectionsOf(API_SERVER)).isEqualTo(MOST);
        assertThat(connects("10.1.255.255", true, false)).isTrue();
        assertThat(connectionsOf(API_SERVER)).isEqualTo(MOST - 1);
        assertThat(connects("127.0.0.1", true, false)).isTrue();
    }

    @Test
    void aClientThatHasProvedItsIdentityIsClosedAfterAllOthers() throws UnknownHostException {
        for (int i = 0; i < MOST - 1; i++) {
            connects(OTHER, false, true);
        }
        connects(1000, TENANT, false);
        assertThat(connectionsOf(OTHER)).isEqualTo(MOST - 1);
        connects(OTHER, false, true);
        assertThat(connectionsOf(OTHER)).isEqualTo(MOST);
        assertThat(connects(TENANT, false, false))
                .as("the API servers' addresses are not known, and this may be one")
                .isTrue();
    }
}
