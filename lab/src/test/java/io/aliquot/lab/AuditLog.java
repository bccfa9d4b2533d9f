package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The API server's audit log of write requests, from a given moment on. */
final class AuditLog {
    private static final String ALIQUOT_ACCOUNTS = "system:serviceaccount:" + Lab.NAMESPACE + ":";
    private static final JsonMapper JSON = new JsonMapper();

    private final String file;
    private final long offset;

    /** One answered write request. */
    record Write(String user, String verb, String object, int code) {}

    private AuditLog(String file, long offset) {
        this.file = file;
        this.offset = offset;
    }

    static AuditLog fromNowOn(Lab lab) {
        String file = lab.setting("AUDIT_LOG");
        try (var log = new RandomAccessFile(file, "r")) {
            return new AuditLog(file, log.length());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Writes by Aliquot's service accounts, without Events and without renewals of the scheduler's Lease, which also
     * happen when there are no pods.
     */
    List<Write> aliquotWrites() {
        return writes().stream()
                .filter(write -> write.user().startsWith(ALIQUOT_ACCOUNTS))
                .filter(write ->
                        !write.object().startsWith("events") && !write.object().startsWith("leases"))
                .map(write -> new Write(
                        write.user().substring(ALIQUOT_ACCOUNTS.length()), write.verb(), write.object(), write.code()))
                .toList();
    }

    /** The Bindings of all schedulers. */
    List<Write> bindings() {
        return writes().stream()
                .filter(write -> write.verb().equals("create") && write.object().startsWith("pods/binding "))
                .toList();
    }

    private List<Write> writes() {
        var writes = new ArrayList<Write>();
        for (String line : read().split("\n", -1)) {
            if (line.isEmpty()) {
                continue;
            }
            JsonNode entry = parse(line);
            JsonNode object = entry.path("objectRef");
            writes.add(new Write(
                    entry.path("user").path("username").asString(""),
                    entry.path("verb").asString(""),
                    object.path("resource").asString("")
                            + (object.has("subresource")
                                    ? "/" + object.get("subresource").asString("")
                                    : "")
                            + " "
                            + object.path("name").asString(""),
                    entry.path("responseStatus").path("code").asInt(0)));
        }
        return writes;
    }

    private static JsonNode parse(String line) {
        try {
            return JSON.readTree(line);
        } catch (JacksonException e) {
            throw new IllegalStateException("a line of the audit log is not JSON: " + line, e);
        }
    }

    private String read() {
        try (var log = new RandomAccessFile(file, "r")) {
            log.seek(offset);
            var bytes = new byte[Math.toIntExact(log.length() - offset)];
            log.readFully(bytes);
            return new String(bytes, UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
