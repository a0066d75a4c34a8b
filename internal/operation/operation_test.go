package operation_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/operation"
)

var update = flag.Bool("update", false, "write the state picture anew")

// stateOrder is that of PROTOCOL section 3.
var stateOrder = []operation.State{operation.InProgress, operation.AwaitingResult, operation.InReview, operation.Completed}

// Moves are those of PROTOCOL section 3, by hand. Nothing else.
func TestMovesAreTheProtocols(t *testing.T) {
	want := map[operation.State][]operation.State{
		"in_progress":     {"awaiting_result", "in_review", "completed"},
		"awaiting_result": {"in_review", "completed"},
		"in_review":       {"completed", "awaiting_result"},
		"completed":       {},
	}
	if !maps.EqualFunc(operation.Moves, want, func(a, b []operation.State) bool { return slices.Equal(a, b) }) {
		t.Errorf("%v, want %v", operation.Moves, want)
	}
}

func TestSchemaHasTheSameStates(t *testing.T) {
	sql, err := os.ReadFile("../store/migrations/0001_core.sql")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range stateOrder {
		words = append(words, "'"+string(s)+"'")
	}
	want := "CONSTRAINT operation_state CHECK (state IN (" + strings.Join(words, ", ") + "))"
	if flat := regexp.MustCompile(`\s+`).ReplaceAllString(string(sql), " "); !strings.Contains(flat, want) {
		t.Errorf("the schema does not say: %s", want)
	}
	if len(operation.Moves) != len(stateOrder) {
		t.Errorf("%d states, want %d", len(operation.Moves), len(stateOrder))
	}
}

const pictureFile = "../../docs/states/operation.mmd"

func TestPictureIsTheMoves(t *testing.T) {
	var b strings.Builder
	b.WriteString("%% Written by the tests of internal/operation from its table: go test ./internal/operation -run Picture -update\n")
	b.WriteString("stateDiagram-v2\n    [*] --> in_progress\n")
	for _, from := range stateOrder {
		for _, to := range operation.Moves[from] {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
		if len(operation.Moves[from]) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	if *update {
		if err := os.WriteFile(pictureFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the table says; write it anew with -update", pictureFile)
	}
}

const answerWithin = 8 * time.Second

var claimedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// What a repeat meets, in the order in which it is checked: parameters first, then the answer, then time (section 2).
func TestMeet(t *testing.T) {
	ours, theirs := [32]byte{1}, [32]byte{2}
	lease, due := claimedAt.Add(30*time.Second), claimedAt.Add(30*time.Second)
	follows := id.ID{15: 1}
	for _, tc := range []struct {
		name    string
		state   operation.State
		follows id.ID
		other   bool
		due     time.Time
		now     time.Time
		want    operation.Meeting
	}{
		{name: "other parameters, being worked on", state: operation.InProgress, other: true, due: lease, now: claimedAt, want: operation.MeetsOther},
		{name: "other parameters, lease over", state: operation.InProgress, other: true, due: lease, now: lease, want: operation.MeetsOther},
		{name: "other parameters, finished", state: operation.Completed, other: true, now: claimedAt, want: operation.MeetsOther},
		{name: "other parameters, in review", state: operation.InReview, other: true, due: due, now: claimedAt, want: operation.MeetsOther},

		{name: "finished", state: operation.Completed, due: due, now: claimedAt, want: operation.MeetsAnswer},
		{name: "finished, long past its due time", state: operation.Completed, due: due, now: due.Add(time.Hour), want: operation.MeetsAnswer},
		{name: "finished, followed another", state: operation.Completed, follows: follows, now: claimedAt, want: operation.MeetsAnswer},

		{name: "at the moment of the claim", state: operation.InProgress, due: lease, now: claimedAt, want: operation.MeetsOwner},
		{name: "just before answer within", state: operation.InProgress, due: lease, now: claimedAt.Add(answerWithin - 1), want: operation.MeetsOwner},
		{name: "exactly answer within", state: operation.InProgress, due: lease, now: claimedAt.Add(answerWithin), want: operation.MeetsUnanswered},
		{name: "just before the lease is over", state: operation.InProgress, due: lease, now: lease.Add(-1), want: operation.MeetsUnanswered},
		{name: "exactly when the lease is over", state: operation.InProgress, due: lease, now: lease, want: operation.MeetsNobody},
		{name: "after the lease", state: operation.InProgress, due: lease, now: lease.Add(time.Hour), want: operation.MeetsNobody},
		{name: "lease over within answer within", state: operation.InProgress, due: claimedAt.Add(time.Second), now: claimedAt.Add(time.Second), want: operation.MeetsNobody},

		{name: "awaiting, not due", state: operation.AwaitingResult, due: due, now: due.Add(-1), want: operation.MeetsUnanswered},
		{name: "awaiting, within answer within", state: operation.AwaitingResult, due: due, now: claimedAt, want: operation.MeetsUnanswered},
		{name: "awaiting, exactly due", state: operation.AwaitingResult, due: due, now: due, want: operation.MeetsNobody},
		{name: "awaiting, followed another, due", state: operation.AwaitingResult, follows: follows, due: due, now: due.Add(time.Hour), want: operation.MeetsUnanswered},

		{name: "in review, not due", state: operation.InReview, due: due, now: claimedAt, want: operation.MeetsUnanswered},
		{name: "in review, due: the sweep's alone", state: operation.InReview, due: due, now: due.Add(time.Hour), want: operation.MeetsUnanswered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			op := operation.Operation{Fingerprint: ours, State: tc.state, Follows: tc.follows, ClaimedAt: claimedAt, DueAt: tc.due}
			sent := ours
			if tc.other {
				sent = theirs
			}
			if got := op.Meet(sent, tc.now, answerWithin); got != tc.want {
				t.Errorf("meeting %d, want %d", got, tc.want)
			}
		})
	}
}

// The lease doubles with each takeover, up to a cap (K2).
func TestLease(t *testing.T) {
	const base = 30 * time.Second
	for fence, want := range map[int64]time.Duration{-1: base, 0: base, 1: base, 2: 2 * base, 3: 4 * base, 4: 8 * base, 5: 16 * base, 6: 16 * base, 1 << 62: 16 * base} {
		if got := operation.Lease(base, fence); got != want {
			t.Errorf("fence %d: %v, want %v", fence, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		fence := rapid.Int64Range(1, 1<<40).Draw(t, "fence")
		a, b := operation.Lease(base, fence), operation.Lease(base, fence+1)
		if a < base || b < a || b > 2*a {
			t.Fatalf("%v, then %v", a, b)
		}
	})
}
