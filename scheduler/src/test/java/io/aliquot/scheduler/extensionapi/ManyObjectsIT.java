package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.testing.ApiServer.Response;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Ten thousand objects through a real API server. */
class ManyObjectsIT {
    private static final int SHARES = 10_000;
    private static final int PAGE = 500;
    private static final String LIST = "/apis/gpu.aliquot.io/v1alpha1/gpushares";

    @Test
    void aListIsCompleteWithAndWithoutPages(@TempDir Path folder) throws Exception {
        try (ConfigurableApplicationContext replica = ApiScaleProgram.start();
                var aggregation = new Aggregation(folder, replica)) {
            var unused = ApiScaleProgram.fill(replica, 100, SHARES);
            JsonNode all = read(aggregation.await(LIST));
            assertThat(names(all)).hasSize(SHARES);
            assertThat(all.at("/metadata/continue").isMissingNode()).isTrue();

            Set<String> paged = new HashSet<>();
            int pages = 0;
            String next = "";
            do {
                JsonNode page = read(aggregation
                        .server
                        .admin()
                        .get(LIST + "?limit=" + PAGE + (next.isEmpty() ? "" : "&continue=" + next)));
                paged.addAll(names(page));
                pages++;
                next = page.at("/metadata/continue").asString("");
            } while (!next.isEmpty());
            assertThat(pages).isEqualTo(SHARES / PAGE);
            assertThat(paged).isEqualTo(names(all));
        }
    }

    private static JsonNode read(Response response) {
        return JsonMapper.shared().readTree(response.expectSuccess().body());
    }

    private static Set<String> names(JsonNode list) {
        Set<String> names = new HashSet<>();
        list.get("items")
                .forEach(item -> names.add(item.at("/metadata/namespace").asString() + "/"
                        + item.at("/metadata/name").asString()));
        return names;
    }
}
