/* The little of libbpf that the programs need: helpers, map and section macros, CO-RE reads. */
#ifndef NTP_BPF_H
#define NTP_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;
typedef _Bool bool;

#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define SWAP16(x) __builtin_bswap16(x)

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

static void *(*const bpf_map_lookup_elem)(void *, const void *) = (void *)1;
static long (*const bpf_map_update_elem)(void *, const void *, const void *, u64) = (void *)2;
static long (*const bpf_map_delete_elem)(void *, const void *) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_probe_read_kernel)(void *, u32, const void *) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *, u32, const void *) = (void *)115;
static long (*const bpf_ringbuf_output)(void *, void *, u64, u64) = (void *)130;
static void *(*const bpf_ringbuf_reserve)(void *, u64, u64) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *, u64) = (void *)132;
static u64 (*const bpf_ringbuf_query)(void *, u64) = (void *)134;

/* One relocated read of a field; 0 when the address is bad. */
#define READ(p, f) \
	({ \
		typeof((p)->f) __v = 0; \
		bpf_probe_read_kernel(&__v, sizeof(__v), &(p)->f); \
		__v; \
	})
/* Relocated address of a field. */
#define ADDR(p, f) ((void *)&(p)->f)
#define HAS(t, f) __builtin_preserve_field_info(((t *)0)->f, 2)
#define OFFSET(t, f) __builtin_preserve_field_info(((t *)0)->f, 0)
#define SIZEOF(t) __builtin_preserve_type_info(*(typeof(t) *)0, 1)

#endif
