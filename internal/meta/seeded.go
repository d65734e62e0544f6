package meta

import (
	"strings"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// seededGuard is the guard of a shard's commit, without a part of its condition where a seeded bug is on.
func seededGuard(stmt string) string {
	switch {
	case seededbug.On(seededbug.GuardWithoutSeq):
		stmt = strings.NewReplacer("s.seq = w.seq", "w.seq IS NOT NULL", "seq = $4", "$4::bigint IS NOT NULL").Replace(stmt)
	case seededbug.On(seededbug.GuardWithoutTerm):
		stmt = strings.NewReplacer("s.term = w.term", "w.term IS NOT NULL", "term = $3", "$3::integer IS NOT NULL").Replace(stmt)
	}
	return stmt
}
