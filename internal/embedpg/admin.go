package embedpg

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// protocolVersion is 3.0 of the frontend/backend protocol.
const protocolVersion = 3 << 16

// adminLimit bounds a statement whose context has no earlier deadline.
const adminLimit = 30 * time.Second

// EnsureDatabase creates the database unless it is there.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	err := s.execute(ctx, "CREATE DATABASE "+quote(name))
	var failed *sqlError
	if errors.As(err, &failed) && failed.state == "42P04" { // duplicate_database
		return nil
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// DropDatabase drops the database, ending the sessions that use it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.execute(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func quote(identifier string) string { return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"` }

// sqlError is an ErrorResponse.
type sqlError struct{ state, message string }

func (e *sqlError) Error() string { return e.message + " (SQLSTATE " + e.state + ")" }

// execute runs one statement as superuser over the Unix socket, where this user needs no password.
func (s *Server) execute(ctx context.Context, statement string) error {
	s.mu.Lock()
	path := filepath.Join(s.sockets, ".s.PGSQL."+strconv.Itoa(s.port))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()

	r := bufio.NewReader(conn)
	startup := binary.BigEndian.AppendUint32(nil, protocolVersion)
	startup = append(startup, "user\x00"+superuser+"\x00database\x00postgres\x00\x00"...)
	if err := send(conn, 0, startup); err != nil {
		return err
	}
	if err := awaitIdle(r); err != nil {
		return err
	}
	if err := send(conn, 'Q', append([]byte(statement), 0)); err != nil {
		return err
	}
	if err := awaitIdle(r); err != nil {
		return err
	}
	return send(conn, 'X', nil)
}

// send writes one message; the startup message alone has no type byte.
func send(w io.Writer, kind byte, body []byte) error {
	var msg []byte
	if kind != 0 {
		msg = append(msg, kind)
	}
	msg = binary.BigEndian.AppendUint32(msg, uint32(len(body)+4))
	_, err := w.Write(append(msg, body...))
	return err
}

// awaitIdle reads messages up to ReadyForQuery and returns the first error among them.
func awaitIdle(r *bufio.Reader) error {
	var failed error
	for {
		kind, err := r.ReadByte()
		if err == io.EOF && failed != nil {
			return failed // a refused session ends without ReadyForQuery
		}
		if err != nil {
			return err
		}
		var size uint32
		if err := binary.Read(r, binary.BigEndian, &size); err != nil {
			return err
		}
		if size < 4 || size > 1<<20 {
			return fmt.Errorf("message of %d bytes", size)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		switch kind {
		case 'Z':
			return failed
		case 'E':
			if failed == nil {
				failed = parseError(body)
			}
		case 'R':
			if len(body) < 4 || binary.BigEndian.Uint32(body) != 0 {
				return errors.New("the server asks for a password on its socket")
			}
		}
	}
}

// parseError reads the fields of an ErrorResponse: a type byte and a text that ends with a zero byte, each.
func parseError(body []byte) *sqlError {
	e := &sqlError{}
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) == 0 {
			continue
		}
		switch field[0] {
		case 'C':
			e.state = string(field[1:])
		case 'M':
			e.message = string(field[1:])
		}
	}
	return e
}
