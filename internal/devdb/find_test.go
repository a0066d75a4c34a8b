package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeInstall is a folder with programs that print a version.
func fakeInstall(t *testing.T, version string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPickTakesTheFirstUsableInstallation(t *testing.T) {
	old := fakeInstall(t, "14.9", needed...)
	partial := fakeInstall(t, "16.1", "postgres", "initdb")
	good := fakeInstall(t, "15.12 (Debian 15.12-1)", needed...)
	beta := fakeInstall(t, "19beta1", needed...)
	got, err := pick(t.Context(), []string{old, partial, good, beta})
	if err != nil || got != (Binaries{Dir: good, Major: 15}) {
		t.Errorf("picked %+v, %v", got, err)
	}
	if got, err = pick(t.Context(), []string{beta, good}); err != nil || got.Major != 19 {
		t.Errorf("picked %+v, %v", got, err)
	}
	_, err = pick(t.Context(), []string{old, partial})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{old, "version 14 is older than 15", partial, "pg_basebackup is missing", "install"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
}

func TestInstallOnlyWhereAllowed(t *testing.T) {
	if CanInstall() {
		// Trying would change the machine; what may be tried is in .ci/run.
		t.Skip("this is Debian as root, where installing is allowed")
	}
	if err := InstallDebian(t.Context(), os.Stderr); !errors.Is(err, ErrMayNotInstall) {
		t.Errorf("error %v", err)
	}
}

func TestStartRefusesAFolderOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	s := &Server{cfg: Config{Dir: dir, Binaries: Binaries{Dir: "/bin", Major: 16}}}
	if err := os.Mkdir(s.dataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dataDir(), "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.initCluster(context.Background()); err == nil || !strings.Contains(err.Error(), "PostgreSQL 15") {
		t.Errorf("error %v", err)
	}
}

func TestPidFile(t *testing.T) {
	for raw, want := range map[string][2]int{
		"12\n/data\n1700000000\n5433\n\n127.0.0.1\n": {12, 5433},
		"12\n":                     {12, 0},
		"":                         {0, 0},
		"x\n":                      {0, 0},
		strings.Repeat("1", 10000): {0, 0},
	} {
		if pid, port := parsePidFile([]byte(raw)); pid != want[0] || port != want[1] {
			t.Errorf("%.20q: %d, %d", raw, pid, port)
		}
	}
}

func TestTemporaryFoldersOfEndedProcessesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(parent, fmt.Sprintf("%s%d-x", temporaryPrefix, ended.Process.Pid))
	ours := filepath.Join(parent, fmt.Sprintf("%s%d-x", temporaryPrefix, os.Getpid()))
	other := filepath.Join(parent, temporaryPrefix+"notes")
	for _, dir := range []string{gone, ours, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOrphans(parent); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{gone: false, ours: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
