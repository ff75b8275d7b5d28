//! The compiled programs, one constant per `bpf/*.bpf.c`.

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
