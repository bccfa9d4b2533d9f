#!/usr/bin/env bash
# lab/kube/add-version.sh VERSION [MODULE=MODULE'S VERSION...]: writes versions/VERSION.mod and .sum, with which main.go is
# built for this version of Kubernetes (./aliquot up --kubernetes VERSION). The further arguments are for libraries that the
# module proxy lacks in Kubernetes' own version.
set -euo pipefail
version=${1:?usage: lab/kube/add-version.sh VERSION [MODULE=VERSION...], such as 1.37.2}
shift
libraries=v0.${version#1.}
cd "$(dirname "$(readlink -f "$0")")"

of_kubernetes=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# main.go alone: the other programs below lab/kube belong to the default version.
cp main.go "$folder"
cd "$folder"
{
    echo 'module aliquot.io/lab/kube'
    # Both decide which of Go's behaviors the programs have.
    grep -E '^(go|godebug) ' "$of_kubernetes"
    printf 'require k8s.io/%s\n' "component-base $libraries" "kubectl $libraries" "kubernetes v$version"
    # In Kubernetes' repository these are folders.
    sed -n "s#^[[:space:]]*\(k8s.io/[a-z-]*\) => ./staging/.*#replace \1 => \1 $libraries#p" "$of_kubernetes"
} > go.mod
for library; do go mod edit -replace "${library%=*}=${library/=/@}"; done
go mod edit -fmt
go mod tidy
mv go.mod "$OLDPWD/versions/$version.mod"
mv go.sum "$OLDPWD/versions/$version.sum"
