package sim

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"strconv"
	"time"
)

// Trace writes down a history, one line for each step, and condenses it.
type Trace struct {
	sum   hash.Hash
	all   io.Writer // nil: only the tail is kept
	tail  [][]byte
	next  int
	lines int
	err   error
}

// tailLines is how much of a history a failure shows.
const tailLines = 120

// NewTrace makes a trace; all may be nil.
func NewTrace(all io.Writer) *Trace {
	return &Trace{sum: sha256.New(), all: all, tail: make([][]byte, tailLines)}
}

func (t *Trace) line(at time.Duration, who string, words []string) {
	b := t.tail[t.next][:0]
	b = strconv.AppendInt(b, int64(at/time.Microsecond), 10)
	b = append(append(b, ' '), who...)
	for _, w := range words {
		b = append(append(b, ' '), w...)
	}
	b = append(b, '\n')
	t.tail[t.next] = b
	t.next = (t.next + 1) % tailLines
	t.lines++
	if _, err := t.sum.Write(b); err != nil {
		t.err = err
	}
	if t.all != nil {
		if _, err := t.all.Write(b); err != nil && t.err == nil {
			t.err = err
		}
	}
}

// Lines counts the lines written.
func (t *Trace) Lines() int { return t.lines }

// Sum condenses everything written so far.
func (t *Trace) Sum() [32]byte {
	var out [32]byte
	t.sum.Sum(out[:0])
	return out
}

// Tail gives the last lines, and the first error of writing if there was one.
func (t *Trace) Tail() string {
	var b bytes.Buffer
	for n := range t.tail {
		b.Write(t.tail[(t.next+n)%tailLines])
	}
	if t.err != nil {
		b.WriteString(t.err.Error())
	}
	return b.String()
}
