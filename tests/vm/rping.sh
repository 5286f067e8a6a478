# Runs Debian's rping on our libibverbs and librdmacm against the same program on the kernel's siw in the guest,
# both ways round.
#
# Sourced by `run`; uses `verdict` of ping.sh. `rping -c` reports success also when its server disconnected
# early, so its lines are counted.

vm_rping_programs() {
    # `warpline run` finds the libraries beside the command.
    [ -n "${WARPLINE:-}" ] || vm_cargo -p ofa-ibverbs -p ofa-rdmacm
    vm_program
}

# Runs a program on our libraries.
on_ours() { timeout 100 "$WARPLINE" run -- "$@"; }

# Success if the client printed a line for every round trip.
counted() { # STATUS
    [ "$1" = 0 ] || { echo "$1"; return; }
    local seen
    seen=$(grep -c '^ping data: ' "$VM_DIR/ping")
    [ "$seen" = "$VM_ROUNDS" ] && echo 0 || echo "only $seen round trips"
}

# Ours connects, the guest listens.
rping_out() { # NAME RPING-OPTION...
    local name=$1 status=0
    shift
    vm_sh "(rping -s -a 10.0.2.15 -p $VM_GUEST_PORT -S 65535 >/dev/null 2>&1 &)"
    vm_sh 'until rdma resource show cm_id | grep -q "state LISTEN"; do :; done'
    on_ours rping -c -a 127.0.0.1 -p "$VM_PORT" -C "$VM_ROUNDS" -v -V "$@" >"$VM_DIR/ping" 2>&1 || status=$?
    verdict "$name" "$(counted "$status")" "$(vm_startup)"
    vm_sh 'killall rping 2>/dev/null; while rdma resource show cm_id | grep -q "state LISTEN"; do :; done'
}

# The guest connects, ours listens. siw's settings: "crc peer-to-peer".
rping_in() { # NAME SIW-SETTINGS RPING-OPTION...
    local name=$1 crc peer_to_peer port status=0 serving
    read -r crc peer_to_peer <<<"$2"
    shift 2
    vm_sh "cd /sys/module/siw/parameters; echo 2 >mpa_version; echo $crc >mpa_crc_required; echo $peer_to_peer >peer_to_peer"
    # Not port 0: rping does not print the assigned port.
    port=$((20000 + RANDOM % 10000))
    while ss -Hltn "sport = :$port" | grep -q .; do port=$((port + 1)); done
    on_ours rping -s -a 127.0.0.1 -p "$port" -S 65535 >"$VM_DIR/server" 2>&1 &
    serving=$!
    until ss -Hltn "sport = :$port" | grep -q .; do
        kill -0 "$serving" 2>/dev/null || { cat "$VM_DIR/server"; die "rping -s ended"; }
    done
    vm_sh "timeout 100 rping -c -a 10.0.2.2 -p $port -C $VM_ROUNDS -v -V $*" >"$VM_DIR/ping" 2>&1 || status=$?
    status=$(counted "$status")
    # Its client has disconnected, so the server exits.
    wait "$serving" || status="${status/#0/the server: }$?"
    verdict "$name" "$status" "$(vm_startup)"
}

# "short": the same cases with fewer round trips.
vm_rping() { # [short]
    VM_CASES=0 VM_FAILED=0
    [ "${1:-}" != short ] || VM_ROUNDS=100
    echo "rping -c on our libraries -> rping -s on siw, $VM_ROUNDS round trips each"
    rping_out "64 octets"
    rping_out "4,096 octets" -S 4096
    echo "rping -c on siw -> rping -s on our libraries, $VM_ROUNDS round trips each"
    rping_in "64 octets, CRC off" "N N"
    rping_in "64 octets, CRC on" "Y N"
    rping_in "4,096 octets, peer-to-peer" "N Y" -S 4096
    echo "$((VM_CASES - VM_FAILED)) passed, $VM_FAILED failed"
    [ "$VM_FAILED" = 0 ]
}
