package flow_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/operation"
	"github.com/hapaxpay/hapax/internal/rig"
)

// cancelRaces plays each row of the table in docs/races.md; the row says how it ends.
var cancelRaces = map[string]func(m *meeting){
	// Another command.
	"cancel, hold": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.cancel("can-2") })
		m.cancel("can-2")
	},
	"cancel, page": func(m *meeting) {
		m.page()
		m.canceling(operation.PointBeforeRecord, func() { m.cancel("can-2") })
		m.cancel("can-2")
	},
	"capture, later": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capture("cap-1", 0) })
		m.capture("cap-1", 0)
	},
	"capture, earlier": func(m *meeting) {
		m.hold()
		m.during(operation.PointAfterClaim, "capture", func(p *rig.Replica) (operation.Answer, error) { return p.Capture("cap-1", m.pay, 0, nil) },
			func() { m.cancel("can-1") })
		m.cancel("can-1")
	},
	"capture, unknown": func(m *meeting) {
		m.hold()
		m.lost("timeout_executed", "capture")
		m.capture("cap-1", 0)
		m.cancel("can-1")
		m.settle()
		m.capture("cap-1", 0)
	},
	"capture of a part": func(m *meeting) {
		m.hold()
		m.during(operation.PointBeforeRecord, "capture", func(p *rig.Replica) (operation.Answer, error) { return p.Capture("cap-1", m.pay, 400, nil) },
			func() { m.cancel("can-1") })
		m.cancel("can-1")
		m.capture("cap-2", 0)
	},
	"refund, canceling": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, m.refund)
	},
	"refund, paid": func(m *meeting) {
		m.pay = m.sale("key-1")
		m.during(operation.PointAfterClaim, "refund", func(p *rig.Replica) (operation.Answer, error) { return p.Refund("ref-1", m.pay, 0) },
			func() { m.cancel("can-1") })
	},
	"refund, reversal unknown": func(m *meeting) { // X6
		m.hold()
		m.capturedByHand(0)
		m.lost("timeout_executed", "reverse")
		m.cancel("can-1")
		m.refund()
		m.settle()
		m.cancel("can-1")
		m.refund()
	},
	"create": func(m *meeting) {
		m.page()
		m.canceling(operation.PointAfterClaim, func() {
			a, err := m.p.Hosted("key-2", theOrder)
			m.heard("create", a, err)
		})
		a, err := m.p.Hosted("key-2", theOrder)
		m.heard("create", a, err)
	},

	// Evidence.
	"check, page open before": func(m *meeting) {
		m.page()
		m.during(operation.PointAfterLookup, "check", func(p *rig.Replica) (operation.Answer, error) { return p.Check(m.pay) },
			func() { m.cancel("can-1") })
	},
	"check, held before": func(m *meeting) {
		m.hold()
		m.during(operation.PointAfterLookup, "check", func(p *rig.Replica) (operation.Answer, error) { return p.Check(m.pay) },
			func() { m.cancel("can-1") })
	},
	"check, told first": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointBeforeRecord, m.check)
	},
	"check, paid before": func(m *meeting) {
		m.page()
		m.paysPage()
		m.during(operation.PointAfterLookup, "check", func(p *rig.Replica) (operation.Answer, error) { return p.Check(m.pay) },
			func() { m.cancel("can-1") })
	},
	"sweep, page open before": func(m *meeting) {
		m.page()
		m.r.Later(10 * time.Minute)
		m.sweeping(operation.PointAfterLookup, func() { m.cancel("can-1") })
	},
	"sweep, paid before": func(m *meeting) {
		m.page()
		m.paysPage()
		m.r.Later(10 * time.Minute)
		m.sweeping(operation.PointAfterLookup, func() { m.canceling(operation.PointBeforeRecord, func() {}) })
	},
	"sweep, process gone": func(m *meeting) {
		m.hold()
		crash := rig.CrashAt(operation.PointAfterClaim, 1)
		if _, err := m.r.Replica(rig.WithFaults(crash)).Cancel("can-1", m.pay, ""); err == nil {
			m.t.Error("the process was to vanish")
		}
		m.cancel("can-1")
		m.r.Later(time.Minute)
		m.sweeping(operation.PointAfterPermit, func() { m.cancel("can-2") })
		m.cancel("can-1")
	},
	"sweep, slow owner": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointBeforeRecord, func() {
			m.r.Later(time.Minute)
			m.p.Sweep.Pass(m.t.Context())
		})
	},

	// The acquirer's own hands, and the payer.
	"captured by hand": func(m *meeting) {
		m.keeps()
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capturedByHand(0) })
		m.cancel("can-1")
	},
	"captured by hand, told first": func(m *meeting) {
		m.keeps()
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capturedByHand(0); m.check() })
	},
	"captured by hand, given back": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capturedByHand(0) })
	},
	"captured by hand, told first, given back": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capturedByHand(0); m.check() })
	},
	"captured by hand in part": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.capturedByHand(400) })
		m.cancel("can-1")
		m.capture("cap-1", 0)
	},
	"hold lapsed": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, func() { m.ok(m.r.Acquirer.Advance(m.t.Context(), 30*24*time.Hour)) })
	},
	"page expired": func(m *meeting) {
		m.page()
		m.canceling(operation.PointAfterClaim, func() {
			_, err := m.r.Acquirer.ExpireSession(m.t.Context(), m.r.SessionOf(m.pay).ID)
			m.ok(err)
		})
	},
	"released by hand": func(m *meeting) {
		m.hold()
		m.canceling(operation.PointAfterClaim, m.releasedByHand)
	},
	"page paid": func(m *meeting) {
		m.page()
		m.canceling(operation.PointAfterClaim, m.paysPage)
		a, err := opens(m.p)
		m.heard("create", a, err)
	},
	"page paid, told first": func(m *meeting) {
		m.page()
		m.canceling(operation.PointAfterClaim, func() { m.paysPage(); m.check() })
	},
	"page held": func(m *meeting) {
		m.heldPage()
		m.canceling(operation.PointAfterClaim, m.paysPage)
		m.cancel("can-2")
	},
	"page closed, paid too late": func(m *meeting) {
		m.page()
		m.canceling(operation.PointBeforeRecord, func() {
			if s, err := m.r.Acquirer.PaySession(m.t.Context(), m.r.SessionOf(m.pay).ID); err == nil && s.Status != "closed" {
				m.t.Errorf("the page is %s", s.Status)
			}
		})
	},
	"step confirmed": func(m *meeting) {
		m.keeps()
		m.step()
		m.canceling(operation.PointAfterClaim, m.confirms)
	},
	"step confirmed, given back": func(m *meeting) {
		m.step()
		m.canceling(operation.PointAfterClaim, m.confirms)
	},
	"step": func(m *meeting) {
		m.step()
		m.cancel("can-1")
	},

	// The charge has no answer yet.
	"charge held late": func(m *meeting) {
		m.paying(operation.PointAfterReply, holds, func() { m.cancel("can-1") })
		m.settle()
		m.cancel("can-1")
	},
	"charge taken late": func(m *meeting) {
		m.paying(operation.PointAfterReply, pays("pm_ok"), func() { m.cancel("can-1") })
		m.settle()
		m.cancel("can-1")
	},
	"charge declined late": func(m *meeting) {
		m.paying(operation.PointAfterReply, pays("pm_declined_do_not_honor"), func() { m.cancel("can-1") })
		m.settle()
		m.cancel("can-1")
	},
	"page opened late": func(m *meeting) {
		m.paying(operation.PointAfterReply, opens, func() { m.cancel("can-1") })
		m.settle()
		m.cancel("can-1")
	},
	"page opened late and paid": func(m *meeting) {
		m.paying(operation.PointAfterReply, opens, func() { m.cancel("can-1"); m.paysPage() })
		m.settle()
		m.cancel("can-1")
	},
	"charge lost, held": func(m *meeting) {
		m.vanishes(holds)
		m.cancel("can-1")
		m.settle()
		m.cancel("can-1")
	},
	"charge lost, taken": func(m *meeting) {
		m.vanishes(pays("pm_ok"))
		m.cancel("can-1")
		m.settle()
		m.cancel("can-1")
	},
	"charge lost, not executed": func(m *meeting) {
		m.lost("timeout_not_executed", "charge")
		m.paying(operation.PointBeforeRecord, holds, func() { m.cancel("can-1") })
		m.settle()
		m.cancel("can-1")
	},

	// The cancel has no answer.
	"answer lost, done": func(m *meeting) {
		m.hold()
		m.lost("timeout_executed", "reverse")
		m.cancel("can-1")
		m.settle()
		m.cancel("can-1")
	},
	"503, not done": func(m *meeting) {
		m.hold()
		m.lost("503_once", "reverse")
		m.cancel("can-1")
		m.capture("cap-1", 0)
		m.settle()
		m.cancel("can-1")
	},
	"503, then captured by hand": func(m *meeting) {
		m.keeps()
		m.hold()
		m.lost("503_once", "reverse")
		m.cancel("can-1")
		m.capturedByHand(0)
		m.settle()
		m.cancel("can-1")
	},
	"503, page": func(m *meeting) {
		m.page()
		m.lost("503_once", "close")
		m.cancel("can-1")
		m.settle()
		m.cancel("can-1")
	},
}

// TestRacesOfCancel: each row of docs/races.md is played, and nothing is played that it does not tell.
func TestRacesOfCancel(t *testing.T) {
	raw, err := os.ReadFile("../../docs/races.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, cells := range regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \| [^|]+ \| `+"`(\\w+)`"+` \| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(string(raw), -1) {
		name, ends, asked, says := cells[1], cells[2], cells[3], cells[4]
		play := cancelRaces[name]
		if play == nil || seen[name] {
			t.Errorf("docs/races.md tells of %q, which is not played, or twice", name)
			continue
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &meeting{life: newLife(t, nil)}
			play(m)
			m.sums()
			m.is("key-1", ends)
			if got := m.acquirer(); got != asked {
				t.Errorf("at the acquirer: %s, want %s", got, asked)
			}
			if got := strings.Join(m.says, "; "); got != says {
				t.Errorf("told: %s\nwant: %s", got, says)
			}
		})
	}
	for name := range cancelRaces {
		if !seen[name] {
			t.Errorf("docs/races.md does not tell of %q", name)
		}
	}
}
