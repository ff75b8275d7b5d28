/*
 * What both sides and all transports do alike: choose, count, keep a command
 * in flight, name connections and devices, hand the record over.
 */
#ifndef NTP_CORE_H
#define NTP_CORE_H

#include "kernel.h"
#include "ntp.h"

char LICENSE[] SEC("license") = "GPL";

/* set by the loader */
const volatile u32 cfg_sample_n = 1;
const volatile u32 cfg_salt = 0;
const volatile u8 cfg_admin = 0;
const volatile u8 cfg_send_exit = 1;
const volatile u32 cfg_size_min = 0;
const volatile u32 cfg_size_max = 0xffffffff;
const volatile u64 cfg_ops[4] = { -1ull, -1ull, -1ull, -1ull };
const volatile u8 cfg_devs = 0;
const volatile char cfg_dev[8][32] = {};

/*
 * A command in flight. Points are 0 while absent: no two hooks of one command
 * then touch the same word, so they may run on two CPUs at once.
 */
struct flight {
	struct ntp_record r;
	u64 queue; /* key of the driver's queue */
	bool passthrough, in_capsule, success_flag, timed_out, retried, fused, tls, merged;
	bool cancelled, admin, r2t, polled;
	/* data PDUs of the response so far, but for those that the queue still holds (host) */
	u32 data_pdus;
	u64 data_read;    /* when reading the first of them began */
	u64 data_arrived; /* when it arrived */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, u64);
	__type(value, struct flight);
	__uint(max_entries, 16384);
} inflight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, struct ntp_count_key);
	__type(value, u64);
	__uint(max_entries, 4096);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, NTP_STATS);
} stats SEC(".maps");

/* A CPU's counter: what interrupts or preempts a program there may add to the same one. */
INLINE void add_one(u64 *v)
{
	__sync_fetch_and_add(v, 1);
}

INLINE void stat_add(u32 which)
{
	u64 *v = bpf_map_lookup_elem(&stats, &which);

	if (v)
		add_one(v);
}

/*
 * A first look that spares most hooks of unsampled commands the hash table:
 * how many sampled commands are in flight, in all and per hash of the address.
 */
#define HOT 4096
u32 hot[HOT];
s64 hot_all;

/*
 * Low half of an address, as a number. An argument of a function hooked by
 * fentry is a pointer to the verifier, which forbids every arithmetic with it
 * but the move of a half: that one must not be optimised away.
 */
INLINE u32 low_half(u64 address)
{
	u32 half;

	asm volatile("%0 = %1" : "=w"(half) : "w"((u32)address));
	return half;
}

INLINE u32 hot_index(u64 key)
{
	u32 k = low_half(key);

	/* requests are cache-line aligned or larger; fold the rest */
	return (k >> 6 ^ k >> 18) & (HOT - 1);
}

INLINE struct flight *flight_of(u64 key)
{
	if (!hot_all || !hot[hot_index(key)])
		return NULL;
	return bpf_map_lookup_elem(&inflight, &key);
}

INLINE int flight_add(u64 key, struct flight *f)
{
	if (bpf_map_update_elem(&inflight, &key, f, BPF_NOEXIST)) {
		stat_add(NTP_S_LOST_INFLIGHT);
		return -1;
	}
	__sync_fetch_and_add(&hot[hot_index(key)], 1);
	__sync_fetch_and_add(&hot_all, 1);
	return 0;
}

/* Whether it was there: of two CPUs that end a command only one is told so. */
INLINE bool flight_del(u64 key)
{
	if (bpf_map_delete_elem(&inflight, &key))
		return 0;
	__sync_fetch_and_add(&hot[hot_index(key)], -1);
	__sync_fetch_and_add(&hot_all, -1);
	return 1;
}

/* First and last time of a point. */
INLINE void first(struct flight *f, u32 point, u64 now)
{
	if (!f->r.at[point])
		f->r.at[point] = now;
}

/* 1 or 0, by arithmetic that the compiler may not make a branch of. */
INLINE u32 not_zero(u64 v)
{
	u64 sign = v | -v;

	asm volatile("" : "+r"(sign));
	return sign >> 63;
}

/* The record leaves for user space, which is woken when a quarter of the buffer waits, else polls. */
INLINE void emit(u64 key, struct flight *f)
{
	struct ntp_record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	u32 present = 0, flags;
	u64 wake = BPF_RB_NO_WAKEUP;

	if (!r) {
		stat_add(NTP_S_LOST_RING);
		flight_del(key);
		return;
	}
	*r = f->r;
	/* without branches: a verifier follows each of them on every path */
#pragma unroll
	for (u32 i = 0; i < NTP_POINTS; i++)
		present |= not_zero(r->at[i]) << i;
#define FLAG(field, flag) (f->field ? flag : 0)
	flags = FLAG(admin, NTP_F_ADMIN) | FLAG(passthrough, NTP_F_PASSTHROUGH) |
		FLAG(in_capsule, NTP_F_IN_CAPSULE) | FLAG(r2t, NTP_F_R2T) |
		FLAG(success_flag, NTP_F_SUCCESS_FLAG) | FLAG(timed_out, NTP_F_TIMED_OUT) |
		FLAG(retried, NTP_F_RETRIED) | FLAG(fused, NTP_F_FUSED) | FLAG(tls, NTP_F_TLS) |
		FLAG(merged, NTP_F_MERGED) | FLAG(polled, NTP_F_POLLED) | FLAG(cancelled, NTP_F_CANCELLED);
#undef FLAG
	r->present = present;
	r->flags = flags;
	if (bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(&records, BPF_RB_RING_SIZE) / 4)
		wake = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(r, wake);
	stat_add(NTP_S_EMITTED);
	flight_del(key);
}

/*
 * Id of a connection or device from what tells it apart. No counter: two CPUs
 * that meet it at once give it the same id, and user space drops the second name.
 */
INLINE u32 id_of(u64 a, u64 b)
{
	return (u32)(ntp_mix(ntp_mix(a) ^ b) >> 32) | 1;
}

/*
 * Room for a name. The caller tests for NULL, once: before 6.2 the verifier
 * takes a second test of a reserved buffer for undecided, and misses the
 * submit on the branch that cannot be taken.
 */
INLINE struct ntp_name *name_reserve(void)
{
	return bpf_ringbuf_reserve(&names, sizeof(struct ntp_name), 0);
}

INLINE void name_init(struct ntp_name *n, u32 kind, u32 id, u64 now)
{
	__builtin_memset(n, 0, sizeof(*n));
	n->kind = kind;
	n->id = id;
	n->since_ns = now;
}

/* A namespace, by the address of what stands for it in the kernel. */
struct device {
	u64 check;   /* changes when the address is used again for another */
	u32 id;
	u8 announced;
	u8 ours;     /* of the transport recorded */
	u8 selected; /* passes the device filter */
	u8 admin;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u64);
	__type(value, struct device);
	__uint(max_entries, 4096);
} devices SEC(".maps");

/* Does a device name, NUL padded to 32 bytes, pass the filter? */
INLINE bool device_selected(const char *name)
{
	const u64 *a = (const u64 *)name;

	if (!cfg_devs)
		return 1;
	for (u32 i = 0; i < 8; i++) {
		const volatile u64 *b = (const volatile u64 *)cfg_dev[i];

		if (i < cfg_devs && a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3])
			return 1;
	}
	return 0;
}

/* Bytes a command moves, from the wire command and the length of its data. */
INLINE bool eligible(u8 opcode, u32 bytes)
{
	return cfg_ops[opcode >> 6 & 3] >> (opcode & 63) & 1 && bytes >= cfg_size_min && bytes <= cfg_size_max;
}

/* Counts the command; true when it is to be recorded. */
INLINE bool count_and_sample(struct nvme_command *c, u32 dev, u32 bytes, u8 admin)
{
	struct ntp_count_key k = { .dev = dev, .bytes = bytes, .opcode = c->opcode, .admin = admin };
	u64 one = 1, *v = bpf_map_lookup_elem(&counts, &k);

	if (likely(v))
		add_one(v);
	else if (bpf_map_update_elem(&counts, &k, &one, BPF_NOEXIST)) {
		/* another CPU may have met the group at the same moment */
		v = bpf_map_lookup_elem(&counts, &k);
		if (v)
			add_one(v);
		else
			stat_add(NTP_S_MISS_COUNT);
	}
	stat_add(NTP_S_SEEN);
	if (cfg_sample_n > 1 &&
	    !ntp_sampled(ntp_hash(cfg_salt, c->command_id, c->opcode, c->nsid, c->slba, c->length), cfg_sample_n))
		return 0;
	stat_add(NTP_S_SAMPLED);
	return 1;
}

INLINE void flight_init(struct flight *f, struct nvme_command *c, u32 bytes)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->r.slba = c->slba;
	f->r.bytes = bytes;
	f->r.nsid = c->nsid;
	f->r.cid = c->command_id;
	f->r.length = c->length;
	f->r.opcode = c->opcode;
	f->r.submit_cpu = bpf_get_smp_processor_id();
	f->fused = c->flags & NVME_FUSE_BITS;
}

/*
 * Ways to hook. Raw tracepoints and entries see their arguments through one
 * array of words; a kprobe's come from the registers.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, cx, r8, ax;
} CORE;
#define REGS(c) \
	{ READ(c, di), READ(c, si), READ(c, dx), READ(c, cx), READ(c, r8) }
#define RET(c) READ(c, ax)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs;
struct user_pt_regs {
	u64 regs[31];
} CORE;
#define REGS(c) \
	{ READ((struct user_pt_regs *)c, regs[0]), READ((struct user_pt_regs *)c, regs[1]), \
	  READ((struct user_pt_regs *)c, regs[2]), READ((struct user_pt_regs *)c, regs[3]), \
	  READ((struct user_pt_regs *)c, regs[4]) }
#define RET(c) READ((struct user_pt_regs *)c, regs[0])
#else
#error "no register names for this architecture"
#endif

#define TRACEPOINT(name) \
	SEC("raw_tp/" #name) \
	int name(u64 *ctx) \
	{ \
		on_##name((void *)ctx[0], (void *)ctx[1]); \
		return 0; \
	}

/* one tracepoint argument only: the verifier refuses to read a second */
#define TRACEPOINT1(name) \
	SEC("raw_tp/" #name) \
	int name(u64 *ctx) \
	{ \
		on_##name((void *)ctx[0]); \
		return 0; \
	}

/* the same where something else comes first: as `name`_q, that of the queue */
#define TRACEPOINT_2ND(name) \
	SEC("raw_tp/" #name "_q") \
	int name##_q(u64 *ctx) \
	{ \
		on_##name((void *)ctx[1]); \
		return 0; \
	}

/*
 * A trampoline's arguments carry their types; read as bytes they are plain
 * words, which may be hashed and kept as keys. `idle`: nothing to do, so that
 * not even they are read.
 */
#define ENTRY_(name, fn, idle, nargs, ...) \
	SEC("fentry/" #fn) \
	int name##_fe(u64 *args) \
	{ \
		u64 ctx[nargs] = {}; \
		if (idle) \
			return 0; \
		bpf_probe_read_kernel(ctx, sizeof(ctx), args); \
		on_##name(__VA_ARGS__); \
		return 0; \
	} \
	SEC("kprobe/" #fn) \
	int name##_kp(struct pt_regs *regs) \
	{ \
		if (idle) \
			return 0; \
		u64 ctx[] = REGS(regs); \
		on_##name(__VA_ARGS__); \
		return 0; \
	}

#define ENTRY1(name, fn, idle) ENTRY_(name, fn, idle, 1, (void *)ctx[0])
#define ENTRY2(name, fn, idle) ENTRY_(name, fn, idle, 2, (void *)ctx[0], (void *)ctx[1])
#define ENTRY3(name, fn, idle) ENTRY_(name, fn, idle, 3, (void *)ctx[0], (void *)ctx[1], (void *)ctx[2])

/* Exit of a function, for commands in flight only: its arguments, then what it returns, `words` of them. */
#define EXIT_(name, fn, words, ...) \
	SEC("fexit/" #fn) \
	int name##_fx(u64 *args) \
	{ \
		u64 ctx[words] = {}; \
		if (!hot_all) \
			return 0; \
		bpf_probe_read_kernel(ctx, sizeof(ctx), args); \
		on_##name##_x(__VA_ARGS__); \
		return 0; \
	}

/* Of nargs arguments: the first or the second, and what was returned; or the only one, and nothing was. */
#define EXIT(name, fn, nargs) EXIT_(name, fn, nargs + 1, (void *)ctx[0], (s32)ctx[nargs])
#define EXIT_2ND(name, fn, nargs) EXIT_(name, fn, nargs + 1, (void *)ctx[1], (s32)ctx[nargs])
#define EXIT_VOID(name, fn) EXIT_(name, fn, 1, (void *)ctx[0])

#endif
