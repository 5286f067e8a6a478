# Runs `warpline conform --roce` on this machine, as a user without any capability, against the kernel's rxe in the
# guest, in both roles. Where rxe accepts, the target of `conform --roce --serve` runs on it; where it connects, stock rping.
#
# Sourced by `run`, with roce.sh. Passes if both reports are complete: docs/conform-roce.md has what rxe breaks, and why
# that is so. VM_REPORTS is a folder for the reports (default: printed).

vm_conform-roce() {
    local reports=${VM_REPORTS:-$(mktemp -d)}
    mkdir -p "$reports"
    chmod 755 "$VM_DIR"
    cp "$WARPLINE" "$VM_DIR/"
    conform_rxe_accepts "$reports/rxe-accepts.txt"
    conform_rxe_connects "$reports/rxe-connects.txt"
    conform_rxe_vlan
    cat "$reports"/rxe-*.txt
    [ -n "${VM_REPORTS:-}" ] || rm -r "$reports"
}

conform_rxe_report() { # FILE WARPLINE-OPTION...
    local file=$1 status=0
    shift
    (on_roce timeout 1500 "$VM_DIR/warpline" conform --roce "$@") >"$file" 2>"$VM_DIR/log" || status=$?
    # 1: a case failed, as the report shows.
    [ "$status" -le 1 ] || die "warpline conform --roce $*: status $status: $(cat "$VM_DIR/log" "$file")"
}

conform_rxe_accepts() { # FILE
    vm_sh "(while [ ! -e /stop ]; do warpline conform --roce --device rxe0 --serve $ROCE_GUEST:$ROCE_PORT; done >/run/serves 2>&1 &)"
    vm_sh 'timeout 60 sh -c "until rdma resource show cm_id | grep -q LISTEN; do :; done"'
    conform_rxe_report "$1" "$ROCE_GUEST:$ROCE_PORT"
    vm_sh 'touch /stop; killall warpline; dmesg | grep "BUG:\|WARNING:\|refcount_t" | head -n 4; rm -f /stop'
}

# The guest connects once for each case.
conform_rxe_connects() { # FILE
    vm_sh "(while [ ! -e /stop ]; do timeout 25 rping -c -a $ROCE_HERE -p $ROCE_PORT -C 2 -S 65535; done >/dev/null 2>&1 &)"
    conform_rxe_report "$1" --listen "$ROCE_HERE:$ROCE_PORT" --wait 60
    vm_sh 'touch /stop; killall rping; dmesg | grep "BUG:\|WARNING:\|refcount_t" | head -n 4; rm -f /stop'
}

# Both in the guest, because many machines have no VLAN interfaces: the tester is in a network namespace of its own, and a pair of
# interfaces leads there. rxe is on the interface whose frames have the tags, and has the address of its VLAN.
conform_rxe_vlan() {
    local case='--case "frames with a VLAN tag"' tester="/sbin/ip netns exec other timeout 60 warpline conform --roce"
    vm_sh 'mkdir -p /var/run/netns; /sbin/ip netns add other; /sbin/ip link add pair type veth peer name other netns other'
    vm_sh '/sbin/ip link set pair up; /sbin/ip link add link pair name pair.7 type vlan id 7; /sbin/ip addr add 10.7.0.1/24 dev pair.7; /sbin/ip link set pair.7 up'
    vm_sh 'i="/sbin/ip -n other"; $i link set lo up; $i link set other up; $i link add link other name other.7 type vlan id 7; $i addr add 10.7.0.2/24 dev other.7; $i link set other.7 up'
    vm_sh 'rdma link add rxe7 type rxe netdev pair' || die "the guest has no rxe on the VLAN's interface"
    vm_sh "(warpline conform --roce --device rxe7 --serve 10.7.0.1:$ROCE_PORT >/run/serves 2>&1 &)"
    vm_sh 'timeout 60 sh -c "until grep -q ^serving /run/serves; do sleep 0.1; done"'
    vm_sh "$tester 10.7.0.1:$ROCE_PORT $case" >"$VM_DIR/log" 2>&1 || { cat "$VM_DIR/log"; die "rxe accepts on a VLAN interface: failed"; }
    vm_sh "(while [ ! -e /stop ]; do timeout 20 warpline ping 10.7.0.2:$ROCE_PORT -c 2 -i 0 --device rxe7; sleep 0.2; done >/dev/null 2>&1 &)"
    vm_sh "$tester --listen 10.7.0.2:$ROCE_PORT --wait 50 $case" >>"$VM_DIR/log" 2>&1 || { cat "$VM_DIR/log"; die "rxe connects on a VLAN interface: failed"; }
    vm_sh 'touch /stop; killall warpline; rm -f /stop'
    [ "$(grep -c '^ *1/1 pass' "$VM_DIR/log")" = 2 ] || { cat "$VM_DIR/log"; die "the case was not played"; }
    echo "passed  frames with a VLAN tag, in both roles"
}
