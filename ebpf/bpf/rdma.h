/*
 * RDMA, either side: work completions, and which connection a queue has. Read
 * against include/rdma/{ib_verbs,rdma_cm}.h of 5.10, 6.1, 6.12 and 7.3.
 */
#ifndef NTP_RDMA_H
#define NTP_RDMA_H

#include "core.h"

struct ib_cqe {
	void *done;
} CORE;

struct ib_qp {
	void *qp_context; /* of both drivers: their queue */
	u32 qp_num;
} CORE;

/* success is 0; relocation wants a field of an enum type to be of that enum here too */
enum ib_wc_status {
	IB_WC_SUCCESS,
};

struct ib_wc {
	struct ib_cqe *wr_cqe; /* what the work request was posted with */
	enum ib_wc_status status;
	struct ib_qp *qp;
} CORE;

struct rdma_addr {
	struct { u8 b[28]; } src_addr; /* struct sockaddr_storage */
	struct { u8 b[28]; } dst_addr;
} CORE;

struct rdma_route {
	struct rdma_addr addr;
} CORE;

struct rdma_cm_id {
	struct rdma_route route;
} CORE;

/* struct sockaddr_in, sockaddr_in6: fixed, no relocation */
struct sockaddr_in46 {
	u16 family;
	u16 port;
	u8 v4[4]; /* IPv6: flow */
	u8 v6[16];
	u32 scope;
};

/*
 * The first member of a completion's request that is of use here: the address
 * of what embeds its ib_cqe, `at` bytes into it.
 */
INLINE void *of_completion(struct ib_wc *wc, u64 at)
{
	return (void *)READ(wc, wr_cqe) - at;
}

struct queue {
	u64 cm_id;    /* a new one is a new connection */
	u32 qp_num;
	u32 conn;
	u32 announced;
	u32 pad;
	u64 tags;     /* where the driver finds a request by its tag (host) */
	u64 recv_cmd; /* receive buffer whose completion the driver saw last (target) */
	u64 recv_ns;  /* when */
};

#include "queues.h"

/* Is this the connection the queue had so far? The number of a queue pair is not used again soon. */
INLINE void queue_set_cm(struct queue *q, struct rdma_cm_id *cm_id, struct ib_qp *qp)
{
	u32 qp_num = READ(qp, qp_num);

	if (likely(q->cm_id == (u64)cm_id && q->qp_num == qp_num))
		return;
	q->cm_id = (u64)cm_id;
	q->qp_num = qp_num;
	q->announced = 0;
	q->conn = id_of((u64)cm_id, qp_num);
}

INLINE u16 name_address(u8 *to, void *from)
{
	struct sockaddr_in46 a = {};

	bpf_probe_read_kernel(&a, sizeof(a), from);
	if (a.family == 10 /* AF_INET6 */) {
		__builtin_memcpy(to, a.v6, 16);
	} else if (a.family == 2 /* AF_INET */) {
		to[10] = to[11] = 0xff;
		__builtin_memcpy(to + 12, a.v4, 4);
	}
	return SWAP16(a.port);
}

/*
 * The addresses of the connection manager: of an accepted connection those that
 * the host's request carries, so either side has the pair of the other.
 */
INLINE void name_addresses(struct ntp_name *n, struct queue *q)
{
	struct rdma_cm_id *id = (void *)q->cm_id;

	n->local_port = name_address(n->local, ADDR(id, route.addr.src_addr));
	n->remote_port = name_address(n->remote, ADDR(id, route.addr.dst_addr));
}

/* SGL descriptor types (NVMe base specification): block at an offset in the capsule; keyed block */
enum {
	SGL_IN_CAPSULE = 0x01,
	SGL_KEYED = 4,
};

#endif
