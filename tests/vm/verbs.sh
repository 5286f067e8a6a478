# Tests the bridge to rdma-core (`vp_verbs`) over the kernel's devices in the guest: siw0 is iWARP, rxe0 RoCE.
# The programs are those built for this machine.
#
# Sourced by `run`, with interop.sh. First the provider suite over each device, which has a list of their known
# deviations. Then `duet` against itself, `warpline ping` and `demo`, and the examples, in Rust and C, which
# differ only in the name and address of the interface adapter. `late_transition` needs streams, which these
# devices do not take: it must be refused with the reason.

VM_EXAMPLES="hello_rdma ping_pong rdma_copy kv late_transition media_pull"
VM_NO_STREAMS="convert a socket: not supported by this provider: this device makes its connections itself"

# "short" leaves out all examples but rdma_copy, and the suite over rxe, whose window case takes long.
vm_verbs() { # [short]
    VM_CASES=0 VM_FAILED=0
    local ia
    verbs_suite "${1:-}"
    vm_sh 'mkdir -p /run/from; cd /run/from; dd if=/dev/urandom of=large bs=1000003 count=4 2>/dev/null; echo 123 >small; >empty'
    for ia in vp_softrdma siw0 rxe0; do verbs_copy "$ia"; done
    if [ "${1:-}" != short ]; then
        for ia in siw0 rxe0; do verbs_duet "$ia"; done
        for ia in siw0 rxe0; do verbs_commands "$ia"; done
        for ia in vp_softrdma siw0 rxe0; do verbs_examples "$ia"; done
    fi
    echo "$((VM_CASES - VM_FAILED)) passed, $VM_FAILED failed"
    [ "$VM_FAILED" = 0 ]
}

# Builds the programs for the guest. The C examples have the names of those in Rust with "c_" before.
vm_verbs_programs() {
    local root=$VM_HERE/../.. target name suite
    target=${CARGO_TARGET_DIR:-$root/target}
    vm_cargo -p warpline-examples -p itapi-c
    vm_cargo -p warpline-tests --bin duet
    suite=$(cd "$root" &&
        cargo test --quiet -p warpline -p vp-verbs --test devices --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\/devices[^"]*\)".*/\1/p' | tail -n 1)
    "$root/scripts/install" --prefix "$target/vm" --from "$target/debug" >/dev/null
    mkdir -p "$target/vm/bin"
    cp "$suite" "$target/vm/bin/provider_suite"
    for name in $VM_EXAMPLES; do
        vm_push "$target/debug/$name"
        [ -e "$root/examples/c/$name.c" ] || continue
        # shellcheck disable=SC2016 # the loader's, not the shell's
        gcc -std=c99 -I"$target/vm/include" "$root/examples/c/$name.c" -o "$target/vm/bin/c_$name" \
            -L"$target/vm/lib" -litapi -pthread -Wl,-rpath,'$ORIGIN'
        vm_push "$target/vm/bin/c_$name"
    done
    vm_program
    vm_push "$WARPLINE" "$(gcc -print-file-name=libm.so.6)" "$target/vm/bin/provider_suite" "$target/vm/lib/libitapi.so.2" "$target/debug/duet" "$VM_HERE/pair"
}

verbs_suite() { # [short]
    local device status=0 devices="siw0 rxe0"
    if [ "${1:-}" = short ]; then
        devices=siw0
        vm_sh 'rdma link del rxe0'
    fi
    vm_sh 'timeout 600 provider_suite --nocapture' >"$VM_DIR/suite" 2>&1 || status=$?
    [ "${1:-}" != short ] || vm_sh 'rdma link add rxe0 type rxe netdev eth1'
    for device in $devices; do
        # The suite would skip a missing device, not fail.
        verbs_verdict "provider suite, $device" "$status" \
            "$(sed -n "/^$device\$/,/^[a-z]*0\$/p" "$VM_DIR/suite" | grep -c '^Passed ')"
    done
    sed -n 's/^known: /        known: /p' "$VM_DIR/suite"
    [ "$status" = 0 ] || cat "$VM_DIR/suite"
}

# Both ends over one device. Deviations must be known: rxe does not invalidate regions that a program has
# registered, and on RoCE a Send waits until there is a receive.
verbs_duet() { # IA
    local ia=$1 status=0 odd
    local -A options=([siw0]=" --without read-nothing" [rxe0]=" --without invalidate,send-without-receive")
    vm_sh "pair once 'duet --ia $ia serve $(verbs_address "$ia"):0' 'duet --ia $ia${options[$ia]} connect @'" >"$VM_DIR/pair" 2>&1 || status=$?
    odd=$(interop_odd <"$VM_DIR/pair")
    [ -z "$odd" ] || status="$status, $odd"
    verbs_verdict "$ia: duet" "$status" "$(grep -c '^ok \|^differs ' "$VM_DIR/pair")"
}

# `warpline` against itself over one device. The last RDMA Reads of `demo` are lost on siw: see README.md.
verbs_commands() { # IA
    local ia=$1 at status=0 warpline="env LD_LIBRARY_PATH=/bin warpline"
    at=$(verbs_address "$ia")
    verbs_pair "$ia: ping" once "$warpline ping --serve $at:0 --once --device $ia" \
        "$warpline ping @ --count 50 --interval 0 --verify --quiet --device $ia"
    [ "$ia" != siw0 ] || return 0
    vm_sh "timeout 100 $warpline demo /run/from/large --chunk 64k --progress never --device $ia --address $at" \
        >"$VM_DIR/pair" 2>&1 || status=$?
    verbs_verdict "$ia: demo" "$status" "$(grep -c '^verified$' "$VM_DIR/pair")"
}

verbs_address() { # IA
    [ "$1" = rxe0 ] && echo 10.0.3.15 || echo 10.0.2.15
}

# The same binary, the same files: only the adapter's name differs.
verbs_copy() { # IA [PREFIX-OF-SERVER PREFIX-OF-CLIENT]
    local ia=$1 server=${2:-}rdma_copy client=${3:-}rdma_copy
    verbs_pair "$ia: $server, $client" ever "$server --ia $ia serve $(verbs_address "$ia"):0 /run/to" \
        "$client --ia $ia connect @ /run/from/large /run/from/small /run/from/empty"
    vm_sh 'cd /run/from; for file in *; do cmp $file /run/to/$file || exit 1; done' >>"$VM_DIR/pair" 2>&1 ||
        verbs_verdict "$ia: $server, $client: the files differ" 1 1
    vm_sh 'rm -r /run/to'
}

# The other examples over one adapter, with each language on either side.
verbs_examples() { # IA
    local ia=$1 at server client
    at=$(verbs_address "$ia")
    for server in '' c_; do
        client=$([ -n "$server" ] || echo c_)
        verbs_pair "$ia: ${server}ping_pong, ${client}ping_pong" ever "${server}ping_pong --ia $ia serve $at:0" \
            "${client}ping_pong --ia $ia connect @ --size 64 --count 50" \
            "${client}ping_pong --ia $ia connect @ --size 100000 --count 5"
        verbs_copy "$ia" "$server" "$client"
        verbs_pair "$ia: ${server}kv, ${client}kv" ever "${server}kv --ia $ia serve $at:0" \
            "${client}kv --ia $ia connect @ put colour red" "${client}kv --ia $ia connect @ get colour" \
            "${client}kv --ia $ia connect @ stress number 20"
        verbs_transition "$ia: ${server}late_transition, ${client}late_transition" \
            "${server}late_transition --ia $ia serve $at:0" "${client}late_transition --ia $ia connect @"
    done
    verbs_pair "$ia: hello_rdma, c_hello_rdma" once "hello_rdma --ia $ia" "c_hello_rdma --ia $ia @"
    # In C it prints 127.0.0.1, which belongs to neither device, and serves at the device's addresses.
    verbs_pair "$ia: c_hello_rdma, hello_rdma" once "c_hello_rdma --ia $ia" "hello_rdma --ia $ia $at:%"
    verbs_pair "$ia: media_pull" ever "media_pull --ia $ia serve $at:0" \
        "media_pull --ia $ia connect @ --clients 4 --seconds 2 --rate 2"
}

verbs_pair() { # NAME KIND SERVER CLIENT...
    local name=$1 line status=0 command
    line="mkdir -p /run/to; pair $2"
    shift 2
    for command; do line+=" '$command'"; done
    vm_sh "$line" >"$VM_DIR/pair" 2>&1 || status=$?
    verbs_verdict "$name" "$status" 1
}

verbs_transition() { # NAME SERVER CLIENT
    local status=0
    if [[ $1 == vp_softrdma:* ]]; then
        verbs_pair "$1" ever "$2" "$3"
        return
    fi
    vm_sh "pair ever '$2' '$3'" >"$VM_DIR/pair" 2>&1 || status=$?
    [ "$status" != 0 ] && grep -q "$VM_NO_STREAMS" "$VM_DIR/pair" && status=0
    verbs_verdict "$1: refused, as it must be" "$status" 1
}

verbs_verdict() { # NAME STATUS CASES-THAT-PASSED
    VM_CASES=$((VM_CASES + 1))
    if [ "$2" = 0 ] && [ "$3" -gt 0 ]; then
        echo "passed  $1$([ "$3" = 1 ] || echo ": $3 cases")"
    else
        VM_FAILED=$((VM_FAILED + 1))
        echo "FAILED  $1: status $2"
        [ ! -e "$VM_DIR/pair" ] || sed 's/^/        /' "$VM_DIR/pair"
    fi
}
