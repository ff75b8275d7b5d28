# Shell functions of the lab's guests. Sourced before each script that
# Guest::sh runs; written for busybox's shell.
#
# Busybox's shell prefers its own applets to PATH: the real tools by full name.
ip() { /usr/bin/ip "$@"; }
tc() { /usr/bin/tc "$@"; }
ss() { /usr/bin/ss "$@"; }
modprobe() { /usr/bin/modprobe "$@"; }

export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/lab HOME=/
CONFIG=/sys/kernel/config
HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001
HOSTID=00000000-0000-0000-0000-000000000001

# die WORDS: one line on standard error, and the script ends with status 1.
die() { echo "$*" >&2; exit 1; }

# wait_for SECONDS COMMAND...: until it succeeds; 1 when it never did.
wait_for() {
    _left=$(($1 * 20)); shift
    until "$@"; do
        _left=$((_left - 1))
        [ $_left -gt 0 ] || return 1
        usleep 50000
    done
}

# ---- drives ----------------------------------------------------------------

# null_blk NAME NSEC MIB [MEMORY_BACKED [ATTRIBUTE=VALUE...]]: a drive that
# answers after NSEC nanoseconds; prints its device.
null_blk() {
    modprobe null_blk nr_devices=0 || die "null_blk: module not loaded"
    _d=$CONFIG/nullb/$1
    mkdir "$_d" || die "null_blk $1: not made"
    echo "$3" > "$_d/size"
    # One hardware queue a CPU, completion by timer.
    nproc > "$_d/submit_queues"
    echo 2 > "$_d/irqmode"
    echo "$2" > "$_d/completion_nsec"
    echo "${4:-0}" > "$_d/memory_backed"
    for _a in ${5:+"$@"}; do
        case $_a in *=*) echo "${_a#*=}" > "$_d/${_a%%=*}" || die "null_blk $1: $_a" ;; esac
    done
    echo 1 > "$_d/power" || die "null_blk $1: not powered"
    # Older kernels name the disk by its index, newer ones as the folder.
    if [ -b "/dev/$1" ]; then echo "/dev/$1"; else echo "/dev/nullb$(cat "$_d/index")"; fi
}

# dm_delay NAME DEVICE READ_MS WRITE_MS: a drive that hands on to DEVICE
# later; prints its device. Coarse (jiffies) on 6.1.
dm_delay() {
    modprobe dm-delay || die "dm_delay: module not loaded"
    _n=$(cat "/sys/class/block/$(basename "$2")/size")
    /usr/bin/dmsetup create --noudevsync "$1" \
        --table "0 $_n delay $2 0 $3 $2 0 $4" >&2 || die "dm_delay $1: not made"
    /usr/bin/dmsetup mknodes >&2
    echo "/dev/mapper/$1"
}

# file_drive DEVICE MIB: a file of that size on an ext2 file system on
# DEVICE (which must keep what is written); prints the file.
file_drive() {
    modprobe ext4 || die "file_drive: module not loaded"
    mkdir -p /mnt/drive
    mke2fs "$1" > /dev/null 2>&1 || die "file_drive: no file system on $1"
    mount -t ext2 "$1" /mnt/drive || die "file_drive: $1 not mounted"
    # Written in full, so that reads do go to the drive.
    dd if=/dev/zero of=/mnt/drive/image bs=1M count="$2" 2> /dev/null ||
        die "file_drive: no room for $2 MiB on $1"
    sync
    echo /mnt/drive/image
}

# nvme_drive: QEMU's emulated NVMe drive (1 GiB that reads as zeroes, in
# every guest); prints its device.
nvme_drive() {
    modprobe nvme || die "nvme_drive: module not loaded"
    wait_for 20 nvme_drive_once || die "nvme_drive: not found"
}
nvme_drive_once() {
    for _c in /sys/class/nvme/nvme*; do
        [ "$(cat "$_c/transport" 2> /dev/null)" = pcie ] || continue
        nvme_disk_once "$(basename "$_c")" 1 && return 0
    done
    return 1
}

# ---- target ----------------------------------------------------------------

# nvmet_subsys NQN DEVICE...: a subsystem with namespaces 1, 2, ...; a plain
# file is served with O_DIRECT.
nvmet_subsys() {
    modprobe nvmet || die "nvmet_subsys: module not loaded"
    _s=$CONFIG/nvmet/subsystems/$1; shift
    mkdir "$_s" && echo 1 > "$_s/attr_allow_any_host" || die "nvmet_subsys: $_s not made"
    _i=1
    for _dev in "$@"; do
        mkdir "$_s/namespaces/$_i"
        printf %s "$_dev" > "$_s/namespaces/$_i/device_path"
        echo 1 > "$_s/namespaces/$_i/enable" || die "nvmet_subsys: $_dev not enabled"
        _i=$((_i + 1))
    done
}

# nvmet_port ID ADDRESS SERVICE NQN [INLINE_BYTES] [TRANSPORT]: a port that
# serves NQN; INLINE_BYTES "" leaves the kernel's default. Listens in the
# network namespace of the caller.
nvmet_port() {
    modprobe "nvmet-${6:-tcp}" || die "nvmet_port: module not loaded"
    _p=$CONFIG/nvmet/ports/$1
    mkdir "$_p" || die "nvmet_port $1: not made"
    echo "${6:-tcp}" > "$_p/addr_trtype"
    case $2 in *:*) echo ipv6 ;; *) echo ipv4 ;; esac > "$_p/addr_adrfam"
    echo "$2" > "$_p/addr_traddr"
    echo "$3" > "$_p/addr_trsvcid"
    [ -z "$5" ] || echo "$5" > "$_p/param_inline_data_size"
    ln -s "$CONFIG/nvmet/subsystems/$4" "$_p/subsystems/$4" || die "nvmet_port $1: $2:$3 not opened"
}

# nvmet_clear: every port and subsystem goes; connected hosts lose them.
nvmet_clear() {
    for _p in "$CONFIG"/nvmet/ports/*; do
        [ -d "$_p" ] || continue
        for _s in "$_p"/subsystems/*; do [ ! -L "$_s" ] || rm "$_s"; done
        rmdir "$_p" || die "nvmet_clear: $_p remains"
    done
    for _s in "$CONFIG"/nvmet/subsystems/*; do
        [ -d "$_s" ] || continue
        for _i in "$_s"/namespaces/*; do
            [ ! -d "$_i" ] || { echo 0 > "$_i/enable" && rmdir "$_i"; }
        done
        rmdir "$_s" || die "nvmet_clear: $_s remains"
    done
}

# target_start NAME ARGS...: lab-target in the background, its log in
# /out/NAME.log, its words in /out/NAME.err; returns when it listens, or 1 when
# it ended or did not within 20 s.
target_start() {
    _n=$1; shift
    [ -x /lab/lab-target ] || die "target $_n: no lab-target in this guest"
    rm -f "/run/lab/$_n.rc" "/out/$_n.log" "/out/$_n.err"
    # Over loopback what the host sends is read out of the pages it was sent
    # from, and 6.1 stops at bytes that lie in two huge pages (kernel BUG in
    # usercopy: a fragment may span them).
    echo never > /sys/kernel/mm/transparent_hugepage/enabled
    (
        sh -c 'echo $$ > "$0" && exec "$@"' \
            "/run/lab/$_n.pid" /lab/lab-target --log "/out/$_n.log" "$@"
        echo $? > "/run/lab/$_n.rc"
    ) > /dev/null 2> "/out/$_n.err" < /dev/null &
    wait_for 20 target_settled "$_n" || die "target $_n: does not listen"
    [ ! -f "/run/lab/$_n.rc" ] ||
        die "target $_n: ended with $(cat "/run/lab/$_n.rc"): $(tail -n 1 "/out/$_n.err")"
}
target_settled() { [ -f "/run/lab/$1.rc" ] || grep -qs listening "/out/$1.err"; }

# target_stop NAME: ends it; 1 when it had ended by itself, or had more to say
# than that it listens (a host did not keep to the specification).
target_stop() {
    [ -f "/run/lab/$1.pid" ] || die "target $1: was not started"
    [ ! -f "/run/lab/$1.rc" ] || die "target $1: has ended: $(tail -n 1 "/out/$1.err")"
    kill "$(cat "/run/lab/$1.pid")"
    wait_for 20 test -f "/run/lab/$1.rc" || die "target $1: cannot be ended"
    ! grep -v -e listening -e '^Terminated' "/out/$1.err" >&2 || die "target $1: see above"
}

# ---- host ------------------------------------------------------------------

# nvme_connect NQN ADDRESS SERVICE [OPTIONS] [TRANSPORT] [HOST]: connects
# and prints the controller's name. OPTIONS as /dev/nvme-fabrics takes them;
# HOST (one digit) makes another host NQN. Tries again for 10 s.
nvme_connect() {
    modprobe "nvme-${5:-tcp}" || die "nvme_connect: module not loaded"
    _h=${6:-1}
    _o="nqn=$1,traddr=$2,trsvcid=$3,transport=${5:-tcp}"
    _o="$_o,hostnqn=${HOSTNQN%1}$_h,hostid=${HOSTID%1}$_h${4:+,$4}"
    wait_for 10 nvme_connect_once "$_o" || die "nvme_connect: $_o: $(dmesg | grep nvme | tail -n 1)"
}
nvme_connect_once() {
    # The answer is read through the descriptor that the options went to.
    (echo "$1" >&3 && read -r _a <&3 && _a=${_a#instance=} && echo "nvme${_a%%,*}") \
        3<> /dev/nvme-fabrics 2> /dev/null
}

# nvme_disk CONTROLLER NSID: prints the disk of a namespace, once it is there.
# Disk numbers do not follow namespace ids.
nvme_disk() {
    wait_for 20 nvme_disk_once "$1" "$2" || die "nvme_disk: $1 has no namespace $2"
}
nvme_disk_once() {
    for _b in /sys/class/nvme/"$1"/nvme*n*; do
        [ "$(cat "$_b/nsid" 2> /dev/null)" = "$2" ] || continue
        # A path to a multipath disk (nvme0c0n1) has no device; the disk has.
        _n=$(basename "$_b" | sed 's/c[0-9]*n/n/')
        [ -b "/dev/$_n" ] || continue
        [ "$(cat "/sys/block/$_n/size")" -gt 0 ] || continue
        echo "/dev/$_n"
        return 0
    done
    return 1
}

# nvme_disconnect [NQN]: every controller of that subsystem, or of all.
nvme_disconnect() {
    for _c in /sys/class/nvme/nvme*; do
        [ -d "$_c" ] || continue
        _n=$(cat "$_c/subsysnqn") _t=$(cat "$_c/transport")
        [ "$_t" = pcie ] || [ "$_n" != "${1:-$_n}" ] || echo 1 > "$_c/delete_controller"
    done
    return 0
}

# ---- network ---------------------------------------------------------------

# netem DEVICE USEC [ARGS...]: what leaves DEVICE does so USEC later.
netem() {
    modprobe sch_netem || die "netem: module not loaded"
    _if=$1 _us=$2; shift 2
    tc qdisc replace dev "$_if" root netem limit 100000 delay "${_us}us" "$@" ||
        die "netem: not set on $_if"
}

# netns_target: a network namespace tgt (10.9.0.2) joined to this one
# (10.9.0.1, device h0) by a pair of veth (t0 in there), MTU 9000.
netns_target() {
    modprobe veth || die "netns_target: module not loaded"
    ip netns add tgt || die "netns_target: not made"
    ip link add h0 mtu 9000 type veth peer name t0 mtu 9000
    ip link set t0 netns tgt
    ip addr add 10.9.0.1/24 dev h0 && ip link set h0 up
    in_tgt 'ip addr add 10.9.0.2/24 dev t0 && ip link set t0 up && ip link set lo up' ||
        die "netns_target: no address"
}

# in_tgt SCRIPT: runs it, with these functions, inside the namespace tgt.
in_tgt() {
    # A new /sys comes with the namespace, without what was mounted below.
    ip netns exec tgt /bin/sh -c ". /lab/lib.sh; mount -t configfs none $CONFIG; $1"
}

# rps DEVICE CPU: what DEVICE receives is handled by that CPU.
rps() {
    printf '%x\n' $((1 << $2)) > "/sys/class/net/$1/queues/rx-0/rps_cpus" || die "rps: not set on $1"
}

# ---- load ------------------------------------------------------------------

# hog CPU MS: a real-time task that holds a CPU for MS of every 2 * MS
# milliseconds, until hog_end.
hog() {
    /usr/bin/chrt -f 50 /usr/bin/fio --name=hog --thread --ioengine=cpuio --cpuload=50 \
        --cpuchunks=$(($2 * 1000)) --cpus_allowed="$1" --time_based --runtime=600 \
        --output=/run/lab/hog.out > /dev/null 2>&1 < /dev/null &
    echo $! > /run/lab/hog.pid
    usleep 500000
    kill -0 "$(cat /run/lab/hog.pid)" || die "hog: $(cat /run/lab/hog.out)"
}
hog_end() {
    kill -INT "$(cat /run/lab/hog.pid)" 2> /dev/null
    wait_for 10 hog_gone || kill -KILL "$(cat /run/lab/hog.pid)"
}
hog_gone() { ! kill -0 "$(cat /run/lab/hog.pid)" 2> /dev/null; }

# ---- tools -----------------------------------------------------------------

# For ntp-probe and ntp-capture: BTF of this kernel's modules, if it came along.
BTF=; [ ! -d /lab/btf ] || BTF="--btf /lab/btf"

# capture_start NAME ARGS...: ntp-capture in the background, recording to
# /out/NAME.ntp and /out/NAME.err; returns when it says that it records, or 1
# when it ended or did not say so within CAPTURE_WAIT seconds (60).
capture_start() {
    _n=$1; shift
    [ -x /lab/ntp-capture ] || die "capture $_n: no ntp-capture in this guest"
    # An older recording's messages must not be taken for this one's.
    rm -f "/run/lab/$_n.pid" "/run/lab/$_n.rc" "/out/$_n.err" "/out/$_n.ntp"
    (
        # The shell ignores SIGINT for what it puts in the background.
        sh -c 'echo $$ > "$0" && exec /usr/bin/genv --default-signal=INT,QUIT "$@"' \
            "/run/lab/$_n.pid" /lab/ntp-capture $BTF "$@"
        # Never there without the number in it: who waits for the file reads it.
        echo $? > "/run/lab/$_n.rc.new" && mv "/run/lab/$_n.rc.new" "/run/lab/$_n.rc"
    ) > "/out/$_n.ntp" 2> "/out/$_n.err" < /dev/null &
    wait_for "${CAPTURE_WAIT:-60}" capture_settled "$_n" ||
        die "capture $_n: does not record: $(tail -n 1 "/out/$_n.err")"
    [ ! -f "/run/lab/$_n.rc" ] ||
        die "capture $_n: ended with $(cat "/run/lab/$_n.rc"): $(tail -n 1 "/out/$_n.err")"
}
capture_settled() { [ -f "/run/lab/$1.rc" ] || grep -qs recording "/out/$1.err"; }

# capture_stop NAME: ends it as Ctrl-C does and returns its status; killed
# (137) when it has not ended after CAPTURE_WAIT seconds (120).
capture_stop() {
    [ -f "/run/lab/$1.pid" ] || die "capture $1: was not started"
    _p=$(cat "/run/lab/$1.pid")
    [ -f "/run/lab/$1.rc" ] || kill -INT "$_p"
    wait_for "${CAPTURE_WAIT:-120}" test -f "/run/lab/$1.rc" || kill -KILL "$_p"
    wait_for 10 test -f "/run/lab/$1.rc" || die "capture $1: cannot be killed"
    return "$(cat "/run/lab/$1.rc")"
}

# capture_cost NAME: when it was started (s since boot), its largest memory and
# that of its maps in the kernel (kB), as 'started 12.3 process 9000 maps 8000'.
capture_cost() {
    _p=/proc/$(cat "/run/lab/$1.pid")
    awk '{ printf "started %.2f ", $22 / 100 }' "$_p/stat"
    awk '/^VmHWM/ { printf "process %d ", $2 }' "$_p/status"
    cat "$_p"/fdinfo/* 2> /dev/null | awk '
        # A program has a type of its own; a map is open more than once.
        /^pos/ { map = 0 } /^map_type/ { map = 1 } /^memlock/ { bytes = $2 }
        /^map_id/ && map && !($2 in seen) { seen[$2]; sum += bytes }
        END { printf "maps %d\n", sum / 1024 }'
}

# fio_run DEVICE ARGS...: a job on DEVICE with its JSON in /out/fio.json
# (FIO_OUT names another); libaio and direct unless ARGS say otherwise.
fio_run() {
    _dev=$1; shift
    /usr/bin/fio --name=lab --filename="$_dev" --ioengine=libaio --direct=1 \
        --group_reporting --output-format=json --output="${FIO_OUT:-/out/fio.json}" "$@"
}

# fio_depths DEVICE ARGS...: one after the other, at depth 1, 8 and 32, a
# second each unless ARGS say otherwise; DEVICE may be several, with colons
# between.
fio_depths() {
    _dev=$1; shift
    /usr/bin/fio --filename="$_dev" --ioengine=libaio --direct=1 --time_based --runtime=1 \
        --output-format=json --output="${FIO_OUT:-/out/fio.json}" "$@" \
        --name=depth1 --iodepth=1 --name=depth8 --stonewall --iodepth=8 \
        --name=depth32 --stonewall --iodepth=32
}
