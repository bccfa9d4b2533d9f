# shellcheck shell=bash
# ./aliquot release: builds a release below target/release and publishes it in a registry. Tags move last, when everything
# that they name is there.

release_images=(aliquot-scheduler aliquot-device-plugin aliquot-fake-driver)
# The simulated driver links zstd and lz4 of the build machine, so there is none for arm64.
image_architectures() { if [ "$1" = aliquot-fake-driver ]; then echo amd64; else echo amd64 arm64; fi; } # IMAGE

crane_version=0.22.1
cosign_version=2.6.5
syft_version=1.57.1

release_folder=$root/target/release

release_usage() {
    cat <<-'END'
		./aliquot release --registry HOST[:PORT][/PATH] [--version V] [--key KEY | --keyless]
		./aliquot release --update-lock

		Builds Aliquot's images for amd64 and arm64, the chart that names them by digest, SBOMs, images.txt, checksums and
		release notes, in target/release, and publishes images and chart in a registry:

		  HOST[/PATH]/aliquot-scheduler, aliquot-device-plugin and aliquot-fake-driver (the simulated driver), with tag V
		  oci://HOST[/PATH]/charts/aliquot, version V

		The same tree gives the same digests. The registry's users are those of `docker login` or `crane auth login`; a
		registry at localhost or a private address may speak plain HTTP. If it fails, what it had before is as it was: no tag
		has moved. Repeat the command; only what is missing is sent again.

		  --version V    by default the tree's version. Another one is set in a copy of the tree, below target/release-tree,
		                 which is built there
		  --key KEY      signs images and chart, and attests how they were built and what they contain, with a private key of
		                 cosign: a file, whose password is in COSIGN_PASSWORD, or the URL of a key management service. Nothing
		                 is written to a transparency log
		  --keyless      the same with the identity of the workflow that runs it, in Sigstore's public transparency log
		  --update-lock  renews lab/packages.lock, the Debian packages of the images with their versions and checksums; needs
		                 no registry. Read the difference and commit it

		Needs what `up` needs, and for arm64 a cross compiler and an emulator, which it installs on Debian and Ubuntu.
	END
}

release() {
    local registry='' version key=''
    version=$(project_version)
    while [ $# -gt 0 ]; do
        case $1 in
            --help | -h) release_usage; return ;;
            --update-lock)
                check_machine
                install_missing_packages "the lock file" <<< "debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg"
                step update-lock "Looking up Debian's packages for lab/packages.lock" contained update_lock
                return
                ;;
            --keyless) key=keyless ;;
            --registry | --version | --key)
                [ -n "${2:-}" ] || die "'$1' needs a value." "For example: ./aliquot release --registry registry.example.com/aliquot"
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            *) die "'release' has no option '$1'." "All of them: ./aliquot release --help" ;;
        esac
        shift
    done
    [[ $registry =~ ^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*$ ]] ||
        die "'--registry' takes HOST[:PORT][/PATH] in lower case, without https:// and without a tag; this is '$registry'." \
            "For example: ./aliquot release --registry registry.example.com/aliquot"
    [[ $version =~ ^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$ ]] ||
        die "'--version' takes a semantic version without build metadata and without a v; this is '$version'." "For example: --version 0.2.0"
    [ -z "$key" ] || [ "$key" = keyless ] || [[ $key == *://* ]] || [ -f "$key" ] ||
        die "there is no key file $key." "Make one with cosign generate-key-pair, outside of this checkout, or leave out --key: the release is not signed then."
    if [ -n "$key" ] && [ -f "$key" ]; then
        key=$(realpath "$key")
        [[ $key != "$root"/* ]] || die "the key $key is inside the checkout, from which the release is built." "Move it elsewhere."
    fi
    if [ "$version" != "$(project_version)" ]; then
        case $key in
            '') release_as "$version" --registry "$registry" ;;
            keyless) release_as "$version" --registry "$registry" --keyless ;;
            *) release_as "$version" --registry "$registry" --key "$key" ;;
        esac
    else
        release_this "$registry" "$key"
    fi
}

# Sets the version in a copy of the tree's files, so that programs, chart and images agree about it.
release_as() { # VERSION ARGUMENT...
    local tree=$root/target/release-tree old
    old=$(project_version)
    mkdir -p "$tree"
    git -C "$root" ls-files --cached --others --exclude-standard -z > "$root/target/release-files"
    find "$tree" -mindepth 1 -maxdepth 1 ! -name target ! -name .lab -exec rm -rf {} +
    tar --create --directory "$root" --null --files-from "$root/target/release-files" | tar --extract --directory "$tree"
    sed -i "s#<version>$old</version>#<version>$1</version>#" "$tree"/{,*/}pom.xml
    sed -i "s#ersion: $old\$#ersion: $1#" "$tree/charts/aliquot/Chart.yaml"
    ALIQUOT_REVISION=$(source_revision) exec "$tree/aliquot" release "${@:2}"
}

# The commit of the tree, with a mark if the tree differs from it
source_revision() {
    printf %s "${ALIQUOT_REVISION:-$(git -C "$root" describe --always --abbrev=40 --dirty --exclude '*' 2> /dev/null || echo unknown)}"
}

release_this() { # REGISTRY KEY
    local start=$SECONDS registry=$1 key=$2 image
    check_prerequisites
    install_missing_packages "a release" <<-'END'
		gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
		libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
		qemu-user-static qemu-aarch64-static
		git git
	END
    lock
    build_release_programs ${key:+cosign}
    lock_cache
    build_aliquot_if_changed
    step native-arm64 "Building the node's programs for arm64" contained build_native_arm64
    rm -rf "$release_folder"
    mkdir -p "$release_folder/layouts"
    for image in "${release_images[@]}"; do
        # shellcheck disable=SC2046
        step "layout-$image" "Building image $image for $(image_architectures "$image")" contained \
            write_layout "$image" "$release_folder/layouts/$image" $(image_architectures "$image")
    done
    unlock_cache
    step release-files "Writing chart, images.txt, SBOMs and notes" contained write_release "$registry"
    step publish "Publishing in $registry" contained publish_release "$registry" "$key"
    say "Release $(project_version) is published after $(duration $((SECONDS - start))); its files are in $release_folder."
    say "Install it: helm install aliquot oci://$registry/charts/aliquot --version $(project_version) --namespace aliquot --create-namespace"
}

# --- programs -------------------------------------------------------------------------------------------------------

release_program() { # crane, cosign or syft
    local version=$1_version
    printf '%s/programs/%s-%s' "$cache" "$1" "${!version}"
}

# Builds those of the programs that the cache lacks.
build_release_programs() { # [cosign]
    lock_cache
    mkdir -p "$cache/programs"
    [ -x "$(release_program crane)" ] || step crane "Building crane $crane_version, once" contained \
        build_release_program crane github.com/google/go-containerregistry/cmd/crane@v$crane_version
    [ -x "$(release_program syft)" ] || step syft "Building syft $syft_version, once; about 3 minutes" contained \
        build_release_program syft github.com/anchore/syft/cmd/syft@v$syft_version
    [ $# -eq 0 ] || [ -x "$(release_program cosign)" ] || step cosign "Building cosign $cosign_version, once; about 2 minutes" contained \
        build_release_program cosign github.com/sigstore/cosign/v2/cmd/cosign@v$cosign_version
    [ -x "$(helm_program)" ] || step helm "Building Helm $helm_version, once" contained build_helm
    unlock_cache
}

build_release_program() { # NAME PACKAGE
    go_install "$cache/programs/$1.tmp" "$2"
    publish "$cache/programs/$1.tmp/$1" "$(release_program "$1")"
    rm -rf "$cache/programs/$1.tmp"
}

# The lab's, where it is built
helm_program() {
    local lab_helm
    lab_helm=$(cluster_programs)/helm
    if [ -x "$lab_helm" ]; then printf %s "$lab_helm"; else printf '%s/programs/helm-%s' "$cache" "$helm_version"; fi
}

build_helm() {
    CGO_ENABLED=0 build_in_module "$cache/programs/helm" -ldflags "-s -w" helm.sh/helm/v3/cmd/helm
    publish "$cache/programs/helm.tmp/helm" "$cache/programs/helm-$helm_version"
    rm -rf "$cache/programs/helm.tmp"
}

build_native_arm64() {
    local prefix=aarch64-linux-gnu- build
    build=$root/$(native_build arm64)
    cmake -S "$root/native-shim" -B "$build" -DSKIP_TESTS=true -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=${prefix}gcc
    cmake --build "$build" --parallel 2
}

# --- the release's files --------------------------------------------------------------------------------------------

write_release() { # REGISTRY
    write_chart "$1"
    write_images
    write_sboms
    write_provenance
    write_notes
    cd "$release_folder"
    find . -type f ! -path './layouts/*' ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum > SHA256SUMS
}

image_digest() { digest "$release_folder/layouts/$1/index.json"; } # IMAGE
chart_archive() { printf '%s/aliquot-%s.tgz' "$release_folder" "$(project_version)"; }
# The digest of the chart's manifest, which its layout's index names
chart_digest() { sed 's/.*"digest":"\([^"]*\)".*/\1/' "$release_folder/layouts/chart/index.json"; }

# The chart with our images by repository and digest, and as an OCI layout with Helm's media types.
write_chart() { # REGISTRY
    local chart=$release_folder/chart/aliquot layout=$release_folder/layouts/chart image version helm=application/vnd.cncf.helm
    version=$(project_version)
    mkdir -p "$release_folder/chart" "$layout/blobs/sha256"
    cp -r "$root/charts/aliquot" "$chart"
    for image in "${release_images[@]}"; do
        awk -v "image=$image" -v "registry=$1" -v "digest=$(image_digest "$image")" '
            $1 == "repository:" { ours = $2 == "ghcr.io/aliquot-io/" image; if (ours) sub(/ghcr.io\/aliquot-io/, registry) }
            ours && $1 == "digest:" { sub(/""/, digest); ours = 0 }
            { print }' "$chart/values.yaml" > "$chart/values.yaml.new"
        ! cmp -s "$chart/values.yaml" "$chart/values.yaml.new" || die "charts/aliquot/values.yaml has no image ghcr.io/aliquot-io/$image."
        mv "$chart/values.yaml.new" "$chart/values.yaml"
    done
    LC_ALL=C tar --create --format=gnu --sort=name --mtime="@$(build_time)" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX --directory "$release_folder/chart" aliquot | gzip --no-name > "$(chart_archive)"
    rm -r "$release_folder/chart"
    printf '{"name":"aliquot","version":"%s","description":"%s","apiVersion":"v2","appVersion":"%s","type":"application"}' \
        "$version" "$(sed -n 's/^description: //p' "$root/charts/aliquot/Chart.yaml")" "$version" > "$layout/config"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s},"layers":[%s}]}' \
        "$(put_blob "$layout" $helm.config.v1+json "$layout/config")" \
        "$(put_blob "$layout" $helm.chart.content.v1.tar+gzip "$(chart_archive)")" > "$layout/manifest"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s}]}' \
        "$(put_blob "$layout" application/vnd.oci.image.manifest.v1+json "$layout/manifest")" > "$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
    rm "$layout/config" "$layout/manifest"
}

# All images that the chart can name: ours, and kube-scheduler's for each version of Kubernetes.
write_images() {
    local version
    for version in $(kubernetes_versions); do chart_images "$version"; done | LC_ALL=C sort -u > "$release_folder/images.txt"
}

# The images that `helm template` names, with the simulated driver.
chart_images() { # KUBERNETES-VERSION
    HELM_CACHE_HOME=$lab/helm/cache HELM_CONFIG_HOME=$lab/helm/config HELM_DATA_HOME=$lab/helm/data \
        "$(helm_program)" template aliquot "$(chart_archive)" --namespace aliquot --kube-version "$1" \
        --values "$root/charts/aliquot/ci/fake-driver-values.yaml" | sed -n 's/^ *image: "\(.*\)"$/\1/p'
}

# An SPDX document for each image and architecture. Its times and identifiers are the only ones of a release that differ
# between two builds of a tree.
write_sboms() {
    local image arch
    mkdir -p "$release_folder/sbom"
    for image in "${release_images[@]}"; do
        for arch in $(image_architectures "$image"); do
            SYFT_CHECK_FOR_APP_UPDATE=false "$(release_program syft)" scan --quiet --platform "linux/$arch" \
                --source-name "$image" --source-version "$(project_version)" --output "spdx-json=$release_folder/sbom/$image-$arch.spdx.json" \
                "oci-dir:$release_folder/layouts/$image"
        done
    done
}

# The changelog's section of this version, or the newest one for a version that it does not have yet.
write_notes() {
    local version
    version=$(project_version)
    {
        printf '# Aliquot %s\n' "$version"
        awk -v "version=${version%%-*}" '/^## / { found = $2 == version } found && !/^## / { print }' "$root/CHANGELOG.md"
        printf '\n## Images\n\n'
        sed 's/^/    /' "$release_folder/images.txt"
    } > "$release_folder/notes.md"
}

# How the release was built, as a predicate of SLSA provenance 1 (https://slsa.dev/spec/v1.0/provenance).
write_provenance() {
    local lock
    lock=$(digest "$package_lock")
    cat > "$release_folder/provenance.json" <<-END
		{
		  "buildDefinition": {
		    "buildType": "https://aliquot.io/release/v1",
		    "externalParameters": {"command": "./aliquot release", "version": "$(project_version)"},
		    "resolvedDependencies": [
		      {"uri": "git+${GITHUB_SERVER_URL:-file://}${GITHUB_REPOSITORY:+/$GITHUB_REPOSITORY}", "digest": {"gitCommit": "$(source_revision)"}},
		      {"uri": "lab/packages.lock", "digest": {"sha256": "${lock#sha256:}"}}
		    ]
		  },
		  "runDetails": {
		    "builder": {"id": "${GITHUB_WORKFLOW_REF:-https://aliquot.io/release/by-hand}"},
		    "metadata": {"startedOn": "$(date --utc +%FT%TZ)"}
		  }
		}
	END
}

# --- publishing -----------------------------------------------------------------------------------------------------

publish_release() { # REGISTRY KEY
    local registry=$1 key=$2 image crane version
    local -a subjects=()
    version=$(project_version)
    crane=$(release_program crane)
    for image in "${release_images[@]}"; do
        subjects+=("$registry/$image@$(image_digest "$image")")
        echo "$(date +%T) ${subjects[-1]}"
        to_registry "$registry" "image $image" "$crane" push --index "$release_folder/layouts/$image" "${subjects[-1]}"
    done
    subjects+=("$registry/charts/aliquot@$(chart_digest)")
    echo "$(date +%T) ${subjects[-1]}"
    to_registry "$registry" "the chart" "$crane" push "$release_folder/layouts/chart" "${subjects[-1]}"
    [ -z "$key" ] || sign_release "$registry" "$key" "${subjects[@]}"
    for image in "${subjects[@]}"; do
        echo "$(date +%T) tag $version of ${image%@*}"
        to_registry "$registry" "tag $version of ${image%@*}" "$crane" tag "$image" "$version"
    done
}

to_registry() { # REGISTRY WHAT COMMAND...
    "${@:3}" || die "$1 did not take $2; the lines above are its answer." \
        "What the registry had before is as it was: tags move after everything else$([[ $2 != tag* ]] || echo ", the chart's last")." \
        "Repeat the command: ./aliquot release --registry $1 ... It sends only what is missing."
}

# Signs by digest. cosign keeps signatures and attestations beside the images, under tags that name the digest.
sign_release() { # REGISTRY KEY SUBJECT...
    local registry=$1 cosign image arch manifest
    local -a options=(--yes)
    cosign=$(release_program cosign)
    [ "$2" = keyless ] || options+=(--tlog-upload=false --key "$2")
    shift 2
    for image; do
        echo "$(date +%T) signature and provenance of $image"
        to_registry "$registry" "the signature of $image" "$cosign" sign "${options[@]}" "$image"
        to_registry "$registry" "the provenance of $image" "$cosign" attest "${options[@]}" --type slsaprovenance1 \
            --predicate "$release_folder/provenance.json" "$image"
    done
    for image in "${release_images[@]}"; do
        for arch in $(image_architectures "$image"); do
            manifest=$(sed "s/.*\"digest\":\"\([^\"]*\)\",\"size\":[0-9]*,\"platform\":{\"architecture\":\"$arch\".*/\1/" "$release_folder/layouts/$image/index.json")
            echo "$(date +%T) SBOM of $image for $arch"
            to_registry "$registry" "the SBOM of $image for $arch" "$cosign" attest "${options[@]}" --type spdxjson \
                --predicate "$release_folder/sbom/$image-$arch.spdx.json" "$registry/$image@$manifest"
        done
    done
}
