package io.aliquot.scheduler.certificate;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Makes the API server trust an authority, by the {@code caBundle} of Aliquot's webhooks and of its APIService: the program
 * of the chart's Job. Its account has no right but to patch these two objects, so it reads nothing from the API server: it
 * waits until the kubelet shows it the authority, which the scheduler creates, and repeats what the API server refuses,
 * because Helm creates the objects after the Job.
 */
public final class CaBundles {
    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    private static final long PAUSE_MILLIS = 1000;

    private static final String WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/";
    private static final String API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices/";

    private CaBundles() {}

    /**
     * Writes the caBundles, as often as it takes.
     *
     * @param arguments the file, which may appear later, with the authority's certificate and those to be trusted beside it, in
     *     PEM; the name of the MutatingWebhookConfiguration; the names of all its webhooks, with commas between them; and, unless there is none,
     *     the name of the APIService
     */
    public static void write(List<String> arguments) throws IOException, InterruptedException {
        MountedSecret.await(Path.of(arguments.get(0)), CertificateKeeper.AUTHORITY_SECRET);
        // Reads the account's token, which the kubelet may have renewed meanwhile.
        write(new ConfigBuilder().withHttp2Disable(true).build(), arguments);
    }

    static void write(Config config, List<String> arguments) throws IOException, InterruptedException {
        var apiServer = new ApiServerClient(config);
        String caBundle = Base64.getEncoder().encodeToString(Files.readAllBytes(Path.of(arguments.get(0))));
        // Merges the webhooks by their names. A webhook that is not there yet would be added, and is refused as
        // incomplete.
        String webhooks = Arrays.stream(arguments.get(2).split(",", -1))
                .map(name -> """
                        {"name":"%s","clientConfig":{"caBundle":"%s"}}""".formatted(name, caBundle))
                .collect(Collectors.joining(",", "{\"webhooks\":[", "]}"));
        patch(apiServer, WEBHOOKS + arguments.get(1), "application/strategic-merge-patch+json", webhooks);
        if (arguments.size() > 3) {
            String service = """
                    {"spec":{"caBundle":"%s"}}""".formatted(caBundle);
            patch(apiServer, API_SERVICES + arguments.get(3), "application/merge-patch+json", service);
        }
    }

    private static void patch(ApiServerClient apiServer, String path, String type, String body)
            throws InterruptedException {
        for (String last = ""; ; TimeUnit.MILLISECONDS.sleep(PAUSE_MILLIS)) {
            String outcome;
            try {
                Answer answer = apiServer.send("PATCH", path, type, body, TIMEOUT);
                if (answer.isSuccessful()) {
                    System.out.println("Wrote the caBundle of " + path);
                    return;
                }
                outcome = answer.code() + " " + answer.text();
            } catch (IOException e) {
                outcome = String.valueOf(e);
            }
            if (!outcome.equals(last)) {
                System.out.println("Cannot write the caBundle of " + path + " yet: " + outcome);
            }
            last = outcome;
        }
    }
}
