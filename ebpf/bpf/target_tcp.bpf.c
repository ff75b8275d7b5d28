/*
 * Linux NVMe/TCP target (drivers/nvme/target/tcp.c). Read against 5.10, 6.1, 6.12 and 7.3.
 *
 * A record ends when the send call with the last byte of the response returns.
 */
#include "tcp.h"

#define TRTYPE NVMF_TRTYPE_TCP
#include "target.h"

struct nvmet_tcp_queue;

/* the same since 5.0; relocation wants a field of an enum type to be of that enum here too */
enum nvmet_tcp_send_state {
	SEND_DATA_PDU,
	SEND_DATA,
	SEND_R2T,
	SEND_DDGST,
	SEND_RESPONSE,
};

struct nvmet_tcp_cmd {
	struct nvmet_tcp_queue *queue;
	struct nvmet_req req;
	u32 rbytes_done;
	u32 wbytes_done;
	u32 offset;
	enum nvmet_tcp_send_state state;
} CORE;

/* the same since 5.0 */
enum nvmet_tcp_recv_state {
	NVMET_TCP_RECV_PDU,
};

struct nvmet_tcp_queue {
	struct socket *sock;
	struct nvmet_tcp_cmd *snd_cmd;
	struct nvmet_tcp_cmd *cmds;
	u32 nr_cmds;
	int offset;
	enum nvmet_tcp_recv_state rcv_state;
	bool hdr_digest;
	struct nvmet_sq nvme_sq;
	struct work_struct release_work;
} CORE;

INLINE struct nvmet_tcp_cmd *to_tcp(struct nvmet_req *req)
{
	return (void *)req - OFFSET(struct nvmet_tcp_cmd, req);
}

INLINE u64 key_of(struct nvmet_tcp_cmd *cmd)
{
	return (u64)cmd + OFFSET(struct nvmet_tcp_cmd, req);
}

/*
 * Bytes of the connection were queued for the driver. Which command they bring
 * is not known yet, so all arrivals are kept.
 */
INLINE void on_t_data_ready(struct sock *sk)
{
	u64 queue = (u64)READ(sk, sk_user_data);
	struct queue *q;

	if (!queue)
		return;
	q = queue_get(queue);
	if (!q)
		return;
	queue_set_sock(q, sk);
	arrived(q, READ((struct tcp_sock *)sk, rcv_nxt), bpf_ktime_get_ns());
}
ENTRY1(t_data_ready, nvmet_tcp_data_ready, 0)

/* The driver goes on reading; with offset 0 a PDU begins, at what it has copied so far. */
INLINE void on_t_recv_pdu(struct nvmet_tcp_queue *queue)
{
	struct queue *q;

	if (READ(queue, offset))
		return;
	q = queue_of((u64)queue);
	if (!q)
		return;
	q->pdu_seq = READ((struct tcp_sock *)q->sk, copied_seq);
	q->pdu_ns = bpf_ktime_get_ns();
}
ENTRY1(t_recv_pdu, nvmet_tcp_try_recv_pdu, 0)

/* nvmet_tcp_try_recv_pdu() as part of its caller: a read of the socket while a PDU is expected. */
INLINE void on_t_recvmsg(struct socket *sock)
{
	struct nvmet_tcp_queue *queue;
	struct sock *sk = READ(sock, sk);

	queue = READ(sk, sk_user_data);
	if (!queue || READ(queue, sock) != sock || READ(queue, rcv_state) != NVMET_TCP_RECV_PDU)
		return;
	on_t_recv_pdu(queue);
}
ENTRY1(t_recvmsg, kernel_recvmsg, 0)

/*
 * When the PDU being read arrived and when reading it began. The driver may
 * have been in its read call, having found nothing, when the PDU came: then it
 * was read as it arrived. Without the arrival that cannot be told, so neither
 * is taken.
 */
INLINE void read_at(struct queue *q, u64 now, u64 *arrived_ns, u64 *read_ns)
{
	u64 ns;

	if (!q->pdu_ns)
		return;
	/* only its header was read: further behind, the call for this PDU was skipped, and what is kept is of one before */
	if (READ((struct tcp_sock *)q->sk, copied_seq) - q->pdu_seq > NVME_TCP_CMD_PDU_SIZE + NVME_TCP_DIGEST)
		return;
	ns = arrival_of(q, q->pdu_seq);
	if (!ns || ns > now)
		return;
	*arrived_ns = ns;
	*read_ns = ns > q->pdu_ns ? ns : q->pdu_ns;
}

INLINE struct nvmet_sq *sq_of(struct nvmet_req *req)
{
	return ADDR(READ(to_tcp(req), queue), nvme_sq);
}

/* Commands whose data goes to the target or to the host: opcode bits 0-1. */
INLINE u32 target_bytes(struct nvme_command *c)
{
	return c->opcode & 3 ? c->sgl_length : 0;
}

INLINE void driver_begin(struct flight *f, struct nvmet_req *req, struct nvme_command *c, u64 now)
{
	struct nvmet_tcp_queue *tq = READ(to_tcp(req), queue);
	struct nvmet_sq *sq = ADDR(tq, nvme_sq);
	struct socket *sock = READ(tq, sock);
	struct sock *sk = READ(sock, sk);
	struct queue *q;

	f->queue = (u64)tq;
	/* the stream's sequence numbers are those of the TLS records: no arrival can be told */
	f->tls = has_tls(sk);
	q = queue_get(f->queue);
	if (!q)
		return;
	queue_set_sock(q, sk);
	f->r.conn = q->conn;
	/* Connect comes before there is a controller: named by the next */
	if (!q->announced && READ(sq, ctrl))
		connection_name(q, sq, now);
	if (!f->tls)
		read_at(q, now, &f->r.at[NTP_T_ARRIVED], &f->r.at[NTP_T_PDU_READ]);
}

/* A PDU's data is about to be read, in the capsule or after an R2T. */
INLINE void on_t_h2c_data(struct nvmet_tcp_cmd *cmd)
{
	struct flight *f;
	struct queue *q;

	f = flight_of(key_of(cmd));
	if (!f)
		return;
	if (!f->r2t) {
		f->in_capsule = 1;
		return;
	}
	if (f->r.at[NTP_T_DATA_READ])
		return;
	q = queue_of(f->queue);
	if (q && !f->tls)
		read_at(q, bpf_ktime_get_ns(), &f->r.at[NTP_T_DATA_ARRIVED], &f->r.at[NTP_T_DATA_READ]);
	/* never what came before it was asked for */
	if (f->r.at[NTP_T_DATA_ARRIVED] < f->r.at[NTP_T_R2T_SEND])
		f->r.at[NTP_T_DATA_ARRIVED] = 0;
}
ENTRY1(t_h2c_data, nvmet_tcp_build_pdu_iovec, !hot_all)

/* nvmet_tcp_need_data_in(): the same question, so the same answer, as the driver will find when it sends. */
INLINE bool need_data_in(struct nvmet_tcp_cmd *cmd, u8 opcode)
{
	struct nvme_completion *cqe = READ(&cmd->req, cqe);

	return opcode & 1 && READ(cmd, rbytes_done) < READ(&cmd->req, transfer_len) && !READ(cqe, status);
}

INLINE void on_t_queue_resp(struct nvmet_req *req)
{
	struct flight *f = flight_of((u64)req);
	u64 now;

	if (!f)
		return;
	now = bpf_ktime_get_ns();
	if (need_data_in(to_tcp(req), f->r.opcode)) {
		f->r2t = 1;
		if (f->r.r2ts < 255)
			f->r.r2ts++;
		first(f, NTP_T_R2T_QUEUED, now);
	} else {
		f->r.at[NTP_T_RESP_QUEUED] = now;
	}
}
ENTRY1(t_queue_resp, nvmet_tcp_queue_response, !hot_all)

/*
 * The driver hands bytes to the socket: kernel_sendpage() up to 6.4,
 * sock_sendmsg() after. What it is sending is in queue->snd_cmd.
 */
INLINE struct flight *sending(struct socket *sock, struct nvmet_tcp_cmd **out)
{
	struct nvmet_tcp_queue *queue;
	struct sock *sk;

	sk = READ(sock, sk);
	queue = READ(sk, sk_user_data);
	if (!queue || READ(queue, sock) != sock)
		return NULL;
	*out = READ(queue, snd_cmd);
	if (!*out)
		return NULL;
	return flight_of(key_of(*out));
}

/* The whole response was sent: of the command that was recorded, or of one whose beginning was not seen. */
INLINE void sent(struct nvmet_tcp_cmd *cmd, struct flight *f)
{
	struct nvme_completion *cqe = READ(&cmd->req, cqe);

	if (READ(cqe, command_id) == f->r.cid) {
		emit(key_of(cmd), f);
		return;
	}
	stat_add(NTP_S_LOST_REUSED);
	flight_del(key_of(cmd));
}

INLINE void on_t_sendpage(struct socket *sock)
{
	struct nvmet_tcp_cmd *cmd;
	struct flight *f = sending(sock, &cmd);
	u64 now;
	int state;

	if (!f)
		return;
	now = bpf_ktime_get_ns();
	state = READ(cmd, state);
	/*
	 * An interrupt in the middle of a program does not run the same program again, the
	 * kernel skips it; nvmet_tcp_queue_response() is called from interrupts, too. So
	 * nothing here relies on what its program notes.
	 */
	if (state == SEND_R2T) {
		if (!f->r2t)
			f->r.r2ts = 1;
		f->r2t = 1;
		first(f, NTP_T_R2T_SEND, now);
		return;
	}
	if (!f->r.at[NTP_T_SEND_BEGIN]) {
		struct nvme_completion *cqe = READ(&cmd->req, cqe);

		f->r.status = READ(cqe, status) >> 1;
	}
	first(f, NTP_T_SEND_BEGIN, now);
	f->r.at[NTP_T_SEND_LAST] = now;
	f->r.send_cpu = bpf_get_smp_processor_id();
	if (!cfg_send_exit && state == SEND_RESPONSE)
		sent(cmd, f);
}
ENTRY1(t_sendpage, kernel_sendpage, !hot_all)
#define on_t_sendmsg on_t_sendpage
ENTRY1(t_sendmsg, sock_sendmsg, !hot_all)

/* The call returned; the driver has not yet seen what it returned. */
INLINE void on_t_sendpage_x(struct socket *sock, s32 ret)
{
	struct nvmet_tcp_cmd *cmd;
	struct nvmet_tcp_queue *queue;
	struct nvmet_sq *sq;
	struct flight *f;
	int state;
	bool all = 0;

	if (ret <= 0)
		return;
	f = sending(sock, &cmd);
	if (!f || !f->r.at[NTP_T_SEND_BEGIN])
		return;
	state = READ(cmd, state);
	f->r.at[NTP_T_SEND_END] = bpf_ktime_get_ns();
	if (state == SEND_RESPONSE) {
		queue = READ(cmd, queue);
		all = READ(cmd, offset) + ret ==
		      NVME_TCP_RSP_PDU_SIZE + (READ(queue, hdr_digest) ? NVME_TCP_DIGEST : 0);
	} else if (state == SEND_DATA && READ(cmd, wbytes_done) + ret == READ(&cmd->req, transfer_len)) {
		/* no response capsule follows when the host asked for no flow control of the queue */
		sq = READ(&cmd->req, sq);
		all = READ(sq, sqhd_disabled);
		f->success_flag = all;
	}
	if (all)
		sent(cmd, f);
}
#define on_t_sendmsg_x on_t_sendpage_x
EXIT(t_sendpage, kernel_sendpage, 5)
EXIT(t_sendmsg, sock_sendmsg, 2)

/* nvmet_tcp_install_queue() makes two for each entry of the queue, which has 1024 at most (NVMET_MAX_QUEUE_SIZE). */
INLINE void on_t_release(void *work)
{
	struct nvmet_tcp_queue *queue = work - OFFSET(struct nvmet_tcp_queue, release_work);
	u64 cmds = (u64)READ(queue, cmds);

	if (cmds)
		closed(key_of((void *)cmds), SIZEOF(struct nvmet_tcp_cmd), READ(queue, nr_cmds));
}
ENTRY1(t_release, nvmet_tcp_release_queue_work, 0)
