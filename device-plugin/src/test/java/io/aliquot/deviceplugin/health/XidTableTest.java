package io.aliquot.deviceplugin.health;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.health.XidTable.Severity;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class XidTableTest {
    private final XidTable table = XidTable.load(Set.of(), Set.of());

    @ParameterizedTest
    @CsvSource({
        "13, APPLICATION",
        "31, APPLICATION",
        "43, APPLICATION",
        "45, APPLICATION",
        "48, RESET",
        "63, INFORMATION",
        "64, RESET",
        "68, APPLICATION",
        "74, LINK",
        "79, REBOOT",
        "94, APPLICATION",
        "95, RESET",
        "109, APPLICATION",
        "119, RESET",
        "154, INFORMATION"
    })
    void theSeverityIsThatOfNvidiasCatalogOrOfItsDevicePlugin(int number, Severity severity) {
        assertThat(table.of(number).severity()).isEqualTo(severity);
        assertThat(table.of(number).meaning()).isNotEmpty();
    }

    @Test
    void anUnknownXidIsAnErrorOfTheGpu() {
        assertThat(table.of(1234)).isEqualTo(new XidTable.Entry(1234, Severity.GPU, ""));
        assertThat(table.of(1234).print()).isEqualTo("XID 1234");
        assertThat(table.of(48).print()).isEqualTo("XID 48 (double bit ECC error)");
    }

    @Test
    void theAdministratorsListsTakePrecedence() {
        XidTable changed = XidTable.load(Set.of(48, 1234), Set.of(31));

        assertThat(changed.of(48).severity()).isEqualTo(Severity.INFORMATION);
        assertThat(changed.of(1234).severity()).isEqualTo(Severity.INFORMATION);
        assertThat(changed.of(31)).isEqualTo(new XidTable.Entry(31, Severity.RESET, "GPU memory page fault"));
        assertThat(changed.of(95)).isEqualTo(table.of(95));
    }
}
