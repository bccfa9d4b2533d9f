package io.aliquot.deviceplugin.kubelet;

import io.aliquot.deviceplugin.v1beta1.Device;
import io.aliquot.deviceplugin.v1beta1.ListAndWatchResponse;
import java.util.OptionalInt;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The slots that the kubelet may give away: anonymous, {@code slot-000} and on, one per vGPU. Which GPU a slot becomes
 * is decided elsewhere, so an unhealthy GPU takes a share of them out of use, the last ones, and not particular ones.
 *
 * @param slots all of them, 0 or more
 * @param unhealthy those out of use, at most all
 */
public record AdvertisedSlots(int slots, int unhealthy) {
    static final AdvertisedSlots NONE = new AdvertisedSlots(0, 0);
    private static final Pattern ID = Pattern.compile("slot-([0-9]{3,6})");

    public AdvertisedSlots {
        if (slots < 0 || slots > 999_999 || unhealthy < 0 || unhealthy > slots) {
            throw new IllegalArgumentException(unhealthy + " unhealthy of " + slots + " slots");
        }
    }

    /** Slots that the kubelet may give away now. */
    public int healthy() {
        return slots - unhealthy;
    }

    ListAndWatchResponse print() {
        var list = ListAndWatchResponse.newBuilder();
        for (int i = 0; i < slots; i++) {
            list.addDevices(Device.newBuilder().setID(id(i)).setHealth(i < healthy() ? "Healthy" : "Unhealthy"));
        }
        return list.build();
    }

    static String id(int number) {
        return String.format("slot-%03d", number);
    }

    /** The number of a slot; empty for an id that isn't one of ours. */
    static OptionalInt number(String id) {
        Matcher form = ID.matcher(id);
        if (form.matches()) {
            int number = Integer.parseInt(form.group(1));
            if (id(number).equals(id)) {
                return OptionalInt.of(number);
            }
        }
        return OptionalInt.empty();
    }
}
