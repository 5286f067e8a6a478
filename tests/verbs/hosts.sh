# Hosts for tests of verbs programs: network namespaces at one switch, each with a host name and a boot identification
# of its own, and a command `ssh` that starts programs there. Sourced by the scripts beside it, which set `kinds` and call
# `read_arguments "$@"`, then `make_hosts COUNT`. Needs root. All of them have these options:
#
#   --from DIR       the command and the libraries of DIR in place of target/release
#   --mtu OCTETS     of the network; 1500 without it
#   --loss           each host loses one of a hundred packets that arrive

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
work=$(mktemp -d)
net=hosts-$$
failed=0
# Seconds, only to end a hang.
longest=300
# A client on RoCE tries until its server listens: that cannot be seen from outside.
export WARPLINE_CONFIG=$here/roce.toml

# What makes every program take a device.
options() { # DEVICE, or nothing
    case $1 in
    softrdma0) echo --iwarp ;;
    roce0) echo --roce ;;
    esac
}

cannot() {
    echo "$*" >&2
    exit 77
}

usage() {
    sed -n '2,/^set/s/^#\( \|$\)//p' "$0" >&2
    exit 2
}

remove_hosts() {
    local name
    for name in $(ip netns list | sed -n "s/^\($net-[^ ]*\).*/\1/p"); do
        ip netns pids "$name" | xargs -r kill -9 2>/dev/null || true
        ip netns delete "$name" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap remove_hosts EXIT

read_arguments() {
    mtu=1500 loss='' built=''
    while :; do
        case ${1:-} in
        --from) built=$(cd "${2:?}" && pwd) && shift 2 ;;
        --mtu) mtu=${2:?} && shift 2 ;;
        --loss) loss=yes && shift ;;
        *) break ;;
        esac
    done
    kind=${1:-} only=${2:-}
    [[ -n $kind && " ${kinds[*]} " == *" $kind "* ]] || usage
}

# node1 to nodeN with the addresses 10.77.0.1 to 10.77.0.N. After it the command of this tree is found by name.
make_hosts() { # COUNT
    join_hosts "$1" >"$work/made" 2>&1 || cannot "no network namespaces can be made here: $(tail -n 1 "$work/made")"
    if [ -z "$built" ]; then
        cargo build --release --quiet --manifest-path "$here/../../Cargo.toml"
        built=$target/release
    fi
    PATH=$work/bin:$(cd "$built" && pwd):$PATH
    make_ssh
    network="MTU $mtu${loss:+, 1 % loss}"
}

join_hosts() { # COUNT
    local n
    ip netns add "$net-switch"
    ip -n "$net-switch" link add switch type bridge
    ip -n "$net-switch" link set switch mtu "$mtu" up
    echo "127.0.0.1 localhost" >"$work/names"
    for n in $(seq "$1"); do
        echo "10.77.0.$n node$n" >>"$work/names"
        ip netns add "$net-$n"
        ip -n "$net-$n" link add eth0 mtu "$mtu" type veth peer name "port$n" mtu "$mtu" netns "$net-switch"
        ip -n "$net-$n" address add "10.77.0.$n/24" dev eth0
        ip -n "$net-$n" link set lo up
        ip -n "$net-$n" link set eth0 up
        ip -n "$net-switch" link set "port$n" master switch up
        cat /proc/sys/kernel/random/uuid >"$work/boot$n"
        : >"$work/log$n"
        ip netns exec "$net-$n" nft -f - <<EOF
table ip path {
    counter roce { }
    chain in {
        type filter hook input priority -1;
        udp dport 4791 counter name roce
        ${loss:+iif eth0 numgen random mod 100 == 0 drop}
    }
}
EOF
    done
}

# How much a device has been used on the first host: packets of RoCE, or connections of SoftRDMA in the logs.
used() { # DEVICE
    case $1 in
    roce0) ip netns exec "$net-1" nft list counter ip path roce | sed -n 's/.*packets \([0-9]*\).*/\1/p' ;;
    softrdma0) grep -c " connected: " "$work/log1" || true ;;
    esac
}

# As ssh does: options, a host, and words of a command that a shell on the host reads, with nothing of the caller's
# environment. The launchers of MPI call it, too.
make_ssh() {
    mkdir "$work/bin"
    cat >"$work/bin/ssh" <<EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do
    case \$1 in -l | -o | -p) shift ;; esac
    shift
done
n=\${1##*[.e]}
shift
exec env -i HOME="\$HOME" USER="\$USER" PATH="$PATH" WARPLINE_CONFIG="$WARPLINE_CONFIG" \\
    WARPLINE_LOG=info WARPLINE_LOG_FILE="$work/log\$n" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \\
    ip netns exec "$net-\$n" unshare --uts --mount sh -c "hostname node\$n
mount --bind $work/names /etc/hosts
mount --bind $work/boot\$n /proc/sys/kernel/random/boot_id
\$*"
EOF
    chmod +x "$work/bin/ssh"
}

# The outcome of a run, and if it failed the end of what it printed.
report() { # NAME STATUS LOG...
    local name=$1 status=$2
    shift 2
    if [ "$status" = 0 ]; then
        echo "$name: works"
        return
    fi
    failed=1
    echo "$name: fails ($status)"
    [ "$status" != 124 ] || echo "it did not end within $longest s"
    tail -n 30 "$@"
}
