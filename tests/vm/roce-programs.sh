# Runs stock programs of libibverbs and librdmacm on our libraries (`warpline run --roce`) against the same programs on
# the kernel's rxe, in both roles, and ends rxe in the middle of a transfer.
#
# Sourced by `run`; uses roce.sh. Programs by path exchange GIDs and queue pair numbers over TCP with IPv4; the GIDs
# decide about RoCE's packets.

ROCE_TCP=18515

# How the peers meet, the server's command, and the client's if it differs by more than the server's address. {gid} is
# the index of an end's own GID, {server} the server's address.
roce_table() {
    cat <<'TABLE'
path|ibv_rc_pingpong -g {gid} -n 200 -c
path|ibv_uc_pingpong -g {gid} -n 200 -c
path|ibv_ud_pingpong -g {gid} -n 200 -s 1000 -c
path|ib_send_lat -x {gid} -n 100 -F
path|ib_send_lat -x {gid} -n 100 -F -c UD
path|ib_send_lat -x {gid} -n 100 -F -c UC
path|ib_write_bw -x {gid} -n 100 -s 65536 -F
path|ib_write_bw -x {gid} -n 100 -s 65536 -F -c UC
path|ib_read_bw -x {gid} -n 100 -s 65536 -F
path|ib_atomic_bw -x {gid} -n 100 -F
cm|ucmatose -b {server} -c 4 -C 10|ucmatose -s {server} -c 4 -C 10
cm|udaddy -b {server} -c 4 -C 10|udaddy -s {server} -c 4 -C 10
TABLE
}

# Programs whose server listens on IPv4 only.
roce_table4() {
    cat <<'TABLE'
cm|rdma_server -p 7174|rdma_client -s {server} -p 7174
cm|ib_send_lat -R -p 7174 -n 100 -F
cm|ib_write_bw -R -p 7174 -n 100 -s 65536 -F
TABLE
}

# Every program of a table, in both roles.
roce_programs() { # FAMILY HERE GUEST TABLE
    local kind serves connects
    while IFS='|' read -r kind serves connects <&6; do
        [ -n "$connects" ] || connects="$serves {tcp}"
        roce_program out "$1" "$3" "$kind" "$serves" "$connects"
        roce_program in "$1" "$2" "$kind" "$serves" "$connects"
    done 6< <("$4")
}

roce_program() { # out|in FAMILY SERVER KIND SERVES CONNECTS
    local name="${6%% \{tcp\}}" guest here
    name="$2, ${name//\{server\}/SERVER}"
    name=${name//\{gid\}/GID}
    if [ "$1" = out ]; then
        guest=$(roce_filled "$5" "$2" guest "$3") here=$(roce_filled "$6" "$2" here "$3" $ROCE_GUEST)
        roce_program_out "ours connects: $name" "$4" "$guest" "$here"
    else
        here=$(roce_filled "$5" "$2" here "$3") guest=$(roce_filled "$6" "$2" guest "$3" $ROCE_HERE)
        roce_program_in "rxe connects: $name" "$4" "$here" "$guest"
    fi
}

# A command for an end: its device and the index of its GID; the server's addresses.
roce_filled() { # COMMAND FAMILY here|guest SERVER [TCP-SERVER]
    local command=$1 device=roce0
    [ "$3" = here ] || device=rxe0
    [[ $command != *{gid}* ]] || command="${command/ / -d $device }"
    command=${command//\{gid\}/$("roce_gid_$3" "$2")}
    command=${command//\{server\}/$4}
    echo "${command//\{tcp\}/${5:-}}"
}

roce_gid_guest() { # FAMILY
    local gid=0000:0000:0000:0000:0000:ffff:0a00:030f
    [ "$1" = IPv4 ] || gid=fd00:0003:0000:0000:0000:0000:0000:0015
    vm_sh "cd /sys/class/infiniband/rxe0/ports/1/gids; grep -lx $gid *"
}

roce_gid_here() { # FAMILY
    local gid=::ffff:$ROCE_HERE
    [ "$1" = IPv4 ] || gid=$ROCE_HERE6
    (on_roce_libraries ibv_devinfo -v -d roce0) | sed -n "s/.*GID\[ *\([0-9]*\)\]:[[:space:]]*$gid\(,.*\)\?$/\1/p"
}

# Its user has no home directory, so no configuration.
on_roce_libraries() { on_roce env -u HOME timeout 60 "$VM_DIR/warpline" run --roce --no-view -- "$@"; }

# The guest's server, whose status is in /run/status.
roce_guest_program() { # KIND COMMAND
    local listens="rdma resource show cm_id | grep -q LISTEN"
    [ "$1" = cm ] || listens="grep -q ':$(printf %04X $ROCE_TCP) .* 0A ' /proc/net/tcp /proc/net/tcp6"
    vm_sh "rm -f /run/status; (timeout 60 $2 >/run/serves 2>&1; echo \$? >/run/status) &"
    vm_sh "until $listens || [ -e /run/status ]; do :; done"
}

# The status of the guest's server once it has ended.
roce_guest_status() {
    vm_sh 'until [ -s /run/status ]; do :; done; cat /run/status'
}

roce_program_out() { # NAME KIND SERVES CONNECTS
    local status=0 served
    roce_guest_program "$2" "$3"
    # shellcheck disable=SC2086 # words
    (on_roce_libraries $4) >"$VM_DIR/log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] || vm_sh "killall ${3%% *} 2>/dev/null; true"
    served=$(roce_guest_status)
    vm_sh 'cat /run/serves' >>"$VM_DIR/log"
    [ "$served" = 0 ] || status="$status, the server $served"
    roce_verdict "$1" "$status"
}

# A listener of rdma_cm cannot be seen from outside, so a client that it refuses tries again.
roce_program_in() { # NAME KIND SERVES CONNECTS
    local status=0 served=0 serving again=
    # shellcheck disable=SC2086 # words
    (on_roce_libraries $3) >"$VM_DIR/server" 2>&1 </dev/null &
    serving=$!
    if [ "$2" = path ]; then
        until [ -n "$(ip netns exec "$VM_NETNS" ss -Hltn "sport = :$ROCE_TCP")" ] || ! kill -0 "$serving" 2>/dev/null; do :; done
    else
        again=' || { grep -qi "reject\|unreachable" /run/client && continue; exit 1; }'
    fi
    vm_sh "timeout 50 sh -c 'while :; do $4 >/run/client 2>&1 && exit 0$again; exit 1; done'" || status=$?
    [ "$status" = 0 ] || kill "$serving" 2>/dev/null || true
    wait "$serving" || served=$?
    vm_sh 'cat /run/client' >"$VM_DIR/log"
    cat "$VM_DIR/server" >>"$VM_DIR/log"
    [ "$served" = 0 ] || status="$status, the server $served"
    roce_verdict "$1" "$status"
}

# Rxe ends in the middle of a transfer: requests fail with IBV_WC_RETRY_EXC_ERR (12) once their repetitions are over,
# after eight time-outs of 0.27 s, 2.1 s. Writes, because a program that waits for a message would wait for ever. Not
# `rdma link delete`: it does not return while requests arrive (Linux 6.1).
roce_killed() {
    roce_ends "its interface is down" 'ip link set eth1 down' 'ip link set eth1 up'
    roce_ends "its program is killed" 'killall -9 ib_write_bw' true
}

roce_ends() { # NAME END BEGIN
    local status=0 running start command="ib_write_bw -n 1000000 -s 1024 -t 2 -u 16 -F"
    roce_guest_program path "$command -d rxe0 -x $(roce_gid_guest IPv4)"
    # shellcheck disable=SC2086 # words
    (on_roce_libraries $command -d roce0 -x "$(roce_gid_here IPv4)" $ROCE_GUEST) >"$VM_DIR/log" 2>&1 </dev/null &
    running=$!
    roce_receives 200 "$running"
    vm_sh "$2"
    start=$(date +%s%N)
    ! wait "$running" || status="success"
    echo "        ended after $((($(date +%s%N) - start) / 1000000)) ms"
    grep -q "Failed status 12" "$VM_DIR/log" || status="not IBV_WC_RETRY_EXC_ERR"
    vm_sh "killall ib_write_bw 2>/dev/null; until [ -s /run/status ]; do :; done; $3"
    roce_verdict "rxe is gone in a transfer, $1: IBV_WC_RETRY_EXC_ERR" "$status"
}

# Waits until so many more frames have arrived, or the process has ended.
roce_receives() { # FRAMES PROCESS
    local from
    from=$(roce_received)
    until [ $(($(roce_received) - from)) -ge "$1" ] || ! kill -0 "$2" 2>/dev/null; do :; done
}

roce_received() { ip -n "$VM_NETNS" -s -j link show rxe | sed 's/.*"rx":{"bytes":[0-9]*,"packets":\([0-9]*\).*/\1/'; }
