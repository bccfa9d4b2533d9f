#!/bin/sh
# programs_test.sh DRIVER CASE: tests the command lines of the installer, nvidia-smi and the sample program.
set -eu
driver=$1
folder=$(mktemp -d /tmp/aliquot-fake-driver-programs-XXXXXX)
users=
trap 'for user in $users; do kill -9 "$user" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
root=$folder/root
export ALIQUOT_FAKE_GPUS="$root/gpus" LD_LIBRARY_PATH="$root/lib"
printf 'NVIDIA A100-SXM4-80GB;81920;108\nNVIDIA L4;23034;58\n' >"$folder/gpus"

fail() {
    echo "$*" >&2
    exit 1
}

equal() {
    [ "$1" = "$2" ] || fail "expected: $1
found:    $2"
}

install() {
    "$driver/aliquot-fake-driver" install --root "$root" --source "$driver" --cdi "$folder/cdi" --gpus "$folder/gpus" \
        --node node1
}

smi() {
    "$root/bin/nvidia-smi" "$@"
}

# refused TEXT COMMAND...: checks that the command fails and prints TEXT.
refused() {
    text=$1
    shift
    if output=$("$@" 2>&1); then
        fail "succeeded: $*"
    fi
    case $output in
    *"$text"*) ;;
    *) fail "printed \"$output\" without \"$text\": $*" ;;
    esac
}

hold() { # hold MIB: starts a process that holds MIB MiB
    : >"$folder/held" # removes the output of an earlier process
    "$driver/vgpu-sample" alloc "$1" hold >"$folder/held" &
    users="$users $!"
    until grep -q hold "$folder/held"; do sleep 0.05; done
}

a_repeated_install_changes_nothing() {
    install >"$folder/first"
    (cd "$folder" && find root cdi -type f -exec sha256sum {} + | sort && find root cdi -printf '%p %i %T@\n' | sort) \
        >"$folder/before"
    equal "node1 has 2 simulated GPUs" "$(install)"
    (cd "$folder" && find root cdi -type f -exec sha256sum {} + | sort && find root cdi -printf '%p %i %T@\n' | sort) \
        >"$folder/after"
    cmp "$folder/before" "$folder/after"
}

install_can_be_repeated_after_a_kill_at_any_time() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
        rm -rf "$root" "$folder/cdi"
        timeout -s KILL "$(printf '0.%03d' $((try * 2)))" \
            "$driver/aliquot-fake-driver" install --root "$root" --source "$driver" --cdi "$folder/cdi" \
            --gpus "$folder/gpus" --node node1 >/dev/null 2>&1 || true
        install >/dev/null
        equal 2 "$(smi -L | grep -c NVIDIA)"
        equal "" "$(find "$root" "$folder/cdi" -name '*.new')"
    done
}

uuids_derive_from_the_node_name() {
    install >/dev/null
    uuids=$(ls "$root/gpus")
    "$driver/aliquot-fake-driver" install --root "$folder/other" --source "$driver" --cdi "$folder/cdi2" \
        --gpus "$folder/gpus" --node node1 >/dev/null
    equal "$uuids" "$(ls "$folder/other/gpus")"
    "$driver/aliquot-fake-driver" install --root "$folder/third" --source "$driver" --cdi "$folder/cdi3" \
        --gpus "$folder/gpus" --node node2 >/dev/null
    [ "$uuids" != "$(ls "$folder/third/gpus")" ] || fail "two nodes have the same GPUs"
}

the_cdi_specification_lists_each_gpu_by_index_and_uuid_and_all() {
    install >/dev/null
    python3 - "$folder/cdi/aliquot-fake-driver.json" "$root" <<'PYTHON'
import json, os, sys
spec, root = json.load(open(sys.argv[1])), sys.argv[2]
assert spec["cdiVersion"] == "0.6.0" and spec["kind"] == "nvidia.com/gpu", spec
uuids = sorted(name for name in os.listdir(root + "/gpus") if name != ".driver")
devices = {device["name"]: device["containerEdits"]["mounts"] for device in spec["devices"]}
assert set(devices) == {"0", "1", "all", *uuids}, devices.keys()
for name, mounts in devices.items():
    assert len(mounts) == (2 if name == "all" else 1), name
    for mount in mounts:
        assert os.path.exists(mount["hostPath"]) and "rw" in mount["options"], mount
        assert mount["containerPath"] == "/run/aliquot-fake-driver/gpus/" + os.path.basename(mount["hostPath"])
paths = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
assert "/run/aliquot-fake-driver/gpus/.driver" in paths
assert {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"} <= {os.path.basename(path) for path in paths}, paths
for mount in spec["containerEdits"]["mounts"]:
    assert os.path.exists(mount["hostPath"]) and "ro" in mount["options"], mount
PYTHON
}

programs_find_the_driver_without_a_version_in_its_name() {
    install >/dev/null
    equal libcuda.so.1 "$(readlink "$root/lib/libcuda.so")"
    LD_LIBRARY_PATH=$root/lib python3 -c 'import ctypes; assert ctypes.CDLL("libcuda.so").cuInit(0) == 0'
}

a_running_process_keeps_its_files_when_the_driver_is_replaced() {
    install >/dev/null
    hold 2900
    mkdir "$folder/newer"
    for file in aliquot-fake-driver libcuda.so.1 libnvidia-ml.so.1 nvidia-smi vgpu-sample; do
        cp "$driver/$file" "$folder/newer"
    done
    driver=$folder/newer
    echo >>"$driver/libcuda.so.1"
    echo >>"$driver/nvidia-smi"
    install >"$folder/output" # not into a pipe: grep -q would end install early
    grep -q "installed $root/lib/libcuda.so.1" "$folder/output" || fail "the newer library was not installed"
    grep -q "libcuda.so.1 (deleted)" "/proc/${users# }/maps" || fail "the running process's library was overwritten"
    equal 2900 "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"
    hold 100
    equal 3000 "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"
}

the_installer_keeps_a_gpu_in_use_and_reports_it() {
    install >/dev/null
    hold 2900
    printf 'NVIDIA A100-SXM4-40GB;40960;108\nNVIDIA L4;23034;58\n' >"$folder/gpus"
    install >"$folder/output" 2>&1
    grep -q "is in use and stays as it is" "$folder/output" || fail "the installer reported nothing"
    equal 81920 "$(smi -i 0 --query-gpu=memory.total --format=csv,noheader,nounits)"
    kill -9 $users
    wait $users || true
    install >/dev/null
    equal 40960 "$(smi -i 0 --query-gpu=memory.total --format=csv,noheader,nounits)"
}

errors_in_the_list_of_gpus_are_reported() {
    for wrong in "A100;81920" "A100;80Gi;108" "A100;0;108" "A100;81920;0" "A100;-1;108" ";81920;108" \
        "A100;81920;108;9;1;;1;1" "A100;81920;108;;;;1Gi" "A100;99999999999999999999;108" "A100;81920;108;" \
        "A100;81920;108;81921" "A100;81920;108;1Gi" "A100;81920;108;;one" "A100;81920;108;;64" "A100;81920;108;;;0" \
        "A100;81920;108;;;0=nvlink" "A100;81920;108;;;0=nvlink19" "A100;81920;108;;;1=sys"; do
        printf 'NVIDIA L4;23034;58\n%s\n' "$wrong" >"$folder/gpus"
        refused "line 2" install
    done
    printf 'A100;81920;108;;;2=sys\nA100;81920;108\n' >"$folder/gpus"
    refused "GPU 0 is linked to GPU 2, which does not exist" install
    printf 'A100;81920;108;;;1=sys\nA100;81920;108;;;0=pix\n' >"$folder/gpus"
    refused "GPUs 0 and 1 name different links" install
    [ ! -e "$root" ] || fail "the installer created $root"
}

missing_arguments_are_reported() {
    refused "install needs --root" "$driver/aliquot-fake-driver" install
    refused "must be an absolute path" "$driver/aliquot-fake-driver" install --root here --source . --cdi . --gpus . \
        --node n
    refused "unknown command" "$driver/aliquot-fake-driver" uninstall
    refused "expected a GPU's UUID" "$driver/aliquot-fake-driver" fail 0
    refused "--xid must be" "$driver/aliquot-fake-driver" fail GPU-00000000-0000-0000-0000-000000000000 --xid 0
    refused "No such file" "$driver/aliquot-fake-driver" heal GPU-00000000-0000-0000-0000-000000000000
}

a_node_without_gpus_has_no_cdi_specification() {
    install >/dev/null
    : >"$folder/gpus"
    install >/dev/null
    [ ! -e "$folder/cdi/aliquot-fake-driver.json" ] || fail "the specification is still there"
}

smi_shows_memory_in_mib_and_states_that_no_gpu_is_real() {
    install >/dev/null
    hold 2900
    smi >"$folder/table"
    grep -q "Aliquot simulated driver: no real GPU" "$folder/table"
    grep -q " 2900MiB / 81920MiB " "$folder/table"
    grep -q " 0MiB / 23034MiB " "$folder/table"
    grep -q "vgpu-sample .* 2900MiB" "$folder/table"
    equal "91" "$(awk '/^[|+]/ { print length($0) }' "$folder/table" | sort -u)"
    equal 2 "$(smi -L | grep -c '^GPU [01]: NVIDIA .* (UUID: GPU-[-0-9a-f]*)$')"
    smi -q | grep -q "Product Name .*: NVIDIA L4"
}

instance() { # instance PROFILE: the UUID of the first instance of this profile
    smi -L | sed -n "s/^  MIG $1 .*(UUID: \(.*\))$/\1/p" | head -n 1
}

a_card_in_mig_mode_consists_of_its_instances() {
    printf 'NVIDIA A100-SXM4-80GB;81920;108;;;;;1g.10gb,1g.10gb,2g.20gb,3g.40gb\nNVIDIA L4;23034;58\n' >"$folder/gpus"
    install >/dev/null
    uuids=$(ls "$root/gpus")
    install >/dev/null
    equal "$uuids" "$(ls "$root/gpus")"
    equal "1g.10gb 1g.10gb 2g.20gb 3g.40gb" "$(smi -L | awk '/^  MIG/ {print $2}' | xargs)"
    two=$(instance 2g.20gb)
    equal "info: 19968 MiB free of 19968 MiB" "$(CUDA_VISIBLE_DEVICES=$two "$driver/vgpu-sample" info)"
    equal "info: 9856 MiB free of 9856 MiB" "$("$driver/vgpu-sample" info)" # the first instance, and no other GPU
    equal "info: 23034 MiB free of 23034 MiB" "$(CUDA_VISIBLE_DEVICES=1 "$driver/vgpu-sample" info)"
    CUDA_VISIBLE_DEVICES=$two hold 19000
    equal 19000 "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"
    refused "is in use" "$root/bin/aliquot-fake-driver" mig-destroy "$two"
    "$root/bin/aliquot-fake-driver" mig-destroy "$(instance 3g.40gb)" --root "$root" --cdi "$folder/cdi"
    card=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    refused "has 3 instances" "$root/bin/aliquot-fake-driver" mig "$card" off
    refused "has no room" "$root/bin/aliquot-fake-driver" mig-create "$card" 7g.80gb
    refused "has no profile" "$root/bin/aliquot-fake-driver" mig-create "$card" 1g.5gb
    refused "not capable" "$root/bin/aliquot-fake-driver" mig "$(smi -i 1 --query-gpu=uuid --format=csv,noheader)" on
    grep -q "$two" "$folder/cdi/aliquot-fake-driver.json"
    equal 4 "$(grep -o '"name": "0:[0-2]"\|"name": "1"' "$folder/cdi/aliquot-fake-driver.json" | wc -l)"
    "$root/bin/aliquot-fake-driver" reboot
    equal "" "$(smi -L | grep MIG || true)"
    install >/dev/null
    [ "$two" != "$(instance 2g.20gb)" ] || fail "the instance has the UUID of the one before the reboot"
}

the_mig_mode_of_a_card_in_use_changes_at_its_reset() {
    install >/dev/null
    card=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    hold 100
    "$root/bin/aliquot-fake-driver" mig "$card" on | grep -q "at its next reset"
    "$root/bin/aliquot-fake-driver" list | grep -q "$card .* mig-pending$"
    kill -9 $users
    wait $users || true
    "$root/bin/aliquot-fake-driver" reset "$card"
    "$root/bin/aliquot-fake-driver" list | grep -q "$card .* mig$"
    refused CUDA_ERROR_NO_DEVICE env CUDA_VISIBLE_DEVICES=0 "$driver/vgpu-sample" info
}

contexts_take_the_memory_that_the_list_specifies() {
    printf 'NVIDIA A100-SXM4-80GB;81920;108;256\n' >"$folder/gpus"
    install >/dev/null
    "$driver/aliquot-fake-driver" list --root "$root" | grep -q " 0/81920 MiB context 256 MiB xid 0$"
    hold 100
    equal 356 "$(smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"
    smi | grep -q "vgpu-sample .* 356MiB"
    equal "${users# }, 356 MiB" "$(smi --query-compute-apps=pid,used_memory --format=csv,noheader)"
    "$driver/vgpu-sample" info | grep -q "81308 MiB free of 81920 MiB"
    equal "alloc 81500 MiB: CUDA_ERROR_OUT_OF_MEMORY" "$("$driver/vgpu-sample" alloc 81500 || true)"
}

smi_answers_csv_queries() {
    install >/dev/null
    hold 2900
    equal "index, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%]
0, 81920 MiB, 2900 MiB, 79020 MiB, 0 %
1, 23034 MiB, 0 MiB, 23034 MiB, 0 %" \
        "$(smi --query-gpu=index,memory.total,memory.used,memory.free,utilization.gpu --format=csv)"
    equal "0, NVIDIA A100-SXM4-80GB
1, NVIDIA L4" "$(smi --query-gpu=index,name --format=csv,noheader)"
    equal "2900" "$(smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0)"
    equal "$(ls "$root/gpus" | sort)" "$(smi --query-gpu=uuid --format=csv,noheader | sort)"
    equal "${users# }, 2900 MiB" "$(smi --query-compute-apps=pid,used_memory --format=csv,noheader)"
}

the_node_sees_the_processes_of_all_containers_without_privileges() {
    unshare --pid --fork --mount-proc true 2>"$folder/err" || {
        echo "skipped: cannot create a PID namespace: $(cat "$folder/err")"
        exit 77
    }
    install >/dev/null
    chmod 755 "$folder"
    hold 30
    expected="$users, 30"
    for mib in 10 20; do # both programs are PID 1 of their namespaces
        unshare --pid --fork --kill-child --mount-proc "$driver/vgpu-sample" alloc "$mib" hold >"$folder/in$mib" &
        container=$!
        users="$users $container"
        until grep -q hold "$folder/in$mib"; do sleep 0.05; done
        expected="$expected
$(tr -d ' ' <"/proc/$container/task/$container/children"), $mib"
    done
    expected=$(echo "$expected" | tr -d ' ' | sort)
    for query in smi "setpriv --reuid 65534 --clear-groups --inh-caps=-all $root/bin/nvidia-smi"; do
        equal "$expected" "$($query --query-compute-apps=pid,used_memory --format=csv,noheader,nounits |
            tr -d ' ' | sort)"
    done
    # A process in one of the namespaces sees its own namespace only.
    inside=$(echo "$expected" | sed -n 's/,10$//p')
    equal "1, 10" "$(nsenter -t "$inside" --pid --mount "$root/bin/nvidia-smi" \
        --query-compute-apps=pid,used_memory --format=csv,noheader,nounits)"
}

smi_pmon_lists_processes_at_each_interval() {
    install >/dev/null
    hold 2900
    equal "0 ${users# } C vgpu-sample
1 - - -
0 ${users# } C vgpu-sample
1 - - -" "$(smi pmon -c 2 | awk '!/^#/ { print $1, $2, $3, $NF }')"
}

smi_refuses_invalid_arguments_and_lists_the_valid_ones() {
    install >/dev/null
    refused "memory.used" smi --query-gpu=memory.usage --format=csv
    refused "--format=csv" smi --query-gpu=index
    refused "noheader" smi --query-gpu=index --format=json
    refused "usage: nvidia-smi" smi --gpu-reset
    refused "usage: nvidia-smi" smi pmon -c 0
    refused "usage: nvidia-smi" smi -c 1
    refused "-L lists them" smi -i 7
}

list() { # list INDEX: what list prints about the GPU after its memory
    "$driver/aliquot-fake-driver" list --root "$root" | sed -n "s/^$1 .* xid /xid /p"
}

control() {
    "$root/bin/aliquot-fake-driver" "$@" --root "$root"
}

list_shows_every_state_of_a_gpu_and_heal_ends_all() {
    install >/dev/null
    uuid=$(smi -i 1 --query-gpu=uuid --format=csv,noheader)
    equal "xid 0" "$(list 1)"
    for xid in 48 94 95; do control fail "$uuid" --xid "$xid"; done
    equal "3" "$(smi -i 1 --query-gpu=ecc.errors.uncorrected.volatile.total --format=csv,noheader)"
    smi -i 1 | grep -q "NVIDIA L4 .* Off |  *3 |$" || fail "$(smi -i 1)"
    for xid in 63 64 79 13; do control fail "$uuid" --xid "$xid"; done
    equal "xid 13 recovery reset ecc 3/3 remapped 1 remap-pending remap-failed lost" "$(list 1)"
    control reset "$uuid"
    equal "xid 0 ecc 0/3 remapped 1 remap-failed" "$(list 1)"
    control recover "$uuid" drain-p2p
    control lose "$uuid"
    control remove "$uuid"
    control hot "$uuid"
    control power-brake "$uuid" on
    control hide-uuid "$uuid"
    control exclusive "$uuid" on
    control mps "$uuid" on
    states="remap-failed lost removed hot power-brake uuid-hidden exclusive mps"
    equal "xid 0 recovery drain-p2p ecc 0/3 remapped 1 $states" "$(list 1)"
    control return "$uuid"
    control insert "$uuid"
    control cool "$uuid"
    control power-brake "$uuid" off
    control exclusive "$uuid" off
    control mps "$uuid" off
    equal "xid 0 recovery drain-p2p ecc 0/3 remapped 1 remap-failed uuid-hidden" "$(list 1)"
    control heal "$uuid"
    equal "xid 0" "$(list 1)"
    equal "xid 0" "$(list 0)"
}

a_gpu_is_reset_only_while_no_process_uses_it() {
    install >/dev/null
    uuid=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    control fail "$uuid" --xid 48
    hold 100
    refused "is in use by 1 process; a GPU can be reset when no process uses it" control reset "$uuid"
    equal "xid 48 recovery reset ecc 1/1" "$(list 0)"
    kill -9 $users
    wait $users || true
    control remove "$uuid"
    refused "is removed; insert it before a reset" control reset "$uuid"
    control insert "$uuid"
    control reset "$uuid"
    equal "xid 0 ecc 0/1" "$(list 0)"
}

a_removed_gpu_is_not_found_until_it_is_inserted() {
    install >/dev/null
    uuid=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    control remove "$uuid"
    equal "NVIDIA L4" "$(smi --query-gpu=name --format=csv,noheader)"
    equal "info: 23034 MiB free of 23034 MiB" "$("$driver/vgpu-sample" info)"
    install >/dev/null
    equal 1 "$(smi -L | grep -c NVIDIA)"
    control insert "$uuid"
    equal 2 "$(smi -L | grep -c NVIDIA)"
}

the_driver_changes_its_version_and_refuses_clients() {
    install >/dev/null
    version=$(smi -i 0 --query-gpu=driver_version --format=csv,noheader)
    equal "driver $version" "$(control list | head -1)"
    control driver --version 999.0.1-fake
    equal "999.0.1-fake" "$(smi -i 0 --query-gpu=driver_version --format=csv,noheader)"
    control driver --unload --without recovery-actions
    equal "driver 999.0.1-fake unloaded without-recovery-actions" "$(control list | head -1)"
    refused "Driver Not Loaded" smi -L
    refused "CUDA_ERROR_NO_DEVICE" "$driver/vgpu-sample" info
    install >/dev/null # keeps the driver's state
    refused "Driver Not Loaded" smi -L
    control driver --load --mismatch on --with recovery-actions
    refused "Driver/library version mismatch" smi -L
    refused "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" "$driver/vgpu-sample" info
    control driver --mismatch off --version 580.0.7-fake
    equal "driver 580.0.7-fake" "$(control list | head -1)"
    equal 2 "$(smi -L | grep -c NVIDIA)"
}

invalid_states_are_refused_and_change_nothing() {
    install >/dev/null
    uuid=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    before=$(control list)
    refused 'not "restart"' control recover "$uuid" restart
    refused 'not ""' control recover "$uuid"
    refused 'power-brake is on or off, not ""' control power-brake "$uuid"
    refused 'exclusive is on or off, not "2"' control exclusive "$uuid" 2
    refused 'power-brake is on or off, not "1"' control power-brake "$uuid" 1
    refused "expected a GPU's UUID" control lose 0
    refused "expected a GPU's UUID" control reset
    refused 'unknown argument "twice"' control reset "$uuid" twice
    refused "--xid must be" control fail "$uuid" --xid 1001
    refused "driver needs --version" control driver
    refused "cannot be loaded and unloaded" control driver --load --unload
    refused "with and without" control driver --with recovery-actions --without recovery-actions
    refused "takes recovery-actions" control driver --version 1-fake --without xids
    refused "--hang is on or off" control driver --unload --hang yes
    for version in 580.0.0 -fake 580-fake-2 "5 8-fake" x580-fake "$(printf '5%.0s' $(seq 60))-fake"; do
        refused "--version must" control driver --version "$version"
    done
    equal "$before" "$(control list)"
}

smi_shows_a_lost_gpu_until_it_is_healed() {
    install >/dev/null
    uuid=$(smi -i 1 --query-gpu=uuid --format=csv,noheader)
    "$driver/aliquot-fake-driver" fail "$uuid"
    equal "$uuid, [GPU is lost]" "$(smi -i 1 --query-gpu=uuid,memory.used --format=csv,noheader)"
    smi | grep -q 'ERR!'
    "$driver/aliquot-fake-driver" heal "$uuid" --root "$root"
    equal "$uuid, 0 MiB" "$(smi -i 1 --query-gpu=uuid,memory.used --format=csv,noheader)"
}

usage_shows_the_busy_time_of_gpus_and_processes() {
    install >/dev/null
    uuid=$(smi -i 0 --query-gpu=uuid --format=csv,noheader)
    equal "0 $uuid busy 0.000 s" "$(control usage | sed -n 1p)"
    "$driver/vgpu-sample" alloc 20 busy 1 hold >"$folder/held" &
    users=$!
    until grep -q hold "$folder/held"; do sleep 0.05; done
    equal "0 $uuid process $users 20 MiB" "$(control usage | sed -n '2s/ busy .*//p')"
    control usage | awk 'NR == 1 { gpu = $4 } NR == 2 { process = $8 } END { exit !(gpu > 0.1 && gpu == process) }' ||
        fail "$(control usage)"
    kill -9 "$users"
    wait "$users" || true
    control usage | awk 'NR == 1 { gpu = $4 } END { exit !(gpu > 0.1 && NR == 2) }' || fail "$(control usage)"
}

the_sample_keeps_the_gpu_busy() {
    install >/dev/null
    "$driver/vgpu-sample" busy 2 >"$folder/busy"
    equal 2 "$(grep -c '^busy: [0-9]* kernels of 1 ms per second$' "$folder/busy")"
    equal "busy 2: CUDA_SUCCESS" "$(tail -1 "$folder/busy")"
    # Kernels take 1 ms plus or minus jitter; a busy machine may launch the next ones late.
    awk '/^busy:/ && ($2 < 100 || $2 > 1100) { exit 1 }' "$folder/busy" || fail "$(cat "$folder/busy")"
}

smi_reports_utilization_with_a_delay() {
    install >/dev/null
    equal "0 %" "$(smi -i 0 --query-gpu=utilization.gpu --format=csv,noheader)"
    for tenant in 1 2; do
        "$driver/vgpu-sample" busy 30 >/dev/null &
        users="$users $!"
    done
    sleep 1.5
    for try in 1 2 3 4 5; do # on a busy machine late launches may leave the GPU idle
        smi -i 0 --query-gpu=utilization.gpu,utilization.memory --format=csv,noheader,nounits >"$folder/rates"
        smi pmon -c 1 >"$folder/shares"
        awk -F ', ' '$1 > 100 || $2 > 10 { exit 1 }' "$folder/rates" || fail "$(cat "$folder/rates")"
        awk '/vgpu-sample/ { sum += $4; n++ } END { if (n != 2 || sum > 102) exit 1 }' "$folder/shares" ||
            fail "$(cat "$folder/shares")"
        if awk -F ', ' '$1 < 40 { exit 1 }' "$folder/rates" &&
            awk '/vgpu-sample/ && ($4 < 15 || $4 > 85) { exit 1 }' "$folder/shares"; then
            break
        fi
        [ "$try" -lt 5 ] || fail "$(cat "$folder/rates" "$folder/shares")"
        sleep 0.5
    done
    # shellcheck disable=SC2086
    kill -9 $users
    sleep 0.4
    equal "0 %" "$(smi -i 0 --query-gpu=utilization.gpu --format=csv,noheader)"
}

the_sample_continues_after_a_refused_allocation() {
    install >/dev/null
    equal "alloc 81900 MiB: CUDA_SUCCESS
alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY
info: 20 MiB free of 81920 MiB
free: CUDA_SUCCESS
alloc 200 MiB: CUDA_SUCCESS
launch 3: CUDA_SUCCESS
free: CUDA_SUCCESS
free: nothing is allocated" \
        "$("$driver/vgpu-sample" alloc 81900 alloc 200 info free alloc 200 launch 3 free free)"
    refused 'alloc needs a whole number' "$driver/vgpu-sample" info alloc 3Gi
    refused 'unknown step "allocate"' "$driver/vgpu-sample" allocate 3
    refused "CUDA_ERROR_NO_DEVICE" env CUDA_VISIBLE_DEVICES=-1 "$driver/vgpu-sample" info
    "$driver/vgpu-sample" hold >"$folder/held" &
    users=$!
    until grep -q hold "$folder/held"; do sleep 0.05; done
    kill "$users"
    wait "$users" || fail "SIGTERM ended hold with $?"
}

"$2"
