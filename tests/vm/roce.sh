# Runs our RoCE (`vp_roce`) on this machine, as a user without any capability, against the kernel's rxe in the
# guest, in both roles: `warpline ping` and stock rping, `duet` over both providers, and programs of libibverbs
# (roce-programs.sh).
#
# Sourced by `run`. Both are connected by an interface in a network namespace of their own, because port 4791 of an
# address has one owner. At the end, tshark and `warpline decode` read every frame of the capture; `decode` knows
# the IPv4 identification from there, so it checks each invariant CRC in full.

ROCE_HERE=10.0.3.2 ROCE_GUEST=10.0.3.15
ROCE_HERE6=fd00:3::2 ROCE_GUEST6=fd00:3::15
ROCE_PORT=7174

# Says what is missing here, or nothing.
roce_missing() {
    [ "$(id -u)" = 0 ] || { echo "root, to make a network namespace"; return; }
    [ -c /dev/net/tun ] || { echo "/dev/net/tun"; return; }
    local tool
    for tool in ip setpriv tshark; do
        command -v "$tool" >/dev/null || { echo "$tool"; return; }
    done
    ip netns add "warpline-try-$$" 2>/dev/null || { echo "the right to make a network namespace"; return; }
    ip netns del "warpline-try-$$"
}

# Makes the namespace in which qemu runs; `vm_stop` removes it.
roce_net() {
    VM_NETNS=warpline-vm-$$
    ip netns add "$VM_NETNS"
    ip -n "$VM_NETNS" link set lo up
    ip -n "$VM_NETNS" tuntap add rxe mode tap
    roce_link 4300
}

# Sets the MTU of this machine's end; below 1,280 octets it has no IPv6.
roce_link() { # OCTETS
    ip -n "$VM_NETNS" link set rxe mtu "$1" up
    ip -n "$VM_NETNS" addr replace $ROCE_HERE/24 dev rxe
    [ "$1" -lt 1280 ] || ip -n "$VM_NETNS" addr replace $ROCE_HERE6/64 dev rxe nodad
}

# Runs a program beside the guest, as a user without capabilities.
on_roce() {
    exec ip netns exec "$VM_NETNS" setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
        --bounding-set=-all --inh-caps=-all "$@"
}

vm_roce_programs() {
    roce_net
    vm_interop_programs
    # The verbs libraries, too.
    vm_rping_programs
}

# "short": fewer round trips, and of `duet` one case of each operation.
vm_roce() { # [short]
    VM_CASES=0 VM_FAILED=0
    local short=${1:-} rounds=100 cases= mtu
    [ "$short" != short ] || rounds=20 cases="read.connector write.listener write-beyond-end.connector private-data.connector"
    # So that the other user can start them, wherever they were built.
    chmod 755 "$VM_DIR"
    cp "$WARPLINE" "$DUET" "$VM_DIR/"
    mkdir "$VM_DIR/verbs"
    cp -L "$("$WARPLINE" verbs --libdir)"/{libibverbs,librdmacm}.so.1 "$VM_DIR/verbs"
    vm_sh "echo 0 >/proc/sys/net/ipv6/conf/eth1/accept_dad; ip -6 addr add $ROCE_GUEST6/64 dev eth1"
    (on_roce grep CapEff: /proc/self/status) >"$VM_DIR/log"
    roce_verdict "our end has no capability" "$(grep -c '^CapEff:[[:space:]]*0*$' "$VM_DIR/log" | sed 's/^1$/0/; t; s/.*/1/')"
    roce_both "IPv4, path MTU 4096" $ROCE_HERE $ROCE_GUEST "$rounds" 60000
    roce_both "IPv6, path MTU 4096" "[$ROCE_HERE6]" "[$ROCE_GUEST6]" "$rounds" 60000
    # shellcheck disable=SC2086 # names
    roce_duet_in $cases
    # shellcheck disable=SC2086
    roce_duet_out $cases
    roce_programs IPv4 $ROCE_HERE $ROCE_GUEST roce_table
    if [ "$short" != short ]; then
        roce_programs IPv4 $ROCE_HERE $ROCE_GUEST roce_table4
        roce_programs IPv6 $ROCE_HERE6 $ROCE_GUEST6 roce_table
    fi
    for mtu in 1500:1024 $([ "$short" = short ] || echo 352:256 608:512 2200:2048); do
        roce_mtu "${mtu%:*}"
        roce_both "IPv4, path MTU ${mtu#*:}" $ROCE_HERE $ROCE_GUEST 20 60000
    done
    roce_mtu 1500
    roce_lossy "${1:-}"
    roce_dead
    roce_killed
    roce_frames
    echo "$((VM_CASES - VM_FAILED)) passed, $VM_FAILED failed"
    [ "$VM_FAILED" = 0 ]
}

roce_mtu() { # OCTETS
    roce_link "$1"
    vm_sh "ip link set eth1 mtu $1"
}

# Round trips of rping in both roles; every octet is compared.
roce_both() { # NAME HERE GUEST ROUNDS OCTETS
    roce_out "$1" "$3" "$4" "$5"
    roce_in "$1" "$2" "$4" "$5"
}

# Ours connects: rxe reads our memory and writes it.
roce_out() { # NAME GUEST ROUNDS OCTETS
    local status=0
    roce_guest_serves "rping -s -a $(tr -d '[]' <<<"$2") -p $ROCE_PORT -S 65535"
    (on_roce timeout 60 "$VM_DIR/warpline" ping "$2:$ROCE_PORT" --device vp_roce --count "$3" --size "$4" \
        --interval 0 --timeout 20 --verify --quiet) >"$VM_DIR/log" 2>&1 || status=$?
    vm_sh 'killall rping 2>/dev/null; true'
    roce_verdict "ours connects: $1" "$status"
}

# Starts a server in the guest, and waits until it listens.
roce_guest_serves() { # COMMAND
    vm_sh "(timeout 300 $1 >/run/serves 2>&1 &)"
    vm_sh 'timeout 20 sh -c "until rdma resource show cm_id | grep -q LISTEN; do :; done"'
}

# rxe connects: we read its memory and write it.
roce_in() { # NAME HERE ROUNDS OCTETS
    local status=0 seen serving line
    exec 7< <(on_roce timeout 100 "$VM_DIR/warpline" ping --serve "$2:0" --once --device vp_roce --timeout 20 2>&1)
    serving=$!
    IFS= read -r -t 20 line <&7 || die "warpline ping --serve says nothing"
    # Its lines are as long as its messages, too long for the guest's serial line.
    vm_sh "timeout 60 rping -c -a $(tr -d '[]' <<<"$2") -p ${line##*:} -C $3 -S $4 -v -V >/run/pings 2>/run/why" || status=$?
    vm_sh 'cat /run/why; grep -c "^ping data: " /run/pings' >"$VM_DIR/log" 2>&1 || true
    seen=$(tail -n 1 "$VM_DIR/log")
    [ "$status" != 0 ] || [ "$seen" = "$3" ] || status="only $seen round trips"
    [ "$status" = 0 ] || kill "$serving" 2>/dev/null || true
    cat <&7 >>"$VM_DIR/log"
    exec 7<&-
    roce_verdict "rxe connects: $1" "$status"
}

# Every operation and refusal. rxe does not invalidate regions that a program has registered, and a Send without a
# receive is repeated.
ROCE_WITHOUT=invalidate,send-without-receive

roce_duet_in() { # CASE...
    local status=0 serving line
    exec 7< <(on_roce timeout 200 "$VM_DIR/duet" --ia vp_roce serve $ROCE_HERE:0 2>&1)
    serving=$!
    IFS= read -r -t 20 line <&7 || die "duet serve says nothing"
    vm_sh "timeout 110 duet --ia rxe0 --without $ROCE_WITHOUT connect $ROCE_HERE:${line##*:} $*" >"$VM_DIR/log" 2>&1 || status=$?
    [ "$status" = 0 ] || kill "$serving" 2>/dev/null || true
    cat <&7 >>"$VM_DIR/log"
    exec 7<&-
    roce_duet_verdict "rxe connects: duet" "$status"
}

roce_duet_out() { # CASE...
    local status=0
    roce_guest_serves "duet --ia rxe0 serve $ROCE_GUEST:$ROCE_PORT"
    (on_roce timeout 110 "$VM_DIR/duet" --ia vp_roce --without $ROCE_WITHOUT connect $ROCE_GUEST:$ROCE_PORT "$@") \
        >"$VM_DIR/log" 2>&1 || status=$?
    vm_sh 'cat /run/serves; killall duet 2>/dev/null; true' >>"$VM_DIR/log"
    roce_duet_verdict "ours connects: duet" "$status"
}

# Both ends print a line for each case.
roce_duet_verdict() { # NAME STATUS
    local good status=$2
    good=$(grep -c '^ok ' "$VM_DIR/log" || true)
    ! grep -q '^FAILED\|^differs' "$VM_DIR/log" || status="$status, with failed cases"
    [ "$good" -gt 0 ] || status="$status, without a case"
    sed -i '/^ok /d' "$VM_DIR/log"
    roce_verdict "$1, $good lines of both ends" "$status"
}

# The guest's kernel loses, repeats and delays one packet of a hundred in each direction. The timer of rxe's
# requester decides how long that takes: 0.3 s if we connect, 2.1 s if it does, whichever rdma_cm asked for.
roce_lossy() { # [short]
    local rounds=40 netem="netem delay 1ms loss 1% duplicate 1% reorder 99%"
    [ "${1:-}" != short ] || rounds=10
    {
        vm_sh 'ip link set ifb0 up mtu 4300; /sbin/tc qdisc add dev eth1 ingress'
        vm_sh '/sbin/tc filter add dev eth1 ingress matchall action mirred egress redirect dev ifb0'
        vm_sh "/sbin/tc qdisc add dev ifb0 root $netem && /sbin/tc qdisc add dev eth1 root $netem"
    } || die "the guest has no netem"
    roce_both "1 % loss, repetition and delay" $ROCE_HERE $ROCE_GUEST "$rounds" 20000
    vm_sh '/sbin/tc -s qdisc show dev eth1' | sed -n 's/.*(dropped \([0-9]*\).*/        rxe lost \1 packets that it sent/p' | head -n 1
    vm_sh '/sbin/tc qdisc del dev eth1 root; /sbin/tc qdisc del dev eth1 ingress'
}

# rxe is silent in the middle of a transfer: our request fails when its repetitions are over, 2.1 s later.
roce_dead() {
    local status=0 line
    roce_guest_serves "rping -s -a $ROCE_GUEST -p $ROCE_PORT -S 65535"
    exec 7< <(on_roce timeout 60 "$VM_DIR/warpline" ping "$ROCE_GUEST:$ROCE_PORT" --device vp_roce --count 0 --size 30000 \
        --interval 0 --timeout 30 2>&1)
    # It runs.
    for _ in 1 2 3; do IFS= read -r -t 20 line <&7 || die "warpline ping says nothing"; done
    vm_sh 'ip link set eth1 down'
    cat <&7 >"$VM_DIR/log"
    exec 7<&-
    grep -q "cause *cm-lost" "$VM_DIR/log" || status="not cm-lost"
    vm_sh 'killall rping; ip link set eth1 up'
    roce_verdict "rxe falls silent: the connection is lost" "$status"
}

# No frame is malformed, and every invariant CRC is correct.
roce_frames() {
    local frames status=0 dissector payloads_are_data=()
    # tshark tries its dissectors for what InfiniBand carries on every payload: two random octets and two zeros may
    # be an EtherType, and the rest is malformed then.
    for dissector in eth_over_ib fc_infiniband iser_infiniband lnet_ib rpcrdma_infiniband sdp_infiniband \
        smb_direct_infiniband smcr_infiniband; do
        payloads_are_data+=(--disable-heuristic "$dissector")
    done
    frames=$(tshark -r "$VM_PCAP" -Y 'udp.dstport == 4791' 2>/dev/null | wc -l)
    tshark -r "$VM_PCAP" "${payloads_are_data[@]}" -Y _ws.malformed >"$VM_DIR/log" 2>/dev/null
    [ ! -s "$VM_DIR/log" ] || status="malformed for tshark"
    # A status other than 0 means a broken requirement.
    "$WARPLINE" decode --pcap "$VM_PCAP" --brief >"$VM_DIR/decoded" 2>&1 || status="decode finds fault"
    tail -n 3 "$VM_DIR/decoded" >>"$VM_DIR/log"
    [ "$frames" -gt 1000 ] || status="only $frames frames"
    roce_verdict "$frames frames, each well formed and with a correct CRC" "$status"
}

roce_verdict() { # NAME STATUS
    VM_CASES=$((VM_CASES + 1))
    if [ "$2" = 0 ]; then
        echo "passed  $1"
        return
    fi
    VM_FAILED=$((VM_FAILED + 1))
    echo "FAILED  $1: $2"
    tail -n 30 "$VM_DIR/log" | sed 's/^/        /'
}
