package sandbox

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

func nothing() {}

func TestJournalKeepsEveryLineOfManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := openJournal(path, func([]byte) error { return errors.New("a line in an empty file") })
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 16, 20
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			for i := range each {
				if err := j.append(strconv.Itoa(w)+"/"+strconv.Itoa(i), nothing); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(group.Wait(), j.close()); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	j, err = openJournal(path, func(line []byte) error {
		writer, i, _ := strings.Cut(strings.Trim(string(line), "\"\n"), "/")
		if i != strconv.Itoa(next[writer]) {
			return errors.New("out of order: " + string(line))
		}
		next[writer]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for writer, n := range next {
		if n != each {
			t.Errorf("writer %s has %d lines", writer, n)
		}
	}
	if len(next) != writers {
		t.Errorf("%d writers", len(next))
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if err := j.append("late", nothing); !errors.Is(err, errClosed) {
		t.Errorf("append after close: %v", err)
	}
}

func TestJournalWritesNothingAfterAFailure(t *testing.T) {
	j, err := openJournal(filepath.Join(t.TempDir(), "j"), func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil { // the disk goes away
		t.Fatal(err)
	}
	first := j.append("one", func() { t.Error("a line that failed took effect") })
	if second := j.append("two", nothing); first == nil || !errors.Is(second, first) {
		t.Errorf("after a failure: %v, then %v", first, second)
	}
	if err := j.append(strings.Repeat("x", maxLine), nothing); err == nil {
		t.Error("a line beyond the limit was taken")
	}
}
