package io.aliquot.scheduler.extensionapi.identity;

import java.util.List;
import java.util.Map;

/**
 * The user of a request, as the API server has authenticated it.
 *
 * @param uid empty if the API server sends none
 * @param extra by lower-case key
 */
public record RequestUser(String name, String uid, List<String> groups, Map<String, List<String>> extra) {
    /** The attribute of each request to the API's resources, except discovery. */
    public static final String ATTRIBUTE = "aliquot.user";

    public RequestUser {
        groups = List.copyOf(groups);
        extra = Map.copyOf(extra);
    }
}
