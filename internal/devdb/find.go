package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that Hapax works on.
const MinMajor = 15

// ErrNoPostgres says that no usable PostgreSQL binaries were found. The text of
// the error that wraps it tells what to install and where was looked.
var ErrNoPostgres = errors.New("no PostgreSQL binaries of version 15 or later")

// needed are the programs that this package runs.
var needed = []string{"initdb", "postgres", "pg_basebackup"}

// Binaries is one installed PostgreSQL.
type Binaries struct {
	// Dir holds initdb, postgres and pg_basebackup.
	Dir string
	// Major is the major version, 15 or later.
	Major int
}

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// Find looks for PostgreSQL binaries: beside the postgres on PATH, in
// /usr/lib/postgresql/*/bin (newest first), and in the folder that
// `pg_config --bindir` names. The first complete set of version 15 or later
// wins. The error wraps ErrNoPostgres and says what to install.
func Find(ctx context.Context) (Binaries, error) { return pick(ctx, candidates(ctx)) }

func pick(ctx context.Context, dirs []string) (Binaries, error) {
	var looked []string
	for _, dir := range dirs {
		major, err := inspect(ctx, dir)
		if err == nil {
			return Binaries{Dir: dir, Major: major}, nil
		}
		looked = append(looked, fmt.Sprintf("  %s: %v", dir, err))
	}
	where := "looked on PATH, in /usr/lib/postgresql/*/bin and where pg_config points"
	if len(looked) > 0 {
		where += ":\n" + strings.Join(looked, "\n")
	}
	return Binaries{}, fmt.Errorf("%w (%s)\n%s", ErrNoPostgres, where, InstallHint())
}

func candidates(ctx context.Context) []string {
	var dirs []string
	seen := map[string]bool{}
	add := func(dir string) {
		// The server finds its library and share folders from where it really
		// stands, so links on PATH are followed first.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dir = filepath.Dir(real)
		}
		if dir != "" && !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		add(filepath.Dir(p))
	}
	// A bad pattern is the only error of Glob, and this one is constant.
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err == nil {
		sort.Slice(debian, func(i, j int) bool { return debianMajor(debian[i]) > debianMajor(debian[j]) })
		for _, dir := range debian {
			add(dir)
		}
	}
	if p, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.CommandContext(ctx, p, "--bindir").Output(); err == nil {
			add(strings.TrimSpace(string(out)))
		}
	}
	return dirs
}

func debianMajor(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func inspect(ctx context.Context, dir string) (int, error) {
	for _, name := range needed {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, fmt.Errorf("%s is missing", name)
		}
		if info.Mode()&0o111 == 0 {
			return 0, fmt.Errorf("%s is not executable", name)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("postgres --version: %w", err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("postgres --version says %q", strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return 0, err
	}
	if major < MinMajor {
		return 0, fmt.Errorf("version %d is older than %d", major, MinMajor)
	}
	return major, nil
}
