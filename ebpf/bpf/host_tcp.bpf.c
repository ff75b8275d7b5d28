/*
 * Linux NVMe/TCP host (drivers/nvme/host/tcp.c). Read against 5.10, 6.1, 6.12 and 7.3.
 */
#include "tcp.h"

#define TRANSPORT "tcp\0\0\0\0"
#include "host.h"

struct nvme_tcp_queue;

/* the same since 5.0; relocation wants a field of an enum type to be of that enum here too */
enum nvme_tcp_send_state {
	SEND_CMD_PDU,
	SEND_H2C_PDU,
	SEND_DATA,
	SEND_DDGST,
};

struct nvme_tcp_request {
	struct nvme_request req;
	struct nvme_tcp_queue *queue;
	u32 data_len;
	unsigned long data_sent;
	enum nvme_tcp_send_state state;
} CORE;

struct nvme_tcp_queue {
	struct socket *sock;
	void *pdu;
	struct nvme_tcp_request *request;
	struct nvme_tcp_ctrl *ctrl;
} CORE;

struct nvme_tcp_ctrl {
	struct nvme_tcp_queue *queues;
} CORE;

/*
 * A queue goes by where it keeps the header of the PDU it reads. That is what the
 * copy of a header tells: the packet tells its socket, but not once TLS has
 * decrypted it into another (tls_alloc_clrtxt_skb).
 */
INLINE u64 queue_key(struct nvme_tcp_queue *queue)
{
	return (u64)READ(queue, pdu);
}

/* blk_mq_rq_to_pdu() and blk_mq_rq_from_pdu(): the driver's part follows the request */
INLINE struct nvme_tcp_request *to_tcp(struct request *rq)
{
	return (void *)rq + SIZEOF(struct request);
}

INLINE struct request *from_tcp(struct nvme_tcp_request *req)
{
	return (void *)req - SIZEOF(struct request);
}

INLINE void driver_setup(struct flight *f, struct request *rq, struct blk_mq_hw_ctx *hctx, u64 now)
{
	struct nvme_tcp_queue *tq = READ(to_tcp(rq), queue);
	struct socket *sock = READ(tq, sock);
	struct sock *sk = READ(sock, sk);
	struct queue *q;

	f->queue = queue_key(tq);
	f->tls = has_tls(sk);
	q = queue_get(f->queue);
	if (!q)
		return;
	queue_set_sock(q, sk);
	q->tags = (u64)READ(hctx, tags);
	f->r.conn = q->conn;
	if (!q->announced) {
		struct nvme_tcp_ctrl *ctrl = READ(tq, ctrl);

		connection_name(q, rq, READ(ctrl, queues) == tq, now);
	}
}

/*
 * The driver hands bytes to the socket: kernel_sendpage() and
 * sock_no_sendpage() up to 6.4, sock_sendmsg() after. What it is sending is in
 * queue->request; the queue is the socket's user data.
 */
INLINE struct flight *sending(struct socket *sock, struct nvme_tcp_request **out)
{
	struct nvme_tcp_queue *queue;
	struct sock *sk;

	sk = READ(sock, sk);
	queue = READ(sk, sk_user_data);
	if (!queue || READ(queue, sock) != sock)
		return NULL;
	*out = READ(queue, request);
	if (!*out)
		return NULL;
	return flight_of((u64)from_tcp(*out));
}

INLINE void on_h_sendpage(struct socket *sock)
{
	struct nvme_tcp_request *req;
	struct flight *f = sending(sock, &req);
	u64 now = bpf_ktime_get_ns();
	int state;

	if (!f)
		return;
	state = READ(req, state);
	/* another command of this request, its beginning not seen, nor the end of the one before */
	if (unlikely(state == SEND_CMD_PDU && f->r.at[NTP_H_COMPLETED])) {
		stat_add(NTP_S_LOST_REUSED);
		flight_del((u64)from_tcp(req));
		return;
	}
	/* only data asked for by an R2T has a header of its own */
	if (state == SEND_H2C_PDU)
		f->r2t = 1;
	if (!f->r2t) {
		first(f, NTP_H_SEND_BEGIN, now);
		f->r.at[NTP_H_SEND_LAST] = now;
		f->r.at[NTP_H_SEND_END] = 0; /* was an earlier call's */
		f->r.send_cpu = bpf_get_smp_processor_id();
		if (state == SEND_DATA)
			f->in_capsule = 1;
	} else {
		first(f, NTP_H_DATA_SEND_BEGIN, now);
		f->r.at[NTP_H_DATA_SEND_LAST] = now;
		f->r.at[NTP_H_DATA_SEND_END] = 0;
	}
}
ENTRY1(h_sendpage, kernel_sendpage, !hot_all)
#define on_h_sendmsg on_h_sendpage
ENTRY1(h_sendmsg, sock_sendmsg, !hot_all)

/*
 * The call returned. The response may have been here before, and the request
 * may even have begun another command: that one has no SEND_LAST yet.
 */
INLINE void on_h_sendpage_x(struct socket *sock, s32 ret)
{
	struct nvme_tcp_request *req;
	struct flight *f;

	if (ret <= 0)
		return;
	f = sending(sock, &req);
	if (!f)
		return;
	if (f->r.at[NTP_H_DATA_SEND_LAST])
		f->r.at[NTP_H_DATA_SEND_END] = bpf_ktime_get_ns();
	else if (f->r.at[NTP_H_SEND_LAST])
		f->r.at[NTP_H_SEND_END] = bpf_ktime_get_ns();
}
#define on_h_sendmsg_x on_h_sendpage_x
EXIT(h_sendpage, kernel_sendpage, 5)
EXIT(h_sendmsg, sock_sendmsg, 2)

/* Bytes of the connection were queued for the driver. */
INLINE void on_h_data_ready(struct sock *sk)
{
	struct queue *q;

	q = queue_of(queue_key(READ(sk, sk_user_data)));
	if (q)
		arrived(q, READ((struct tcp_sock *)sk, rcv_nxt), bpf_ktime_get_ns());
}
ENTRY1(h_data_ready, nvme_tcp_data_ready, !hot_all)

/* The driver is given a packet. read_descriptor_t: arg is its third word, since 2.6. */
INLINE void on_h_recv_skb(void *desc)
{
	struct nvme_tcp_queue *queue = NULL;
	struct queue *q;

	bpf_probe_read_kernel(&queue, sizeof(queue), desc + 16);
	q = queue_of(queue_key(queue));
	if (q)
		q->skb_ns = bpf_ktime_get_ns();
}
ENTRY1(h_recv_skb, nvme_tcp_recv_skb, !hot_all)

/*
 * Arrival of the byte at seq, or 0 when what is known cannot belong to the
 * command: under TLS the stream's sequence numbers are those of its records.
 */
INLINE u64 arrival_for(struct flight *f, struct queue *q, u32 seq)
{
	u64 ns;

	if (f->tls)
		return 0;
	ns = arrival_of(q, seq);

	return ns >= f->r.at[NTP_H_SEND_BEGIN] ? ns : 0;
}

/* The queue's run of data PDUs is the command's, and not of an earlier one of its id. */
INLINE bool has_run(struct flight *f, struct queue *q)
{
	return q->run_pdus && q->run_cid == f->r.cid && q->run_ns >= f->r.at[NTP_H_SEND_BEGIN];
}

/* Tells a command of its data PDUs. */
INLINE void take_run(struct flight *f, struct queue *q)
{
	if (!f->data_pdus) {
		f->data_read = q->run_ns;
		f->data_arrived = arrival_for(f, q, q->run_seq);
	}
	f->data_pdus += q->run_pdus;
	q->run_pdus = 0;
}

/* Tells whichever command the run is of. */
INLINE void end_run(struct queue *q, u64 queue)
{
	struct flight *f = flight_of_cid(q, queue, q->run_cid);

	if (f && has_run(f, q))
		take_run(f, q);
	q->run_pdus = 0;
}

/* The PDU whose reading began last was an R2T of that command. */
INLINE void asked(struct queue *q, u64 queue, u16 cid)
{
	struct flight *f = flight_of_cid(q, queue, cid);

	if (!f || q->pdu_ns < f->r.at[NTP_H_SEND_BEGIN])
		return;
	if (f->r.r2ts < 255)
		f->r.r2ts++;
	if (f->r.at[NTP_H_R2T_READ])
		return;
	f->r2t = 1;
	f->r.at[NTP_H_R2T_READ] = q->pdu_ns;
	f->r.at[NTP_H_R2T_ARRIVED] = arrival_for(f, q, q->pdu_seq);
}

/*
 * nvme_tcp_recv_pdu() copies a PDU's header out of the packet: the only place
 * that shows where in the stream the PDU begins. The header before it is still
 * in the buffer. Data PDUs of one command that follow each other are a run: it
 * is looked up for another's data, and before its arrival is forgotten, not for
 * each PDU, and not at all where the response comes next. An R2T is always
 * followed by another PDU of its command: the response at least.
 */
#define C2H_SUCCESS 8
#define RUN_MAX 8
INLINE void on_h_copy_bits(struct sk_buff *skb, void *offset, void *to)
{
	struct nvme_tcp_pdu p = {};
	struct queue *q;

	/* the rest of a header that came in two packets is copied to behind it */
	q = queue_of((u64)to);
	if (!q)
		return;
	bpf_probe_read_kernel(&p, sizeof(p), to);
	if (p.type == NVME_TCP_C2H_DATA && !(p.flags & C2H_SUCCESS)) {
		/* offset 0 while there is a run of that id: of an earlier command, whose end nobody saw */
		if (q->run_pdus && (q->run_cid != p.command_id || !p.data_offset || q->run_pdus >= RUN_MAX))
			end_run(q, (u64)to);
		if (!q->run_pdus) {
			q->run_ns = q->pdu_ns;
			q->run_seq = q->pdu_seq;
			q->run_cid = p.command_id;
		}
		q->run_pdus++;
	} else if (p.type == NVME_TCP_R2T) {
		asked(q, (u64)to, p.command_id);
	} else if (q->run_cid == (p.type == NVME_TCP_RSP ? p.cqe_command_id : p.command_id)) {
		q->run_pdus = 0; /* that one has ended */
	}
	q->pdu_seq = SKB_SEQ(skb) + (u32)(u64)offset;
	q->pdu_ns = bpf_ktime_get_ns();
}
ENTRY3(h_copy_bits, skb_copy_bits, !hot_all)

/* The PDU being read ends the command: its completion, or its last data with the SUCCESS flag. */
INLINE void response(struct flight *f)
{
	struct queue *q = queue_of(f->queue);
	struct nvme_tcp_pdu p = {};
	u64 ns;

	if (!q || q->pdu_ns < f->r.at[NTP_H_SEND_BEGIN])
		return;
	bpf_probe_read_kernel(&p, sizeof(p), (void *)f->queue);
	if (p.type == NVME_TCP_C2H_DATA) {
		if (p.command_id != f->r.cid)
			return;
		f->success_flag = 1;
	} else if (p.type != NVME_TCP_RSP || p.cqe_command_id != f->r.cid) {
		return; /* not answered: cancelled */
	}
	if (has_run(f, q))
		take_run(f, q);
	ns = f->data_pdus ? f->data_read : q->pdu_ns;
	f->r.pdus = f->data_pdus < 254 ? f->data_pdus + 1 : 255;
	f->r.at[NTP_H_RESP_READ] = ns;
	if (q->skb_ns) /* else nobody saw packets */
		f->r.at[NTP_H_RESP_LAST] = q->skb_ns > ns ? q->skb_ns : ns;
	f->r.at[NTP_H_RESP_ARRIVED] = f->data_pdus ? f->data_arrived : arrival_for(f, q, q->pdu_seq);
}

INLINE void on_h_completed(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (!f)
		return;
	f->r.at[NTP_H_COMPLETED] = bpf_ktime_get_ns();
	f->r.complete_cpu = bpf_get_smp_processor_id();
	response(f);
}
ENTRY1(h_completed, blk_mq_complete_request_remote, !hot_all)

INLINE void on_h_timeout(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (f)
		f->timed_out = 1;
}
ENTRY1(h_timeout, nvme_tcp_timeout, !hot_all)
