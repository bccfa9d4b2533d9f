package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;

/** The API server's audit log of write requests, from a given moment on. */
final class AuditLog {
    private static final String ALIQUOT_ACCOUNTS = "system:serviceaccount:" + Lab.NAMESPACE + ":";
    private static final ObjectMapper JSON = new ObjectMapper();

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
        var writes = new ArrayList<Write>();
        for (String line : read().split("\n", -1)) {
            if (line.isEmpty()) {
                continue;
            }
            JsonNode entry = parse(line);
            String user = entry.path("user").path("username").asText();
            JsonNode object = entry.path("objectRef");
            String resource = object.path("resource").asText();
            if (!user.startsWith(ALIQUOT_ACCOUNTS)
                    || List.of("events", "leases").contains(resource)) {
                continue;
            }
            writes.add(new Write(
                    user.substring(ALIQUOT_ACCOUNTS.length()),
                    entry.path("verb").asText(),
                    resource
                            + (object.has("subresource")
                                    ? "/" + object.get("subresource").asText()
                                    : "")
                            + " "
                            + object.path("name").asText(),
                    entry.path("responseStatus").path("code").asInt()));
        }
        return writes;
    }

    private static JsonNode parse(String line) {
        try {
            return JSON.readTree(line);
        } catch (IOException e) {
            throw new UncheckedIOException("a line of the audit log is not JSON: " + line, e);
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
