package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgbroker/pgbroker/migrations"
)

// migrationLockKey is the advisory lock of migrations; its value ("pgbroker" in ASCII) has no other meaning.
const migrationLockKey = 0x706762726f6b6572

const (
	sqlMigrationLock = `/* migration_lock */ SELECT pg_advisory_xact_lock($1)`
	// The version table has golang-migrate's name and columns, so that its own command understands it.
	sqlMigrationTable = `/* migration_table */ CREATE TABLE IF NOT EXISTS pgbroker_internal.schema_migrations (
		version bigint NOT NULL CONSTRAINT schema_migrations_pkey PRIMARY KEY, dirty boolean NOT NULL)`
	sqlMigrationSchema  = `/* migration_schema */ CREATE SCHEMA IF NOT EXISTS pgbroker_internal`
	sqlMigrationExists  = `/* migration_exists */ SELECT to_regclass('pgbroker_internal.schema_migrations') IS NOT NULL`
	sqlMigrationVersion = `/* migration_version */ SELECT version, dirty FROM pgbroker_internal.schema_migrations`
	sqlMigrationClear   = `/* migration_clear */ DELETE FROM pgbroker_internal.schema_migrations`
	sqlMigrationSet     = `/* migration_set */ INSERT INTO pgbroker_internal.schema_migrations (version, dirty) VALUES ($1, $2)`
	sqlMigrationTimeout = `/* migration_timeout */ SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
		set_config('idle_in_transaction_session_timeout', '0', true)`
)

// MigrationState compares the database with this program.
type MigrationState struct {
	Current int // version of the database, 0 before the first migration
	Latest  int // newest version this program has
	Dirty   bool
}

// Migrate brings the database to this program's newest version. It waits for another process that migrates, at
// most Options.MigrateWait. All steps are one transaction: they happen all or not at all.
func (p *Postgres) Migrate(ctx context.Context) error {
	s, err := p.MigrationStatus(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if s.Current > s.Latest {
		return fmt.Errorf("migrate: the database has schema version %d, this program knows %d: use a newer program", s.Current, s.Latest)
	}
	return p.migrate(ctx, func(m *migrate.Migrate) error { return m.Up() })
}

// MigrateTo goes up or down to a version; 0 removes everything, with all metadata.
func (p *Postgres) MigrateTo(ctx context.Context, version uint) error {
	return p.migrate(ctx, func(m *migrate.Migrate) error {
		if version == 0 {
			return m.Down()
		}
		return m.Migrate(version)
	})
}

// MigrationStatus reads the database's version.
func (p *Postgres) MigrationStatus(ctx context.Context) (MigrationState, error) {
	var s MigrationState
	var err error
	if s.Latest, err = latestMigration(); err != nil {
		return s, err
	}
	err = p.withConn(ctx, p.durable, func(ctx context.Context, conn *pgxpool.Conn) error {
		version, dirty, err := readMigrationVersion(ctx, conn.Conn())
		if err != nil {
			return p.classify(conn, err)
		}
		s.Current, s.Dirty = max(version, 0), dirty
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("read the schema's version: %w", err)
	}
	return s, nil
}

// MigrationsCurrent says whether the database has at least this program's version.
func (p *Postgres) MigrationsCurrent(ctx context.Context) (bool, error) {
	s, err := p.MigrationStatus(ctx)
	return err == nil && !s.Dirty && s.Current >= s.Latest, err
}

func latestMigration() (int, error) {
	src, err := iofs.New(migrations.FS, ".")
	if err != nil {
		return 0, fmt.Errorf("read embedded migrations: %w", err)
	}
	defer src.Close()
	return lastVersion(src)
}

func lastVersion(src source.Driver) (int, error) {
	v, err := src.First()
	for err == nil {
		var next uint
		if next, err = src.Next(v); err == nil {
			v = next
			continue
		}
		return int(v), nil // Next fails after the last one
	}
	return 0, fmt.Errorf("read embedded migrations: %w", err)
}

func (p *Postgres) migrate(ctx context.Context, run func(*migrate.Migrate) error) error {
	src, err := iofs.New(migrations.FS, ".")
	if err != nil {
		return fmt.Errorf("read embedded migrations: %w", err)
	}
	conn, err := p.durable.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", unavailable(err))
	}
	defer conn.Release()
	driver := &migrationDriver{ctx: ctx, conn: conn.Conn(), wait: p.opts.MigrateWait}
	m, err := migrate.NewWithInstance("iofs", src, "pgx", driver)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	m.LockTimeout = p.opts.MigrateWait + 5*time.Second // the database's own limit comes first
	err = run(m)
	if errors.Is(err, migrate.ErrNoChange) {
		err = nil
	}
	if err = cmp.Or(err, driver.end()); err != nil {
		return fmt.Errorf("migrate: %w", p.explain(p.classify(conn, err)))
	}
	return nil
}

// explain adds to a refusal what the role needs.
func (p *Postgres) explain(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: the role needs: GRANT CREATE ON DATABASE %s TO %s", err,
			pgx.Identifier{p.config.Database}.Sanitize(), pgx.Identifier{p.config.User}.Sanitize())
	case "55P03": // lock_not_available
		return fmt.Errorf("%w: another process migrates for more than %s", err, p.opts.MigrateWait)
	}
	return err
}

// migrationDriver lets golang-migrate work inside one transaction, under an advisory lock that ends with it: this works
// through a transaction-mode pooler, never leaves a dirty version, and creates nothing in the schema public.
type migrationDriver struct {
	ctx    context.Context // of the one call of migrate that made the driver
	conn   *pgx.Conn
	wait   time.Duration // for the lock
	tx     pgx.Tx
	failed bool
}

var _ database.Driver = (*migrationDriver)(nil)

// Open is not used: the driver is made for a connection.
func (d *migrationDriver) Open(string) (database.Driver, error) {
	return nil, errors.New("open: not supported")
}

// Close does nothing: the connection belongs to the pool.
func (d *migrationDriver) Close() error { return nil }

// Lock begins the transaction and waits for the lock.
func (d *migrationDriver) Lock() error {
	tx, err := d.conn.Begin(d.ctx)
	if err != nil {
		return err
	}
	d.tx, d.failed = tx, false
	if _, err := tx.Exec(d.ctx, sqlMigrationTimeout, millis(d.wait)); err != nil {
		return d.fail(err)
	}
	if _, err := tx.Exec(d.ctx, sqlMigrationLock, int64(migrationLockKey)); err != nil {
		return d.fail(fmt.Errorf("wait for another process that migrates: %w", err))
	}
	var exists bool
	if err := tx.QueryRow(d.ctx, sqlMigrationExists).Scan(&exists); err != nil || exists {
		return d.fail(err)
	}
	if _, err := tx.Exec(d.ctx, sqlMigrationSchema); err != nil {
		return d.fail(err)
	}
	_, err = tx.Exec(d.ctx, sqlMigrationTable)
	return d.fail(err)
}

// fail remembers that the transaction must not be committed.
func (d *migrationDriver) fail(err error) error {
	if err != nil {
		d.failed = true
	}
	return err
}

// Unlock ends the transaction.
func (d *migrationDriver) Unlock() error { return d.end() }

func (d *migrationDriver) end() error {
	if d.tx == nil {
		return nil
	}
	tx := d.tx
	d.tx = nil
	if d.failed {
		_ = tx.Rollback(d.ctx)
		return nil
	}
	return tx.Commit(d.ctx)
}

// Run applies one file.
func (d *migrationDriver) Run(r io.Reader) error {
	sql, err := io.ReadAll(r)
	if err != nil {
		return d.fail(err)
	}
	_, err = d.tx.Conn().PgConn().Exec(d.ctx, string(sql)).ReadAll() // simple protocol: many statements
	return d.fail(err)
}

// SetVersion stores the version; golang-migrate calls it before and after each file.
func (d *migrationDriver) SetVersion(version int, dirty bool) error {
	if _, err := d.tx.Exec(d.ctx, sqlMigrationClear); err != nil {
		return d.fail(err)
	}
	if version < 0 {
		return nil
	}
	_, err := d.tx.Exec(d.ctx, sqlMigrationSet, version, dirty)
	return d.fail(err)
}

// Version reads the stored version.
func (d *migrationDriver) Version() (int, bool, error) {
	version, dirty, err := readMigrationVersion(d.ctx, d.conn)
	return version, dirty, d.fail(err)
}

// Drop is not supported: use MigrateTo(0).
func (d *migrationDriver) Drop() error { return errors.New("drop: not supported") }

func readMigrationVersion(ctx context.Context, c *pgx.Conn) (version int, dirty bool, err error) {
	var exists bool
	if err := c.QueryRow(ctx, sqlMigrationExists).Scan(&exists); err != nil {
		return 0, false, err
	}
	if !exists {
		return database.NilVersion, false, nil
	}
	err = c.QueryRow(ctx, sqlMigrationVersion).Scan(&version, &dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}
