package io.aliquot.scheduler.logging;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.ledger.PodId;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The log in both formats of the chart, as the program writes it. */
class PodFieldsTest {
    private static final PodId POD = new PodId("team", "train-0", "6c1f");

    @SpringBootConfiguration(proxyBeanMethods = false)
    static class Program {}

    @AfterAll
    static void restoreTextFormat() {
        log("", logger -> {});
    }

    @Test
    void inJsonEveryLineIsAnObjectAndALineAboutAPodNamesThePod() {
        List<String> lines = log("ecs", logger -> {
            logger.info("bound {} node={}", POD, "n1");
            logger.info("nothing about a pod {}", 3);
            logger.warn("a \"quote\"\nand a line", new IllegalStateException("inside"));
        });

        List<JsonNode> ours = lines.stream()
                .map(JsonMapper.shared()::readTree)
                .filter(line -> line.at("/log/logger").asString().equals("test.PodFields"))
                .toList();
        assertThat(ours).hasSize(3);
        assertThat(ours.get(0).get("pod").toString())
                .isEqualTo("{\"namespace\":\"team\",\"name\":\"train-0\",\"uid\":\"6c1f\"}");
        assertThat(ours.get(0).get("message").asString()).isEqualTo("bound pod=team/train-0 uid=6c1f node=n1");
        assertThat(ours.get(0).at("/log/level").asString()).isEqualTo("INFO");
        assertThat(ours.get(0).at("/service/name").asString()).isEqualTo("aliquot-scheduler");
        assertThat(ours.get(1).has("pod")).isFalse();
        assertThat(ours.get(2).at("/error/message").asString()).isEqualTo("inside");
    }

    @Test
    void inTextALineAboutAPodNamesThePod() {
        assertThat(log("", logger -> logger.info("bound {} node={}", POD, "n1")))
                .anyMatch(line -> line.endsWith(" INFO  PodFields bound pod=team/train-0 uid=6c1f node=n1"));
    }

    private interface Work {
        void with(Logger logger);
    }

    private static List<String> log(String format, Work work) {
        PrintStream before = System.out;
        var written = new ByteArrayOutputStream();
        System.setOut(new PrintStream(written, true, StandardCharsets.UTF_8));
        try {
            new SpringApplicationBuilder(Program.class)
                    .web(WebApplicationType.NONE)
                    .properties("ALIQUOT_LOG_FORMAT=" + format)
                    .run()
                    .close();
            work.with(LoggerFactory.getLogger("test.PodFields"));
        } finally {
            System.setOut(before);
        }
        return written.toString(StandardCharsets.UTF_8).lines().toList();
    }
}
