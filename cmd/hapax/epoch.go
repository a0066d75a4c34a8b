package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hapaxpay/hapax/internal/store"
)

type epochCmd struct {
	Show        epochShowCmd        `cmd:"" help:"What is known about the database's history; exit 1 while sends are on hold."`
	Hold        epochHoldCmd        `cmd:"" help:"Put sends on hold by hand: commits since a moment may be lost."`
	Acknowledge epochAcknowledgeCmd `cmd:"" help:"End the hold on your word that nothing of the lost interval is left to find."`
	Restored    epochRestoredCmd    `cmd:"" help:"Say that this database is a restored snapshot or dump, before anything is served from it."`
}

type epochShowCmd struct{}

// Run shows the epoch.
func (epochShowCmd) Run(t *tool) error {
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	e, err := s.Epoch(t.ctx)
	if err != nil {
		return err
	}
	if err := t.tellEpoch(!e.Held, e); err != nil {
		return err
	}
	if e.Held {
		return errFound
	}
	return nil
}

func (t *tool) tellEpoch(ok bool, e store.Epoch) error {
	object := map[string]any{"ok": ok, "epoch": e.Epoch, "system_identifier": e.SystemIdentifier, "timeline": e.Timeline, "held": e.Held,
		"why": e.Why, "lost_from": stamp(e.LostFrom), "lost_to": stamp(e.LostTo), "seen_at": stamp(e.SeenAt), "changed_at": stamp(e.ChangedAt)}
	text := fmt.Sprintf("epoch %d, timeline %d of server %s; last seen well %s", e.Epoch, e.Timeline, e.SystemIdentifier, stamp(e.SeenAt))
	if !e.LostFrom.IsZero() {
		text += fmt.Sprintf("\ncommits from %s to %s may be lost", stamp(e.LostFrom), stamp(e.LostTo))
	}
	if e.Why != "" {
		text += "\nreason: " + e.Why
	}
	if e.Held {
		text += "\nSends are on hold. The hold ends when every account's movements of that time were compared,\n" +
			fmt.Sprintf("or by `hapax epoch acknowledge %d --why …`.", e.Epoch)
	}
	return t.tell(object, text)
}

type epochHoldCmd struct {
	Why  string    `required:"" help:"Reason, for whoever reads the history."`
	From time.Time `required:"" help:"Since when commits may be lost: 2026-01-31T12:00:00Z." format:"2006-01-02T15:04:05Z07:00"`
}

// Run puts sends on hold.
func (c epochHoldCmd) Run(t *tool) error {
	return t.changeEpoch(c.Why, func(s *store.Store) error {
		f, err := s.Facts(t.ctx)
		if err != nil {
			return err
		}
		if c.From.After(f.Now) { // an interval that ends before it begins holds nothing, and would be compared at once
			return fmt.Errorf("--from %s lies ahead: the database's clock shows %s; give the moment since when commits may be lost", stamp(c.From), stamp(f.Now))
		}
		return s.HoldEpoch(t.ctx, c.Why, c.From)
	})
}

type epochAcknowledgeCmd struct {
	Epoch int64  `arg:"" help:"The epoch that you looked at, from epoch show."`
	Why   string `required:"" help:"How you know that nothing is left to find."`
}

// Run ends a hold.
func (c epochAcknowledgeCmd) Run(t *tool) error {
	return t.changeEpoch(c.Why, func(s *store.Store) error {
		err := s.AcknowledgeEpoch(t.ctx, c.Epoch, c.Why)
		if !errors.Is(err, store.ErrNotHeld) {
			return err
		}
		e, readErr := s.Epoch(t.ctx)
		if readErr == nil && e.Held {
			return fmt.Errorf("epoch %d is on hold, not %d: look at it with `hapax epoch show` first", e.Epoch, c.Epoch)
		}
		return errors.Join(store.ErrNotHeld, readErr)
	})
}

type epochRestoredCmd struct {
	Why string `required:"" help:"What was restored, from when."`
}

// Run begins a new epoch.
func (c epochRestoredCmd) Run(t *tool) error {
	return t.changeEpoch(c.Why, func(s *store.Store) error { return s.EpochRestored(t.ctx, c.Why) })
}

// changeEpoch changes it and shows what it is then; a hold is what was asked for here, not something found wrong.
func (t *tool) changeEpoch(why string, change func(*store.Store) error) error {
	if strings.TrimSpace(why) == "" {
		return errors.New("--why is empty: whoever reads the history wants the reason")
	}
	s, done, err := t.store()
	if err != nil {
		return err
	}
	defer done()
	if err := change(s); err != nil {
		return err
	}
	e, err := s.Epoch(t.ctx)
	if err != nil {
		return err
	}
	return t.tellEpoch(true, e)
}
