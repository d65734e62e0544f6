package meta

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// MaxKeyBytes is the longest group id or member id that fits into the index of their tables. Whoever takes an id
// from a client checks it: one row that cannot be stored fails the whole commit.
const MaxKeyBytes = 900

// escaped begins a text that Postgres could not hold as it is; the rest is base64. U+FFFF never occurs in real text,
// and one that begins with it is escaped as well.
const escaped = "\uffff64:"

// toText makes a client's string storable: Postgres has no NUL and no invalid UTF-8 in text.
func toText(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) && !strings.HasPrefix(s, escaped) {
		return s
	}
	return escaped + base64.RawStdEncoding.EncodeToString([]byte(s))
}

// fromText undoes toText. Text that somebody else wrote with the prefix is returned as it is.
func fromText(s string) string {
	rest, ok := strings.CutPrefix(s, escaped)
	if !ok {
		return s
	}
	raw, err := base64.RawStdEncoding.DecodeString(rest)
	if err != nil {
		return s
	}
	return string(raw)
}

// column makes one array parameter out of a field of many rows.
func column[R, C any](rows []R, field func(*R) C) []C {
	out := make([]C, len(rows))
	for i := range rows {
		out[i] = field(&rows[i])
	}
	return out
}

func pgUUID(id UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func pgUUIDs(ids []UUID) []pgtype.UUID {
	return column(ids, func(id *UUID) pgtype.UUID { return pgUUID(*id) })
}
