package io.aliquot.scheduler.doctor;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;

/**
 * The command line.
 *
 * @param json whether the findings are printed as JSON
 * @param probe whether pods are created that show whether limits hold
 * @param namespace where they are created
 * @param image their image; empty for that of the node agents
 * @param bundle where the archive for others is written; empty if none is
 */
record Options(boolean json, boolean probe, String namespace, Optional<String> image, Optional<Path> bundle) {
    static final String USAGE = """
            aliquot doctor [OPTION...]: says what is wrong with an installation of Aliquot, a sentence for each finding

              -o, --output FORMAT     text (the default) or json
              --probe                 also runs a pod with 64 MiB of a GPU on each node, which shows whether a container
                                      sees its limits, and deletes it; needs the right to create pods
              --no-probe              does not
              -n, --namespace NAME    where these pods are created (default); not Aliquot's own namespace
              --probe-image IMAGE     their image, with a shell and grep; the default is that of the node agents
              --bundle FILE           also writes FILE, a .tar.gz for support: the findings, logs, events, metrics and
                                      the configuration of Aliquot, without Secrets and what other pods contain
              -h, --help              prints this text

            Reads the cluster of KUBECONFIG, or of the pod that it runs in, with the caller's rights. Exit codes: 0 nothing
            was found, or FILE is written, 1 there are findings, 2 the doctor could not look, or not write FILE.
            """;

    /**
     * Parses the arguments; of two that contradict each other the last one counts.
     *
     * @return empty if they ask for help
     * @throws IllegalArgumentException if they are invalid, with what to write instead
     */
    static Optional<Options> parse(List<String> arguments) {
        var options = new Options(false, false, "default", Optional.empty(), Optional.empty());
        for (Iterator<String> rest = arguments.iterator(); rest.hasNext(); ) {
            String argument = rest.next();
            switch (argument) {
                case "-h", "--help" -> {
                    return Optional.empty();
                }
                case "-o", "--output" -> options = options.withJson(isJson(value(argument, rest)));
                case "-ojson", "--output=json" -> options = options.withJson(true);
                case "--probe" -> options = options.withProbe(true);
                case "--no-probe" -> options = options.withProbe(false);
                case "-n", "--namespace" -> options = options.withNamespace(value(argument, rest));
                case "--bundle" -> options = options.withBundle(file(value(argument, rest)));
                case "--probe-image" -> options = options.withImage(value(argument, rest));
                default ->
                    throw new IllegalArgumentException(
                            "there is no option \"" + argument + "\"; all of them: aliquot doctor --help");
            }
        }
        return Optional.of(options);
    }

    private static String value(String option, Iterator<String> rest) {
        if (!rest.hasNext()) {
            throw new IllegalArgumentException("write a value after " + option + "; see aliquot doctor --help");
        }
        return rest.next();
    }

    private static boolean isJson(String format) {
        return switch (format) {
            case "json" -> true;
            case "text" -> false;
            default ->
                throw new IllegalArgumentException("-o takes text or json, and \"" + format + "\" is neither of them");
        };
    }

    private static Path file(String name) {
        Path file = Path.of(name).toAbsolutePath();
        Path folder = file.getParent();
        if (folder == null || Files.isDirectory(file) || !Files.isDirectory(folder)) {
            throw new IllegalArgumentException(
                    "--bundle takes the name of a file in a folder that exists, and \"" + name + "\" is none");
        }
        return file;
    }

    private Options withJson(boolean json) {
        return new Options(json, probe, namespace, image, bundle);
    }

    private Options withProbe(boolean probe) {
        return new Options(json, probe, namespace, image, bundle);
    }

    private Options withNamespace(String namespace) {
        return new Options(json, probe, namespace, image, bundle);
    }

    private Options withImage(String image) {
        return new Options(json, probe, namespace, Optional.of(image), bundle);
    }

    private Options withBundle(Path bundle) {
        return new Options(json, probe, namespace, image, Optional.of(bundle));
    }
}
