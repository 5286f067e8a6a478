# A session of messages over the kernel's siw or rxe that goes on by SoftRDMA when the device is lost, and returns to it once it is
# back: `two_ways`, both ends in the guest. Each message must come back whole, once and in order, and the memory of
# both ends stays bounded.
#
# Sourced by `run`. The device is removed in the middle of the traffic, its interface goes down and up, its address is taken away
# and given back. Debian's rxe, as it is, is removed only once no program has it open; the guest has another whose devices can be
# removed at any time, as those of adapters can (image.sh).

RESUME_ROUNDS=${RESUME_ROUNDS:-5}
# Octets in KiB that an end may have used at most.
RESUME_MEMORY=200000

vm_resume_programs() {
    vm_cargo -p warpline-examples
    vm_push "${CARGO_TARGET_DIR:-$VM_HERE/../../target}/debug/two_ways" "$(gcc -print-file-name=libm.so.6)"
}

vm_resume() {
    VM_CASES=0 VM_FAILED=0
    resume_waits
    vm_sh 'rdma link delete rxe0; rmmod rdma_rxe; insmod /modules/removable/rdma_rxe.ko; rdma link add rxe0 type rxe netdev eth1' >/dev/null
    local device
    for device in rxe siw; do
        resume_removed "$device"
        resume_down "$device"
        resume_address "$device"
    done
    echo "$((VM_CASES - VM_FAILED)) passed, $VM_FAILED failed"
    [ "$VM_FAILED" = 0 ]
}

# The addresses of a device and of the other way, which are on different interfaces.
resume_ways() { # rxe|siw
    case $1 in
    rxe) RESUME_LINK=eth1 RESUME_AT=10.0.3.15 RESUME_OTHER=10.0.2.15 ;;
    siw) RESUME_LINK=eth0 RESUME_AT=10.0.2.15 RESUME_OTHER=10.0.3.15 ;;
    esac
    RESUME_WAYS="${1}0=$RESUME_AT:7175 vp_softrdma=$RESUME_OTHER:7176"
}

# Starts both ends; the client sends until /run/more has no writer.
resume_begin() { # rxe|siw
    resume_ways "$1"
    vm_sh "rm -f /run/more; mkfifo /run/more; (sleep 600 >/run/more & echo \$! >/run/writer)"
    vm_sh "(timeout 600 two_ways serve $RESUME_WAYS >/run/server 2>&1; echo \"status \$?\" >>/run/server) &"
    resume_until 60 'test $(grep -c "^listening" /run/server) = 2' || return 1
    vm_sh "(timeout 600 two_ways connect $RESUME_WAYS </run/more >/run/client 2>&1; echo \"status \$?\" >>/run/client) &"
    resume_way 0 0
}

# Waits in the guest until a command succeeds.
resume_until() { # SECONDS COMMAND
    vm_sh "timeout $1 sh -c 'until $2 2>/dev/null; do sleep 0.1; done'" >/dev/null
}

# Waits until the session has moved so often at least, and is connected by this way; then for some traffic.
resume_way() { # WAY MOVES
    resume_until 90 "tail -n 1 /run/client | awk -v way=$1 -v moves=$2 \"BEGIN { bad = 1 } /^by way/ && \\\$3 == way && \\\$5 >= moves { bad = 0 } END { exit bad }\"" || return 1
    vm_sh "sleep 1"
}

# Both ends finish: every message came back, and nobody needed more memory than the options allow.
resume_end() { # NAME MOVES-AT-LEAST
    local status=0 why=
    vm_sh 'grep -h VmHWM /proc/$(pidof two_ways | cut -d" " -f1)/status /proc/$(pidof two_ways | cut -d" " -f2)/status' >"$VM_DIR/memory" 2>&1 || true
    [ "$(awk -v most="$RESUME_MEMORY" '/VmHWM/ && $2 <= most' "$VM_DIR/memory" | wc -l)" = 2 ] || why=", memory: $(tr '\n' ' ' <"$VM_DIR/memory")"
    vm_sh 'kill $(cat /run/writer)'
    resume_until 60 'grep -q "^status" /run/client && grep -q "^status" /run/server' || why+=", an end hangs"
    vm_sh 'cat /run/server; echo; cat /run/client; dmesg | grep "BUG:\|WARNING:\|refcount_t" | head -n 4' >"$VM_DIR/log"
    [ "$(grep -c 'each once and in order' "$VM_DIR/log")" = 2 ] && [ "$(grep -c '^status 0' "$VM_DIR/log")" = 2 ] || why+=", not all messages"
    ! grep -q 'BUG:\|WARNING:\|refcount_t' "$VM_DIR/log" || why+=", the kernel complains"
    local moves
    moves=$(sed -n 's/^by way [0-9]* after \([0-9]*\) moves.*/\1/p' "$VM_DIR/log" | tail -n 1)
    [ "${moves:-0}" -ge "$2" ] || why+=", $moves moves instead of $2"
    VM_CASES=$((VM_CASES + 1))
    if [ -z "$why" ]; then
        echo "passed  $1: $moves moves, $(sed -n 's/ each once.*//p' "$VM_DIR/log" | tail -n 1) $(sed -n 's/VmHWM:[[:space:]]*//p' "$VM_DIR/memory" | paste -sd/)"
        return
    fi
    VM_FAILED=$((VM_FAILED + 1))
    echo "FAILED  $1$why"
    sed 's/^/        /' "$VM_DIR/log"
    vm_sh 'killall two_ways; sleep 1; killall -9 two_ways; true' >/dev/null 2>&1
}

# Debian's rxe: the removal waits for the programs, and the traffic goes on.
resume_waits() {
    resume_begin rxe
    vm_sh '(rdma link delete rxe0; echo gone >/run/gone) & sleep 3; test ! -e /run/gone' || echo "        it is gone at once"
    resume_end "rxe, as Debian builds it: its removal waits for the programs" 0
    resume_until 20 'test -e /run/gone' || echo "        it is never gone"
    vm_sh 'rdma link add rxe0 type rxe netdev eth1'
}

resume_removed() { # rxe|siw
    local round
    resume_begin "$1" || true
    for round in $(seq "$RESUME_ROUNDS"); do
        vm_sh "timeout 60 rdma link delete ${1}0" || echo "        ${1}0 is not deleted"
        resume_way 1 $((2 * round - 1)) || break
        vm_sh "rdma link add ${1}0 type $1 netdev $RESUME_LINK"
        resume_way 0 $((2 * round)) || break
    done
    resume_end "$1, removed $RESUME_ROUNDS times" $((2 * RESUME_ROUNDS))
    vm_sh "rdma link add ${1}0 type $1 netdev $RESUME_LINK 2>/dev/null; true"
}

# rxe loses the connection once its time-outs are over, and the session goes on by the other way meanwhile. A message of the
# connection manager that finds no route puts the requester of rxe's queue pair 1 into error for good (`rxe_requester`), as the attempts
# to return do: nothing connects by that device until it is made anew. siw ends its connections at once, and makes others, because
# both ends are in the guest.
resume_down() { # rxe|siw
    local moves=1
    resume_begin "$1" || true
    vm_sh "ip link set $RESUME_LINK down"
    case $1 in
    rxe)
        moves=2
        resume_way 1 1 || true
        vm_sh "ip link set $RESUME_LINK up; rdma link delete rxe0; rdma link add rxe0 type rxe netdev $RESUME_LINK"
        ;;
    siw) vm_sh "sleep 5; ip link set $RESUME_LINK up; ip route add default via 10.0.2.2 2>/dev/null; true" ;;
    esac
    resume_way 0 $moves || true
    resume_end "$1, its interface down and up" $moves
}

# rxe has no address any more to send from. The kernel keeps the TCP connections of siw, since both ends are in the guest.
resume_address() { # rxe|siw
    local moves=0
    resume_begin "$1" || true
    vm_sh "ip addr del $RESUME_AT/24 dev $RESUME_LINK"
    case $1 in
    rxe)
        moves=2
        resume_way 1 1 || true
        ;;
    siw) vm_sh 'sleep 5' ;;
    esac
    vm_sh "ip addr add $RESUME_AT/24 dev $RESUME_LINK"
    resume_way 0 $moves || true
    resume_end "$1, its address taken away and given back" $moves
}
