package sandbox

import (
	"container/heap"
	"time"
)

// lapse is when the time of a charge or a session is over, unless something
// happens before.
type lapse struct {
	id string
	at time.Time
}

// lapses is a heap, the earliest first.
type lapses []lapse

func (l lapses) Len() int           { return len(l) }
func (l lapses) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l lapses) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lapses) Push(x any)        { *l = append(*l, x.(lapse)) }
func (l *lapses) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// expect notes that time may be over for something; b.mu is held.
func (b *book) expect(id string, at time.Time) {
	heap.Push(&b.lapses, lapse{id, at})
	if b.lapses[0].id == id {
		b.wake(&b.lapsesChanged)
	}
}

// expectCharge notes when the charge's hold or confirmation is over. An act
// upon it may have put that off: it is noted anew with each.
func (b *book) expectCharge(r *chargeRecord) {
	if r != nil && r.ExpiresAt != nil && (r.Status == StatusHeld || r.Status == StatusActionRequired) {
		b.expect(r.ID, *r.ExpiresAt)
	}
}

// nextLapse returns the earliest lapse, far ahead and without an id when there
// is none or nobody is told, and a channel that is closed when that changes.
func (b *book) nextLapse() (lapse, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.webhooks.URL == "" || len(b.lapses) == 0 {
		return lapse{at: b.clock.now().Add(maxContractTime)}, b.lapsesChanged
	}
	return b.lapses[0], b.lapsesChanged
}

// takeLapses returns what is due and takes it off the heap.
func (b *book) takeLapses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []string
	for now := b.clock.now(); len(b.lapses) > 0 && !now.Before(b.lapses[0].at); {
		due = append(due, heap.Pop(&b.lapses).(lapse).id)
	}
	return due
}

// noteLapses writes down, and so tells, that time is over, without anybody
// asking; only while somebody is told.
func (s *Server) noteLapses() {
	defer s.work.Done()
	for {
		next, changed := s.book.nextLapse()
		if !s.clock.wait(next.at, s.stop, changed) {
			return
		}
		if next.id == "" {
			continue
		}
		for _, id := range s.book.takeLapses() {
			note := func() error { _, _, err := s.changeCharge(id, func(chargeLine) *entry { return nil }); return err }
			if rec, _ := s.book.session(id); rec != nil {
				note = func() error { _, _, err := s.changeSession(id, func(sessionLine) *entry { return nil }); return err }
			}
			if err := note(); err != nil {
				return // the journal refuses everything from now on
			}
		}
	}
}
