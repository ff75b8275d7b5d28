/*
 * TCP, either side: when which bytes arrived, and which socket a queue has.
 */
#ifndef NTP_TCP_H
#define NTP_TCP_H

#include "core.h"

/*
 * A connection's queue. The ring holds, for the last data_ready calls, up to
 * which sequence number bytes had arrived and when: the softirq that queued
 * them is the only writer (it holds the socket), the driver's worker reads.
 */
#define RING 128
struct arrival {
	u64 ns;
	u64 nxt; /* rcv_nxt after it */
};

struct queue {
	u64 sk;       /* a new socket is a new connection */
	u32 ports;
	u32 conn;
	u32 announced;
	u32 head;
	/* PDU being read by the driver */
	u32 pdu_seq;  /* sequence number of its first byte */
	u32 pad;
	u64 pdu_ns;   /* when reading it began */
	/* data PDUs of one command before it, which the command does not know of yet (host) */
	u32 run_seq;
	u16 run_cid;
	u16 run_pdus;
	u64 run_ns;
	u64 tags;     /* where the driver finds a request by its tag (host) */
	u64 skb_ns;   /* when the driver was given the packet being read (host) */
	struct arrival ring[RING];
};

#include "queues.h"

/*
 * Bytes up to nxt are there. The first entry of a connection has no time: what
 * came with it and what came before cannot be told apart.
 */
INLINE void arrived(struct queue *q, u32 nxt, u64 now)
{
	u32 head = q->head;
	struct arrival *a = &q->ring[head & (RING - 1)];

	/* data_ready is also called when nothing new came */
	if (head && q->ring[(head - 1) & (RING - 1)].nxt == (1ull << 32 | nxt))
		return;
	a->ns = head ? now : 0;
	a->nxt = 1ull << 32 | nxt; /* never 0 */
	q->head = head + 1;
}

/* When the byte at seq arrived; 0 when that is not known. */
INLINE u64 arrival_of(struct queue *q, u32 seq)
{
	u32 head = q->head;
	u64 ns = 0;

	for (u32 i = 1; i <= RING; i++) {
		struct arrival *a = &q->ring[(head - i) & (RING - 1)];
		u64 nxt = a->nxt;

		if (!nxt || (s32)((u32)nxt - seq) <= 0)
			return ns;
		ns = a->ns;
	}
	/* all that is remembered arrived after it */
	stat_add(NTP_S_MISS_ARRIVAL);
	return 0;
}

INLINE void name_addresses(struct ntp_name *n, struct queue *q)
{
	struct sock *sk = (void *)q->sk;
	u16 family = READ(sk, __sk_common.skc_family);

	if (family == 10 /* AF_INET6 */) {
		bpf_probe_read_kernel(n->local, 16, ADDR(sk, __sk_common.skc_v6_rcv_saddr));
		bpf_probe_read_kernel(n->remote, 16, ADDR(sk, __sk_common.skc_v6_daddr));
	} else {
		n->local[10] = n->local[11] = n->remote[10] = n->remote[11] = 0xff;
		bpf_probe_read_kernel(n->local + 12, 4, ADDR(sk, __sk_common.skc_rcv_saddr));
		bpf_probe_read_kernel(n->remote + 12, 4, ADDR(sk, __sk_common.skc_daddr));
	}
	n->local_port = READ(sk, __sk_common.skc_num);
	n->remote_port = SWAP16(READ(sk, __sk_common.skc_dport));
}

/* Is this the socket the queue had so far? If not, it is a new connection. */
INLINE void queue_set_sock(struct queue *q, struct sock *sk)
{
	u32 ports = READ(sk, __sk_common.skc_portpair);

	if (likely(q->sk == (u64)sk && q->ports == ports))
		return;
	q->sk = (u64)sk;
	q->ports = ports;
	q->announced = 0;
	q->conn = id_of((u64)sk, ports);
	/* nothing of the old one's bytes */
	q->head = 0;
	q->pdu_ns = 0;
	q->run_pdus = 0;
	q->skb_ns = 0;
	for (u32 i = 0; i < RING; i++)
		q->ring[i].nxt = 0;
	arrived(q, READ((struct tcp_sock *)sk, rcv_nxt), 0);
}

#endif
