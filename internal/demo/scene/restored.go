package scene

import (
	"context"
	"slices"
)

// restore is a way of losing the last commits, with the scenarios that are played on one cluster, which is restored as
// a whole.
type restore struct {
	variants []variant
}

// variant is one scenario of a restore.
type variant struct {
	name, title string
}

func restores() []restore { return nil }

func (r restore) has(name string) bool {
	return slices.ContainsFunc(r.variants, func(v variant) bool { return v.name == name })
}

func (r restore) play(context.Context, string, *collector) error { return nil }
