//! ntp-ebpf
