package io.aliquot.deviceplugin.files;

import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.io.IOException;

/** System calls that Java lacks. Each returns -1 on an error, whose number {@link Native#getLastError} then returns. */
final class Libc {
    // fcntl.h, the same on x86-64 and arm64 except O_NOFOLLOW
    static final int O_RDWR = 2;
    static final int O_NONBLOCK = 0x800;
    static final int O_CLOEXEC = 0x80000;
    static final int O_NOFOLLOW = System.getProperty("os.arch").equals("aarch64") ? 0x8000 : 0x20000;

    static final int EAGAIN = 11;
    static final int EOPNOTSUPP = 95;

    static {
        Native.register("c");
    }

    private Libc() {}

    static native int open(String path, int flags);

    static native int close(int fd);

    static native int statx(int folder, String path, int flags, int mask, Pointer status);

    static native long preadv2(int fd, Pointer parts, int count, long at, int flags);

    static native long pread(int fd, Pointer bytes, long count, long at);

    static native long pwrite(int fd, byte[] bytes, long count, long at);

    static native int ftruncate(int fd, long size);

    static native int fchmod(int fd, int mode);

    static native long flistxattr(int fd, byte[] names, long size);

    static native int fremovexattr(int fd, byte[] name);

    static native String strerror(int number);

    /** The error of this thread's latest call. */
    static IOException error(String call) {
        return new IOException(call + ": " + strerror(Native.getLastError()));
    }
}
