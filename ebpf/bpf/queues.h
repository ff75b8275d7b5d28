/*
 * The table of queues. What a queue is differs by transport: included by tcp.h
 * and rdma.h once they have said what struct queue holds.
 */
#ifndef NTP_QUEUES_H
#define NTP_QUEUES_H

/* Queues come and go with every reconnect: the least recently used makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u64);
	__type(value, struct queue);
	__uint(max_entries, 2048);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, struct queue);
	__uint(max_entries, 1);
} queue_zero SEC(".maps"); /* too large for the stack, never written */

INLINE struct queue *queue_of(u64 key)
{
	return bpf_map_lookup_elem(&queues, &key);
}

INLINE struct queue *queue_get(u64 key)
{
	struct queue *q = queue_of(key), *z;
	u32 zero = 0;

	if (likely(q))
		return q;
	z = bpf_map_lookup_elem(&queue_zero, &zero);
	if (!z)
		return NULL;
	bpf_map_update_elem(&queues, &key, z, BPF_NOEXIST);
	q = queue_of(key);
	if (!q)
		stat_add(NTP_S_MISS_QUEUE);
	return q;
}

#endif
