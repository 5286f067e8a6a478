# Starts, commands and stops one guest. Sourced by `run`, after image.sh.
#
# One guest per process. Its network is qemu's own: the guest sees this machine's 127.0.0.1 as 10.0.2.2, and
# VM_PORT on 127.0.0.1 leads to the guest's VM_GUEST_PORT. Nothing else gets in or out; rxe's interface has no
# network, unless VM_NETNS names a network namespace: then qemu runs in it, and rxe's interface is connected to
# the namespace's interface `rxe`. Programs of this machine run in the guest unchanged: see vm_push.

VM_GUEST_PORT=7174
VM_DIR= VM_PID= VM_PORT=
VM_PUSHED=()

# Copies programs, without debug information, libraries and scripts to /bin of the next guests.
vm_push() { # FILE...
    VM_PUSHED+=("$@")
}

# The initial RAM disk: the built system, then the pushed files. Linux unpacks one archive after the other.
vm_initrd() {
    local file pushed=$VM_DIR/pushed
    mkdir -p "$pushed/bin"
    for file in ${VM_PUSHED[@]+"${VM_PUSHED[@]}"}; do
        install -m 755 "$file" "$pushed/bin/"
        strip -g "$pushed/bin/$(basename "$file")" 2>/dev/null || true # a script has nothing to strip
    done
    cat "$VM_GUEST/initrd"
    (cd "$pushed" && find . | cpio -o -H newc -R 0:0 --quiet)
}

# Boots the guest and waits until it takes commands.
vm_start() {
    VM_DIR=$(mktemp -d)
    VM_PCAP=${VM_PCAP:-$VM_DIR/capture.pcap}
    mkfifo "$VM_DIR/line.in" "$VM_DIR/line.out"
    vm_initrd >"$VM_DIR/initrd"
    local in=() rxe=user,id=rxe,net=10.0.3.0/24,restrict=on dumped=net
    if [ -n "${VM_NETNS:-}" ]; then
        in=(ip netns exec "$VM_NETNS")
        rxe=tap,id=rxe,ifname=rxe,script=no,downscript=no,vnet_hdr=off
        dumped=rxe
    fi
    ${in[@]+"${in[@]}"} qemu-system-x86_64 -name warpline-test -nodefaults -no-user-config -M q35 -cpu max \
        -accel tcg,thread=multi -smp 2 -m 1024 -display none -no-reboot \
        -kernel "$VM_GUEST/vmlinux" -initrd "$VM_DIR/initrd" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off" \
        -chardev "file,id=console,path=$VM_DIR/console" -serial chardev:console \
        -chardev "pipe,id=line,path=$VM_DIR/line" -serial chardev:line \
        -netdev "user,id=net,hostfwd=tcp:127.0.0.1:0-:$VM_GUEST_PORT" \
        -device virtio-net-pci,netdev=net,romfile= \
        -netdev "$rxe" \
        -device virtio-net-pci,netdev=rxe,romfile=,host_mtu=4300 \
        -object "filter-dump,id=dump,netdev=$dumped,file=$VM_PCAP,maxlen=65536" \
        </dev/null >"$VM_DIR/qemu.log" 2>&1 &
    VM_PID=$!
    # Open for both directions: opening for one would block until the other side opens.
    exec 8<>"$VM_DIR/line.in" 9<>"$VM_DIR/line.out"
    vm_wait_for '=ready' 120 >/dev/null || {
        cat "$VM_DIR/qemu.log" "$VM_DIR/console" >&2
        die "the guest did not start"
    }
    [ -z "${VM_NETNS:-}" ] || return 0
    VM_PORT=$(ss -Htlnp | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$VM_PID,.*/\1/p" | head -n 1)
    [ -n "$VM_PORT" ] || die "no port of this machine leads to the guest"
}

# Prints the guest's output until a line that begins with $1; fails after $2 seconds without output. The rest of
# that line is in VM_LAST.
vm_wait_for() {
    local line
    while IFS= read -r -t "$2" line <&9; do
        line=${line%$'\r'}
        case $line in
        "$1"*)
            VM_LAST=${line#"$1"}
            return 0
            ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
    return 1
}

# Runs one line of shell in the guest, prints its output, returns its status; 125 after two minutes without
# output. The guest runs one line at a time, so a line that may hang needs its own bound.
vm_sh() {
    printf '%s\n' "$1" >&8
    vm_wait_for '=done ' 120 || return 125
    return "$VM_LAST"
}

# The last MPA start-up in the guest's capture, a Request and its Reply: flags and revision as four hexadecimal
# digits each, with a "p" if it requests peer-to-peer. With "rtr", rejections do not count, and the Reply is
# followed by the kind of RTR that it chooses, "w" or "r".
vm_startup() { # [rtr]
    RTR=${1:-} perl -0777 -ne '
        while (/MPA ID Re([qp]) Frame(.)(.)..(.?).?(.?)/gs) {
            my ($flags, $ird, $ord) = (ord($2), ord($4 // 0), ord($5 // 0));
            my $peer = $flags & 0x10 && $ird & 0x80 ? "p" : "";
            $peer .= ($ord & 0x80 ? "w" : "") . ($ord & 0x40 ? "r" : "") if $peer && $1 eq "p" && $ENV{RTR};
            my $text = unpack("H4", "$2$3") . $peer;
            if ($1 eq "q") { $request = $text }
            elsif (!$ENV{RTR} || !($flags & 0x20)) { @seen = ($request, $text) }
        }
        print join " ", @seen;' "$VM_PCAP"
}

vm_stop() {
    [ -z "${VM_NETNS:-}" ] || [ -n "$VM_PID" ] || ip netns del "$VM_NETNS" 2>/dev/null || true
    [ -n "$VM_PID" ] || return 0
    kill "$VM_PID" 2>/dev/null || true
    wait "$VM_PID" 2>/dev/null || true
    exec 8>&- 9>&-
    rm -rf "$VM_DIR"
    VM_PID=
    if [ -n "${VM_NETNS:-}" ]; then
        # Programs in it are those of the test.
        ip netns pids "$VM_NETNS" | xargs -r kill 2>/dev/null || true
        ip netns del "$VM_NETNS"
        VM_NETNS=
    fi
}
