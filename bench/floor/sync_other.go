//go:build !linux

package floor

func (l *log) sync() error { return l.file.Sync() }
