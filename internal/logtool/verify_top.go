package logtool

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
)

// readTop reads the files at the top of the log directory. What is wrong with them is told, unless only one partition is
// asked for.
func (v *verifier) readTop() {
	if data := v.topFile(cleanName); data != nil {
		mark, err := parseClean(data)
		v.topErr(Warning, cleanName, err)
		v.clean = err == nil && !v.live
		v.checkRun(mark)
	} else {
		v.checkRun(cleanMark{BrokerEpoch: -1})
	}
	if !v.clean && !v.live && v.whole() {
		v.report(Warning, cleanName, -1, "is missing: the last stop was not clean, so what lies above the recovery points is judged mildly")
	}
	v.points, v.starts = v.readOffsets(recoveryPointName), v.readOffsets(logStartName)
	v.highs, v.cleaned = v.readOffsets(highName), v.readOffsets(cleanerName)
	if data := v.topFile(metaName); data != nil {
		var err error
		if v.meta, err = parseProperties(data); err == nil {
			err = checkMeta(v.meta)
		}
		v.topErr(Error, metaName, err)
	} else {
		v.topErr(Warning, metaName, errors.New("is missing"))
	}
	v.readState()
}

func (v *verifier) readOffsets(name string) map[partition]offsetLine {
	list, err := parseOffsets(v.topFile(name))
	v.topErr(Error, name, err)
	byName := make(map[partition]offsetLine, len(list))
	for _, l := range list {
		byName[l.partition] = l
	}
	return byName
}

func (v *verifier) checkRun(mark cleanMark) {
	data := v.topFile(runName)
	if data == nil {
		return
	}
	run, err := parseRun(data)
	v.topErr(Error, runName, err)
	if err == nil && v.clean && mark.BrokerEpoch >= 0 && mark.BrokerEpoch != run.Incarnation {
		v.topErr(Warning, cleanName, errors.New("is of incarnation "+strconv.FormatInt(mark.BrokerEpoch, 10)+
			", the last run was "+strconv.FormatInt(run.Incarnation, 10)))
	}
}

func (v *verifier) readState() {
	data := v.topFile(stateName)
	if data == nil {
		return
	}
	s, err := parseState(data)
	if err != nil {
		v.topErr(Error, stateName, err)
		return
	}
	if s.end < int64(len(data)) {
		v.topErr(Warning, stateName, &fault{s.end, "the end is torn; what stands there was never answered for"})
	}
	if id := v.meta["cluster.id"]; id != "" && id != s.clusterID {
		v.topErr(Error, stateName, errors.New("is of cluster "+s.clusterID+", "+metaName+" of "+id))
	}
	v.state, v.rows = &s, map[idPartition]stateRow{}
	for _, r := range s.rows {
		key := idPartition{r.topic, r.partition}
		if before, ok := v.rows[key]; ok && !before.deleted && !r.deleted && r.term < before.term {
			v.topErr(Error, stateName, &fault{r.position, "the term of topic id " + r.topic.String() + " partition " +
				strconv.Itoa(int(r.partition)) + " falls from " + strconv.Itoa(int(before.term)) + " to " + strconv.Itoa(int(r.term))})
		}
		v.rows[key] = r
	}
	for key, r := range v.rows {
		if r.deleted {
			delete(v.rows, key)
		}
	}
}

// topFile reads a file at the top, nil if it is not there.
func (v *verifier) topFile(name string) []byte {
	data, err := readWhole(v.fs, filepath.Join(v.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.topErr(Error, name, err)
	}
	if err != nil {
		return nil
	}
	if data == nil {
		data = []byte{}
	}
	return data
}

func (v *verifier) topErr(severity Severity, file string, err error) {
	if err != nil && v.whole() {
		v.reportErr(severity, file, err)
	}
}

// checkOffsets compares the checkpoints with one log.
func (v *verifier) checkOffsets(c *logCheck) {
	if !c.known {
		return
	}
	point, ok := v.points[c.name]
	switch {
	case !ok && v.clean && c.end > 0:
		v.report(Warning, recoveryPointName, -1, "%s is missing after a clean stop", c.name)
	case ok && point.offset > c.end:
		v.report(Error, recoveryPointName, point.line, "%s was durable up to %d, but the log ends at %d", c.name, point.offset, c.end)
		c.damaged(damageShort, len(c.files.segments), 0, point.offset)
	case ok && v.clean && point.offset != c.end:
		v.report(Error, recoveryPointName, point.line, "%s has its recovery point at %d after a clean stop, but the log ends at %d", c.name, point.offset, c.end)
	}
	if start, ok := v.starts[c.name]; ok && start.offset > c.end {
		v.report(v.mild(false), logStartName, start.line, "%s starts at %d, but the log ends at %d", c.name, start.offset, c.end)
	}
	if high, ok := v.highs[c.name]; ok && high.offset > c.end {
		v.report(v.mild(false), highName, high.line, "%s has its high watermark at %d, but the log ends at %d", c.name, high.offset, c.end)
	}
	if clean, ok := v.cleaned[c.name]; ok && clean.offset > c.end {
		v.report(v.mild(false), cleanerName, clean.line, "%s was compacted up to %d, but the log ends at %d", c.name, clean.offset, c.end)
	}
	if c.hasRow && c.lastTerm > c.row.term {
		v.report(Error, stateName, c.row.position, "%s was led under term %d, but its log has batches of term %d", c.name, c.row.term, c.lastTerm)
	}
}

// checkTop compares the files at the top with the directories that were found; deleted are those on their way out.
func (v *verifier) checkTop(deleted []string) {
	for _, file := range [...]struct {
		name  string
		lines map[partition]offsetLine
	}{{recoveryPointName, v.points}, {logStartName, v.starts}, {highName, v.highs}, {cleanerName, v.cleaned}} {
		lines := make([]offsetLine, 0, len(file.lines))
		for _, l := range file.lines {
			lines = append(lines, l)
		}
		slices.SortFunc(lines, func(a, b offsetLine) int { return cmp.Compare(a.line, b.line) })
		for _, l := range lines {
			if v.logs[l.partition] == nil && l.partition.topic != "__cluster_metadata" {
				v.report(v.mild(false), file.name, l.line, "%s has no directory", l.partition)
			}
		}
	}
	leaving := map[idPartition]bool{}
	for _, name := range deleted {
		data, err := readWhole(v.fs, filepath.Join(v.dir, name, partitionMetaName))
		if err != nil {
			continue
		}
		if id, err := parsePartitionMeta(data); err == nil {
			p, _ := parsePartition(name[:lastDot(name)])
			leaving[idPartition{id, p.index}] = true
		}
	}
	rows := make([]stateRow, 0, len(v.rows))
	for key, r := range v.rows {
		if v.dirs[key] == "" && !leaving[key] {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b stateRow) int {
		return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.topic.String(), b.topic.String()), cmp.Compare(a.partition, b.partition))
	})
	for _, r := range rows {
		severity := Error
		if v.live {
			severity = Warning // it may be gone by now
		}
		v.report(severity, stateName, r.position, "topic id %s partition %d was led under term %d, but has no directory", r.topic, r.partition, r.term)
	}
}

func lastDot(name string) int {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return i
		}
	}
	return len(name)
}
