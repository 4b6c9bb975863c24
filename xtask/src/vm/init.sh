#!/bin/busybox sh
# The first process of a guest: makes a small system, runs the tests one by one, and switches off.
#
# What a test prints goes to the console; lines that begin with `@podstuck` are for report.rs.

argument() { # the value of a kernel argument `podstuck.NAME=VALUE`
    for word in $(/bin/busybox cat /proc/cmdline); do
        case $word in podstuck."$1"=*) echo "${word#*=}" ;; esac
    done
}

# A runtime gives a container another root directory, which the kernel allows nobody whose own is its first one.
if [ -z "$PODSTUCK_ROOT" ]; then
    /bin/busybox mkdir -p /proc /dev /root
    /bin/busybox mount -t proc proc /proc
    /bin/busybox mount -t devtmpfs dev /dev
    for module in /modules/*.ko; do
        /bin/busybox insmod "$module" || echo "cannot load $module"
    done
    if [ "$(argument disk)" = yes ]; then
        /bin/busybox mount -t ext4 /dev/vda /root
        /bin/busybox mkdir -p /root/podstuck /root/proc /root/tmp
        /bin/busybox mount -o bind /podstuck /root/podstuck
        /bin/busybox cp /init /root/init
    else
        /bin/busybox mount -o bind / /root
    fi
    /bin/busybox umount /proc
    /bin/busybox umount /dev
    cd /root && /bin/busybox mount -o move . / && PODSTUCK_ROOT=moved exec /bin/busybox chroot . /init
fi

/bin/busybox mkdir -p /proc /sys /dev /sbin /usr/bin /usr/sbin /var/tmp /tmp /empty \
    /var/lib/kubelet/pods /var/log/pods
# Where a release's own programs are, they stay.
/bin/busybox --install -s /bin 2>/dev/null
/bin/busybox --install -s /usr/bin 2>/dev/null
export PATH=/tools:/bin:/sbin

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# TOMOYO (5.10) lets no program be executed by its descriptor without this: as runc executes itself.
ln -s /proc/self/fd /dev/fd
mkdir -p /dev/shm /run
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run

now() { # hundredths of a second since the kernel started
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}
say() { printf '\n@podstuck %s\n' "$*"; }

say boot "$(now)"

# Labs need a real disk's file system: attributes, and directories that are not in memory.
if [ "$(argument disk)" != yes ]; then
    truncate -s 600M /disk
    mkfs.ext4 -q /disk && mount -o loop /disk /var/tmp || echo "no disk"
fi

if [ "$(argument cgroup)" = 2 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # As a node's init does: what containers and the tests limit.
    for controller in memory cpu pids; do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done
else
    mount -t tmpfs tmpfs /sys/fs/cgroup
    while read -r controller _ _ enabled; do
        [ "$enabled" = 1 ] || continue
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" ||
            rmdir "/sys/fs/cgroup/$controller"
    done </proc/cgroups
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
mount -t securityfs securityfs /sys/kernel/security || echo "no securityfs"
if [ "$(argument btf)" = hidden ]; then
    mount -o bind /empty /sys/kernel/btf
fi

# Profiles confine only what names them. Where SELinux is enforced, there is no AppArmor.
if [ -e /apparmor/policy ] && [ -d /sys/kernel/security/apparmor ]; then
    cat /apparmor/policy >/sys/kernel/security/apparmor/.load || echo "no profiles"
fi
if [ "$(argument selinux)" = enforced ]; then
    mount -t selinuxfs selinuxfs /sys/fs/selinux
    # The kernel takes a policy in one piece.
    dd if=/selinux/policy of=/sys/fs/selinux/load bs=64M 2>/dev/null || echo "no policy"
    echo 1 >/sys/fs/selinux/enforce
    echo system_u:system_r:unconfined_t:s0 >/proc/$$/attr/current
fi

export PODSTUCK_BIN=/podstuck/podstuck
# How much slower than a real machine, for the size of workloads and how long the tests wait.
PODSTUCK_TEST_SLOWDOWN=$(argument slowdown)
export PODSTUCK_TEST_SLOWDOWN
# What starts containers, where it is not up to the runtime.
PODSTUCK_OCI_RUNTIME=$(argument oci_runtime)
[ -z "$PODSTUCK_OCI_RUNTIME" ] || export PODSTUCK_OCI_RUNTIME

try() { # `test` or `again`, the program, and the name of a test
    begin=$(now)
    say "$1" "$2::$3"
    timeout -k 10 "$(argument test_limit)" \
        "/podstuck/tests/$2" --exact --nocapture --test-threads=1 "$3" </dev/null
    status=$?
    say end "$status" $(($(now) - begin))
    # What a test leaves behind when it fails must not disturb the next one.
    [ $status = 0 ] || killall -q -9 podstuck podstuck-call
    return $status
}

tests=$(argument tests)
for backend in $(argument backends | tr , ' '); do
    export PODSTUCK_TEST_BACKEND=$backend
    say backend "$backend"
    # Its first line says which probes are in.
    $PODSTUCK_BIN watch --backend "$backend" --output json --duration 100ms >/tmp/start 2>/tmp/errors
    say start "$(head -n 1 /tmp/start)"
    cat /tmp/errors
    : >/tmp/ran
    : >/tmp/failed
    # Each is a program, or a program and a part of the names of its tests: `PROGRAM:PART`.
    for wanted in $(echo "$tests" | tr , ' '); do
        program=${wanted%%:*}
        part=${wanted#"$program"}
        "/podstuck/tests/$program" --list --format terse ${part#:} | grep "$(argument filter)" >/tmp/list
        while read -r line; do
            name=${line%: test}
            # Two parts may name one test.
            grep -qx "$program $name" /tmp/ran && continue
            echo "$program $name" >>/tmp/ran
            try test "$program" "$name" || echo "$program $name" >>/tmp/failed
        done </tmp/list
    done
    # Those that failed, once more. If there are more, the run fails in any case.
    head -n "$(argument again)" /tmp/failed >/tmp/again
    while read -r program name; do
        try again "$program" "$name"
    done </tmp/again
    tests=$(argument tests_again)
done

say done "$(now)"
poweroff -f
