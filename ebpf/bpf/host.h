/*
 * The Linux host, whatever the transport: nvme-core and the block layer. Read
 * against 5.10, 6.1, 6.12 and 7.3.
 *
 * A command is recorded from nvme_setup_cmd, where its id and block are known,
 * to the end of its request. The key in flight is the address of the request.
 *
 * To be defined by the one that includes it: TRANSPORT, the name in
 * nvme_ctrl_ops, padded to 8 bytes; struct queue, with the driver's tags;
 * name_addresses(); driver_setup().
 */
#ifndef NTP_HOST_H
#define NTP_HOST_H

struct nvmf_host {
	char nqn[1];
} CORE;

struct nvmf_ctrl_options {
	char *subsysnqn;
	struct nvmf_host *host;
} CORE;

struct nvme_ctrl_ops {
	char *name;
} CORE;

struct nvme_ctrl {
	struct nvme_ctrl_ops *ops;
	struct nvmf_ctrl_options *opts;
	int instance;
	u16 cntlid;
} CORE;

struct nvme_ns_head {
	struct gendisk *disk; /* with multipath */
} CORE;

struct nvme_ns {
	struct nvme_ns_head *head;
	struct gendisk *disk;
} CORE;

struct nvme_request {
	u8 retries;
	u8 flags; /* bit 0: NVME_REQ_CANCELLED */
	u16 status;
	struct nvme_ctrl *ctrl;
} CORE;

/* blk_mq_rq_to_pdu(): the driver's part follows the request, and every driver's begins with this */
INLINE struct nvme_request *nvme_req(struct request *rq)
{
	return (void *)rq + SIZEOF(struct request);
}

/*
 * When a bio entered the block layer: before it is split, waits for a free
 * request, or is held back in a plug. Kept by the bio's address, for all of the
 * machine. request.start_time_ns would be later, and of a batch that is
 * allocated or timed at once (blk_mq_get_new_requests in 6.1, blk_time_get_ns
 * from 6.9 on) that of its first.
 */
#define SETS 2048
#define WAYS 4
struct {
	u64 bio;
	u64 ns;
} started[SETS][WAYS];

INLINE u32 started_set(u64 bio)
{
	return low_half(bio >> 6 ^ bio >> 18) & (SETS - 1);
}

INLINE void on_h_bio_queue(struct bio *bio)
{
	u32 set = started_set((u64)bio), way = 0;
	u64 oldest = started[set][0].ns;

#pragma unroll
	for (u32 i = 1; i < WAYS; i++)
		if (started[set][i].ns < oldest) {
			oldest = started[set][i].ns;
			way = i;
		}
	way &= WAYS - 1;
	/* a reader between the two stores finds no bio */
	started[set][way].bio = 0;
	started[set][way].ns = bpf_ktime_get_ns();
	started[set][way].bio = (u64)bio;
}
TRACEPOINT1(h_bio_queue)
TRACEPOINT_2ND(h_bio_queue)

/* Latest time at which a bio of that address came; 0 when it was not seen. */
INLINE u64 started_at(u64 bio)
{
	u32 set = started_set(bio);
	u64 latest = 0;

#pragma unroll
	for (u32 i = 0; i < WAYS; i++) {
		u64 ns = started[set][i].ns;

		if (started[set][i].bio == bio && ns > latest)
			latest = ns;
	}
	return latest;
}

/* Of a bio that was split the front part is a new one, and names the old (bio_chain). */
INLINE u64 block_start_of(struct request *rq, struct bio *bio, u64 now)
{
	u64 ns = 0;

	if (bio) {
		ns = started_at((u64)bio);
		if (!ns)
			ns = started_at((u64)READ(bio, bi_private));
	}
	if (!ns) {
		ns = READ(rq, start_time_ns);
		stat_add(NTP_S_MISS_START);
	}
	return ns <= now ? ns : 0;
}

INLINE void device_name(struct device *d, struct request_queue *rqq, u32 nsid, u64 now)
{
	struct nvme_ns *ns = READ(rqq, queuedata);
	struct nvme_ns_head *head = READ(ns, head);
	struct gendisk *disk = READ(ns, disk), *top = NULL;
	struct ntp_name *n;

	n = name_reserve();
	if (!n) {
		stat_add(NTP_S_MISS_NAME);
		return;
	}
	name_init(n, NTP_NAME_DEVICE, d->id, now);
	if (HAS(struct nvme_ns_head, disk))
		top = READ(head, disk);
	n->nsid = nsid;
	if (top) {
		bpf_probe_read_kernel_str(n->name, 32, ADDR(top, disk_name));
		bpf_probe_read_kernel_str(n->path, 32, ADDR(disk, disk_name));
	} else {
		bpf_probe_read_kernel_str(n->name, 32, ADDR(disk, disk_name));
	}
	bpf_ringbuf_submit(n, 0);
	d->announced = 1;
}

INLINE bool head_selected(struct gendisk *disk)
{
	char name[32] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), ADDR(disk, disk_name));
	return device_selected(name);
}

INLINE void device_new(u64 key, struct request *rq, struct request_queue *rqq)
{
	struct nvme_ctrl *ctrl = READ(nvme_req(rq), ctrl);
	struct nvme_ctrl_ops *ops = READ(ctrl, ops);
	struct nvme_ns *ns = READ(rqq, queuedata);
	struct gendisk *disk = ns ? READ(ns, disk) : NULL;
	struct device d = { .check = (u64)ns, .admin = !ns };
	u64 name = 0;

	bpf_probe_read_kernel_str(&name, sizeof(name), READ(ops, name));
	d.ours = name == *(const u64 *)TRANSPORT;
	if (d.ours) {
		d.id = ns ? id_of((u64)disk, (u64)ns) : 0;
		d.selected = ns ? head_selected(disk) : !cfg_devs;
		if (ns && !d.selected && HAS(struct nvme_ns_head, disk)) {
			struct nvme_ns_head *head = READ(ns, head);
			struct gendisk *top = READ(head, disk);

			d.selected = top && head_selected(top);
		}
	}
	bpf_map_update_elem(&devices, &key, &d, BPF_ANY);
}

/* The first queue is the admin queue; fabrics commands go over all. */
INLINE void connection_name(struct queue *q, struct request *rq, bool admin_queue, u64 now)
{
	struct blk_mq_hw_ctx *hctx = READ(rq, mq_hctx);
	struct nvme_ctrl *ctrl = READ(nvme_req(rq), ctrl);
	struct nvmf_ctrl_options *opts = READ(ctrl, opts);
	struct nvmf_host *host = READ(opts, host);
	struct ntp_name *n = name_reserve();

	if (!n) {
		stat_add(NTP_S_MISS_NAME);
		return;
	}
	name_init(n, NTP_NAME_CONNECTION, q->conn, now);
	name_addresses(n, q);
	n->qid = admin_queue ? 0 : READ(hctx, queue_num) + 1;
	n->instance = READ(ctrl, instance);
	n->cntlid = READ(ctrl, cntlid);
	bpf_probe_read_kernel_str(n->hostnqn, sizeof(n->hostnqn), ADDR(host, nqn));
	bpf_probe_read_kernel_str(n->subnqn, sizeof(n->subnqn), READ(opts, subsysnqn));
	bpf_ringbuf_submit(n, 0);
	q->announced = 1;
}

/* Data the command moves: opcode bits 0-1 give its direction (base specification, opcodes). */
INLINE u32 host_bytes(struct request *rq, struct nvme_command *c)
{
	if (!(c->opcode & 3))
		return 0;
	if (c->opcode == NVME_DSM)
		return ((u32)(c->slba & 0xff) + 1) * 16; /* ranges; the request's length is what they cover */
	return READ(rq, __data_len);
}

/* The driver's part of the record's beginning: queue, connection and its name. */
INLINE void driver_setup(struct flight *f, struct request *rq, struct blk_mq_hw_ctx *hctx, u64 now);

INLINE void on_h_setup(struct request *rq, struct nvme_command *wire)
{
	u64 now = bpf_ktime_get_ns(), key = (u64)rq, block_start = 0;
	struct request_queue *rqq = READ(rq, q);
	u64 dkey = (u64)rqq;
	struct device *d = bpf_map_lookup_elem(&devices, &dkey);
	struct blk_mq_hw_ctx *hctx;
	struct nvme_command c;
	struct flight *old;
	struct flight f;
	u32 bytes, op;
	bool admin, retried = 0;
	u8 retries;

	if (unlikely(!d || d->check != (u64)READ(rqq, queuedata))) {
		device_new(dkey, rq, rqq);
		d = bpf_map_lookup_elem(&devices, &dkey);
	}
	if (!d || !d->ours)
		return;
	bpf_probe_read_kernel(&c, sizeof(c), wire);
	/* a request set up again before its end: a retry, or an end nobody saw */
	old = flight_of(key);
	if (unlikely(old)) {
		retries = READ(nvme_req(rq), retries);
		stat_add(retries ? NTP_S_LOST_REQUEUED : NTP_S_LOST_REUSED);
		if (retries) {
			retried = 1;
			block_start = old->r.at[NTP_H_BLOCK_START];
		}
		flight_del(key);
	}
	admin = d->admin || c.opcode == 0x7f; /* fabrics commands: connect on an I/O queue */
	if (!d->selected || (admin && !cfg_admin))
		return;
	bytes = host_bytes(rq, &c);
	if (!eligible(c.opcode, bytes))
		return;
	if (!count_and_sample(&c, d->id, bytes, admin))
		return;

	flight_init(&f, &c, bytes);
	hctx = READ(rq, mq_hctx);
	driver_setup(&f, rq, hctx, now);
	f.r.dev = d->id;
	if (!d->announced && d->id)
		device_name(d, rqq, c.nsid, now);
	f.admin = admin;
	f.polled = READ(hctx, type) == HCTX_TYPE_POLL;
	op = READ(rq, cmd_flags) & REQ_OP_MASK;
	f.passthrough = op == REQ_OP_DRV_IN || op == REQ_OP_DRV_OUT;
	if (!f.passthrough) {
		struct bio *bio = READ(rq, bio);

		f.merged = bio && READ(bio, bi_next);
		f.r.at[NTP_H_BLOCK_START] = block_start ? block_start : block_start_of(rq, bio, now);
	}
	f.retried = retried || READ(nvme_req(rq), retries);
	f.r.at[NTP_H_DRIVER_START] = now;
	flight_add(key, &f);
}
TRACEPOINT(h_setup)

/* The command of an id, found as the driver does: by its tag, nvme_find_rq(). */
#define NVME_TAG 0xfff
INLINE struct flight *flight_of_cid(struct queue *q, u64 queue, u16 cid)
{
	struct request **rqs = READ((struct blk_mq_tags *)q->tags, rqs), *rq = NULL;
	struct flight *f;

	bpf_probe_read_kernel(&rq, sizeof(rq), rqs + (cid & NVME_TAG));
	f = flight_of((u64)rq);
	return f && f->queue == queue && f->r.cid == cid ? f : NULL;
}

INLINE void on_h_complete_rq(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (!f)
		return;
	f->r.at[NTP_H_COMPLETE_RQ] = bpf_ktime_get_ns();
	f->r.status = READ(nvme_req(rq), status);
	f->r.retries = READ(nvme_req(rq), retries);
	/*
	 * Ended without an answer: cancelled, or failed by the driver itself
	 * with a path status (SCT 3), as a timeout or a dead socket does.
	 */
	f->cancelled = READ(nvme_req(rq), flags) & 1 ||
		       (!f->r.at[NTP_H_RESP_READ] && (f->r.status >> 8 & 7) == 3);
}
TRACEPOINT1(h_complete_rq)

INLINE void on_h_done(struct request *rq)
{
	struct flight *f = flight_of((u64)rq);

	if (!f)
		return;
	f->r.at[NTP_H_BLOCK_DONE] = bpf_ktime_get_ns();
	emit((u64)rq, f);
}
TRACEPOINT1(h_done)

#endif
