# Ours and the kernel's siw and rxe in the same guest, by the same program: `warpline perf local` over
# each device in turn, each with raw TCP of its own. Sourced by `run`.
#
# The guest's processors are emulated: only what stands beside each other here may be compared.

VM_PERF_SIZES=${VM_PERF_SIZES:-8,4k,64k,1m}

vm_perf() {
    local device address status failed=0
    for device in vp_softrdma siw0 rxe0; do
        address=$(verbs_address "$device")
        status=0
        echo "--- $device"
        vm_sh "timeout 110 warpline perf local --device $device --address $address --op write --mode bw --size $VM_PERF_SIZES --crc off --wait --rounds 3 --duration 0.5" || status=$?
        [ "$status" = 0 ] || failed=1
        vm_sh "timeout 110 warpline perf local --device $device --address $address --op send --mode lat --size $VM_PERF_SIZES --crc off --wait --rounds 3 --duration 0.5" || status=$?
        [ "$status" = 0 ] || failed=1
    done
    [ "$failed" = 0 ]
}
