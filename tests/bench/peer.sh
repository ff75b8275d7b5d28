# Shell functions of the benchmark of recording: the peer, in a guest that has
# bpftrace and bpftool. Sourced after lib.sh.

# offset MODULE STRUCT FIELD: bytes, as the running kernel has it.
offset() {
    bpftool btf dump -B /sys/kernel/btf/vmlinux file "/sys/kernel/btf/$1" |
        awk -v s="STRUCT '$2' " -v f="'$3'" '/^\[/ { on = index($0, s) }
            on && $1 == f { sub(/.*bits_offset=/, ""); print $1 / 8; exit }'
}

# peer_start SIDE ARGS...: bpftrace with the script of that side, a line a
# command to /out/SIDE.txt; returns when all is attached.
peer_start() {
    _s=$1; shift
    rm -f "/run/lab/$_s.ready" "/run/lab/$_s.stop" "/out/$_s.txt"
    _f=sock_sendmsg
    grep -q ' kernel_sendpage$' /proc/kallsyms && _f=kernel_sendpage
    sed "s/SEND\$/$_f/" "/lab/peer-$_s.bt" > "/run/lab/$_s.bt"
    # It starts the command when everything is attached, and ends with it.
    BPFTRACE_PERF_RB_PAGES=1024 bpftrace -o "/out/$_s.txt" -c "/bin/sh /lab/held $_s" \
        "/run/lab/$_s.bt" "$@" > "/out/$_s.err" 2>&1 < /dev/null &
    echo $! > "/run/lab/$_s.pid"
    wait_for 60 test -f "/run/lab/$_s.ready" || die "peer $_s: $(tail -n 3 "/out/$_s.err")"
}

# peer_stop SIDE: ends it; prints how many reads it saw.
peer_stop() {
    touch "/run/lab/$1.stop"
    wait_for 60 peer_gone "$1" || die "peer $1: does not end"
    echo "lines $1 $(grep -c "^$1 2 " "/out/$1.txt")"
}
peer_gone() { ! kill -0 "$(cat "/run/lab/$1.pid")" 2> /dev/null; }

peers_start() {
    _d=$(sed 's/:/ /' "/sys/class/block/$(basename "$1")/dev" | awk '{ print $1 * 1048576 + $2 }')
    peer_start target "$(offset nvmet_tcp nvmet_tcp_queue snd_cmd)" "$(offset nvmet_tcp nvmet_tcp_cmd state)" &&
        peer_start host "$_d" "$(offset nvme_tcp nvme_tcp_queue request)"
}

# programs: of every program that the two recorders hold, a line with side, id,
# nanoseconds and hits.
programs() {
    for _s in host target; do
        [ -f /run/lab/$_s.pid ] || continue
        awk -v s=$_s '$1 == "prog_id:" { id = $2 } $1 == "run_time_ns:" { ns = $2 }
            $1 == "run_cnt:" { print "program", s, id, ns, $2 }' \
            /proc/"$(cat /run/lab/$_s.pid)"/fdinfo/* 2> /dev/null
    done
}

# watch_programs: the same ten times a second, until the file /run/lab/watch goes.
watch_programs() {
    while [ -f /run/lab/watch ]; do echo window; programs; usleep 100000; done > /out/windows
}
