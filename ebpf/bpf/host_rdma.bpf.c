/*
 * Linux NVMe/RDMA host (drivers/nvme/host/rdma.c). Read against 5.10, 6.1, 6.12 and 7.3.
 *
 * A request ends when two completions were seen: of the SEND that carried the
 * capsule, and of the RECV that brought the response (nvme_rdma_request.ref);
 * where the target did not invalidate the memory key, in place of the second
 * that of a LOCAL_INV that the response makes the driver post.
 */
#include "rdma.h"

#define TRANSPORT "rdma\0\0\0"
#include "host.h"

struct nvme_rdma_qe {
	struct ib_cqe cqe;
	void *data;
} CORE;

struct nvme_rdma_queue;

struct nvme_rdma_request {
	struct nvme_request req;
	struct nvme_rdma_qe sqe;
	u32 num_sge;
	struct ib_cqe reg_cqe;
	struct nvme_rdma_queue *queue;
} CORE;

struct nvme_rdma_ctrl {
	struct nvme_rdma_queue *queues;
} CORE;

struct nvme_rdma_queue {
	struct nvme_rdma_ctrl *ctrl;
	struct ib_qp *qp;
	struct rdma_cm_id *cm_id;
} CORE;

INLINE struct nvme_rdma_request *to_rdma(struct request *rq)
{
	return (void *)rq + SIZEOF(struct request);
}

INLINE u64 key_of(struct nvme_rdma_request *req)
{
	return (u64)req - SIZEOF(struct request);
}

/* Where the driver's request has the ib_cqe of its SEND. */
INLINE u64 send_cqe(void)
{
	return OFFSET(struct nvme_rdma_request, sqe) + OFFSET(struct nvme_rdma_qe, cqe);
}

INLINE void driver_setup(struct flight *f, struct request *rq, struct blk_mq_hw_ctx *hctx, u64 now)
{
	struct nvme_rdma_queue *rdma = READ(to_rdma(rq), queue);
	struct queue *q;

	f->queue = (u64)rdma;
	q = queue_get(f->queue);
	if (!q)
		return;
	queue_set_cm(q, READ(rdma, cm_id), READ(rdma, qp));
	q->tags = (u64)READ(hctx, tags);
	f->r.conn = q->conn;
	if (!q->announced) {
		struct nvme_rdma_ctrl *ctrl = READ(rdma, ctrl);

		connection_name(q, rq, READ(ctrl, queues) == rdma, now);
	}
}

/*
 * The command is set up and its data mapped: the driver posts it, with the
 * registration of the memory in front where there is one. A second scatter
 * element is data in the capsule. Asynchronous event requests come here as
 * well; they are in no request, so none is found.
 */
INLINE void on_h_post(void *queue, void *qe)
{
	struct nvme_rdma_request *req = qe - OFFSET(struct nvme_rdma_request, sqe);
	struct flight *f = flight_of(key_of(req));

	if (!f)
		return;
	/* another command of this request, its beginning not seen, nor the end of the one before */
	if (unlikely(f->r.at[NTP_RH_COMPLETED])) {
		stat_add(NTP_S_LOST_REUSED);
		flight_del(key_of(req));
		return;
	}
	f->in_capsule = READ(req, num_sge) > 1;
	/* the target fetches the data of other writes by RDMA READ */
	f->r2t = f->r.opcode & 1 && !f->in_capsule && f->r.bytes && !f->admin;
	f->r.send_cpu = bpf_get_smp_processor_id();
	f->r.at[NTP_RH_SEND_BEGIN] = bpf_ktime_get_ns();
}
ENTRY2(h_post, nvme_rdma_post_send, !hot_all)

/*
 * The call returned. The response may have been here before, and the request
 * may even have begun another command: that one was not posted yet.
 */
INLINE void on_h_post_x(void *qe, s32 ret)
{
	struct flight *f = flight_of(key_of(qe - OFFSET(struct nvme_rdma_request, sqe)));

	if (f && !ret && f->r.at[NTP_RH_SEND_BEGIN])
		f->r.at[NTP_RH_SEND_END] = bpf_ktime_get_ns();
}
EXIT_2ND(h_post, nvme_rdma_post_send, 5)

/* The target's adapter has acknowledged the capsule, and the driver sees it. */
INLINE void on_h_send_done(void *cq, struct ib_wc *wc)
{
	struct flight *f = flight_of(key_of(of_completion(wc, send_cqe())));
	u64 now;

	if (!f || READ(wc, status))
		return;
	now = bpf_ktime_get_ns();
	f->r.at[NTP_RH_SEND_DONE] = now;
	/* the response was seen before, and waits for this */
	if (f->r.at[NTP_RH_RESP_READ])
		f->r.at[NTP_RH_SEND_LATE] = now;
}
ENTRY2(h_send_done, nvme_rdma_send_done, !hot_all)

/* A response: the completion queue entry is what the receive buffer holds, its command id at 12. */
INLINE void on_h_recv_done(void *cq, struct ib_wc *wc)
{
	struct nvme_rdma_qe *qe = of_completion(wc, OFFSET(struct nvme_rdma_qe, cqe));
	struct ib_qp *qp = READ(wc, qp);
	u64 queue = (u64)READ(qp, qp_context);
	struct queue *q = queue_of(queue);
	struct flight *f;
	u16 cid = 0;

	if (!q || READ(wc, status))
		return;
	bpf_probe_read_kernel(&cid, sizeof(cid), READ(qe, data) + 12);
	f = flight_of_cid(q, queue, cid);
	if (f)
		f->r.at[NTP_RH_RESP_READ] = bpf_ktime_get_ns();
}
ENTRY2(h_recv_done, nvme_rdma_recv_done, !hot_all)

/* The memory key is invalid: the driver did it itself, the target had not. */
INLINE void on_h_inv_done(void *cq, struct ib_wc *wc)
{
	struct flight *f = flight_of(key_of(of_completion(wc, OFFSET(struct nvme_rdma_request, reg_cqe))));

	if (f && !READ(wc, status))
		f->r.at[NTP_RH_INV_DONE] = bpf_ktime_get_ns();
}
ENTRY2(h_inv_done, nvme_rdma_inv_rkey_done, !hot_all)

INLINE void on_h_completed(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (!f)
		return;
	f->r.at[NTP_RH_COMPLETED] = bpf_ktime_get_ns();
	f->r.complete_cpu = bpf_get_smp_processor_id();
}
ENTRY1(h_completed, blk_mq_complete_request_remote, !hot_all)

INLINE void on_h_timeout(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (f)
		f->timed_out = 1;
}
ENTRY1(h_timeout, nvme_rdma_timeout, !hot_all)
