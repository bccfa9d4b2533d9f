package io.aliquot.deviceplugin.kubelet;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.ClosedWatchServiceException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/** The folder in which the kubelet and its device plugins have their sockets. */
final class PluginFolder {
    private static final String KUBELET_SOCKET = "kubelet.sock";
    private static final String OURS = "aliquot";
    private static final String SUFFIX = ".sock";

    private final Path path;
    private final String ownPrefix;
    private final InstantSource clock;

    /** {@code plugin} tells the sockets of Aliquot's plugins apart; it is no prefix of another one's. */
    PluginFolder(Path path, String plugin, InstantSource clock) {
        this.path = path;
        this.ownPrefix = OURS + plugin + "-";
        this.clock = clock;
    }

    Path kubeletSocket() {
        return path.resolve(KUBELET_SOCKET);
    }

    /** The kubelet that made the present socket; empty if there is no socket. */
    Optional<KubeletInstance> kubelet() throws IOException {
        try {
            var attributes =
                    Files.readAttributes(kubeletSocket(), BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            return Optional.of(
                    new KubeletInstance(Objects.toString(attributes.fileKey()), attributes.lastModifiedTime()));
        } catch (NoSuchFileException e) {
            return Optional.empty();
        }
    }

    /**
     * The kubelet that listens on the present socket. It has emptied the folder before.
     *
     * @throws IOException if none listens, for example because the socket is that of a killed one
     */
    KubeletInstance listeningKubelet() throws IOException {
        SocketChannel.open(UnixDomainSocketAddress.of(kubeletSocket())).close();
        return kubelet()
                .orElseThrow(() -> new NoSuchFileException(kubeletSocket().toString()));
    }

    /**
     * Calls {@code onChange} within milliseconds of each creation and removal of a file, by inotify and a thread of its own,
     * until the result is called.
     */
    Runnable watch(Runnable onChange) throws IOException {
        WatchService changes = path.getFileSystem().newWatchService();
        try {
            path.register(changes, StandardWatchEventKinds.ENTRY_CREATE, StandardWatchEventKinds.ENTRY_DELETE);
        } catch (IOException e) {
            changes.close();
            throw e;
        }
        var thread = new Thread(() -> follow(changes, onChange), "kubelet-folder");
        thread.setDaemon(true);
        thread.start();
        return () -> close(changes);
    }

    private static void close(WatchService changes) {
        try {
            changes.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void follow(WatchService changes, Runnable onChange) {
        try {
            WatchKey key;
            do {
                key = changes.take();
                key.pollEvents();
                onChange.run();
            } while (key.reset());
        } catch (ClosedWatchServiceException | InterruptedException e) {
            // the watch is closed
        }
    }

    /** The path for a new socket of this plugin. An earlier run cannot have used it, because it contains the time. */
    Path newOwnSocket() {
        return path.resolve(ownPrefix + Long.toHexString(clock.millis()) + SUFFIX);
    }

    void removeOwnSockets() throws IOException {
        try (DirectoryStream<Path> sockets = Files.newDirectoryStream(path, ownPrefix + "*" + SUFFIX)) {
            for (Path socket : sockets) {
                Files.deleteIfExists(socket);
            }
        }
    }

    /** The names of the sockets of plugins that are not Aliquot's, sorted. */
    List<String> otherSockets() {
        var names = new ArrayList<String>();
        try (DirectoryStream<Path> sockets = Files.newDirectoryStream(path, "*" + SUFFIX)) {
            for (Path socket : sockets) {
                String name = socket.getFileName().toString();
                if (!name.equals(KUBELET_SOCKET) && !name.startsWith(OURS + "-") && !name.startsWith(OURS + ".")) {
                    names.add(name);
                }
            }
        } catch (IOException e) {
            return List.of(); // no folder, so no other plugin
        }
        Collections.sort(names);
        return names;
    }

    @Override
    public String toString() {
        return path.toString();
    }
}
