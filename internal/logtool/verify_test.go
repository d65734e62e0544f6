package logtool

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

func findings(t *testing.T, disk vfs.FS, o VerifyOptions) ([]string, Summary) {
	t.Helper()
	var list []string
	o.FS = disk
	if o.Dir == "" {
		o.Dir = "data"
	}
	s, err := Verify(t.Context(), o, func(f Finding) error {
		list = append(list, f.String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Findings != s.Errors+s.Warnings || s.Findings < len(list) {
		t.Errorf("%+v with %d findings told", s, len(list))
	}
	return list, s
}

// TestGoodFolder: the folder that the other tests break has no fault, as a whole, one partition of it, and after a kill at
// any recovery point.
func TestGoodFolder(t *testing.T) {
	f := newFolder()
	list, s := findings(t, f.disk(t), VerifyOptions{})
	if len(list) > 0 || s.Logs != 1 || s.Batches != 8 || s.Records != 31 || !s.Clean {
		t.Errorf("%v %+v", list, s)
	}
	if list, s := findings(t, f.disk(t), VerifyOptions{Dir: "data/orders-0/"}); len(list) > 0 || s.Records != 31 {
		t.Errorf("one partition: %v %+v", list, s)
	}
	for point := range int64(32) {
		f := newFolder()
		f.unclean(point)
		list, _ := findings(t, f.disk(t), VerifyOptions{})
		if len(list) != 1 || !strings.HasPrefix(list[0], "WARNING .kafka_cleanshutdown is missing") {
			t.Errorf("point %d: %v", point, list)
		}
	}
}

// violation is one broken rule and the one finding that must tell it.
type violation struct {
	name string
	do   func(f *folder)
	want string // severity, place and the beginning of the text; "" none
}

func verifyEach(t *testing.T, list []violation) {
	t.Helper()
	for _, v := range list {
		t.Run(v.name, func(t *testing.T) {
			f := newFolder()
			v.do(f)
			found, _ := findings(t, f.disk(t), VerifyOptions{})
			var rest []string
			for _, line := range found {
				if !strings.HasPrefix(line, "WARNING .kafka_cleanshutdown is missing") {
					rest = append(rest, line)
				}
			}
			if v.want == "" && len(rest) == 0 {
				return
			}
			if len(rest) != 1 || v.want == "" || !strings.HasPrefix(rest[0], v.want) {
				t.Errorf("want %q, found\n%s", v.want, strings.Join(rest, "\n"))
			}
		})
	}
}

// bare leaves only what the batches are checked by.
func bare(f *folder) {
	for _, name := range []string{seg0 + indexSuffix, seg0 + timeSuffix, seg1 + indexSuffix, seg1 + timeSuffix, seg0 + abortSuffix,
		seg1 + snapshotSuffix, "orders-0/00000000000000000031.snapshot"} {
		delete(f.files, name)
	}
	f.unclean(20)
}

func TestBatches(t *testing.T) {
	log0, log1 := seg0+logSuffix, seg1+logSuffix
	verifyEach(t, []violation{
		{"crc", func(f *folder) { f.files[log0] = flip(f.log(0), 70) }, "ERROR " + log0 + "@0 after offset 0: CRC of the batch is wrong"},
		{"crc above the recovery point", func(f *folder) { bare(f); f.files[log1] = flip(f.log(1), 70) },
			"WARNING " + log1 + "@0 after offset 20: CRC of the batch is wrong; the next start cuts here"},
		{"name", func(f *folder) { bare(f); f.segments[0] = f.segments[0][1:] }, "ERROR " + log0 + "@0 first batch begins at offset 5, the file's name says 0"},
		{"gap", func(f *folder) { bare(f); f.segments[1] = append(f.segments[1][:1:1], f.segments[1][2]) }, "ERROR " + log1 + "@98 offsets 25 to 25 are missing"},
		{"gap between segments", func(f *folder) { bare(f); f.segments[0] = f.segments[0][:4] }, "ERROR " + log1 + "@0 offsets 16 to 19 are missing before it"},
		{"overlap", func(f *folder) { f.unclean(31); f.segments[1][2].base = 25 }, "ERROR " + log1 + "@176 after offset 26: offsets go back"},
		{"cut off", func(f *folder) { f.files[log1] = trim(f.log(1), 5) }, "ERROR " + log1 + "@176 after offset 26: batch of "},
		{"cut off above the recovery point", func(f *folder) { bare(f); f.files[log1] = trim(f.log(1), 5) },
			"WARNING " + log1 + "@176 after offset 26: batch of "},
		{"garbage", func(f *folder) { f.files[log1] = append(f.log(1), "garbage"...) }, "ERROR " + log1 + "@"},
		{"zeros", func(f *folder) { f.files[log1] = append(f.log(1), make([]byte, 300<<10)...) }, ""},
		{"zeros in the middle", func(f *folder) { f.files[log0] = append(f.log(0), make([]byte, 100)...) }, "ERROR " + log0 + "@"},
		{"magic", func(f *folder) { f.files[log1] = with(f.log(1), 176+16, 1) }, "ERROR " + log1 + "@176 after offset 26: no batch of magic 2 (magic 1"},
		{"length", func(f *folder) { f.files[log1] = with(f.log(1), 176+8, 0, 0, 0, 9) }, "ERROR " + log1 + "@176 after offset 26: batch length 9 is too small"},
		{"term falls", func(f *folder) { bare(f); f.segments[1][2].term = 2 }, "ERROR " + log1 + "@176 term 2 follows term 3"},
		{"count", func(f *folder) { bare(f); f.segments[1][2].count = 4 }, "ERROR " + log1 + "@176 4 records, but offsets 26 to 30"},
		{"fewer records", func(f *folder) {
			bare(f)
			f.segments[1][2] = spec{base: 26, term: 3, producer: -1, epoch: -1, sequence: -1, times: times(4000, 5), deltas: []int64{0, 1, 2, 3, 5}, count: 6}
		}, "ERROR " + log1 + "@176 offset 31 follows 29"},
		{"records behind", func(f *folder) { bare(f); f.segments[1][2].codec, f.segments[1][2].trailing = 0, []byte{2, 0} }, "ERROR " + log1 + "@176 bytes follow the last of 5 records"},
		{"codec broken", func(f *folder) {
			bare(f)
			log := f.log(1)
			withCRC(with(log[176:], 61, 1, 2, 3, 4))
			f.files[log1] = log
		}, "ERROR " + log1 + "@176 record 1 of 5: "},
		{"codec unknown", func(f *folder) { bare(f); f.segments[1][2].codec = 6 }, "ERROR " + log1 + "@176 compression codec 6 is unknown"},
		{"attributes", func(f *folder) { bare(f); f.segments[1][2].attrs |= 0x100 }, "WARNING " + log1 + "@176 attributes 0x104 have bits"},
		{"largest time", func(f *folder) { bare(f); f.segments[1][2].maxTime = now + 9999 }, "ERROR " + log1 + "@176 largest timestamp is "},
		{"transaction without producer", func(f *folder) { bare(f); f.segments[1][2].attrs = transactionBit }, "ERROR " + log1 + "@176 batch of a transaction has no producer id"},
		{"sequence repeated", func(f *folder) { bare(f); f.segments[0][4].sequence = 6 }, "ERROR " + log0 + "@470 producer id 7 epoch 0 repeats sequence 6 after 9"},
		{"sequence left out", func(f *folder) { bare(f); f.segments[0][4].sequence = 11 }, "WARNING " + log0 + "@470 producer id 7 epoch 0 leaves out sequences 10 to 10"},
		{"old producer epoch", func(f *folder) { bare(f); f.segments[0][0].epoch, f.segments[0][1].epoch = 1, 1 }, "ERROR " + log0 + "@470 producer id 7 writes with epoch 0 after epoch 1"},
		{"outside of the transaction", func(f *folder) {
			bare(f)
			f.segments[1] = []spec{f.segments[1][0], {base: 25, term: 3, producer: 8, sequence: 10, times: times(3500, 1)}, f.segments[1][2]}
		}, "ERROR " + log1 + "@98 producer id 8 writes outside of its open transaction"},
		{"marker", func(f *folder) { bare(f); f.segments[1][1].key = []byte{0, 0} }, "ERROR " + log1 + "@98 key of the control record is cut off"},
	})
}

func TestOffsetIndex(t *testing.T) {
	p := positions(newFolder().segments[0])
	file := seg0 + indexSuffix
	set := func(pairs ...int64) func(*folder) {
		return func(f *folder) { f.files[file] = offsetIndex(0, pairs...) }
	}
	verifyEach(t, []violation{
		{"no start of a batch", set(9, p[1]+1), "ERROR " + file + "@0 position "},
		{"offset before the batch", set(4, p[1]), "ERROR " + file + "@0 offset 4 is before the batch"},
		{"offset behind the batch", set(14, p[1]), "WARNING " + file + "@0 offset 14 is not the last one"},
		{"behind the end", set(9, p[1], 19, 1<<20), "ERROR " + file + "@8 position 1048576 of offset 19: the last batch ends at"},
		{"falling", set(19, p[4], 19, p[4]), "ERROR " + file + "@8 offset 19 at "},
		{"half an entry", func(f *folder) { f.files[file] = append(f.files[file], 0) }, "ERROR " + file + "@16 17 bytes are no multiple of 8"},
		{"padding after a clean stop", func(f *folder) { f.files[file] = append(f.files[file], make([]byte, 80)...) }, "ERROR " + file + "@16 80 zero bytes follow"},
		{"padding in use", func(f *folder) {
			f.unclean(5)
			f.files[file] = append(f.files[file], make([]byte, 80)...)
		}, ""},
		{"missing", func(f *folder) { delete(f.files, file) }, "WARNING " + file + " is missing"},
		{"missing above the recovery point", func(f *folder) { f.unclean(5); delete(f.files, file) }, ""},
		{"wrong above the recovery point", func(f *folder) { f.unclean(5); f.files[file] = offsetIndex(0, 9, p[1]+1) }, "WARNING " + file + "@0 position"},
		{"wrong below the recovery point", func(f *folder) { f.unclean(21); f.files[file] = offsetIndex(0, 9, p[1]+1) }, "ERROR " + file + "@0 position"},
		{"orphan", func(f *folder) { f.files["orders-0/00000000000000000003.index"] = []byte{} }, "WARNING orders-0/00000000000000000003.index belongs to no segment"},
	})
}

func TestTimeIndex(t *testing.T) {
	file := seg0 + timeSuffix
	set := func(pairs ...int64) func(*folder) { return func(f *folder) { f.files[file] = timeIndex(0, pairs...) } }
	verifyEach(t, []violation{
		{"too small", set(now+1003, 9, now+2500, 15), "ERROR " + file + "@0 timestamp "},
		{"came up before", set(now+1004, 9, now+2500, 19), "ERROR " + file + "@12 timestamp "},
		{"falling", set(now+1004, 9, now+1004, 9, now+2500, 15), "ERROR " + file + "@12 timestamp "},
		{"last one missing", set(now+1004, 9), "ERROR " + file + " the largest timestamp "},
		{"behind the end", set(now+1004, 9, now+2500, 15, now+2600, 20), "ERROR " + file + "@24 timestamp "},
		{"half an entry", func(f *folder) { f.files[file] = append(f.files[file], 0) }, "ERROR " + file + "@24 25 bytes are no multiple of 12"},
		{"last one missing above the recovery point", func(f *folder) { f.unclean(5); f.files[file] = timeIndex(0, now+1004, 9) }, ""},
	})
}

func TestAbortIndex(t *testing.T) {
	file := seg0 + abortSuffix
	set := func(list ...abortEntry) func(*folder) { return func(f *folder) { f.files[file] = abortIndex(list...) } }
	verifyEach(t, []violation{
		{"first offset", set(abortEntry{8, 11, 15, 16}), "ERROR " + file + "@0 transaction of producer id 8 from 11 to 15, the batches say from 10"},
		{"last stable offset", set(abortEntry{8, 10, 15, 17}), "ERROR " + file + "@0 last stable offset 17 behind the marker at 15, the batches say 16"},
		{"no marker", set(abortEntry{8, 10, 15, 16}, abortEntry{8, 10, 16, 17}), "ERROR " + file + "@34 there is no abort marker of producer id 8 at offset 16"},
		{"other producer", func(f *folder) { f.unclean(5); f.files[file] = abortIndex(abortEntry{7, 10, 15, 16}) }, "WARNING " + file + "@0 there is no abort marker of producer id 7"},
		{"missing", func(f *folder) { delete(f.files, file) }, "ERROR " + file + " aborted transaction of producer id 8 from 10 to 15 is missing"},
		{"missing above the recovery point", func(f *folder) { f.unclean(5); delete(f.files, file) }, ""},
		{"commit in it", func(f *folder) { f.files[seg1+abortSuffix] = abortIndex(abortEntry{8, 20, 25, 26}) }, "ERROR " + seg1 + abortSuffix + "@0 there is no abort marker"},
		{"version", func(f *folder) { f.files[seg1+abortSuffix] = with(abortIndex(abortEntry{}), 0, 0, 9) }, "ERROR " + seg1 + abortSuffix + "@0 entry of version 9"},
	})
}

func TestSnapshots(t *testing.T) {
	file := seg1 + snapshotSuffix
	seven, eight := producerEntry{7, 0, 13, 19, 3, now + 1503, -1, -1}, producerEntry{8, 0, 4, 14, 4, now + 2500, 3, -1}
	set := func(list ...producerEntry) func(*folder) {
		return func(f *folder) { f.files[file] = snapshot(list...) }
	}
	change := func(do func(*producerEntry)) producerEntry { e := eight; do(&e); return e }
	verifyEach(t, []violation{
		{"epoch", set(seven, change(func(e *producerEntry) { e.epoch = 1 })), "ERROR " + file + "@56 producer id 8: epoch 1"},
		{"sequence", set(seven, change(func(e *producerEntry) { e.lastSequence = 3 })), "ERROR " + file + "@56 producer id 8: epoch 0, sequence 3"},
		{"offset", set(seven, change(func(e *producerEntry) { e.lastOffset = 13 })), "ERROR " + file + "@56 producer id 8: "},
		{"time", set(seven, change(func(e *producerEntry) { e.timestamp++ })), "ERROR " + file + "@56 producer id 8: "},
		{"coordinator", set(seven, change(func(e *producerEntry) { e.coordinatorTerm = 2 })), "ERROR " + file + "@56 producer id 8: coordinator epoch 2, the batches say 3"},
		{"transaction", set(seven, change(func(e *producerEntry) { e.txnFirst = 10 })), "ERROR " + file + "@56 producer id 8: open transaction from 10"},
		{"unknown producer", set(seven, eight, producerEntry{9, 0, 1, 1, 1, now, -1, -1}), "ERROR " + file + "@102 producer id 9 wrote nothing"},
		{"twice", set(seven, eight, eight), "ERROR " + file + "@102 producer id 8 is there twice"},
		{"missing", set(seven), "ERROR " + file + " producer id 8 is missing"},
		{"crc", func(f *folder) { f.files[file] = flip(f.files[file], 40) }, "ERROR " + file + "@2 CRC of the snapshot is wrong"},
		{"version", func(f *folder) { f.files[file] = with(f.files[file], 0, 0, 2) }, "ERROR " + file + "@0 snapshot version 2"},
		{"torn above the recovery point", func(f *folder) { f.unclean(20); f.files[file] = f.files[file][:30] }, "WARNING " + file + "@2 CRC"},
		{"torn below the recovery point", func(f *folder) { f.unclean(21); f.files[file] = f.files[file][:30] }, "ERROR " + file + "@2 CRC"},
		{"behind the end", func(f *folder) { f.files["orders-0/00000000000000000032.snapshot"] = snapshot() }, "ERROR orders-0/00000000000000000032.snapshot is behind the end of the log at 31"},
		{"inside a batch", func(f *folder) { f.files["orders-0/00000000000000000022.snapshot"] = snapshot() }, "ERROR orders-0/00000000000000000022.snapshot its offset lies inside the batch from 20 to 24"},
	})
	t.Run("expired", func(t *testing.T) {
		f := newFolder()
		set(seven)(f)
		if list, _ := findings(t, f.disk(t), VerifyOptions{ProducerExpiry: time.Second}); len(list) > 0 {
			t.Errorf("a producer that was silent for longer than the expiry: %v", list)
		}
	})
}

func TestTerms(t *testing.T) {
	file := "orders-0/" + termsName
	set := func(text string) func(*folder) { return func(f *folder) { f.files[file] = []byte(text) } }
	verifyEach(t, []violation{
		{"begins too early", set("0\n3\n1 0\n2 9\n3 20\n"), "ERROR " + file + "@4 term 2 begins at 9, in the batches at 10"},
		{"missing in the middle", set("0\n2\n1 0\n3 20\n"), "ERROR " + file + "@3 offset 10 is in term 1, the batch says 2"},
		{"newest missing", set("0\n2\n1 0\n2 10\n"), "ERROR " + file + "@4 offset 20 is in term 2, the batch says 3"},
		{"newest missing above the recovery point", func(f *folder) { f.unclean(20); f.files[file] = []byte("0\n2\n1 0\n2 10\n") }, ""},
		{"newest missing below the recovery point", func(f *folder) { f.unclean(21); f.files[file] = []byte("0\n2\n1 0\n2 10\n") }, "ERROR " + file + "@4 offset 20"},
		{"without batch", set("0\n4\n1 0\n2 10\n3 20\n4 26\n"), "ERROR " + file + "@6 term 4 begins at 26, but has no batch"},
		{"behind the end", set("0\n4\n1 0\n2 10\n3 20\n4 32\n"), "ERROR " + file + "@6 term 4 begins at 32, but the log ends at 31"},
		{"just begun", set("0\n4\n1 0\n2 10\n3 20\n4 31\n"), ""},
		{"falling", set("0\n3\n1 0\n3 10\n2 20\n"), "ERROR " + file + "@5 term 2 from 20 does not rise"},
		{"count", set("0\n2\n1 0\n2 10\n3 20\n"), "ERROR " + file + `@2 count is "2", but 3 lines follow`},
	})
}

func TestTop(t *testing.T) {
	set := func(name, text string) func(*folder) { return func(f *folder) { f.files[name] = []byte(text) } }
	meta := "orders-0/" + partitionMetaName
	verifyEach(t, []violation{
		{"recovery point behind the end", func(f *folder) { f.unclean(32) }, "ERROR " + recoveryPointName + "@3 orders-0 was durable up to 32, but the log ends at 31"},
		{"recovery point after a clean stop", set(recoveryPointName, "0\n1\norders 0 30\n"), "ERROR " + recoveryPointName + "@3 orders-0 has its recovery point at 30 after a clean stop"},
		{"no recovery point after a clean stop", set(recoveryPointName, "0\n0\n"), "WARNING " + recoveryPointName + " orders-0 is missing after a clean stop"},
		{"start behind the end", set(logStartName, "0\n1\norders 0 32\n"), "ERROR " + logStartName + "@3 orders-0 starts at 32"},
		{"high watermark behind the end", set(highName, "0\n1\norders 0 32\n"), "ERROR " + highName + "@3 orders-0 has its high watermark at 32"},
		{"no directory", set(logStartName, "0\n1\ngone 0 3\n"), "ERROR " + logStartName + "@3 gone-0 has no directory"},
		{"line", set(logStartName, "0\n1\norders zero 3\n"), "ERROR " + logStartName + `@3 line "orders zero 3" is no partition`},
		{"clean marker", set(cleanName, "x"), "WARNING " + cleanName + "@0 it is no JSON object"},
		{"clean marker of another run", set(cleanName, `{"version":0,"brokerEpoch":3}`), "WARNING " + cleanName + " is of incarnation 3, the last run was 4"},
		{"run", set(runName, `{"incarnation":4,"durability":"maybe"}`), "ERROR " + runName + `@0 durability is "maybe"`},
		{"meta", set(metaName, "cluster.id=c\nversion=1\n"), "ERROR " + metaName + ` node.id is ""`},
		{"meta missing", func(f *folder) { delete(f.files, metaName) }, "WARNING " + metaName + " is missing"},
		{"id missing", func(f *folder) { delete(f.files, meta); delete(f.files, stateName) }, "ERROR " + meta + " is missing"},
		{"zero id", func(f *folder) {
			delete(f.files, stateName)
			f.files[meta] = []byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
		}, "ERROR " + meta + `@2 topic_id "AAAAAAAAAAAAAAAAAAAAAA" is no id`},
		{"two directories of one id", func(f *folder) {
			f.files["twin-0/"+partitionMetaName] = f.files[meta]
			f.files["twin-0/00000000000000000000.log"] = []byte{}
		}, "ERROR twin-0/" + partitionMetaName + " orders-0 has topic id AQIDAAAAAAAAAAAAAAAAAA and partition 0 too"},
		{"another id in one topic", func(f *folder) {
			delete(f.files, stateName)
			f.files["orders-1/"+partitionMetaName] = []byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
			f.files["orders-1/00000000000000000000.log"] = []byte{}
		}, "ERROR orders-1/" + partitionMetaName + " topic id is AAAAAAAAAAAAAAAAAAAAAQ, another partition of orders has"},
		{"one id for two topics", func(f *folder) {
			delete(f.files, stateName)
			f.files["other-1/"+partitionMetaName] = f.files[meta]
			f.files["other-1/00000000000000000000.log"] = []byte{}
		}, "ERROR other-1/" + partitionMetaName + " topic id AQIDAAAAAAAAAAAAAAAAAA is that of topic orders"},
		{"no log file", func(f *folder) {
			delete(f.files, stateName)
			f.files["empty-0/"+partitionMetaName] = []byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
		}, "ERROR empty-0 has no log file"},
		{"aside", func(f *folder) { f.files["orders-3.0123abcd-stray/x"] = []byte{} }, "WARNING orders-3.0123abcd-stray is kept aside"},
		{"no partition's directory", func(f *folder) { f.files["misplaced/x"] = []byte{} }, "WARNING misplaced is no partition's directory"},
		{"unknown file", func(f *folder) { f.files["orders-0/notes"] = []byte{} }, "WARNING orders-0/notes belongs to no segment"},
		{"compaction cut short", func(f *folder) { f.files[seg0+".log.swap"] = []byte{} }, "ERROR " + seg0 + ".log.swap a compaction was cut short"},
		{"deleted files", func(f *folder) {
			f.files[seg0+".log.deleted"] = []byte{}
			f.files["gone-0.0123abcd-delete/x"] = []byte{}
		}, ""},
	})
}

func TestStateFile(t *testing.T) {
	id := newFolder().id
	row := func(term int32) []byte { return stateFrameOf(stateRow{topic: id, term: term}) }
	set := func(parts ...[]byte) func(*folder) {
		return func(f *folder) { f.files[stateName] = append(stateHead("c"), bytes.Join(parts, nil)...) }
	}
	lost := stateFrameOf(stateRow{topic: topicID{9}, term: 1})
	verifyEach(t, []violation{
		{"term of a batch above", set(row(2)), "ERROR " + stateName + "@27 orders-0 was led under term 2, but its log has batches of term 3"},
		{"term falls", set(row(4), row(3)), "ERROR " + stateName + "@82 the term of topic id"},
		{"directory lost", set(row(3), lost), "ERROR " + stateName + "@82 topic id CQAAAAAAAAAAAAAAAAAAAA partition 0 was led under term 1, but has no directory"},
		{"directory on its way out", func(f *folder) {
			set(row(3), lost)(f)
			f.files["gone-0.0123abcd-delete/"+partitionMetaName] = []byte("version: 0\ntopic_id: CQAAAAAAAAAAAAAAAAAAAA")
		}, ""},
		{"deleted", set(row(3), lost, stateFrameOf(stateRow{topic: topicID{9}, deleted: true})), ""},
		{"unknown directory", set(), "WARNING orders-0/" + partitionMetaName + " pgbroker-partition-state does not know topic id"},
		{"torn", set(row(3), lost[:20]), "WARNING " + stateName + "@82 the end is torn"},
		{"damaged", set(flip(row(2), 10), row(3)), "ERROR " + stateName + "@27 it is damaged here and goes on at byte 82"},
		{"header", func(f *folder) { f.files[stateName] = flip(f.files[stateName], 11) }, "ERROR " + stateName + "@0 the header is damaged"},
		{"other cluster", func(f *folder) { f.files[stateName] = append(stateHead("d"), row(3)...) }, "ERROR " + stateName + " is of cluster d"},
	})
}

func flip(data []byte, at int) []byte {
	out := bytes.Clone(data)
	out[at] ^= 1
	return out
}

func with(data []byte, at int, b ...byte) []byte {
	copy(data[at:], b)
	return data
}

func trim(data []byte, n int) []byte { return data[:len(data)-n] }
