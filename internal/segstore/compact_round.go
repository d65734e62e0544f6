package segstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
)

// errAborted ends a compaction whose log was truncated, deleted or cut from
// the front meanwhile. Nothing is wrong.
var errAborted = errors.New("compaction is given up")

const (
	cleanChunk = 256 << 10 // bytes read at once
	cleanPause = 256 << 10 // bytes between two looks at whether to go on
)

// round is one compaction of one log: it reads the dirty part, notes the
// newest offset of each key, and rewrites all segments up to the end of that
// part (Kafka's Cleaner.doClean).
type round struct {
	cleaner *cleaner
	log     *Log
	dirty   dirtiness
	filter  batchFilter
	result  CleanResult

	watch []*segment // what must stay as it is while it is read
	since int        // bytes since the last look
	chunk []byte
	buf   []byte
}

// run gives the first offset that is dirty afterwards. What it rewrote before
// an error stays.
func (r *round) run(ctx context.Context) (to int64, err error) {
	keys := &r.cleaner.keys
	keys.reset(r.dirty.to-r.dirty.from, r.cleaner.opts.BufferBytes)
	if err := r.index(ctx); err != nil {
		return 0, err
	}
	to = keys.latest + 1
	if to <= r.dirty.from {
		return 0, fmt.Errorf("log.cleaner.dedupe.buffer.size of %d bytes is too small for the keys of one batch at offset %d",
			r.cleaner.opts.BufferBytes, r.dirty.from)
	}
	now := r.cleaner.store.now().UnixMilli()
	r.filter.keys, r.filter.txns, r.filter.nowMs = keys, newCleanedTxns(), now
	r.filter.horizonMs = addTime(now, r.log.cfg.Load().DeleteRetention)
	r.filter.protect(r.log, to)
	segs := r.dirty.segs
	for len(segs) > 0 && segs[len(segs)-1].base >= to {
		segs = segs[:len(segs)-1]
	}
	for _, group := range r.groups(segs) {
		if err := r.rewrite(ctx, group); err != nil {
			return 0, err
		}
	}
	return to, nil
}

// index puts the keys of the dirty part into the table, as far as they fit:
// whole batches only, and those of aborted transactions not.
func (r *round) index(ctx context.Context) error {
	keys, txns, segs := &r.cleaner.keys, newCleanedTxns(), r.dirty.segs
	for len(segs) > 1 && segs[1].base <= r.dirty.from {
		segs = segs[1:]
	}
	r.watch = segs
	for _, seg := range segs {
		size, end := seg.shape()
		if err := r.loadAborted(txns, seg, end); err != nil {
			return err
		}
		pos := int64(0)
		if seg.base < r.dirty.from {
			index, _, err := r.log.store.indexes.get(seg)
			if err != nil {
				return err
			}
			pos = index.atOffset(r.dirty.from - seg.base)
		}
		full := false
		err := r.each(ctx, seg, pos, size, func(h *BatchHeader, raw []byte, _ int64) error {
			if h.Control() {
				txns.marker(h, raw[batchOverhead:])
			} else if !txns.data(h) && h.Records > 0 && h.LastOffset() >= r.dirty.from {
				fits, err := r.indexBatch(keys, h, raw)
				if full = !fits; err != nil || full {
					return errors.Join(err, errStop)
				}
			}
			keys.latest = max(keys.latest, h.LastOffset())
			return nil
		})
		if full {
			return nil
		}
		if err != nil {
			return err
		}
		keys.latest = max(keys.latest, end-1)
	}
	return nil
}

func (r *round) indexBatch(keys *offsetMap, h *BatchHeader, raw []byte) (fits bool, err error) {
	fits = true
	err = inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
		it := recordIter{buf: plain, left: h.Records}
		for it.next() {
			offset := h.BaseOffset + int64(it.offsetDelta)
			if it.key == nil || offset < r.dirty.from {
				continue
			}
			if fits = keys.put(it.key, offset); !fits {
				return nil
			}
		}
		if it.fault != "" {
			return fmt.Errorf("record %d: %s", it.index, it.fault)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: records of the batch at offset %d: %w", ErrCorrupt, h.BaseOffset, err)
	}
	return fits, err
}

// groups puts small segments together up to segment.bytes, segment.index.bytes
// and the range of a relative offset (Kafka's Cleaner.groupSegmentsBySize).
func (r *round) groups(segs []*segment) (groups [][]*segment) {
	cfg := r.log.cfg.Load()
	var total [3]int64
	begin := 0
	for i, seg := range segs {
		size, end := seg.shape()
		sizes := [3]int64{size, r.fileSize(seg.stem + indexSuffix), r.fileSize(seg.stem + timeSuffix)}
		full := end-1-segs[begin].base > math.MaxInt32
		for k, limit := range [...]int64{min(cfg.SegmentBytes, math.MaxInt32), cfg.IndexBytes, cfg.IndexBytes} {
			full = full || total[k]+sizes[k] > limit
		}
		if full && i > begin {
			groups = append(groups, segs[begin:i])
			begin, total = i, [3]int64{}
		}
		for k := range total {
			total[k] += sizes[k]
		}
	}
	if begin < len(segs) {
		groups = append(groups, segs[begin:])
	}
	return groups
}

// fileSize is 0 for an index that is missing: it will be made anew.
func (r *round) fileSize(path string) int64 {
	info, err := r.log.store.fs.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// rewrite replaces a group of segments by one with what stays of them. A
// segment alone of which all stays is left as it is, and nothing is written.
func (r *round) rewrite(ctx context.Context, group []*segment) (err error) {
	r.watch = group
	r.filter.txns.kept = nil
	var out *replacement
	if len(group) > 1 {
		if out, err = r.log.replace(group, r.buf); err != nil {
			return err
		}
	}
	last := len(group) - 1
	for size, _ := group[last].shape(); last > 0 && size == 0; size, _ = group[last].shape() {
		last--
	}
	for i, seg := range group {
		size, end := seg.shape()
		err := r.loadAborted(r.filter.txns, seg, end)
		if err == nil {
			err = r.each(ctx, seg, 0, size, func(h *BatchHeader, raw []byte, next int64) error {
				kept, err := r.filter.batch(h, raw, i == last && next == size)
				if err != nil {
					return err
				}
				if out == nil && sameSlice(kept, raw) {
					return nil
				}
				if out == nil {
					if out, err = r.catchUp(ctx, group, next-int64(len(raw))); err != nil {
						return err
					}
				}
				return r.keep(out, kept)
			})
		}
		if err != nil {
			if out != nil {
				r.buf = out.buf
				err = errors.Join(err, out.discard())
			}
			return err
		}
	}
	if out == nil {
		return nil
	}
	err = out.commit(r.filter.txns.kept)
	r.buf = out.buf
	return err
}

// sameSlice says whether a batch stays as it is.
func sameSlice(kept, raw []byte) bool { return len(kept) > 0 && &kept[0] == &raw[0] }

// catchUp begins a replacement with the bytes before pos, all of which stay.
func (r *round) catchUp(ctx context.Context, group []*segment, pos int64) (*replacement, error) {
	out, err := r.log.replace(group, r.buf)
	if err != nil {
		return nil, err
	}
	twin := *r // another buffer: the caller is in the middle of a batch
	twin.chunk = nil
	err = twin.each(ctx, group[0], 0, pos, func(_ *BatchHeader, raw []byte, _ int64) error { return twin.keep(out, raw) })
	r.since, r.result = twin.since, twin.result
	if err != nil {
		return nil, errors.Join(err, out.discard())
	}
	return out, nil
}

// keep writes what stays of a batch, if anything.
func (r *round) keep(out *replacement, kept []byte) error {
	if kept == nil {
		return nil
	}
	r.since += len(kept)
	r.result.Written += int64(len(kept))
	h := decodeHeader(kept)
	return out.add(&h, kept)
}

// loadAborted gives txns the aborted transactions of a segment.
func (r *round) loadAborted(txns *cleanedTxns, seg *segment, end int64) error {
	list, err := r.log.abortedWithin(seg.base, end)
	txns.load(list)
	return err
}

// each gives do the batches of a segment from pos on, with where the next one
// begins, until it returns an error. A bad CRC is an error: compaction makes
// new ones, which must not hide it.
func (r *round) each(ctx context.Context, seg *segment, pos, limit int64, do func(h *BatchHeader, raw []byte, next int64) error) error {
	f, err := r.log.store.handles.acquire(&seg.file)
	if err != nil {
		return r.orAborted(err)
	}
	defer r.log.store.handles.release(&seg.file)
	if r.chunk == nil {
		r.chunk = make([]byte, cleanChunk)
	}
	sc := &scan{file: f, limit: limit, chunk: &r.chunk}
	for pos < limit {
		h, err := sc.header(pos)
		if err != nil {
			return err
		}
		raw, err := sc.bytes(pos, h.Size())
		if err != nil {
			return err
		}
		if !crcGood(raw) {
			return fmt.Errorf("%w: CRC of the batch at offset %d, %d in %s", ErrCorrupt, h.BaseOffset, pos, f.Name())
		}
		pos += int64(len(raw))
		r.result.Read += int64(len(raw))
		if err := do(&h, raw, pos); err != nil {
			return err
		}
		if r.since += len(raw); r.since >= cleanPause {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// look makes way for others and says whether to go on.
func (r *round) look(ctx context.Context) error {
	n := r.since
	r.since = 0
	runtime.Gosched()
	if err := r.cleaner.pace.wait(ctx, n); err != nil {
		return err
	}
	if err := r.log.writable(); err != nil {
		return err
	}
	if !r.log.holds(r.watch) {
		return errAborted
	}
	return nil
}

// orAborted takes a file that is missing because its segment is no longer the log's for that.
func (r *round) orAborted(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !r.log.holds(r.watch) {
		return errAborted
	}
	return err
}
