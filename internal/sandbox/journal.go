package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	// maxLine bounds one line of a journal, in bytes.
	maxLine = 1 << 20
	// maxLines bounds a journal: the sandbox keeps all of it in memory.
	maxLines = 2_000_000
)

var (
	errFull   = errors.New("sandbox: the journal is full; begin with an empty folder")
	errClosed = errors.New("sandbox: the journal is closed")
)

// journal is an append-only file of JSON lines. A line is on disk when append
// returns nil. Lines that arrive while others are being written go out
// together, with one fsync.
type journal struct {
	file *os.File

	writing sync.Mutex // held by the one who writes; taken before mu

	mu     sync.Mutex
	lines  int
	failed error  // after a failed write the file's end is not known: no more writes
	next   *batch // collects lines until its first caller may write
}

type batch struct {
	bytes bytes.Buffer
	then  []func() // what takes effect with the lines, in their order
	done  chan struct{}
	err   error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// openJournal opens or makes the file, locks it against a second process,
// gives each whole line to read, and cuts off a torn last line: it was never
// acknowledged to anybody.
func openJournal(path string, read func(line []byte) error) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sandbox: open the journal: %w", err)
	}
	j := &journal{file: file, next: newBatch()}
	if err := j.recover(path, read); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
}

func (j *journal) recover(path string, read func(line []byte) error) error {
	if err := syscall.Flock(int(j.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("sandbox: %s is in use: %w", path, err)
	}
	reader := bufio.NewReaderSize(j.file, maxLine)
	var whole int64
	for {
		line, err := reader.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("sandbox: read %s, line %d: %w", path, j.lines+1, err)
		}
		if err := read(line); err != nil {
			return fmt.Errorf("sandbox: read %s, line %d: %w", path, j.lines+1, err)
		}
		whole += int64(len(line))
		if j.lines++; j.lines > maxLines {
			return errFull
		}
	}
	if err := j.file.Truncate(whole); err != nil {
		return fmt.Errorf("sandbox: cut the torn line of %s: %w", path, err)
	}
	if _, err := j.file.Seek(whole, io.SeekStart); err != nil {
		return fmt.Errorf("sandbox: seek in %s: %w", path, err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sandbox: sync %s: %w", path, err)
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the name of a new file as durable as its bytes.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sandbox: open the folder: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("sandbox: sync the folder: %w", err)
	}
	return nil
}

// append writes one value as a line and returns when it is on disk and then was
// called. The thens of all lines are called one after another, in the order of
// the lines, so that memory is what the file says; none is called for a line
// that failed. After an error nothing more is written, ever.
func (j *journal) append(value any, then func()) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("sandbox: encode a line: %w", err)
	}
	if len(line)+1 > maxLine {
		return errors.New("sandbox: a line is too long")
	}
	mine, first, err := j.join(line, then)
	if err != nil {
		return err
	}
	if !first {
		<-mine.done
		return mine.err
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	j.next = newBatch() // from here on nobody joins mine
	mine.err = j.failed
	j.mu.Unlock()
	if mine.err == nil {
		mine.err = write(j.file, mine.bytes.Bytes())
		j.mu.Lock()
		j.failed = mine.err
		j.mu.Unlock()
	}
	if mine.err == nil {
		for _, then := range mine.then {
			then()
		}
	}
	close(mine.done)
	return mine.err
}

// join puts a line into the batch that is collecting. Its first caller is the
// one who writes it.
func (j *journal) join(line []byte, then func()) (mine *batch, first bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return nil, false, j.failed
	}
	if j.lines >= maxLines {
		return nil, false, errFull
	}
	j.lines++
	first = j.next.bytes.Len() == 0
	j.next.bytes.Write(line)
	j.next.bytes.WriteByte('\n')
	j.next.then = append(j.next.then, then)
	return j.next, first, nil
}

func write(file *os.File, data []byte) error {
	if _, err := file.Write(data); err != nil {
		return fmt.Errorf("sandbox: write: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sandbox: sync: %w", err)
	}
	return nil
}

// close waits for the write under way and closes the file.
func (j *journal) close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		j.failed = errClosed
	}
	return j.file.Close()
}
