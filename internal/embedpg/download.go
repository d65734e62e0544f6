package embedpg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloads maps a major version to the build that embedded-postgres fetches from Maven Central.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14,
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

// newestDownload is what a new cluster gets.
const newestDownload = 17

// sharedCache is where root keeps downloads: root's own cache is closed to the user that Postgres runs as.
const sharedCache = "/var/cache/pgbroker"

// download returns the bin directory of a fetched Postgres, from the user's cache when it was fetched before. Processes
// that want it at the same time wait for one download.
func download(ctx context.Context, want int, who identity) (string, error) {
	if want == 0 {
		want = newestDownload
	}
	version, ok := downloads[want]
	if !ok {
		return "", fmt.Errorf("no Postgres %d on this machine and none to download; set %s", want, bindirVariable)
	}
	cache := sharedCache
	if !who.drop {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no Postgres on this machine, and no place to keep a download: %w", err)
		}
		cache = filepath.Join(dir, "pgbroker")
	}
	return downloadTo(ctx, cache, want, version)
}

func downloadTo(ctx context.Context, cache string, major int, version embeddedpostgres.PostgresVersion) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the download cache: %w", err)
	}
	lock, err := lockFile(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", fmt.Errorf("lock the download cache %s: %w", cache, err)
	}
	defer unlockFile(lock)

	target := filepath.Join(cache, "postgres-"+string(version))
	bin := filepath.Join(target, "bin")
	if found, err := binaryMajor(ctx, bin); err == nil && found == major {
		return bin, nil
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	// The library can only fetch, unpack, initialise and start in one call. Its initdb refuses to run as root, so it is
	// stopped after unpacking by a data directory that cannot exist: below a file.
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		CachePath(filepath.Join(cache, "archives")).
		RuntimePath(filepath.Join(cache, "runtime")).
		BinariesPath(target).
		DataPath(filepath.Join(lock.Name(), "none")).
		Logger(discard{})
	startErr := embeddedpostgres.NewDatabase(config).Start()
	if found, err := binaryMajor(ctx, bin); err != nil || found != major {
		return "", fmt.Errorf("no Postgres on this machine; download %s: %w", version, startErr)
	}
	return bin, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
