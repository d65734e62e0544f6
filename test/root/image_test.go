//go:build linux

package root

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// brokerUser is the image's user, who owns the log's directory.
const brokerUser = 65532

// TestImage looks into the image that our Dockerfile makes from scratch.
func TestImage(t *testing.T) {
	c := built(t)
	image, err := c.ImageInspect(t.Context(), brokerImage)
	if err != nil {
		t.Fatal(err)
	}
	config := image.Config
	if config.User != "65532:65532" {
		t.Errorf("user %q, want 65532:65532", config.User)
	}
	if want := []string{"CMD", "/usr/bin/pgbroker", "status", "--wait", "ready", "--for", "1s"}; config.Healthcheck == nil ||
		!slices.Equal(config.Healthcheck.Test, want) {
		t.Errorf("health check %+v, want %q", config.Healthcheck, want)
	}
	for _, port := range []string{"9092/tcp", "9404/tcp"} {
		if _, ok := config.ExposedPorts[port]; !ok {
			t.Errorf("port %s is not exposed", port)
		}
	}
	if _, ok := config.Volumes["/var/lib/pgbroker"]; !ok {
		t.Error("/var/lib/pgbroker is not a volume")
	}
	t.Logf("%d bytes", image.Size)
}

// TestImageFiles: the image has the broker, a user, authorities for TLS, a place for the log and nothing else; no shell.
func TestImageFiles(t *testing.T) {
	c := built(t)
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: brokerImage}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { remove(t, c, made.ID) }()
	export, err := c.ContainerExport(t.Context(), made.ID, client.ContainerExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = export.Close() }()

	byDocker := []string{".dockerenv", "dev/", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf", "proc/", "sys/"}
	want := map[string]*tar.Header{ // mode and owner; nil: it must be there
		"etc/passwd":                        {Mode: 0o644},
		"etc/ssl/certs/ca-certificates.crt": {Mode: 0o644},
		"usr/bin/pgbroker":                  {Mode: 0o755},
		"tmp/":                              {Mode: 0o1777},
		"var/lib/pgbroker/":                 {Mode: 0o755, Uid: brokerUser, Gid: brokerUser},
	}
	for files := tar.NewReader(export); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		expected := want[h.Name]
		switch {
		case expected != nil:
			if h.Mode&0o7777 != expected.Mode || h.Uid != expected.Uid || h.Gid != expected.Gid {
				t.Errorf("%s: mode %o owner %d:%d, want %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid, expected.Mode, expected.Uid, expected.Gid)
			}
			delete(want, h.Name)
		case h.Typeflag == tar.TypeDir:
		case slices.ContainsFunc(byDocker, func(prefix string) bool { return strings.HasPrefix(h.Name, prefix) }):
		default:
			t.Errorf("the image has %s", h.Name)
		}
	}
	for name := range want {
		t.Errorf("the image lacks %s", name)
	}
}

// TestNoShell: nothing in the image can run a script.
func TestNoShell(t *testing.T) {
	c := built(t)
	for _, shell := range []string{"sh", "/bin/sh", "/bin/bash", "/busybox/sh"} {
		made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Config: &container.Config{Image: brokerImage, Entrypoint: []string{shell}, Cmd: []string{"-c", "exit 0"}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{})
		if err == nil {
			t.Errorf("%s started", shell)
		} else if !strings.Contains(err.Error(), "no such file") && !strings.Contains(err.Error(), "not found") {
			t.Errorf("start %s: %v", shell, err)
		}
		remove(t, c, made.ID)
	}
}

func remove(t *testing.T, c *client.Client, id string) {
	t.Helper()
	if _, err := c.ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		t.Errorf("remove container: %v", err)
	}
}
