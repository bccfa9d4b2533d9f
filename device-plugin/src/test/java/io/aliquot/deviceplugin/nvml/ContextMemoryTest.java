package io.aliquot.deviceplugin.nvml;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class ContextMemoryTest {
    @ParameterizedTest
    @CsvSource({
        "7, 0, 5120, 160, V100",
        "7, 5, 2560, 40, T4",
        "8, 0, 6912, 216, A100",
        "8, 9, 4352, 51, RTX 4060 Ti",
        "9, 0, 16896, 264, H100 SXM",
        "12, 0, 24064, 282, RTX PRO 6000",
        "8, 0, 0, 0, no cores",
        "99, 0, 6912, 0, unknown",
    })
    void theLowerBoundIsOneKibibyteForEachResidentThread(int major, int minor, int cores, int mib, String gpu) {
        assertThat(ContextMemory.leastMiB(major, minor, cores)).as(gpu).isEqualTo(mib);
    }
}
