# shellcheck shell=bash
# Builds Aliquot's images for the lab and for a release, from the same files the same bytes: a layer is a tar archive with
# fixed times, owners and order, of pinned Debian packages or of the build's output. The cache holds each layer under the
# hash of its inputs. No container runs, so that an x86-64 machine builds the images for arm64 too.

# A line for each package: GROUP ARCHITECTURE NAME VERSION SHA-256 PATH, the path at the mirror. Group base is the images'
# lowest layer, java what is needed besides to make the Java runtime. `./aliquot release --update-lock` writes it.
package_lock=$root/lab/packages.lock
debian_mirror=${ALIQUOT_DEBIAN_MIRROR:-http://deb.debian.org}

# What is asked for; the lock file has what these depend on as well. setpriv and chrt of util-linux start the programs, tar
# serves kubectl cp.
base_packages=(base-files base-passwd bash coreutils dash findutils grep gzip libc-bin libstdc++6 sed tar util-linux zlib1g)
java_packages=(openjdk-25-jdk-headless)

java_modules=java.base,java.desktop,java.instrument,java.logging,java.management,java.naming,java.net.http
java_modules+=,java.security.jgss,java.sql,java.xml,jdk.crypto.ec,jdk.httpserver,jdk.jfr,jdk.management,jdk.net
java_modules+=,jdk.unsupported,jdk.zipfs

# The time of all files and images, in seconds since 1970: that of the jars' entries
build_time() { date --date "$(sed -n 's#.*<project.build.outputTimestamp>\(.*\)</.*#\1#p' "$root/pom.xml")" +%s; }

project_version() { sed -n 's/^version: //p' "$root/charts/aliquot/Chart.yaml"; }

is_our_image() { [[ $1 == aliquot-* ]]; }

# --- Debian packages ------------------------------------------------------------------------------------------------

locked_packages() { # ARCHITECTURE GROUP...
    local arch=$1 group
    shift
    for group; do awk -v "group=$group" -v "arch=$arch" '$1 == group && $2 == arch' "$package_lock"; done
}

package_file() { printf '%s/images/packages/%s.deb' "$cache" "$1"; } # SHA-256

fetch_packages() { # ARCHITECTURE GROUP...
    local arch name version sha256 path file
    mkdir -p "$cache/images/packages"
    while read -r _ arch name version sha256 path; do
        file=$(package_file "$sha256")
        [ ! -f "$file" ] || continue
        rm -f "$file.new"
        /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "$debian_mirror/$path" "$file.new" "SHA256:$sha256" ||
            die "$name $version ($arch) of lab/packages.lock cannot be had from $debian_mirror/$path." \
                "If Debian has replaced this version by a newer one, renew the lock file: ./aliquot release --update-lock" \
                "A mirror that keeps old versions is named by ALIQUOT_DEBIAN_MIRROR, a URL with debian/ and debian-security/ below it."
        publish "$file.new" "$file"
    done < <(locked_packages "$@")
}

# Extracts packages without running their scripts, and without documentation and translations. Each leaves its control
# fields below var/lib/dpkg/status.d, where scanners look for the packages of images without dpkg.
extract_packages() { # FOLDER ARCHITECTURE GROUP...
    local folder=$1 name sha256
    fetch_packages "${@:2}"
    mkdir -p "$folder/var/lib/dpkg/status.d"
    while read -r _ _ name _ sha256 _; do
        dpkg-deb --fsys-tarfile "$(package_file "$sha256")" | tar --extract --directory "$folder" --keep-directory-symlink \
            --exclude='./usr/share/doc/*/[!c]*' --exclude='./usr/share/doc/*/changelog*' \
            --exclude='./usr/share/'{man,info,locale,lintian,bug,bash-completion}'/*'
        dpkg-deb --field "$(package_file "$sha256")" > "$folder/var/lib/dpkg/status.d/$name"
    done < <(locked_packages "${@:2}")
}

# What base-passwd's and libc-bin's scripts would do.
finish_base() { # FOLDER
    cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
    cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
    cp "$1/usr/share/libc-bin/nsswitch.conf" "$1/etc/nsswitch.conf"
}

# --- the lock file --------------------------------------------------------------------------------------------------

# Writes the packages that apt would install today into an empty system. Debian's own archive keys check the lists.
update_lock() {
    local arch new=$package_lock.new
    echo "# GROUP ARCHITECTURE NAME VERSION SHA-256 PATH, written by ./aliquot release --update-lock (see lab/layers.sh)" > "$new"
    for arch in amd64 arm64; do list_packages "$arch" >> "$new"; done
    mv "$new" "$package_lock"
}

list_packages() { # ARCHITECTURE
    local state suite
    state=$(mktemp -d)
    mkdir -p "$state"/{lists,archives}/partial "$state"/etc/{apt.conf.d,preferences.d}
    : > "$state/status"
    for suite in debian/\ trixie debian/\ trixie-updates debian-security/\ trixie-security; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian_mirror/$suite main"
    done > "$state/sources"
    cat > "$state/apt.conf" <<-END
		Dir::Etc "$state/etc"; Dir::Etc::sourcelist "$state/sources"; Dir::Etc::sourceparts "/dev/null";
		Dir::State "$state"; Dir::State::status "$state/status"; Dir::Cache "$state";
		APT::Architecture "$1"; APT::Architectures "$1"; APT::Install-Recommends "false"; APT::Sandbox::User "root";
		Acquire::Languages "none";
	END
    export APT_CONFIG=$state/apt.conf
    apt-get update >&2
    list_group base "$1" "${base_packages[@]}" | tee "$state/base"
    list_group java "$1" "${base_packages[@]}" "${java_packages[@]}" | sed 's/^java/base/' | grep -vxFf "$state/base" | sed 's/^base/java/'
    rm -r "$state"
}

list_group() { # GROUP ARCHITECTURE PACKAGE...
    apt-get install --simulate "${@:3}" | sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1=\2/p' | LC_ALL=C sort |
        xargs apt-cache show --no-all-versions |
        awk -v "group=$1" -v "arch=$2" '
            /^Package: / { name = $2 } /^Version: / { version = $2 } /^SHA256: / { sha256 = $2 } /^Filename: / { path = $2 }
            /^$/ && name { print group, arch, name, version, sha256, (path ~ /^pool\/updates/ ? "debian-security/" : "debian/") path; name = "" }'
}

# --- layers ---------------------------------------------------------------------------------------------------------

# The output of the native build for an architecture
native_build() { # ARCHITECTURE
    if [ "$1" = amd64 ]; then printf native-shim/build; else printf 'native-shim/target/%s' "$1"; fi
}

# The files of the checkout that a layer is made of: lines of MODE, FILE OR FOLDER, and the path in the image.
layer_files() { # LAYER ARCHITECTURE
    local native file
    native=$(native_build "$2")
    case $1 in
        scheduler)
            echo 755 scheduler/entrypoint opt/aliquot/entrypoint
            echo 644 scheduler/java.options opt/aliquot/java.options
            echo 644 simulator/target/aliquot-simulator.jar opt/aliquot-simulator/aliquot-simulator.jar
            ;;
        agent-libraries) echo 644 device-plugin/target/lib opt/aliquot/lib ;;
        agent)
            echo 755 device-plugin/entrypoint opt/aliquot/entrypoint
            echo 644 device-plugin/java.options opt/aliquot/java.options
            echo 644 device-plugin/target/aliquot-device-plugin.jar opt/aliquot/aliquot-device-plugin.jar
            echo 644 "$native/VERSION" opt/aliquot/shim/VERSION
            for file in libaliquot.so arbiter/aliquot-arbiter hook/aliquot-hook; do
                echo 755 "$native/$file" "opt/aliquot/shim/$(basename $file)"
            done
            ;;
        fake-driver)
            for file in libcuda.so.1 libnvidia-ml.so.1 nvidia-smi aliquot-fake-driver; do
                echo 755 "$native/fake-driver/$file" "opt/aliquot/fake-driver/$file"
            done
            ;;
    esac
}

# The jar from which a layer is unpacked, for those of which layer_files does not say everything
layer_jar() { # LAYER
    case $1 in scheduler | scheduler-libraries) echo scheduler/target/aliquot-scheduler.jar ;; esac
}

fill_layer() { # LAYER ARCHITECTURE FOLDER
    local mode source target
    case $1 in
        base) extract_packages "$3" "$2" base && finish_base "$3" ;;
        java) make_java_runtime "$2" "$3/opt/java" "$3.work" ;;
        # An unpacked program starts faster than jars inside a jar.
        scheduler) unpack_scheduler "$3/opt/aliquot" && rm -r "$3/opt/aliquot/lib" ;;
        scheduler-libraries) unpack_scheduler "$3/opt/aliquot" && rm "$3"/opt/aliquot/*.jar ;;
    esac
    while read -r mode source target; do
        mkdir -p "$3/$(dirname "$target")"
        cp -r "$root/$source" "$3/$target"
        find "$3/$target" -type f -exec chmod "$mode" {} +
    done < <(layer_files "$1" "$2")
}

unpack_scheduler() { # FOLDER
    mkdir -p "$(dirname "$1")"
    TZ=UTC java -Djarmode=tools -jar "$root/scheduler/target/aliquot-scheduler.jar" extract --destination "$1"
}

# A Java runtime with just the modules that our programs use, and an archive of their classes (faster start, less memory).
# jlink is that of the JDK in the lock file; the archive is written by the runtime itself, for another architecture in an
# emulator. One thread and a heap of fixed size, so that each machine writes the same archive.
make_java_runtime() { # ARCHITECTURE FOLDER WORKING-FOLDER
    local system=$3/amd64 emulator='' modules=usr/lib/jvm/java-25-openjdk-$1/jmods
    extract_packages "$system" amd64 base java
    if [ "$1" != amd64 ]; then
        extract_packages "$system/target" "$1" base java
        modules=target/$modules
    fi
    mount -t proc proc "$system/proc"
    chroot "$system" /usr/lib/jvm/java-25-openjdk-amd64/bin/jlink --module-path "/$modules" --output /opt/java \
        --strip-java-debug-attributes --no-header-files --no-man-pages --add-modules "$java_modules"
    umount "$system/proc"
    mkdir -p "$(dirname "$2")"
    mv "$system/opt/java" "$2"
    # There is no list of the web's authorities: our programs trust the cluster's alone.
    rm -f "$2/lib/security/cacerts"
    if [ "$1" != amd64 ]; then
        system=$system/target emulator=/qemu-aarch64-static
        cp "$(command -v qemu-aarch64-static)" "$system/"
    fi
    mkdir -p "$system/opt/java"
    mount -t proc proc "$system/proc"
    mount --bind "$2" "$system/opt/java"
    # shellcheck disable=SC2086
    chroot "$system" $emulator /opt/java/bin/java -XX:+UseCompactObjectHeaders -XX:+UseSerialGC -Xmx256m -Xshare:dump
    umount "$system/opt/java" "$system/proc"
}

# What decides a layer's bytes, but for the compilers' output: the functions that make it, and its inputs
layer_hash() { # LAYER ARCHITECTURE
    local -a files
    mapfile -t files < <(layer_files "$1" "$2" | cut -d ' ' -f 2; layer_jar "$1")
    cd "$root"
    {
        declare -f fill_layer pack_layer layer_files
        build_time
        case $1 in
            base) locked_packages "$2" base; declare -f extract_packages finish_base ;;
            java)
                locked_packages amd64 base java; locked_packages "$2" base java
                declare -f extract_packages make_java_runtime; echo "$java_modules"
                ;;
            *) find "${files[@]}" -type f -printf '%p\0' | LC_ALL=C sort -z | xargs -0r sha256sum ;;
        esac
    } | sha256sum | cut -c1-16
}

layer_file() { printf '%s/images/layers/%s-%s-%s.tar.gz' "$cache" "$1" "$2" "$(layer_hash "$@")"; } # LAYER ARCHITECTURE

# Beside the compressed layer stands the digest of the uncompressed one, which an image's configuration names.
build_layer() { # LAYER ARCHITECTURE
    local file folder=$cache/images/tmp/$1-$2
    file=$(layer_file "$@")
    if [ -f "$file" ]; then
        touch "$file" "$file.diff"
        return
    fi
    echo "layer $1 for $2"
    rm -rf "$folder"*
    mkdir -p "$folder" "$(dirname "$file")"
    fill_layer "$1" "$2" "$folder"
    pack_layer "$folder" "$file"
    rm -rf --one-file-system "$folder"*
}

# No file needs the rights of its owner: no setuid and no setgid.
pack_layer() { # FOLDER FILE
    chmod 755 "$1"
    LC_ALL=C tar --create --format=gnu --sort=name --mtime="@$(build_time)" --owner=0 --group=0 --numeric-owner --mode=ug-s --directory "$1" . > "$2.tar"
    sha256sum "$2.tar" | cut -d ' ' -f 1 > "$2.diff"
    gzip --no-name --stdout "$2.tar" > "$2.new"
    rm "$2.tar"
    # Deletes layers of this name that no build has used for two hours. Another checkout may still use younger ones.
    find "$(dirname "$2")" -maxdepth 1 -name "$(basename "${2%-*}")-*" -mmin +120 -delete
    publish "$2.new" "$2"
}

# --- images ---------------------------------------------------------------------------------------------------------

image_layers() { # IMAGE, from the lowest layer
    case $1 in
        aliquot-scheduler) echo base java scheduler-libraries scheduler ;;
        aliquot-device-plugin) echo base java agent-libraries agent ;;
        aliquot-fake-driver) echo base fake-driver ;;
    esac
}

# How a container of an image starts, as members of an OCI image configuration. The agent is root on its node, because the
# kubelet's sockets are root's. MALLOC_ARENA_MAX: glibc otherwise keeps memory for every thread that ever allocated.
image_start() { # IMAGE
    case $1 in
        aliquot-scheduler) echo '"User":"65532:65532","Entrypoint":["/opt/aliquot/entrypoint"],' ;;
        aliquot-device-plugin) echo '"Entrypoint":["/opt/aliquot/entrypoint"],' ;;
        aliquot-fake-driver) echo '"Entrypoint":["/opt/aliquot/fake-driver/aliquot-fake-driver"],' ;;
    esac
}

image_title() { # IMAGE
    case $1 in
        aliquot-scheduler) echo "Aliquot scheduler" ;;
        aliquot-device-plugin) echo "Aliquot node agent" ;;
        aliquot-fake-driver) echo "Aliquot simulated NVIDIA driver" ;;
    esac
}

digest() { printf 'sha256:%s' "$(sha256sum "$1" | cut -d ' ' -f 1)"; } # FILE

our_image_inputs() { # IMAGE ARCHITECTURE
    local layer
    for layer in $(image_layers "$1"); do
        layer_files "$layer" "$2" | cut -d ' ' -f 2
        layer_jar "$layer"
    done
}

our_image_hash() { # IMAGE ARCHITECTURE
    local layer
    {
        for layer in $(image_layers "$1"); do layer_hash "$layer" "$2"; done
        declare -f image_start image_title write_layout
    } | sha256sum | cut -c1-16
}

# Puts a file into an OCI image layout and prints its descriptor, without the closing brace.
put_blob() { # LAYOUT MEDIA-TYPE FILE
    local name
    name=$(digest "$3")
    cp "$3" "$1/blobs/sha256/${name#sha256:}"
    printf '{"mediaType":"%s","digest":"%s","size":%s' "$2" "$name" "$(stat -c %s "$3")"
}

# The image as an OCI image layout, one manifest for each architecture. All members have a fixed order and no white space,
# so that the same layers give the same digests (OCI image specification 1.1).
write_layout() { # IMAGE FOLDER ARCHITECTURE...
    local name=$1 layout=$2 arch layer created separator layers diffs history manifests='' type=application/vnd.oci.image
    shift 2
    created=$(date --utc --date "@$(build_time)" +%FT%TZ)
    rm -rf "$layout"
    mkdir -p "$layout/blobs/sha256"
    for arch; do
        layers='' diffs='' history='' separator=''
        for layer in $(image_layers "$name"); do
            build_layer "$layer" "$arch" >&2
            layers+=$separator$(put_blob "$layout" $type.layer.v1.tar+gzip "$(layer_file "$layer" "$arch")")}
            diffs+=$separator\"sha256:$(cat "$(layer_file "$layer" "$arch").diff")\"
            history+=$separator"{\"created\":\"$created\",\"created_by\":\"lab/layers.sh: $layer\"}"
            separator=,
        done
        printf '{"created":"%s","architecture":"%s","os":"linux","config":{%s"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","MALLOC_ARENA_MAX=2"],"WorkingDir":"/tmp","Labels":{"org.opencontainers.image.title":"%s","org.opencontainers.image.version":"%s","org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":[%s]},"history":[%s]}' \
            "$created" "$arch" "$(image_start "$name")" "$(image_title "$name")" "$(project_version)" "$diffs" "$history" > "$layout/config"
        printf '{"schemaVersion":2,"mediaType":"%s","config":%s},"layers":[%s]}' \
            $type.manifest.v1+json "$(put_blob "$layout" $type.config.v1+json "$layout/config")" "$layers" > "$layout/manifest"
        manifests+=${manifests:+,}$(put_blob "$layout" $type.manifest.v1+json "$layout/manifest")",\"platform\":{\"architecture\":\"$arch\",\"os\":\"linux\"}}"
    done
    rm "$layout/config" "$layout/manifest"
    printf '{"schemaVersion":2,"mediaType":"%s","manifests":[%s]}' $type.index.v1+json "$manifests" > "$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
}
