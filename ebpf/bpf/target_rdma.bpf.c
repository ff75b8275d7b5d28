/*
 * Linux NVMe/RDMA target (drivers/nvme/target/rdma.c). Read against 5.10, 6.1, 6.12 and 7.3.
 *
 * A record ends when the driver sees that its response was acknowledged. The
 * receive buffer with the command is posted again before the response is: from
 * then on the next command may be in it, so nothing is read there after the
 * beginning.
 */
#include "rdma.h"

#define TRTYPE NVMF_TRTYPE_RDMA
#include "target.h"

struct nvmet_rdma_queue;

struct nvmet_rdma_cmd {
	struct ib_cqe cqe;
} CORE;

struct rdma_rw_ctx {
	u32 nr_ops; /* RDMA READs or WRITEs, registrations not counted */
} CORE;

struct nvmet_rdma_rsp {
	struct ib_cqe send_cqe;
	struct nvmet_rdma_cmd *cmd;
	struct nvmet_rdma_queue *queue;
	struct ib_cqe read_cqe;
	struct ib_cqe write_cqe;
	struct rdma_rw_ctx rw;
	struct nvmet_req req;
} CORE;

struct nvmet_rdma_queue {
	struct rdma_cm_id *cm_id;
	struct ib_qp *qp;
	struct nvmet_sq nvme_sq;
	struct nvmet_rdma_rsp *rsps;
	struct work_struct release_work;
	int recv_queue_size;
} CORE;

INLINE struct nvmet_rdma_rsp *to_rdma(struct nvmet_req *req)
{
	return (void *)req - OFFSET(struct nvmet_rdma_rsp, req);
}

INLINE u64 key_of(struct nvmet_rdma_rsp *rsp)
{
	return (u64)rsp + OFFSET(struct nvmet_rdma_rsp, req);
}

INLINE struct nvmet_sq *sq_of(struct nvmet_req *req)
{
	return ADDR(READ(to_rdma(req), queue), nvme_sq);
}

/* Of a keyed descriptor 24 bits are the length, the rest the key. */
INLINE u32 target_bytes(struct nvme_command *c)
{
	if (!(c->opcode & 3))
		return 0;
	return c->sgl_type >> 4 == SGL_KEYED ? c->sgl_length & 0xffffff : c->sgl_length;
}

/*
 * The completion of a receive. The response that goes with it is chosen later
 * by the driver: kept until nvmet_req_init(), for all commands. Of a queue its
 * completions are handled one after the other.
 */
INLINE void on_t_recv(void *cq, struct ib_wc *wc)
{
	struct ib_qp *qp = READ(wc, qp);
	struct queue *q = queue_get((u64)READ(qp, qp_context));

	if (!q)
		return;
	q->recv_cmd = (u64)of_completion(wc, OFFSET(struct nvmet_rdma_cmd, cqe));
	q->recv_ns = bpf_ktime_get_ns();
}
ENTRY2(t_recv, nvmet_rdma_recv_done, 0)

INLINE void driver_begin(struct flight *f, struct nvmet_req *req, struct nvme_command *c, u64 now)
{
	struct nvmet_rdma_rsp *rsp = to_rdma(req);
	struct nvmet_rdma_queue *rdma = READ(rsp, queue);
	struct nvmet_sq *sq = ADDR(rdma, nvme_sq);
	struct queue *q;

	f->queue = (u64)rdma;
	f->in_capsule = c->opcode & 1 && f->r.bytes && c->sgl_type == SGL_IN_CAPSULE;
	q = queue_get(f->queue);
	if (!q)
		return;
	queue_set_cm(q, READ(rdma, cm_id), READ(rdma, qp));
	f->r.conn = q->conn;
	/* Connect comes before there is a controller: named by the next */
	if (!q->announced && READ(sq, ctrl))
		connection_name(q, sq, now);
	if (q->recv_cmd == (u64)READ(rsp, cmd))
		f->r.at[NTP_RT_RECV_SEEN] = q->recv_ns;
	q->recv_cmd = 0; /* should the next be skipped */
}

/* nvmet_rdma_need_data_in(): data that is neither in the capsule nor goes to the host. */
INLINE bool need_data_in(struct flight *f)
{
	return f->r.opcode & 1 && f->r.bytes && !f->in_capsule && !f->admin;
}

/*
 * The command is mapped: its RDMA READ is posted, or it is executed at once.
 * Without room in the send queue it is neither, and comes here again.
 */
INLINE void on_t_go(struct nvmet_rdma_rsp *rsp)
{
	struct flight *f = flight_of(key_of(rsp));
	u32 ops;
	u64 now;

	if (!f || !need_data_in(f))
		return;
	now = bpf_ktime_get_ns();
	f->r2t = 1;
	ops = READ(rsp, rw.nr_ops);
	f->r.r2ts = ops < 255 ? ops : 255;
	first(f, NTP_RT_READ_QUEUED, now);
	f->r.at[NTP_RT_READ_POSTED] = now;
}
ENTRY1(t_go, nvmet_rdma_execute_command, !hot_all)

/*
 * The command whose data was moved by RDMA; none if that failed, for the driver
 * then drops the command, without a response.
 */
INLINE struct flight *data_moved(struct ib_wc *wc, u64 cqe)
{
	u64 key = key_of(of_completion(wc, cqe));
	struct flight *f = flight_of(key);

	if (!f || !READ(wc, status))
		return f;
	if (flight_del(key))
		stat_add(NTP_S_LOST_CLOSED);
	return NULL;
}

INLINE void on_t_read_done(void *cq, struct ib_wc *wc)
{
	struct flight *f = data_moved(wc, OFFSET(struct nvmet_rdma_rsp, read_cqe));

	if (f)
		f->r.at[NTP_RT_READ_DONE] = bpf_ktime_get_ns();
}
ENTRY2(t_read_done, nvmet_rdma_read_data_done, !hot_all)

INLINE u16 status_of(struct nvmet_req *req)
{
	struct nvme_completion *cqe = READ(req, cqe);

	return READ(cqe, status) >> 1;
}

/*
 * The response, and the RDMA WRITEs of a read's data in front of it, are posted
 * in one call. With protection information the WRITEs go alone, and their
 * completion posts the response.
 */
INLINE void on_t_post(struct nvmet_req *req)
{
	struct flight *f = flight_of((u64)req);

	if (!f)
		return;
	f->r.status = status_of(req);
	f->r.send_cpu = bpf_get_smp_processor_id();
	f->r.at[NTP_RT_SEND_BEGIN] = bpf_ktime_get_ns();
}
ENTRY1(t_post, nvmet_rdma_queue_response, !hot_all)

/* __nvmet_req_complete() is about to call it */
INLINE void on_t_answer(struct nvmet_req *req)
{
	if (hot_all)
		on_t_post(req);
}
TRACEPOINT1(t_answer)

/*
 * The call returned. The response may have been acknowledged before, and what
 * held it may even hold another command: that one has no response yet. With
 * protection information another call posted the response.
 */
INLINE void on_t_post_x(struct nvmet_req *req)
{
	struct flight *f = flight_of((u64)req);

	if (f && f->r.at[NTP_RT_SEND_BEGIN] && !f->r.at[NTP_RT_SEND_LAST])
		f->r.at[NTP_RT_SEND_END] = bpf_ktime_get_ns();
}
EXIT_VOID(t_post, nvmet_rdma_queue_response)

/* Protection information only: the data was written and is checked, the response is posted. */
INLINE void on_t_write_done(void *cq, struct ib_wc *wc)
{
	struct flight *f = data_moved(wc, OFFSET(struct nvmet_rdma_rsp, write_cqe));

	if (!f)
		return;
	f->r.at[NTP_RT_SEND_LAST] = bpf_ktime_get_ns();
	f->r.at[NTP_RT_SEND_END] = 0;
}
ENTRY2(t_write_done, nvmet_rdma_write_data_done, !hot_all)

/* The host's adapter has acknowledged the response, or the connection is gone: the record ends. */
INLINE void on_t_send_done(void *cq, struct ib_wc *wc)
{
	u64 key = key_of(of_completion(wc, OFFSET(struct nvmet_rdma_rsp, send_cqe)));
	struct flight *f = flight_of(key);

	if (!f)
		return;
	if (!READ(wc, status))
		f->r.at[NTP_RT_SEND_DONE] = bpf_ktime_get_ns();
	/* the kernel may have skipped the program where an interrupt posted the response */
	if (unlikely(!f->r.at[NTP_RT_SEND_BEGIN]))
		f->r.status = status_of((void *)key);
	emit(key, f);
}
ENTRY2(t_send_done, nvmet_rdma_send_done, !hot_all)

/* The queue's size is named by the host: at most 256 (Linux hosts from 6.0 on), 1024 before. */
INLINE void on_t_release(void *work)
{
	struct nvmet_rdma_queue *queue = work - OFFSET(struct nvmet_rdma_queue, release_work);
	u64 rsps = (u64)READ(queue, rsps);

	/* nvmet_rdma_alloc_rsps() makes two for each entry of the receive queue */
	if (rsps)
		closed(key_of((void *)rsps), SIZEOF(struct nvmet_rdma_rsp), READ(queue, recv_queue_size) * 2);
}
ENTRY1(t_release, nvmet_rdma_release_queue_work, 0)
