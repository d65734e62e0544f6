package main

import (
	"time"

	"github.com/pgbroker/pgbroker/bench/load"
	"github.com/pgbroker/pgbroker/bench/peer"
)

// usage is what was used while a case was measured.
type usage struct {
	began                time.Time
	took                 time.Duration
	dir                  string // of the peer's data
	disk                 disk   // at begin the sums, after end the differences
	diskKnown            bool
	peer, machine, steal time.Duration // processor time: at begin the sums, after end the differences
}

func (u *usage) begin(n *peer.Node) (err error) {
	if err := n.ResetPeak(); err != nil {
		return err
	}
	u.began = time.Now()
	u.machine, u.steal = processors()
	u.disk, u.diskKnown = diskOf(u.dir)
	u.peer, err = n.CPU()
	return err
}

func (u *usage) end(n *peer.Node) error {
	peer, err := n.CPU()
	machine, steal := processors()
	now, known := diskOf(u.dir)
	u.disk, u.diskKnown = disk{now.writtenBytes - u.disk.writtenBytes, now.flushes - u.disk.flushes}, known && u.diskKnown
	u.peer, u.machine, u.steal, u.took = peer-u.peer, machine-u.machine, steal-u.steal, time.Since(u.began)
	return err
}

// others adds how many processors were used by neither peer nor client, the kernel's own threads among them, and how many the
// host took away: what disturbed the case.
func (u *usage) others(values map[string]float64) {
	values["other_cpus"] = max(0, u.machine.Seconds()-u.peer.Seconds()-values["client_cpu_s"]) / u.took.Seconds()
	values["stolen_cpus"] = u.steal.Seconds() / u.took.Seconds()
}

// costs adds the peer's processor time by GiB, request and record, and the client's by GiB.
func costs(out load.Outcome, used time.Duration) {
	out.Values["cpu_s"] = used.Seconds()
	per := func(name string, unit float64, count int64) {
		if count > 0 {
			out.Values[name] = used.Seconds() * unit / float64(count)
		}
	}
	per("cpu_s_gib", 1<<30, out.Bytes)
	per("cpu_us_request", 1e6, out.Requests)
	per("cpu_us_record", 1e6, out.Records)
	if out.Bytes > 0 {
		out.Values["client_cpu_s_gib"] = out.Values["client_cpu_s"] * (1 << 30) / float64(out.Bytes)
	}
}

// device adds what the disk did: flushes a request, and bytes it wrote for each byte of records.
func (u *usage) device(out load.Outcome) {
	if !u.diskKnown {
		return
	}
	out.Values["device_mib"], out.Values["device_flushes"] = u.disk.writtenBytes/(1<<20), u.disk.flushes
	if out.Requests > 0 {
		out.Values["flushes_request"] = u.disk.flushes / float64(out.Requests)
	}
	if out.Bytes > 0 {
		out.Values["device_bytes_byte"] = u.disk.writtenBytes / float64(out.Bytes)
	}
}
