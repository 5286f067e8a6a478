# Measures SoftRDMA and the kernel's siw and rxe in one guest by the same program: `warpline perf local` over
# each device in turn, interleaved, and raw TCP. Sourced by `run`.
#
# The guest's processors are emulated: only figures of the same run may be compared. They are appended to
# VM_PERF_FIGURES, if set; `benches/peers` makes a table of them.

VM_PERF_SIZES=${VM_PERF_SIZES:-8 64 1024 4096 65536 1048576 4194304}
VM_PERF_ROUNDS=${VM_PERF_ROUNDS:-3}
VM_PERF_SECONDS=${VM_PERF_SECONDS:-0.4}

vm_perf() {
    local figures=${VM_PERF_FIGURES:-$VM_DIR/figures} device failed=0
    for _ in $(seq "$VM_PERF_ROUNDS"); do
        for device in vp_softrdma siw0 rxe0; do
            perf_measure "$device" write rate >>"$figures" || failed=1
            perf_measure "$device" send lat >>"$figures" || failed=1
        done
    done
    "$VM_HERE/../../benches/peers" --keep "$figures" --rounds 0 --sizes "$VM_PERF_SIZES"
    [ "$failed" = 0 ]
}

# One operation over a device; prints the lines that `benches/peers` reads: stack, size, column, value.
perf_measure() { # DEVICE OP MODE
    local options="--crc off --no-raw" status=0
    [ "$1" != vp_softrdma ] || options=
    vm_sh "LD_LIBRARY_PATH=/bin timeout 110 warpline perf local --device $1 --address $(verbs_address "$1") --op $2 --mode $3 \
        --size ${VM_PERF_SIZES// /,} $options --wait --rounds 1 --duration $VM_PERF_SECONDS --json 2>/run/why \
        || { cat /run/why; false; }" >"$VM_DIR/report" || status=$?
    if [ "$status" != 0 ]; then
        echo "vm: $1, $2, $3: status $status" >&2
        cat "$VM_DIR/report" >&2
        return 1
    fi
    # shellcheck disable=SC2016 # jq's variables
    jq -r --arg device "$1" --arg mode "$3" '.results[] | .size as $size
        | (if $device != "vp_softrdma" then $device[:3] elif .crc then "crc_on" else "crc_off" end) as $who
        | "guest_\($who) \($size) \($mode) \(.value)",
        (select($mode == "rate") | "guest_\($who) \($size) bw \(.value * $size / 1000)"),
        (select($mode == "rate" and ($who | startswith("crc")))
            | "guest_\($who) \($size) cpu \(.cpu_us_per_msg_local + .cpu_us_per_msg_remote)"),
        (select($who == "crc_on") | "guest_raw_same \($size) \($mode) \(.raw_same)"),
        (select($who == "crc_on" and $mode == "rate")
            | "guest_raw_same \($size) bw \(.raw_same * $size / 1000)",
              "guest_raw_max \($size) rate \(.raw_max)", "guest_raw_max \($size) bw \(.raw_max * $size / 1000)",
              "guest_raw_same \($size) cpu \(.raw_same_cpu_us_per_msg)")' "$VM_DIR/report"
}
