/*
 * What the kernel programs and user space share: the record of a command, the
 * names that go with it, and the sampling hash.
 *
 * ntp-record/src/{record,point,sample}.rs hold the same in Rust; a test
 * compiles this header and compares the two. Everything is little-endian and
 * append-only: records go to disk as they are.
 */
#ifndef NTP_H
#define NTP_H

typedef unsigned char __ntp_u8;
typedef unsigned short __ntp_u16;
typedef unsigned int __ntp_u32;
typedef unsigned long long __ntp_u64;

/* Points a command passes; indexes of ntp_record.at. See point.rs for what each means. */
enum ntp_host_point {
	NTP_H_BLOCK_START = 0,
	NTP_H_DRIVER_START = 1,
	NTP_H_SEND_BEGIN = 2,
	NTP_H_SEND_LAST = 3,
	NTP_H_SEND_END = 4,
	NTP_H_R2T_ARRIVED = 5,
	NTP_H_R2T_READ = 6,
	NTP_H_DATA_SEND_BEGIN = 7,
	NTP_H_DATA_SEND_LAST = 8,
	NTP_H_DATA_SEND_END = 9,
	NTP_H_RESP_ARRIVED = 10,
	NTP_H_RESP_READ = 11,
	NTP_H_RESP_LAST = 12,
	NTP_H_COMPLETED = 13,
	NTP_H_COMPLETE_RQ = 14,
	NTP_H_BLOCK_DONE = 15,
};

enum ntp_target_point {
	NTP_T_ARRIVED = 0,
	NTP_T_PDU_READ = 1,
	NTP_T_RECEIVED = 2,
	NTP_T_R2T_QUEUED = 3,
	NTP_T_R2T_SEND = 4,
	NTP_T_DATA_ARRIVED = 5,
	NTP_T_DATA_READ = 6,
	NTP_T_EXECUTE = 7,
	NTP_T_BIO_SUBMIT = 8,
	NTP_T_DRIVE_ISSUE = 9,
	NTP_T_DRIVE_DONE = 10,
	NTP_T_BIO_DONE = 11,
	NTP_T_RESP_QUEUED = 12,
	NTP_T_SEND_BEGIN = 13,
	NTP_T_SEND_LAST = 14,
	NTP_T_SEND_END = 15,
};

/*
 * The same over RDMA. What has the name of a point of TCP has its number, too, and
 * code that both transports share uses either; the rest is in places that only TCP needs.
 */
enum ntp_rdma_host_point {
	NTP_RH_BLOCK_START = 0,
	NTP_RH_DRIVER_START = 1,
	NTP_RH_SEND_BEGIN = 2,
	NTP_RH_SEND_DONE = 3,
	NTP_RH_SEND_END = 4,
	NTP_RH_INV_DONE = 5,
	NTP_RH_SEND_LATE = 6,
	NTP_RH_RESP_READ = 11,
	NTP_RH_COMPLETED = 13,
	NTP_RH_COMPLETE_RQ = 14,
	NTP_RH_BLOCK_DONE = 15,
};

enum ntp_rdma_target_point {
	NTP_RT_RECV_SEEN = 1,
	NTP_RT_RECEIVED = 2,
	NTP_RT_READ_QUEUED = 3,
	NTP_RT_READ_POSTED = 4,
	NTP_RT_SEND_DONE = 5,
	NTP_RT_READ_DONE = 6,
	NTP_RT_EXECUTE = 7,
	NTP_RT_BIO_SUBMIT = 8,
	NTP_RT_DRIVE_ISSUE = 9,
	NTP_RT_DRIVE_DONE = 10,
	NTP_RT_BIO_DONE = 11,
	NTP_RT_SEND_BEGIN = 13,
	NTP_RT_SEND_LAST = 14,
	NTP_RT_SEND_END = 15,
};

#define NTP_POINTS 16

/* Bits of ntp_record.flags */
enum ntp_flag {
	NTP_F_ADMIN = 1 << 0,
	NTP_F_PASSTHROUGH = 1 << 1,
	NTP_F_IN_CAPSULE = 1 << 2,
	NTP_F_R2T = 1 << 3,
	NTP_F_SUCCESS_FLAG = 1 << 4,
	NTP_F_TIMED_OUT = 1 << 5,
	NTP_F_RETRIED = 1 << 6,
	NTP_F_FUSED = 1 << 7,
	NTP_F_TLS = 1 << 8,
	NTP_F_MERGED = 1 << 9,
	NTP_F_POLLED = 1 << 10,
	NTP_F_CANCELLED = 1 << 11,
};

/* One command as one machine saw it; see record.rs for the units. */
struct ntp_record {
	__ntp_u64 slba;
	__ntp_u32 bytes;
	__ntp_u32 nsid;
	__ntp_u32 conn;
	__ntp_u32 dev;
	__ntp_u16 cid;
	__ntp_u16 status;
	__ntp_u16 flags;
	__ntp_u16 present;
	__ntp_u16 submit_cpu;
	__ntp_u16 send_cpu;
	__ntp_u16 complete_cpu;
	__ntp_u16 length;
	__ntp_u8 opcode;
	__ntp_u8 retries;
	__ntp_u8 r2ts;
	__ntp_u8 pdus;
	__ntp_u32 reserved;
	__ntp_u64 at[NTP_POINTS];
};

/* A connection or a device, sent once, before the first record that refers to it. */
enum ntp_name_kind {
	NTP_NAME_CONNECTION = 1,
	NTP_NAME_DEVICE = 2,
};

#define NTP_NQN 224
#define NTP_PATH 128

struct ntp_name {
	__ntp_u32 kind;
	__ntp_u32 id;
	__ntp_u64 since_ns;
	/* connection */
	__ntp_u8 local[16];  /* IPv6, or IPv4-mapped */
	__ntp_u8 remote[16];
	__ntp_u16 local_port; /* host byte order */
	__ntp_u16 remote_port;
	__ntp_u16 qid;
	__ntp_u16 cntlid;
	__ntp_u32 instance; /* N of nvmeN on the host */
	__ntp_u32 nsid;     /* device */
	char hostnqn[NTP_NQN];
	char subnqn[NTP_NQN];
	char path[32];       /* device below a multipath disk */
	char name[NTP_PATH]; /* device: disk name, or path of the backing device */
};

struct ntp_count_key {
	__ntp_u32 dev;
	__ntp_u32 bytes;
	__ntp_u8 opcode;
	__ntp_u8 admin;
	__ntp_u16 zero;
};

/* Per-CPU counters. Order is shared with shared.rs; append-only. */
enum ntp_stat {
	NTP_S_SEEN,             /* commands that pass the filters */
	NTP_S_SAMPLED,          /* of these, chosen by the hash */
	NTP_S_EMITTED,          /* records handed to the ring buffer */
	NTP_S_LOST_RING,        /* lost: ring buffer full */
	NTP_S_LOST_INFLIGHT,    /* lost: no room among the commands in flight */
	NTP_S_LOST_REUSED,      /* lost: the request was used again before its end was seen */
	NTP_S_LOST_REQUEUED,    /* lost: an attempt that failed and was retried */
	NTP_S_MISS_QUEUE,       /* no room for the state of a queue */
	NTP_S_MISS_ARRIVAL,     /* arrival older than what the queue remembers */
	NTP_S_MISS_NAME,        /* name not sent, ring buffer full */
	NTP_S_MISS_COUNT,       /* command not counted in its group, table full */
	NTP_S_LOST_CLOSED,      /* lost: the connection closed before the response was sent */
	NTP_S_MISS_START,       /* bio not seen entering the block layer: the request's own time was taken */
	NTP_S_MISS_MERGED,      /* more bios merged into one request than are looked at */
	NTP_STATS,
};

/*
 * Which commands are recorded: a hash of what host and target both read from
 * the command itself, so that they choose alike without talking. The sample of
 * 1/1000 is part of the sample of 1/100. Test vectors: ntp-record/src/vectors.txt.
 */
static inline __attribute__((always_inline)) __ntp_u64 ntp_mix(__ntp_u64 z)
{
	/* finaliser of splitmix64 (Steele, Lea, Flood 2014) */
	z ^= z >> 30;
	z *= 0xbf58476d1ce4e5b9ull;
	z ^= z >> 27;
	z *= 0x94d049bb133111ebull;
	z ^= z >> 31;
	return z;
}

static inline __attribute__((always_inline)) __ntp_u64
ntp_hash(__ntp_u32 salt, __ntp_u16 cid, __ntp_u8 opcode, __ntp_u32 nsid, __ntp_u64 slba, __ntp_u16 length)
{
	__ntp_u64 h = ntp_mix(slba ^ salt * 0x9e3779b97f4a7c15ull);

	return ntp_mix(h ^ ((__ntp_u64)nsid << 32 | (__ntp_u64)cid << 16 | length) ^ (__ntp_u64)opcode << 56);
}

/* n of 1/n; n >= 1 */
static inline __attribute__((always_inline)) int ntp_sampled(__ntp_u64 hash, __ntp_u32 n)
{
	return (hash >> 32) * n < 1ull << 32;
}

#endif
