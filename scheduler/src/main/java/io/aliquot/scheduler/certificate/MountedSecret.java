package io.aliquot.scheduler.certificate;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * A Secret that the scheduler creates, in the volume of another pod of the release. The volume is optional: the kubelet retries
 * the mount of a Secret that is missing at ever longer intervals, of up to two minutes. So the program waits in place of the
 * kubelet, and {@link CertificateKeeper} has the kubelet refresh the volume.
 */
public final class MountedSecret {
    private static final long PAUSE_MILLIS = 100;

    private MountedSecret() {}

    /**
     * Returns once the file is there.
     *
     * @param secret its name, for the log
     */
    public static void await(Path file, String secret) throws InterruptedException {
        if (!Files.exists(file)) {
            System.out.println("Waiting for the scheduler to create Secret " + secret);
        }
        while (!Files.exists(file)) {
            TimeUnit.MILLISECONDS.sleep(PAUSE_MILLIS);
        }
    }
}
