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
