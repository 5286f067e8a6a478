# Runs SoftRDMA on this machine against the kernel's siw in the guest, in both roles: `duet` is the same IT-API
# program at both ends, over two providers. It runs each operation, end and refusal in both directions
# (tests/src/bin/duet/cases.rs); this file has the kinds of start-up.
#
# Sourced by `run`. A case that deviates from the standards must be listed below, with the reason; a capture
# shows that the start-up was the intended one. VM_REPORTS is a folder for the output of both ends.

# Known deviations of siw: the case (its leading end is SoftRDMA), what is seen, why.
interop_known() {
    cat <<'KNOWN'
write-without-right|Terminate 1/1/0 received|siw says "invalid STag" for a missing right
read-unknown-stag|Terminate 1/0/0 received|layer and type in each other's place [IOP-10]: 0/1/0 is meant
read-gone|Terminate 1/0/0 received|layer and type in each other's place [IOP-10]: 0/1/0 is meant
read-without-right|the read is answered|siw does not enforce remote read rights
send-too-long|Terminate 1/2/2 received|siw says "no buffer" for one that is too short
*|closed by the other end|siw sends no Terminate while a message of its own is under way [siw_send_terminate]
reject|rejected, without the private data|siw takes a FIN in the same segment before the Reply
KNOWN
}

# Reads of no octets are left out where siw responds. If siw must queue one after other work, it takes the
# memory of that work [siw_activate_tx, siw_qp_sq_proc_tx]: after a small Send it is refused as for an unknown
# STag, after other work the response has octets.
#
# "short" runs one kind of start-up for each role, with CRC.
vm_interop() { # [short]
    VM_CASES=0 VM_FAILED=0
    echo "duet connects over SoftRDMA -> duet serves over siw"
    interop_out "revision 2, CRC, peer-to-peer by Write" "5002p 5002pw" --mpa 2 --crc on --rtr write
    if [ "${1:-}" != short ]; then
        interop_out "revision 2, CRC" "5002 5002" --mpa 2 --crc on --rtr none
        interop_out "revision 2, no CRC" "1002 1002" --mpa 2 --crc off --rtr none
        interop_out "revision 2, no CRC, peer-to-peer by Read" "1002p 1002pr" --mpa 2 --crc off --rtr read
        interop_out "revision 1, CRC" "4001 4001" --mpa 1 --crc on --rtr none
        interop_out "revision 1, no CRC" "0001 0001" --mpa 1 --crc off --rtr none
        interop_out "profile siw" "5002p 5002pw" --profile siw
    fi
    echo "duet connects over siw -> duet serves over SoftRDMA"
    # The guest's connection manager chooses source ports at random, and siw fails with EADDRNOTAVAIL if one
    # belongs to an earlier connection to the same address, in TIME-WAIT.
    vm_sh 'echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse'
    interop_in "revision 2, CRC, peer-to-peer by Read" "5002p 5002pr" "2 Y Y 64"
    if [ "${1:-}" != short ]; then
        interop_in "revision 2, CRC" "5002 5002" "2 Y N 192"
        interop_in "revision 2, no CRC" "1002 1002" "2 N N 192" --crc off
        interop_in "revision 2, no CRC, peer-to-peer by Write" "1002p 1002pw" "2 N Y 128" --crc off
        interop_in "revision 1, CRC" "4001 4001" "1 Y N 192"
        interop_in "revision 1, no CRC" "0001 0001" "1 N N 192" --crc off
        interop_in "profile siw, siw as it comes" "1002 5002" "2 N N 192" --profile siw
    fi
    echo "$((VM_CASES - VM_FAILED)) passed, $VM_FAILED failed"
    [ "$VM_FAILED" = 0 ]
}

vm_interop_programs() {
    vm_cargo -p warpline-tests --bin duet
    DUET=${CARGO_TARGET_DIR:-$VM_HERE/../../target}/debug/duet
    vm_push "$DUET"
}

# This machine connects, the guest listens.
interop_out() { # NAME START-UP DUET-OPTION...
    local name=$1 startup=$2 status=0
    shift 2
    vm_sh "(timeout 300 duet --ia siw0 serve 10.0.2.15:$VM_GUEST_PORT >/run/duet 2>&1; echo status \$? >>/run/duet) &"
    vm_sh 'until grep -q listening /run/duet; do :; done'
    timeout 300 "$DUET" "$@" --without read-nothing.connector connect "127.0.0.1:$VM_PORT" >"$VM_DIR/here" 2>&1 || status=$?
    vm_sh 'n=0; until grep -q ^status /run/duet || [ $n = 20 ]; do sleep 1; n=$((n + 1)); done; cat /run/duet; killall duet 2>/dev/null; true' >"$VM_DIR/there"
    sed -i '/^listening/d; /^status 0$/d' "$VM_DIR/there"
    interop_verdict "$name" "$startup" "$status" "listens"
}

# The guest connects, this machine listens. siw's settings: "revision crc peer-to-peer rtr-type".
interop_in() { # NAME START-UP SIW-SETTINGS DUET-OPTION...
    local name=$1 startup=$2 line port serving status=0 settings
    read -r -a settings <<<"$3"
    shift 3
    vm_sh "cd /sys/module/siw/parameters; echo ${settings[0]} >mpa_version; echo ${settings[1]} >mpa_crc_required; echo ${settings[2]} >peer_to_peer; echo ${settings[3]} >rtr_type"
    exec 7< <(exec timeout 300 "$DUET" "$@" serve 127.0.0.1:0 2>&1)
    serving=$!
    IFS= read -r -t 20 line <&7 || die "duet serve says nothing"
    port=${line##*:}
    vm_sh "timeout 300 duet --ia siw0 --without read-nothing.listener connect 10.0.2.2:$port" >"$VM_DIR/there" 2>&1 || status=$?
    # It exits after the last case; if it does not, a case has failed.
    [ "$status" = 0 ] || kill "$serving" 2>/dev/null || true
    cat <&7 >"$VM_DIR/here"
    exec 7<&-
    interop_verdict "$name" "$startup" "$status" "connects"
}

# Both ends' lines must be good or known, of equal number, and the start-up the intended one.
interop_verdict() { # NAME START-UP STATUS ROLE-OF-SIW
    local name=$1 startup=$2 status=$3 seen here there odd lost
    VM_CASES=$((VM_CASES + 1))
    seen=$(vm_startup rtr)
    here=$(grep -c '^ok\|^differs' "$VM_DIR/here" || true)
    there=$(grep -c '^ok\|^differs' "$VM_DIR/there" || true)
    odd=$(cat "$VM_DIR/here" "$VM_DIR/there" | interop_odd)
    # One may be lost; more would mean that siw or SoftRDMA does not send them.
    lost=$(cat "$VM_DIR/here" "$VM_DIR/there" | grep -c '^differs .* closed by the other end$' || true)
    [ "$lost" -le 1 ] || odd+="        $lost connections ended without a Terminate"
    if [ -n "${VM_REPORTS:-}" ]; then
        mkdir -p "$VM_REPORTS"
        { echo "# $name; siw $4: SoftRDMA's end"; cat "$VM_DIR/here"; echo "# siw's end"; cat "$VM_DIR/there"; } \
            >>"$VM_REPORTS/interop-$4.txt"
    fi
    if [ "$status" = 0 ] && [ -z "$odd" ] && [ "$here" = "$there" ] && [ "$seen" = "$startup" ]; then
        echo "passed  $name: $here cases, $(grep -c '^differs' "$VM_DIR/here" || true) as known of siw"
    else
        VM_FAILED=$((VM_FAILED + 1))
        echo "FAILED  $name: status $status, $here and $there cases, start-up $seen where $startup is expected"
        printf '%s\n' "$odd"
        vm_sh 'dmesg | grep "BUG\|WARNING" | head -n 3' || true
    fi
}

# Lines that are neither good nor known.
interop_odd() {
    { grep -v '^ok ' || true; } | while IFS= read -r line; do
        interop_is_known "$line" || printf '        %s\n' "$line"
    done
}

interop_is_known() { # LINE
    local case seen
    while IFS='|' read -r case seen _; do
        # shellcheck disable=SC2053 # a pattern
        [[ $1 != "differs "$case"."*" $seen" ]] || return 0
    done < <(interop_known)
    return 1
}
