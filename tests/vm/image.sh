# Builds the guest once: Debian's kernel with rxe, siw from Debian's kernel source, rdma-core.
#
# Sourced by `run`. Nothing is installed: packages are downloaded and unpacked below $VM_CACHE,
# which holds
#   debs/        downloaded packages
#   guest/sys/   unpacked userland       guest/kernel/  unpacked kernel, headers, siw's source
#   guest/tree/  what the guest sees     guest/vmlinux, guest/initrd   what qemu boots

VM_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/warpline-vm
VM_DEBS=$VM_CACHE/debs
VM_GUEST=$VM_CACHE/guest

# Rdma-core as the distribution ships it, the libraries it needs, and the tools that load modules.
VM_USERLAND="rdmacm-utils ibverbs-utils perftest ibverbs-providers libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 iproute2 libmnl0 kmod libkmod2"
# Modules for the guest; their dependencies are added.
VM_MODULES="virtio_pci virtio_net crc32_generic crc32c_generic ib_core iw_cm rdma_cm ib_uverbs rdma_ucm libcrc32c rdma_rxe"
# Loss, duplication and another order of packets, of those that arrive, too.
VM_MODULES+=" sch_netem sch_ingress ifb cls_matchall act_mirred"
# VLAN interfaces, and pairs of interfaces between network namespaces.
VM_MODULES+=" 8021q veth"
VM_PROGRAMS="usr/bin/rping usr/bin/ucmatose usr/bin/udaddy usr/bin/rdma_client usr/bin/rdma_server usr/bin/ibv_rc_pingpong usr/bin/ibv_ud_pingpong
    usr/bin/ibv_uc_pingpong usr/bin/ib_send_bw usr/bin/ib_write_bw usr/bin/ib_read_bw usr/bin/ib_atomic_bw usr/bin/ib_send_lat usr/bin/rdma sbin/tc sbin/ip"

# Name of the newest kernel package of this release, for example 6.1.0-56-amd64.
vm_kernel_release() {
    apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: linux-image-//p' | head -n 1
}

# The packages named linux-* that $1 needs, with itself; not those of another architecture that dpkg may have.
vm_linux_packages() {
    echo "$1"
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances "$1" | sed -n 's/^\(linux-[^ :]*\)$/\1/p'
}

vm_download() {
    local package
    mkdir -p "$VM_DEBS"
    for package; do
        compgen -G "$VM_DEBS/${package}_*.deb" >/dev/null && continue
        echo "vm: download $package" >&2
        (cd "$VM_DEBS" && apt-get -q download "$package" >/dev/null 2>&1) ||
            cannot "package $package cannot be downloaded; try 'apt-get update'"
    done
}

vm_unpack() { # DIRECTORY PACKAGE...
    local to=$1 package architecture
    architecture=$(dpkg --print-architecture)
    shift
    mkdir -p "$to"
    for package; do
        # The newest one if the cache has several versions.
        dpkg -x "$(find "$VM_DEBS" -name "${package}_*_$architecture.deb" -o -name "${package}_*_all.deb" |
            sort -V | tail -n 1)" "$to"
    done
}

# The kernel's ELF image out of its compressed one: it boots in a third of the time.
vm_extract_kernel() { # BZIMAGE ELF
    local at
    for at in $(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' "$1" | cut -d: -f1); do
        # xz complains about what follows the compressed part.
        tail -c +$((at + 1)) "$1" | xz -dcq >"$2" 2>/dev/null || true
        [ "$(head -c 4 "$2" | tail -c 3)" = ELF ] && return 0
    done
    die "no xz-compressed kernel in $1"
}

# Builds siw as a module. Debian does not; its constants become parameters, defaults unchanged, so
# that one module can play the peers that other administrators configure.
vm_build_siw() { # KERNEL-RELEASE
    local kernel=$VM_GUEST/kernel source headers common name
    headers=$kernel/usr/src/linux-headers-$1
    common=$(find "$kernel/usr/src" -maxdepth 1 -name 'linux-headers-*-common')
    name=$(basename "$(find "$kernel/usr/src" -name 'linux-source-*.tar.xz')" .tar.xz)
    source=$kernel/$name/drivers/infiniband/sw/siw
    tar -xJf "$kernel/usr/src/$name.tar.xz" -C "$kernel" "$name/drivers/infiniband/sw/siw"
    sed -i -E 's/^(extern )?const (bool (mpa_crc_required|peer_to_peer)\b)/\1\2/' \
        "$source/siw.h" "$source/siw_main.c"
    cat >>"$source/siw_main.c" <<'C'
module_param(mpa_crc_required, bool, 0644);
module_param(peer_to_peer, bool, 0644);
module_param(mpa_version, byte, 0644);
C
    # In the octet order of the frame: 128 is Write, 64 Read, 192 either.
    sed -i 's/^static __be16 rtr_type\b.*/&\nmodule_param(rtr_type, ushort, 0644);/' "$source/siw_cm.c"
    sed -i '0,/^#include/s//#include <linux\/moduleparam.h>\n&/' "$source/siw_cm.c"
    vm_removable "$source/siw_main.c" siw_device_ops
    # The headers refer to /usr/src; they are elsewhere here.
    echo "include $common/Makefile" >"$headers/Makefile"
    make -C "$headers" M="$source" CONFIG_RDMA_SIW=m modules >"$VM_GUEST/siw.log" 2>&1 ||
        { tail -n 20 "$VM_GUEST/siw.log" >&2; die "siw does not build"; }
    strip -g "$source/siw.ko"
    cp "$source/siw.ko" "$VM_GUEST/tree/modules/siw.ko"
}

# Builds rxe as a module whose devices can be removed while programs have them open, as those of adapters can.
vm_build_rxe() { # KERNEL-RELEASE
    local kernel=$VM_GUEST/kernel source headers name
    headers=$kernel/usr/src/linux-headers-$1
    name=$(basename "$(find "$kernel/usr/src" -name 'linux-source-*.tar.xz')" .tar.xz)
    source=$kernel/$name/drivers/infiniband/sw/rxe
    tar -xJf "$kernel/usr/src/$name.tar.xz" -C "$kernel" "$name/drivers/infiniband/sw/rxe"
    vm_removable "$source/rxe_verbs.c" rxe_dev_ops
    # What a program unmaps later does not need the device, but its lock is taken.
    perl -0777 -i -pe 's/(struct rxe_dev \*rxe) = to_rdev\(ip->context->device\);\n\n(\tspin_lock_bh.*?spin_unlock_bh\(&rxe->pending_lock\);)/$1 = NULL;\n\n\tif (!list_empty(&ip->pending_mmaps)) {\n\trxe = to_rdev(ip->context->device);\n$2\n\t}/s' \
        "$source/rxe_mmap.c"
    make -C "$headers" M="$source" CONFIG_RDMA_RXE=m modules >"$VM_GUEST/rxe.log" 2>&1 ||
        { tail -n 20 "$VM_GUEST/rxe.log" >&2; die "rxe does not build"; }
    strip -g "$source/rdma_rxe.ko"
    mkdir -p "$VM_GUEST/tree/modules/removable"
    cp "$source/rdma_rxe.ko" "$VM_GUEST/tree/modules/removable/"
}

# Gives a driver the operation without which the kernel removes a device only once no program has it open. There is nothing to
# do: its memory that programs see is counted.
vm_removable() { # SOURCE-FILE NAME-OF-ITS-OPERATIONS
    sed -i "s/^static const struct ib_device_ops $2 = {/static void no_contexts(struct ib_ucontext *context) {}\n\n&\n\t.disassociate_ucontext = no_contexts,/" "$1"
    grep -q no_contexts "$1" || die "$1 has no $2"
}

# Copies the modules and the order in which to load them.
vm_modules() { # KERNEL-RELEASE
    local tree=$VM_GUEST/kernel/lib/modules/$1 to=$VM_GUEST/tree/modules wanted line path
    ln -sf "$VM_GUEST/sys/bin/kmod" "$VM_GUEST/depmod"
    LD_LIBRARY_PATH=$(vm_library_path) "$VM_GUEST/depmod" -b "$VM_GUEST/kernel" "$1"
    mkdir -p "$to"
    for wanted in $VM_MODULES; do
        line=$(grep "/${wanted//_/[_-]}.ko:" "$tree/modules.dep") || continue
        # "a: b c": a needs b, b needs c; the last one first.
        for path in $(tr -d : <<<"$line" | tr ' ' '\n' | tac); do
            cp -n "$tree/$path" "$to/"
            basename "$path"
        done
    done | awk '!seen[$0]++' >"$VM_GUEST/order"
    mv "$VM_GUEST/order" "$to/order"
}

vm_library_path() {
    local sys=$VM_GUEST/sys
    echo "$sys/usr/lib/x86_64-linux-gnu:$sys/lib/x86_64-linux-gnu"
}

# Copies a program or library with every shared library it needs.
vm_install() { # FILE-BELOW-SYS
    local root=$VM_GUEST/tree library
    install -D "$VM_GUEST/sys/$1" "$root/$1"
    LD_LIBRARY_PATH=$(vm_library_path) ldd "$VM_GUEST/sys/$1" |
        awk '/=> \//{print $3} /^[ \t]*\/lib/{print $1}' | while read -r library; do
        case $library in
        */ld-linux*) install -D "$library" "$root/lib64/$(basename "$library")" ;;
        *) install -D "$library" "$root/usr/lib/x86_64-linux-gnu/$(basename "$library")" ;;
        esac
    done
}

vm_userland() {
    local root=$VM_GUEST/tree program device
    mkdir -p "$root"/{bin,tmp,dev,etc/libibverbs.d,proc,sys,run,usr/lib/x86_64-linux-gnu}
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$VM_HERE/init" "$root/init"
    chmod +x "$root/init"
    for program in $VM_PROGRAMS; do vm_install "$program"; done
    # The library of a device is found by its version, which is part of its name.
    mkdir -p "$root/usr/lib/x86_64-linux-gnu/libibverbs"
    for device in siw rxe; do
        program=$(cd "$VM_GUEST/sys" && find usr/lib -name "lib$device-rdmav*.so")
        vm_install "$program"
        cp "$VM_GUEST/sys/$program" "$root/usr/lib/x86_64-linux-gnu/libibverbs/"
        echo "driver $device" >"$root/etc/libibverbs.d/$device.driver"
    done
    # Found by name when a thread ends (pthread_exit), so ldd does not show it.
    cp "$(gcc -print-file-name=libgcc_s.so.1)" "$root/usr/lib/x86_64-linux-gnu/"
}

# Builds everything, unless it exists. A change of this file, of `init` or of the kernel builds it again.
vm_build() {
    local release stamp
    release=$(vm_kernel_release)
    [ -n "$release" ] || cannot "there is no package linux-image-amd64; try 'apt-get update'"
    stamp="$release $(cat "$VM_HERE/image.sh" "$VM_HERE/init" | sha256sum)"
    [ -s "$VM_GUEST/initrd" ] && [ "$(cat "$VM_GUEST/stamp" 2>/dev/null)" = "$stamp" ] && return 0
    echo "vm: building the guest (about a minute)" >&2
    rm -rf "$VM_GUEST"
    local kernel_packages
    kernel_packages="linux-image-$release $(vm_linux_packages "linux-headers-$release")"
    kernel_packages+=" $(vm_linux_packages linux-source | grep 'linux-source-')"
    # shellcheck disable=SC2086 # lists of names
    vm_download $kernel_packages $VM_USERLAND
    # shellcheck disable=SC2086
    vm_unpack "$VM_GUEST/kernel" $kernel_packages
    # shellcheck disable=SC2086
    vm_unpack "$VM_GUEST/sys" $VM_USERLAND
    vm_extract_kernel "$VM_GUEST/kernel/boot/vmlinuz-$release" "$VM_GUEST/vmlinux"
    vm_modules "$release"
    vm_build_siw "$release"
    vm_build_rxe "$release"
    vm_userland
    (cd "$VM_GUEST/tree" && find . | cpio -o -H newc -R 0:0 --quiet) >"$VM_GUEST/initrd"
    rm -rf "$VM_GUEST/kernel"
    echo "$stamp" >"$VM_GUEST/stamp"
}
