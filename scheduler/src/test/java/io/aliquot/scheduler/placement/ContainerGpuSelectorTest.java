package io.aliquot.scheduler.placement;

import static io.aliquot.scheduler.placement.PlacementPolicy.BINPACK;
import static io.aliquot.scheduler.placement.PlacementPolicy.SPREAD;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.SharingMode;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which GPUs of a node a container gets, by their indexes. {@link Gpus#node} explains how nodes are written. */
class ContainerGpuSelectorTest {
    private static final String TWO = "APP:main: gpu=2 gpumem=10";
    private static final Map<String, String> TOPOLOGY = Map.of("aliquot.io/gpu-placement", "topology");

    @ParameterizedTest(name = "{0}")
    @CsvSource(delimiter = '|', textBlock = """
            a domain comes before the policy         | 0:50 1:50 1:10 0:0   | ''                  | BINPACK | 1 2
            of two domains the fuller one            | 0:10 0:0 1:20 1:0    | ''                  | BINPACK | 2 3
            of two domains the emptier one           | 0:20 0:0 1:10 1:0    | ''                  | SPREAD  | 2 3
            of equal domains the first one           | 1:0 1:0 0:0 0:0      | ''                  | BINPACK | 2 3
            a domain with too few GPUs is left out   | 0:95 0:50 1:0 1:0    | ''                  | BINPACK | 2 3
            the best GPUs of a domain                | 0:0 0:50 0:20 1:60   | ''                  | BINPACK | 1 2
            GPUs of unknown domains share none       | -1:50 -1:50 0:10 0:0 | ''                  | BINPACK | 2 3
            of equal domains the better linked one   | 0:0 0:0 1:0 1:0      | 0-1:pix 2-3:nvlink4 | BINPACK | 2 3
            links of a later domain may be worse     | 0:0 0:0 1:0 1:0      | 0-1:nvlink4 2-3:pix | SPREAD  | 0 1
            the policy comes before a domain's links | 0:20 0:0 1:0 1:0     | 0-1:pix 2-3:nvlink4 | BINPACK | 0 1
            """)
    void withANumaDomainRequired(String rule, String gpus, String links, PlacementPolicy policy, String selected) {
        assertThat(selected(gpus, links, policy, Map.of("aliquot.io/numa", "required"), TWO))
                .isEqualTo(selected);
    }

    @Test
    void aContainerWithASingleVgpuNeedsNoNumaDomain() {
        Map<String, String> annotations = Map.of("aliquot.io/numa", "required");
        assertThat(selected("-1:0 -1:50", "", BINPACK, annotations, "APP:main: gpumem=10", "APP:other: gpumem=5"))
                .isEqualTo("1");
    }

    @Test
    void aPreferenceForANumaDomainThatNoneMeetsIsDropped() {
        assertThat(selected("0:10 1:50 2:50", "", BINPACK, Map.of("aliquot.io/numa", "preferred"), TWO))
                .isEqualTo("1 2");
    }

    @ParameterizedTest(name = "{0}")
    @CsvSource(delimiter = '|', textBlock = """
            the better linked among equally full GPUs  | 0:0 0:0 0:0 0:0    | 0-1:pix 1-3:nvlink4 2-3:nvlink2  | 2 | 1 3
            the fullest, however they are linked       | 0:50 0:40 0:0      | 0-1:sys 0-2:nvlink4              | 2 | 0 1
            of the fullest the better linked           | 0:0 0:50 0:50 0:50 | 1-2:pix 2-3:nvlink4 0-3:nvlink12 | 2 | 2 3
            the best linked to the fullest             | 0:50 0:0 0:0 0:0   | 0-3:nvlink4 1-2:nvlink12         | 2 | 0 3
            the best linked to it and among each other | 0:50 0:0 0:0 0:0   | 0-3:nvlink4 1-2:nvlink2 2-3:pix  | 3 | 0 2 3
            the shorter of two PCIe paths              | 0:0 0:0 0:0 0:0    | 0-1:sys 0-2:node 1-3:phb 2-3:pxb | 2 | 2 3
            the better one of two reports of a link    | 0:0 0:0 0:0 0:0    | 0-1:pix 1-0:nvlink4 2-3:nvlink2  | 2 | 0 1
            whichever GPU reports it                   | 0:0 0:0 0:0 0:0    | 0-1:nvlink4 1-0:pix 2-3:nvlink2  | 2 | 0 1
            an NVLink before any PCIe path             | 0:0 0:0 0:0 0:0    | 0-1:pix 2-3:nvlink1              | 2 | 2 3
            """)
    void linksDecideAmongGpusThatThePolicyRatesEqual(
            String rule, String gpus, String links, int vgpus, String selected) {
        assertThat(selected(gpus, links, BINPACK, Map.of(), "APP:main: gpumem=10 gpu=" + vgpus))
                .isEqualTo(selected);
    }

    @ParameterizedTest(name = "{0}")
    @CsvSource(delimiter = '|', textBlock = """
            a better linked GPU before a fuller one   | 0:50 0:40 0:0       | 0-1:sys 0-2:nvlink4 | BINPACK | 0 2
            the slightest better link outweighs it    | 0:0 0:0 0:80 0:80   | 0-1:pix 2-3:pxb     | BINPACK | 0 1
            the fuller of equally linked GPUs         | 0:0 0:0 0:50 0:50   | 0-1:pix 2-3:pix     | BINPACK | 2 3
            the emptier of equally linked GPUs        | 0:50 0:50 0:0 0:0   | 0-1:pix 2-3:pix     | SPREAD  | 2 3
            without known links the policy decides    | 0:0 0:50 0:50       | ''                  | BINPACK | 1 2
            """)
    void linksComeFirstForAPodOrOnANodeOfTopology(
            String rule, String gpus, String links, PlacementPolicy policy, String selected) {
        assertThat(selected(gpus, links, policy, TOPOLOGY, TWO)).isEqualTo(selected);
        assertThat(selected(Gpus.node(gpus, links, SharingMode.TOPOLOGY), policy, Map.of(), TWO))
                .isEqualTo(selected);
    }

    @Test
    void withTopologyLinksDecideBetweenNumaDomainsAndThenThePolicy() {
        Map<String, String> annotations = Map.of("aliquot.io/numa", "required", "aliquot.io/gpu-placement", "topology");
        assertThat(selected("0:20 0:0 1:0 1:0", "0-1:pix 2-3:nvlink4", BINPACK, annotations, TWO))
                .isEqualTo("2 3");
        assertThat(selected("0:0 0:0 1:20 1:0", "0-1:pix 2-3:pix", BINPACK, annotations, TWO))
                .isEqualTo("2 3");
        assertThat(selected("0:0 0:0 1:20 1:0", "0-1:pix 2-3:sys", BINPACK, annotations, TWO))
                .isEqualTo("0 1");
    }

    @Test
    void linksToTheGpusOfAnotherContainerCount() {
        // The first container gets GPU 1, the fullest, where the second one no longer fits.
        String[] containers = {"APP:first: gpumem=60", "APP:main: gpumem=50"};
        assertThat(selected("0:0 0:10 0:0", "0-2:nvlink4 1-2:pix", BINPACK, Map.of(), containers))
                .isEqualTo("2");
        assertThat(selected("0:5 0:10 0:0", "1-2:nvlink4", BINPACK, Map.of(), containers))
                .as("the policy comes first")
                .isEqualTo("0");
        assertThat(selected("0:5 0:10 0:0", "1-2:nvlink4", BINPACK, TOPOLOGY, containers))
                .as("links come first")
                .isEqualTo("2");
        assertThat(selected(
                        "2:0 0:0 0:0 1:0 1:0",
                        "0-4:nvlink4 1-2:pix 3-4:pix",
                        BINPACK,
                        Map.of("aliquot.io/numa", "required"),
                        "APP:first: gpu=1",
                        TWO))
                .as("also between NUMA domains")
                .isEqualTo("3 4");
    }

    @Test
    void withTopologyTwoContainersShareAGpuRatherThanALink() {
        String[] containers = {"APP:first: gpumem=60", "APP:main: gpumem=20"};
        assertThat(selected("0:10 0:0 0:20", "0-1:nvlink99", SPREAD, TOPOLOGY, containers))
                .isEqualTo("1");
    }

    private static String selected(
            String gpus, String links, PlacementPolicy policy, Map<String, String> annotations, String... containers) {
        return selected(Gpus.node(gpus, links, SharingMode.CORE_MEMORY), policy, annotations, containers);
    }

    /** The GPUs of the container {@code main}. */
    private static String selected(
            List<GpuInfo> node, PlacementPolicy policy, Map<String, String> annotations, String... containers) {
        var selection = (GpuSelection.Selected) GpuSelector.select(Gpus.request(annotations, containers), node, policy);
        List<String> uuids = node.stream().map(gpu -> gpu.gpu().uuid()).toList();
        return Gpus.of(selection.containers(), "main").uuids().stream()
                .map(uuid -> String.valueOf(uuids.indexOf(uuid)))
                .collect(Collectors.joining(" "));
    }
}
