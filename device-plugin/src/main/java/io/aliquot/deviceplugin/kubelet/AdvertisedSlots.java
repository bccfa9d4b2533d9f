package io.aliquot.deviceplugin.kubelet;

import io.aliquot.deviceplugin.v1beta1.Device;
import io.aliquot.deviceplugin.v1beta1.ListAndWatchResponse;
import java.util.OptionalInt;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The devices that ListAndWatch advertises: anonymous slots, {@code slot-000} onwards, one per possible vGPU. A slot
 * belongs to no particular GPU, because the scheduler chooses the GPU at Bind. So for each unhealthy GPU, that many
 * slots at the end of the list are unhealthy.
 *
 * @param total 0 to 999999
 * @param unhealthy 0 to {@code total}
 */
public record AdvertisedSlots(int total, int unhealthy) {
    static final AdvertisedSlots NONE = new AdvertisedSlots(0, 0);
    private static final int MOST = 999_999;
    private static final Pattern ID = Pattern.compile("slot-([0-9]{3,6})");

    public AdvertisedSlots {
        if (total < 0 || total > MOST || unhealthy < 0 || unhealthy > total) {
            throw new IllegalArgumentException("expected 0 to " + MOST
                    + " slots and at most as many unhealthy ones, found " + total + " and " + unhealthy);
        }
    }

    /** Slots that the kubelet may allocate. */
    public int healthy() {
        return total - unhealthy;
    }

    ListAndWatchResponse print() {
        var list = ListAndWatchResponse.newBuilder();
        for (int i = 0; i < total; i++) {
            list.addDevices(Device.newBuilder().setID(id(i)).setHealth(i < healthy() ? "Healthy" : "Unhealthy"));
        }
        return list.build();
    }

    static String id(int number) {
        return String.format("slot-%03d", number);
    }

    /** The number of a slot; empty if the id is not a slot's. */
    static OptionalInt parseId(String id) {
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
