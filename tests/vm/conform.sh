# Runs `warpline conform` against the kernel's siw, in both roles. The application in the guest is rdma-core's
# stock `rping`.
#
# Sourced by `run`. Passes if both reports are complete: siw's failures are known, and spec/conform-siw.md
# explains them. VM_REPORTS is a folder for the reports (default: printed).

# Cases that damage siw 6.1, so that each has its own guest. A request cut short by a FIN frees siw's listener
# once too often; at the replies here it dereferences a null pointer.
CONFORM_LISTENS_APART=("private data cut short by a FIN")
CONFORM_CONNECTS_APART=("unknown key" "PD_Length 513" "512 octets of private data")

vm_conform() {
    local reports=${VM_REPORTS:-$(mktemp -d)}
    mkdir -p "$reports"
    conform_parts conform_siw_listens "$reports/siw-listens" "${CONFORM_LISTENS_APART[@]}"
    conform_new_guest
    conform_parts conform_siw_connects "$reports/siw-connects" "${CONFORM_CONNECTS_APART[@]}"
    cat "$reports"/siw-*.txt
    [ -n "${VM_REPORTS:-}" ] || rm -r "$reports"
}

# Runs all cases except some, then those one at a time.
conform_parts() { # FUNCTION FILE CASE...
    local play=$1 file=$2 name number=0 options=()
    shift 2
    for name; do options+=(--skip "$name"); done
    "$play" "$file" "${options[@]}"
    for name; do
        number=$((number + 1))
        conform_new_guest
        "$play" "$file-$number" --case "$name"
    done
    for name in "$file"-[0-9]*.txt; do
        printf '\n--- in a guest of its own ---\n\n'
        cat "$name"
    done >>"$file.txt"
    rm "$file"-[0-9]*
    # The port differs in each guest.
    sed -i '/^ *[0-9]*\/[0-9]* /d; s/^peer at 127.0.0.1:[0-9]*/peer at 127.0.0.1:PORT/; /^warpline: .* not met$/d; /^  where  conform/d' "$file.txt"
}

conform_new_guest() {
    # The default capture is in the old guest's folder.
    [ "$VM_PCAP" != "$VM_DIR/capture.pcap" ] || VM_PCAP=
    vm_stop
    vm_start
}

conform_report() { # FILE WARPLINE-OPTION...
    local file=$1 status=0
    shift
    timeout 900 "$WARPLINE" conform "$@" >"$file.txt" 2>"$file.err" || status=$?
    # 1: a case failed, as the report shows.
    [ "$status" -le 1 ] || die "warpline conform $*: status $status: $(cat "$file.err")"
}

# rping serves until it ends, or until siw has lost its listening socket under it.
conform_siw_listens() { # FILE WARPLINE-OPTION...
    local file=$1
    shift
    vm_sh "(while [ ! -e /stop ]; do rping -s -P -a 10.0.2.15 -p $VM_GUEST_PORT -S 65535 & sleep 2; while kill -0 \$! && grep -q '0F02000A:1C06 00000000:0000 0A' /proc/net/tcp; do sleep 2; done; kill -9 \$!; done >/dev/null 2>&1 &)"
    vm_sh 'until rdma resource show cm_id | grep -q "state LISTEN"; do :; done'
    conform_report "$file" "127.0.0.1:$VM_PORT" "$@"
    conform_stop
}

# Ends the programs in the guest, and prints errors of its kernel.
conform_stop() {
    vm_sh 'touch /stop; killall rping 2>/dev/null; dmesg | grep "BUG:\|WARNING:\|refcount_t" | head -n 4; until ! pidof rping >/dev/null || [ -e /late ]; do sleep 1; touch /late; done; rm -f /stop /late'
}

# The guest connects repeatedly; an rping that cannot be killed is abandoned after 25 seconds.
conform_siw_connects() { # FILE WARPLINE-OPTION...
    local file=$1 port line
    shift
    exec 7< <(exec timeout 1500 "$WARPLINE" conform --listen 127.0.0.1:0 --wait 60 "$@" 2>&1)
    IFS= read -r -t 20 line <&7 || die "warpline conform --listen says nothing"
    port=${line##*:}
    vm_sh "(while [ ! -e /stop ]; do rping -c -a 10.0.2.2 -p $port -C 2 -S 65535 & n=0; while kill -0 \$! && [ \$n -lt 250 ]; do sleep 0.1; n=\$((n + 1)); done; kill -9 \$!; done >/dev/null 2>&1 &)"
    cat <&7 >"$file.txt"
    exec 7<&-
    conform_stop
}
