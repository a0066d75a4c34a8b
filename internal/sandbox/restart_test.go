package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hapaxpay/hapax/money"
)

// everything is what a sandbox tells about itself, without its address, which
// a restart may change.
func (f *fixture) everything(paths ...string) string {
	f.t.Helper()
	var all strings.Builder
	for _, path := range append(paths, "/register", "/control/charges", "/control/sessions", "/control/contract") {
		g := f.want(f.get(path), 200)
		all.WriteString(path + ": " + strings.ReplaceAll(g.body, f.Base, "") + "\n")
	}
	return all.String()
}

func TestRestartGivesTheSameState(t *testing.T) {
	dir := t.TempDir()
	var before string
	var held, slow, session, paths = "", "", "", []string(nil)
	var replayed got
	t.Run("before", func(t *testing.T) {
		f := startIn(t, dir)
		l := lifeOf(f, "hold 100, capture 60, refund 20, fail, chargeback 10, refund 200!exceeds_remaining")
		held, paths = l.charge.ID, []string{"/refunds/" + l.refund, "/captures?reference=capture-1"}
		replayed = l.actOn(held, KindCapture, 9, 10)
		session = f.opened("").ID
		f.shows(f.form("/pay/"+session, "decline"), "declined")
		other := decoded[Session](t, f.want(f.postTo(f.ctx, "/sessions", "k-2", sessionBody("order-2", `,"capture":false`)), 200))
		f.leaves(f.form("/pay/"+other.ID, "pay"))
		f.want(f.post(f.ctx, "k-3", bodyOf("order-3", "pm_3ds")), 200)
		f.ok(f.SetFaults(f.ctx, 0, Rule{Call: KindRefund, Fault: "processing_60000"}))
		sale := f.want(f.post(f.ctx, "k-4", bodyOf("order-4", "pm_ok")), 200).charge(t)
		slow = decoded[Act](t, f.want(f.actOn(sale.ID, KindRefund, 4, 1000), 200)).ID
		before = f.everything(paths...)
	})
	appendTo(t, filepath.Join(dir, "register.jsonl"), `{"act":{"id":"cp_torn","kind":"capture","charge":"`+held+`","amount":1`)
	t.Run("after", func(t *testing.T) {
		f := startIn(t, dir)
		if diff := cmp.Diff(before, f.everything(paths...)); diff != "" {
			t.Fatal(diff)
		}
		if again := f.want(f.actOn(held, KindCapture, 9, 10), 200); again.body != replayed.body {
			t.Errorf("replayed %s, was %s", again.body, replayed.body)
		}
		f.wantCode(f.postTo(f.ctx, "/charges/"+held+"/refund", "k-refund-3", actBody(KindRefund, "refund-3", 200, "USD")), 422, "exceeds_remaining")
		f.want(f.actOn(held, KindCapture, 10, 30), 200) // what is left, and no more
		f.wantCode(f.actOn(held, KindCapture, 11, 1), 422, "already_captured")
		if s := f.page(session); s.Status != StatusOpen || s.Tries != 1 {
			t.Errorf("session: %+v", s)
		}
		moved := len(f.register())
		f.ok(f.Advance(f.ctx, time.Minute))
		f.movedWithin(moved + 1)
		if a := decoded[Act](t, f.want(f.get("/refunds/"+slow), 200)); a.Status != StatusSucceeded {
			t.Errorf("the refund in processing: %+v", a)
		}
		f.leaves(f.form("/pay/"+session, "pay"))
		before = f.everything(paths...)
	})
	t.Run("once more", func(t *testing.T) {
		if diff := cmp.Diff(before, startIn(t, dir).everything(paths...)); diff != "" {
			t.Error(diff)
		}
	})
}

func (f *fixture) register() []Movement {
	f.t.Helper()
	movements, err := f.Register(f.ctx)
	f.ok(err)
	return movements
}

// Time goes on while the sandbox is down.
func TestHoldsAndPagesLapseWhileDown(t *testing.T) {
	dir := t.TempDir()
	var charge, session string
	t.Run("before", func(t *testing.T) {
		f := startIn(t, dir)
		charge, session = lifeOf(f, "hold 100").charge.ID, f.opened("").ID
	})
	server, err := Open(Config{Dir: dir, Secret: testSecret, Now: func() time.Time { return time.Now().Add(8 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	c, known, err := server.changeCharge(charge, func(chargeLine) *entry { return nil })
	if err != nil || !known || c.Status != StatusExpired {
		t.Errorf("the hold: %+v, %v", c, err)
	}
	if s, known, wasOpen, err := server.pay(session); err != nil || !known || wasOpen || s.Status != StatusExpired {
		t.Errorf("the page: %+v, %v", s, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
}

// What lapsed is written down when it is seen: setting the clock back changes
// nothing any more.
func TestLapsesAreWrittenWhenSeen(t *testing.T) {
	l := lifeOf(start(t), "hold 100, week")
	if strings.Contains(l.file("register.jsonl"), `"status":"expired"`) {
		t.Fatal("written before it was seen")
	}
	if c := l.now(); c.Status != StatusExpired {
		t.Errorf("the charge: %+v", c)
	}
	if !strings.Contains(l.file("register.jsonl"), `"status":"expired"`) {
		t.Error("what was seen is not written down")
	}
	l.ok(l.SetOffset(l.ctx, 0))
	if c := l.now(); c.Status != StatusExpired {
		t.Errorf("after the clock went back: %+v", c)
	}
	l.plays("capture 1!not_capturable")
}

// Each booking is one line: an act, what it makes of its charge, its movement
// and what is remembered for its key.
func TestOneLineForEachBooking(t *testing.T) {
	l := lifeOf(start(t), "hold 100")
	lines := func() int { return strings.Count(l.file("register.jsonl"), "\n") }
	for _, step := range []string{"capture 60", "refund 10", "fail", "chargeback 5", "won", "final 10", "reverse", "refund 1!not_refundable"} {
		before := lines()
		l.play(step)
		if n := lines() - before; n != 1 {
			t.Errorf("%s: %d lines", step, n)
		}
	}
	s := l.opened("")
	before := lines()
	l.leaves(l.form("/pay/"+s.ID, "pay"))
	if n := lines() - before; n != 1 {
		t.Errorf("pay: %d lines", n)
	}
}

// Memory follows the file: many writers at once, and the same order after a
// restart.
func TestManyWritersAndARestart(t *testing.T) {
	dir := t.TempDir()
	var before string
	t.Run("before", func(t *testing.T) {
		f := startIn(t, dir)
		const writers = 64
		f.together(callCharge, writers, func(i int) got {
			return f.post(f.ctx, fmt.Sprintf("k%d", i), bodyOf(fmt.Sprintf("order-%d", i), "pm_ok"))
		})
		before = f.everything()
	})
	t.Run("after", func(t *testing.T) {
		if diff := cmp.Diff(before, startIn(t, dir).everything()); diff != "" {
			t.Error(diff)
		}
	})
}

// ledger is an independent account of one charge, kept from the answers.
type ledger struct{ captured, refunded, disputed, returned int64 }

func (l ledger) net() int64 { return l.captured - l.refunded - l.disputed - l.returned }

// Random acts on several charges: the register agrees with an account that is
// kept from the answers alone, before and after a restart.
func TestRandomActsKeepTheSums(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if one, err := strconv.ParseUint(os.Getenv("HAPAX_SANDBOX_SEED"), 10, 64); err == nil {
		seed = one
	}
	t.Logf("HAPAX_SANDBOX_SEED=%d plays this again", seed)
	dir := t.TempDir()
	accounts := map[string]*ledger{}
	t.Run("before", func(t *testing.T) {
		f := startIn(t, dir)
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range 6 {
			reference := fmt.Sprintf("order-%d", i)
			body := fmt.Sprintf(`{"reference":%q,"amount":100,"currency":"USD","payment_method":"pm_ok","capture":%t}`, reference, i%2 == 0)
			c := f.want(f.post(f.ctx, reference, body), 200).charge(t)
			account := &ledger{captured: c.CapturedAmount}
			accounts[reference] = account
			for n := range 30 {
				account.step(f, random, c.ID, 1000*i+n)
				now := f.want(f.get("/charges/"+c.ID), 200).charge(t)
				if now.CapturedAmount != account.captured || now.RefundedAmount != account.refunded {
					t.Fatalf("the charge tells %+v, the account is %+v", now, account)
				}
				if account.net() < 0 || account.captured > 100 {
					t.Fatalf("more went back than came: %+v", account)
				}
			}
		}
		checkAccounts(t, f, accounts)
	})
	t.Run("after", func(t *testing.T) { checkAccounts(t, startIn(t, dir), accounts) })
}

func checkAccounts(t *testing.T, f *fixture, accounts map[string]*ledger) {
	t.Helper()
	taken := Net(f.register())
	for reference, account := range accounts {
		got := taken[reference]
		if got.Net["USD"] != account.net() || (got.Charges == 1) != (account.net() > 0) {
			t.Errorf("%s: the register says %+v, the account is %+v", reference, got, account)
		}
	}
}

// step does one random thing, and books into the account what the answer says.
func (l *ledger) step(f *fixture, random *rand.Rand, charge string, n int) {
	f.t.Helper()
	minor := 1 + random.Int64N(50)
	switch random.IntN(6) {
	case 0, 1:
		if g := f.actOn(charge, KindCapture, n, minor); g.status == 200 {
			l.captured += minor
		}
	case 2:
		g := f.actOn(charge, KindRefund, n, minor)
		if g.status != 200 {
			return
		}
		l.refunded += minor
		if random.IntN(3) == 0 {
			_, err := f.FailRefund(f.ctx, decoded[Act](f.t, g).ID, "account_closed")
			f.ok(err)
			l.refunded -= minor
		}
	case 3:
		if random.IntN(10) == 0 {
			if g := f.actOn(charge, KindReverse, n, 0); g.status == 200 && l.captured > 0 {
				l.returned += decoded[Act](f.t, g).Amount
			}
		}
	case 4:
		act, err := f.OpenChargeback(f.ctx, charge, minor)
		if err != nil {
			return // refused: nothing moved
		}
		l.disputed += minor
		if random.IntN(2) == 0 {
			_, err = f.WinChargeback(f.ctx, act.ID)
			f.ok(err)
			l.disputed -= minor
		}
	case 5:
		if act, err := f.CaptureByHand(f.ctx, charge, 0); err == nil {
			l.captured += act.Amount
		}
	}
}

func TestNet(t *testing.T) {
	m := func(charge, reference, kind, object, of string, amount int64) Movement {
		return Movement{Charge: charge, ChargeReference: reference, Reference: "own-" + object, Kind: kind, Object: object, Of: of, Amount: amount, Currency: "USD"}
	}
	held := m("ch_5", "e", KindReverse, "rv_5", "ch_5", 100)
	held.Held = true
	euro := m("ch_7", "g", KindCharge, "ch_7", "", 5)
	euro.Currency = "EUR"
	got := Net([]Movement{
		m("ch_1", "a", KindCharge, "ch_1", "", 100), m("ch_2", "a", KindCharge, "ch_2", "", 100), // charged twice
		m("ch_3", "c", KindCapture, "cp_1", "", 60), m("ch_3", "c", KindCapture, "cp_2", "", 40), m("ch_3", "c", KindRefund, "rf_1", "", 30),
		m("ch_3", "c", KindRefund, "rf_2", "", 20), m("ch_3", "c", KindReverse, "rf_2", "rf_2", 20), // the second refund failed
		m("ch_4", "d", KindCharge, "ch_4", "", 100), m("ch_4", "d", KindChargeback, "cb_1", "", 100),
		m("ch_4", "d", KindReverse, "cb_1", "cb_1", 100), m("ch_4", "d", KindReverse, "rv_4", "ch_4", 100),
		held,
		m("ch_6", "g", KindCharge, "ch_6", "", 7), euro,
		{Charge: "ch_8", Reference: "h", Kind: KindCharge, Amount: 9, Currency: "USD"}, // as told before there were acts
	})
	want := map[string]Taken{
		"a": {map[money.Currency]int64{"USD": 200}, 2}, "c": {map[money.Currency]int64{"USD": 70}, 1}, "d": {map[money.Currency]int64{"USD": 0}, 0},
		"e": {map[money.Currency]int64{"USD": 0}, 0}, "g": {map[money.Currency]int64{"USD": 7, "EUR": 5}, 2}, "h": {map[money.Currency]int64{"USD": 9}, 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
