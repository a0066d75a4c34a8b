package devdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	// memoryDir is where temporary clusters live when it exists: fsync stays on,
	// because the service refuses to work without it, and costs nothing there.
	memoryDir = "/dev/shm"
	// temporaryPrefix is followed by the process id that owns the folder.
	temporaryPrefix = "hapax-test-"
	// temporaryConnections is enough for several test processes on one cluster.
	temporaryConnections = "500"
)

// StartTemporary starts a cluster that ends with this process, in memory where
// that is possible. Stop or Kill, then Remove, end it earlier; what a killed
// process left behind is removed by the next call.
func StartTemporary(ctx context.Context) (*Server, error) {
	dir, err := TemporaryDir()
	if err != nil {
		return nil, err
	}
	s, err := Start(ctx, Config{Dir: dir, Settings: map[string]string{"max_connections": temporaryConnections}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// TemporaryDir makes a folder that the server's account can enter, for clusters,
// backups and copies: in memory where that is possible. Its maker removes it.
func TemporaryDir() (string, error) {
	parent := os.TempDir()
	if info, err := os.Stat(memoryDir); err == nil && info.IsDir() {
		parent = memoryDir
	}
	if err := removeOrphans(parent); err != nil {
		return "", err
	}
	dir := filepath.Join(parent, fmt.Sprintf("%s%d-%s", temporaryPrefix, os.Getpid(), strings.ToLower(rand.Text()[:8])))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	// The server's account passes through it to what is inside.
	return dir, os.Chmod(dir, 0o711)
}

// removeOrphans deletes folders whose process is gone: their servers ended with it.
func removeOrphans(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), temporaryPrefix), "-")
		pid, err := strconv.Atoi(number)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrPermission) {
			return err // another user's folder is theirs to remove
		}
	}
	return nil
}
