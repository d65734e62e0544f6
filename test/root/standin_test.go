//go:build linux

package root

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/client"
)

const (
	proxyDir    = "/proxy" // Go's module proxy in the stand-in for golang
	cacheDir    = "/cache" // its cache of compiled packages
	postgresUID = 999      // the user of the stand-in for postgres
)

// caBundle stands in for the authorities that the official golang image has.
const caBundle = "# authorities of the stand-in\n"

// importGo makes the image that stands in for the official golang: this machine's Go, the few programs that our
// Dockerfile calls, and what our go.mod needs of this machine's module cache as the module proxy.
func importGo(c *client.Client) error {
	goroot, err := goEnv("GOROOT")
	if err != nil {
		return err
	}
	modules, err := moduleFiles()
	if err != nil {
		return err
	}
	compiled, err := compiledFiles()
	if err != nil {
		return err
	}
	fill := func(out *tree) {
		out.dir("/tmp", 0o1777, 0)
		out.text("/etc/ssl/certs/ca-certificates.crt", 0o644, caBundle)
		out.text("/etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\n")
		for _, name := range []string{"sh", "mkdir", "chmod", "cp"} {
			out.program(filepath.Join("/bin", name))
		}
		for _, part := range []string{"VERSION", "go.env", "bin", "pkg", "src"} {
			out.folderTo(filepath.Join(goroot, part), filepath.Join("/usr/local/go", part),
				func(name string) bool { return name == "testdata" || strings.HasSuffix(name, "_test.go") })
		}
		for _, files := range []map[string]string{modules, compiled} {
			for source, at := range files {
				out.fileTo(source, at)
			}
		}
	}
	return importImage(c, goImage, fill,
		"ENV PATH=/usr/local/go/bin:/bin GOPATH=/go GOTOOLCHAIN=local GOPROXY=file://"+proxyDir+" GOSUMDB=off GOCACHE="+cacheDir)
}

// moduleFiles maps the files of this machine's module cache that a build of this project may ask a proxy for to their
// places in the image: the modules that go.mod names, and every go.mod that the cache has, since the modules' graph needs
// some of modules that are never built.
func moduleFiles() (map[string]string, error) {
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "cache", "download")
	out, err := exec.Command("go", "mod", "download", "-json").Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	named := map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var module struct{ Zip string }
		if err := dec.Decode(&module); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		named[module.Zip] = true
	}
	files := map[string]string{}
	err = filepath.WalkDir(cache, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if kind := filepath.Ext(path); kind == ".mod" || kind == ".info" || named[path] {
			files[path] = filepath.Join(proxyDir, strings.TrimPrefix(path, cache))
		}
		return nil
	})
	return files, err
}

// compiledFiles maps what this machine's build cache has of the broker's packages, compiled as our Dockerfile compiles
// them, to their places in the image. It only saves time: what is missing or differs is compiled in the image.
func compiledFiles() (map[string]string, error) {
	cache, err := goEnv("GOCACHE")
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-deps", "-export", "-trimpath", "-f", "{{.Export}}", "../../cmd/pgbroker")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w", err)
	}
	files := map[string]string{}
	compiled := map[string]bool{}
	for path := range strings.FieldsSeq(string(out)) {
		files[path] = filepath.Join(cacheDir, strings.TrimPrefix(path, cache))
		compiled[strings.TrimSuffix(filepath.Base(path), "-d")] = true
	}
	// An action's file, "v1 ACTION OUTPUT SIZE TIME", says which output the compiler's inputs led to.
	actions, err := filepath.Glob(filepath.Join(cache, "??", "*-a"))
	if err != nil {
		return nil, err
	}
	for _, path := range actions {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // trimmed from the cache meanwhile
		}
		if fields := strings.Fields(string(text)); len(fields) > 2 && compiled[fields[2]] {
			files[path] = filepath.Join(cacheDir, strings.TrimPrefix(path, cache))
		}
	}
	return files, nil
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// postgresHome is the directory of the newest Postgres server of this machine, as Debian lays it out.
func postgresHome() (string, error) {
	servers, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(servers) == 0 {
		return "", errors.Join(errors.New("no Postgres server in /usr/lib/postgresql"), err)
	}
	slices.Sort(servers)
	return filepath.Dir(filepath.Dir(servers[len(servers)-1])), nil
}

// importPostgres makes the image that stands in for the official postgres: this machine's server and an entrypoint that
// understands the variables docker-compose.yml sets. JIT is left out, for its size.
func importPostgres(c *client.Client) error {
	home, err := postgresHome()
	if err != nil {
		return err
	}
	noJIT := func(name string) bool {
		return strings.HasPrefix(name, "llvmjit") || name == "bitcode" || name == "pgxs"
	}
	fill := func(out *tree) {
		out.dir("/tmp", 0o1777, 0)
		out.dir("/var/lib/postgresql/data", 0o700, postgresUID)
		out.dir("/var/run/postgresql", 0o755, postgresUID)
		out.dir("/usr/share/zoneinfo", 0o755, 0)
		out.text("/etc/passwd", 0o644, fmt.Sprintf("postgres:x:%d:%d::/var/lib/postgresql:/bin/sh\n", postgresUID, postgresUID))
		out.text("/entrypoint", 0o755, postgresEntrypoint)
		out.program("/bin/sh")
		for _, name := range []string{"postgres", "initdb", "pg_isready"} {
			out.program(filepath.Join(home, "bin", name))
		}
		out.libraries(filepath.Join(home, "lib", "dict_snowball.so"))
		out.libraries(filepath.Join(home, "lib", "plpgsql.so"))
		out.folder(filepath.Join(home, "lib"), noJIT)
		out.folder(filepath.Join("/usr/share/postgresql", filepath.Base(home)), func(name string) bool { return name == "man" })
	}
	return importImage(c, postgresImage, fill,
		"ENV PATH="+filepath.Join(home, "bin")+":/bin PGDATA=/var/lib/postgresql/data",
		fmt.Sprintf("USER %d", postgresUID), "VOLUME /var/lib/postgresql/data", "EXPOSE 5432", `ENTRYPOINT ["/entrypoint"]`)
}

const postgresEntrypoint = `#!/bin/sh
set -e
if [ ! -e "$PGDATA/PG_VERSION" ]; then
	echo "$POSTGRES_PASSWORD" >/tmp/password
	initdb --no-sync --encoding=UTF8 --locale=C -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
	echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single postgres
fi
exec postgres -c 'listen_addresses=*'
`
