/*
 * The Linux target, whatever the transport: nvmet core and its block backend
 * (drivers/nvme/target/core.c, io-cmd-bdev.c). Read against 5.10, 6.1, 6.12 and 7.3.
 *
 * A command is recorded from nvmet_req_init(), where it was read and nothing
 * refused yet (the tracepoint of the same name misses those that are refused).
 * The key in flight is the address of the nvmet_req.
 *
 * To be defined by the one that includes it: TRTYPE; struct queue,
 * name_addresses(); sq_of(), target_bytes(), driver_begin().
 */
#ifndef NTP_TARGET_H
#define NTP_TARGET_H

struct nvme_completion {
	u64 result;
	u16 sq_head;
	u16 sq_id;
	u16 command_id;
	u16 status; /* with the phase bit */
};

struct nvmet_subsys {
	char *subsysnqn;
} CORE;

struct nvmet_ns {
	u32 nsid;
	struct nvmet_subsys *subsys;
	char *device_path;
} CORE;

struct nvmet_ctrl {
	struct nvmet_subsys *subsys;
	u16 cntlid;
	char hostnqn[1];
} CORE;

struct nvmet_sq {
	struct nvmet_ctrl *ctrl;
	u16 qid;
	bool sqhd_disabled;
} CORE;

struct nvmf_disc_rsp_page_entry {
	u8 trtype;
} CORE;
enum {
	NVMF_TRTYPE_RDMA = 1,
	NVMF_TRTYPE_TCP = 3,
};

struct nvmet_port {
	struct nvmf_disc_rsp_page_entry disc_addr;
} CORE;

struct nvmet_req {
	struct nvme_command *cmd;
	struct nvme_completion *cqe;
	struct nvmet_sq *sq;
	struct nvmet_ns *ns;
	struct nvmet_port *port;
	unsigned long transfer_len;
} CORE;

struct work_struct {
	long data;
} CORE;

INLINE void connection_name(struct queue *q, struct nvmet_sq *sq, u64 now)
{
	struct nvmet_ctrl *ctrl = READ(sq, ctrl);
	struct nvmet_subsys *subsys = READ(ctrl, subsys);
	struct ntp_name *n = name_reserve();

	if (!n) {
		stat_add(NTP_S_MISS_NAME);
		return;
	}
	name_init(n, NTP_NAME_CONNECTION, q->conn, now);
	name_addresses(n, q);
	n->qid = READ(sq, qid);
	n->cntlid = READ(ctrl, cntlid);
	bpf_probe_read_kernel_str(n->hostnqn, sizeof(n->hostnqn), ADDR(ctrl, hostnqn));
	bpf_probe_read_kernel_str(n->subnqn, sizeof(n->subnqn), READ(subsys, subsysnqn));
	bpf_ringbuf_submit(n, 0);
	q->announced = 1;
}

INLINE void device_name(struct device *d, struct nvmet_ns *ns, u64 now)
{
	struct nvmet_subsys *subsys = READ(ns, subsys);
	struct ntp_name *n = name_reserve();

	if (!n) {
		stat_add(NTP_S_MISS_NAME);
		return;
	}
	name_init(n, NTP_NAME_DEVICE, d->id, now);
	n->nsid = READ(ns, nsid);
	bpf_probe_read_kernel_str(n->name, sizeof(n->name), READ(ns, device_path));
	bpf_probe_read_kernel_str(n->subnqn, sizeof(n->subnqn), READ(subsys, subsysnqn));
	bpf_ringbuf_submit(n, 0);
	d->announced = 1;
}

/*
 * The namespace is looked up by nvmet_req_init() itself, after us: the table is
 * keyed by controller's subsystem and namespace id, and its device found when
 * the command is executed (device_seen).
 */
INLINE u64 device_key(struct nvmet_sq *sq, u32 nsid)
{
	struct nvmet_ctrl *ctrl = READ(sq, ctrl);
	struct nvmet_subsys *subsys = READ(ctrl, subsys);

	return ntp_mix((u64)subsys) ^ nsid;
}

INLINE struct device *device_get(u64 key)
{
	struct device *d = bpf_map_lookup_elem(&devices, &key);
	struct device new = { .id = id_of(key, 0), .ours = 1, .selected = !cfg_devs };

	if (likely(d))
		return d;
	bpf_map_update_elem(&devices, &key, &new, BPF_NOEXIST);
	return bpf_map_lookup_elem(&devices, &key);
}

/* Backing path of at most 31 characters, or its last 31, against the filter. */
INLINE void device_seen(struct nvmet_req *req, u64 now)
{
	struct nvmet_ns *ns = READ(req, ns);
	struct nvmet_sq *sq = READ(req, sq);
	struct device *d;
	u64 key;

	if (!ns)
		return;
	key = device_key(sq, READ(ns, nsid));
	d = bpf_map_lookup_elem(&devices, &key);
	if (!d || d->announced)
		return;
	if (cfg_devs) {
		char path[NTP_PATH] = {}, name[32] = {};
		long n = bpf_probe_read_kernel_str(path, sizeof(path), READ(ns, device_path));
		u32 from = n > 32 ? n - 32 : 0;

		bpf_probe_read_kernel_str(name, sizeof(name), path + from);
		d->selected = device_selected(name);
	}
	device_name(d, ns, now);
}

/*
 * The command before, whose last send call's return was not seen: where tasks are
 * preempted in the middle of programs, the kernel skips some. Its response was sent,
 * or the driver would not use it again, so only the end of the call is missing.
 */
INLINE void end_unseen(u64 key, struct flight *f)
{
	if (!f->r.at[NTP_T_SEND_BEGIN]) {
		stat_add(NTP_S_LOST_REUSED);
		flight_del(key);
		return;
	}
	if (f->r.at[NTP_T_SEND_END] < f->r.at[NTP_T_SEND_LAST])
		f->r.at[NTP_T_SEND_END] = 0; /* was an earlier call's */
	emit(key, f);
}

/*
 * The transport's part: the queue's nvmet_sq (req->sq is set after us), the
 * bytes a command moves, and the beginning of the record.
 */
INLINE struct nvmet_sq *sq_of(struct nvmet_req *req);
INLINE u32 target_bytes(struct nvme_command *c);
INLINE void driver_begin(struct flight *f, struct nvmet_req *req, struct nvme_command *c, u64 now);

/*
 * Of the arguments only the first is the same on every kernel (6.16 dropped one
 * in the middle). The port is set by every transport before the call, sq only in it.
 */
INLINE void on_t_init(struct nvmet_req *req)
{
	u64 now = bpf_ktime_get_ns(), key = (u64)req;
	struct nvmet_port *port = READ(req, port);
	struct nvmet_sq *sq;
	struct nvme_command c;
	struct flight *old;
	struct device *d;
	struct flight f;
	u32 bytes;
	bool admin;

	if (READ(port, disc_addr.trtype) != TRTYPE)
		return;
	sq = sq_of(req);
	/* the driver uses the command again: the end of the one before was not seen */
	old = flight_of(key);
	if (unlikely(old))
		end_unseen(key, old);
	bpf_probe_read_kernel(&c, sizeof(c), READ(req, cmd));
	admin = !READ(sq, qid) || c.opcode == 0x7f;
	if (admin && !cfg_admin)
		return;
	d = device_get(admin ? 0 : device_key(sq, c.nsid));
	if (!d)
		return;
	bytes = target_bytes(&c);
	if (!d->selected || !eligible(c.opcode, bytes))
		return;
	if (!count_and_sample(&c, admin ? 0 : d->id, bytes, admin))
		return;

	flight_init(&f, &c, bytes);
	driver_begin(&f, req, &c, now);
	f.r.dev = admin ? 0 : d->id;
	f.admin = admin;
	f.r.at[NTP_T_RECEIVED] = now;
	flight_add(key, &f);
}
ENTRY1(t_init, nvmet_req_init, 0)

INLINE void on_t_execute(struct nvmet_req *req)
{
	u64 now = bpf_ktime_get_ns();
	struct flight *f;

	if (unlikely(cfg_devs))
		device_seen(req, now); /* the filter needs the device before any command was chosen */
	f = flight_of((u64)req);
	if (!f)
		return;
	/* this one's beginning was not seen, nor the end of the one before */
	if (unlikely(f->r.at[NTP_T_SEND_BEGIN])) {
		end_unseen((u64)req, f);
		return;
	}
	f->r.at[NTP_T_EXECUTE] = now;
	device_seen(req, now);
}
ENTRY1(t_execute, nvmet_bdev_execute_rw, !cfg_devs && !hot_all)

/*
 * The bio of a sampled command is told by bi_private. Of a bio too large for
 * the drive the front part is split off, and nvmet_bdev_execute_rw() chains
 * what does not fit into one: their bi_private is another bio, which leads on.
 */
#define CHAIN 4
INLINE struct flight *flight_of_bio(struct bio *bio)
{
	for (u32 i = 0; bio && i < CHAIN; i++) {
		struct flight *f;

		bio = READ(bio, bi_private);
		f = flight_of((u64)bio);
		if (f)
			return f;
	}
	return NULL;
}

INLINE void on_t_bio_queue(struct bio *bio)
{
	struct flight *f;

	if (!hot_all)
		return;
	f = flight_of((u64)READ(bio, bi_private));
	if (f)
		first(f, NTP_T_BIO_SUBMIT, bpf_ktime_get_ns());
}
TRACEPOINT1(t_bio_queue)
TRACEPOINT_2ND(t_bio_queue)

/* Several commands' bios may have been merged into one request. */
#define MERGED_BIOS 16

INLINE void on_t_rq_issue(struct request *rq)
{
	u64 now;
	struct bio *bio;

	if (!hot_all)
		return;
	now = bpf_ktime_get_ns();
	bio = READ(rq, bio);
	for (u32 i = 0; bio && i < MERGED_BIOS; i++) {
		struct flight *f = flight_of_bio(bio);

		if (f && f->r.at[NTP_T_BIO_SUBMIT])
			first(f, NTP_T_DRIVE_ISSUE, now);
		bio = READ(bio, bi_next);
	}
	if (bio)
		stat_add(NTP_S_MISS_MERGED);
}
TRACEPOINT1(t_rq_issue)
TRACEPOINT_2ND(t_rq_issue)

INLINE void on_t_rq_complete(struct request *rq)
{
	u64 now;
	struct bio *bio;

	if (!hot_all)
		return;
	now = bpf_ktime_get_ns();
	bio = READ(rq, bio);
	for (u32 i = 0; bio && i < MERGED_BIOS; i++) {
		struct flight *f = flight_of_bio(bio);

		if (f && f->r.at[NTP_T_DRIVE_ISSUE]) {
			f->r.at[NTP_T_DRIVE_DONE] = now;
			f->r.complete_cpu = bpf_get_smp_processor_id();
		}
		bio = READ(bio, bi_next);
	}
}
TRACEPOINT1(t_rq_complete)

INLINE void on_t_bio_done(struct bio *bio)
{
	struct flight *f;

	f = flight_of((u64)READ(bio, bi_private));
	if (f)
		f->r.at[NTP_T_BIO_DONE] = bpf_ktime_get_ns();
}
ENTRY1(t_bio_done, nvmet_bio_done, !hot_all)

/* nvmet_bio_done() of the last bio calls this first; without a bio there is none to be done. */
INLINE void on_t_complete(struct nvmet_req *req)
{
	struct flight *f;

	if (!hot_all)
		return;
	f = flight_of((u64)req);
	if (f && f->r.at[NTP_T_BIO_SUBMIT])
		f->r.at[NTP_T_BIO_DONE] = bpf_ktime_get_ns();
}
TRACEPOINT1(t_complete)

/*
 * A connection goes, and its commands with it: those whose response was not
 * sent never end. The driver keeps them in an array, `size` bytes apart.
 */
#define QUEUE_COMMANDS 2048
INLINE void closed(u64 first, u32 size, u32 n)
{
	/*
	 * hot_all is not asked before: knowing it, clang enters the loop in its middle, and
	 * 6.1's verifier refuses an edge that falls back into the loop's head.
	 */
	for (u32 i = 0; i < QUEUE_COMMANDS && i < n; i++) {
		u64 key = first + i * size;

		if (flight_of(key) && flight_del(key))
			stat_add(NTP_S_LOST_CLOSED);
	}
}

#endif
