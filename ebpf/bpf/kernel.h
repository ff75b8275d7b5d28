/*
 * Kernel types: only what is used, relocated by name (CO-RE), so order and gaps
 * do not matter. Differences between kernels are settled here, once each.
 */
#ifndef NTP_KERNEL_H
#define NTP_KERNEL_H

#include "bpf.h"

struct sock_common {
	u16 skc_family;
	u32 skc_portpair; /* the next two */
	u16 skc_dport;
	u16 skc_num;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	struct { u8 b[16]; } skc_v6_daddr;
	struct { u8 b[16]; } skc_v6_rcv_saddr;
} CORE;

struct sock {
	struct sock_common __sk_common;
	void *sk_user_data;
} CORE;

struct socket {
	struct sock *sk;
} CORE;

struct tcp_sock {
	u32 rcv_nxt;
	u32 copied_seq;
} CORE;

struct inet_connection_sock {
	void *icsk_ulp_ops; /* since 4.13 */
} CORE;

/*
 * TLS is the one protocol that the drivers' sockets have on top of TCP. The
 * host's queue tells it, too, but not in 6.7, and not once it was stopped.
 */
INLINE bool has_tls(struct sock *sk)
{
	return READ((struct inet_connection_sock *)sk, icsk_ulp_ops) != NULL;
}

struct sk_buff {
	char cb[48];
} CORE;

/* include/net/tcp.h: struct tcp_skb_cb begins with seq, since 2.6 */
#define SKB_SEQ(skb) \
	({ \
		u32 __seq = 0; \
		bpf_probe_read_kernel(&__seq, sizeof(__seq), ADDR(skb, cb)); \
		__seq; \
	})

struct gendisk {
	char disk_name[32];
} CORE;

struct bio {
	struct bio *bi_next;
	void *bi_private;
} CORE;

struct request_queue {
	void *queuedata;
} CORE;

struct blk_mq_tags {
	struct request **rqs;
} CORE;

struct blk_mq_hw_ctx {
	struct blk_mq_tags *tags;
	u32 queue_num;
	u16 type;
} CORE;
/* enum hctx_type, since 5.0 */
#define HCTX_TYPE_POLL 2

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	struct bio *bio;
	u64 start_time_ns;
	u32 cmd_flags;
	u32 __data_len;
} CORE;

/* include/linux/blk_types.h: the operation is in the low 8 bits; these two never moved */
#define REQ_OP_MASK 0xff
#define REQ_OP_DRV_IN 34
#define REQ_OP_DRV_OUT 35

/* NVMe over the wire: fixed by the specification, no relocation */
struct nvme_command {
	u8 opcode;
	u8 flags;
	u16 command_id;
	u32 nsid;
	u32 cdw2, cdw3;
	u64 metadata;
	u64 sgl_addr;
	u32 sgl_length;
	u8 sgl_rsvd[3];
	u8 sgl_type;
	u64 slba; /* command dwords 10 and 11 */
	u16 length; /* low half of command dword 12 */
	u16 control;
};

enum {
	NVME_DSM = 0x09,
	NVME_FUSE_BITS = 3,
};

/* NVMe/TCP PDUs (NVMe/TCP transport specification, 3.6.2) */
enum {
	NVME_TCP_RSP = 0x05,
	NVME_TCP_C2H_DATA = 0x07,
	NVME_TCP_R2T = 0x09,
	NVME_TCP_CMD_PDU_SIZE = 72,
	NVME_TCP_RSP_PDU_SIZE = 24,
	NVME_TCP_DIGEST = 4,
};

struct nvme_tcp_pdu {
	u8 type;
	u8 flags;
	u8 hlen;
	u8 pdo;
	u32 plen;
	u16 command_id; /* C2HData, R2T */
	u16 ttag;
	u32 data_offset; /* C2HData */
	u32 dw4;
	u16 cqe_command_id; /* capsule response: completion queue entry at 8, command id at 12 of it */
};

#endif
