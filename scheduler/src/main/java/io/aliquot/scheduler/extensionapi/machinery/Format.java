package io.aliquot.scheduler.extensionapi.machinery;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/** The form in which a client wants objects: as they are, or as rows of a table. */
enum Format {
    OBJECTS,
    TABLE;

    /**
     * Reads the header {@code Accept}; of several forms the first one counts, as in the API server.
     *
     * @throws StatusException with code 406 if the client accepts none of them
     */
    static Format accepted(String header) {
        if (header.isBlank()) {
            return OBJECTS;
        }
        for (String part : header.split(",", -1)) {
            Optional<Format> format = of(part);
            if (format.isPresent()) {
                return format.get();
            }
        }
        throw StatusException.notAcceptable();
    }

    private static Optional<Format> of(String part) {
        String[] fields = part.split(";", -1);
        var parameters = new HashMap<String, String>();
        for (int i = 1; i < fields.length; i++) {
            String[] pair = fields[i].strip().split("=", 2);
            parameters.put(pair[0].toLowerCase(Locale.ROOT), pair.length == 2 ? pair[1] : "");
        }
        return switch (fields[0].strip().toLowerCase(Locale.ROOT)) {
            case "application/json", "application/*", "*/*" -> of(parameters);
            default -> Optional.empty();
        };
    }

    private static Optional<Format> of(Map<String, String> parameters) {
        String as = parameters.getOrDefault("as", "");
        if (as.isEmpty()) {
            return Optional.of(OBJECTS);
        }
        return as.equals("Table") && "meta.k8s.io".equals(parameters.get("g")) && "v1".equals(parameters.get("v"))
                ? Optional.of(TABLE)
                : Optional.empty();
    }
}
